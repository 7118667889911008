"""ConsumeQueue: where the messages of one queue lie in the log (units: rmqha/codec/consume_queue.py).

Unit ``i`` is the message with QUEUEOFFSET ``i`` and lies at byte ``20 * i``. A queue that begins later than 0 starts
with fillers up to its first message (spec: commitlog §8).
"""

from collections.abc import Callable, Iterator
from typing import Final, cast

import trio

from rmqha.codec.consume_queue import FILLER, FILLER_SIZE, UNIT, UNIT_SIZE, count_valid, sum_of_sizes
from rmqha.store.disk import Disk
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.open_files import OpenFiles

_FILES_RECOVERED: Final = 3
_PAGE_BYTES: Final = 4096
_FIRST_PIECE_BYTES: Final = 200 * UNIT_SIZE
"""Most queues are short; reading goes on in larger and larger pieces."""
_PIECE_BYTES_MAX: Final = 50_000 * UNIT_SIZE
_FILLERS: Final = FILLER * 10_000
_UNKNOWN: Final = -1

Unit = tuple[int, int, int]
"""``(phy_offset, size, tags_code)``"""
StoreTimeOf = Callable[[int], int]
"""``store_time_of(phy_offset)``: the store time of that record, -1 if it is gone."""


class ConsumeQueue:
    """One queue of one topic. Offsets "in the queue" count messages; everything of the files counts bytes.

    Invariants: ``min_offset_in_queue <= max_offset_in_queue``; ``max_physic_offset`` is where the last unit's record
    ends, 0 if there is none; ``flushed_offset <= queue.max_offset``.
    """

    __slots__ = (
        "_before_erasing",
        "_begins_at",
        "_dirty",
        "_min_physic_offset",
        "_seen_end",
        "flushed_offset",
        "max_physic_offset",
        "min_offset_in_queue",
        "queue",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        topic: str,
        queue_id: int,
        file_size: int,
        open_files: OpenFiles | None = None,
        before_erasing: Callable[[], None] = lambda: None,
        dirty: "dict[ConsumeQueue, None] | None" = None,
        on_missing: Callable[[str], None] = lambda _directory: None,
    ) -> None:
        """Nothing is read here.

        Args:
            disk: where the directory is.
            directory: of the queue's files.
            topic: its topic.
            queue_id: its number.
            file_size: bytes of each file.
            open_files: shared by all that compete for descriptors.
            before_erasing: called before units that can be seen are made zeros.
            dirty: the queue adds itself here when there is something to flush.
            on_missing: told the directory when a file is missing from it.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.queue = MappedFileQueue(
            disk,
            directory,
            file_size=file_size - file_size % UNIT_SIZE,
            open_files=open_files,
            is_derived=True,
            on_missing=on_missing,
        )
        self.max_physic_offset = 0
        self.min_offset_in_queue = 0
        self.flushed_offset = 0
        self._before_erasing = before_erasing
        self._dirty = {} if dirty is None else dirty
        self._begins_at = 0
        """Of a queue that was empty the first unit is to stand there, and before it nothing but fillers."""
        self._min_physic_offset = _UNKNOWN
        """Of the unit at ``min_offset_in_queue``, if it is known."""
        self._seen_end = 0
        """Everything behind it, and behind the queue's end, is zero."""

    @property
    def max_offset_in_queue(self) -> int:
        """Offset the next message will get."""
        return self.queue.max_offset // UNIT_SIZE

    @property
    def begins_at_phy_offset(self) -> int:
        """No record of this queue lies before this offset of the log."""
        return max(self._min_physic_offset, 0)

    @property
    def has_units(self) -> bool:
        """Whether there is any unit; of fillers only those count that were found by :meth:`load`."""
        return self.queue.max_offset > max(self.queue.min_offset, self._begins_at * UNIT_SIZE)

    @property
    def has_messages(self) -> bool:
        """Whether the log holds any message of this queue, as far as :meth:`correct_min_offset` was told."""
        return self.min_offset_in_queue < self.max_offset_in_queue

    def load(self, *, writable: bool = True, in_doubt: bool = False) -> None:
        """Find the end: the first invalid unit within the last three files (spec: §8.3). Behind it all is made zero.

        Args:
            writable: whether files may be changed; without, the store is only looked at.
            in_doubt: erasing was not finished: what reads as zero may be something else on the device.

        Raises:
            CorruptLogError: files that are no consume queue's.
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        self.queue.load(writable=writable)
        end = self.queue.max_offset
        for mapped in self.queue.files[-_FILES_RECOVERED:]:
            valid_bytes, max_physic_offset = self._examine(mapped)
            self.max_physic_offset = max(self.max_physic_offset, max_physic_offset)
            if valid_bytes < mapped.size:
                end = mapped.file_from_offset + valid_bytes
                break
        if writable and (in_doubt or not self._is_zero_behind(end)):
            self._erase(end)
        else:
            self.queue.set_end(end)
        self._seen_end = end
        self.min_offset_in_queue = self.queue.min_offset // UNIT_SIZE
        self.flushed_offset = self.queue.max_offset

    def _examine(self, mapped: MappedFile) -> tuple[int, int]:
        """How many bytes from the start are valid units, and where the record of the last one ends if it is real."""
        at, piece_bytes, last = 0, _FIRST_PIECE_BYTES, FILLER
        while at < mapped.size:
            units = mapped.read(at, min(piece_bytes, mapped.size - at))
            valid_bytes = count_valid(units) * UNIT_SIZE
            if valid_bytes:
                last = units[valid_bytes - UNIT_SIZE : valid_bytes]
                if at == 0 and mapped is self.queue.files[0] and not units.startswith(FILLER):
                    self._min_physic_offset = UNIT.unpack_from(units)[0]
            at += valid_bytes
            if valid_bytes < len(units):
                break
            piece_bytes = min(piece_bytes * 4, _PIECE_BYTES_MAX)
        phy_offset, size, _ = UNIT.unpack(last)
        return at, 0 if size == FILLER_SIZE else phy_offset + size

    def _is_zero_behind(self, end: int) -> bool:
        if not self.queue.files:
            return True
        last = self.queue.files[-1]
        return last.file_from_offset <= end and last.file.is_zero_tail(end - last.file_from_offset)

    def unit(self, index: int) -> Unit | None:
        """``(phy_offset, size, tags_code)`` of the message at ``index``; None outside the queue."""
        if not self.queue.min_offset <= index * UNIT_SIZE < self.queue.max_offset:
            return None
        mapped = self.queue.find(index * UNIT_SIZE)
        assert mapped is not None, "the files are contiguous"
        return cast(Unit, UNIT.unpack(mapped.read(index * UNIT_SIZE - mapped.file_from_offset, UNIT_SIZE)))

    def units(self, index: int, count: int) -> Iterator[Unit]:
        """Up to ``count`` units from ``index`` on; fewer at the end of the queue or of a file."""
        mapped = self.queue.find(index * UNIT_SIZE)
        if mapped is None:
            return iter(())
        start = index * UNIT_SIZE - mapped.file_from_offset
        end = max(min(mapped.wrote_position, start + count * UNIT_SIZE), start)
        return cast(Iterator[Unit], UNIT.iter_unpack(mapped.read(start, end - start)))

    def sum_of_sizes(self, low: int, high: int) -> int:
        """Of the records of the units ``[low, high)``."""
        total = 0
        for mapped in self.queue.between(low * UNIT_SIZE, high * UNIT_SIZE):
            start = max(0, low * UNIT_SIZE - mapped.file_from_offset)
            end = min(mapped.size, high * UNIT_SIZE - mapped.file_from_offset)
            for at in range(start, end, _PIECE_BYTES_MAX):
                total += sum_of_sizes(mapped.read(at, min(_PIECE_BYTES_MAX, end - at)))
        return total

    def start_at(self, index: int) -> None:
        """Let an empty queue begin at ``index``: the first file will have fillers before it. Raises StoreWriteError."""
        assert not self.has_units, "only an empty queue can begin elsewhere"
        while self.queue.files:
            self.queue.delete(self.queue.files[-1])
        self.queue.start_offset = index * UNIT_SIZE - index * UNIT_SIZE % self.queue.file_size
        self.min_offset_in_queue = self._begins_at = index
        self.flushed_offset = self.queue.start_offset
        self._min_physic_offset, self._seen_end = _UNKNOWN, 0

    def append(self, units: memoryview) -> int:
        """Put what still fits into the last file behind the queue's end; returns how many bytes were taken.

        Raises:
            StoreWriteError: nothing was taken.
        """
        if not self.queue.files or self.queue.files[-1].is_full:
            return 0
        self._dirty[self] = None
        mapped = self.queue.files[-1]
        taken = min(len(units), mapped.size - mapped.wrote_position)
        mapped.append([units[:taken]], taken)
        phy_offset, size, _ = UNIT.unpack_from(units, taken - UNIT_SIZE)
        if size != FILLER_SIZE:
            self.max_physic_offset = phy_offset + size
        return taken

    def create_file(self) -> None:
        """Make the next file. Raises StoreWriteError."""
        self.queue.create_next()
        for _ in self._fill():
            pass

    async def create_file_in_thread(self) -> None:
        """As :meth:`create_file`, without holding up the event loop."""
        await self.queue.create_next_in_thread()
        for _ in self._fill():
            await trio.lowlevel.checkpoint()

    def _fill(self) -> Iterator[None]:
        """Write the fillers, piece by piece: RocketMQ takes the first zeros of a file for the queue's end."""
        while (missing_bytes := self._begins_at * UNIT_SIZE - self.queue.max_offset) > 0:
            size = min(missing_bytes, len(_FILLERS))
            self.queue.files[-1].append([memoryview(_FILLERS)[:size]], size)
            yield

    def cut(self, phy_offset: int) -> None:
        """Drop every unit whose record starts at or behind ``phy_offset``, and erase the rest durably (spec: §8.3).

        A queue of which only fillers would be left is left empty.

        Raises:
            StoreWriteError: do not append to this queue.
        """
        if not 0 < self.max_physic_offset <= phy_offset and self.has_units:
            self._end_at(*self._end_before(phy_offset), erase=True)

    def take_back(self, phy_offset: int) -> None:
        """As :meth:`cut`, for units that are written again at once: files go, and nothing is erased for it.

        So it needs no space. Call :meth:`erase_leftovers` afterwards. Raises StoreWriteError.
        """
        if not 0 < self.max_physic_offset <= phy_offset and self.has_units:
            end, max_physic_offset = self._end_before(phy_offset)
            while self.queue.files[-1].file_from_offset > end * UNIT_SIZE:
                self.queue.delete(self.queue.files[-1])
            self._end_at(end, max_physic_offset, erase=False)

    def erase_leftovers(self) -> None:
        """Erase durably what :meth:`take_back` left and nobody wrote again. Raises StoreWriteError."""
        if self.queue.max_offset < self._seen_end:
            self._erase(self.queue.max_offset)

    def empty(self) -> None:
        """Drop every unit. Raises StoreWriteError, as :meth:`cut` does."""
        self._end_at(self.queue.min_offset // UNIT_SIZE, 0, erase=True)

    def _end_before(self, phy_offset: int) -> tuple[int, int]:
        """Where the queue has to end, in the queue, and where the record before that ends."""
        end = self._first_at_or_behind(phy_offset)
        last = self.unit(end - 1)
        if last is None or _is_filler(last):
            return self.queue.min_offset // UNIT_SIZE, 0
        return end, last[0] + last[1]

    def _end_at(self, end: int, max_physic_offset: int, *, erase: bool) -> None:
        if erase:
            self._erase(end * UNIT_SIZE)
        else:
            self.queue.set_end(end * UNIT_SIZE)
        self.max_physic_offset = max_physic_offset
        self.flushed_offset = min(self.flushed_offset, self.queue.max_offset)
        if self.min_offset_in_queue >= self.max_offset_in_queue:
            self.min_offset_in_queue, self._min_physic_offset = self.max_offset_in_queue, _UNKNOWN

    def _erase(self, end: int) -> None:
        self._before_erasing()
        self.queue.truncate(end)
        self._seen_end = end

    def correct_min_offset(self, phy_min_offset: int) -> None:
        """The log now begins at ``phy_min_offset``: messages before are gone from this queue too."""
        if self._min_physic_offset >= phy_min_offset or not self.has_units:
            return
        first = max(self.queue.min_offset // UNIT_SIZE, self.end_before(phy_min_offset))
        before = self.unit(first - 1)
        if before is not None and before[1] <= 0:  # no unit: the file was cut short, and what it held may be there yet
            self.queue.on_missing(self.queue.directory)
            return
        self.min_offset_in_queue = first
        unit = self.unit(self.min_offset_in_queue)
        self._min_physic_offset = _UNKNOWN if unit is None else unit[0]

    def end_before(self, phy_offset: int) -> int:
        """Where this queue ended when the log ended at ``phy_offset``."""
        first = self._first_at_or_behind(phy_offset)
        while (unit := self.unit(first)) is not None and _is_filler(unit):
            first += 1
        return first

    def _first_at_or_behind(self, phy_offset: int) -> int:
        """Offset in the queue of the first unit at or behind ``phy_offset``; fillers are before everything."""
        low, high = self.queue.min_offset // UNIT_SIZE, self.max_offset_in_queue
        if 0 < self.max_physic_offset <= phy_offset:
            return high
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
        first, end = self.min_offset_in_queue, self.max_offset_in_queue
        if first >= end:
            return 0
        low = self.first_stored_from(timestamp_ms, store_time_of)
        if low >= end:
            return end - 1
        if low > first:
            before, at = self._time_at(low - 1, store_time_of), self._time_at(low, store_time_of)
            return low - 1 if timestamp_ms - before <= at - timestamp_ms else low
        return low

    def first_stored_from(self, timestamp_ms: int, store_time_of: StoreTimeOf) -> int:
        """Offset of the first message stored at ``timestamp_ms`` or later; of the next one if all are earlier."""
        low, high = self.min_offset_in_queue, self.max_offset_in_queue
        while low < high:
            middle = (low + high) // 2
            if self._time_at(middle, store_time_of) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _time_at(self, index: int, store_time_of: StoreTimeOf) -> int:
        unit = self.unit(index)
        return -1 if unit is None else store_time_of(unit[0])

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
            await mapped.sync_in_thread()
        self.flushed_offset = end


def _is_filler(unit: Unit) -> bool:
    return unit[0] == 0 and unit[1] == FILLER_SIZE
