"""IndexFile: hot path: one file of the index (layout: rmqha/codec/index_file.py).

Entries are written as they come, one call for many. The slots of the file that grows are in memory: they can be made of
the entries again, so the file gets them when it is full, or the store stops, and until then its header says that they
are not there (``slot_count`` 0). The header counts only entries that are durable.
"""

import errno
import mmap
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import trio

from rmqha.codec.index_file import (
    ENTRY,
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    decode_index_header,
    pack_entries,
    seconds_since,
)
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import DataFile, Disk
from rmqha.store.open_files import OpenFiles

_SLOTS_AT_ONCE: Final = 1 << 16
_ENTRIES_AT_ONCE: Final = 1000
_SHARE: Final = 4


class Entry(NamedTuple):
    """One entry of a chain."""

    key_hash: int
    phy_offset: int
    timestamp_ms: int
    """Store time of its message, rounded down to seconds."""


class IndexFile:
    """One file. Its entries have numbers from 1 on; ``header`` says how many there are, durable or not.

    Attributes:
        header: as it would be in the file if all were durable.
        is_sealed: the file has all its slots.
    """

    def __init__(self, disk: Disk, path: str, layout: IndexLayout, *, open_files: OpenFiles) -> None:
        """Nothing is read here."""
        self.path: Final = path
        self.layout: Final = layout
        self.header = IndexHeader()
        self.is_sealed = False
        self.held: DataFile | None = None
        self.was_used = False
        self.is_pinned: Final = False
        self.closes_by_name: Final = True
        self._disk: Final = disk
        self._open_files: Final = open_files
        self._memory: memoryview | None = None
        self._slots: memoryview | None = None
        self._committed = self.header

    # ---- life

    async def create(self, before: IndexHeader) -> None:
        """Make the file, behind one that ends as ``before`` does. Raises StoreWriteError."""
        file = await self._disk.create_in_thread(self.path, self.layout.file_size, sparse=True)
        self._open_files.keep(self, file)
        self.begin_behind(before)
        self.forget_slots()

    def begin_behind(self, before: IndexHeader) -> None:
        """Let a file without entries begin where another ends."""
        end_ms, end_offset = before.end_timestamp_ms, before.end_phy_offset
        self.header = self._committed = IndexHeader(end_ms, end_ms, end_offset, end_offset)

    def load(self) -> None:
        """Read the header. Raises StoreReadError."""
        self.header = self._committed = decode_index_header(self._read(0, HEADER_SIZE))
        self.is_sealed = self.header.slot_count > 0 or not self.header.has_entries

    async def load_slots(self) -> None:
        """Take the slots of a sealed file that is not full into memory. Raises StoreReadError."""
        self.forget_slots()
        assert self._memory is not None
        begun_at = trio.current_time()
        for first in range(0, self.layout.slots, _SLOTS_AT_ONCE):
            count = min(_SLOTS_AT_ONCE, self.layout.slots - first)
            piece = _swapped(self._read(HEADER_SIZE + first * SLOT_SIZE, count * SLOT_SIZE))
            if min(piece) < 0 or max(piece) >= self.header.index_count:  # for RocketMQ these are empty, too
                piece = array("i", [number if 0 < number < self.header.index_count else 0 for number in piece])
            self._memory[first * SLOT_SIZE : (first + count) * SLOT_SIZE] = piece.tobytes()
            begun_at = await _let_others_go_on(begun_at)

    def forget_slots(self) -> None:
        """Begin with empty ones, in memory; pages that nobody touches take none."""
        self._memory = memoryview(mmap.mmap(-1, self.layout.slots * SLOT_SIZE))
        self._slots = self._memory.cast("i")

    async def examine(self, end: int) -> None:
        """Make the slots again of the entries, up to one that is damaged or leads to ``end`` or behind; it goes.

        Raises:
            StoreReadError: it cannot be read at present.
        """
        self.forget_slots()
        assert self._slots is not None
        begun_at = trio.current_time()
        slots, modulus, number, used = self._slots, self.layout.slots, FIRST_ENTRY, 0
        last, seconds, is_sound = self.header.begin_phy_offset, 0, True
        while is_sound and number < self.header.index_count:
            count = min(_ENTRIES_AT_ONCE, self.header.index_count - number)
            raw = self._read(self.layout.entry_at(number), count * ENTRY_SIZE)
            for key_hash, offset, later_s, before in ENTRY.iter_unpack(raw):
                slot = key_hash % modulus
                if not last <= offset < end or key_hash < 0 or before != slots[slot]:
                    is_sound = False
                    break
                slots[slot] = number
                used += not before
                last, seconds, number = offset, later_s, number + 1
            begun_at = await _let_others_go_on(begun_at)
        header = self.header._replace(slot_count=used, end_phy_offset=last)
        if number < header.index_count:
            end_ms = header.begin_timestamp_ms + seconds * 1000
            header = header._replace(index_count=number, end_timestamp_ms=end_ms)
        self.header = header
        self.is_sealed = False

    def close(self) -> None:
        """Give back descriptor and memory."""
        self._open_files.forget(self)
        self._memory = self._slots = None

    async def remove(self) -> None:
        """Delete and close it; a query may read it until then. Raises StoreWriteError."""
        if self._disk.exists(self.path):
            await self._disk.unlink_in_thread(self.path)
        self.close()

    # ---- writing

    @property
    def is_full(self) -> bool:
        """Whether the index goes on in the next file."""
        return self.header.index_count >= self.layout.entries

    @property
    def is_dirty(self) -> bool:
        """Whether the header in the file says less than it could."""
        return self.header.index_count != self._committed.index_count

    def append(self, hashes: Sequence[int], offsets: Sequence[int], times_ms: Sequence[int]) -> int:
        """Add an entry for each key's hash, as many as have room; returns how many.

        Args:
            hashes: of the keys.
            offsets: where in the log the message of each lies.
            times_ms: its store time.

        Raises:
            StoreWriteError: nothing was added.
            StoreReadError: the same; the file cannot be opened at present.
        """
        count = min(len(hashes), self.layout.entries - self.header.index_count)
        if not self.header.has_entries:
            count = min(count, 1)  # it alone counts its seconds from where the file before ended
        if count <= 0:
            return 0
        fields = self._link(hashes[:count], offsets, times_ms)
        try:
            self.file.pwrite([pack_entries(fields)], self.layout.entry_at(self.header.index_count))
        except (StoreWriteError, StoreReadError):
            self._unlink(fields)
            raise
        header, used = self.header, self.header.slot_count + fields[3::4].count(0)
        begin_ms, begin = header.begin_timestamp_ms, header.begin_phy_offset
        if not header.has_entries:
            begin_ms, begin = times_ms[0], offsets[0]
        end_ms, end = times_ms[count - 1], offsets[count - 1]
        self.header = IndexHeader(begin_ms, end_ms, begin, end, used, header.index_count + count)
        self.is_sealed = False
        return count

    def _link(self, hashes: Sequence[int], offsets: Sequence[int], times_ms: Sequence[int]) -> list[int]:
        """The fields of the next entries, each of which now leads its chain."""
        assert self._slots is not None, "it is the file that grows"
        slots, modulus, number = self._slots, self.layout.slots, self.header.index_count
        begin_ms, fields, seconds, last_ms = self.header.begin_timestamp_ms, list[int](), 0, -1
        for key_hash, offset, time_ms in zip(hashes, offsets, times_ms):  # noqa: B905 - as many as there are hashes
            if time_ms != last_ms:
                seconds, last_ms = seconds_since(begin_ms, time_ms), time_ms
            slot = key_hash % modulus
            fields += (key_hash, offset, seconds, slots[slot])
            slots[slot] = number
            number += 1
        return fields

    def _unlink(self, fields: list[int]) -> None:
        assert self._slots is not None
        for at in range(len(fields) - 4, -1, -4):
            self._slots[fields[at] % self.layout.slots] = fields[at + 3]

    async def commit(self) -> None:
        """Make durable what is written, then let the header count it. Raises StoreError: believe no later success."""
        header = self.header
        await self.file.sync_in_thread()
        self.file.pwrite([header._replace(slot_count=0).encode()], 0)
        self._committed = header

    async def seal(self) -> None:
        """Write the slots, too, and then say so; all of it is durable. Raises StoreError."""
        assert self._memory is not None
        header = self.header
        for first in range(0, self.layout.slots, _SLOTS_AT_ONCE):
            piece = _swapped(self._memory[first * SLOT_SIZE : (first + _SLOTS_AT_ONCE) * SLOT_SIZE])
            self.file.pwrite([piece.tobytes()], HEADER_SIZE + first * SLOT_SIZE)
            await trio.lowlevel.checkpoint()
        await self.file.sync_in_thread()
        self.file.pwrite([header.encode()], 0)
        await self.file.sync_in_thread()
        self._committed, self.is_sealed = header, True
        if self.is_full:
            self._memory = self._slots = None

    # ---- reading

    def chain(self, key_hash: int) -> Iterator[Entry]:
        """The entries of the chain in which this hash is, newest first. Raises StoreReadError."""
        number, begin_ms = self._newest(key_hash % self.layout.slots), self.header.begin_timestamp_ms
        while FIRST_ENTRY <= number < self.header.index_count:
            found, offset, seconds, before = ENTRY.unpack(self._read(self.layout.entry_at(number), ENTRY_SIZE))
            yield Entry(found, offset, begin_ms + seconds * 1000)
            if before >= number:  # damaged: it would never end
                return
            number = before

    def _newest(self, slot: int) -> int:
        if self._slots is not None:
            return self._slots[slot]
        return int(SLOT.unpack(self._read(HEADER_SIZE + slot * SLOT_SIZE, SLOT_SIZE))[0])

    def last_entries(self) -> Iterator[tuple[int, int]]:
        """Hash and offset of each entry, the last first. Raises StoreReadError."""
        for number in range(self.header.index_count - 1, FIRST_ENTRY - 1, -1):
            key_hash, offset, _, _ = ENTRY.unpack(self._read(self.layout.entry_at(number), ENTRY_SIZE))
            yield key_hash, offset

    @property
    def file(self) -> DataFile:
        """The file, opened if it was not: use it, but do not store it. Raises StoreReadError."""
        self.was_used = True
        return self.held or self._open_files.open(self)

    def open_file(self) -> DataFile:
        """See :class:`~rmqha.store.open_files.Reopenable`."""
        return self._disk.open(self.path, writable=True)

    def _read(self, at: int, size: int) -> bytes:
        data = self.file.pread(size, at)
        if len(data) < size:
            raise StoreReadError(OSError(errno.EIO, f"nothing at {at + len(data)}"), operation="pread", path=self.path)
        return data


async def _let_others_go_on(begun_at: float) -> float:
    """Reading a file of millions takes one part in :data:`_SHARE` of the time; returns when the next piece begins."""
    await trio.sleep((_SHARE - 1) * (trio.current_time() - begun_at))
    return trio.current_time()


def _swapped(raw: bytes | memoryview) -> "array[int]":
    """Big-endian numbers as the machine has them, and back."""
    numbers = array("i")
    numbers.frombytes(raw)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
