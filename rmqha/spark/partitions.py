"""Tasks of a scan: which splits each of them reads, and the reading itself."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

import pyarrow as pa

from rmqha.errors import ConfigError, CorruptLogError, StoreError
from rmqha.spark.commit_log import CommitLog, without_range
from rmqha.spark.decoder import Split, decode
from rmqha.spark.deleted import Deleted
from rmqha.spark.options import SPLIT_BYTES, OnCorrupt, ReadOptions
from rmqha.spark.position import PlannedEnd, Position, blank_behind
from rmqha.spark.queue_pruning import QueuePruning
from rmqha.spark.report import ReadReport
from rmqha.spark.segments import open_filesystem
from rmqha.spark.selection import is_wanted_topic

T = TypeVar("T")
logger = logging.getLogger("rmqha.spark")

_SHARE_MIN: Final = 32 << 20
TASKS_MAX: Final = 1_000_000
"""Planning more would take the driver minutes, and Spark a day."""
_PLANNED_TIMES: Final = 5
_GO_ON: Final = "failOnDataLoss=false (a new run of rmqha replay: --allow-gap) goes on without them"


@dataclass(frozen=True)
class LogTask:
    """What one task reads: neighbouring splits of one log. Travels to the worker.

    Attributes:
        planned_end: of all tasks together; None: who planned them sees for himself that the log was not cut.
    """

    uri: str
    splits: tuple[Split, ...]
    options: ReadOptions
    deleted: Deleted = field(default_factory=dict)
    planned_end: PlannedEnd | None = None

    @property
    def size(self) -> int:
        """Log bytes to read."""
        return sum(split.end - split.begin for split in self.splits)


def share_of(total: int, *, cores: int) -> int:
    """Log bytes of a task, unless told: what each core has to do of all, within what is worth a task's 50 ms.

    Source: Spark's FilePartition.maxSplitBytes, by which its own files are split, with another least size.
    """
    return min(max(math.ceil(total / cores), _SHARE_MIN), SPLIT_BYTES)


def plan_tasks(
    log: CommitLog,
    begin: int,
    end: int,
    *,
    options: ReadOptions,
    split_bytes: int,
    tasks_min: int = 1,
    planned_end: PlannedEnd | None = None,
) -> list[LogTask]:
    """Tasks that together read ``[begin, end)``, each at most ``split_bytes``; small files share a task.

    ``on_corrupt=stop`` means the first damage in log order, so that is one task.

    Raises:
        ConfigError: there would be more than :data:`TASKS_MAX`.
    """
    if end == log.end and log.unfinished:
        logger.info("commit_log.unfinished: %r is read up to %d: %s", log.uri, end, log.unfinished)
    if options.on_corrupt is OnCorrupt.STOP:
        splits = tuple(log.splits(begin, end, split_bytes=max(1, end - begin)))
        groups = [splits] if splits else []
    else:
        size = max(1, min(split_bytes, math.ceil((end - begin) / tasks_min)))
        if (count := (end - begin) // size) > TASKS_MAX:
            what = f"{size} log bytes a task (splitBytes, minPartitions) make {count} tasks of {end - begin}"
            raise ConfigError(f"{what}, more than {TASKS_MAX}: give larger parts")
        groups = list(_pack(log.splits(begin, end, split_bytes=size), size))
    deleted = _deleted(log, begin, options)
    return [LogTask(log.uri, group, without_range(options), deleted, planned_end) for group in groups]


def _deleted(log: CommitLog, begin: int, options: ReadOptions) -> Deleted:
    """What concerns this range and these topics: each task carries it."""
    deleted = log.deleted(options).items()
    return {topic: one for topic, one in deleted if one.before > begin and is_wanted_topic(topic, options)}


def _pack(splits: Iterable[Split], size: int) -> Iterator[tuple[Split, ...]]:
    group: list[Split] = []
    held = 0
    for split in splits:
        if group and held + split.end - split.begin > size:
            yield tuple(group)
            group, held = [], 0
        group.append(split)
        held += split.end - split.begin
    if group:
        yield tuple(group)


def planned(plan: Callable[[], T]) -> T:
    """What ``plan`` gives, which lists the files of logs: again, if one expires before it is looked into.

    Raises:
        StoreError: one went each time.
    """
    for _ in range(_PLANNED_TIMES):
        try:
            return plan()
        except FileNotFoundError as error:
            gone = error
    raise StoreError(f"{_PLANNED_TIMES} times a file went while the read was planned, the last time: {gone}") from gone


def read_task(task: LogTask, report: ReadReport, *, fail_on_data_loss: bool = True) -> Iterator[pa.RecordBatch]:
    """The task's messages. Damage that is skipped is logged with its offsets, as Spark has no better place for it.

    Raises:
        StoreError: a file has been deleted, or the log cut, since the scan was planned, and ``fail_on_data_loss``.
    """
    filesystem, path = open_filesystem(task.uri)
    pruning = QueuePruning(filesystem, path, task.options)
    report.begin = task.splits[0].begin
    for split in task.splits:
        try:
            yield from decode(filesystem, (split,), task.options, deleted=task.deleted, report=report, pruning=pruning)
        except FileNotFoundError as error:
            lost = f"physical offsets [{split.begin}, {split.end}) were deleted before they were read: {error}"
            if fail_on_data_loss:
                raise StoreError(f"{lost}; {_GO_ON}") from error
            logger.warning("commit_log.data_lost: %r lacks [%d, %d)", task.uri, split.begin, split.end)
        except CorruptLogError as error:
            if fail_on_data_loss and (why_cut := _why_cut(task)):  # what lies there since is no damage
                raise StoreError(why_cut) from error
            raise
        if report.corrupt and task.options.on_corrupt is OnCorrupt.STOP:
            break
    if why_cut := _why_cut(task):
        if fail_on_data_loss:
            raise StoreError(why_cut)
        logger.warning("commit_log.data_lost: rows may be of two logs: %s", why_cut)
    if pruning.is_possible:
        logger.info("consume_queues.used: %d of %d bytes read", report.bytes_read, report.bytes_asked_for)
    for damage in report.corrupt:
        logger.warning("commit_log.corrupt_skipped: %r: %r", task.uri, damage)


def _why_cut(task: LogTask) -> str:
    """That the log was cut since the scan was planned; empty: it was not, as far as is seen."""
    try:
        if task.planned_end is not None:
            task.planned_end.check()
    except StoreError as error:
        return str(error)
    return ""


def check_still_there(log: CommitLog, begin: Position, *, fail_on_data_loss: bool) -> int:
    """Where to read on: the position's offset, or, if loss is accepted, the nearest one at which the log goes on.

    A DLedger member that holds it, and knows less to be committed, has nothing new yet.

    Raises:
        StoreError: the log begins after, ends before, or has another record before it, and ``fail_on_data_loss``.
    """
    if begin.is_ahead_of(log):
        _tell_that_it_knows_less(log.uri, _knows_less(log, begin.offset))
        return begin.offset
    nearest = min(max(begin.offset, log.min_offset), log.end)
    if not (problem := begin.problem(log)):
        return nearest
    problem = f"{log.uri} holds [{log.min_offset}, {log.end}), reading was to go on at {begin.offset}, but {problem}"
    if fail_on_data_loss:
        raise StoreError(f"{problem}; failOnDataLoss=false goes on with what is there")
    logger.warning("commit_log.data_lost: %r", problem)
    return log.start_at(nearest)


def check_start(log: CommitLog, start: int | None) -> None:
    """That a start that was asked for does not lie behind the log's end; None: none was.

    Raises:
        StoreError: it does.
    """
    begin = 0 if start is None else log.record_of(start)
    if begin > log.end and not Position(begin).is_ahead_of(log):
        raise StoreError(f"{log.uri} ends at {log.end}, before offset {start}: it was cut, or is another log")


def check_end(log: CommitLog, end: int | None, *, fail_on_data_loss: bool = True, instead: str) -> None:
    """That an end that was asked for, as a record's or an entry's offset, lies within what the log holds.

    The blank behind its last record counts as held; None: none was asked for.

    Raises:
        StoreError: the log ends before, or begins behind it, and ``fail_on_data_loss``; ``instead``: what to do then.
    """
    if end is None or log.min_offset <= (asked := log.record_of(end)) <= max(log.end, blank_behind(log, log.end) or 0):
        return
    problem = f"{log.uri} holds [{log.min_offset}, {log.end}), reading was to end at {end}, but "
    if asked < log.min_offset:
        problem += f"it begins at {log.min_offset}: the files before were deleted"
    elif Position(asked).is_ahead_of(log):
        problem += _knows_less(log, asked)
    else:
        problem += f"it ends at {log.end}: the log has been cut or replaced, or has not come so far"
    if fail_on_data_loss:
        raise StoreError(f"{problem}; {instead}")
    logger.warning("commit_log.data_lost: %s", problem)


@lru_cache(maxsize=16)
def _tell_that_it_knows_less(uri: str, told: str) -> None:
    """Once, not at each trigger: a copy stays as it is."""
    logger.warning("commit_log.knows_less: %r: %s", uri, told)


def _knows_less(log: CommitLog, offset: int) -> str:
    return (
        f"this DLedger member holds what lies before {offset}, but knows only what lies before {log.end} to be "
        "committed, so nothing more is read of it yet; while it runs it knows more in a few seconds: try again then"
    )
