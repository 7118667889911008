"""LockBatchRequestBody: which queues a client of a group wants to consume alone, or no more. The bodies of 41 and 42.

    request  {"clientId":S,"consumerGroup":S,"mqSet":[MessageQueue]}
    answer   {"lockOKMQSet":[MessageQueue]}
    MessageQueue {"brokerName":S,"queueId":I,"topic":S}

Source: spec: remoting §2.5 (41, 42).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rmqha.codec import java_json
from rmqha.codec.limits import GROUP_SIZE_MAX
from rmqha.errors import RemoteProtocolError

LOCK_BATCH_SIZE_MAX: Final = 256 * 1024
"""Some 4,000 queues. To read more would keep everybody else waiting."""
_NAME_SIZE_MAX: Final = GROUP_SIZE_MAX
_QUEUE_ID_MAX: Final = 2**31 - 1


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class LockBatchRequestBody:
    """The queues of one client of one group."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...]


def decode_lock_batch(body: bytes) -> LockBatchRequestBody:
    """Read the body of 41 or 42.

    Raises:
        RemoteProtocolError: it is none, or too large.
    """
    if len(body) > LOCK_BATCH_SIZE_MAX:
        raise RemoteProtocolError(f"{len(body)} bytes of queues: at most {LOCK_BATCH_SIZE_MAX} are taken at once")
    value = java_json.loads(body, java_keys=False)
    try:
        return LockBatchRequestBody(
            _name(value["consumerGroup"]),
            _name(value["clientId"]),
            tuple(dict.fromkeys(map(_queue, value.get("mqSet") or ()))),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"queues to lock do not parse: {error!r:.200}") from None


def _queue(value: dict[str, Any]) -> MessageQueue:
    queue_id = int(value["queueId"])
    if not 0 <= queue_id <= _QUEUE_ID_MAX:
        raise ValueError("a queueId is an int32 and not negative")
    return MessageQueue(_name(value["topic"]), _name(value["brokerName"]), queue_id)


def _name(value: object) -> str:
    if type(value) is not str or len(value) > _NAME_SIZE_MAX:
        raise TypeError(f"{value!r:.40} is no name of at most {_NAME_SIZE_MAX} characters")
    return value


def encode_lock_ok(queues: Iterable[MessageQueue]) -> bytes:
    """The body of the answer to 41."""
    found = [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic} for one in queues]
    return java_json.dumps({"lockOKMQSet": found}).encode()
