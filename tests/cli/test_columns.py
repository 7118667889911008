"""What is told of topics, groups, members and messages stands below its own name: all values here differ."""

import json
from dataclasses import fields
from typing import Any, Final

import pytest

from rmqha.cli.dledger_status import _told
from rmqha.cli.main import run
from rmqha.cli.message_lines import fact_lines, json_line
from rmqha.client import MessageExt, MessageQueue
from rmqha.codec.codes import RequestCode
from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.codec.message_queue import message_queue_key
from tests.cli.fake_brokers import FakeBrokers, answer, runtime

Output = pytest.CaptureFixture[str]
A: Final = "10.0.0.1:10911"
TOPIC: Final = {
    "topicName": "orders", "readQueueNums": 3, "writeQueueNums": 5, "perm": 4, "order": True,
    "topicFilterType": "MULTI_TAG", "topicSysFlag": 1,
}  # fmt: skip
MEMBER: Final = {"clientId": "c@1", "clientAddr": "10.0.0.7:5000", "language": "JAVA", "version": 399}
FOR_MEMBERS: Final = ("broker_address", "process", "counted", "refused_term")
MESSAGE: Final = MessageExt(
    topic="t", queue=MessageQueue("t", "a", 2), queue_offset=301, body=b"body", tags="tag", keys=("k1", "k2"),
    properties={"x": "y"}, msg_id="ID", offset_msg_id="OFFSETID", flag=303, sys_flag=304,
    born_timestamp_ms=1_700_000_000_305, born_host="10.0.0.5:305", store_timestamp_ms=1_700_000_900_306,
    store_host="10.0.0.6:306", physical_offset=307, reconsume_times=308,
)  # fmt: skip


def put_all(brokers: FakeBrokers) -> None:
    key = message_queue_key("orders", 2, broker_name="a")
    consumed = {"brokerOffset": 110, "consumerOffset": 70, "lastTimestamp": 1_700_000_000_000}
    stats = {"lastUpdateTimestamp": 1_700_000_900_000, "maxOffset": 90, "minOffset": 20}
    of_group = {"consumeTps": 0.0, "offsetTable": {key: consumed}}
    group = {"consumeEnable": False, "retryQueueNums": 6, "retryMaxTimes": 7, "brokerId": 8}
    brokers.answers[A] = {
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime(broker_name="a"),
        RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": {"orders": TOPIC}}),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: answer({"topicList": []}),
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": {key: stats}}),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: answer({"groupList": ["billing"]}),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer({"subscriptionGroupTable": {"billing": group}}),
        RequestCode.GET_BROKER_CONSUME_STATS: answer({"consumeStatsList": [{"billing": [of_group]}], "totalDiff": 0}),
        RequestCode.GET_CONSUME_STATS: answer(of_group),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: answer({"connectionSet": [MEMBER, MEMBER]}),
    }


def told(command: str, capsys: Output, *options: str) -> str:
    assert run([*command.split(), "-b", A, *options]) == 0
    return capsys.readouterr().out


def test_topics(fake_brokers: FakeBrokers, capsys: Output) -> None:
    put_all(fake_brokers)
    row = {"topic": "orders", "broker": "a", "writeQueues": 5, "readQueues": 3, "perm": "r-"}
    assert json.loads(told("topics list", capsys, "--format", "json")) == row
    assert told("topics list", capsys).splitlines()[1].split() == [str(value) for value in row.values()]
    document = json.loads(told("topics describe orders", capsys, "--format", "json"))
    times = {"last_stored_ms": 1_700_000_900_000}
    assert document == {
        "topic": "orders", "groups": ["billing"], "brokers": [{"broker": "a"} | TOPIC],
        "queues": [{"broker": "a", "queue_id": 2, "first": 20, "end": 90} | times],
    }  # fmt: skip
    lines = told("topics describe orders", capsys).splitlines()
    assert lines[3].split() == ["a", "5", "3", "r-", "70"]
    assert lines[6].split()[:5] == ["a", "2", "20", "90", "70"]


def test_groups(fake_brokers: FakeBrokers, capsys: Output) -> None:
    put_all(fake_brokers)
    row = {"group": "billing", "broker": "a", "members": 2, "topics": 1, "lag": 40}
    assert json.loads(told("groups list", capsys, "--format", "json")) == row | {"notCommitted": []}
    assert told("groups list", capsys).splitlines()[1].split() == [str(value) for value in row.values()]
    document = json.loads(told("groups describe billing", capsys, "--format", "json"))
    settings = {"consumeEnable": False, "retryQueueNums": 6, "retryMaxTimes": 7, "brokerId": 8}
    queue = {
        "topic": "orders", "broker": "a", "queueId": 2, "consumed": 70, "end": 110, "lag": 40,
        "consumedStoreTimestamp": 1_700_000_000_000, "committed": True,
    }  # fmt: skip
    member = {"broker": "a"} | MEMBER
    assert document == {
        "group": "billing", "lag": 40, "members": [member, member], "queues": [queue], "settings": {"a": settings},
        "retryLag": 20, "deadLetters": 70,
    }  # fmt: skip
    text = told("groups describe billing", capsys)
    assert ["c@1", "10.0.0.7:5000", "JAVA", "a"] in [line.split() for line in text.splitlines()]
    assert ["orders", "a", "2", "70", "110", "40"] in [line.split()[:6] for line in text.splitlines()]


def test_a_message() -> None:
    assert json.loads(json_line(MESSAGE)) == {
        "topic": "t", "brokerName": "a", "queueId": 2, "queueOffset": 301, "physicalOffset": 307, "msgId": "ID",
        "offsetMsgId": "OFFSETID", "tags": "tag", "keys": ["k1", "k2"], "bornTimestamp": 1_700_000_000_305,
        "bornHost": "10.0.0.5:305", "storeTimestamp": 1_700_000_900_306, "storeHost": "10.0.0.6:306",
        "reconsumeTimes": 308, "properties": {"x": "y"}, "bodyLength": 4, "body": "body",
        "bodySha256": "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5",
    }  # fmt: skip
    lines = dict(line.split("  ", 1) for line in fact_lines(MESSAGE).splitlines() if "  " in line)
    assert lines["born"].endswith(" at 10.0.0.5:305")
    assert lines["stored"].endswith(" at 10.0.0.6:306")
    assert lines["born"].split(" at ")[0] != lines["stored"].split(" at ")[0]


def test_all_that_a_member_says_of_itself_is_told() -> None:
    """None of it may be left out but what other members go by: a group is judged by it."""
    own: dict[str, Any] = {field.name: f"its {field.name}" for field in fields(MemberStatus)}
    facts = _told("n0", MetadataResponse(leader_id="n1", rmqha_status=MemberStatus(**own)), None)
    assert facts.pop("leaderId") == "n1"
    assert facts == {in_camels(name): value for name, value in own.items() if name not in FOR_MEMBERS}
    nothing = _told("n0", None, None)
    assert nothing.keys() == facts.keys() | {"leaderId"}
    assert {*nothing.values()} == {None}


def in_camels(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *(part.capitalize() for part in others)])
