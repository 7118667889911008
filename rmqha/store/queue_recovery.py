"""Decide from where the consume queues have to be built again at a start.

RocketMQ starts dispatch behind the newest unit of any queue, so that a lost queue comes back only in part. Here each
extent of the log (a segment) is checked against all queues: the sizes in the units of its records, added up, must be
just what it holds. Only where they are not, it is read record by record.

Source: spec: commitlog §7.2 (traps), §7.3.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import structlog

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX, UNIT_SIZE
from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.layout import enters_queue
from rmqha.errors import CorruptLogError, ForeignRecordError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.log import Extent, Log
from rmqha.store.outlived import beginning_of, may_stop
from rmqha.store.stopped_queues import StoppedQueue, stop_before
from rmqha.store.unit_group import UnitGroup

logger = structlog.get_logger()

_NAMED_MAX: Final = 10
_NEXT: Final = "their files are other queues', moved there by hand: all queues are built again from the log"


def recover_consume_queues(table: ConsumeQueueTable, log: Log, *, rebuild_from: int) -> int:
    """Take the queues back to what is right; returns the offset from which the log has to be dispatched.

    Afterwards :meth:`ConsumeQueueTable.finish_erasing` has to be called.

    Args:
        table: the queues, loaded.
        log: the commitlog, recovered.
        rebuild_from: dispatch at least from here: after a crash ``LogRecovery.scanned_from``, else the log's end.

    Raises:
        StoreWriteError: the queues are not cut.
        ForeignRecordError: dispatch would end before a record that is not read here; the queues are as they were.
    """
    table.cut(log.max_offset)
    table.correct_min_offset(log.min_offset)
    rebuild_from = max(rebuild_from, log.min_offset)
    dispatch_from = min(first_uncovered(table, log, rebuild_from=rebuild_from), rebuild_from)
    _refuse_foreign(log, dispatch_from, rebuild_from)
    if dispatch_from < log.max_offset:
        table.take_back(dispatch_from)
    return dispatch_from


def _holds_files_of_another(queue: ConsumeQueue, log: Log) -> bool:
    """Whether a file's last unit leads to a message of another queue, as if somebody had swapped their directories.

    Added up, the sizes would be right. A unit that leads nowhere, or is none, is left to those who add them up.
    """
    for mapped in queue.queue.files:
        index = mapped.wrote_offset // UNIT_SIZE - 1
        unit = queue.unit(index) if index >= queue.min_offset_in_queue else None
        record = None if unit is None else log.record_at(unit[0], end=log.max_offset)
        if unit is None or record is None or len(record) != unit[1]:
            continue
        requests, _ = read_dispatch(record, 0, len(record), phy_offset_base=unit[0])
        place = (queue.topic, queue.queue_id, index)
        if any((one.topic, one.queue_id, one.queue_offset) != place for one in requests):
            return True
    return False


def empty_queues_of(table: ConsumeQueueTable, log: Log) -> bool:
    """Empty every queue that the log can build again; one whose messages are all gone keeps its end.

    Returns:
        False, with nothing changed, if the log cannot all be read and has gaps in a queue: nothing else may tell of
        what lies there.

    Raises:
        StoreWriteError: the queues are not empty.
        ForeignRecordError: the log holds what is not read here. Nothing is changed.
    """
    next_offsets, has_gaps, is_whole = dict[QueueKey, int](), False, True
    for extent in log.extents():
        try:
            for request in chain.from_iterable(read_pieces(log, extent)):
                if not enters_queue(request.sys_flag):
                    continue
                key = (request.topic, request.queue_id)
                if request.queue_offset and next_offsets.get(key, request.queue_offset) != request.queue_offset:
                    has_gaps = True
                next_offsets[key] = request.queue_offset + 1
        except ForeignRecordError:
            raise
        except CorruptLogError:
            is_whole = False
    if has_gaps and not is_whole:
        return False
    for topic, queue_id in next_offsets:
        queue = table.find(topic, queue_id)
        if queue is not None:
            queue.empty()
    return True


def _refuse_foreign(log: Log, start: int, end: int) -> None:
    """Read what is to be dispatched and was not verified, the extents between ``start`` and ``end``.

    Raises ForeignRecordError. Damage is left to dispatch.
    """
    for extent in log.extents(start) if start < end else ():
        try:
            for _ in read_pieces(log, extent, start) if extent.begin < end else ():
                pass
        except ForeignRecordError:
            raise
        except CorruptLogError:
            continue


def first_uncovered(table: ConsumeQueueTable, log: Log, *, rebuild_from: int = 0) -> int:
    """Where the first extent begins of which some record is in no queue; the log's end if there is none.

    If a queue holds another one's files, all that the log can build again are emptied. What is hidden before
    ``rebuild_from``, and what has stopped there, is found here: dispatch will not meet it. Raises StoreWriteError.
    """
    extents = log.extents()
    covered, misplaced = [0] * len(extents), list[ConsumeQueue]()
    for queue in table:
        misplaced += [queue] if _holds_files_of_another(queue, log) else []
        _add_sizes(queue, extents, covered=covered)
    if misplaced and empty_queues_of(table, log):
        names = [f"{queue.topic}/{queue.queue_id}" for queue in misplaced]
        logger.warning("consume_queue.misplaced", count=len(names), queues=names[:_NAMED_MAX], next=_NEXT)
        for queue in misplaced:
            queue.empty()
        return log.min_offset
    comparison = _Comparison(table, log)
    for extent, size_bytes in zip(extents, covered, strict=True):
        if not (extent.holds_just(size_bytes) or comparison.finds(extent, rebuild_from)):
            comparison.note(min(extent.begin, rebuild_from))
            return extent.begin
    comparison.note(rebuild_from)
    return log.max_offset


def _add_sizes(queue: ConsumeQueue, extents: Sequence[Extent], *, covered: list[int]) -> None:
    """Add to each extent's number the sizes of the records that this queue knows in it."""
    low, end = queue.min_offset_in_queue, queue.max_offset_in_queue
    while low < end:
        place = _phy_offset(queue, low)
        index = bisect_right(extents, place, key=lambda extent: extent.begin) - 1
        if index < 0 or place >= extents[-1].end:
            return  # this unit leads nowhere: some extent will lack a record
        behind = extents[index + 1].begin if index + 1 < len(extents) else extents[index].end
        high = end
        if _phy_offset(queue, end - 1) >= behind:
            high = bisect_left(range(end), behind, low + 1, end, key=lambda i: _phy_offset(queue, i))
        covered[index] += queue.sum_of_sizes(low, high)
        low = high


def _phy_offset(queue: ConsumeQueue, index: int) -> int:
    unit = queue.unit(index)
    assert unit is not None, "between the ends"
    return unit[0]


class _Comparison:
    """Extents of which queues hold less, or more, record by record: deleted ones, for instance, have no unit."""

    def __init__(self, table: ConsumeQueueTable, log: Log) -> None:
        self._table: Final = table
        self._log: Final = log
        self._beginnings: Final[dict[QueueKey, int]] = {}
        self._hidden: Final[Counter[QueueKey]] = Counter()
        self._hidden_ends: Final[dict[QueueKey, int]] = {}
        self._stopped: dict[QueueKey, StoppedQueue] = {}

    def finds(self, extent: Extent, counted_before: int) -> bool:
        """Whether each record of this extent has its unit, if it is to have one; those that are hidden are counted."""
        hidden, stopped = Counter[QueueKey](), self._stopped.copy()
        try:
            for request in chain.from_iterable(read_pieces(self._log, extent)):
                if self._is_in_queue(request) or self._is_behind_a_stop(request, stopped):
                    continue
                key = request.topic, request.queue_id
                if request.commit_log_offset >= self._beginning_of(key):
                    return False
                hidden[key] += request.commit_log_offset < counted_before
                if request.queue_offset <= QUEUE_OFFSET_MAX:
                    self._hidden_ends[key] = max(self._hidden_ends.get(key, 0), request.queue_offset + 1)
        except CorruptLogError:
            return False
        self._hidden.update(hidden)
        self._stopped |= stopped
        return True

    def _is_behind_a_stop(self, request: DispatchRequest, stopped: dict[QueueKey, StoppedQueue]) -> bool:
        """Whether it is where its queue stopped, which ``stopped`` then tells, or behind."""
        key = request.topic, request.queue_id
        if (known := stopped.get(key)) is not None:
            return known.passes_over(request)
        queue = self._table.find(*key)
        if queue is None or not queue.has_units or request.queue_offset in {0, queue.max_offset_in_queue}:
            return False
        if request.commit_log_offset >= queue.max_physic_offset and may_stop(queue, self._log):
            stopped[key] = stop_before(request, UnitGroup(queue))
        return key in stopped

    def note(self, dispatch_from: int) -> None:
        """Tell the table what was found before that offset, where dispatch goes on, and finds the rest."""
        for key, stopped in self._stopped.items():
            if stopped.phy_offset < dispatch_from:
                self._table.stopped.note(key, stopped)
        for key, messages in self._hidden.items():
            before, end = min(self._beginnings[key], dispatch_from), self._hidden_ends.get(key, 0)
            self._table.hidden.note(key, messages, before=before, end=end)

    def _beginning_of(self, key: QueueKey) -> int:
        if key not in self._beginnings:
            self._beginnings[key] = beginning_of(self._table.find(*key), self._log)
        return self._beginnings[key]

    def _is_in_queue(self, request: DispatchRequest) -> bool:
        """Whether it has its unit, or is to have none."""
        if not enters_queue(request.sys_flag) or request.queue_id < 0:
            return True
        if self._table.deleted.holds(request):
            return True
        queue = self._table.find(request.topic, request.queue_id)
        unit = None if queue is None else queue.unit(request.queue_offset)
        return unit is not None and unit[:2] == (request.commit_log_offset, request.msg_size)


def read_pieces(log: Log, extent: Extent, start: int = 0) -> Iterator[list[DispatchRequest]]:
    """The records of an extent from ``start`` on, a piece at a time: there may be millions.

    Raises:
        CorruptLogError: something else than a record lies there, or one that is not whole.
        StoreReadError: the log cannot be read at present.
    """
    at = max(start, extent.begin)
    while at < extent.end:
        requests, behind = log.records(at, extent.end)
        if behind == at:
            raise CorruptLogError(at, "the record that begins here is longer than what is written")
        if requests:
            yield requests
        at = behind
