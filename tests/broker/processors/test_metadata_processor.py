"""MetadataProcessor: tables for slaves, as many as are taken."""

from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker import broker_controller
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.processors import metadata_processor
from rmqha.broker.processors.metadata_processor import MetadataProcessor
from rmqha.broker.tables.metadata import MetadataService
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FRAME_SIZE_MAX, RemotingCommand
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.response_table import Outcome
from tests.broker.machines import Machine, ask
from tests.reachable import count_entries
from tests.settings import remoting_limits
from tests.sim.sim_net import SimNet

TOPICS, OFFSETS = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET


async def test_tables_are_made_one_after_the_other_whoever_asks(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they would take the memory of them all."""
    making, most = 0, 0

    async def take_long(_table: object) -> bytes:
        nonlocal making, most
        making += 1
        most = max(most, making)
        await trio.sleep(5)
        making -= 1
        return b"{}"

    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as first, machine.client() as second:
        monkeypatch.setattr(metadata_processor, "encode_in_turns", take_long)
        async with trio.open_nursery() as nursery:
            for client, code in ((first, TOPICS), (second, OFFSETS)):
                nursery.start_soon(ask, client, RemotingCommand(code))
    assert most == 1


async def test_who_left_before_its_table_was_made_is_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take_long(_table: object) -> bytes:
        await trio.sleep(10)
        return b"{}"

    made: list[MetadataProcessor] = []

    def make(metadata: MetadataService, producers: ProducerManager) -> MetadataProcessor:
        made.append(MetadataProcessor(metadata, producers))
        return made[-1]

    monkeypatch.setattr(broker_controller, "MetadataProcessor", make)
    monkeypatch.setattr(metadata_processor, "encode_in_turns", take_long)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker():
        entries = []
        for _ in range(10):
            async with machine.client() as client:
                client.put_nowait(RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET).encode())
                await trio.sleep(1)
            await trio.sleep(20)
            entries.append(count_entries(made))
        assert entries[-1] == entries[2]


async def test_of_a_request_that_waits_for_its_table_no_more_is_kept_than_its_answer_needs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")

    async def take_long(_table: object) -> bytes:
        await trio.sleep(100)
        return b"{}"

    monkeypatch.setattr(metadata_processor, "encode_in_turns", take_long)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), AsyncExitStack() as clients:
        connected = [await clients.enter_async_context(machine.client()) for _ in range(10)]
        tracemalloc.start()
        for client in connected:
            client.put_nowait(RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET, body=bytes(1_000_000)).encode())
            await trio.sleep(1)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 5_000_000


async def test_a_table_is_made_for_one_at_a_time_and_once_for_who_asks_again(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as first, machine.client() as second:
        for number in range(3000):
            broker.offsets.commit_offset(f"g{number}", "t", 0, offset=number)
        answers: list[Outcome] = []
        for client in (first, first, second):
            request = RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET)
            client.invoke_nowait(request, deadline=trio.current_time() + 10, on_outcome=answers.append)
        await trio.sleep(1)
        answered = [answer for answer in answers if isinstance(answer, RemotingCommand)]
        assert sorted(answer.code for answer in answered) == [ResponseCode.SUCCESS] * 2 + [ResponseCode.SYSTEM_BUSY]
        assert broker.server is not None
        assert [connection.in_flight.requests for connection in broker.server.connections] == [0, 0]
        assert (await ask(first, RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET))).code == ResponseCode.SUCCESS


async def test_who_takes_no_answers_keeps_no_slave_from_its_tables(autojump_clock: MockClock) -> None:
    """16 clients with 16 MiB each did, for as long as they liked."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as slave:
        assert broker.server is not None
        broker.server.capacity.owed.size += remoting_limits().outgoing_bytes_max
        for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET):
            assert (await ask(slave, RemotingCommand(code))).code == ResponseCode.SUCCESS


async def test_a_table_is_made_once_for_all_who_asked_before_it_was_begun(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave behind 1,000 others waited for as many tables, at half a second each if they are large."""
    made = 0

    async def take_long(_table: object) -> bytes:
        nonlocal made
        await trio.sleep(1)
        made += 1
        return b"%d" % made

    monkeypatch.setattr(metadata_processor, "encode_in_turns", take_long)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), AsyncExitStack() as clients:
        connected = [await clients.enter_async_context(machine.client()) for _ in range(21)]
        answers: list[tuple[RequestCode, bytes]] = []

        async def ask_for(client: RemotingClient, code: RequestCode) -> None:
            answers.append((code, bytes((await ask(client, RemotingCommand(code))).body)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_for, connected[0], TOPICS)
            await trio.sleep(0.5)
            for client in connected[1:20]:
                nursery.start_soon(ask_for, client, TOPICS)
            nursery.start_soon(ask_for, connected[20], OFFSETS)
        first, *others = [body for code, body in answers if code is TOPICS]
        assert (first, len(others), len(set(others)), made) == (b"1", 19, 1, 3)
        assert (await ask(connected[0], RemotingCommand(OFFSETS))).body == b"4", "it is not asked for any more"


async def test_who_leaves_while_a_table_is_made_keeps_nobody_from_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many that ask and leave would have it begun again and again."""

    async def take_long(_table: object) -> bytes:
        await trio.sleep(1)
        return b"{}"

    monkeypatch.setattr(metadata_processor, "encode_in_turns", take_long)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), AsyncExitStack() as clients:
        first, slave, *leave = [await clients.enter_async_context(machine.client()) for _ in range(12)]
        begun_at, answered_s = trio.current_time(), 0.0

        async def ask_for_offsets() -> None:
            nonlocal answered_s
            await ask(slave, RemotingCommand(OFFSETS))
            answered_s = trio.current_time() - begun_at

        first.put_nowait(RemotingCommand(TOPICS).encode())
        await trio.sleep(0.1)
        for client in leave:
            client.put_nowait(RemotingCommand(OFFSETS).encode())
            await trio.sleep(0.01)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_for_offsets)
            await trio.sleep(1.3)
            for client in leave:
                client.close()
                await trio.sleep(0.5)
        assert answered_s == pytest.approx(2, abs=0.1)


async def test_all_who_ask_for_a_table_that_fits_no_frame_are_told_so(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once for all of them; one was never answered."""
    made = 0

    async def make_too_much(_table: object) -> bytes:
        nonlocal made
        await trio.sleep(1)
        made += 1
        return bytes(FRAME_SIZE_MAX - 50)

    monkeypatch.setattr(metadata_processor, "encode_in_turns", make_too_much)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, AsyncExitStack() as clients:
        connected = [await clients.enter_async_context(machine.client()) for _ in range(5)]
        answers: list[Outcome] = []
        for client in connected:
            request = RemotingCommand(RequestCode.GET_ALL_PRODUCER_INFO)
            client.invoke_nowait(request, deadline=trio.current_time() + 10, on_outcome=answers.append)
        await trio.sleep(5)
        told = [answer for answer in answers if isinstance(answer, RemotingCommand)]
        assert [answer.code for answer in told] == [ResponseCode.SYSTEM_ERROR] * 5
        assert (made <= 2, all("fit" in (answer.remark or "") for answer in told)) == (True, True)
        assert broker.server is not None
        assert [connection.in_flight.requests for connection in broker.server.connections] == [0] * 5


async def test_all_who_ask_for_a_table_that_is_not_known_yet_are_told_so_and_may_ask_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that was never answered would not ask its master for any table again."""
    machine, known = Machine(SimNet(), "10.0.0.1"), False

    async def told() -> dict[str, object] | None:
        await trio.sleep(1)
        return {"offsetTable": {1: 5}} if known else None

    async with machine.broker() as broker, AsyncExitStack() as stack:
        monkeypatch.setattr(broker.metadata.delay_offsets, "told", told)
        clients = [await stack.enter_async_context(machine.client()) for _ in range(3)]
        for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS):
            known = code == ResponseCode.SUCCESS
            outcomes: list[Outcome] = []
            for client in clients:
                asked = RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET)
                client.invoke_nowait(asked, deadline=trio.current_time() + 9, on_outcome=outcomes.append)
            await trio.sleep(10)
            answers = [outcome for outcome in outcomes if isinstance(outcome, RemotingCommand)]
            assert [answer.code for answer in answers] == [code] * 3
            assert all(("not known here yet" in (answer.remark or "")) is not known for answer in answers)
