"""LedgerRecords. Hot path: the messages in a ledger's data files, mapped and uncopied.

The body of each entry is one message, whose physical offset is where it begins, behind the entry's header
(spec: dledger §6.1).
"""

import struct
from collections.abc import Sequence
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
from rmqha.codec.record.layout import MESSAGE_MAGIC, RECORD_SIZE_MIN, fields_struct
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


class LedgerExtent:
    """A data file; see :class:`~rmqha.store.log.Extent`."""

    __slots__ = ("_entries", "_entries_end", "begin", "end")

    def __init__(self, begin: int, end: int, *, entries: int, entries_end: int) -> None:
        self.begin: Final = begin
        self.end: Final = end
        self._entries: Final = entries
        self._entries_end: Final = entries_end

    def holds_just(self, size_bytes: int) -> bool:
        """The index tells how many entries there are, and each has one message."""
        return size_bytes == self._entries_end - self.begin - BODY_OFFSET * self._entries


class LedgerRecords:
    """Reads what ``ledger`` has."""

    def __init__(self, ledger: DLedgerMmapFileStore, delay_levels_ms: Sequence[int]) -> None:
        self._ledger: Final = ledger
        self._data: Final = ledger.data_file_list
        self._delay_levels_ms: Final = delay_levels_ms

    def extents(self, start: int = 0) -> list[LedgerExtent]:
        """See :meth:`Log.extents`: one for each data file."""
        firsts = [_first_of(file) for file in self._data.mapped_files if file.end_offset > start]
        known = [first for first in firsts if first is not None]
        behind = [*[first.index for first in known[1:]], self._ledger.ledger_end_index + 1]
        return [self._extent(first, end) for first, end in zip(known, behind, strict=False)]

    def _extent(self, first: EntryHeader, behind: int) -> LedgerExtent:
        file = self._data.find(first.pos)
        assert file is not None, "its first entry was read"
        entries_end = self._ledger.end_of(behind - 1)
        return LedgerExtent(first.pos, file.wrote_offset, entries=behind - first.index, entries_end=entries_end)

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
                self._check_entry(view, at, base)
            found += self._message(view, at if is_message else at + BODY_OFFSET, behind, base=base)
            at = behind
        return found, base + at

    def _check_entry(self, view: memoryview, at: int, base: int) -> None:
        magic, size, pos = _ENTRY.unpack_from(view, at)
        if magic != CURRENT_MAGIC or pos != base + at or size < BODY_OFFSET:
            raise CorruptLogError(base + at, f"no entry begins here: magic {magic}, size {size}, pos {pos}")

    def _message(self, view: memoryview, at: int, end: int, *, base: int) -> list[DispatchRequest]:
        """The message that fills the body of an entry."""
        found, behind = read_dispatch(view, at, end, phy_offset_base=base, delay_levels_ms=self._delay_levels_ms)
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
