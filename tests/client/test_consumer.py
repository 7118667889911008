"""Consumer against fake brokers behind the real server, over the in-memory network."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.client import (
    Message,
    MessageQueue,
    PullStatus,
    open_producer,
)
from rmqha.codec.codes import ResponseCode
from rmqha.codec.headers import PullMessageRequestHeader, PullMessageResponseHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import MQBrokerError, MQClientError, RemotingError
from tests.client.cluster import cluster_of, numbers, read, send
from tests.client.fake_broker import FakeBroker


async def test_all_messages_of_all_queues_arrive_once_and_in_order(autojump_clock: MockClock) -> None:
    async with cluster_of(FakeBroker()) as cluster, cluster.producer() as producer:
        await send(producer, 100)
        async with cluster.consumer(batch_size=10) as consumer:
            seen: dict[MessageQueue, list[int]] = {}
            count = 0
            while count < 100:
                for message in await consumer.poll():
                    seen.setdefault(message.queue, []).append(message.queue_offset)
                    count += 1
            assert all(offsets == list(range(25)) for offsets in seen.values())
            assert [consumer.position(queue) for queue in consumer.queues] == [25] * 4
            assert await consumer.poll(timeout_s=1) == []


async def test_what_is_received_is_what_was_sent(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with cluster_of(broker) as cluster, cluster.producer(compress_over_bytes=10) as producer:
        result = await producer.send(Message("T", b"x" * 5000, tags="A", keys="k1 k2", properties={"p": "v"}, flag=5))
        async with cluster.consumer() as consumer:
            (message,) = await consumer.poll()
    assert (message.topic, message.queue, message.queue_offset) == ("T", result.queue, 0)
    assert (message.body, message.body_problem) == (b"x" * 5000, "")
    assert (message.tags, message.keys, message.flag) == ("A", ("k1", "k2"), 5)
    assert message.properties["p"] == "v"
    assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert message.store_timestamp_ms == broker.now_ms
    assert message.store_host == broker.address


async def test_a_waiting_poll_gets_a_new_message_at_once(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 4
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        arrived: list[float] = []

        async def wait() -> None:
            assert len(await consumer.poll(timeout_s=60)) == 1
            arrived.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(40)  # longer than a broker holds a pull
            await send(producer, 1)
        assert arrived == [pytest.approx(40)]
        assert len(broker.pulls) <= 4 * 3 + 5


async def test_only_messages_with_the_tags_arrive(autojump_clock: MockClock) -> None:
    async with cluster_of(FakeBroker()) as cluster, cluster.producer() as producer:
        for tag in ("Aa", "BB", "A", None):  # the first two have one hash code
            await producer.send(Message("T", (tag or "none").encode(), tags=tag))
        async with cluster.consumer(tags="Aa || A") as consumer:
            assert sorted(await read(consumer, 2)) == [b"A", b"Aa"]
            assert await consumer.poll(timeout_s=1) == []
            assert sum(consumer.position(queue) for queue in consumer.queues) >= 3
    with pytest.raises(MQClientError, match="names no tag"):
        async with cluster.consumer(tags=" || "):
            pass


async def test_seeking(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        for n in range(10):
            broker.now_ms = 1000 + n
            await send(producer, 1, first=n)
        (queue,) = consumer.queues
        assert await read(consumer, 10) == numbers(10)
        await consumer.seek_to_begin()
        assert consumer.position(queue) == 0
        assert await read(consumer, 10) == numbers(10)
        await consumer.seek_to_time(1007)
        assert await read(consumer, 3) == [b"7", b"8", b"9"]
        await consumer.seek_to_end()
        assert await consumer.poll(timeout_s=1) == []
        consumer.seek(queue, 5)
        assert await read(consumer, 5) == [b"5", b"6", b"7", b"8", b"9"]
        with pytest.raises(MQClientError, match="negative"):
            consumer.seek(queue, -1)
        with pytest.raises(MQClientError, match="not one of the 1 queues"):
            consumer.seek(queue._replace(queue_id=1), 0)


async def test_a_seek_drops_what_was_received_meanwhile(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with (
        cluster_of(broker) as cluster,
        cluster.producer() as producer,
        cluster.consumer(batch_size=2) as consumer,
    ):
        await send(producer, 6)
        assert [message.body for message in await consumer.poll()] == [b"0", b"1"]
        await trio.testing.wait_all_tasks_blocked()  # the next two are received, not handed out
        consumer.seek(consumer.queues[0], 4)
        assert await read(consumer, 2) == [b"4", b"5"]


async def test_a_seek_drops_the_failure_of_what_was_asked_before(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        assert await consumer.poll(timeout_s=1) == []
        connection, request, _ = broker.held.pop()
        await send(producer, 3)
        consumer.seek(consumer.queues[0], 1)
        connection.send_reply(request, broker.refuse())
        await trio.testing.wait_all_tasks_blocked()
        assert await read(consumer, 2) == [b"1", b"2"]


async def test_an_offset_beyond_the_end_is_corrected_and_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 3)
        consumer.seek(consumer.queues[0], 99)
        assert await consumer.poll(timeout_s=1) == []
        await send(producer, 1, first=3)
        assert await read(consumer, 1) == [b"3"]
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("rmqha.client", "WARNING")
    assert "consumer.offset_moved: offset 99 lies outside" in record.getMessage()
    assert "going on at 3" in record.getMessage()


async def test_a_broker_that_never_has_the_offset_it_told_is_asked_now_and_then(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs neither a processor nor a line for each answer, and is read when it has come to its senses."""
    broker, asked = FakeBroker(), list[int]()

    def find_nothing(header: PullMessageRequestHeader) -> RemotingCommand:
        asked.append(header.queue_offset)
        fields = encode_header(PullMessageResponseHeader(0, header.queue_offset + 1, 0, 0))
        return RemotingCommand(ResponseCode.PULL_OFFSET_MOVED, ext_fields=fields)

    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(broker, "_find", find_nothing)
            assert await consumer.poll(timeout_s=60) == []
        assert 30 < len(asked) < 70
        assert len(caplog.records) <= len(asked)
        assert await consumer.poll(timeout_s=5) == []
        await send(producer, 1)
        assert await read(consumer, 1) == [b"0"]


async def test_when_the_master_dies_reading_goes_on_at_the_slave(autojump_clock: MockClock) -> None:
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    slave.log = master.log
    master.addrs = {0: master.address, 1: slave.address}
    master.topics["T"] = slave.topics["T"] = 4
    async with cluster_of(master, slave) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 20)
        assert sorted(await read(consumer, 20)) == numbers(20)
        assert not slave.pulls
        await consumer.poll(timeout_s=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, producer, 8)
            await trio.testing.wait_all_tasks_blocked()
        await master.die()
        assert len(await read(consumer, 8)) == 8
        begun_at = trio.current_time()
        assert slave.pulls
        while trio.current_time() < begun_at + 45:
            assert await consumer.poll(timeout_s=10) == []
        reborn = FakeBroker(log=master.log)
        reborn.topics["T"] = 4
        reborn.addrs = master.addrs
        await cluster.start(reborn)
        await send(producer, 4, first=100)
        slave.wake_held()
        assert sorted(await read(consumer, 4)) == [b"100", b"101", b"102", b"103"]
        while not reborn.pulls:
            assert await consumer.poll(timeout_s=10) == []
        assert trio.current_time() < begun_at + 100
        await reborn.die()
        assert await consumer.poll(timeout_s=10) == [], "that the master fails again is no more than the first time"


async def test_named_brokers_only_are_read_if_so_wished(autojump_clock: MockClock) -> None:
    """A slave that names its master is read itself."""
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    slave.log = master.log
    slave.addrs = {0: master.address, 1: slave.address}
    master.topics["T"] = slave.topics["T"] = 4
    async with cluster_of(slave) as cluster:
        await cluster.start(master)
        async with open_producer(master.address, network=cluster.network) as producer:
            await send(producer, 8)
        async with cluster.consumer(named_only=True) as consumer:
            assert sorted(await read(consumer, 8)) == numbers(8)
            await consumer.seek_to_begin()
        assert slave.pulls
        assert not master.pulls


async def test_among_slaves_alone_reading_goes_on_at_the_next_one(autojump_clock: MockClock) -> None:
    first, second = FakeBroker(slave=True), FakeBroker(port=10921, slave=True)
    second.log = first.log
    master = FakeBroker(port=10931, log=first.log)
    first.topics["T"] = second.topics["T"] = master.topics["T"] = 1
    second.addrs = {2: second.address}
    async with cluster_of(first, second) as cluster, cluster.consumer() as consumer:
        await cluster.start(master)
        async with open_producer(master.address, network=cluster.network) as producer:
            await send(producer, 1)
        await first.die()
        assert await read(consumer, 1) == [b"0"]
        assert second.pulls


async def test_without_any_broker_poll_says_so_and_can_be_called_again(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer, cluster.producer() as producer:
        await send(producer, 1)
        assert await read(consumer, 1) == [b"0"]
        await broker.die()
        with pytest.raises(RemotingError):
            await consumer.poll(timeout_s=60)
        reborn = FakeBroker(log=broker.log)
        reborn.topics["T"] = 1
        await cluster.start(reborn)
        await send(producer, 1, first=1)
        bodies: list[bytes] = []
        for _ in range(3):
            try:
                bodies += await read(consumer, 1)
                break
            except RemotingError:
                continue
        assert bodies == [b"1"]


async def test_a_poll_bridges_a_restart_of_the_only_broker(autojump_clock: MockClock) -> None:
    """It raised at once, where a send waits."""
    broker = FakeBroker()
    broker.topics["T"] = 4
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer:
        assert await consumer.poll(timeout_s=1) == []
        await broker.die()

        async def restart() -> None:
            await trio.sleep(2.5)
            reborn = FakeBroker(log=broker.log)
            reborn.topics["T"] = 4
            await cluster.start(reborn)
            await trio.sleep(7)
            async with cluster.producer() as producer:
                await send(producer, 1)

        cluster.nursery.start_soon(restart)
        assert await consumer.poll(timeout_s=5) == [], "the broker is back, and has nothing new"
        assert [message.body for message in await consumer.poll(timeout_s=10)] == [b"0"]
        assert 9 < trio.current_time() < 11.5


async def test_a_poll_says_at_its_end_that_no_broker_answers(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer:
        await consumer.poll(timeout_s=0.1)
        await broker.die()
        for timeout_s in (0.5, 5.0, 5.0):
            begun_at = trio.current_time()
            with pytest.raises(RemotingError):
                await consumer.poll(timeout_s=timeout_s)
            assert trio.current_time() - begun_at == pytest.approx(timeout_s, abs=0.1)


async def test_a_broker_that_does_not_answer_is_told_of_though_another_brings_messages(
    autojump_clock: MockClock,
) -> None:
    busy, dead = FakeBroker(), FakeBroker(name="broker-b", port=10921)
    busy.topics["T"] = dead.topics["T"] = 1
    async with (
        cluster_of(busy, dead) as cluster,
        cluster.consumer() as consumer,
        open_producer(busy.address, network=cluster.network) as producer,
    ):
        await consumer.poll(timeout_s=0.1)
        await dead.die()
        told = 0
        for n in range(100):
            await trio.sleep(0.1)
            await send(producer, 1, first=n)
            try:
                await consumer.poll(timeout_s=2)
            except RemotingError:
                told += 1
        assert 3 <= told <= 6


async def test_a_slave_that_is_behind_is_asked_once_a_second(autojump_clock: MockClock) -> None:
    slave = FakeBroker(slave=True)
    slave.topics["T"] = 1
    async with cluster_of(slave) as cluster, cluster.consumer() as consumer:
        consumer.seek(consumer.queues[0], 5)
        assert await consumer.poll(timeout_s=10) == []
        assert 9 <= len(slave.pulls) <= 12
        assert consumer.position(consumer.queues[0]) == 5


async def test_a_refusal_is_raised(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    broker.register(11, lambda _, request: broker.refuse())
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer:
        with pytest.raises(MQBrokerError, match="not for you") as caught:
            await consumer.poll()
        assert caught.value.code == 16


async def test_a_single_pull(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 3)
        (queue,) = consumer.queues
        result = await consumer.pull(queue, 1, max_messages=1)
        assert (result.status, [message.body for message in result.messages]) == (PullStatus.FOUND, [b"1"])
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == (2, 0, 3)
        assert (await consumer.pull(queue, 3)).status is PullStatus.NO_NEW_MSG
        assert (await consumer.pull(queue, 9)).status is PullStatus.OFFSET_ILLEGAL
        assert consumer.position(queue) == 0


async def test_offsets_are_asked_of_a_slave_when_the_master_is_gone(autojump_clock: MockClock) -> None:
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    slave.log = master.log
    master.addrs = {0: master.address, 1: slave.address}
    master.topics["T"] = slave.topics["T"] = 1
    async with cluster_of(master, slave) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 5)
        await master.die()
        await consumer.seek_to_end()
        assert consumer.position(consumer.queues[0]) == 5
        await slave.die()
        with pytest.raises(RemotingError):
            await consumer.seek_to_begin()
        assert consumer.position(consumer.queues[0]) == 5


async def test_messages_that_inflate_to_much_are_handed_out_a_few_at_a_time(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    large = bytes(10 << 20)
    options = {"compress_over_bytes": 1, "message_size_max": len(large)}
    async with cluster_of(broker) as cluster, cluster.producer(**options) as producer:
        (queue, *_) = await producer.queues("T")
        for _ in range(5):
            await producer.send(Message("T", large), queue=queue)
        async with cluster.consumer(group="g") as consumer:
            seen = []
            for count in (2, 2, 1):
                messages = await consumer.poll()
                seen += [message.queue_offset for message in messages if message.body == large]
                assert len(messages) == count
                assert consumer.position(queue) == len(seen)
            assert seen == [0, 1, 2, 3, 4]
            assert sum(pull.queue_id == queue.queue_id and pull.queue_offset < 5 for pull in broker.pulls) == 1
            consumer.seek(queue, 1)
            assert [message.queue_offset for message in await consumer.poll()] == [1, 2]
            consumer.take_back(await consumer.poll())
            assert [message.queue_offset for message in await consumer.poll()] == [3, 4]
            one = await consumer.pull(queue, 2)
            assert [message.queue_offset for message in one.messages] == [2, 3]
            assert one.next_begin_offset == 4


async def test_so_are_those_that_inflate_to_more_than_is_taken(autojump_clock: MockClock) -> None:
    large = bytes(10 << 20)
    options = {"compress_over_bytes": 1, "message_size_max": len(large)}
    async with cluster_of(FakeBroker()) as cluster, cluster.producer(**options) as producer:
        (queue, *_) = await producer.queues("T")
        for _ in range(3):
            await producer.send(Message("T", large), queue=queue)
        async with cluster.consumer(body_size_max=9 << 20) as consumer:
            first, second = await consumer.poll(), await consumer.poll()
    assert [len(first), len(second)] == [2, 1]
    assert all("inflates to more than" in message.body_problem for message in first + second)
