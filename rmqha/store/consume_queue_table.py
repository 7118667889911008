"""ConsumeQueueTable: all consume queues of a store, ``DIRECTORY/TOPIC/QUEUEID/``."""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import trio

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.layout import is_legal_topic
from rmqha.errors import CorruptLogError, StoreReadError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.deleted_messages import DeletedMessages
from rmqha.store.disk import Disk
from rmqha.store.dropped_files import DroppedFiles
from rmqha.store.hidden_messages import HiddenMessages
from rmqha.store.lost_queue import LostQueue
from rmqha.store.mapped_file import LOST_AND_FOUND
from rmqha.store.open_files import OpenFiles
from rmqha.store.stopped_queues import StoppedQueues
from rmqha.store.store_note import StoreNote

_QUEUES_AT_ONCE: Final = 100
_LOOKED_AT_AT_ONCE: Final = 5000
_TAKEN_OUT_AT_ONCE: Final = 20
"""Each has files to close: some milliseconds' work."""

QueueKey = tuple[str, int]

Listener = Callable[[str, int, int], None]
"""Called once a queue and round."""


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
        self._keys: Final[list[QueueKey]] = []
        """All queues that ever had a message, as far as anything tells, in the order in which that was learned."""
        self.known_ends: Final[dict[QueueKey, int]] = {}
        """Where queues ended before this log began: of those without a message in it, nothing else may tell."""
        self.on_ends_noted: Callable[[], None] = lambda: None
        """Called when ``known_ends`` has changed."""
        self.on_begun_again: Callable[[str, int], None] = lambda _topic, _queue_id: None
        """Called when a queue has begun anew although the log holds earlier messages of it."""
        self.dirty: Final[dict[ConsumeQueue, None]] = {}
        """Those that may have something to flush."""
        self.lost: Final[dict[QueueKey, LostQueue]] = {}
        """Those without files, until they are built again: nothing can be read of them, nor written."""
        self.changes = 0
        """How often a queue was put aside, or what is deleted of one has changed."""
        self.missing: Final[dict[str, str]] = {}
        """Directories in which a file turned out to be missing, or to be damaged, and then which: see
        :meth:`take_out_missing`."""
        self._on_missing: Callable[[], None] = lambda: None
        self._on_lost: Callable[[list[LostQueue]], None] = lambda _queues: None
        self.on_arrival: Final[list[Listener]] = []
        """``listener(topic, queue_id, queue_end)``: where a queue ends now, when consumers may see it."""
        self.on_counted: Final[list[Listener]] = []
        """``listener(topic, messages, size_bytes)``: how much that was, but for what a start dispatches."""
        self.deleted: Final = DeletedMessages()
        self._to_drop: Final[dict[QueueKey, int]] = {}
        """Those of them whose files are to go. What is kept lies behind that offset of its master's log."""
        self.stopped: Final = StoppedQueues()
        self.hidden: Final = HiddenMessages()
        """Of queues that have begun anew."""
        self.dropped: Final = DroppedFiles(disk)
        self._erasing: Final = StoreNote(disk, f"{directory}.erasing")

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def load(self, *, writable: bool = True) -> None:
        """Find every queue's end. Names that are no queue's are left alone.

        Units that were dropped must not come back to life. What a process before erased is zero on the device, unless
        a file says that it did not finish: a flush that fails leaves zeros that only the page cache has.

        Raises:
            CorruptLogError: a queue's files do not fit together. Queues can be built again from the log.
        """
        in_doubt = writable and self._erasing.look()
        for topic in self._open_files.listdir(self._disk, self.directory):
            if topic == LOST_AND_FOUND:
                continue
            for name in self._open_files.listdir(self._disk, f"{self.directory}/{topic}"):
                if name.isascii() and name.isdigit() and is_legal_topic(topic.encode(errors="replace")):
                    self._load_queue(topic, int(name), writable=writable, in_doubt=in_doubt)

    def _load_queue(self, topic: str, queue_id: int, *, writable: bool, in_doubt: bool) -> None:
        queue = self._new(topic, queue_id)
        try:
            queue.load(writable=writable, in_doubt=in_doubt)
        except CorruptLogError as error:
            raise CorruptLogError(
                error.offset,
                f"consume queue {topic}/{queue_id}: {error.reason}. If the commitlog is sound, move "
                f"{self.directory} away and start again: all queues are then built from the log",
            ) from error

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        self._list((topic, queue_id))
        queue = self._queues[topic, queue_id] = self.make_empty(topic, queue_id)
        return queue

    def make_empty(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue that is not in this table; see :meth:`put_back`."""
        return ConsumeQueue(
            self._disk,
            f"{self.directory}/{topic}/{queue_id}",
            topic=topic,
            queue_id=queue_id,
            file_size=self._file_size,
            open_files=self._open_files,
            before_erasing=self._erasing.make,
            dirty=self.dirty,
            on_missing=self.note_missing,
        )

    def heal_with(self, on_lost: Callable[[list[LostQueue]], None], *, on_missing: Callable[[], None]) -> None:
        """Say ``on_missing()`` when a file is missing: it is time for :meth:`take_out_missing`.

        The queues that are then put aside are ``on_lost``'s to build again and :meth:`put_back`.
        """
        self._on_lost, self._on_missing = on_lost, on_missing

    def note_missing(self, directory: str, *, damaged: str = "") -> None:
        """A file of the queue in ``directory`` is missing, or is none any more; or ``damaged`` is one of no use."""
        self.missing[directory] = damaged or self.missing.get(directory, "")
        self._on_missing()

    @property
    def has_to_take_out(self) -> bool:
        """Whether :meth:`take_out_missing` has anything to look at."""
        return bool(self.missing or self._to_drop)

    def take_out_missing(self) -> bool:
        """Put aside queues that lack a file, or have a damaged one, or are deleted; whether there were any.

        There may be more: ask again, when everybody else has had a turn. Nobody may be writing to them meanwhile.
        """
        taken = self._take_out_deleted()
        for directory, damaged in [*self.missing.items()]:
            if len(taken) >= _TAKEN_OUT_AT_ONCE:
                break
            with suppress(StoreReadError):  # nobody can look there at present: it stays noted
                taken += self._take_out_if_missing(directory, damaged)
                del self.missing[directory]
        if taken:
            self._on_lost(taken)
        return bool(taken)

    def _take_out_if_missing(self, directory: str, damaged: str) -> list[LostQueue]:
        topic, queue_id = directory.rsplit("/", 2)[1:]
        queue = self._queues.get((topic, int(queue_id)))
        if queue is None:
            return []
        mapped = queue.queue.find_missing()
        path = damaged if mapped is None else mapped.path
        begins_at = 0 if damaged else queue.begins_at_phy_offset  # damaged units tell nothing for certain
        return [self._take_out(queue, path, begins_at=begins_at)] if path else []

    def _take_out(self, queue: ConsumeQueue, path: str, *, begins_at: int) -> LostQueue:
        key = queue.topic, queue.queue_id
        first, end = self.range_of(*key)
        end = self.stopped.next_of(key, end)
        lost = LostQueue(*key, path=path, first=first, end=end, begins_at=begins_at)
        self.lost[key] = lost
        self.changes += 1
        self.dirty.pop(queue, None)
        queue.queue.abandon()  # tasks that still have it find it empty
        self.dropped.leave(queue.queue.directory)
        return lost

    def put_back(self, queue: ConsumeQueue) -> None:
        """Let a queue that was built again take the place of the lost one."""
        key = queue.topic, queue.queue_id
        is_deleted = self.lost.pop(key).is_deleted
        if is_deleted and not queue.queue.files:
            del self._queues[key]
        else:
            self._queues[key] = queue
        if key in self._to_drop:
            self._on_missing()

    # ---- topics that are deleted

    async def ids_of_in_turns(self, topic: str) -> set[int]:
        """The queues of a topic that ever had a message; nothing else has gone on since the last were looked at."""
        found, start = set[int](), 0
        while page := self._keys[start : start + _LOOKED_AT_AT_ONCE]:
            found.update(queue_id for name, queue_id in page if name == topic)
            start += len(page)
            if start < len(self._keys):
                await trio.lowlevel.checkpoint()
        return found

    def hide(self, queues: Mapping[QueueKey, DeletedQueue]) -> None:
        """These messages are deleted with their topic: dispatch passes them over."""
        self.deleted.update(queues)
        self.changes += 1
        for key in queues:
            self.hidden.forget(key)
        self.note_ends({key: max(deleted.end, self.known_ends.get(key, 0)) for key, deleted in queues.items()})

    def deleted_end(self, topic: str, queue_id: int) -> int:
        """See :meth:`DeletedMessages.end_in`."""
        return self.deleted.end_in(topic, queue_id, self._queues.get((topic, queue_id)))

    def drop_hidden(self, keys: Iterable[QueueKey], *, before: int) -> None:
        """Delete the files of queues that hold what is hidden, when nobody writes to them.

        What they hold of other messages is built again: all at or behind ``before``, an offset of the log.
        """
        self._to_drop.update((key, before) for key in keys if key in self._queues or key in self.stopped)
        self._on_missing()

    def forget_hidden(self, keys: Iterable[QueueKey]) -> None:
        """Nobody will dispatch what was hidden: the log holds none of it."""
        self.changes += 1
        for key in keys:
            self.deleted.pop(key, None)

    def show_again(self, keys: Iterable[QueueKey]) -> None:
        """Nothing of these queues is deleted: the master that said so does not lead any more. They are built again."""
        self.changes += 1
        for key in keys:
            if self.deleted.pop(key, None) is not None:
                self._to_drop.pop(key, None)
                self.build_again(key)

    def build_again(self, key: QueueKey) -> None:
        """Have this queue put aside, and built from the log."""
        self.note_missing(path := self.find_or_create(*key).queue.directory, damaged=path)

    def _take_out_deleted(self) -> list[LostQueue]:
        """Put aside the queues that are to be dropped, but for those that are put aside already."""
        taken: list[LostQueue] = []
        for key, before in [item for item in self._to_drop.items() if item[0] not in self.lost]:
            if len(taken) >= _TAKEN_OUT_AT_ONCE:
                break
            with suppress(StoreReadError):  # nobody can look there at present: it stays noted
                queue = self.find_or_create(*key) if key in self.stopped else self._queues.get(key)
                begins = self.deleted_end(*key)
                if queue and (queue.min_offset_in_queue < begins if queue.queue.files else key in self.stopped):
                    kept = queue.unit(begins)  # its master's log ended elsewhere, perhaps: some may lie before that
                    begins_at = min(before, queue.max_physic_offset if kept is None else kept[0])
                    lost = self._take_out(queue, queue.queue.directory, begins_at=begins_at)
                    lost.is_deleted, lost.first, lost.end = True, begins, max(begins, lost.end)
                    taken.append(lost)
                del self._to_drop[key]
        return taken

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if there ever was a message in it. Raises StoreReadError: at present nothing can be read of it."""
        if (lost := self.lost.get((topic, queue_id))) is not None:
            if lost.is_deleted:
                return None
            cause = OSError(
                errno.EAGAIN, "it was missing or damaged, and the queue is being built again from the log: try later"
            )
            raise StoreReadError(cause, operation="open", path=lost.path)
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

    def finish_erasing(self) -> None:
        """Erase what is left of units that were taken back; then all of it is durable. Raises StoreWriteError."""
        for queue in self:
            queue.erase_leftovers()
        self._erasing.remove()

    async def finish_erasing_in_turns(self) -> None:
        """As :meth:`finish_erasing`, while everybody else goes on. Raises StoreError."""
        for number, queue in enumerate(list(self)):
            queue.erase_leftovers()
            if number % _QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        self._erasing.remove()

    def correct_min_offset(self, phy_min_offset: int) -> None:
        """Make every queue forget, in memory, the records before ``phy_min_offset``."""
        for queue in self:
            queue.correct_min_offset(phy_min_offset)

    def next_offsets(self, start: int = 0, count: int | None = None) -> dict[QueueKey, int]:
        """For each queue the offset its next message will get: all, or a page of ``count`` queues from ``start`` on."""
        ends = ((key, self.range_of(*key)[1]) for key in self._keys[start : None if count is None else start + count])
        return {key: end if key in self.lost else self.stopped.next_of(key, end) for key, end in ends}

    def range_of(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first message of a queue that is still there, and the end; twice the end if there is none."""
        if self.lost and (lost := self.lost.get((topic, queue_id))) is not None:
            return lost.first, lost.end
        queue = self._queues.get((topic, queue_id))
        if queue is not None and queue.has_messages:
            if self.deleted and (begins := self.deleted_end(topic, queue_id)) > queue.min_offset_in_queue:
                return begins, max(begins, queue.max_offset_in_queue)
            return queue.min_offset_in_queue, queue.max_offset_in_queue
        end = max(self.known_ends.get((topic, queue_id), 0), queue.max_offset_in_queue if queue is not None else 0)
        return end, end

    def readable_range_of(self, topic: str, queue_id: int) -> tuple[int, int]:
        """As :meth:`range_of`; what has come to a deleted queue can be read when that has begun anew."""
        if self.lost and (lost := self.lost.get((topic, queue_id))) is not None and lost.is_deleted:
            return lost.first, lost.first
        return self.range_of(topic, queue_id)

    def ends_before(self, phy_offset: int, *, start: int, count: int) -> dict[QueueKey, int]:
        """Where each queue ended when the log ended at ``phy_offset``: a page of ``count`` queues from ``start`` on.

        Raises:
            StoreReadError: one of them cannot be read at present.
        """
        return {key: self._end_before(key, phy_offset) for key in self._keys[start : start + count]}

    def _end_before(self, key: QueueKey, phy_offset: int) -> int:
        queue = self.find(*key)
        if queue is not None and queue.has_messages:
            return queue.end_before(phy_offset)
        return self.range_of(*key)[1]

    def note_ends(self, ends: Mapping[QueueKey, int]) -> None:
        """Keep where queues ended before this log began: :attr:`known_ends`."""
        for key in ends:
            self._list(key)
        self.known_ends.update(ends)
        if ends:
            self.on_ends_noted()

    def _list(self, key: QueueKey) -> None:
        """Note a queue, before it is put anywhere; pages stay what they are, whatever becomes of it."""
        if key not in self._queues and key not in self.known_ends and key not in self.lost:
            self._keys.append(key)

    def begin_again(self, queue: ConsumeQueue) -> ConsumeQueue:
        """Drop a queue of which the log holds no message that counts; returns an empty one in its place.

        Before anything is written to that the files have to go: :attr:`dropped`.
        """
        key, had_messages = (queue.topic, queue.queue_id), queue.has_messages
        self.note_ends({key: max(self.known_ends.get(key, 0), queue.max_offset_in_queue)})
        self.dropped.take(queue.queue)
        self.dirty.pop(queue, None)
        if had_messages:
            self.on_begun_again(*key)
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
