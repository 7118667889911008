"""The safe end of a log that may be growing: the end of its last whole record.

A writer's last record may be half there. The end is found without reading the log: the last file that holds anything,
a binary search in it for a record near its end, then from record to record, bodies checked. A trailing blank is not
counted: RocketMQ cuts one away at its next start and writes messages there (spec: commitlog §4.2).
"""

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyarrow import fs

from rmqha.codec.record.message import decode_scanned
from rmqha.codec.record.scan import Stop
from rmqha.spark.records import Verdict, covering, find_record, foreign_record, judge, unfinished_body_end
from rmqha.spark.segments import Segment, SegmentReader

_NEAR_BYTES: Final = 256 << 10
_TAIL_SCAN_BYTES: Final = 16 << 20
_PROBE_BYTES: Final = 32 << 10
_APART_BYTES: Final = 16 << 20
"""Behind :data:`_TAIL_SCAN_BYTES` an object store is not read whole, but looked at so often."""


class LogEnd(NamedTuple):
    """``offset``: end of the last whole record. ``unfinished``: what follows it, empty if nothing does."""

    offset: int
    unfinished: str


def find_log_end(filesystem: fs.FileSystem, segments: tuple[Segment, ...], *, known: int | None = None) -> LogEnd:
    """Where the log ends now; ``known``: an offset that was its end before, which saves the search.

    The result is a record's end, or the first file's base when there is no record at all.

    Raises:
        StoreError: the log goes on in another format.
    """
    for segment in reversed(segments):
        with SegmentReader(filesystem, segment) as file:
            is_begun = judge(file, segment.base).stop is not Stop.ZERO or _record_after(file, segment.base) is not None
            if is_begun or (known is None and _record_far_behind(filesystem, file, segment.base) is not None):
                return _end_within(filesystem, file, known)
    return LogEnd(segments[0].base if segments else 0, "")


def _end_within(filesystem: fs.FileSystem, file: SegmentReader, known: int | None) -> LogEnd:
    base = file.segment.base
    at = known if known is not None and base <= known <= file.segment.end else _record_near_end(file, base)
    while True:
        verdict = judge(file, at)
        if verdict.is_record and not _may_be_torn(file, at, verdict.end):
            at = verdict.end
            continue
        if verdict.stop is Stop.FOREIGN:
            raise foreign_record(file, at, verdict)
        later = _record_after(file, at, within=verdict.end)
        if later is None and verdict.stop is not Stop.BLANK and known is None:
            far = _record_far_behind(filesystem, file, at)
            later = None if far is None else _record_near_end(file, far)
        if verdict.stop is Stop.BLANK or later is None:
            return LogEnd(at, _unfinished(verdict))
        file.look_again()
        if verdict.is_record or not judge(file, at).is_record:  # as one may be by now that was being written
            at = later  # not the end, but damage: the reader will meet it and report it


def _record_after(file: SegmentReader, at: int, *, within: int = 0) -> int | None:
    """What shows that a place without a record is damage, not the end; all up to ``within`` is one that lies there."""
    begin = max(at + 1, within, unfinished_body_end(file, at))
    return find_record(file, begin, end=min(file.segment.end, begin + _TAIL_SCAN_BYTES))


def _record_far_behind(filesystem: fs.FileSystem, file: SegmentReader, at: int) -> int | None:
    """Likewise behind a hole of more, as copies have that ended early or left out what a cache had not written.

    It begins where a page or a part of a copy does, so there a record does not end as a rule, but is cut.
    """
    for begin, end in _written(filesystem, file.segment, at + _TAIL_SCAN_BYTES):
        if (found := find_record(file, begin, end=end)) is not None:
            return found
    return None


def _written(filesystem: fs.FileSystem, segment: Segment, at: int) -> Iterator[tuple[int, int]]:
    """The parts of a file from ``at`` on that are to be looked at: of a local one all that are no holes."""
    if not isinstance(filesystem, fs.LocalFileSystem):
        yield from ((begin, min(begin + _PROBE_BYTES, segment.end)) for begin in range(at, segment.end, _APART_BYTES))
        return
    with open(segment.path, "rb") as file:
        place = at - segment.base
        while place < os.fstat(file.fileno()).st_size:
            try:
                place = os.lseek(file.fileno(), place, os.SEEK_DATA)
                end = os.lseek(file.fileno(), place, os.SEEK_HOLE)
            except OSError:  # ENXIO: nothing but a hole follows
                return
            yield segment.base + place, min(segment.base + end, segment.end)
            place = end


def _unfinished(verdict: Verdict) -> str:
    if verdict.is_record:
        return "the last record may not be written to its end yet"
    return verdict.reason


def _record_near_end(file: SegmentReader, low: int) -> int:
    """A real record close before the end, or ``low``. Zeros inside bodies can only make it lie earlier."""
    high = file.segment.end
    lows = [low]
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        found = find_record(file, middle, end=min(high, middle + _PROBE_BYTES))
        if found is None:
            high = middle
        else:
            low = found
            lows.append(low)
    return next(low for low in reversed(lows) if low == lows[0] or covering(file, low, low) is None)


def _may_be_torn(file: SegmentReader, at: int, end: int) -> bool:
    """Bytes become visible in ascending order, so a record is whole once its last byte or a later one is not zero.

    One without properties ends with the two zeros of their length, so its topic, which has no zeros, tells.
    """
    if any(bytes(file.peek(end - 1, 1 + 8))):
        return False
    last = decode_scanned(file.peek(at, end - at), 0)
    return bool(last.properties_raw) or not last.topic
