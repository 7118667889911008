"""LedgerIndex: where each entry lies, by its index; and units that wait until their entries are durable."""

from typing import Final

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE, decode_index, term_of_unit
from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.errors import CorruptLogError


class LedgerIndex:
    """The units of consecutive entries: the first ones in the files, the last ones perhaps in memory only.

    Units are written behind their entries' flush, many at a time. Where a member counts an entry as stored once it is
    durable, a unit so proves its entry, and the next start can tell an entry that a power cut tore
    (:mod:`rmqha.dledger.ledger_recovery`); else a start after a crash makes the last ones again from the entries.
    """

    def __init__(self, files: MmapFileList) -> None:
        self.files: Final = files
        self._waiting = bytearray()

    @property
    def end(self) -> int:
        """The index that the next unit is for."""
        return (self.files.max_wrote_position + len(self._waiting)) // INDEX_UNIT_SIZE

    def is_written(self, index: int) -> bool:
        """Whether the files have the unit of an entry, or of one behind it."""
        return index * INDEX_UNIT_SIZE < self.files.max_wrote_position

    def prepare(self) -> None:
        """Make room in a file for the next unit. Raises StoreWriteError, StoreReadError."""
        if not self.files.mapped_files or self.files.mapped_files[-1].is_full:
            self.files.pre_append(INDEX_UNIT_SIZE, use_blank=False)

    def put(self, unit: bytes) -> None:
        """Add the next unit; :meth:`prepare` was called."""
        self._waiting += unit

    def unit(self, index: int) -> bytes | None:
        """The unit of an entry; None if there is none. Raises StoreReadError."""
        behind = index * INDEX_UNIT_SIZE - self.files.max_wrote_position
        if behind >= 0:
            return bytes(self._waiting[behind : behind + INDEX_UNIT_SIZE]) or None
        unit = self.files.get_data(index * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE)
        return None if unit is None else bytes(unit)

    def place(self, index: int) -> tuple[int, int]:
        """Offset and size of an entry that is here. Raises StoreReadError, CorruptLogError: it has no unit."""
        return decode_index(self._unit(index))

    def term(self, index: int) -> int:
        """Term of an entry that is here. Raises StoreReadError, CorruptLogError: it has no unit."""
        return term_of_unit(self._unit(index))

    def _unit(self, index: int) -> bytes:
        unit = self.unit(index)
        if unit is None:
            raise CorruptLogError(
                0,
                f"the index in {self.files.store_path} has no unit for entry {index}: a file of it is missing. Stop "
                "this member, move that directory away, and start it again: it makes the index anew of the data files",
            )
        return unit

    def write_waiting(self, end: int) -> None:
        """Write the units that waited, up to that of index ``end - 1``: their entries are durable.

        Raises:
            StoreWriteError, StoreReadError: the rest goes on waiting.
        """
        while (size := end * INDEX_UNIT_SIZE - self.files.max_wrote_position) > 0 and self._waiting:
            self.prepare()
            room = self.files.mapped_file_size - self.files.max_wrote_position % self.files.mapped_file_size
            piece = bytes(self._waiting[: min(size, room)])
            self.files.append(piece, use_blank=False)
            del self._waiting[: len(piece)]

    def truncate(self, end: int) -> None:
        """Let ``end`` be the next index; durable. Raises StoreWriteError, StoreReadError."""
        behind = end * INDEX_UNIT_SIZE - self.files.max_wrote_position
        del self._waiting[max(behind, 0) :]
        if behind < 0:
            self.files.truncate_offset(end * INDEX_UNIT_SIZE)

    def rebuild(self, end: int) -> None:
        """Drop all units; the next is for index ``end``. Raises StoreWriteError, StoreReadError."""
        self._waiting.clear()
        self.files.rebuild_with_pos(end * INDEX_UNIT_SIZE, use_blank=False)
