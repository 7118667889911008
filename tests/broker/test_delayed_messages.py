"""Delayed messages come when their time has come, to where they were sent; none is lost, whatever happens meanwhile."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.puts.internal_puts import InternalPuts, PutMessageResult
from rmqha.broker.schedule import delay_offsets, deliver_delayed_message
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.hashing import tags_code
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SCHEDULE_TOPIC, total_size_at
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient
from rmqha.replication.role import RoleKind
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import AppendResult, PutMessageStatus
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

ALONE = {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}
SELDOM_FLUSHED = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "15000",
    "flushCommitLogThoroughInterval": "15000",
}
SHORT = {"messageDelayLevel": "1s 2s 5s"}


def delayed(body: bytes, level: object, **fields: Any) -> Any:
    return send_request(body, properties=f"UNIQ_KEY\x01AB\x02TAGS\x01tag\x02WAIT\x01true\x02DELAY\x01{level}", **fields)


async def pulled(client: RemotingClient, *, topic: str = "t", queue_id: int = 0) -> list[StoredMessage]:
    """All that a queue has."""
    messages: list[StoredMessage] = []
    while True:
        answer = await ask(client, pull_request(len(messages), topic=topic, queue_id=queue_id))
        if answer.code != ResponseCode.SUCCESS:
            return messages
        view, at = memoryview(answer.body), 0
        while at < len(view):
            messages.append(decode_message(view, at))
            at += total_size_at(view, at)


async def bodies(client: RemotingClient, **where: Any) -> list[bytes]:
    return [message.body for message in await pulled(client, **where)]


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", ALONE)


async def test_i13_a_message_of_level_1_is_seen_after_one_second_and_before_two(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Invariant I13."""
    async with machine.broker(), machine.client() as client:
        for number in range(5):
            assert (await ask(client, delayed(b"%d" % number, 1))).code == ResponseCode.SUCCESS
            await trio.sleep(0.99)
            assert await bodies(client) == [b"%d" % before for before in range(number)]
            await trio.sleep(0.51)
            assert await bodies(client) == [b"%d" % before for before in range(number + 1)]


async def test_how_many_wait_is_told_of_each_level(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", ALONE | SHORT)
    async with machine.broker() as broker, machine.client() as client:
        assert broker.schedule.waiting == {1: 0, 2: 0, 3: 0}
        for level in (1, 3, 3):
            assert (await ask(client, delayed(b"x", level))).code == ResponseCode.SUCCESS
        await trio.sleep(0.5)
        assert broker.schedule.waiting == {1: 1, 2: 0, 3: 2}
        await trio.sleep(1)
        assert broker.schedule.waiting == {1: 0, 2: 0, 3: 2}
        assert broker.schedule.overdue_s == 0
        await trio.sleep(5)
        assert broker.schedule.waiting == {1: 0, 2: 0, 3: 0}


async def test_of_what_cannot_be_put_it_is_told_for_how_long_it_has_been_due(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", ALONE | SHORT)
    async with machine.broker() as broker, machine.client() as client:
        assert (await ask(client, delayed(b"x", 1))).code == ResponseCode.SUCCESS
        broker.store.running_flags.set_disk_full(True)
        await trio.sleep(6)
        assert 4 < broker.schedule.overdue_s < 6
        broker.store.role.become(RoleKind.SLAVE, term=1)
        await trio.sleep(1)
        assert (broker.schedule.overdue_s, broker.schedule.waiting[1]) == (0, 1), "it delivers nothing any more"


async def test_trap_44_the_queue_offset_that_is_told_is_that_of_the_schedule_topic(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Trap 44, as RocketMQ does: the queue is the one asked for."""
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"at once", queue_id=3))
        sent = [decode_send_response(await ask(client, delayed(b"x", 2, queue_id=3))) for _ in range(3)]
        assert [(one.queue_id, one.queue_offset) for one in sent] == [(3, 0), (3, 1), (3, 2)]
        await trio.sleep(0.1)
        waiting = await pulled(client, topic=SCHEDULE_TOPIC, queue_id=1)
        assert [message.offset_msg_id for message in waiting] == [one.msg_id for one in sent]
        assert broker.store.get_max_offset_in_queue("t", 3) == 1


async def test_both_records_are_those_of_rocketmq(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Whichever broker goes on with the log delivers what the other took. WAIT is kept in them."""
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, delayed(b"x", 2, queue_id=1, h="77", j="2", topic="orders"))
        await trio.sleep(0.1)
        (waiting,) = await pulled(client, topic=SCHEDULE_TOPIC, queue_id=1)
        assert waiting.properties == {
            "UNIQ_KEY": "AB",
            "TAGS": "tag",
            "WAIT": "true",
            "CLUSTER": "DefaultCluster",
            "DELAY": "2",
            "REAL_TOPIC": "orders",
            "REAL_QID": "1",
        }
        queue = broker.store.queues.find(SCHEDULE_TOPIC, 1)
        assert queue is not None
        assert [unit[2] for unit in queue.units(0, 1)] == [waiting.store_timestamp_ms + 5000]
        await trio.sleep(6)
        (delivered,) = await pulled(client, topic="orders", queue_id=1)
        assert delivered.properties == waiting.properties
        assert (delivered.flag, delivered.reconsume_times, delivered.sys_flag) == (77, 2, waiting.sys_flag)
        assert delivered.born_timestamp_ms == waiting.born_timestamp_ms
        assert (delivered.born_host, delivered.store_host) == (waiting.born_host, waiting.store_host)
        queue = broker.store.queues.find("orders", 1)
        assert queue is not None
        assert [unit[2] for unit in queue.units(0, 1)] == [tags_code("tag")]


async def test_a_level_beyond_the_highest_is_the_highest(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(**SHORT), machine.client() as client:
        for level in ("4", "2147483647", "+0009"):
            assert (await ask(client, delayed(b"x", level))).code == ResponseCode.SUCCESS
        await trio.sleep(4.9)
        assert await bodies(client) == []
        waiting = await pulled(client, topic=SCHEDULE_TOPIC, queue_id=2)
        assert [message.properties["DELAY"] for message in waiting] == ["3"] * 3
        await trio.sleep(1)
        assert await bodies(client) == [b"x"] * 3


async def test_where_it_goes_is_not_for_the_producer_to_say(machine: Machine, virtual_clock: VirtualClock) -> None:
    """REAL_TOPIC of its own made no difference to RocketMQ either."""
    async with machine.broker(), machine.client() as client:
        properties = "REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX\x02REAL_QID\x017\x02DELAY\x011"
        assert (await ask(client, send_request(b"x", properties=properties))).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        assert {*await bodies(client)} == {b"x"}


async def test_how_far_each_level_is_is_told(machine: Machine, virtual_clock: VirtualClock) -> None:
    """As mqadmin brokerStatus shows it."""
    async with machine.broker(**SHORT), machine.client() as client:
        for level in (1, 1, 3):
            await ask(client, delayed(b"x", level))
        await trio.sleep(2)
        answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = json.loads(answer.body)["table"]
        told = {key: value for key, value in table.items() if key.startswith("scheduleMessageOffset")}
        assert told == {
            "scheduleMessageOffset_1": "2,2",
            "scheduleMessageOffset_2": "0,0",
            "scheduleMessageOffset_3": "0,1",
        }


async def test_a_delayed_batch_is_refused(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        answer = await ask(client, delayed(b"", 1, batch=True))
        assert (answer.code, "send its messages singly" in (answer.remark or "")) == (13, True)
        assert broker.store.max_offset == 0


async def test_without_levels_there_are_no_delays(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(messageDelayLevel=""), machine.client() as client:
        assert (await ask(client, delayed(b"x", 1))).code == ResponseCode.MESSAGE_ILLEGAL


async def test_what_will_not_fit_later_is_refused_now(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Its own topic has a longer name than the schedule topic: it would have kept all of its level waiting for ever."""
    topic = "t" * 120
    async with machine.broker(mappedFileSizeCommitLog="4096") as broker, machine.client() as client:
        codes = Counter[int]()
        for size in range(500, 800):
            properties = f"K\x01{'v' * size}\x02DELAY\x011"
            codes[(await ask(client, send_request(bytes(3000), topic=topic, properties=properties))).code] += 1
        assert codes[ResponseCode.MESSAGE_ILLEGAL] > 90
        await trio.sleep(30)
        assert broker.store.get_max_offset_in_queue(topic, 0) == codes[ResponseCode.SUCCESS] > 10


async def test_many_that_come_due_together_come_once_and_in_order(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker(), machine.client() as client, trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(ask, client, delayed(b"%d" % number, 1))
        await trio.sleep(3)
        assert sorted(await bodies(client)) == sorted(b"%d" % number for number in range(300))
        waited = [message.body for message in await pulled(client, topic=SCHEDULE_TOPIC)]
        assert await bodies(client) == waited


async def test_a_new_topic_is_saved_before_a_delayed_send_to_it_is_answered(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """RocketMQ saves it first, too: otherwise its broker would not know where to deliver the message to."""
    async with machine.broker(), machine.client() as client:
        assert (await ask(client, delayed(b"x", 1, topic="new"))).code == ResponseCode.SUCCESS
        assert "new" in json.loads(machine.disk.files["/store/config/topics.json"].durable)["topicConfigTable"]


# ---- restarts and crashes


@asynccontextmanager
async def killed(machine: Machine, **settings: str) -> AsyncIterator[BrokerController]:
    """A broker whose machine loses its power at the end of the block."""
    controller = machine.controller(**settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        yield controller
        nursery.cancel_scope.cancel()
    machine.disk.power_cut()


async def test_they_outlive_a_restart_and_come_once(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        for number in range(3):
            await ask(client, delayed(b"%d" % number, number + 1))
        await trio.sleep(2)
    assert java_json.loads(machine.disk.files["/store/config/delayOffset.json"].durable)["offsetTable"][1] == 1
    await trio.sleep(60)
    async with machine.broker(), machine.client() as client:
        await trio.sleep(2)
        assert sorted(await bodies(client)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("crash_after_s", [0.5, 0.99, 1.0, 1.01, 1.2, 1.4, 1.6, 2.1, 6.0, 6.5])
async def test_no_crash_loses_a_message(
    flush: str, crash_after_s: float, machine: Machine, virtual_clock: VirtualClock
) -> None:
    """What was delivered shortly before may be gone from the log; then it is delivered again."""
    machine.settings["flushDiskType"] = flush
    async with killed(machine) as broker, machine.client() as client:
        for number in range(5):
            await ask(client, delayed(b"%d" % number, 1))
        await broker.store.flush_now(broker.store.max_offset)
        await trio.sleep(crash_after_s)
    async with machine.broker(), machine.client() as client:
        await trio.sleep(5)
        assert {*await bodies(client)} == {b"%d" % number for number in range(5)}
    async with machine.broker(), machine.client() as client:
        await trio.sleep(5)
        assert {*await bodies(client)} == {b"%d" % number for number in range(5)}


async def test_what_is_not_durable_yet_is_not_saved_as_delivered(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ saves it all the same, and after a loss of power the message is gone."""
    async with killed(machine, **SELDOM_FLUSHED) as broker, machine.client() as client:
        await ask(client, delayed(b"x", 1))
        await broker.store.flush_now(broker.store.max_offset)
        monkeypatch.setattr(DefaultMessageStore, "request_flush", lambda _: None)
        await trio.sleep(10)
        assert broker.store.flushed_offset < broker.store.max_offset, "the delivery is to be lost"
    async with machine.broker(), machine.client() as client:
        await trio.sleep(2)
        assert {*await bodies(client)} == {b"x"}


async def test_what_cannot_be_put_is_tried_again_and_comes_once(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine.broker(), machine.client() as client:
        for number in range(40):
            await ask(client, delayed(b"%d" % number, 1))
        with monkeypatch.context() as refusing, capture_logs() as logs:
            refusing.setattr(DefaultMessageStore, "put_messages", DefaultMessageStore._refuse)
            await trio.sleep(10)
        assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["schedule.not_delivered"]
        assert await bodies(client) == []
        await trio.sleep(5)
        assert await bodies(client) == [b"%d" % number for number in range(40)]


async def test_what_lies_behind_a_message_that_cannot_be_put_does_not_come_again_and_again(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put together with that one, and counts as not delivered: the next tries are that one alone."""
    put_all = InternalPuts.put_all
    busy = AppendResult(PutMessageStatus.OS_PAGECACHE_BUSY)

    async def put_others(
        puts: InternalPuts, records: list[PreparedRecord], *, wait: bool = True
    ) -> list[PutMessageResult]:
        results = iter(await put_all(puts, [record for record in records if record.body != b"x"], wait=wait))
        return [PutMessageResult(busy.status, busy) if one.body == b"x" else next(results) for one in records]

    async with machine.broker(), machine.client() as client:
        for body in (b"x", b"a", b"b"):
            assert (await ask(client, delayed(body, 2))).code == ResponseCode.SUCCESS
        with monkeypatch.context() as busily:
            busily.setattr(InternalPuts, "put_all", put_others)
            await trio.sleep(20)
            assert max(Counter(await bodies(client)).values(), default=0) <= 1
        await trio.sleep(2)
        assert {*await bodies(client)} == {b"x", b"a", b"b"}


async def test_one_that_cannot_be_put_with_others_that_are_due_is_not_counted_as_delivered(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were all due when the broker began, and so are put together."""
    put_all = InternalPuts.put_all
    busy = AppendResult(PutMessageStatus.OS_PAGECACHE_BUSY)
    together = list[int]()

    async def put_others(
        puts: InternalPuts, records: list[PreparedRecord], *, wait: bool = True
    ) -> list[PutMessageResult]:
        together.append(len(records))
        results = iter(await put_all(puts, [record for record in records if record.body != b"x"], wait=wait))
        return [PutMessageResult(busy.status, busy) if one.body == b"x" else next(results) for one in records]

    async with machine.broker(), machine.client() as client:
        for body in (b"x", b"a", b"b"):
            assert (await ask(client, delayed(body, 2))).code == ResponseCode.SUCCESS
    await trio.sleep(10)
    with monkeypatch.context() as busily:
        busily.setattr(InternalPuts, "put_all", put_others)
        async with machine.broker(), machine.client() as client:
            await trio.sleep(2)
            assert Counter(await bodies(client)) == {b"a": 1, b"b": 1}
    assert together[0] == 3
    async with machine.broker(), machine.client() as client:
        await trio.sleep(2)
        assert {*await bodies(client)} == {b"x", b"a", b"b"}


async def test_with_too_much_that_is_not_settled_nothing_more_is_delivered(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delay_offsets, "UNSETTLED_MAX", 2)
    monkeypatch.setattr(deliver_delayed_message, "_AT_ONCE", 1)
    async with machine.broker(**SELDOM_FLUSHED) as broker, machine.client() as client:
        for number in range(10):
            await ask(client, delayed(b"%d" % number, 1))
        await broker.store.flush_now(broker.store.max_offset)
        monkeypatch.setattr(DefaultMessageStore, "request_flush", lambda _: None)
        await trio.sleep(0.1)
        end = broker.store.max_offset
        await trio.sleep(10)
        record_size = len(next(iter(await pulled(client, topic=SCHEDULE_TOPIC))).encode())
        assert 0 < broker.store.max_offset - end <= 2 * record_size
        await trio.sleep(100)
        assert await bodies(client) == [b"%d" % number for number in range(10)]


# ---- odd times and odd records


@pytest.mark.parametrize("before_ms", [0, 1])
async def test_a_clock_that_is_set_back_keeps_nobody_waiting(before_ms: int, virtual_clock: VirtualClock) -> None:
    """As with RocketMQ: a time further ahead than the level's delay was made by another clock.

    One that is as far ahead was stored in this millisecond.
    """
    machine = Machine(SimNet(), "10.0.0.1", ALONE)
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, delayed(b"x", 3))
        await trio.sleep(0.1)
        queue = broker.store.queues.find(SCHEDULE_TOPIC, 2)
        assert queue is not None
        ((_, _, due_ms),) = queue.units(0, 1)
        task = deliver_delayed_message.DeliverDelayedMessageTask(
            3,
            10_000,
            store=broker.store,
            offsets=broker.metadata.delay_offsets,
            topics=broker.topics,
            puts=None,  # type: ignore[arg-type]
            store_host_raw=b"",
            now_ms=lambda: due_ms - 10_000 - before_ms,
        )
        with pytest.raises(AttributeError, match="put_all") if before_ms else nullcontext():  # it is due
            await task.deliver_due(is_leading=lambda: True, is_outdated=lambda: False)


async def test_a_message_that_can_go_nowhere_is_left_out_and_told_of(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client can send it; it may lie in a log that another broker wrote."""
    async with machine.broker() as broker, machine.client() as client:
        for body in (b"a", b"b", b"c"):
            await ask(client, delayed(body, 1))

        def decode(view: memoryview) -> StoredMessage:
            message = decode_message(view)
            if message.body == b"b":
                object.__setattr__(message, "properties_raw", b"DELAY\x011")
            return message

        monkeypatch.setattr(deliver_delayed_message, "decode_message", decode)
        with capture_logs() as logs:
            await trio.sleep(3)
        assert await bodies(client) == [b"a", b"c"]
        assert [line["event"] for line in logs if line["log_level"] == "error"] == ["schedule.undeliverable"]
        assert broker.fence.bugs == 0


async def test_an_offset_behind_the_queue_s_end_is_taken_back(machine: Machine, virtual_clock: VirtualClock) -> None:
    """The log was cut: places in its queues are given again, and what gets them is to be delivered."""
    async with machine.broker(), machine.client() as client:
        await ask(client, delayed(b"0", 1))
        await trio.sleep(3)
    machine.disk.mount().replace_bytes("/store/config/delayOffset.json", b'{"offsetTable":{1:500}}')
    async with machine.broker(), machine.client() as client:
        await ask(client, delayed(b"1", 1))
        await trio.sleep(3)
        assert await bodies(client) == [b"0", b"1"]


async def test_what_was_put_by_who_is_no_master_any_more_does_not_count(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next master may cut it from the log, and lay something else in its place."""
    put_all = InternalPuts.put_all
    async with machine.broker() as broker, machine.client() as client:

        async def put_last(
            puts: InternalPuts, records: list[PreparedRecord], *, wait: bool = True
        ) -> list[PutMessageResult]:
            results = await put_all(puts, records, wait=wait)
            broker.store.role.become(RoleKind.SLAVE, term=broker.store.role.term + 1)
            return results

        monkeypatch.setattr(InternalPuts, "put_all", put_last)
        await ask(client, delayed(b"x", 1))
        end = broker.store.max_offset
        await trio.sleep(3)
        assert broker.store.max_offset > end
        await broker.store.flush_now(broker.store.max_offset)
        assert dict(broker.metadata.delay_offsets)[1] == 0


async def test_what_is_put_while_a_peer_turns_out_to_be_longer_counts(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut from this log: it was delivered once more when the peer's log had come."""
    put_all = InternalPuts.put_all
    async with machine.broker() as broker, machine.client() as client:

        async def put_slowly(
            puts: InternalPuts, records: list[PreparedRecord], *, wait: bool = True
        ) -> list[PutMessageResult]:
            results = await put_all(puts, records, wait=wait)
            broker.store.running_flags.refuse_puts("a peer is longer")
            await trio.sleep(1)
            return results

        for number in range(10):
            await ask(client, delayed(b"%d" % number, 1 + number % 2))
        with monkeypatch.context() as slowly:
            slowly.setattr(InternalPuts, "put_all", put_slowly)
            await trio.sleep(3)
        await trio.sleep(10)
        broker.store.running_flags.refuse_puts("")
        await ask(client, delayed(b"next", 1))
        await trio.sleep(20)
        assert Counter(await bodies(client)) == Counter([*(b"%d" % number for number in range(10)), b"next"])
