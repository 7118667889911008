"""Delayed messages: how one lies in the log while it waits, and what it becomes when its time is up.

It waits in ``SCHEDULE_TOPIC_XXXX``, in the queue of its level, where all wait equally long: the first is due first. Its
properties say where it goes: ``REAL_TOPIC``, ``REAL_QID``. Both of its records keep all properties, so that a broker of
RocketMQ's goes on with them.

Source: spec: commitlog §2.10, remoting §2.4; rocketmq-all-4.9.8 CommitLog.java,
ScheduleMessageService.java.
"""

import re
from collections.abc import Callable
from typing import Final

from rmqha.codec.properties import decode_utf8, find_property
from rmqha.codec.record.encoder import PreparedRecord, prepare, without_nul
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import LocalProtocolError

_QUEUE_ID: Final = re.compile(rb"\+?0*([0-9]{1,10})").fullmatch
_QUEUE_ID_MAX: Final = 2**31 - 2
_NEVER_DELIVERED: Final = frozenset({SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC"})


def delay_level2_queue_id(delay_level: int) -> int:
    """The queue of the schedule topic in which messages of a level wait."""
    return delay_level - 1


def waiting_properties(pairs: dict[bytes, bytes], *, delay_level: int, topic: str, queue_id: int) -> bytes:
    """The properties with which a message waits.

    Args:
        pairs: its own (:func:`~rmqha.codec.properties.pairs_of`); those that say where it goes are put into them.
        delay_level: no higher than there is one.
        topic: where it goes.
        queue_id: where it goes.
    """
    for name, value in (
        (b"DELAY", b"%d" % delay_level),
        (b"REAL_TOPIC", topic.encode()),
        (b"REAL_QID", b"%d" % queue_id),
    ):
        pairs.pop(name, None)
        pairs[name] = name + b"\x01" + value
    return b"\x02".join(pairs.values())


def real_topic(properties_raw: bytes) -> str:
    """Where a waiting message goes; empty if it does not say so."""
    return decode_utf8(find_property(properties_raw, b"REAL_TOPIC") or b"")


def message_timeup(
    message: StoredMessage,
    store_host_raw: bytes,
    *,
    queue_for: Callable[[str, int], int] = lambda _topic, queue_id: queue_id,
) -> PreparedRecord:
    """The record that a waiting message becomes, stored by the broker at ``store_host_raw``.

    ``queue_for(topic, queue_id)`` is the queue of the topic that it goes to in place of its own.

    Raises:
        LocalProtocolError: it does not say where it goes, or nothing may be delivered there.
    """
    topic = real_topic(message.properties_raw)
    queue_id = _QUEUE_ID(find_property(message.properties_raw, b"REAL_QID") or b"")
    if not topic or topic in _NEVER_DELIVERED or queue_id is None or int(queue_id[1]) > _QUEUE_ID_MAX:
        raise LocalProtocolError(f"a delayed message says that it goes to {topic[:130]!r}: nothing goes there")
    return prepare(
        topic,
        message.body,
        queue_id=queue_for(topic, int(queue_id[1])),
        born_timestamp_ms=message.born_timestamp_ms,
        born_host_raw=message.born_host_raw,
        store_host_raw=store_host_raw,
        properties_raw=without_nul(message.properties_raw),
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
    )
