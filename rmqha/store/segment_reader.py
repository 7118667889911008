"""SegmentReader: hot path: what others read of the classic log's segments, mapped and uncopied."""

from collections.abc import Sequence
from typing import Final

from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.ends import RecordEnds
from rmqha.codec.record.layout import MESSAGE_MAGIC, RECORD_SIZE_MIN, fields_struct
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import CorruptLogError, ForeignRecordError
from rmqha.store.disk import DataFile
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue

_ROUND_BYTES: Final = 256 * 1024
"""How much is read at once: about a millisecond's work."""
_RECORD_BYTES: Final = 16 << 20
"""More than any record has that a broker of ours takes."""
_HEAD: Final = fields_struct("total_size", "magic", "physical_offset")


class SegmentExtent:
    """See :class:`~rmqha.store.log.Extent`."""

    __slots__ = ("_mapped", "begin", "end")

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped: Final = mapped
        self.begin: Final = mapped.file_from_offset
        self.end: Final = mapped.wrote_offset

    def holds_just(self, size_bytes: int) -> bool:
        """Records are adjacent here: they end where the segment does, or at its blank."""
        mapped = self._mapped
        if size_bytes == mapped.wrote_position:
            return True
        if not mapped.is_full or not 0 <= size_bytes <= mapped.size:
            return False
        scan = scan_records(mapped.view, size_bytes, mapped.size, phy_offset_base=self.begin, file_end=mapped.size)
        return scan.end == size_bytes and scan.stop is Stop.BLANK


class SegmentReader:
    """Reads records of ``segments``, which were verified before, and their bytes."""

    def __init__(self, segments: MappedFileQueue, delay_levels_ms: Sequence[int]) -> None:
        self._segments: Final = segments
        self._delay_levels_ms: Final = delay_levels_ms
        self._ends: Final = RecordEnds()

    def extents(self, start: int = 0) -> list[SegmentExtent]:
        """See :meth:`Log.extents`: one for each segment."""
        return [SegmentExtent(mapped) for mapped in self._segments.files if mapped.end_offset > start]

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """See :meth:`Log.records`: one goes on at ``start`` too, or behind a blank where a segment ends."""
        segment = self._segments.find(start)
        if segment is None:
            return [], start
        base = segment.file_from_offset
        position, limit = start - base, min(end - base, segment.wrote_position)
        if position >= limit:
            return [], start
        for round_bytes in (_ROUND_BYTES, _RECORD_BYTES, limit):  # the others, if one record is larger than a round
            stop = min(position + round_bytes, limit)
            requests, behind = read_dispatch(
                segment.view,
                position,
                stop,
                phy_offset_base=base,
                delay_levels_ms=self._delay_levels_ms,
                ends=self._ends,
            )
            if requests:
                return requests, base + behind
        return [], base + _behind_blank(segment, position, limit)

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        """See :meth:`Log.record_at`: its head says whether one lies there."""
        segment = self._segments.find(offset)
        if segment is None:
            return None
        position = offset - segment.file_from_offset
        limit = min(end - segment.file_from_offset, segment.wrote_position)
        if position + RECORD_SIZE_MIN > limit:
            return None
        view = segment.view
        size, magic, claimed = _HEAD.unpack_from(view, position)
        if magic != MESSAGE_MAGIC or claimed != offset or not RECORD_SIZE_MIN <= size <= limit - position:
            return None
        return view[position : position + size]

    def segment_at(self, offset: int) -> tuple[DataFile, int, int] | None:
        """The file that holds ``offset``, the position in it, and how many bytes are written from there on.

        None if nothing is written there. The file stays usable while it is held, even if it gets deleted.
        """
        mapped = self._segments.find(offset)
        if mapped is None:
            return None
        position = offset - mapped.file_from_offset
        return None if position >= mapped.wrote_position else (mapped.file, position, mapped.wrote_position - position)

    def view_range(self, offset: int, size: int) -> memoryview:
        """Up to ``size`` bytes from ``offset`` on, within one segment and within what is written; empty outside."""
        mapped = self._segments.find(offset)
        if mapped is None:
            return memoryview(b"")
        position = offset - mapped.file_from_offset
        return mapped.view[position : max(min(position + size, mapped.wrote_position), position)]


def _behind_blank(segment: MappedFile, start: int, limit: int) -> int:
    """Where to go on when no record can be read at ``start``: behind a blank, or there, once more has come.

    Raises:
        CorruptLogError: it is neither a blank nor the beginning of a record; or ForeignRecordError, of one.
    """
    base = segment.file_from_offset
    scan = scan_records(segment.view, start, limit, phy_offset_base=base, file_end=segment.size, check_crc=False)
    if scan.stop is Stop.INCOMPLETE or scan.end > start:
        return start
    if scan.stop is Stop.BLANK:
        return segment.size if limit == segment.size else start
    if scan.stop is Stop.FOREIGN:
        raise ForeignRecordError(base + start, scan.reason)
    raise CorruptLogError(base + start, scan.reason or "zeros where a record should be")
