"""What a slave asks for first: the start of one of its last records, so that the overlap proves a common history.

Equal offsets prove nothing: a master that lost its unflushed tail writes other records at the same places. Asking
for a piece that is here already, and comparing it byte for byte, finds that out before anything is appended
(spec: ha §9, §10, §15 row 4).
"""

from dataclasses import dataclass
from typing import Final

from rmqha.codec.record.layout import BLANK_SIZE_MIN, FIRST_BYTE_OF_A_LOG, MESSAGE_MAGIC
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import CorruptLogError
from rmqha.replication.master_session import LogRange

_MAGIC_BYTES: Final = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)
_MAGIC_AT: Final = 4
_WINDOW: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where a stream begins, and how much of it is here already.

    Invariant: ``first_report <= comparable_end <= own_end`` and ``boundary <= own_end``, unless the log is empty.
    """

    first_report: int
    own_end: int = 0
    """The local log's end; what comes below it is compared, not appended."""
    comparable_end: int = 0
    """Own bytes from here to ``own_end`` are the arbitrary rest of a blank and need not be equal."""
    boundary: int = 0
    """End of the last whole record or blank; below ``own_end`` only while a blank is being received."""
    prefix: bytes = b""
    """Byte 0 of the log, supplied here because it cannot be asked for: a report of 0 means "I have nothing"."""


@dataclass(frozen=True, slots=True)
class SlaveAhead:
    """The master's log ends ``by`` bytes before the slave's."""

    by: int


@dataclass(frozen=True, slots=True)
class SlaveBelowMin:
    """The master no longer has the bytes to compare, and perhaps not those that the slave needs next.

    Its log begins at ``master_min_offset``.
    """

    master_min_offset: int


def choose_start(own: StreamStart | None, master: LogRange | None) -> StreamStart | SlaveAhead | SlaveBelowMin:
    """Decide how to begin a connection.

    Args:
        own: the local log's tail as :func:`find_overlap` found it, or None for an empty log.
        master: what the master has, asked by remoting (code 28); None if nobody could be asked.

    Returns:
        For an empty log a start with the master's full history, even from a RocketMQ master, which answers 0
        with its *last* file: its minOffset is asked for by name, and offset 0 as "1" with byte 0 supplied here.
    """
    if own is None:
        return _start_of_history(master)
    if master is None:
        return own
    if own.own_end > master.max_offset:
        return SlaveAhead(own.own_end - master.max_offset)
    if own.first_report < master.min_offset:  # also where the logs just touch: what cannot be compared is not joined
        return SlaveBelowMin(master.min_offset)
    return own


def _start_of_history(master: LogRange | None) -> StreamStart:
    if master is None or master.max_offset <= 0:
        return StreamStart(0)
    if master.min_offset > 0:
        return StreamStart(master.min_offset, master.min_offset, master.min_offset, master.min_offset)
    return StreamStart(len(FIRST_BYTE_OF_A_LOG), prefix=FIRST_BYTE_OF_A_LOG)


def find_overlap(
    view: memoryview, file_offset: int, *, file_size: int, overlap_size: int, is_whole: bool = True
) -> StreamStart:
    """Find the start of a whole record about ``overlap_size`` before the end of the log, in its last file.

    A record names its own physical offset, so a place that holds the magic code, claims exactly this offset, and
    from which whole records lead exactly to the end of the log is the start of one.

    Args:
        view: what is written of the last file that holds anything; not empty.
        file_offset: log offset of the file.
        file_size: size of every log file.
        overlap_size: how much to compare at least, if the file holds as much.
        is_whole: ``view`` ends with a whole record; otherwise it may end inside one.

    Raises:
        CorruptLogError: the local log does not end with a whole record; it needs recovery first.
    """
    highest = max(len(view) - overlap_size, 0)
    while highest > 0:
        lowest = max(highest - _WINDOW, 0)
        window = bytes(view[lowest : highest + _MAGIC_AT + len(_MAGIC_BYTES)])
        at = window.rfind(_MAGIC_BYTES)
        while at >= 0:
            start = lowest + at - _MAGIC_AT
            found = _lead_to_end(view, start, file_offset, file_size, is_whole) if 0 < start <= highest else None
            if found is not None:
                return found
            at = window.rfind(_MAGIC_BYTES, 0, at + len(_MAGIC_BYTES) - 1)
        highest = lowest
    whole_file = _lead_to_end(view, 0, file_offset, file_size, is_whole)
    if whole_file is None:
        raise CorruptLogError(file_offset + len(view), "the log does not end with a whole record: it needs recovery")
    return whole_file


def _lead_to_end(view: memoryview, start: int, file_offset: int, file_size: int, is_whole: bool) -> StreamStart | None:
    """The stream start at position ``start`` if whole records lead from there to the end of ``view``."""
    end = len(view)
    scan = scan_records(view, start, end, phy_offset_base=file_offset, file_end=file_size)
    if scan.stop is Stop.END or (scan.stop is Stop.INCOMPLETE and not is_whole):
        comparable_end = boundary = end
    elif scan.stop is Stop.BLANK:
        comparable_end = min(scan.end + BLANK_SIZE_MIN, end)
        boundary = end if end == file_size else scan.end
    else:
        return None
    # A report of 0 says "nothing here", and gets what the master thinks best: ask from 1 for an overlap from 0.
    prefix = bytes(view[:1]) if file_offset + start == 0 else b""
    return StreamStart(
        first_report=file_offset + start + len(prefix),
        own_end=file_offset + end,
        comparable_end=file_offset + comparable_end,
        boundary=file_offset + boundary,
        prefix=prefix,
    )
