"""Decide from where the consume queues have to be built again at a start.

RocketMQ starts dispatch behind the newest unit of any queue, so that a lost queue comes back only in part. Here each
segment of the log is checked against all queues: the sizes in the units of its records, added up, must lead exactly to
the segment's blank (or to the log's end). Only a segment where they do not is read record by record.

Source: spec: commitlog §7.2 (traps), §7.3.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import Final

from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.layout import enters_queue
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue

_PIECE_BYTES: Final = 16 * 1024 * 1024
"""More than any record has."""


def recover_consume_queues(table: ConsumeQueueTable, log: MappedFileQueue, *, rebuild_from: int) -> int:
    """Take the queues back to what is right; returns the offset from which the log has to be dispatched.

    Afterwards :meth:`ConsumeQueueTable.finish_erasing` has to be called.

    Args:
        table: the queues, loaded.
        log: the commitlog, recovered.
        rebuild_from: dispatch at least from here: after a crash ``LogRecovery.scanned_from``, else the log's end.

    Raises:
        StoreWriteError: the queues are not cut.
    """
    table.cut(log.max_offset)
    table.correct_min_offset(log.min_offset)
    dispatch_from = min(first_uncovered(table, log), max(rebuild_from, log.min_offset))
    if dispatch_from < log.max_offset:
        table.take_back(dispatch_from)
    return dispatch_from


def empty_queues_of(table: ConsumeQueueTable, log: MappedFileQueue) -> bool:
    """Empty every queue that the log can build again; one whose messages are all gone keeps its end.

    Returns:
        False, with nothing changed, if the log itself has gaps in a queue: no queues would fit it.

    Raises:
        StoreWriteError: the queues are not empty.
    """
    next_offsets: dict[QueueKey, int] = {}
    for mapped in log.files:
        for request in read_all(mapped):
            if not enters_queue(request.sys_flag):
                continue
            key = (request.topic, request.queue_id)
            if next_offsets.get(key, request.queue_offset) != request.queue_offset:
                return False
            next_offsets[key] = request.queue_offset + 1
    for topic, queue_id in next_offsets:
        queue = table.find(topic, queue_id)
        if queue is not None:
            queue.empty()
    return True


def first_uncovered(table: ConsumeQueueTable, log: MappedFileQueue) -> int:
    """Where the first segment begins of which some record is in no queue; the log's end if there is none."""
    covered = [0] * len(log.files)
    for queue in table:
        _add_sizes(queue, log, covered=covered)
    for mapped, size_bytes in zip(log.files, covered, strict=True):
        if not (_is_end_of_records(mapped, size_bytes) or _is_in_queues(mapped, table)):
            return mapped.file_from_offset
    return log.max_offset


def _add_sizes(queue: ConsumeQueue, log: MappedFileQueue, *, covered: list[int]) -> None:
    """Add to each segment's number the sizes of the records that this queue knows in it."""
    low, end = queue.min_offset_in_queue, queue.max_offset_in_queue
    while low < end:
        index = (_phy_offset(queue, low) - log.min_offset) // log.file_size
        if not 0 <= index < len(log.files):
            return  # this unit leads nowhere: some segment will lack a record
        segment_end = log.files[index].end_offset
        high = end
        if _phy_offset(queue, end - 1) >= segment_end:
            high = bisect_left(range(end), segment_end, low + 1, end, key=lambda i: _phy_offset(queue, i))
        covered[index] += queue.sum_of_sizes(low, high)
        low = high


def _phy_offset(queue: ConsumeQueue, index: int) -> int:
    unit = queue.unit(index)
    assert unit is not None, "between the ends"
    return unit[0]


def _is_end_of_records(mapped: MappedFile, position: int) -> bool:
    """Whether ``position`` is where the records of this segment end."""
    if position == mapped.wrote_position:
        return True
    if not mapped.is_full or not 0 <= position <= mapped.size:
        return False
    scan = scan_records(
        mapped.view, position, mapped.size, phy_offset_base=mapped.file_from_offset, file_end=mapped.size
    )
    return scan.end == position and scan.stop is Stop.BLANK


def _is_in_queues(mapped: MappedFile, table: ConsumeQueueTable) -> bool:
    """Whether each record of this segment has its unit. PREPARED and ROLLBACK records have none."""
    end = 0
    for request in read_all(mapped):
        if not _is_in_queue(request, table):
            return False
        end = request.commit_log_offset - mapped.file_from_offset + request.msg_size
    return _is_end_of_records(mapped, end)


def _is_in_queue(request: DispatchRequest, table: ConsumeQueueTable) -> bool:
    if not enters_queue(request.sys_flag):
        return True
    queue = table.find(request.topic, request.queue_id)
    unit = None if queue is None else queue.unit(request.queue_offset)
    return unit is not None and unit[:2] == (request.commit_log_offset, request.msg_size)


def read_all(mapped: MappedFile, start: int = 0) -> Iterator[DispatchRequest]:
    """The records from position ``start`` on, decoded in pieces: a segment may hold millions."""
    return chain.from_iterable(read_pieces(mapped, start, piece_bytes=_PIECE_BYTES))


def read_pieces(mapped: MappedFile, start: int, *, piece_bytes: int) -> Iterator[list[DispatchRequest]]:
    """As :func:`read_all`, what about ``piece_bytes`` hold at a time, or one record that is larger."""
    while True:
        requests, end = _read_piece(mapped, start, piece_bytes)
        if end == start:
            requests, end = _read_piece(mapped, start, _PIECE_BYTES)
        if end == start:
            return
        yield requests
        start = end


def _read_piece(mapped: MappedFile, start: int, piece_bytes: int) -> tuple[list[DispatchRequest], int]:
    piece_end = min(start + piece_bytes, mapped.wrote_position)
    return read_dispatch(mapped.view, start, piece_end, phy_offset_base=mapped.file_from_offset)
