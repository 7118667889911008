"""What a slave asks for first: the start of one of its last records, so that the overlap proves a common history.

Equal offsets prove nothing: a master that lost its unflushed tail writes other records at the same places. Asking
for a piece that is here already, and comparing it byte for byte, finds that out before anything is appended
(spec: ha §9, §10, §15 row 4).
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqha.codec.record.layout import (
    BLANK_SIZE_MIN,
    FIRST_BYTE_OF_A_LOG,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
)
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import CorruptLogError
from rmqha.replication.master_session import LogRange

_MAGIC_BYTES: Final = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)
_MAGIC_AT: Final = 4
_RECORD_SIZE_MAX: Final = 16 * 1024 * 1024
"""No record reaches it: the top byte of its size is zero."""
_SEARCHED_AT_ONCE: Final = 64 * 1024
_FOLLOWED_AT_ONCE: Final = 500
"""Either takes some milliseconds at most."""


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


ALL_OF_A_LOG: Final = StreamStart(len(FIRST_BYTE_OF_A_LOG), prefix=FIRST_BYTE_OF_A_LOG)
"""For an empty log, from 0 on; who begins later sends nothing, or ends the connection."""


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
    return ALL_OF_A_LOG


def find_overlap(
    view: memoryview, file_offset: int, *, file_size: int, overlap_size: int, is_whole: bool = True
) -> Generator[None, None, StreamStart]:
    """Find the start of a whole record about ``overlap_size`` before the end of the log, in its last file.

    A record names its own physical offset, so a place that holds the magic code, claims exactly this offset, and
    from which whole records lead exactly to the end of the log is the start of one; or of bytes in a body that somebody
    has made to look like one, from which the logs are compared just as well. A blank in a body is another matter, as
    nothing is compared behind one: so of all places that lead to a blank, as far back as a record may reach, that one
    counts which leads the furthest. It is the log's, which has no body behind it.

    Args:
        view: what is written of the last file that holds anything; not empty.
        file_offset: log offset of the file.
        file_size: size of every log file.
        overlap_size: how much to compare at least, if the file holds as much.
        is_whole: ``view`` ends with a whole record; otherwise it may end inside one.

    Yields:
        In each of its steps, which take some milliseconds; what is found is returned.

    Raises:
        CorruptLogError: the local log does not end with a whole record; it needs recovery first.
    """
    ends = {Stop.END} if is_whole else {Stop.END, Stop.INCOMPLETE}
    chains = _Chains(view, file_offset, file_size)
    highest = high = max(len(view) - overlap_size, 0)
    found: tuple[int, _Led] | None = None
    while found is None or highest - high < _RECORD_SIZE_MAX:
        low = max(high - _SEARCHED_AT_ONCE, 0)
        for start in _places(view, low, high, file_offset):
            led = yield from chains.follow(start)
            if led.stop in ends:
                return _start_at(start, len(view), len(view), len(view), view=view, file_offset=file_offset)
            if led.stop is Stop.BLANK and (found is None or led.end > found[1].end):
                found = start, led
        if low == 0:
            break
        high = low
        yield
    if found is None:
        raise CorruptLogError(file_offset + len(view), "the log does not end with a whole record: it needs recovery")
    (start, led), end = found, len(view)
    comparable_end = min(led.end + BLANK_SIZE_MIN, end)
    boundary = end if end == file_size else led.end
    return _start_at(start, end, comparable_end, boundary, view=view, file_offset=file_offset)


def _places(view: memoryview, low: int, high: int, file_offset: int) -> Iterator[int]:
    """Where records claim to begin from ``high`` down to ``low``, the start of the file among them."""
    window = bytes(view[low : high + _MAGIC_AT + len(_MAGIC_BYTES)])
    at = window.rfind(_MAGIC_BYTES)
    while at >= _MAGIC_AT:
        start = low + at - _MAGIC_AT
        claimed = view[start + PHYSICAL_OFFSET_AT : start + PHYSICAL_OFFSET_AT + 8]
        if start and int.from_bytes(claimed, "big") == file_offset + start:
            yield start
        at = window.rfind(_MAGIC_BYTES, 0, at + len(_MAGIC_BYTES) - 1)
    if low == 0:
        yield 0


class _Led(NamedTuple):
    """Whole records lead to position ``end``, and there the walk stops."""

    end: int
    stop: Stop


class _Chains:
    """Where whole records lead: each is looked at once, however many places lead to it.

    Their CRCs are not checked, as their bytes are compared with another log's anyway.
    """

    def __init__(self, view: memoryview, file_offset: int, file_size: int) -> None:
        self._view: Final = view
        self._file_offset: Final = file_offset
        self._file_size: Final = file_size
        self._known: Final[dict[int, _Led]] = {}

    def follow(self, start: int) -> Generator[None, None, _Led]:
        """Where the record at ``start`` leads, and those behind it."""
        passed, at = list[int](), start
        while (led := self._known.get(at)) is None:
            scan = scan_records(
                self._view,
                at,
                self._end_of_one(at),
                phy_offset_base=self._file_offset,
                file_end=self._file_size,
                check_crc=False,
            )
            if not scan.records:
                led = self._known[at] = _Led(at, scan.stop)
                break
            passed.append(at)
            at = scan.end
            if len(passed) % _FOLLOWED_AT_ONCE == 0:
                yield
        self._known.update(dict.fromkeys(passed, led))
        return led

    def _end_of_one(self, at: int) -> int:
        """Where the record that may begin at ``at`` ends; the view's end if it does not say so."""
        size = int.from_bytes(self._view[at : at + _MAGIC_AT], "big")
        end = at + size
        return end if size >= RECORD_SIZE_MIN and end <= len(self._view) else len(self._view)


def _start_at(
    start: int, end: int, comparable_end: int, boundary: int, *, view: memoryview, file_offset: int
) -> StreamStart:
    """The stream start for these positions in ``view``."""
    # A report of 0 says "nothing here", and gets what the master thinks best: ask from 1 for an overlap from 0.
    prefix = bytes(view[:1]) if file_offset + start == 0 else b""
    return StreamStart(
        first_report=file_offset + start + len(prefix),
        own_end=file_offset + end,
        comparable_end=file_offset + comparable_end,
        boundary=file_offset + boundary,
        prefix=prefix,
    )
