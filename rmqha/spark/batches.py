"""``iter_batches``: a commitlog as Arrow batches, for duckdb, polars, pandas or plain Python. No Spark, no broker."""

import sys
from collections.abc import Iterator

import pyarrow as pa

from rmqha.errors import CorruptLogError, StoreError
from rmqha.spark.commit_log import open_log
from rmqha.spark.decoder import decode
from rmqha.spark.options import ReadOptions
from rmqha.spark.partitions import check_end, check_start
from rmqha.spark.position import PlannedEnd, last_record_before
from rmqha.spark.queue_pruning import QueuePruning
from rmqha.spark.report import ReadReport
from rmqha.spark.segments import open_filesystem


def iter_batches(
    path_or_uri: str, options: ReadOptions | None = None, *, report: ReadReport | None = None
) -> Iterator[pa.RecordBatch]:
    """Read a store's messages in log order, as batches of some thousand rows; columns: ``schema.COLUMNS``.

    For example::

        report = ReadReport()
        options = ReadOptions(topics=("orders",), columns=("queueOffset", "body"))
        for batch in iter_batches("/data/s", options, report=report):
            print(batch.num_rows, "rows")
        later = ReadOptions(starting_offset=report.next)  # what came since

    The store may belong to a running broker: reading ends at the last record that is whole now, and disturbs nobody.

    Args:
        path_or_uri: a store's root or its commitlog directory; a local path or a URI that ``pyarrow.fs`` knows.
        options: filters, columns and what to do about damage.
        report: is filled while reading; ``report.next`` is where a later call continues.

    Raises:
        StoreError: there is no readable store; it ends before ``options.starting_offset`` or ``options.ending_offset``,
            or begins behind the latter;
            or, when all is read, it was cut meanwhile, as by a failover, or a file of it was deleted: begin again.
        CorruptLogError: the log is damaged and ``options.on_corrupt`` is ``fail``.
        ConfigError: options contradict each other.
    """
    options = options or ReadOptions()
    report = report if report is not None else ReadReport()
    log = open_log(path_or_uri)
    check_start(log, options.starting_offset)
    check_end(log, options.ending_offset, instead="leave ending_offset out to read to where it ends")
    begin, end = log.range_of(options)
    report.begin = report.next = begin
    report.unfinished = log.unfinished if end == log.end else ""
    splits, deleted = log.splits(begin, end, split_bytes=sys.maxsize), log.deleted(options)
    filesystem, path = open_filesystem(path_or_uri)
    pruning = QueuePruning(filesystem, path, options)
    planned_end = PlannedEnd.of(log, last_record_before(log, end)) if begin < end else None
    check_planned = planned_end.check if planned_end is not None else bool
    try:
        yield from decode(filesystem, splits, options, deleted=deleted, report=report, pruning=pruning)
    except CorruptLogError:
        check_planned()  # of a log that was cut it is no damage
        raise
    except FileNotFoundError as error:
        raise StoreError(
            f"{log.uri} lost a file before it was read, as old ones expire; begin again: {error}"
        ) from None
    check_planned()
