"""How many queues a group's retry topic has is for an operator to say (200), within what topics may have."""

import json

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask
from tests.broker.processors.test_send_back_processor import ALONE, RETRY, consumed, found, send_back
from tests.sim.sim_net import SimNet

MAX = {"maxQueues": "20"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", ALONE)


async def update(client: RemotingClient, retry_queue_nums: int) -> RemotingCommand:
    body = json.dumps({"groupName": "g", "retryQueueNums": retry_queue_nums}).encode()
    return await ask(client, RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))


def retry_topic(broker: BrokerController) -> TopicConfig:
    retry = broker.topics.select(RETRY)
    assert retry is not None
    return retry


def retry_queue_nums(broker: BrokerController) -> int:
    group = broker.groups.select("g")
    assert group is not None
    return group.retry_queue_nums


@pytest.mark.parametrize("nums", [65_537, 2**31 - 1])
async def test_more_than_a_topic_can_have_are_refused(machine: Machine, nums: int, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        assert (await update(client, 65_536)).code == ResponseCode.SUCCESS
        answer = await update(client, nums)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"retryQueueNums is {nums}: a topic has at most 65536 queues" in (answer.remark or "")
        assert retry_queue_nums(broker) == 65_536


async def test_a_retry_topic_grows_with_them_and_stays(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(**MAX) as broker, machine.client() as client:
        message = await consumed(client)
        assert (await ask(client, send_back(message.physical_offset, level=1))).code == ResponseCode.SUCCESS
        assert (await update(client, 4)).code == ResponseCode.SUCCESS
        saved = json.loads(machine.disk.files["/store/config/topics.json"].durable)["topicConfigTable"][RETRY]
        assert (saved["readQueueNums"], saved["writeQueueNums"]) == (4, 4)
        for _ in range(8):
            assert (await ask(client, send_back(message.physical_offset, level=1))).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        assert [len(await found(client, RETRY, queue_id)) > 1 for queue_id in range(5)] == [True] * 4 + [False]
        assert (await update(client, 2)).code == ResponseCode.SUCCESS
        assert retry_topic(broker).write_queue_nums == 4, "what lies in the others is to be read"


async def test_of_a_retry_topic_that_has_more_only_those_of_the_group_get_messages(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """An operator who wants fewer can wait until the others are read."""
    async with machine.broker(**MAX) as broker, machine.client() as client:
        message = await consumed(client)
        assert (await update(client, 4)).code == ResponseCode.SUCCESS
        assert (await ask(client, send_back(message.physical_offset, level=1))).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        before = [len(await found(client, RETRY, queue_id)) for queue_id in range(4)]
        assert (await update(client, 2)).code == ResponseCode.SUCCESS
        assert retry_topic(broker).write_queue_nums == 4
        for _ in range(8):
            assert (await ask(client, send_back(message.physical_offset, level=1))).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        after = [len(await found(client, RETRY, queue_id)) for queue_id in range(4)]
        assert [one - other for one, other in zip(after, before, strict=True)] == [4, 4, 0, 0]


async def test_within_max_queues_alone(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(**MAX) as broker, machine.client() as client:
        message = await consumed(client)
        assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.SUCCESS
        answer = await update(client, 30)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "more than maxQueues allows" in (answer.remark or "")
        assert (retry_topic(broker).queue_nums, retry_queue_nums(broker)) == (1, 1)
