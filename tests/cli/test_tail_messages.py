import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from rmqha.cli.message_lines import json_line, text_line
from rmqha.cli.tail_messages import TailPlan, read_stored, tail_messages
from rmqha.cli.when import End, Last, Offset, Place, Start, Time
from rmqha.client import Consumer, MessageExt, MessageQueue, open_producer
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.client.cluster import cluster_of, send
from tests.client.fake_broker import FakeBroker, Log

Output = pytest.CaptureFixture[str]
Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)


def message(queue: MessageQueue, offset: int, **more: Any) -> MessageExt:
    at = offset * 2 + queue.queue_id
    fields: dict[str, Any] = {
        "topic": "t", "queue": queue, "queue_offset": offset, "body": b"%d-%d" % (queue.queue_id, offset), "tags": None,
        "keys": (), "properties": {}, "msg_id": "id", "offset_msg_id": "oid", "flag": 0, "sys_flag": 0,
        "born_timestamp_ms": 0, "born_host": "h:1", "store_timestamp_ms": 1000 + at, "store_host": "h:2",
        "physical_offset": at, "reconsume_times": 0,
    }  # fmt: skip
    return MessageExt(**fields | more)


class FakeConsumer:
    """Two queues of five messages, delivered queue by queue; two more arrive while they are read."""

    def __init__(self) -> None:
        self.log = {queue: [message(queue, offset) for offset in range(5)] for queue in (Q0, Q1)}
        self.at = {Q0: 0, Q1: 0}

    @property
    def queues(self) -> list[MessageQueue]:
        return list(self.log)

    def position(self, queue: MessageQueue) -> int:
        return self.at[queue]

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self.at[queue] = offset

    async def seek_to_begin(self) -> None:
        self.at = {Q0: 0, Q1: 0}

    async def seek_to_end(self) -> None:
        self.at = {queue: len(messages) for queue, messages in self.log.items()}

    async def seek_to_time(self, timestamp_ms: int) -> None:
        for queue, messages in self.log.items():
            later = (found.queue_offset for found in messages if found.store_timestamp_ms >= timestamp_ms)
            self.at[queue] = next(later, len(messages) - 1)

    async def poll(self) -> list[MessageExt]:
        for queue, messages in self.log.items():
            if found := messages[self.at[queue] :]:
                self.at[queue] = len(messages)
                if len(messages) == 5:
                    messages.append(message(queue, 5))
                return found
        return []


FIELDS: dict[str, Any] = {
    "topic": "t", "address": "", "start": Start(), "follow": False, "queue_ids": (), "tags": (), "limit": None,
    "output": lambda message: f"{text_line(message)}\n",
}  # fmt: skip


def plan(broker: FakeBroker, **more: Any) -> TailPlan:
    return TailPlan(**FIELDS | {"topic": "T", "address": broker.address} | more)


async def tail(capsys: Output, start: Place, **more: Any) -> list[str]:
    ends = await read_stored(cast("Consumer", FakeConsumer()), TailPlan(**FIELDS | {"start": start} | more))
    assert ends == {Q0: 5, Q1: 5}
    return capsys.readouterr().out.split()


def bodies(queue_id: int, offsets: Iterable[int]) -> list[str]:
    return [f"{queue_id}-{offset}" for offset in offsets]


async def test_the_broker_that_is_named_is_read(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A slave with masterAddress sent its readers to the master, whatever they wanted to see."""
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    slave.addrs = {0: master.address, 1: slave.address}
    master.topics["T"] = slave.topics["T"] = 1
    async with cluster_of(slave) as cluster:
        await cluster.start(master)
        async with open_producer(master.address, network=cluster.network) as producer:
            await send(producer, 1)
            slave.log = Log({queue: list(records) for queue, records in master.log.records.items()})
            await send(producer, 1, first=1)
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        assert await tail_messages(plan(slave)) is None
    assert [line for line in capsys.readouterr().out.splitlines() if line.isdigit()] == ["0"]


async def test_with_a_tag_it_ends_soon_after_what_is_stored(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Brokers hold a pull that has found nothing with the tag up to the queue's end: it took 15 s."""
    broker = FakeBroker()
    async with cluster_of(broker) as cluster:
        async with cluster.producer() as producer:
            await send(producer, 4, tags="a")
            await send(producer, 4, first=4, tags="b")
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        begun_at = trio.current_time()
        assert await tail_messages(plan(broker, tags=("a",))) is None
        assert trio.current_time() - begun_at < 4
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line for line in lines if line.isdigit()) == ["0", "1", "2", "3"]


async def test_a_queue_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 2
    async with cluster_of(broker) as cluster:
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        for follow in (False, True):
            failure = await tail_messages(plan(broker, queue_ids=(1, 2), follow=follow))
            assert failure is not None
            assert failure.exit_code == 1
            assert failure.why == "it has no queue 2, but 0 to 1"


async def test_where_a_record_is_damaged_the_next_step_is_told(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    broker = FakeBroker()
    async with cluster_of(broker) as cluster:
        async with cluster.producer() as producer:
            await send(producer, 1)
        for records in broker.log.records.values():
            records[:] = [bytes(record[:4]) + b"\xff" * (len(record) - 4) for record in records]
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        failure = await tail_messages(plan(broker))
    assert failure is not None
    assert "rmqha log verify" in failure.hint


async def test_who_answers_what_cannot_be_read_is_not_told_as_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    broker, nonsense = FakeBroker(), RemotingCommand(ResponseCode.SUCCESS, body=b"\xff")
    broker.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: nonsense)
    async with cluster_of(broker) as cluster:
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        failure = await tail_messages(plan(broker))
    assert failure is not None
    assert failure.message == f"the answer of the broker at {broker.address} cannot be read"
    assert (failure.exit_code, "JSON is not UTF-8" in failure.why) == (1, True)


async def test_each_time_that_no_broker_answers_is_told_once(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    told = []
    async with cluster_of(broker) as cluster, trio.open_nursery() as nursery:
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        nursery.start_soon(tail_messages, plan(broker, start=End(), follow=True))
        await trio.sleep(1)
        for number in range(2):
            await broker.die()
            await trio.sleep(60)
            broker = FakeBroker(log=broker.log)
            broker.topics["T"] = 1
            await cluster.start(broker)
            async with open_producer(broker.address, network=cluster.network) as producer:
                await send(producer, 1, first=number)
            await trio.sleep(60)
            out, err = capsys.readouterr()
            told.append(([line for line in out.splitlines() if line.isdigit()], err.count("waiting for a broker")))
        nursery.cancel_scope.cancel()
    assert told == [(["0"], 1), (["1"], 1)]


class BusyConsumer(FakeConsumer):
    """In each queue a message comes right after it was asked where they end, and is polled together with older ones."""

    async def seek_to_end(self) -> None:
        await super().seek_to_end()
        for queue, messages in self.log.items():
            messages.append(message(queue, len(messages)))

    async def poll(self) -> list[MessageExt]:
        await trio.sleep(1)
        return await super().poll()


@pytest.mark.parametrize("start", [Start(), Last(10), Offset(0), Time(0), End()])
async def test_what_comes_while_stored_messages_are_read_is_printed_by_who_follows(
    start: Place, capsys: Output, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Once each: what is polled too early is put aside, and has to be read again."""

    @asynccontextmanager
    async def open_consumer(*_arguments: object, **_options: object) -> AsyncIterator[FakeConsumer]:
        yield BusyConsumer()

    monkeypatch.setattr("rmqha.cli.tail_messages.open_consumer", open_consumer)
    with trio.move_on_after(60):
        assert await tail_messages(TailPlan(**FIELDS | {"start": start, "follow": True})) is None
    stored = [] if isinstance(start, End) else [*bodies(0, range(5)), *bodies(1, range(5))]
    assert sorted(capsys.readouterr().out.split()) == sorted([*stored, "0-5", "1-5"])


async def test_a_queue_that_appears_meanwhile_is_for_the_next_time(capsys: Output) -> None:
    consumer = FakeConsumer()
    poll = consumer.poll

    async def appear() -> list[MessageExt]:
        queue = MessageQueue("t", "b", 2)
        if queue not in consumer.log:
            consumer.log[queue], consumer.at[queue] = [message(queue, 0)], 1
            return [message(queue, 0)]
        return await poll()

    consumer.poll = appear  # type: ignore[method-assign]
    await read_stored(cast("Consumer", consumer), TailPlan(**FIELDS))
    assert capsys.readouterr().out.split() == [*bodies(0, range(5)), *bodies(1, range(5))]


async def test_start_is_everything_stored_when_it_began(capsys: Output) -> None:
    assert await tail(capsys, Start()) == bodies(0, range(5)) + bodies(1, range(5))


async def test_the_last_n_come_in_the_order_of_the_log_across_queues(capsys: Output) -> None:
    assert await tail(capsys, Last(3)) == ["1-3", "0-4", "1-4"]
    assert await tail(capsys, Last(0)) == []
    assert len(await tail(capsys, Last(99))) == 10


async def test_end_is_nothing(capsys: Output) -> None:
    assert await tail(capsys, End()) == []


async def test_an_offset_counts_in_each_queue(capsys: Output) -> None:
    assert await tail(capsys, Offset(3)) == bodies(0, [3, 4]) + bodies(1, [3, 4])
    assert await tail(capsys, Offset(99)) == []


async def test_a_time_is_exact_although_brokers_answer_the_last_message_for_a_later_one(capsys: Output) -> None:
    assert await tail(capsys, Time(1007)) == ["0-4", "1-3", "1-4"]
    assert await tail(capsys, Time(5000)) == []


async def test_queues_and_limit(capsys: Output) -> None:
    assert await tail(capsys, Start(), queue_ids=(1,)) == bodies(1, range(5))
    assert await tail(capsys, Start(), limit=2) == ["0-0", "0-1"]
    assert await tail(capsys, Last(2), queue_ids=(0,)) == ["0-3", "0-4"]


def test_a_line_of_text_cannot_act_on_the_terminal() -> None:
    assert text_line(message(Q0, 0, body=b"a\x1b[2Jb\nc\xff")) == "a\\x1b[2Jb\\nc\\xff"
    assert text_line(message(Q0, 0, body="Grüße".encode())) == "Grüße"


def test_a_line_of_json_has_the_body_as_text_or_base64() -> None:
    assert json.loads(json_line(message(Q0, 3)))["body"] == "0-3"
    binary = json.loads(json_line(message(Q0, 3, body=b"\xff\x00")))
    assert binary["bodyBase64"] == "/wA="
    assert (binary["queueOffset"], binary["bodyLength"]) == (3, 2)


async def test_a_topic_that_may_not_be_read_is_told_as_that(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name was called into question."""
    broker = FakeBroker()
    broker.topics["T"], broker.perm = 4, 2
    async with cluster_of(broker) as cluster:
        monkeypatch.setattr("rmqha.cli.tail_messages.client_network", lambda: cluster.network)
        failure = await tail_messages(plan(broker))
    assert failure is not None
    assert failure.why == "topic T may not be read: its permission is without r"
    assert "'rmqha topics update T --perm rw'" in str(failure.hint)
