"""The job: find what is new, have it written, check that the parts meet, commit."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pyarrow import fs

from rmqha.errors import ConfigError, CorruptLogError, StoreError
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.confirmed import confirmed_end
from rmqha.spark.options import OnCorrupt, ReadOptions
from rmqha.spark.partitions import check_end, check_start, plan_tasks, planned
from rmqha.spark.position import Anchor, PlannedEnd, Position, blank_behind, last_record_before
from rmqha.spark.queue_pruning import QueuePruning, count_topics
from rmqha.spark.replay.manifest import Manifest, differing_options, encode, kept_options
from rmqha.spark.replay.options import ReplayOptions
from rmqha.spark.replay.output import Output
from rmqha.spark.replay.report import Progress, ReplayDamageError, ReplayReport, TopicTotals, UnplacedFilesError
from rmqha.spark.replay.runner import Runner, start_spark
from rmqha.spark.replay.task import ALWAYS_READ, ReplayTask, TaskResult
from rmqha.spark.report import CorruptRange
from rmqha.spark.schema import select
from rmqha.spark.segments import open_filesystem, store_root

_TASK_BYTES_MIN: Final = 32 << 20
_TASK_BYTES_MAX: Final = 256 << 20
_TASKS_PER_CORE: Final = 4
_TASK_BYTES_OF_MANY_TOPICS: Final = 1 << 30
_FILE_BYTES_MIN: Final = 512 << 10
"""Log bytes of a topic in a task, on average: a file costs as much as some MiB that are written to one."""
_UNCONFIRMED: Final = "what follows is not known to be held by replicas"

OnProgress = Callable[[Progress], None]
Start = Callable[[str | None], Runner]


def replay(options: ReplayOptions, progress: OnProgress | None = None, *, start: Start = start_spark) -> ReplayReport:
    """Write everything that is new in the store since the last run into the same output; commit it as one.

    Args:
        options: what to read and where to write.
        progress: is called before Spark starts and as tasks finish, from this thread.
        start: makes what runs the tasks, of the master's name; not called if nothing is new.

    Raises:
        ConfigError: options contradict each other, or those of earlier runs; or there is no Spark, or no Java for it.
        StoreError: Spark failed; or nobody says what replicas hold; or the store cannot be read, is not the one of the
            earlier runs, lost what was to come next, or was cut meanwhile.
        ReplayDamageError: damage, unless ``on_corrupt`` says otherwise. Nothing is committed.
        UnplacedFilesError: all is committed, but some files have to be moved to their places by the next run.
    """
    if not options.out:
        raise ConfigError("the output's directory has no name")
    if not options.store:
        raise ConfigError("the store's path is empty")
    options = replace(options, store=_absolute(options.store), out=_absolute(options.out))
    if select(options.read.columns).names == ["topic"]:
        raise ConfigError("topic is the directory's name: name a column that is written to the files, too")
    _check_apart(options)
    output = Output(options.out)
    with output.locked():
        last = output.last_manifest()
        output.recover(last)
        log, confirmed, begin, end = planned(partial(_look, options, last))
        unfinished = log.unfinished if confirmed == log.end else _UNCONFIRMED
        report = ReplayReport(begin, end, unfinished=unfinished, is_first=last is None)
        if begin < end:
            anchor = last_record_before(log, end)
            with output.staging() as staging:
                runner = _started(options, report, progress or _nobody, start)
                tasks = _plan(options, log, staging, report=report, anchor=anchor, parallelism=runner.parallelism)
                results = _run(tasks, progress=progress or _nobody, runner=runner) if tasks else []
                if tasks and (planned_end := tasks[0].log.planned_end) is not None:
                    planned_end.check()
                output.check_staged(results)
                _add_up(report, results, options.read)
                report.topics_met |= QueuePruning(*open_filesystem(options.store), options.read).topics
                missing = [topic for topic in options.read.topics or () if topic not in report.topics]
                report.unmatched = [topic for topic in missing if not output.has_topic(topic)]
            if last is not None and last.end.lacks_files(log):
                report.corrupt.insert(0, CorruptRange(begin, log.min_offset, "deleted before it was replayed"))
            anchor = anchor if report.end == end else last_record_before(log, report.end)
            anchor = anchor or (last.end.anchor if last else None)
            manifest = encode(options, report, Position(report.end, anchor, blank_behind(log, report.end)))
            _commit(output, report, manifest)
    return report


def _commit(output: Output, report: ReplayReport, manifest: bytes) -> None:
    try:
        report.manifest = output.commit(report.begin, report.end, files=report.files, manifest=manifest)
    except UnplacedFilesError as error:
        report.manifest = output.path_of(report.begin, report.end)
        error.report = report
        raise


def _check_apart(options: ReplayOptions) -> None:
    """A broker would not start on a store with other files in it, and a reader of an output takes all below it."""
    (filesystem, named), (out_filesystem, out_named) = open_filesystem(options.store), open_filesystem(options.out)
    if not (isinstance(filesystem, fs.LocalFileSystem) and isinstance(out_filesystem, fs.LocalFileSystem)):
        return
    store, out = Path(named).resolve(), Path(out_named).resolve()
    around = Path(store_root(filesystem, str(store)))
    root = around if any((around / name).exists() for name in ("checkpoint", "config")) else store
    if out.is_relative_to(root):
        raise ConfigError(f"{out} is in the store {root}, where only its broker may write: choose another --out")
    if out.name == "_rmqha":  # a second run would take it for the other directory's notes
        raise ConfigError(f"{out} is named as the notes of an output are: choose another --out")
    for outer in out.parents:
        if (outer / "_rmqha").is_dir() and any(each.name != "lock" for each in (outer / "_rmqha").iterdir()):
            raise ConfigError(f"{out} is in the output {outer}, which would have it twice: choose another --out")


def _absolute(path_or_uri: str) -> str:
    """Tasks may run elsewhere than in this directory."""
    return path_or_uri if "://" in path_or_uri else os.path.abspath(path_or_uri)  # noqa: PTH100 - strings, as URIs


def _look(options: ReplayOptions, last: Manifest | None) -> tuple[CommitLog, int, int, int]:
    """The log, up to where replicas hold it, and where this run begins and ends."""
    log = open_log(options.store)
    confirmed = confirmed_end(log, options.masters)
    begin, end = _range(options, last, log, confirmed=confirmed)
    check_end(log, options.read.ending_offset, instead="leave --to-offset out to replay what is there")
    return log, confirmed, begin, end


def _range(options: ReplayOptions, last: Manifest | None, log: CommitLog, *, confirmed: int) -> tuple[int, int]:
    """Where this run begins and ends."""
    if last is None:
        check_start(log, options.read.starting_offset)
        begin, end = log.range_of(options.read)
        return begin, max(begin, min(end, confirmed))
    if options.read.starting_offset is not None or options.read.starting_timestamp_ms is not None:
        raise ConfigError(
            f"{options.out} already holds messages up to {last.end.offset}; a start is for the first run only"
        )
    if kept_options(options) != last.options:
        raise ConfigError(
            f"{options.out} was written with other options ({differing_options(options, last.options)}): "
            "use the same ones, or another --out"
        )
    problem = last.end.problem(log)
    if problem and last.end.lacks_files(log):
        if not options.allow_gap:
            raise StoreError(
                f"{options.out} ends at {last.end.offset}, but of {log.uri} {problem} before they were replayed; "
                "--allow-gap goes on without them"
            )
    elif problem:
        raise StoreError(
            f"{log.uri} is not the log that was replayed up to {last.end.offset}: {problem}; choose another --out"
        )
    _, end = log.range_of(replace(options.read, starting_offset=None, starting_timestamp_ms=None))
    return last.end.offset, max(last.end.offset, min(end, confirmed))


def _nobody(_progress: Progress) -> None:
    """Takes progress if nobody else does."""


def _started(options: ReplayOptions, report: ReplayReport, progress: OnProgress, start: Start) -> Runner:
    progress(Progress(0, report.end - report.begin, 0, "starting Spark"))
    runner = start(options.master)
    report.master = runner.master
    return runner


def _run(tasks: list[ReplayTask], *, progress: OnProgress, runner: Runner) -> list[TaskResult]:
    """Every task's result, in log order."""
    total, messages, done, results = sum(task.log.size for task in tasks), 0, 0, list[TaskResult]()
    for outcome in runner.run(tasks):
        if isinstance(outcome, TaskResult):
            results.append(outcome)
            messages += outcome.read.messages
        done = max(done, outcome if isinstance(outcome, int) else len(results))
        progress(Progress(total * done // len(tasks), total, messages, "replaying"))
    return sorted(results, key=lambda result: result.read.begin)


def _plan(
    options: ReplayOptions,
    log: CommitLog,
    staging: str,
    *,
    report: ReplayReport,
    anchor: Anchor | None,
    parallelism: int,
) -> list[ReplayTask]:
    """Some tasks for each core. Damage is collected first and judged at the end, so that all of it is reported."""
    read = options.read
    written = tuple(name for name in select(read.columns).names if name != "topic")
    needed = (*written, *(name for name in ALWAYS_READ if name not in written))
    mode = OnCorrupt.SKIP if read.on_corrupt is OnCorrupt.FAIL else read.on_corrupt
    logs = plan_tasks(
        log,
        report.begin,
        report.end,
        options=replace(read, columns=needed, on_corrupt=mode),
        split_bytes=_task_bytes(
            report.end - report.begin, parallelism, topics=count_topics(*open_filesystem(options.store), read)
        ),
        planned_end=PlannedEnd.of(log, anchor),
    )
    return [ReplayTask(task, staging, options.format, written) for task in logs]


def _task_bytes(total: int, parallelism: int, *, topics: int) -> int:
    """Of the log, in a task. Each writes a file for each topic: where these are many, there is one task a core."""
    size = min(max(total // (parallelism * _TASKS_PER_CORE), _TASK_BYTES_MIN), _TASK_BYTES_MAX)
    tasks = max(parallelism, total // max(topics * _FILE_BYTES_MIN, 1))
    return max(size, min(math.ceil(total / tasks), _TASK_BYTES_OF_MANY_TOPICS))


def _unread(report: ReplayReport, results: list[TaskResult]) -> list[CorruptRange]:
    """What lies between the parts that were read, or behind the last one: a task found no record there."""
    found = list[CorruptRange]()
    read = [result.read for result in results if result.read.first is not None]
    begins = [*(part.first or 0 for part in read[1:]), report.end]
    for end, begin in zip([part.next for part in read], begins, strict=bool(read)):
        if end < begin:
            found.append(CorruptRange(end, begin, "no record begins here"))
    return found


def _add_up(report: ReplayReport, results: list[TaskResult], read: ReadOptions) -> None:
    """Totals of all tasks; their parts of the log must meet.

    Raises:
        ReplayDamageError: there is damage and the job was not told to leave it out.
        CorruptLogError: two tasks disagree about where a record begins, which sound logs cannot cause.
    """
    report.corrupt = sorted(damage for result in results for damage in result.read.corrupt)
    stopped = bool(report.corrupt) and read.on_corrupt is OnCorrupt.STOP
    report.corrupt = report.corrupt if stopped else sorted([*report.corrupt, *_unread(report, results)])
    if report.corrupt and read.on_corrupt is OnCorrupt.FAIL:
        raise ReplayDamageError(report.corrupt)
    position: int | None = None
    for result in results:
        first = result.read.first
        if position is not None and first is not None and first < position and not report.corrupt:
            raise CorruptLogError(position, f"the next part of the log begins at {first}")
        if first is not None:
            position = result.read.next
        report.records += result.read.records
        report.messages += result.read.messages
        report.not_inflated += result.read.not_inflated
        report.deleted += result.read.deleted
        report.system += result.read.system
        report.bytes_asked_for += result.read.bytes_asked_for
        report.bytes_read += result.read.bytes_read
        report.topics_met |= result.read.topics_met
        report.files += result.files
        for topic, totals in result.topics.items():
            report.topics.setdefault(topic, TopicTotals()).add(totals)
    report.end = results[-1].read.next if stopped else max(report.end, position or 0)
