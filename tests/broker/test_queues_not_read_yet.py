"""Queues that an operator lets be written, and not read yet: they stay so, whatever is sent to them (trap 39)."""

import pytest
from trio.testing import MockClock

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.processors.test_admin import request
from tests.settings import topic_rules

READ_LATER = TopicConfig("t", read_queue_nums=1, write_queue_nums=4)


async def _make(client: RemotingClient, topic: TopicConfig) -> None:
    fields = {"topic": topic.topic_name, "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
    queues = {"readQueueNums": topic.read_queue_nums, "writeQueueNums": topic.write_queue_nums}
    answer = await ask(client, request(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, **queues))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_send_to_a_queue_that_is_not_read_yet_does_not_open_it(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """It did, and so did a start: consumers were told of the queues that an operator kept from them."""
    async with machine.broker() as broker, machine.client() as client:
        await _make(client, READ_LATER)
        assert (await ask(client, send_request(b"x", queue_id=3))).code == ResponseCode.SUCCESS
        await ask(client, pull_request(0, suspend_ms=1000))
        assert broker.topics.select("t") == READ_LATER
    async with machine.broker() as broker, machine.client() as client:
        assert broker.topics.select("t") == READ_LATER
        refused = await ask(client, pull_request(0, queue_id=3))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        await _make(client, TopicConfig("t", 4, 4))
        assert b"x" in bytes((await ask(client, pull_request(0, queue_id=3))).body)


@pytest.mark.parametrize(
    ("known", "queue_id", "read", "write"),
    [
        (READ_LATER, 3, 1, 4),
        (READ_LATER, 4, 5, 4),
        (TopicConfig("t", 4, 1), 3, 4, 1),
        (TopicConfig("t", 0, 0), 0, 1, 0),
    ],
)
def test_a_queue_that_its_topic_does_not_have_is_learned(
    known: TopicConfig, queue_id: int, read: int, write: int
) -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    topics.update_topic_config(known)
    topics.learn_queue("t", queue_id)
    assert topics.select("t") == TopicConfig("t", read, write)
