"""Queues that are read, and not written any more: what they hold is to be consumed, seen by operators, and set back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.broker.group_members import member_of
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_not_committed import lag_of_all, told

GROUP, TOPIC = "g", "t"


@asynccontextmanager
async def draining(machine: Machine, *, read_by_group: int = 4) -> AsyncIterator[BrokerController]:
    """A broker whose group has committed 0 in so many of four queues with five messages; one is written still."""
    async with machine.broker() as broker:
        async with machine.client() as client:
            for number in range(20):
                await ask(client, send_request(b"x", topic=TOPIC, queue_id=number % 4))
        for queue_id in range(read_by_group):
            broker.offsets.commit_offset(GROUP, TOPIC, queue_id, offset=0, peer="10.0.0.7:1")
        broker.topics.update_topic_config(TopicConfig(TOPIC, read_queue_nums=4, write_queue_nums=1))
        await trio.sleep(5)
        yield broker


async def test_their_messages_are_told(machine: Machine, autojump_clock: MockClock) -> None:
    """As RocketMQ 5 tells them: of 20 messages 5 were seen, and a group that lacked 20 lacked 5."""
    async with draining(machine), machine.client() as client:
        stats = (await told(client, RequestCode.GET_TOPIC_STATS_INFO, topic=TOPIC))["offsetTable"]
        assert sum(one["maxOffset"] - one["minOffset"] for one in stats.values()) == 20
        spans = await told(client, RequestCode.QUERY_CONSUME_TIME_SPAN, topic=TOPIC, group=GROUP)
        assert len(spans["consumeTimeSpanSet"]) == 4
        assert await lag_of_all(client) == {GROUP: 20}


@pytest.mark.parametrize("read_by_group", [4, 3])
async def test_their_places_are_set_with_the_others(
    read_by_group: int, machine: Machine, autojump_clock: MockClock
) -> None:
    """What the group has never read of them has no place that could be set, and keeps no other one from being set."""
    fields: dict[str, Any] = {"topic": TOPIC, "group": GROUP, "timestamp": "-1", "isForce": "true"}
    async with (
        draining(machine, read_by_group=read_by_group),
        machine.client() as client,
        member_of(machine, "a") as member,
    ):
        await member.heartbeat(GROUP)
        table = (await told(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields))["offsetTable"]
        assert len(table) == read_by_group
        assert set(table.values()) == {5}
        one = await told(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields | {"queueId": "2", "offset": "3"})
        assert list(one["offsetTable"].values()) == [3]
        last = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields | {"queueId": "3"})
        told_code = (await ask(client, last)).code
        assert (told_code == ResponseCode.SUCCESS) is (read_by_group == 4), "one that is named is not passed over"
