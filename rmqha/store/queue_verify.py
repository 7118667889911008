"""Check the consume queues against the log: every record has its unit, and every unit its record."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from rmqha.codec.consume_queue import FILLER_SIZE, UNIT_SIZE
from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.layout import SCHEDULE_TOPIC, enters_queue
from rmqha.codec.record.resync import find_record
from rmqha.errors import CorruptLogError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.disk import Disk
from rmqha.store.log_reader import LogReader, Segment
from rmqha.store.log_verify import PROBLEMS_MAX, Problem
from rmqha.store.mapped_file import LOST_AND_FOUND
from rmqha.store.open_files import OpenFiles

_ROUND_BYTES = 1 << 20
OPEN_FILES_MAX = 256
"""Of queues and log: a process of a shell may have a thousand."""

Entries = tuple[int, Iterable[DispatchRequest]]
"""Where a log begins, and its messages."""


@dataclass(slots=True)
class QueueVerification:
    """What :func:`verify_queues` found."""

    queues: int = 0
    units: int = 0
    """Units that agree with their record."""
    behind: int = 0
    """Records behind everything that is in any queue: not dispatched yet, a start does that."""
    problems: list[Problem] = field(default_factory=list)


def verify_queues(
    disk: Disk,
    log_directory: str,
    queue_directory: str,
    *,
    deleted: Mapping[QueueKey, DeletedQueue] | None = None,
    list_entries: Callable[[OpenFiles], Entries] = lambda _: (0, ()),
) -> QueueVerification:
    """Compare all queues below ``queue_directory`` with the log. Reads only; a broker may be writing.

    Args:
        disk: where all of it is.
        log_directory: of the log's segments; there may be none.
        queue_directory: of the queues.
        deleted: what needs no unit.
        list_entries: called once the queues are loaded, so that a file which is begun meanwhile is read, too: where
            another log begins, which follows behind that one, and its messages; it opens files in what it is given.

    Raises:
        StoreReadError: a directory or a file cannot be read.
    """
    size = queue_file_size(disk, queue_directory)
    if size == 0:
        return QueueVerification()
    with closing(OpenFiles(OPEN_FILES_MAX)) as open_files:
        try:
            # A broker may dispatch meanwhile: what lies before this is in the queues now, and so in those loaded next.
            dispatched = _load(disk, queue_directory, size, open_files).max_physic_offset
            table = _load(disk, queue_directory, size, open_files)
        except CorruptLogError as error:
            return QueueVerification(problems=[Problem(queue_directory, 0, error.offset, error.reason)])
        entries_begin, entries = list_entries(open_files)
        with LogReader(disk, log_directory, open_files=open_files) as reader:
            table.correct_min_offset(reader.min_offset if reader.segments else entries_begin)
            comparison = _Comparison(table, queue_directory, dispatched=dispatched, deleted=deleted or {})
            for request in chain(_requests(reader), entries):
                comparison.add(request)
                if len(comparison.found.problems) >= PROBLEMS_MAX:
                    return comparison.found
            comparison.finish()
            return comparison.found


def _load(disk: Disk, directory: str, file_size: int, open_files: OpenFiles) -> ConsumeQueueTable:
    table = ConsumeQueueTable(disk, directory, file_size=file_size, open_files=open_files)
    table.load(writable=False)
    return table


def queue_file_size(disk: Disk, directory: str) -> int:
    """Size of the queues' files, which are all of one size; 0 if there are none.

    An empty one was left by a crash while it was made: it says nothing about the others.
    """
    for topic in disk.listdir(directory):
        if topic == LOST_AND_FOUND:
            continue
        for queue_id in disk.listdir(f"{directory}/{topic}"):
            for name in disk.listdir(f"{directory}/{topic}/{queue_id}"):
                if size := disk.file_size(f"{directory}/{topic}/{queue_id}/{name}"):
                    return size
    return 0


def _requests(reader: LogReader) -> Iterator[DispatchRequest]:
    """Every readable record of the log; what is bad is :func:`~rmqha.store.log_verify.verify_log`'s to tell."""
    for segment in reader.segments:
        at: int | None = 0
        while at is not None:
            end = yield from _requests_from(segment, at)
            at = find_record(segment.view(), end, segment.size, phy_offset_base=segment.offset)


def _requests_from(segment: Segment, at: int) -> Generator[DispatchRequest, None, int]:
    """The records from position ``at`` on, up to the first that is not readable; returns where that is."""
    view, size = segment.view(), segment.size
    while True:
        total = int.from_bytes(view[at : at + 4], "big", signed=True)
        end = min(size, at + max(total, _ROUND_BYTES))
        requests, end = read_dispatch(view, at, end, phy_offset_base=segment.offset)
        if not requests:
            return end
        yield from requests
        at = end


def _lies_before_its_0th(request: DispatchRequest, queue: ConsumeQueue | None) -> bool:
    first = None if queue is None else queue.unit(0)
    return first is not None and first[1] != FILLER_SIZE and request.commit_log_offset < first[0]


class _Comparison:
    """Records against units, in the order of the log."""

    def __init__(
        self,
        table: ConsumeQueueTable,
        directory: str,
        *,
        dispatched: int,
        deleted: Mapping[QueueKey, DeletedQueue],
    ) -> None:
        self.found = QueueVerification(queues=sum(queue.has_units for queue in table))
        self._table = table
        self._directory = directory
        self._dispatched = dispatched
        self._deleted = deleted
        self._seen: Counter[QueueKey] = Counter()
        self._lacking: set[QueueKey] = set()
        self._outlived: dict[QueueKey, DispatchRequest] = {}
        """The first record of each queue that lies before what may be its 0th message, until that has come."""

    def add(self, request: DispatchRequest) -> None:
        """Compare one record with its unit."""
        if not enters_queue(request.sys_flag):
            return
        key = (request.topic, request.queue_id)
        queue = self._table.find(*key)
        unit = None if queue is None else queue.unit(request.queue_offset)
        deleted = self._deleted.get(key)
        is_deleted = deleted is not None and deleted.holds(request.queue_offset, request.commit_log_offset)
        if is_deleted and (unit is None or unit[1] == FILLER_SIZE or _lies_before_its_0th(request, queue)):
            return
        wanted = (request.commit_log_offset, request.msg_size, request.tags_code)
        if unit == wanted or (request.topic == SCHEDULE_TOPIC and unit is not None and unit[:2] == wanted[:2]):
            self.found.units += 1  # a delivery time depends on messageDelayLevel, which is not known here
            self._seen[key] += 1
            if request.queue_offset == 0:
                self._outlived.pop(key, None)
        elif _lies_before_its_0th(request, queue):
            self._outlived.setdefault(key, request)
        elif unit is None:
            self._lacks(request, key)
        else:
            self._seen[key] += 1
            self._problem(key, request.queue_offset, f"the unit is {unit}, but the record says {wanted}")

    def _lacks(self, request: DispatchRequest, key: QueueKey) -> None:
        """Not dispatched yet, unless records behind it were. One problem a queue says enough."""
        if request.commit_log_offset >= self._dispatched:
            self.found.behind += 1
        elif key not in self._lacking:
            self._lacking.add(key)
            reason = f"the record at physical offset {request.commit_log_offset} has no unit"
            self._problem(key, request.queue_offset, reason)

    def finish(self) -> None:
        """Look for units that no record has asked for, and queues that only seem to have begun anew."""
        for key, request in self._outlived.items():
            self._lacks(request, key)
        for queue in self._table:
            key = (queue.topic, queue.queue_id)
            end = queue.max_offset_in_queue
            surplus = end - queue.min_offset_in_queue - self._seen[key]
            if surplus > 0:
                self._problem(key, end - surplus, f"{surplus} units point at no record")

    def _problem(self, key: QueueKey, queue_offset: int, reason: str) -> None:
        path = f"{self._directory}/{key[0]}/{key[1]}"
        self.found.problems.append(Problem(path, queue_offset * UNIT_SIZE, queue_offset, reason))
