"""What RocketMQ 5 writes down of topics beside 4.9's members has no effect here, and is kept."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_pair import Pair

KEPT = {"message.type": "FIFO", "queue.type": "BatchCQ"}
ENTRY = TopicConfig("t", 4, 4).to_json() | {"attributes": KEPT}


async def update(client: RemotingClient, **more: Any) -> RemotingCommand:
    fields = {"topic": "t", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicFilterType": "SINGLE_TAG"} | more
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    return await ask(client, RemotingCommand(code, ext_fields={name: str(value) for name, value in fields.items()}))


def test_they_are_read_and_written_with_the_entry() -> None:
    topic = TopicConfig.from_json("t", ENTRY)
    assert topic.to_json() == ENTRY
    assert topic.json_size > TopicConfig("t", 4, 4).json_size + len(json.dumps(KEPT))
    assert "attributes" not in TopicConfig("t").to_json(), "as RocketMQ 4.9 writes it"


@pytest.mark.parametrize("damage", [None, [], "x", {"a": 1}, {"a": None}, 7])
def test_what_is_no_name_with_a_text_is_left_out(damage: Any) -> None:
    assert TopicConfig.from_json("t", ENTRY | {"attributes": damage}).attributes == ()


async def test_they_stay_whatever_becomes_of_the_topic(autojump_clock: MockClock) -> None:
    """Through a start, a change by an operator, a queue of which the log tells, and to a slave."""
    pair = Pair()
    async with pair.running() as (master, _), pair.master.client() as client:
        await ask(client, send_request(b"x", topic="t"))
        master.topics.update_topic_config(TopicConfig.from_json("t", ENTRY))
        await trio.sleep(20)
    async with pair.running() as (master, slave), pair.master.client() as client:
        assert (await update(client)).code == ResponseCode.SUCCESS
        master.topics.learn_queue("t", 9)
        await trio.sleep(20)
        for broker in (master, slave):
            topic = broker.topics.select("t")
            assert topic is not None
            assert (dict(topic.attributes), topic.read_queue_nums) == (KEPT, 10)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("", KEPT),
        ("+message.type=DELAY", KEPT | {"message.type": "DELAY"}),
        ("-message.type, +cleanup.policy=DELETE", {"queue.type": "BatchCQ", "cleanup.policy": "DELETE"}),
        ("+queue.type=SimpleCQ", KEPT | {"queue.type": "SimpleCQ"}),
    ],
)
async def test_an_operator_changes_what_clients_go_by(
    machine: Machine, changes: str, expected: dict[str, str], autojump_clock: MockClock
) -> None:
    async with machine.broker() as broker, machine.client() as client:
        broker.topics.update_topic_config(TopicConfig.from_json("t", ENTRY))
        assert (await update(client, attributes=changes)).code == ResponseCode.SUCCESS
        topic = broker.topics.select("t")
        assert topic is not None
        assert dict(topic.attributes) == expected


@pytest.mark.parametrize("changes", ["+cleanup.policy=COMPACTION", "+queue.type=BatchCQ", "message.type=FIFO", "+a=b"])
async def test_one_without_effect_is_refused(machine: Machine, changes: str, autojump_clock: MockClock) -> None:
    """A topic that is to be compacted would expire as any other, and mqadmin said 'success'."""
    async with machine.broker() as broker, machine.client() as client:
        answer = await update(client, attributes=f"+message.type=FIFO,{changes}")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"the attribute '{changes}' would have no effect here" in (answer.remark or "")
        assert broker.topics.select("t") is None


async def test_one_topic_is_told_to_rocketmq_5_s_tools(machine: Machine, autojump_clock: MockClock) -> None:
    """Its mqadmin asks for that before it shows how far a group is; its proxy, which kind of messages a topic has."""
    async with machine.broker() as broker, machine.client() as client:
        broker.topics.update_topic_config(TopicConfig.from_json("t", ENTRY))
        answers = [
            await ask(client, RemotingCommand(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic, "lo": "true"}))
            for topic in ("t", "none")
        ]
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST]
    assert json.loads(answers[0].body) == ENTRY
