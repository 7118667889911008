"""An answer whose messages inflate to much is handed out in parts, and none of its messages is left out."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.client import Message, pull_api
from tests.client.cluster import cluster_of
from tests.client.fake_broker import FakeBroker

COUNT = 60


@pytest.mark.parametrize("pause_s", [0.0, 0.5])
async def test_each_message_comes_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, pause_s: float
) -> None:
    """However slowly the caller takes the parts."""
    monkeypatch.setattr(pull_api, "INFLATED_TOGETHER_MAX", 5000)
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer(compress_over_bytes=10) as producer:
        for number in range(COUNT):
            await producer.send(Message("T", b"%d" % number + b"x" * 3000))
        async with cluster.consumer(batch_size=10) as consumer:
            offsets, polls = list[int](), 0
            while len(offsets) < COUNT:
                messages = await consumer.poll()
                offsets += [message.queue_offset for message in messages]
                polls += 1
                (queue,) = consumer.queues
                assert consumer.position(queue) == offsets[-1] + 1
                await trio.sleep(pause_s)
            assert offsets == list(range(COUNT))
            assert polls > COUNT / 10, "in parts"
            assert await consumer.poll(timeout_s=1) == []


async def test_who_pulls_by_hand_goes_on_behind_the_part_that_came(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The broker says where its whole answer ends: who went on there missed all that was left of it."""
    monkeypatch.setattr(pull_api, "INFLATED_TOGETHER_MAX", 5000)
    broker = FakeBroker()
    broker.topics["T"] = 1
    async with cluster_of(broker) as cluster, cluster.producer(compress_over_bytes=10) as producer:
        for number in range(COUNT):
            await producer.send(Message("T", b"%d" % number + b"x" * 3000))
        async with cluster.consumer(batch_size=10) as consumer:
            (queue,) = consumer.queues
            offsets, offset = list[int](), 0
            while offset < COUNT:
                result = await consumer.pull(queue, offset)
                assert 0 < len(result.messages) < 10, "in parts"
                offsets += [message.queue_offset for message in result.messages]
                offset = result.next_begin_offset
            assert offsets == list(range(COUNT))
