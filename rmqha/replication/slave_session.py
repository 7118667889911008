"""SlaveSession: what a slave makes of the bytes a master sends, as a pure machine.

The stream is received straight into the session's buffer (:meth:`SlaveSession.space`), and the headers in it are closed
up, so that bodies lie in one piece: many small frames become one append, and of a large one only what was read ahead is
moved. Whole records, checked with every rule of the store including
their CRC, come out as chunks to append; an incomplete record stays in the buffer, so the slave's log always ends
with a whole record. Bytes that are here already come out as chunks to compare (spec: ha §5, §10, §15 rows 3, 4, 19).
"""

from dataclasses import dataclass
from typing import Final

from rmqha.codec.record.scan import Scan, Stop, scan_records
from rmqha.codec.transfer import FRAME_HEADER_SIZE, decode_frame_header
from rmqha.errors import RemoteProtocolError
from rmqha.memory import new_buffer
from rmqha.replication.overlap import StreamStart

_ROOM_MIN: Final = 64 * 1024
_READ_AHEAD: Final = 64 * 1024
"""So much behind the present frame is received with it."""
_SIZE_AND_MAGIC: Final = 8

BUFFER_SIZE: Final = 2 * 1024 * 1024
NO_RECORD: Final = "the stream holds no record at offset"
"""How each such error begins."""
RECORD_SIZE_MAX: Final = 16 * 1024 * 1024
"""No record reaches it: the top byte of its size would not be zero. A larger claim is taken for damage."""


class CorruptStreamError(RemoteProtocolError):
    """The master's bytes are no records here; nothing from ``offset`` on was kept. Close and ask for it again."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset: Final = offset
        super().__init__(f"{NO_RECORD} {offset}: {reason}")


@dataclass(frozen=True, slots=True)
class AppendChunk:
    """Whole, good records (or bytes of a blank) that belong at the end of the log. Valid until the next receive."""

    phy_offset: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class CompareChunk:
    """Bytes that must equal the local log's at ``phy_offset``. Valid until the next receive."""

    phy_offset: int
    data: memoryview


class SlaveSession:
    """One connection to a master, from the first report on.

    Invariants: ``_view[_start:_write]`` are body bytes not yet given out, the first of them at ``verified_offset``;
    ``_header_have`` bytes of the next header follow at ``_write``, and are there only if ``_body_left`` is 0.
    """

    def __init__(
        self,
        start: StreamStart,
        *,
        file_size: int,
        buffer_size: int = BUFFER_SIZE,
        record_size_max: int = RECORD_SIZE_MAX,
    ) -> None:
        assert buffer_size >= 2 * FRAME_HEADER_SIZE
        self._file_size = file_size
        self._record_size_max = min(record_size_max, file_size)
        self._view = new_buffer(buffer_size)
        self._begins = start
        self._is_placed = start.first_report > 0 or start.own_end > 0
        self._start = 0
        self._write = len(start.prefix)
        self._view[: self._write] = start.prefix
        self._header_have = 0
        self._body_left = 0
        self._broken = ""
        """Why the stream ends here."""
        self._blank_left = -start.own_end % file_size if start.boundary < start.own_end else 0
        self.verified_offset = start.first_report - len(start.prefix)
        """Everything before it was given out, compared or verified."""
        self.boundary_offset = self.verified_offset
        """End of the last whole record that was given out; what may be acknowledged once it is stored."""
        self.heartbeats_in_a_row = 0

    @property
    def position(self) -> int:
        """Offset of the next byte of the stream."""
        return self.verified_offset + self._write - self._start

    @property
    def is_comparing(self) -> bool:
        """Whether the stream has not yet passed the end of the local log."""
        return self.verified_offset < self._begins.own_end

    @property
    def is_master_shorter(self) -> bool:
        """Whether the master, twice in a row, had nothing more to send although the local log goes on."""
        return self.is_comparing and self.heartbeats_in_a_row >= 2

    def space(self) -> memoryview:
        """Where the next bytes from the wire belong; never empty. Invalidates the chunks given out before."""
        self._make_room()
        end = self._write + self._header_have
        return self._view[end : end + self._body_left + _READ_AHEAD]

    def on_received(self, count: int) -> None:
        """``count`` bytes were put at the beginning of :meth:`space`; then take what :meth:`next_chunk` has."""
        at = self._write
        end = at + self._header_have + count
        while True:
            body = min(end - at, self._body_left)
            if body and at != self._write:
                self._view[self._write : self._write + body] = self._view[at : at + body]
            at += body
            self._write += body
            self._body_left -= body
            if end - at < FRAME_HEADER_SIZE:
                break
            try:
                self._on_header(at)
            except RemoteProtocolError as error:
                self._broken = str(error)  # itself it would keep this session, as it is in a frame that it holds
                return
            at += FRAME_HEADER_SIZE
            if self._start == self._write:
                self._start = self._write = at
        self._header_have = end - at
        if self._header_have and at != self._write:
            self._view[self._write : self._write + self._header_have] = self._view[at:end]

    def _on_header(self, at: int) -> None:
        """Trust nothing in a header (spec: ha §5, §15 row 19)."""
        offset, size = decode_frame_header(self._view, at)
        if not self._is_placed:
            if offset % self._file_size:
                raise RemoteProtocolError(
                    f"the first frame is at offset {offset}, not at the start of a file of {self._file_size} bytes: "
                    "mappedFileSizeCommitLog must be the same on both sides"
                )
            self._is_placed = True
            self.verified_offset = self.boundary_offset = offset
        if offset != self.position:
            raise RemoteProtocolError(f"frame at offset {offset}, expected {self.position}")
        if offset % self._file_size + size > self._file_size:
            raise RemoteProtocolError(
                f"frame of {size} bytes at offset {offset} crosses the end of a file of {self._file_size} bytes: "
                "mappedFileSizeCommitLog must be the same on both sides"
            )
        self._body_left = size
        self.heartbeats_in_a_row = 0 if size else self.heartbeats_in_a_row + 1

    def next_chunk(self) -> AppendChunk | CompareChunk | None:
        """The next piece to compare or to append, in stream order; None: receive more first.

        Raises:
            CorruptStreamError: the bytes are no records; everything before them was given out.
            RemoteProtocolError: a frame is not the one that must follow; everything before it was given out.
        """
        chunk = self._next_chunk()
        if chunk is None and self._broken:
            raise RemoteProtocolError(self._broken)
        return chunk

    def _next_chunk(self) -> AppendChunk | CompareChunk | None:
        available = self._write - self._start
        if not available:
            return None
        if self.is_comparing:
            return self._compare(min(available, self._begins.own_end - self.verified_offset))
        if self._blank_left:
            size = min(available, self._blank_left)
            self._blank_left -= size
            return self._append(size)
        return self._next_records(available)

    def _compare(self, size: int) -> CompareChunk:
        comparable = max(min(size, self._begins.comparable_end - self.verified_offset), 0)
        chunk = CompareChunk(self.verified_offset, self._view[self._start : self._start + comparable])
        self._advance(size)
        if not self.is_comparing:
            self.boundary_offset = self._begins.boundary
        return chunk

    def _append(self, size: int) -> AppendChunk:
        chunk = AppendChunk(self.verified_offset, self._view[self._start : self._start + size])
        self._advance(size)
        if not self._blank_left:
            self.boundary_offset = self.verified_offset
        return chunk

    def _advance(self, size: int) -> None:
        self._start += size
        self.verified_offset += size

    def _next_records(self, available: int) -> AppendChunk | None:
        base = self.verified_offset - self._start
        file_end = self.verified_offset - self.verified_offset % self._file_size + self._file_size - base
        scan = scan_records(self._view, self._start, self._write, phy_offset_base=base, file_end=file_end)
        good = scan.end - self._start
        if scan.stop is Stop.BLANK:
            blank = file_end - scan.end
            if good + blank <= available:
                return self._append(good + blank)
            if not good and blank > self._record_size_max:  # too much to hold back: piece by piece
                self._blank_left = blank - available
                return self._append(available)
        if not good:
            self._check_stop(scan, base)
            return None
        return self._append(good)

    def _check_stop(self, scan: Scan, base: int) -> None:
        """At the first bytes that are no whole record: wait for more only if that can help."""
        offset = scan.end + base
        if scan.stop in {Stop.ZERO, Stop.CORRUPT, Stop.FOREIGN}:
            raise CorruptStreamError(offset, scan.reason or "only zeros")
        if scan.stop is Stop.INCOMPLETE and self._write - scan.end >= _SIZE_AND_MAGIC:
            size = int.from_bytes(self._view[scan.end : scan.end + 4], "big")
            if size > self._record_size_max:
                raise CorruptStreamError(offset, f"it claims {size} bytes, more than {self._record_size_max}")

    def _make_room(self) -> None:
        """Move the incomplete record to the front when that is cheap or needed; grow when it is larger than that."""
        waiting = self._write - self._start + self._header_have
        if self._start >= waiting:
            self._move_to(self._view, waiting)
        room_min = min(_ROOM_MIN, len(self._view) // 2)
        if len(self._view) - waiting - self._start >= room_min:
            return
        if len(self._view) - waiting >= room_min:
            self._move_to(self._view, waiting)
        else:
            self._move_to(new_buffer(2 * len(self._view)), waiting)

    def _move_to(self, target: memoryview, waiting: int) -> None:
        target[:waiting] = self._view[self._start : self._start + waiting]
        self._view = target
        self._write -= self._start
        self._start = 0
