"""What the consume queues and the index need of each record. Hot path: reput reads every record once through here.

The bytes have been verified before (by the append that wrote them, by the slave, or by recovery): bodies are not
touched. That is why this is another loop than scan_records': what they share are five comparisons, and a call for each
record to share them would cost that one a third of its speed.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqha.codec.delay_level import DELAY_LEVELS_MS, delivery_time_ms
from rmqha.codec.properties import decode_utf8, find_property
from rmqha.codec.record.ends import RecordEnds, tags_code_in
from rmqha.codec.record.layout import (
    BORN_HOST_AT,
    FIXED_SIZE_V4,
    HOST_KINDS,
    MESSAGE_MAGIC,
    SCHEDULE_TOPIC,
    SysFlag,
    fields_struct,
    is_inner_batch,
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
_SPECIAL: Final = SysFlag.SPECIAL
_NO_PLACE: Final = (0, 0)
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
    ends: RecordEnds | None = None,
) -> tuple[list[DispatchRequest], int]:
    """Read the whole records in ``buffer[start:end]``; returns them and the position after the last.

    ``ends`` is what a caller who reads again keeps of the records' ends.

    It stops quietly at a blank, at zeros, at a record that is not whole, and at a bad one: if that position is not
    ``end``, :func:`~rmqha.codec.record.scan.scan_records` from there tells which.
    """
    view = memoryview(buffer)
    unpack = _FIELDS.unpack_from
    requests: list[DispatchRequest] = []
    ends = RecordEnds() if ends is None else ends
    places, known = ends.places, ends.known
    new_request = tuple.__new__  # a third of the time of DispatchRequest(...)
    at, whole_header_end = start, end - FIXED_SIZE_V4
    while at <= whole_header_end:
        total, magic, queue_id, queue_offset, phy_offset, sys_flag, store_timestamp_ms, body_size = unpack(view, at)
        topic_at, next_at = at + FIXED_SIZE_V4 + body_size, at + total
        if sys_flag & _SPECIAL:
            fields = _FIELDS_V6[sys_flag & SysFlag.HOSTS_V6]
            body_at = at + BORN_HOST_AT + fields.size
            if body_at > end or (sys_flag & SysFlag.INNER_BATCH and is_inner_batch(view, at, end)):
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
        key_at, key_end = places.get(len(tail), _NO_PLACE)
        usual = known.get((tail[:key_at], tail[key_end:])) if key_end else None
        if usual is not None and (uniq_key := tail[key_at:key_end]).isalnum():
            topic, code, keys = usual
        else:
            end_of_record = ends.understand(tail)
            if end_of_record is None:
                break
            topic, code, uniq_key, keys = end_of_record
            if topic == SCHEDULE_TOPIC:
                raw = tail[tail[0] + 3 :]
                code = queue_tags_code(
                    topic, raw, store_timestamp_ms=store_timestamp_ms, delay_levels_ms=delay_levels_ms
                )
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
