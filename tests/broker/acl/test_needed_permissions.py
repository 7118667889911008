"""What requests need, code by code."""

import pytest

from rmqha.broker.acl.needed_permissions import Need, needs_of
from rmqha.broker.acl.permission import PUB, SUB
from rmqha.codec.codes import RequestCode
from rmqha.codec.heartbeat import ConsumerData, HeartbeatData, SubscriptionData, encode_heartbeat
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError

GROUP = Need("%RETRY%g", SUB)
TO_REPLY = Need("cluster_REPLY_TOPIC", PUB, unless_listed=True)
CONSUMER = {"topic": "t", "consumerGroup": "g"}


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (RequestCode.SEND_MESSAGE, {"topic": "t", "producerGroup": "p"}, [Need("t", PUB)]),
        (RequestCode.SEND_MESSAGE, {"topic": "%RETRY%g", "producerGroup": "p", "group": "p"}, [GROUP]),
        (RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": "t", "topic": "other"}, [Need("t", PUB)]),
        (RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": "%RETRY%g"}, [GROUP]),
        (RequestCode.SEND_BATCH_MESSAGE, {"a": "p", "b": "t"}, [Need("t", PUB)]),
        (RequestCode.SEND_REPLY_MESSAGE, {"topic": "t"}, [Need("t", PUB)]),
        (RequestCode.SEND_REPLY_MESSAGE, {"topic": "cluster_REPLY_TOPIC"}, [TO_REPLY]),
        (RequestCode.SEND_REPLY_MESSAGE, {"topic": "other_REPLY_TOPIC"}, [Need("other_REPLY_TOPIC", PUB)]),
        (RequestCode.SEND_MESSAGE, {"topic": "cluster_REPLY_TOPIC"}, [Need("cluster_REPLY_TOPIC", PUB)]),
        (RequestCode.SEND_REPLY_MESSAGE_V2, {"b": "t", "topic": "cluster_REPLY_TOPIC"}, [Need("t", PUB)]),
        (RequestCode.SEND_REPLY_MESSAGE_V2, {"b": "%RETRY%x_REPLY_TOPIC"}, [Need("%RETRY%x_REPLY_TOPIC", SUB)]),
        (RequestCode.SEND_REPLY_MESSAGE_V2, {"b": "cluster_REPLY_TOPIC"}, [TO_REPLY]),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "g", "originTopic": "t"}, [Need("t", SUB), GROUP]),
        (RequestCode.QUERY_CONSUMER_OFFSET, CONSUMER, []),
        (RequestCode.PULL_MESSAGE, CONSUMER, [Need("t", SUB), GROUP]),
        (RequestCode.PULL_MESSAGE, CONSUMER | {"topic": "%RETRY%g"}, [GROUP, GROUP]),
        (RequestCode.LITE_PULL_MESSAGE, CONSUMER, [Need("t", SUB), GROUP]),
        (RequestCode.QUERY_MESSAGE, {"topic": "t", "key": "k"}, [Need("t", SUB)]),
        (RequestCode.UPDATE_CONSUMER_OFFSET, CONSUMER, [Need("t", SUB), GROUP]),
        (RequestCode.SAVE_CONSUMER_OFFSETS, CONSUMER, [Need("t", SUB), GROUP]),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}, [GROUP]),
        (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "g"}, [GROUP]),
        (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "p"}, []),
        (RequestCode.SEND_MESSAGE_V2, {}, []),
        (RequestCode.GET_MAX_OFFSET, {"topic": "t"}, []),
        (4711, {"topic": "t"}, []),
    ],
)
def test_a_request_needs(code: int, fields: dict[str, str], expected: list[Need]) -> None:
    assert needs_of(RemotingCommand(code, ext_fields=fields), reply_topic="cluster_REPLY_TOPIC") == expected


def test_a_heartbeat_needs_all_groups_and_topics_that_it_names() -> None:
    topics = tuple(SubscriptionData(topic) for topic in ("t", "%RETRY%g"))
    consumers = (ConsumerData("g", subscription_data_set=topics), ConsumerData("h"))
    body = encode_heartbeat(HeartbeatData("c", ("p",), consumers))
    needed = needs_of(RemotingCommand(RequestCode.HEART_BEAT, body=body))
    assert needed == [GROUP, Need("t", SUB), GROUP, Need("%RETRY%h", SUB)]


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_queues_are_locked_by_who_may_consume_in_the_group(code: int) -> None:
    body = b'{"clientId":"c","consumerGroup":"g","mqSet":[]}'
    assert needs_of(RemotingCommand(code, body=body)) == [GROUP]


def test_a_heartbeat_of_a_producer_needs_nothing() -> None:
    body = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":null}'
    assert needs_of(RemotingCommand(RequestCode.HEART_BEAT, body=body)) == []


def test_a_heartbeat_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError):
        needs_of(RemotingCommand(RequestCode.HEART_BEAT, body=b"{"))
