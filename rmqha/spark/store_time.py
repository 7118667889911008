"""From a store time to the physical offset of the first record stored at or after it, without reading the log.

Store times are taken as ascending, as RocketMQ does; where a clock stepped back, the answer is one of the crossings.
"""

from typing import Final

from pyarrow import fs

from rmqha.codec.record.layout import RECORD_SIZE_MIN, store_timestamp_at
from rmqha.errors import ConfigError
from rmqha.spark.records import covering, find_record, judge, open_at
from rmqha.spark.segments import Segment, SegmentReader

_NEAR_BYTES: Final = 64 << 10


def find_offset_by_time(filesystem: fs.FileSystem, segments: tuple[Segment, ...], time_ms: int, *, end: int) -> int:
    """The first record stored at or after ``time_ms``; ``end`` if there is none.

    Raises:
        ConfigError: these records have no times.
    """
    if not all(segment.record_format.holds_messages for segment in segments):
        raise ConfigError("the entries of a DLedger group without brokers have no times: give offsets")
    candidates = [segment for segment in segments if segment.base < end]
    for segment in reversed(candidates):
        with SegmentReader(filesystem, segment) as file:
            first = find_record(file, segment.base, end=min(end, segment.end))  # the file's head may be damaged
            if first is not None and _time_at(file, first) < time_ms:
                found = _find_within(file, time_ms, end=min(end, segment.end))
                return _next_base(candidates, segment, end=end) if found is None else found
    return segments[0].base if segments else end


def _next_base(candidates: list[Segment], segment: Segment, *, end: int) -> int:
    return segment.end if segment is not candidates[-1] else end


def _find_within(file: SegmentReader, time_ms: int, *, end: int) -> int | None:
    """The first such record of a file whose first record is older; None: all are older."""
    low, high = file.segment.base, end  # low: a record that is older
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        found = find_record(file, middle, end=high)
        if found is not None and covering(file, found, found) is not None:
            break  # it may lie in a body, and its time be made up: from here on each record is looked at
        if found is None or _time_at(file, found) >= time_ms:
            high = middle
        else:
            low = found
    at: int | None = open_at(file, low, end=end)
    while at is not None and at < end:
        verdict = judge(file, at, check_crc=False)
        if verdict.is_record and _time_at(file, at) >= time_ms:
            return at
        at = verdict.end if verdict.is_record else find_record(file, at + 1, end=end)
    return None


def _time_at(file: SegmentReader, position: int) -> int:
    return store_timestamp_at(file.peek(position + file.segment.record_format.message_at, RECORD_SIZE_MIN))
