"""PutMessageService. When a disk hangs every put is answered in time, and nothing is stored that was refused."""

from collections.abc import Sequence
from weakref import ref

import pytest
import trio

from rmqha.broker.processors.send_message_processor import SendMessageProcessor
from rmqha.broker.puts import put_service
from rmqha.broker.puts.durability import Durability
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.broker.puts.sent_records import SendRules
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.memory import BytesLike
from rmqha.remoting.in_flight import REQUEST_BYTES
from rmqha.remoting.turns import REQUESTS_A_TURN
from rmqha.store.status import PutMessageStatus
from tests.broker.machines import Machine, Sender, ask, retry_topics, send_request
from tests.broker.puts import Caller, record, waiting_for_replicas, waiting_for_topics
from tests.settings import remoting_limits
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_disk import SimMount
from tests.sim.sim_net import SimNet
from tests.store.helpers import batch_of, commit_log, message

SEGMENT = 4096
BODY = bytes(1200)
OK = PutMessageStatus.PUT_OK


def sorted_answers(answers: dict[int, tuple[float, RemotingCommand]]) -> list[tuple[float, RemotingCommand]]:
    return [answers[number] for number in sorted(answers)]


async def test_sends_that_wait_for_a_segment_are_answered_in_time_and_in_order(virtual_clock: VirtualClock) -> None:
    """The disk hangs while the next segment is made: what fits is stored, the rest waits five seconds at most."""
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(SEGMENT), "brokerRole": "ASYNC_MASTER"})
    answers: dict[int, tuple[float, RemotingCommand]] = {}
    async with machine.broker() as broker, machine.client() as client, trio.open_nursery() as nursery:

        async def send(number: int) -> None:
            begun_at = trio.current_time()
            answer = await ask(client, send_request(BODY, topic="t"))
            answers[number] = trio.current_time() - begun_at, answer

        await send(0)
        await trio.sleep(1)
        machine.disk.faults.hung_until = trio.current_time() + 60
        for number in range(1, 13):
            nursery.start_soon(send, number)
            await trio.sleep(1)
        await trio.sleep(10)
        codes = [answer.code for _, answer in sorted_answers(answers)]
        stored = codes.count(ResponseCode.SUCCESS)
        assert codes == [ResponseCode.SUCCESS] * stored + [ResponseCode.SYSTEM_ERROR] * (13 - stored)
        assert 3 <= stored <= 9, "what is there already takes some, and nothing can be made"
        assert all(waited_s < 5.1 for waited_s, _ in answers.values())
        assert "nothing is stored. Does the disk hang?" in (answers[12][1].remark or "")
        await trio.sleep_until(machine.disk.faults.hung_until + 1)
        await send(13)
        assert decode_send_response(answers[13][1]).queue_offset == stored
    assert broker.store.write_error is None


async def test_oneway_sends_behind_a_slow_segment_hold_their_sender_back(virtual_clock: VirtualClock) -> None:
    """They are in the account like others: a client that never waits for an answer does not fill the memory."""
    limit, receive_size = 1 << 20, remoting_limits().receive_size
    settings = {"mappedFileSizeCommitLog": str(SEGMENT), "maxInFlightBytesPerConnection": str(limit)}
    machine = Machine(SimNet(), "10.0.0.1", settings | {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client:
        server = broker.server
        assert server is not None
        await ask(client, send_request(BODY, topic="t"))
        machine.disk.faults.hung_until = trio.current_time() + 4
        frame = oneway(BODY)
        client.put(frame * 3000)
        for _ in range(30):
            await trio.sleep(0.1)
            turn_size = REQUESTS_A_TURN * (len(frame) + REQUEST_BYTES)
            assert server.capacity.used_bytes < limit + 2 * receive_size + turn_size
        assert server.capacity.used_bytes >= limit, "nobody was held back, so nothing is tested"
        await trio.sleep(30)
        assert server.capacity.used_bytes == 0
        assert (await ask(client, send_request(BODY, topic="t"))).code == ResponseCode.SUCCESS
        (connection,) = server.connections
        assert connection.requests == 3002


async def test_what_waits_for_a_segment_is_bounded_also_if_its_senders_have_left(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_service, "BACKLOG_BYTES_MAX", 20 * 2000)
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(SEGMENT), "brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker:
        async with machine.client() as client:
            await ask(client, send_request(BODY, topic="t"))
        machine.disk.faults.hung_until = trio.current_time() + 4
        for _ in range(20):
            async with machine.client() as client:
                client.put_nowait(oneway(BODY) * 10)
                await trio.sleep(0.05)
        async with machine.client() as client:
            for _ in range(20):
                client.put_nowait(oneway(BODY))
                await trio.sleep(0.01)
            answer = await ask(client, send_request(BODY, topic="t"))
            assert (answer.code, (answer.remark or "")[:10]) == (ResponseCode.SYSTEM_ERROR, "too many b")
            await trio.sleep(10)
            assert (await ask(client, send_request(BODY, topic="t"))).code == ResponseCode.SUCCESS
        assert 20 * 1200 < broker.store.max_offset < 60 * 1400


async def test_what_waits_for_its_topic_is_bounded_also_if_its_senders_have_left(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_service, "BACKLOG_BYTES_MAX", 20 * 2000)
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(1 << 20), "brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker:
        async with machine.client() as client:
            await ask(client, send_request(BODY, topic="known"))
        for attempt in range(2):
            machine.disk.faults.hung_until = trio.current_time() + 4
            for number in range(20):
                async with machine.client() as client:
                    client.put_nowait(send_request(BODY, topic=f"new{attempt}-{number}").encode() * 10)
                    await trio.sleep(0.01)
            async with machine.client() as client:
                answer = await ask(client, send_request(BODY, topic=f"another{attempt}"))
                assert (answer.code, (answer.remark or "")[:10]) == (ResponseCode.SYSTEM_ERROR, "too many b")
                await trio.sleep(10)
                assert (await ask(client, send_request(BODY, topic=f"another{attempt}"))).code == ResponseCode.SUCCESS
        assert broker.store.max_offset < 100 * 1400


async def test_what_was_refused_leaves_room_for_the_next_time(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_service, "BACKLOG_BYTES_MAX", 20 * 2000)
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(SEGMENT), "brokerRole": "ASYNC_MASTER"})
    async with machine.broker(), machine.client() as client:

        async def send_all() -> list[int]:
            codes: list[int] = []

            async def send() -> None:
                codes.append((await ask(client, send_request(BODY, topic="t"))).code)

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(send)
            return codes

        for _ in range(3):
            machine.disk.faults.hung_until = trio.current_time() + 8
            assert ResponseCode.SYSTEM_ERROR in await send_all()
            await trio.sleep(10)
        machine.disk.faults.hung_until = trio.current_time() + 4
        assert await send_all() == [ResponseCode.SUCCESS] * 20


async def test_what_was_stored_in_parts_is_counted_once(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends that arrived together take several segments: of each part only that part's bytes are given back."""
    monkeypatch.setattr(put_service, "BACKLOG_BYTES_MAX", 20 * 2000)
    machine, sender = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(SEGMENT)}), Sender()
    async with machine.broker() as broker, machine.client() as client, trio.open_nursery() as nursery:
        durability = Durability(broker.store, clock=trio.current_time, flush=None, replica=None)
        rules = SendRules("cluster", bytes(8), SEGMENT)
        puts = PutMessageService(broker.store, broker.topics, durability, refusal=lambda: "")
        sends = SendMessageProcessor(puts, broker.topics, retry_topics(broker.topics), rules=rules)

        def send(first: int, count: int) -> None:
            requests = [send_request(BODY, topic="t") for _ in range(count)]
            for opaque, request in enumerate(requests, first):
                request.opaque = opaque
            sends.process(sender, requests)  # type: ignore[arg-type]

        await ask(client, send_request(b"", topic="t"))
        nursery.start_soon(puts.run)
        for first in range(0, 100, 20):
            send(first, 20)
            await trio.sleep(1)
        assert {answer.code for answer in sender.answers.values()} == {ResponseCode.SUCCESS}
        machine.disk.faults.hung_until = trio.current_time() + 4
        for first in range(100, 140):
            send(first, 1)
        refused = [opaque for opaque, answer in sender.answers.items() if answer.code != ResponseCode.SUCCESS]
        assert 3 < len(refused) < 20, "there is room for some thirty"
        nursery.cancel_scope.cancel()


async def test_a_send_does_not_overtake_those_that_wait_for_the_next_segment(virtual_clock: VirtualClock) -> None:
    """It arrives when the segment is there, and those that wait have not been told yet."""
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(SEGMENT), "brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client, trio.open_nursery() as nursery:
        store, sender = broker.store, Sender()
        durability = Durability(store, clock=trio.current_time, flush=None, replica=None)
        rules = SendRules("cluster", bytes(8), SEGMENT)
        puts = PutMessageService(store, broker.topics, durability, refusal=lambda: "")
        sends = SendMessageProcessor(puts, broker.topics, retry_topics(broker.topics), rules=rules)

        def send(opaque: int) -> None:
            request = send_request(BODY, topic="t")
            request.opaque = opaque
            sends.process(sender, [request])  # type: ignore[arg-type]

        await ask(client, send_request(b"", topic="t"))
        nursery.start_soon(puts.run)
        machine.disk.faults.hung_until = trio.current_time() + 4
        for number in range(12):
            send(number)
        (allocate,) = commit_log(store).services
        allocate.when_allocated(lambda: send(12))
        await trio.sleep(10)
        offsets = {opaque: decode_send_response(answer).queue_offset for opaque, answer in sender.answers.items()}
        assert offsets == {number: 1 + number for number in range(13)}
        nursery.cancel_scope.cancel()


async def test_any_caller_is_told_of_each_put_once_and_of_what_waits_when_it_is_durable(
    virtual_clock: VirtualClock,
) -> None:
    async with waiting_for_replicas() as (service, store, replicas):
        caller, too_large = Caller(), record(bytes(5 << 20))
        service.put(
            [
                Put("first", record(b"1"), wait=True, oneway=False),
                Put("too large", too_large, wait=True, oneway=False),
                Put("at once", record(b"2"), wait=False, oneway=False),
                Put("nobody", record(b"3"), wait=True, oneway=True),
            ],
            caller,
        )
        at_once = [("too large", PutMessageStatus.MESSAGE_ILLEGAL), ("one-way", 1), ("at once", OK)]
        assert caller.told == at_once
        replicas.acked.advance(store.max_offset)
        assert caller.told == [*at_once, ("first", OK), ("nobody", OK)]


async def test_what_waits_for_nothing_is_not_ok_either_where_the_disk_fails_behind_it(
    virtual_clock: VirtualClock,
) -> None:
    """The log's last file took it, and what came with it could not be written to the next: none is taken any more."""
    async with waiting_for_replicas() as (service, store, _):
        await store.wait_allocated()
        segment, caller = commit_log(store).queue.files[-1], Caller()
        pwrite = segment.file.pwrite

        def then_fails(buffers: Sequence[BytesLike], at: int) -> None:
            pwrite(buffers, at)
            assert isinstance(store.disk, SimMount)
            store.disk.disk.faults.write_errors = 1

        segment.file.pwrite = then_fails  # type: ignore[method-assign]
        size, begin = segment.size - segment.wrote_position - 500, store.max_offset
        service.put(
            [
                Put("last", record(bytes(size)), wait=False, oneway=False),
                Put("next", record(bytes(500)), wait=False, oneway=False),
            ],
            caller,
        )
        failed, late = PutMessageStatus.SERVICE_NOT_AVAILABLE, PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert caller.told == [("next", failed), ("last", late)]
        assert store.max_offset > begin
        assert store.stats.put_message_unsafe == {late: 1}


async def test_what_waited_for_a_new_topic_is_appended_in_turns(virtual_clock: VirtualClock) -> None:
    """Of all connections at once it was 0.3 to 0.8 s in which nobody else was answered."""
    async with waiting_for_topics() as (service, store, _, topics), trio.open_nursery() as nursery:
        topics.untold.tell = lambda _number: None
        topics.update_topic_config(TopicConfig("new"))
        caller, begin, count = Caller(), store.max_offset, 1000
        for _ in range(count):
            service.put([Put("", record(b"x", "new"), wait=False, oneway=False)], caller)
        await trio.sleep(1)
        assert topics.saved.value == topics.made
        topics.untold.told.advance(topics.made)
        assert store.max_offset == begin, "that is left to the service, which makes passes of it"
        nursery.start_soon(service.run)
        await trio.sleep(1)
        assert caller.told == [("", OK)] * count
        nursery.cancel_scope.cancel()


async def test_what_waits_for_a_topic_that_is_deleted_is_refused(virtual_clock: VirtualClock) -> None:
    """It was stored, and the topic was there again."""
    async with waiting_for_topics() as (service, store, _, topics):
        topics.untold.tell = lambda _number: None
        topics.update_topic_config(TopicConfig("new"))
        caller, begin = Caller(), store.max_offset
        service.put([Put("held", record(b"x", "new"), wait=True, oneway=False)], caller)
        await trio.sleep(1)
        topics.delete_topic_config("new", {}, before=0)
        await trio.sleep(1)
        topics.untold.told.advance(topics.made)
        assert caller.told == [("held", PutMessageStatus.UNKNOWN_ERROR)]
        assert (store.max_offset, topics.select("new")) == (begin, None)


async def test_a_message_that_is_appended_is_let_go_before_it_is_durable(virtual_clock: VirtualClock) -> None:
    """Many wait for slaves: in memory are then their answers, and not what they say."""
    async with waiting_for_replicas() as (service, store, replicas):
        caller, batch = Caller(), batch_of(message(b"1"), message(b"2"))
        seen = ref(batch)
        service.put([Put("batch", batch, wait=True, oneway=False)], caller)
        del batch
        assert (seen(), caller.told) == (None, [])
        replicas.acked.advance(store.max_offset)
        assert caller.told == [("batch", OK)]


def oneway(body: bytes) -> bytes:
    request = send_request(body, topic="t")
    request.flag = FLAG_ONEWAY
    return request.encode()
