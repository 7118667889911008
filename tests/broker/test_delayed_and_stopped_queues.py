"""Delayed and half messages where a queue has stopped: one odd queue costs that queue (decision 19)."""

import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.codes import ResponseCode
from rmqha.remoting.client import RemotingClient
from rmqha.store.stopped_queues import StoppedQueue
from tests.broker.machines import Machine, ask, send_request
from tests.broker.producers import COMMIT, producer_of
from tests.broker.test_delayed_messages import ALONE, bodies, delayed
from tests.sim.sim_net import SimNet


def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", ALONE)


async def stop(broker: BrokerController, client: RemotingClient, topic: str, queue_id: int) -> None:
    """Let a queue stop behind its first message."""
    assert (await ask(client, send_request(b"at once", topic=topic, queue_id=queue_id))).code == ResponseCode.SUCCESS
    await trio.sleep(0.1)
    broker.store.queues.stopped[topic, queue_id] = StoppedQueue(1, 7, 100, 100, next=8, last=100)


async def test_it_keeps_no_other_message_of_the_level_waiting(autojump_clock: MockClock) -> None:
    """Another queue of its topic takes what was to go there, though none was ever used."""
    this = machine()
    async with this.broker() as broker, this.client() as client:
        await stop(broker, client, "t", 0)
        await ask(client, delayed(b"first", 1))
        await ask(client, delayed(b"second", 1, topic="other"))
        await ask(client, delayed(b"third", 1, queue_id=3))
        await trio.sleep(3)
        assert await bodies(client, queue_id=1) == [b"first"]
        assert await bodies(client, topic="other") == [b"second"]
        assert await bodies(client, queue_id=3) == [b"third"]


async def test_a_topic_with_one_queue_gets_one_more_to_read(autojump_clock: MockClock) -> None:
    """As a group's retries have: one odd record there stopped those of all groups."""
    this = machine()
    async with this.broker() as broker, this.client() as client:
        broker.topics.update_topic_config(TopicConfig("one", 1, 1))
        await stop(broker, client, "one", 0)
        await ask(client, delayed(b"first", 1, topic="one"))
        await ask(client, delayed(b"second", 1))
        await trio.sleep(3)
        topic = broker.topics.select("one")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums) == (2, 1)
        assert await bodies(client, topic="one", queue_id=1) == [b"first"]
        assert await bodies(client) == [b"second"]


async def test_a_half_message_whose_queue_has_stopped_since_is_committed_to_another(autojump_clock: MockClock) -> None:
    """It was acknowledged, and its commit would be refused for as long as the queue stands still."""
    this = machine()
    async with this.broker() as broker, producer_of(this) as producer, this.client() as client:
        half = await producer.prepare(b"money", e="2")
        await stop(broker, client, "t", 2)
        await producer.end(half, COMMIT)
        await trio.sleep(1)
        assert await bodies(client, queue_id=0) == [b"money"]
        assert await bodies(client, queue_id=2) == [b"at once"]
