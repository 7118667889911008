"""What a request needs: which topics and groups it is about, and what its sender has to be allowed there.

A group stands in the table under the name of its retry topic, as in RocketMQ: so who may consume in a group may do all
that consuming in it brings with it. What is not listed here needs a signature alone, or an administrator's
(:data:`~rmqha.broker.acl.permission.ADMIN_CODES`).

    request                                    topic   group
    10, 310, 320 (send)                        PUB
    10, 310, 320 to %RETRY%group                       SUB
    324, 325 (reply) to no reply topic         PUB
    11, 361 (pull), 15 (commit an offset)      SUB     SUB
    36 (send back), of the topic it is from    SUB     SUB
    12 (query by key)                          SUB
    34 (heartbeat), each group and topic       SUB     SUB
    35, 38 (leave, members)                            SUB
    41, 42 (lock queues)                               SUB

RocketMQ looks at no batch (320) or reply (324, 325), at no 361, 41 or 42, at the group alone of what is sent back, and
with a send to a retry topic at the group that sends, whatever group the topic is of.

Source: spec: remoting §4.1; rocketmq-all-4.9.8 PlainAccessValidator.java.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rmqha.broker.acl.permission import PUB, SUB
from rmqha.broker.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.codec.codes import RequestCode
from rmqha.codec.heartbeat import decode_heartbeat
from rmqha.codec.lock_batch import decode_lock_batch
from rmqha.codec.remoting import RemotingCommand

_REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"


class Need(NamedTuple):
    """A permission for a topic, or for a group by its retry topic."""

    resource: str
    perm: int


def of_group(group: str) -> str:
    """Where permissions for a group stand."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def is_group(resource: str) -> bool:
    """Whether it stands for a group."""
    return resource.startswith(RETRY_GROUP_TOPIC_PREFIX)


def needs_of(request: RemotingCommand) -> list[Need]:
    """All that it needs, beyond its signature. A field that lacks is for the processor to miss.

    Raises:
        RemoteProtocolError: header or body cannot be read.
    """
    find = _NEEDS.get(request.code)
    return [need for need in find(request) if need.resource] if find else []


def _of_send(name: str) -> Callable[[RemotingCommand], Iterable[Need]]:
    def needs(request: RemotingCommand) -> Iterable[Need]:
        topic = request.ext_fields.get(name, "")
        return [Need(topic, SUB if is_group(topic) else PUB)]

    return needs


def _is_reply_topic(topic: str) -> bool:
    return topic.endswith(_REPLY_TOPIC_POSTFIX) and not is_group(topic)


def _of_reply(name: str) -> Callable[[RemotingCommand], Iterable[Need]]:
    of_send = _of_send(name)

    def needs(request: RemotingCommand) -> Iterable[Need]:
        """Everybody may reply: what is stored of it goes to a topic of its own."""
        return [need for need in of_send(request) if not _is_reply_topic(need.resource)]

    return needs


def _to_consume(*, topic: str | None = None, group: str | None = None) -> Callable[[RemotingCommand], Iterable[Need]]:
    """Of the topic and the group that these header fields name."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        fields = request.ext_fields
        if topic is not None:
            yield Need(fields.get(topic, ""), SUB)
        if group is not None and group in fields:
            yield Need(of_group(fields[group]), SUB)

    return needs


def _of_heartbeat(request: RemotingCommand) -> Iterable[Need]:
    for consumer in decode_heartbeat(request.body).consumer_data_set:
        yield Need(of_group(consumer.group_name), SUB)
        for subscription in consumer.subscription_data_set:
            yield Need(subscription.topic, SUB)


def _of_locks(request: RemotingCommand) -> Iterable[Need]:
    return [Need(of_group(decode_lock_batch(request.body).consumer_group), SUB)]


_NEEDS: Final[dict[int, Callable[[RemotingCommand], Iterable[Need]]]] = {
    RequestCode.SEND_MESSAGE: _of_send("topic"),
    RequestCode.SEND_MESSAGE_V2: _of_send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _of_send("b"),
    RequestCode.SEND_REPLY_MESSAGE: _of_reply("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _of_reply("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _to_consume(topic="originTopic", group="group"),
    RequestCode.PULL_MESSAGE: _to_consume(topic="topic", group="consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _to_consume(topic="topic", group="consumerGroup"),
    RequestCode.QUERY_MESSAGE: _to_consume(topic="topic"),
    RequestCode.HEART_BEAT: _of_heartbeat,
    RequestCode.UNREGISTER_CLIENT: _to_consume(group="consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: _of_locks,
    RequestCode.UNLOCK_BATCH_MQ: _of_locks,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _to_consume(group="consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _to_consume(topic="topic", group="consumerGroup"),
}
