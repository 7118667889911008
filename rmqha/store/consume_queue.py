"""ConsumeQueue: where the messages of one queue lie in the log (units: rmqha/codec/consume_queue.py).

Unit ``i`` is the message with QUEUEOFFSET ``i`` and lies at byte ``20 * i``. A queue that begins later than 0 starts
with fillers up to its first message (spec: commitlog §8).
"""

from collections.abc import Callable, Iterator
from typing import Final, cast

import trio

from rmqha.codec.consume_queue import FILLER, FILLER_SIZE, UNIT, UNIT_SIZE
from rmqha.store.disk import Disk
from rmqha.store.mapped_file_queue import MappedFileQueue

_FILES_RECOVERED: Final = 3
_PAGE_BYTES: Final = 4096

Unit = tuple[int, int, int]
"""``(phy_offset, size, tags_code)``"""
StoreTimeOf = Callable[[int], int]
"""``store_time_of(phy_offset)``: the store time of that record, -1 if it is gone."""


class ConsumeQueue:
    """One queue of one topic. Offsets "in the queue" count messages; everything of the files counts bytes.

    Invariants: ``min_offset_in_queue <= max_offset_in_queue``; ``max_physic_offset`` is where the last unit's record
    ends, 0 if there is none; ``flushed_offset <= queue.max_offset``.
    """

    def __init__(self, disk: Disk, directory: str, *, topic: str, queue_id: int, file_size: int) -> None:
        self.topic: Final = topic
        self.queue_id: Final = queue_id
        self.queue: Final = MappedFileQueue(disk, directory, file_size=file_size - file_size % UNIT_SIZE)
        self.max_physic_offset = 0
        self.min_offset_in_queue = 0
        self.flushed_offset = 0

    @property
    def max_offset_in_queue(self) -> int:
        """Offset the next message will get."""
        return self.queue.max_offset // UNIT_SIZE

    @property
    def has_units(self) -> bool:
        """Whether there is any unit, fillers included."""
        return self.queue.max_offset > self.queue.min_offset

    @property
    def has_messages(self) -> bool:
        """Whether the log holds any message of this queue, as far as :meth:`correct_min_offset` was told."""
        return self.min_offset_in_queue < self.max_offset_in_queue

    def load(self, *, writable: bool = True) -> None:
        """Open the files and find the end: the first invalid unit within the last three files (spec: §8.3).

        Raises:
            CorruptLogError: files that are no consume queue's.
        """
        self.queue.load(writable=writable)
        end = self.queue.max_offset
        for mapped in self.queue.files[-_FILES_RECOVERED:]:
            units, last_physic_offset = _count_valid(mapped.view)
            self.max_physic_offset = max(self.max_physic_offset, last_physic_offset)
            if units * UNIT_SIZE < mapped.size:
                end = mapped.file_from_offset + units * UNIT_SIZE
                break
        if writable:
            self.queue.truncate(end)
        else:
            self.queue.set_end(end)
        self.min_offset_in_queue = self.queue.min_offset // UNIT_SIZE
        self.flushed_offset = self.queue.max_offset

    def unit(self, index: int) -> Unit | None:
        """``(phy_offset, size, tags_code)`` of the message at ``index``; None outside the queue."""
        if not self.queue.min_offset <= index * UNIT_SIZE < self.queue.max_offset:
            return None
        mapped = self.queue.find(index * UNIT_SIZE)
        assert mapped is not None, "the files are contiguous"
        return cast(Unit, UNIT.unpack_from(mapped.view, index * UNIT_SIZE - mapped.file_from_offset))

    def units(self, index: int, count: int) -> Iterator[Unit]:
        """Up to ``count`` units from ``index`` on; fewer at the end of the queue or of a file."""
        mapped = self.queue.find(index * UNIT_SIZE)
        if mapped is None:
            return iter(())
        start = index * UNIT_SIZE - mapped.file_from_offset
        end = min(mapped.wrote_position, start + count * UNIT_SIZE)
        return cast(Iterator[Unit], UNIT.iter_unpack(mapped.view[start : max(end, start)]))

    def start_at(self, index: int) -> bytes:
        """Let an empty queue begin at ``index``; returns the fillers to be written before that unit."""
        assert not self.has_units, "only an empty queue can begin elsewhere"
        while self.queue.files:
            self.queue.delete(self.queue.files[-1])
        self.queue.start_offset = index * UNIT_SIZE - index * UNIT_SIZE % self.queue.file_size
        self.min_offset_in_queue = index
        return FILLER * (index - self.queue.start_offset // UNIT_SIZE)

    def append(self, units: memoryview) -> int:
        """Put what still fits into the last file behind the queue's end; returns how many bytes were taken.

        Raises:
            StoreWriteError: nothing was taken.
        """
        if not self.queue.files or self.queue.files[-1].is_full:
            return 0
        mapped = self.queue.files[-1]
        taken = min(len(units), mapped.size - mapped.wrote_position)
        mapped.append([units[:taken]], taken)
        phy_offset, size, _ = UNIT.unpack_from(units, taken - UNIT_SIZE)
        if size != FILLER_SIZE:
            self.max_physic_offset = phy_offset + size
        return taken

    def create_file(self) -> None:
        """Make the next file. Sparse: the queues of a broker are many, and can be built again from the log."""
        self.queue.create_next(sparse=True)

    async def create_file_in_thread(self) -> None:
        """As :meth:`create_file`, without holding up the event loop."""
        await self.queue.create_next_in_thread(sparse=True)

    def cut(self, phy_offset: int) -> None:
        """Drop every unit whose record starts at or behind ``phy_offset``, and erase the rest durably (spec: §8.3).

        A queue of which only fillers would be left is left empty.

        Raises:
            StoreWriteError: do not append to this queue.
        """
        end = self._first_at_or_behind(phy_offset)
        last = self.unit(end - 1)
        if last is None or _is_filler(last):
            self.empty()
        else:
            self._cut_at(end, max_physic_offset=last[0] + last[1])

    def empty(self) -> None:
        """Drop every unit. Raises StoreWriteError, as :meth:`cut` does."""
        self._cut_at(self.queue.min_offset // UNIT_SIZE, max_physic_offset=0)

    def _cut_at(self, end: int, *, max_physic_offset: int) -> None:
        self.queue.truncate(end * UNIT_SIZE)
        self.max_physic_offset = max_physic_offset
        self.flushed_offset = min(self.flushed_offset, self.queue.max_offset)
        self.min_offset_in_queue = min(self.min_offset_in_queue, self.max_offset_in_queue)

    def correct_min_offset(self, phy_min_offset: int) -> None:
        """The log now begins at ``phy_min_offset``: messages before are gone from this queue too."""
        self.min_offset_in_queue = max(self.queue.min_offset // UNIT_SIZE, self.end_before(phy_min_offset))

    def end_before(self, phy_offset: int) -> int:
        """Where this queue ended when the log ended at ``phy_offset``."""
        first = self._first_at_or_behind(phy_offset)
        while (unit := self.unit(first)) is not None and _is_filler(unit):
            first += 1
        return first

    def _first_at_or_behind(self, phy_offset: int) -> int:
        """Offset in the queue of the first unit at or behind ``phy_offset``; fillers are before everything."""
        low, high = self.queue.min_offset // UNIT_SIZE, self.max_offset_in_queue
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            assert unit is not None, "between the ends"
            if unit[0] < phy_offset or _is_filler(unit):
                low = middle + 1
            else:
                high = middle
        return low

    def get_offset_in_queue_by_time(self, timestamp_ms: int, store_time_of: StoreTimeOf) -> int:
        """Offset of the message stored at ``timestamp_ms``, on a miss of the one nearest in time.

        Later than all: the last message. Earlier than all: the first. Empty: 0 (spec: remoting §2.5, code 29).
        """
        first = low = self.min_offset_in_queue
        high = self.max_offset_in_queue
        if low >= high:
            return 0

        def time_at(index: int) -> int:
            unit = self.unit(index)
            return -1 if unit is None else store_time_of(unit[0])

        while low < high:
            middle = (low + high) // 2
            if time_at(middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low >= self.max_offset_in_queue:
            return self.max_offset_in_queue - 1
        if low > first and timestamp_ms - time_at(low - 1) <= time_at(low) - timestamp_ms:
            return low - 1
        return low

    async def delete_expired_files_in_thread(self, *, pause_s: float) -> int:
        """Delete the files that hold only messages before the queue's minimum, never the last; returns how many."""
        deleted = 0
        while len(self.queue.files) > 1 and self.queue.files[0].end_offset <= self.min_offset_in_queue * UNIT_SIZE:
            await self.queue.delete_first_in_thread()
            deleted += 1
            await trio.sleep(pause_s)
        return deleted

    @property
    def dirty_pages(self) -> int:
        """How many whole pages wait for the next flush."""
        return self.queue.max_offset // _PAGE_BYTES - self.flushed_offset // _PAGE_BYTES

    async def flush_in_thread(self) -> None:
        """Make durable what was written before the call. Raises StoreWriteError."""
        end = self.queue.max_offset
        for mapped in self.queue.between(self.flushed_offset, end):
            await mapped.file.sync_in_thread()
        self.flushed_offset = end


def _is_filler(unit: Unit) -> bool:
    return unit[0] == 0 and unit[1] == FILLER_SIZE


def _count_valid(view: memoryview) -> tuple[int, int]:
    """How many units from the start are valid, and where the record of the last real one ends."""
    count = physic_offset = 0
    for phy_offset, size, _ in UNIT.iter_unpack(view):
        if phy_offset < 0 or size <= 0:
            break
        count += 1
        if size != FILLER_SIZE:
            physic_offset = phy_offset + size
    return count, physic_offset
