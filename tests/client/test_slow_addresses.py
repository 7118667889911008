"""One of several addresses answers, but long after the others."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.client import Message
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from tests.client.cluster import Cluster, cluster_of
from tests.client.fake_broker import FakeBroker


def slow_by(cluster: Cluster, broker: FakeBroker, seconds: float) -> list[float]:
    """Its routes come late from now on; returns when it was asked for them."""
    asked = list[float]()

    async def answer(connection: Connection, request: RemotingCommand) -> None:
        await trio.sleep(seconds)
        route = broker.route(connection, request)
        connection.respond(request, route.code, remark=route.remark, body=route.body)

    def take(connection: Connection, request: RemotingCommand) -> None:
        asked.append(trio.current_time())
        cluster.nursery.start_soon(answer, connection, request)

    broker.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, take)
    return asked


async def test_sends_do_not_wait_for_the_slowest_address(autojump_clock: MockClock) -> None:
    """Each look at the route, every half a minute, waited for it."""
    quick, slow = FakeBroker(), FakeBroker("broker-b", 10921)
    quick.topics["T"] = slow.topics["T"] = 1
    async with cluster_of(quick, slow) as cluster, cluster.producer() as producer:
        asked = slow_by(cluster, slow, 2.5)
        took = list[float]()
        for _ in range(1500):
            began_at = trio.current_time()
            await producer.send(Message("T", b"x"))
            took.append(trio.current_time() - began_at)
            await trio.sleep(0.1)
    assert max(took) == pytest.approx(0.5, abs=0.01)
    assert sum(seconds > 0.01 for seconds in took) <= 5, "once a look at the route, of which there are five"
    assert len(asked) >= 4, "it may have become quick"


async def test_one_that_answers_a_little_later_counts(autojump_clock: MockClock) -> None:
    quick, later = FakeBroker(), FakeBroker("broker-b", 10921)
    quick.topics["T"] = later.topics["T"] = 1
    async with cluster_of(quick, later) as cluster, cluster.producer() as producer:
        slow_by(cluster, later, 0.4)
        assert len(await producer.queues("T")) == 2


async def test_one_that_was_slow_counts_once_it_is_quick_again(autojump_clock: MockClock) -> None:
    quick, slow = FakeBroker(), FakeBroker("broker-b", 10921)
    quick.topics["T"] = slow.topics["T"] = 1
    async with cluster_of(quick, slow) as cluster, cluster.producer() as producer:
        slow_by(cluster, slow, 2.5)
        assert len(await producer.queues("T")) == 1
        slow_by(cluster, slow, 0)
        await trio.sleep(31)
        await producer.queues("T")
        await trio.sleep(31)
        assert len(await producer.queues("T")) == 2


async def test_the_slow_one_is_waited_for_if_it_alone_knows(autojump_clock: MockClock) -> None:
    quick, slow = FakeBroker(), FakeBroker("broker-b", 10921)
    slow.topics["T"] = 1
    async with cluster_of(quick, slow) as cluster, cluster.producer() as producer:
        slow_by(cluster, slow, 2.5)
        sent = await producer.send(Message("T", b"x"))
        assert sent.queue.broker_name == "broker-b"
        assert trio.current_time() == pytest.approx(2.5, abs=0.01)
