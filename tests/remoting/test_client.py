"""RemotingClient against the real server, over the in-memory network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, SerializeType
from rmqha.errors import RemotingConnectError, RemotingError, RemotingSendRequestError, RemotingTimeoutError
from rmqha.remoting import client as remoting_client
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.client import RemotingClient, connect_remoting_client, open_remoting_client
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.response_table import Outcome, ResponseTable
from rmqha.remoting.server import RemotingServer
from tests.fakes import MemoryNetwork, memory_connection
from tests.settings import remoting_limits

ADDRESS = "10.0.0.1:10911"


class Broker(RequestDispatcher):
    """1: echo. 2: hold."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Connection, RemotingCommand]] = []
        self.register(1, lambda _, request: RemotingCommand(0, body=request.body))
        self.register(2, lambda connection, request: self.held.append((connection, request)))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Broker, RemotingServer, RemotingClient]]:
    network, broker = MemoryNetwork(), Broker()
    server = RemotingServer(broker, limits=remoting_limits())
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
            async with open_remoting_client(network, ADDRESS) as client:
                yield broker, server, client
            nursery.cancel_scope.cancel()


async def test_answers_find_their_requests_in_any_order(autojump_clock: MockClock) -> None:
    async with connected() as (broker, _, client):
        outcomes: list[Outcome] = []
        for n in range(20):
            request = RemotingCommand(2, body=bytes([n]))
            client.invoke_nowait(request, deadline=trio.current_time() + 3, on_outcome=outcomes.append)
        assert client.in_flight == 20
        assert (await client.invoke(RemotingCommand(1, body=b"x"), timeout_s=3)).body == b"x"
        for connection, request in reversed(broker.held):
            connection.respond(request, 0, body=bytes(request.body))
        await trio.testing.wait_all_tasks_blocked()
        bodies = [outcome.body[0] for outcome in outcomes if isinstance(outcome, RemotingCommand)]
        assert bodies == list(reversed(range(20)))
        assert client.in_flight == 0


def test_a_request_that_waits_long_is_the_only_one_of_its_opaque() -> None:
    """A held pull waits for 20 s, in which one connection may carry a million sends."""
    table = ResponseTable("10.0.0.1:1")
    waiting = table.add(inf, lambda _: None)
    assert all(table.next_opaque() != waiting for _ in range(1_000_000))


async def test_answers_that_came_before_the_peer_left_count_though_more_was_being_sent(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    ours, theirs = memory_connection()
    client = RemotingClient(ours, ADDRESS, receive_size=64)
    nursery.start_soon(client.run)
    outcomes: list[Outcome] = []
    for _ in range(20):
        client.invoke_nowait(RemotingCommand(1), deadline=trio.current_time() + 9, on_outcome=outcomes.append)
    await trio.testing.wait_all_tasks_blocked()
    for opaque in range(1, 21):
        theirs.send_nowait(RemotingCommand(0, opaque, FLAG_RESPONSE).encode())
    theirs.close()
    client.put(RemotingCommand(1).encode())
    await trio.testing.wait_all_tasks_blocked()
    assert client.closed
    assert sum(isinstance(outcome, RemotingCommand) for outcome in outcomes) == 20


@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY, FLAG_RESPONSE], ids=["requests", "oneway", "answers"])
async def test_what_nobody_asked_for_is_read_slowly_and_in_turns(
    flag: int, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A name server that sent requests without end took the turns of a broker's clients: sends waited for 2.4 s."""
    ours, theirs = memory_connection()
    client = RemotingClient(ours, ADDRESS)
    turns, is_answered = 0, trio.Event()

    async def others() -> None:
        nonlocal turns
        while not is_answered.is_set():
            await trio.lowlevel.checkpoint()
            turns += 1

    many = RemotingCommand(40, 1 << 20, flag).encode() * 1_000
    answer = RemotingCommand(0, client.expect(60, lambda _: is_answered.set()), FLAG_RESPONSE)
    theirs.send_nowait(many + answer.encode())
    nursery.start_soon(client.run)
    nursery.start_soon(others)
    await is_answered.wait()
    assert turns >= 1_000 // 256
    with pytest.raises(RemotingTimeoutError):
        await client.invoke(RemotingCommand(1), timeout_s=0.05)
    is_read = trio.Event()
    theirs.send_nowait(RemotingCommand(0, client.expect(60, lambda _: is_read.set()), FLAG_RESPONSE).encode())
    await is_read.wait()
    assert trio.current_time() == pytest.approx(0.1), "for so long nothing was read"


async def test_each_request_has_its_own_deadline(autojump_clock: MockClock) -> None:
    async with connected() as (broker, _, client):
        expired: list[tuple[float, int]] = []

        async def ask(timeout_s: float) -> None:
            with pytest.raises(RemotingTimeoutError):
                await client.invoke(RemotingCommand(2), timeout_s=timeout_s)
            expired.append((round(trio.current_time(), 6), int(timeout_s)))

        async with trio.open_nursery() as nursery:
            for timeout_s in (30, 3, 10):
                nursery.start_soon(ask, timeout_s)
        assert expired == [(3, 3), (10, 10), (30, 30)]
        for connection, request in broker.held:
            connection.respond(request, 0)  # late: dropped
        assert (await client.invoke(RemotingCommand(1), timeout_s=3)).code == 0


async def test_a_request_that_may_wait_less_than_those_before_is_not_kept_waiting(autojump_clock: MockClock) -> None:
    async with connected() as (_, _, client):
        outcomes: list[Outcome] = []
        client.invoke_nowait(RemotingCommand(2), deadline=trio.current_time() + 30, on_outcome=outcomes.append)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RemotingTimeoutError):
            await client.invoke(RemotingCommand(2), timeout_s=3)
        assert trio.current_time() == pytest.approx(3)
        assert not outcomes


async def test_when_the_connection_ends_everything_pending_fails(autojump_clock: MockClock) -> None:
    async with connected() as (_, server, client):
        outcomes: list[Outcome] = []
        for _n in range(3):
            client.invoke_nowait(RemotingCommand(2), deadline=1e9, on_outcome=outcomes.append)
        await trio.testing.wait_all_tasks_blocked()
        for connection in server.connections:
            connection.close("test")
        await trio.testing.wait_all_tasks_blocked()
        assert [type(outcome) for outcome in outcomes] == [RemotingSendRequestError] * 3
        assert client.closed
        with pytest.raises(RemotingConnectError):
            await client.invoke(RemotingCommand(1), timeout_s=3)


async def test_a_caller_that_is_told_of_the_end_cannot_ask_again_here(autojump_clock: MockClock) -> None:
    """He would wait for an answer that never comes."""
    async with connected() as (_, server, client):
        asked_again: list[bool] = []

        def ask_again(_outcome: Outcome) -> None:
            with pytest.raises(RemotingConnectError):
                client.invoke_nowait(RemotingCommand(2), deadline=1e9, on_outcome=lambda _: None)
            asked_again.append(True)

        client.invoke_nowait(RemotingCommand(2), deadline=1e9, on_outcome=ask_again)
        await trio.testing.wait_all_tasks_blocked()
        for connection in server.connections:
            connection.close("test")
        await trio.testing.wait_all_tasks_blocked()
        assert (asked_again, client.in_flight) == ([True], 0)


async def test_nothing_is_asked_after_close(autojump_clock: MockClock) -> None:
    async with connected() as (_, _, client):
        client.close()
        assert client.closed
        with pytest.raises(RemotingConnectError):
            await client.invoke(RemotingCommand(1), timeout_s=3)


async def test_nothing_is_asked_of_a_peer_that_takes_nothing_any_more(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Its answers are read for a moment yet; of what was asked meanwhile nobody knew whether it had been sent."""
    ours, _ = memory_connection()
    client = RemotingClient(ours, ADDRESS)
    nursery.start_soon(client.run)
    ours.outgoing.broken = True
    client.put(RemotingCommand(1).encode())
    await trio.sleep(0.1)
    with pytest.raises(RemotingConnectError):
        await client.invoke(RemotingCommand(1), timeout_s=3)


async def test_it_remembers_when_the_peer_was_last_heard(autojump_clock: MockClock) -> None:
    async with connected() as (_, _, client):
        await trio.sleep(50)
        await client.invoke(RemotingCommand(1), timeout_s=3)
        assert client.used_at == trio.current_time()


async def test_a_connection_outlives_the_opaques_that_there_are(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand requests a second have used them up after 60 hours; a binary header holds no more than an int32."""
    async with connected() as (_, _server, client):
        monkeypatch.setattr(client._responses, "_opaque", 0x7FFFFFFE)
        for body in (b"last", b"first", b"second"):
            request = RemotingCommand(1, body=body, serialize=SerializeType.ROCKETMQ)
            assert (await client.invoke(request, timeout_s=3)).body == body
            assert 0 <= request.opaque <= 0x7FFFFFFF


async def test_a_cancelled_request_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with connected() as (_, _server, client):
        with trio.move_on_after(1):
            await client.invoke(RemotingCommand(2), timeout_s=30)
        assert client.in_flight == 0


async def test_a_broker_that_asks_is_told_that_we_serve_nothing(autojump_clock: MockClock) -> None:
    async with connected() as (broker, _, client):
        answers: list[RemotingCommand] = []

        async def ask(connection: Connection) -> None:
            connection.notify(RemotingCommand(40))
            answers.append(await connection.invoke(RemotingCommand(307), timeout_s=3))

        client.invoke_nowait(RemotingCommand(2), deadline=10, on_outcome=lambda _: None)
        await trio.testing.wait_all_tasks_blocked()
        connection, _request = broker.held[0]
        connection.start_soon(ask, connection)
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.code for answer in answers] == [3]


@pytest.mark.parametrize("address", ["10.0.0.1:1", "nonsense", ":1", "host:port"])
async def test_an_address_that_cannot_be_reached_is_named(address: str) -> None:
    with pytest.raises(RemotingConnectError, match=address):
        await connect_remoting_client(MemoryNetwork(), address)


@pytest.mark.parametrize("address", ["nonsense", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:76447"])
async def test_a_port_that_cannot_be_is_not_taken_for_another(address: str) -> None:
    with pytest.raises(RemotingConnectError, match=f"{address}: is not of the form host:port"):
        await connect_remoting_client(MemoryNetwork(), address)


async def test_garbage_from_the_peer_ends_the_connection(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen("10.0.0.1", 10911)
    async with open_remoting_client(network, ADDRESS) as client, trio.open_nursery() as nursery:

        async def answer_nonsense() -> None:
            stream = await listener.accept()
            await stream.send_all(b"HTTP/1.1 400 Bad Request")

        nursery.start_soon(answer_nonsense)
        with pytest.raises(RemotingError, match="frame of"):
            await client.invoke(RemotingCommand(1), timeout_s=3)


@pytest.mark.parametrize("size", [0, 5, 17, 70])
async def test_why_a_peer_ended_the_connection_is_told_by_what_it_sent_first(
    size: int, autojump_clock: MockClock
) -> None:
    """Who requires TLS says nothing at all; one that has answered before does not."""
    network = MemoryNetwork()
    listener = await network.listen("10.0.0.1", 10911)
    async with open_remoting_client(network, ADDRESS) as client, trio.open_nursery() as nursery:

        async def answer_and_leave() -> None:
            stream = await listener.accept()
            if size:
                frame = RemotingCommand(40, 1, FLAG_ONEWAY, body=b"x" * 64).encode()
                await stream.send_all(frame[:size])
                await stream.send_all(frame[size:])
                await trio.sleep(1)
            stream.close()

        nursery.start_soon(answer_and_leave)
        with pytest.raises(RemotingSendRequestError) as caught:
            await client.invoke(RemotingCommand(1), timeout_s=3)
        assert "the peer closed the connection" in str(caught.value)
        assert ("requires TLS" in str(caught.value)) is (size == 0)


@pytest.mark.parametrize(
    ("answer", "told"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "it answers with text"), (bytes.fromhex("15030300020228"), "it speaks TLS")],
)
async def test_what_speaks_something_else_is_named_as_such(answer: bytes, told: str, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen("10.0.0.1", 10911)
    async with open_remoting_client(network, ADDRESS) as client, trio.open_nursery() as nursery:

        async def serve() -> None:
            stream = await listener.accept()
            await stream.send_all(answer)
            stream.close()

        nursery.start_soon(serve)
        with pytest.raises(RemotingSendRequestError, match=told):
            await client.invoke(RemotingCommand(1), timeout_s=3)


async def test_a_failure_inside_the_block_leaves_it_ungrouped(autojump_clock: MockClock) -> None:
    """A caller's plain ``except RemotingError`` must see it: a slave's probe of a dying master ended the slave."""
    network, server = MemoryNetwork(), RemotingServer(Broker(), limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        with pytest.raises(RemotingTimeoutError):
            async with open_remoting_client(network, ADDRESS) as client:
                await client.invoke(RemotingCommand(2), timeout_s=1)
        nursery.cancel_scope.cancel()


async def test_a_failure_at_the_moment_of_a_cancellation_leaves_the_block_ungrouped() -> None:
    """A master said that it was starting just as its HA port ended the connection: the slave's process ended."""

    async def fail(scope: trio.CancelScope) -> None:
        async with open_background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.lowlevel.checkpoint()
            scope.cancel()
            raise KeyError

    with trio.CancelScope() as scope, pytest.raises(KeyError):
        await fail(scope)
    assert not scope.cancelled_caught


async def test_a_cancellation_from_outside_ends_block_and_tasks() -> None:
    with trio.CancelScope() as scope:
        async with open_background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_ctrl_c_that_meets_a_task_leaves_the_block_as_itself() -> None:
    async def interrupted() -> None:
        async with trio.open_nursery():
            raise KeyboardInterrupt

    async def block() -> None:
        async with open_background_nursery() as nursery:
            nursery.start_soon(interrupted)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await block()


async def test_what_a_broker_tells_one_way_is_not_answered(autojump_clock: MockClock) -> None:
    """It is told that members have come; RocketMQ's brokers log a line for each answer that they do not await."""
    network = MemoryNetwork()
    listener = await network.listen("10.0.0.1", 10911)
    async with open_remoting_client(network, ADDRESS):
        broker = await listener.accept()
        for opaque, flag in enumerate((FLAG_ONEWAY, 0, FLAG_ONEWAY)):
            await broker.send_all(RemotingCommand(40, opaque, flag).encode())
        await trio.testing.wait_all_tasks_blocked()
        decoder, buffer = FrameDecoder(), memoryview(bytearray(4096))
        answers = decoder.on_received(buffer, await broker.receive_into(decoder.space(buffer)))
        assert [answer.opaque for answer in answers] == [1]


async def test_a_broker_that_asks_and_takes_no_answer_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(remoting_client, "REFUSED_BEHIND_MAX", 10_000)
    network = MemoryNetwork(capacity=4096)
    listener = await network.listen("10.0.0.1", 10911)
    async with open_remoting_client(network, ADDRESS) as client:
        broker = await listener.accept()
        for opaque in range(1000):
            await broker.send_all(RemotingCommand(9999, opaque).encode())
        await trio.testing.wait_all_tasks_blocked()
        answers: list[RemotingCommand] = []
        decoder, buffer = FrameDecoder(), memoryview(bytearray(4096))
        with trio.move_on_after(1):
            while count := await broker.receive_into(decoder.space(buffer)):
                answers += decoder.on_received(buffer, count)
        assert 10 < len(answers) < 200
        assert {answer.code for answer in answers} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        assert not client.closed
