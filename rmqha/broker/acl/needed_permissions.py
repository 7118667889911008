"""What a request needs: which topics and groups it is about, and what its sender has to be allowed there.

A group stands in the table under the name of its retry topic, as in RocketMQ: so who may consume in a group may do all
that consuming in it brings with it. What is not listed here needs a signature alone, or an administrator's
(:data:`~rmqha.broker.acl.permission.ADMIN_CODES`).

    request                                    topic   group
    10, 310, 320 (send)                        PUB
    10, 310, 320 to %RETRY%group                       SUB
    324, 325 (reply)                           PUB; for the cluster's reply topic unless the account's list says else
    11, 361 (pull), 15 (commit an offset),
    21022 (have commits saved)                 SUB     SUB
    36 (send back), of the topic it is from    SUB     SUB; once the message is read, of its true topic
    12 (query by key)                          SUB
    34 (heartbeat), each group and topic       SUB     SUB
    35, 38 (leave, members)                            SUB
    41, 42 (lock queues)                               SUB
    37 (end a transaction), once its half message is read: what a send to its topic does; as to be asked (39)

RocketMQ looks at no batch (320) or reply (324, 325), at no 361, 41 or 42, at the group alone of what is sent back, and
with a send to a retry topic at the group that sends, whatever group the topic is of.

Source: spec: remoting §4.1; rocketmq-all-4.9.8 PlainAccessValidator.java.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rmqha.broker.acl.permission import PUB, SUB
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.codec.codes import RequestCode
from rmqha.codec.heartbeat import decode_heartbeat
from rmqha.codec.lock_batch import decode_lock_batch
from rmqha.codec.remoting import RemotingCommand

_REPLY_CODES: Final = frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})


class Need(NamedTuple):
    """A permission for a topic, or for a group by its retry topic."""

    resource: str
    perm: int
    unless_listed: bool = False
    """Everybody has it, but an account of whose list of permissions it is part: that counts."""


def of_group(group: str) -> str:
    """Where permissions for a group stand."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def is_group(resource: str) -> bool:
    """Whether it stands for a group."""
    return resource.startswith(RETRY_GROUP_TOPIC_PREFIX)


def needs_of(request: RemotingCommand, *, reply_topic: str = "") -> list[Need]:
    """All that it needs, beyond its signature. A field that lacks is for the processor to miss.

    Args:
        request: of whatever code.
        reply_topic: where this cluster stores replies.

    Raises:
        RemoteProtocolError: header or body cannot be read.
    """
    find = _NEEDS.get(request.code)
    needs = [need for need in find(request) if need.resource] if find else []
    if request.code in _REPLY_CODES:
        return [need._replace(unless_listed=need.resource == reply_topic) for need in needs]
    return needs


def to_send(topic: str) -> Need:
    """What a message to this topic needs of its sender."""
    return Need(topic, SUB if is_group(topic) else PUB)


def to_pull(topic: str, group: str) -> list[Need]:
    """What a pull needs; of a group whose name nobody kept nothing."""
    return [Need(topic, SUB), Need(of_group(group), SUB)] if group else [Need(topic, SUB)]


def _of_send(name: str) -> Callable[[RemotingCommand], Iterable[Need]]:
    return lambda request: [to_send(request.ext_fields.get(name, ""))]


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
    RequestCode.SEND_REPLY_MESSAGE: _of_send("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _of_send("b"),
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
    RequestCode.SAVE_CONSUMER_OFFSETS: _to_consume(topic="topic", group="consumerGroup"),
}
