"""DispatchReader: the log's records as the consume queues need them, a round at a time."""

from collections.abc import Sequence
from typing import Final

from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import CorruptLogError
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue

_ROUND_BYTES: Final = 256 * 1024
"""How much is read at once: about a millisecond's work."""


class DispatchReader:
    """Reads the records of ``log``, which were verified before, in bulk from the mapped segments."""

    def __init__(self, log: MappedFileQueue, delay_levels_ms: Sequence[int]) -> None:
        self._log: Final = log
        self._delay_levels_ms: Final = delay_levels_ms

    def read(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """Read the next records of ``[start, end)``; returns them and the offset where to go on.

        That is ``start`` if there is no whole record yet, and behind a blank where a segment ends.

        Raises:
            CorruptLogError: something else than a record or a blank lies at ``start``.
            StoreReadError: the segment cannot be opened.
        """
        segment = self._log.find(start)
        if segment is None:
            return [], start
        base = segment.file_from_offset
        position, limit = start - base, min(end - base, segment.wrote_position)
        if position >= limit:
            return [], start
        for stop in (min(position + _ROUND_BYTES, limit), limit):  # the second, if one record is larger than a round
            requests, behind = read_dispatch(
                segment.view, position, stop, phy_offset_base=base, delay_levels_ms=self._delay_levels_ms
            )
            if requests:
                return requests, base + behind
        return [], base + _behind_blank(segment, position, limit)


def _behind_blank(segment: MappedFile, start: int, limit: int) -> int:
    """Where to go on when no record can be read at ``start``: behind a blank, or there, once more has come.

    Raises:
        CorruptLogError: it is neither a blank nor the beginning of a record.
    """
    base = segment.file_from_offset
    scan = scan_records(segment.view, start, limit, phy_offset_base=base, file_end=segment.size, check_crc=False)
    if scan.stop is Stop.INCOMPLETE or scan.end > start:
        return start
    if scan.stop is Stop.BLANK:
        return segment.size if limit == segment.size else start
    raise CorruptLogError(base + start, scan.reason or "zeros where a record should be")
