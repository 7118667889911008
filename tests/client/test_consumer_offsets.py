"""Where a consumer begins, what it commits, and what it waits for."""

from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.client import Message, MQBrokerError, MQClientError, RemotingError, open_consumer
from rmqha.codec.codes import RequestCode
from tests.client.cluster import cluster_of, numbers, read, send
from tests.client.fake_broker import FakeBroker


def one_queue() -> FakeBroker:
    broker = FakeBroker()
    broker.topics["T"] = 1
    return broker


async def test_a_group_goes_on_where_it_committed(autojump_clock: MockClock) -> None:
    async with cluster_of(one_queue()) as cluster, cluster.producer() as producer:
        await send(producer, 6)
        async with cluster.consumer(group="G", batch_size=2) as consumer:
            (queue,) = consumer.queues
            assert await consumer.committed(queue) == 0
            assert await read(consumer, 4) == [b"0", b"1", b"2", b"3"]
            await consumer.commit()
            assert await consumer.committed(queue) == 4
        async with cluster.consumer(group="G") as consumer:
            assert consumer.position(queue) == 4
            assert await read(consumer, 2) == [b"4", b"5"]
        async with cluster.consumer(group="G") as consumer:  # the last two were not committed
            assert await read(consumer, 2) == [b"4", b"5"]
        async with cluster.consumer(group="another") as consumer:
            assert await read(consumer, 6) == numbers(6)


async def test_a_commit_may_go_back(autojump_clock: MockClock) -> None:
    async with cluster_of(one_queue()) as cluster, cluster.producer() as producer:
        await send(producer, 6)
        async with cluster.consumer(group="G") as consumer:
            (queue,) = consumer.queues
            await read(consumer, 6)
            await consumer.commit()
            consumer.seek(queue, 2)
            await consumer.commit()
            assert await consumer.committed(queue) == 2
            await consumer.commit({queue: 1})
        async with cluster.consumer(group="G") as consumer:
            assert await read(consumer, 5) == [b"1", b"2", b"3", b"4", b"5"]


async def test_only_what_was_handed_out_is_committed(autojump_clock: MockClock) -> None:
    """The next batch is received while the first is worked on: neither position nor commit may count it."""
    async with cluster_of(one_queue()) as cluster, cluster.producer() as producer:
        await send(producer, 6)
        async with cluster.consumer(group="G", batch_size=2) as consumer:
            (queue,) = consumer.queues
            assert [message.body for message in await consumer.poll()] == [b"0", b"1"]
            await trio.testing.wait_all_tasks_blocked()
            assert [pull.queue_offset for pull in cluster.brokers[0].pulls] == [0, 2]
            assert consumer.position(queue) == 2
            await consumer.commit()
            assert await consumer.committed(queue) == 2


async def test_without_a_group_nothing_is_committed(autojump_clock: MockClock) -> None:
    async with cluster_of(one_queue()) as cluster:
        async with cluster.consumer() as consumer:
            with pytest.raises(MQClientError, match="name one"):
                await consumer.commit()
            with pytest.raises(MQClientError, match="name one"):
                await consumer.committed(consumer.queues[0])
        for wrong, reason in (
            ({"auto_commit_s": 5}, "auto_commit_s needs the name of the group"),
            ({"auto_commit_s": 0, "group": "G"}, "more than 0"),
            ({"start": "committed"}, "needs the name of the group"),
            ({"start": "begin"}, "expected 'committed', 'first', 'last'"),
            ({"start": -1}, "expected 'committed', 'first', 'last'"),
        ):
            with pytest.raises(MQClientError, match=reason):
                async with cluster.consumer(**wrong):
                    pass
        async with cluster.consumer(group="G") as consumer:
            (queue,) = consumer.queues
            with pytest.raises(MQClientError, match="negative"):
                await consumer.commit({queue: -1})
            with pytest.raises(MQClientError, match="not one of the 1 queues"):
                await consumer.commit({queue._replace(queue_id=3): 1})


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("first", [b"2", b"3", b"4"]),
        (None, [b"2", b"3", b"4"]),
        ("last", []),
        (1003, [b"3", b"4"]),
        (datetime.fromtimestamp(1.004, tz=UTC), [b"4"]),
    ],
)
async def test_where_to_start(start: Any, expected: list[bytes], autojump_clock: MockClock) -> None:
    broker = one_queue()
    async with cluster_of(broker) as cluster, cluster.producer() as producer:
        for n in range(5):
            broker.now_ms = 1000 + n
            await send(producer, 1, first=n)
        broker.log.first = 2
        for group in (None, "G"):  # a group that never committed begins at the first message that is left
            if group and start is None:
                start = "committed"
            async with cluster.consumer(start=start, group=group) as consumer:
                (queue,) = consumer.queues
                assert consumer.position(queue) == 5 - len(expected)
                if expected:
                    assert await read(consumer, len(expected)) == expected
                assert await consumer.poll(timeout_s=1) == []


async def test_a_consumer_started_before_its_topic_waits_for_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """And misses none of its messages, wherever it was told to start."""
    for start in ("first", "last", "committed", 5):
        caplog.clear()
        async with (
            cluster_of(FakeBroker()) as cluster,
            cluster.producer() as producer,
            cluster.consumer(group="G", start=start) as consumer,
        ):
            assert consumer.queues == []
            assert await consumer.poll(timeout_s=10) == []
            await consumer.seek_to_end()
            await consumer.commit()
            await send(producer, 8)
            begun_at = trio.current_time()
            assert sorted(await read(consumer, 8)) == numbers(8)
            assert trio.current_time() - begun_at <= 1
            assert len(consumer.queues) == 4
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["consumer.topic_unknown"]


async def test_while_it_waits_for_its_topic_a_dead_broker_is_told(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer:
        await broker.die()
        with pytest.raises(RemotingError):
            await consumer.poll(timeout_s=10)
        reborn = one_queue()
        await cluster.start(reborn)
        async with cluster.producer() as producer:
            await send(producer, 1)
            assert await read(consumer, 1) == [b"0"]


async def test_auto_commit_counts_what_was_handed_out_before_the_latest_poll(autojump_clock: MockClock) -> None:
    async with cluster_of(one_queue()) as cluster, cluster.producer() as producer:
        await send(producer, 6)
        committed = cluster.brokers[0].log.committed
        async with cluster.consumer(group="G", batch_size=2, auto_commit_s=5) as consumer:
            await consumer.poll()
            await trio.sleep(6)
            assert committed == {("G", "T", 0): 0}
            await consumer.poll()
            assert committed == {("G", "T", 0): 0}
            await trio.sleep(6)
            assert committed == {("G", "T", 0): 2}
            consumer.seek(consumer.queues[0], 1)
            await trio.sleep(6)
            assert committed == {("G", "T", 0): 1}
            assert await read(consumer, 2) == [b"1", b"2"]
            assert await read(consumer, 2) == [b"3", b"4"]
        assert committed == {("G", "T", 0): 3}  # closing commits, but not the batch that was still worked on
        async with cluster.consumer(group="G", auto_commit_s=5) as consumer:
            assert await read(consumer, 3) == [b"3", b"4", b"5"]
            assert await consumer.poll(timeout_s=1) == []
        assert committed == {("G", "T", 0): 6}


async def test_auto_commit_passes_messages_that_the_tags_leave_out(autojump_clock: MockClock) -> None:
    async with cluster_of(one_queue()) as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"BB", tags="BB"))  # its hash code is that of Aa: filtered here
        async with cluster.consumer(group="G", tags="Aa", auto_commit_s=5) as consumer:
            assert await consumer.poll(timeout_s=1) == []
        assert cluster.brokers[0].log.committed == {("G", "T", 0): 1}


async def test_auto_commit_outlives_a_dead_broker_and_says_so_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = one_queue()
    async with cluster_of(broker) as cluster, cluster.producer() as producer:
        await send(producer, 2)
        async with cluster.consumer(group="G", auto_commit_s=5) as consumer:
            await read(consumer, 2)
            await broker.die()
            with pytest.raises(RemotingError):
                await consumer.poll(timeout_s=60)
            await trio.sleep(60)
            assert sum("commit_failed" in record.getMessage() for record in caplog.records) == 1
            reborn = FakeBroker(log=broker.log)
            reborn.topics["T"] = 1
            await cluster.start(reborn)
            await trio.sleep(6)
            assert broker.log.committed == {("G", "T", 0): 2}
            await reborn.die()
            await trio.sleep(60)
            assert sum("commit_failed" in record.getMessage() for record in caplog.records) == 2, "once each time"
        # closing does not fail


async def test_closing_waits_no_longer_for_the_last_commit_however_many_do_not_answer(
    autojump_clock: MockClock,
) -> None:
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    master.addrs = slave.addrs = {0: master.address, 1: slave.address}
    for broker in (master, slave):
        broker.topics["T"] = 1
        broker.register(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *_: None)
    async with cluster_of(master, slave) as cluster:
        async with cluster.consumer(group="G", auto_commit_s=500, timeout_s=10):
            pass
        assert trio.current_time() == pytest.approx(3)


async def test_a_cancelled_consumer_ends_at_once(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_of(one_queue()) as cluster:
        with trio.move_on_after(2):
            async with cluster.consumer(group="G", auto_commit_s=5) as consumer:
                await consumer.poll(timeout_s=60)
        assert trio.current_time() == pytest.approx(2)
        assert not caplog.records


async def test_commits_go_to_the_slave_while_the_master_is_away(autojump_clock: MockClock) -> None:
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    slave.log.records = master.log.records
    master.addrs = {0: master.address, 1: slave.address}
    master.topics["T"] = slave.topics["T"] = 1
    async with cluster_of(master, slave) as cluster, cluster.producer() as producer:
        await send(producer, 2)
        async with cluster.consumer(group="G") as consumer:
            await read(consumer, 2)
            await consumer.commit()
            assert (master.log.committed, slave.log.committed) == ({("G", "T", 0): 2}, {})
            await master.die()
            await consumer.commit()
            assert slave.log.committed == {("G", "T", 0): 2}
            assert await consumer.committed(consumer.queues[0]) == 2


async def test_one_broker_that_does_not_answer_keeps_no_commit_from_the_others(autojump_clock: MockClock) -> None:
    first, second = FakeBroker("a", 1), FakeBroker("b", 2)
    first.topics["T"] = second.topics["T"] = 2
    async with cluster_of(first, second) as cluster, cluster.consumer(group="G") as consumer:
        first.register(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *_: None)
        with pytest.raises(RemotingError):
            await consumer.commit()
        assert trio.current_time() == pytest.approx(3)  # once for all queues of the silent one
        assert set(second.log.committed) == {("G", "T", 0), ("G", "T", 1)}
        first.register(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *_: first.refuse())
        with pytest.raises(MQBrokerError, match="not for you"):
            await consumer.commit()


async def test_a_broker_that_refuses_offsets_is_named_when_the_consumer_opens(autojump_clock: MockClock) -> None:
    broker = one_queue()
    broker.register(RequestCode.QUERY_CONSUMER_OFFSET, lambda *_: broker.refuse())
    async with cluster_of(broker) as cluster:
        with pytest.raises(MQBrokerError, match="not for you"):
            async with open_consumer(cluster.addresses, "T", group="G", network=cluster.network):
                pass
