"""Whom a consumer asks when a broker fails, refuses or does not answer; and what of it its caller sees."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import MQBrokerError, RemotingError
from rmqha.remoting.connection import Connection
from tests.client.cluster import cluster_of, numbers, read, send
from tests.client.fake_broker import FakeBroker, Log


def replicas(*, queues: int = 1) -> tuple[FakeBroker, FakeBroker, FakeBroker]:
    """A master and two slaves of one log; the master's route names all three."""
    log = Log()
    master = FakeBroker(log=log)
    slaves = [FakeBroker(port=10911 + 10 * number, slave=True, log=log) for number in (1, 2)]
    addrs = {0: master.address, 1: slaves[0].address, 2: slaves[1].address}
    for broker in (master, *slaves):
        broker.addrs = addrs
        broker.topics["T"] = queues
    return master, slaves[0], slaves[1]


async def test_after_the_master_the_first_slave_is_asked(autojump_clock: MockClock) -> None:
    master, first, second = brokers = replicas()
    async with cluster_of(*brokers) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 3)
        await master.die()
        assert await read(consumer, 3) == numbers(3)
        assert first.pulls
        assert not second.pulls


async def test_a_master_that_refuses_is_not_left_for_a_slave(autojump_clock: MockClock) -> None:
    master, first, second = brokers = replicas()
    master.register(11, lambda _, request: master.refuse())
    async with cluster_of(*brokers) as cluster, cluster.consumer() as consumer:
        with pytest.raises(MQBrokerError, match="not for you"):
            await consumer.poll()
        assert first.pulls == second.pulls == []


async def test_a_refusal_is_answered_by_one_try_a_second(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    broker.register(11, lambda _, request: broker.refuse())
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer:
        for _ in range(10):
            with pytest.raises(MQBrokerError):
                await consumer.poll(timeout_s=60)
        assert 9 <= trio.current_time() < 12


async def test_one_silence_of_the_only_broker_is_told(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    broker.register(11, lambda _, request: None)
    async with cluster_of(broker) as cluster, cluster.consumer(suspend_timeout_s=15) as consumer:
        with pytest.raises(RemotingError):
            await consumer.poll(timeout_s=60)
        assert trio.current_time() == pytest.approx(25)


async def test_a_slave_is_asked_again_after_all_had_failed(autojump_clock: MockClock) -> None:
    master, slave, other = brokers = replicas()
    async with cluster_of(*brokers) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 2)
        for broker in brokers:
            await broker.die()
        with pytest.raises(RemotingError):
            await consumer.poll(timeout_s=60)
        reborn = FakeBroker(port=slave.port, slave=True, log=slave.log)
        reborn.topics, reborn.addrs = slave.topics, slave.addrs
        await cluster.start(reborn)
        assert await read(consumer, 2) == numbers(2), "the master still fails, which is no news"


async def test_an_answer_to_what_was_asked_before_a_seek_is_dropped(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 3)
        assert await read(consumer, 3) == numbers(3)
        assert await consumer.poll(timeout_s=1) == [], "the broker holds a pull of what comes next"
        consumer.seek(consumer.queues[0], 1)
        await send(producer, 1, first=3)
        await trio.testing.wait_all_tasks_blocked()
        assert await read(consumer, 3) == [b"1", b"2", b"3"]


async def test_queues_that_may_not_be_read_are_left_alone(autojump_clock: MockClock) -> None:
    writable, both = FakeBroker(), FakeBroker("broker-b", 10921)
    writable.topics["T"] = both.topics["T"] = 2
    writable.perm = 2
    async with cluster_of(writable, both) as cluster, cluster.consumer() as consumer:
        assert [queue.broker_name for queue in consumer.queues] == ["broker-b"] * 2


async def test_a_queue_that_is_found_twice_at_a_time_is_read_once(autojump_clock: MockClock) -> None:
    """The consumer looks for its topic in the background, and so does its caller, whose answer comes first."""
    broker = FakeBroker()
    is_slow = True

    async def answer(connection: Connection, request: RemotingCommand, *, after_s: float) -> None:
        await trio.sleep(after_s)
        connection.respond(request, 0, ext_fields={"offset": "0"})

    def min_offset(connection: Connection, request: RemotingCommand) -> None:
        nonlocal is_slow
        connection.start_soon(partial(answer, connection, request, after_s=2.5 if is_slow else 0))
        is_slow = False

    broker.register(31, min_offset)
    async with cluster_of(broker) as cluster, cluster.consumer() as consumer, cluster.producer() as producer:
        broker.topics["T"] = 1
        await send(producer, 2)
        assert await consumer.poll(timeout_s=0.5) == []
        await consumer.refresh()
        assert await read(consumer, 2) == numbers(2)
        assert await consumer.poll(timeout_s=5) == []
