"""LedgerRecords. Hot path: the messages in a ledger's data files, mapped and uncopied.

The body of each entry is one message, whose physical offset is where it begins, behind the entry's header
(spec: dledger §6.1).
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rmqha.codec.dledger_entry import (
    BLANK_MAGIC_CODE,
    BODY_OFFSET,
    CURRENT_MAGIC,
    MIN_BLANK_LEN,
    EntryHeader,
    read_record,
    start_position,
)
from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.ends import RecordEnds
from rmqha.codec.record.layout import MESSAGE_MAGIC, RECORD_SIZE_MIN, enters_queue, fields_struct
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.mmap_file import MmapFile
from rmqha.errors import CorruptLogError

_ROUND_BYTES: Final = 256 * 1024
"""How much is read at once: about a millisecond's work."""
_BEGINNING: Final = struct.Struct(">ii")
"""Of an entry or a blank its magic and its size; of a message its size and its magic."""
_ENTRY: Final = struct.Struct(">ii16xq")
"""Magic, size and pos."""
_HEAD: Final = fields_struct("total_size", "magic", "physical_offset")
_SYS_FLAG: Final = fields_struct("sys_flag")


class LedgerExtent:
    """A data file; see :class:`~rmqha.store.log.Extent`."""

    __slots__ = ("_barriers_bytes", "_messages_bytes", "begin", "end")

    def __init__(self, begin: int, end: int, *, messages_bytes: int, barriers_bytes: Callable[[], int]) -> None:
        self.begin: Final = begin
        self.end: Final = end
        self._messages_bytes: Final = messages_bytes
        self._barriers_bytes: Final = barriers_bytes

    def holds_just(self, size_bytes: int) -> bool:
        """The index tells how many entries there are, and each has one message; some of those no queue has."""
        left = self._messages_bytes - size_bytes
        try:
            return left == 0 or (left > 0 and left == self._barriers_bytes())
        except CorruptLogError:
            return False


class LedgerRecords:
    """Reads what ``ledger`` has."""

    def __init__(self, ledger: DLedgerMmapFileStore, delay_levels_ms: Sequence[int]) -> None:
        self._ledger: Final = ledger
        self._data: Final = ledger.data_file_list
        self._delay_levels_ms: Final = delay_levels_ms
        self._ends: Final = RecordEnds()

    def extents(self, start: int = 0) -> list[LedgerExtent]:
        """See :meth:`Log.extents`: one for each data file."""
        firsts = [_first_of(file) for file in self._data.mapped_files if file.end_offset > start]
        known = [first for first in firsts if first is not None]
        behind = [*[first.index for first in known[1:]], self._ledger.ledger_end_index + 1]
        return [self._extent(first, end) for first, end in zip(known, behind, strict=False)]

    def _extent(self, first: EntryHeader, behind: int) -> LedgerExtent:
        file = self._data.find(first.pos)
        assert file is not None, "its first entry was read"
        return LedgerExtent(
            first.pos,
            file.wrote_offset,
            messages_bytes=self._ledger.end_of(behind - 1) - first.pos - BODY_OFFSET * (behind - first.index),
            barriers_bytes=partial(self._barriers_bytes, first.index, behind),
        )

    def _barriers_bytes(self, index: int, behind: int) -> int:
        """Bytes of the messages by which leaders committed what they inherited: a barrier is the first of its term."""
        size_bytes, units = 0, self._ledger.index
        while index < behind:
            size_bytes += self._unqueued_bytes(*units.place(index))
            index = bisect_right(range(behind), units.term(index), index, behind, key=units.term)
        return size_bytes

    def _unqueued_bytes(self, pos: int, size: int) -> int:
        """Bytes of an entry's message, if it enters no queue."""
        record = self.record_at(pos + BODY_OFFSET, end=pos + size)
        return 0 if record is None or enters_queue(_SYS_FLAG.unpack_from(record)[0]) else len(record)

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """See :meth:`Log.records`: one goes on where an entry begins, or the message in it."""
        file = self._data.find(start)
        if file is None:
            return [], start
        base, view, found = file.file_from_offset, file.view(), list[DispatchRequest]()
        at, limit = start - base, min(end - base, file.wrote_position)
        stop = min(at + _ROUND_BYTES, limit)
        while at < stop and at + MIN_BLANK_LEN <= limit:
            first, second = _BEGINNING.unpack_from(view, at)
            if first == BLANK_MAGIC_CODE and MIN_BLANK_LEN <= second <= file.file_size - at:
                at += second
                continue
            is_message = second == MESSAGE_MAGIC
            behind = at + (first if is_message else second)
            if behind > limit:
                break
            if not is_message:
                self._check_entry(view, at, base, size=second)
            found += self._message(view, at if is_message else at + BODY_OFFSET, behind, base=base)
            at = behind
        return found, base + at

    def _check_entry(self, view: memoryview, at: int, base: int, *, size: int) -> None:
        if size < BODY_OFFSET:
            raise CorruptLogError(base + at, f"no entry begins here: it would have {size} bytes")
        magic, _, pos = _ENTRY.unpack_from(view, at)
        if magic != CURRENT_MAGIC or pos != base + at:
            raise CorruptLogError(base + at, f"no entry begins here: magic {magic}, size {size}, pos {pos}")

    def _message(self, view: memoryview, at: int, end: int, *, base: int) -> list[DispatchRequest]:
        """The message that fills the body of an entry."""
        found, behind = read_dispatch(
            view, at, end, phy_offset_base=base, delay_levels_ms=self._delay_levels_ms, ends=self._ends
        )
        if behind != end or len(found) != 1:
            text = "the body of an entry is not one message: what was appended to this group that no broker made?"
            raise CorruptLogError(base + at, text)
        return found

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        """See :meth:`Log.record_at`: its head says whether one lies there; at the log's beginning, its first."""
        file = self._data.find(offset)
        if file is None:
            return None
        if offset == self._data.min_offset and (first := _first_of(file)) is not None:
            offset = first.pos + BODY_OFFSET
        position = offset - file.file_from_offset
        limit = min(end - file.file_from_offset, file.wrote_position)
        if position + RECORD_SIZE_MIN > limit:
            return None
        view = file.view()
        size, magic, claimed = _HEAD.unpack_from(view, position)
        if magic != MESSAGE_MAGIC or claimed != offset or not RECORD_SIZE_MIN <= size <= limit - position:
            return None
        return view[position : position + size]


def _first_of(file: MmapFile) -> EntryHeader | None:
    """The first entry that begins in a file; None if none does yet."""
    view = file.view()
    found = read_record(view, start_position(view), base=file.file_from_offset, previous=None)
    return found if isinstance(found, EntryHeader) else None
