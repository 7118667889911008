"""Whether two logs that can both be read here hold the same bytes, looked at where the shorter one ends."""

from typing import Final

from rmqha.cli.promotion import Overlap
from rmqha.codec.record.layout import BLANK_SIZE_MIN
from rmqha.codec.record.scan import Stop
from rmqha.errors import StoreReadError
from rmqha.store.log_reader import LogReader
from rmqha.store.os_disk import OsDisk

_AT_ONCE: Final = 1 << 20


def compare_with(directory: str, other: LogReader, end: int) -> Overlap:
    """Compare a log that goes on to ``end``, at least, with another one that does: see :func:`compare_logs`."""
    try:
        with LogReader(OsDisk(), directory) as one:
            if not one.segments:
                return Overlap(unread=f"there is no log in {directory}")
            return compare_logs(one, other, end)
    except StoreReadError as error:
        return Overlap(unread=str(error))


def compare_logs(one: LogReader, other: LogReader, end: int) -> Overlap:
    """Compare what both have before ``end`` of the segment of ``one`` that ends there, or goes on.

    Logs that have parted hold no equal records afterwards, so that more would show no more. What lies behind a blank's
    header may be anything, and is left out.

    Raises:
        StoreReadError: a file cannot be read.
    """
    begin = max(one.min_offset, other.min_offset)
    segment = next((segment for segment in one.segments if segment.offset < end <= segment.end_offset), None)
    if segment is None or end <= begin:
        return Overlap()
    begin = max(begin, segment.offset)
    scan = segment.scan(begin - segment.offset, end - segment.offset, check_crc=False)
    limit = min(end, segment.offset + scan.end + BLANK_SIZE_MIN) if scan.stop is Stop.BLANK else end
    for at in range(begin, limit, _AT_ONCE):
        size = min(_AT_ONCE, limit - at)
        here, there = _read(one, at, size), _read(other, at, size)
        if here != there:
            return Overlap(limit - begin, at + _first_difference(here, there))
    return Overlap(limit - begin)


def _read(reader: LogReader, offset: int, size: int) -> bytes:
    """Fewer where a segment is missing."""
    parts = []
    for segment in reader.segments:
        begin, end = max(offset, segment.offset), min(offset + size, segment.end_offset)
        if begin < end:
            parts.append(segment.view()[begin - segment.offset : end - segment.offset])
    return b"".join(parts)


def _first_difference(one: bytes, other: bytes) -> int:
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)
