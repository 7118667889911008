"""What the consume queues and the index need of each record. Hot path: reput reads every record once through here.

The bytes have been verified before (by the append that wrote them, by the slave, or by recovery): bodies are not
touched. That is why this is another loop than scan_records': what they share are five comparisons, and a call for each
record to share them would cost that one a third of its speed.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rmqha.codec.delay_level import DELAY_LEVELS_MS, delivery_time_ms
from rmqha.codec.hashing import REMEMBERED_TAG_MAX, tags_code
from rmqha.codec.properties import decode_utf8, find_property
from rmqha.codec.record.layout import (
    BORN_HOST_AT,
    FIXED_SIZE_V4,
    HOST_KINDS,
    MESSAGE_MAGIC,
    SCHEDULE_TOPIC,
    SysFlag,
    fields_struct,
)
from rmqha.memory import BytesLike


class DispatchRequest(NamedTuple):
    """One record, as the consume queue of ``(topic, queue_id)`` sees it."""

    topic: str
    queue_id: int
    commit_log_offset: int
    msg_size: int
    tags_code: int
    store_timestamp_ms: int
    queue_offset: int
    sys_flag: int
    uniq_key: bytes = b""
    """UNIQ_KEY, by which the index finds it; empty if there is none."""
    keys: bytes = b""
    """KEYS: more of them, between blanks."""


_FIELDS: Final = fields_struct(
    "total_size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body_size"
)
assert _FIELDS.size == FIXED_SIZE_V4
_HOSTS_V6: Final = SysFlag.HOSTS_V6
_TAGS: Final = b"\x02TAGS\x01"
_KEYS: Final = b"KEYS\x01"
_UNIQ_KEY: Final = b"UNIQ_KEY\x01"
_REMEMBERED_KEYS_MAX: Final = 256
"""Bytes. Thousands of records wait for dispatch: of one with more it reads them from the log."""
_FIELDS_V6: Final = {
    kind: fields_struct("store_timestamp", "body_size", sys_flag=kind, begin="born_host") for kind in HOST_KINDS
}
"""The last two again, from BORN_HOST_AT on."""


def read_dispatch(
    buffer: BytesLike,
    start: int,
    end: int,
    *,
    phy_offset_base: int,
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> tuple[list[DispatchRequest], int]:
    """Read the whole records in ``buffer[start:end]``; returns them and the position after the last.

    It stops quietly at a blank, at zeros, at a record that is not whole, and at a bad one: if that position is not
    ``end``, :func:`~rmqha.codec.record.scan.scan_records` from there tells which.
    """
    view = memoryview(buffer)
    unpack = _FIELDS.unpack_from
    requests: list[DispatchRequest] = []
    topics: dict[bytes, str] = {}
    new_request = tuple.__new__  # a third of the time of DispatchRequest(...)
    at, whole_header_end = start, end - FIXED_SIZE_V4
    while at <= whole_header_end:
        total, magic, queue_id, queue_offset, phy_offset, sys_flag, store_timestamp_ms, body_size = unpack(view, at)
        topic_at, next_at = at + FIXED_SIZE_V4 + body_size, at + total
        if sys_flag & _HOSTS_V6:
            fields = _FIELDS_V6[sys_flag & _HOSTS_V6]
            body_at = at + BORN_HOST_AT + fields.size
            if body_at > end:
                break
            store_timestamp_ms, body_size = fields.unpack_from(view, at + BORN_HOST_AT)
            topic_at = body_at + body_size
        if (
            magic != MESSAGE_MAGIC
            or phy_offset != phy_offset_base + at
            or next_at > end
            or body_size < 0
            or topic_at + 3 > next_at
        ):
            break
        tail = view[topic_at:next_at].tobytes()  # one copy for topic and properties: slicing bytes is cheaper
        properties_at = tail[0] + 3
        properties_size = len(tail) - properties_at
        if properties_size < 0 or tail[properties_at - 2] << 8 | tail[properties_at - 1] != properties_size:
            break
        raw_topic = tail[1 : properties_at - 2]
        topic = topics.get(raw_topic)
        if topic is None:
            topic = topics[raw_topic] = raw_topic.decode("ascii", "replace")
        if topic == SCHEDULE_TOPIC:
            code = queue_tags_code(
                topic, tail[properties_at:], store_timestamp_ms=store_timestamp_ms, delay_levels_ms=delay_levels_ms
            )
        else:
            code = tags_code_in(tail, properties_at)
        uniq_key, keys = keys_in(tail, properties_at)
        request = (
            topic, queue_id, phy_offset, total, code, store_timestamp_ms, queue_offset, sys_flag, uniq_key, keys
        )  # fmt: skip
        requests.append(new_request(DispatchRequest, request))
        at = next_at
    return requests, at


def queue_tags_code(
    topic: str,
    properties_raw: bytes,
    *,
    store_timestamp_ms: int,
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> int:
    """The third field of the record's queue unit: the tag's hash, or the delivery time of a delayed message.

    Source: spec: commitlog §2.7; rocketmq-all-4.9.8 CommitLog.java:345-378.
    """
    if topic == SCHEDULE_TOPIC:
        delay = find_property(properties_raw, b"DELAY")
        due_ms = delay and delivery_time_ms(decode_utf8(delay), store_timestamp_ms, levels_ms=delay_levels_ms)
        if due_ms:
            return due_ms
    return tags_code_in(properties_raw, 0)


def tags_code_in(record_end: bytes, properties_at: int) -> int:
    """The hash of the last TAGS among the properties, which reach from ``properties_at`` to the end."""
    tag_at = record_end.rfind(_TAGS, properties_at) + len(_TAGS)
    if tag_at < len(_TAGS):
        if not record_end.startswith(b"TAGS\x01", properties_at):
            return 0
        tag_at = properties_at + 5
    tag_end = record_end.find(b"\x02", tag_at)
    tag = record_end[tag_at:] if tag_end < 0 else record_end[tag_at:tag_end]
    tag = tag or find_property(record_end[properties_at:], b"TAGS") or b""
    return _short_tags_code(tag) if len(tag) <= REMEMBERED_TAG_MAX else tags_code(decode_utf8(tag))


def keys_in(record_end: bytes, properties_at: int) -> tuple[bytes, bytes]:
    """UNIQ_KEY and KEYS among the properties; empty if there is none."""
    uniq_key = keys = b""
    at = record_end.rfind(_UNIQ_KEY, properties_at)
    if at >= 0:
        end = record_end.find(b"\x02", at)
        uniq_key = record_end[at + 9 :] if end < 0 else record_end[at + 9 : end]
        if not uniq_key or (at != properties_at and record_end[at - 1] != 2):
            uniq_key = find_property(record_end[properties_at:], b"UNIQ_KEY") or b""
    if record_end.find(_KEYS, properties_at) >= 0:
        keys = find_property(record_end[properties_at:], b"KEYS") or b""
    return uniq_key, keys


def facts_in(record_end: bytes, properties_at: int) -> tuple[int | None, bytes, bytes]:
    """What dispatch needs of the properties: the tag's code, UNIQ_KEY, KEYS; a code of None if it is not to be kept."""
    uniq_key, keys = keys_in(record_end, properties_at)
    if len(uniq_key) + len(keys) > _REMEMBERED_KEYS_MAX:
        return None, b"", b""
    return tags_code_in(record_end, properties_at), uniq_key, keys


@lru_cache(maxsize=4096)
def _short_tags_code(tag: bytes) -> int:
    return tags_code(decode_utf8(tag))
