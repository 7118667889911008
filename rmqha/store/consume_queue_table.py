"""ConsumeQueueTable: all consume queues of a store, ``DIRECTORY/TOPIC/QUEUEID/``."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

import trio

from rmqha.codec.layout import is_legal_topic
from rmqha.errors import CorruptLogError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.disk import Disk
from rmqha.store.open_files import OpenFiles

_QUEUES_AT_ONCE: Final = 100

QueueKey = tuple[str, int]


class ConsumeQueueTable:
    """Finds a queue by topic and number, and does what concerns all of them.

    Topic names come from peers: only those of RocketMQ's alphabet, which holds neither ``.`` nor ``/``, become paths.
    """

    def __init__(self, disk: Disk, directory: str, *, file_size: int, open_files: OpenFiles | None = None) -> None:
        self._disk: Final = disk
        self.directory: Final = directory
        self._file_size: Final = file_size
        self._open_files: Final = open_files or OpenFiles()
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self.known_ends: Final[dict[QueueKey, int]] = {}
        """Where queues ended before this log began: of those without a message in it, nothing else may tell."""
        self.dirty: Final[dict[ConsumeQueue, None]] = {}
        """Those that may have something to flush."""
        self._erasing = False
        """The file that says so is there."""

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def load(self, *, writable: bool = True) -> None:
        """Find every queue's end. Names that are no queue's are left alone.

        Units that were dropped must not come back to life. What a process before erased is zero on the device, unless
        a file says that it did not finish: a flush that fails leaves zeros that only the page cache has.

        Raises:
            CorruptLogError: a queue's files do not fit together. Queues can be built again from the log.
        """
        self._erasing = writable and self._disk.exists(self._erasing_path)
        for topic in self._disk.listdir(self.directory):
            for name in self._disk.listdir(f"{self.directory}/{topic}"):
                if name.isascii() and name.isdigit() and is_legal_topic(topic.encode(errors="replace")):
                    self._load_queue(topic, int(name), writable=writable)

    def _load_queue(self, topic: str, queue_id: int, *, writable: bool) -> None:
        queue = self._new(topic, queue_id)
        try:
            queue.load(writable=writable, in_doubt=self._erasing)
        except CorruptLogError as error:
            raise CorruptLogError(
                error.offset,
                f"consume queue {topic}/{queue_id}: {error.reason}. If the commitlog is sound, move "
                f"{self.directory} away and start again: all queues are then built from the log",
            ) from error

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        path = f"{self.directory}/{topic}/{queue_id}"
        queue = ConsumeQueue(
            self._disk,
            path,
            topic=topic,
            queue_id=queue_id,
            file_size=self._file_size,
            open_files=self._open_files,
            before_erasing=self._note_erasing,
            dirty=self.dirty,
        )
        self._queues[topic, queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if there ever was a message in it."""
        return self._queues.get((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one gets its directory with its first file.

        Raises:
            CorruptLogError: no queue can have such a name.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not is_legal_topic(topic.encode()) or not topic or queue_id < 0:
                raise CorruptLogError(0, f"no queue can be named {topic!r}/{queue_id}")
            queue = self._new(topic, queue_id)
        return queue

    @property
    def max_physic_offset(self) -> int:
        """Where the newest record known to any queue ends; 0 without units."""
        return max((queue.max_physic_offset for queue in self), default=0)

    def cut(self, phy_offset: int) -> None:
        """Make every queue forget the records at or behind ``phy_offset``. Raises StoreWriteError."""
        for queue in self:
            queue.cut(phy_offset)

    def take_back(self, phy_offset: int) -> None:
        """As :meth:`cut`, for what is dispatched again at once; then :meth:`finish_erasing` has to follow."""
        for queue in self:
            queue.take_back(phy_offset)

    @property
    def _erasing_path(self) -> str:
        return f"{self.directory}.erasing"

    def _note_erasing(self) -> None:
        if not self._erasing:
            self._disk.create(self._erasing_path, 0, sparse=True)
            self._erasing = True

    def finish_erasing(self) -> None:
        """Erase what is left of units that were taken back; then all of it is durable. Raises StoreWriteError."""
        for queue in self:
            queue.erase_leftovers()
        if self._erasing:
            self._disk.unlink(self._erasing_path)
            self._erasing = False

    def correct_min_offset(self, phy_min_offset: int) -> None:
        """Make every queue forget, in memory, the records before ``phy_min_offset``."""
        for queue in self:
            queue.correct_min_offset(phy_min_offset)

    def next_offsets(self) -> dict[QueueKey, int]:
        """For each queue the offset its next message will get."""
        return {key: self.range_of(*key)[1] for key in self._keys()}

    def range_of(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first message of a queue that is still there, and the end; twice the end if there is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None and queue.has_messages:
            return queue.min_offset_in_queue, queue.max_offset_in_queue
        end = max(self.known_ends.get((topic, queue_id), 0), queue.max_offset_in_queue if queue is not None else 0)
        return end, end

    def ends_before(self, phy_offset: int, *, start: int, count: int) -> dict[QueueKey, int]:
        """Where each queue ended when the log ended at ``phy_offset``: a page of ``count`` queues from ``start`` on."""
        return {key: self._end_before(key, phy_offset) for key in islice(self._keys(), start, start + count)}

    def _end_before(self, key: QueueKey, phy_offset: int) -> int:
        queue = self._queues.get(key)
        if queue is not None and queue.has_messages:
            return queue.end_before(phy_offset)
        return self.range_of(*key)[1]

    def _keys(self) -> Iterator[QueueKey]:
        """All queues that ever had a message, as far as anything tells."""
        return chain(self._queues, (key for key in self.known_ends if key not in self._queues))

    def begin_again(self, queue: ConsumeQueue) -> ConsumeQueue:
        """Drop a queue of which the log holds no message; returns an empty one in its place.

        Raises:
            StoreWriteError: its files are not all deleted.
        """
        assert not queue.has_messages, "units that lead to messages are not dropped"
        key = queue.topic, queue.queue_id
        self.known_ends[key] = max(self.known_ends.get(key, 0), queue.max_offset_in_queue)
        while queue.queue.files:
            queue.queue.delete(queue.queue.files[-1])
        return self._new(*key)

    async def delete_expired_files_in_thread(self, phy_min_offset: int, *, pause_s: float) -> int:
        """Make every queue forget the records before ``phy_min_offset``, and delete files that hold nothing else.

        Returns how many. Others run in between: queues are many. Raises StoreError.
        """
        deleted = 0
        for number, queue in enumerate(list(self)):
            queue.correct_min_offset(phy_min_offset)
            deleted += await queue.delete_expired_files_in_thread(pause_s=pause_s)
            if number % _QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return deleted

    def close(self) -> None:
        """Close every file."""
        for queue in self:
            queue.queue.close()
