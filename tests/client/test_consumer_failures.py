"""Whom a consumer asks when a broker fails, refuses or does not answer; and what of it its caller sees."""

from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.client import Message
from rmqha.codec.codes import RequestCode, ResponseCode
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


async def test_an_outage_is_a_few_lines_of_the_caller_s_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try was one, of a broker that did not answer either: five a second for a topic of four queues."""
    _, first, _ = brokers = replicas(queues=4)
    async with cluster_of(*brokers) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 3)
        for broker in brokers:
            await broker.die()
        for _ in range(9):
            with pytest.raises(RemotingError):
                await consumer.poll(timeout_s=60)
        (unknown,) = [one.getMessage() for one in caplog.records]
        assert unknown.startswith("consumer.route_unknown: topic T keeps the addresses it had")
        caplog.clear()
        reborn = FakeBroker(port=first.port, slave=True, log=first.log)
        reborn.topics, reborn.addrs = first.topics, first.addrs
        await cluster.start(reborn)
        assert sorted(await read(consumer, 3)) == numbers(3)
        await trio.sleep(20)
        moved = [one.getMessage() for one in caplog.records]
        assert len(moved) == 4
        assert all(one.startswith("consumer.moved: ") and one.endswith("is read from broker id 1 now") for one in moved)


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


async def test_the_only_broker_is_asked_again_a_second_after_its_silence(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    asked: list[float] = []
    broker.register(11, lambda *_: asked.append(trio.current_time()))
    async with cluster_of(broker) as cluster, cluster.consumer(suspend_timeout_s=15) as consumer:
        with pytest.raises(RemotingError):
            await consumer.poll(timeout_s=30)
        assert asked == pytest.approx([0, 26])


async def test_a_slave_is_asked_again_after_all_had_failed(autojump_clock: MockClock) -> None:
    _, slave, _ = brokers = replicas()
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


async def test_so_it_is_while_what_was_asked_after_the_seek_has_no_answer_yet(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 3)
        assert await read(consumer, 3) == numbers(3)
        assert await consumer.poll(timeout_s=1) == [], "the broker holds a pull of what comes next"
        consumer.seek(consumer.queues[0], 3)
        assert await consumer.poll(timeout_s=1) == [], "and another one"
        await send(producer, 1, first=3)
        assert await read(consumer, 1) == [b"3"]
        assert await consumer.poll(timeout_s=1) == []


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


async def test_a_broker_that_was_moved_is_read_at_its_new_address(autojump_clock: MockClock) -> None:
    here = FakeBroker()
    there = FakeBroker(port=10921, log=here.log)
    here.topics["T"] = there.topics["T"] = 1
    async with cluster_of(here) as cluster:
        cluster.addresses = f"{here.address};{there.address}"
        async with cluster.consumer() as consumer, cluster.producer() as producer:
            await here.die()
            await cluster.start(there)
            await send(producer, 2)
            assert await read(consumer, 2) == numbers(2)


async def test_while_the_master_is_starting_a_slave_is_asked(autojump_clock: MockClock) -> None:
    master, first, _ = brokers = replicas()
    master.register(11, lambda *_: RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark="starting"))
    async with cluster_of(*brokers) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 2)
        assert await read(consumer, 2) == numbers(2)
        assert first.pulls


async def test_a_master_that_did_not_serve_is_not_asked_again_for_half_a_minute(autojump_clock: MockClock) -> None:
    """Each answer of a slave names the master as the one to ask: going back at once, every other pull would fail."""
    master, _, _ = brokers = replicas()
    asked: list[float] = []

    def refuse(*_: object) -> RemotingCommand:
        asked.append(trio.current_time())
        return RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark="starting")

    master.register(RequestCode.PULL_MESSAGE, refuse)
    async with (
        cluster_of(*brokers) as cluster,
        cluster.producer() as producer,
        cluster.consumer(batch_size=1) as consumer,
    ):
        await send(producer, 7)
        assert await read(consumer, 4) == numbers(4)
        assert len(asked) == 1
        await trio.sleep(31)
        assert await read(consumer, 3) == [b"4", b"5", b"6"]
        assert len(asked) == 2


async def test_a_failure_before_the_last_answer_does_not_count(autojump_clock: MockClock) -> None:
    """The master that failed first is back when the slave fails: it is asked at once, not after a pause."""
    master, slave = FakeBroker(), FakeBroker(port=10921, slave=True)
    slave.log = master.log
    master.addrs = slave.addrs = {0: master.address, 1: slave.address}
    master.topics["T"] = slave.topics["T"] = 1
    async with cluster_of(master, slave) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 2)
        await master.die()
        assert await read(consumer, 2) == numbers(2)
        reborn = FakeBroker(log=master.log)
        reborn.topics, reborn.addrs = master.topics, master.addrs
        await cluster.start(reborn)
        await send(producer, 1, first=2)
        failed_at = trio.current_time()
        await slave.die()
        assert await read(consumer, 1) == [b"2"]
        assert reborn.pulls
        assert trio.current_time() < failed_at + 0.5


async def test_without_a_master_a_single_pull_asks_the_first_slave(autojump_clock: MockClock) -> None:
    _, first, second = replicas()
    first.addrs = second.addrs = {1: first.address, 2: second.address}
    async with cluster_of(first, second) as cluster, cluster.consumer() as consumer:
        await consumer.pull(consumer.queues[0], 0)
        assert first.pulls
        assert not second.pulls


async def test_who_never_answers_is_asked_for_a_route_once(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: None)
    async with cluster_of(broker) as cluster:
        with pytest.raises(RemotingError):
            async with cluster.consumer(timeout_s=3):
                pass
        assert trio.current_time() == pytest.approx(3)


async def test_who_does_not_answer_is_asked_by_one_task_in_the_background(autojump_clock: MockClock) -> None:
    good, silent = FakeBroker(), FakeBroker("broker-b", 10921)
    good.topics["T"] = 1
    asked: list[float] = []
    silent.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: asked.append(trio.current_time()))
    async with cluster_of(good, silent) as cluster, cluster.consumer() as consumer:
        for _ in range(5):
            await consumer.refresh()
        asked.clear()
        await trio.sleep(80)
        assert 8 <= len(asked) <= 11, "3 s it is waited for, and then 5 s till the next try"


async def test_a_queue_that_an_operator_takes_away_is_left_alone_until_it_is_back(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its broker refuses pulls of it, which is nobody's fault; the route says why."""
    broker = FakeBroker()
    broker.topics["T"] = 2
    serve, refused = broker._pull, list[int]()

    def pull(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        queue_id = int(request.ext_fields["queueId"])
        if queue_id < broker.topics["T"]:
            return serve(connection, request)
        refused.append(queue_id)
        return broker.refuse()

    broker.register(11, pull)
    async with (
        cluster_of(broker) as cluster,
        cluster.producer() as producer,
        cluster.consumer(suspend_timeout_s=5) as consumer,
    ):
        assert await consumer.poll(timeout_s=1) == []
        broker.topics["T"] = 1
        for number in range(3):
            await producer.send(Message("T", b"%d" % number))
            assert await read(consumer, 1) == [b"%d" % number]
            assert await consumer.poll(timeout_s=60) == []
        assert len(refused) == 1
        assert caplog.text.count("consumer.queue_gone") == 1
        broker.topics["T"] = 2
        await consumer.refresh()
        await send(producer, 4, first=3)
        assert sorted(await read(consumer, 4)) == [b"3", b"4", b"5", b"6"]


async def test_a_route_that_lacks_a_queue_takes_none_away_that_its_broker_serves(autojump_clock: MockClock) -> None:
    """A slave that has not heard of the topic's new queues may be the first to answer."""
    broker = FakeBroker()
    broker.topics["T"] = 2
    async with (
        cluster_of(broker) as cluster,
        cluster.producer() as producer,
        cluster.consumer(suspend_timeout_s=2) as consumer,
    ):
        await send(producer, 2)
        assert sorted(await read(consumer, 2)) == numbers(2)
        broker.topics["T"] = 1
        await consumer.refresh()
        broker.topics["T"] = 2
        assert await consumer.poll(timeout_s=5) == [], "what was asked before has its answer"
        await send(producer, 2, first=2)
        assert sorted(await read(consumer, 2)) == [b"2", b"3"]
        assert trio.current_time() < 15, "at once, and not with the next route"


async def test_a_broker_that_refuses_is_told_of_though_the_route_names_only_others(autojump_clock: MockClock) -> None:
    """A route without the broker says nothing of its queues: they are no queues that somebody took away."""
    one, other = FakeBroker(), FakeBroker("broker-b", port=10921)
    for broker in (one, other):
        broker.topics["T"] = 1
    async with cluster_of(one, other) as cluster, cluster.consumer(suspend_timeout_s=2) as consumer:
        assert await consumer.poll(timeout_s=1) == []
        del one.topics["T"]  # it was started without its topics, and makes none for reading
        one.register(11, lambda _connection, _request: one.refuse())
        for _ in range(2):
            with pytest.raises(MQBrokerError):
                await consumer.poll(timeout_s=10)


async def test_what_a_new_master_takes_in_places_that_were_read_already_is_read(autojump_clock: MockClock) -> None:
    """It held less than the consumer had read, which went on at the end: what came before it asked was never given."""
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer() as producer, cluster.consumer() as consumer:
        await send(producer, 10)
        broker.now_ms += 60_000
        await send(producer, 10, first=10)
        assert await read(consumer, 20) == [b"%d" % n for n in range(20)]
        assert await consumer.poll(timeout_s=0) == []
        await broker.die()
        broker.wake_held()
        del broker.log.records["T", 0][10:]
        broker.now_ms += 60_000
        again = FakeBroker(log=broker.log)
        again.topics, again.now_ms = broker.topics, broker.now_ms
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again.run, cluster.network)
            async with cluster.producer() as another:
                await trio.testing.wait_all_tasks_blocked()
                await send(another, 5, first=100)
                assert await read(consumer, 5) == [b"%d" % n for n in range(100, 105)]
                await send(another, 1, first=105)
                assert await read(consumer, 1) == [b"105"]
            nursery.cancel_scope.cancel()


async def test_what_a_new_master_takes_is_read_though_the_last_pull_brought_only_other_tags(
    autojump_clock: MockClock,
) -> None:
    """Places that a pull has passed over were read as well: the cut is noticed behind them, too."""
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with (
        cluster_of(broker) as cluster,
        cluster.producer() as producer,
        cluster.consumer(tags="a", batch_size=10) as consumer,
    ):
        await send(producer, 9, tags="a")
        broker.now_ms += 60_000
        await send(producer, 1, first=9, tags="a")
        await send(producer, 20, first=10, tags="b")
        assert await read(consumer, 10) == numbers(10)
        assert await consumer.poll(timeout_s=1) == []
        assert broker.pulls[-1].queue_offset == 20, "where a pull of other tags alone has led"
        await broker.die()
        del broker.log.records["T", 0][10:]
        broker.now_ms += 60_000
        again = FakeBroker(log=broker.log)
        again.topics, again.now_ms = broker.topics, broker.now_ms
        await cluster.start(again)
        async with cluster.producer() as another:
            await send(another, 5, first=100, tags="a")
            assert await read(consumer, 6) == [b"9", *(b"%d" % n for n in range(100, 105))], "what came next, at least"
