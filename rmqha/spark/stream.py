"""``spark.readStream.format("rmqha")``: an offset is a position in each broker's log, at a record's start.

Nothing is kept between calls but a cheap hint: after a crash, Spark asks for the same ranges again from its checkpoint,
and the log gives the same messages again.
"""

import logging
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as spark

from rmqha.errors import ConfigError, StoreError
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.confirmed import NoReplicaError
from rmqha.spark.datasource import LogPartition
from rmqha.spark.executors import check_here
from rmqha.spark.options import SPLIT_BYTES, OnCorrupt
from rmqha.spark.partitions import LogTask, check_still_there, plan_tasks, planned, read_task
from rmqha.spark.position import (
    PlannedEnd,
    Position,
    begin_of_first,
    first_as_json,
    from_json,
    position_at,
    range_as_json,
)
from rmqha.spark.report import ReadReport
from rmqha.spark.source_options import MAX_BYTES_PER_TRIGGER, SourceOptions

logger = logging.getLogger("rmqha.spark")

_NEWER: Final = "streams have it from Spark 4.2 on, and this is an older one: leave it out, or install pyspark>=4.2"
_BACKWARDS: Final = (
    "of {}, a batch that begins at {} was planned to end at {}: the DLedger member that was read then knew less to be "
    "committed than the one before it, and Spark 4.1 does not say where the last batch ended. Remove the newest file "
    "in the directory offsets of the checkpoint, and start the query again over a member that knows as much"
)
Offsets = dict[str, Any]
"""Broker name to :meth:`Position.as_json`, as checkpoints have it; those of rmqha 0.1 have physical offsets.

With the end of a batch is noted where it began, as Spark does not: of a query's first batch that did not get through it
asks anew where to start, and so it is with a broker that was added.
"""


class LogStreamReader(spark.DataSourceStreamReader):
    """Follows logs. Where a batch ends, its subclasses say."""

    def __init__(self, source: SourceOptions, columns: tuple[str, ...]) -> None:
        """Nothing is read yet.

        Raises:
            ConfigError: an end is asked for, or that damage ends what is read.
        """
        if source.read.on_corrupt is OnCorrupt.STOP:
            raise ConfigError(
                "onCorrupt=stop is for a batch: a stream would go on behind what it left out. Leave it out, and the "
                "query fails at damage, before that batch is written; or take skip"
            )
        if source.ending != "latest" or source.read.ending_timestamp_ms is not None:
            raise ConfigError(
                f"{'endingTimestamp' if source.ending == 'latest' else 'endingOffsets'} is for a batch, as a stream "
                "has no end: leave it out, and trigger(availableNow=True) ends the query with what is there now; or "
                "read up to there by spark.read"
            )
        self._source = source
        self._read = replace(source.read, columns=columns)
        self._known_ends: dict[str, Position] = {}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names, here and below
        """Where a new query starts; a restarted one goes on from its checkpoint.

        Raises:
            StoreError: nobody says what replicas hold, and that is to be asked for; or no slave has taken anything, and
                it is to start at the end of what they hold.
        """
        return planned(self._starts)

    def _starts(self) -> Offsets:
        starts = {}
        for broker, uri in self._source.logs.items():
            log = open_log(uri)
            begin = check_still_there(
                log, Position(self._first(broker, log)), fail_on_data_loss=self._source.fail_on_data_loss
            )
            starts[broker] = first_as_json(position_at(log, log.start_at(begin)))
        return starts

    def _first(self, broker: str, log: CommitLog) -> int:
        """Where a new query begins. While no slave has taken anything that is known but of ``latest`` and times."""
        try:
            return self._source.begin_of_stream(broker, log)
        except NoReplicaError as error:
            if self._source.read.starting_timestamp_ms is not None or self._source.starts_at_end_of(broker):
                raise
            logger.warning("commit_log.unconfirmed: nothing is read yet: %s", error)
            return replace(self._source, masters=None).begin_of_stream(broker, log)

    def _positions(self, offsets: Offsets) -> dict[str, Position]:
        """What a checkpoint has. Raises ConfigError: it is of other brokers, or nobody's."""
        if not isinstance(offsets, dict):
            raise ConfigError(f"the checkpoint has {reprlib.repr(offsets)} where a position for each broker is to be")
        if unknown := offsets.keys() - self._source.logs.keys():
            raise ConfigError(
                f"the checkpoint has broker {min(unknown)!r}, but only {', '.join(self._source.logs)} given"
            )
        return {broker: from_json(position) for broker, position in offsets.items()}

    def _begins(self, start: Offsets) -> dict[str, Position]:
        """Where each broker's log is to be read on; one that the checkpoint does not know yet, from its oldest file."""
        known = self._positions(start)
        return {broker: known.get(broker) or Position(self._log(broker).min_offset) for broker in self._source.logs}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[LogPartition]:
        """Tasks that read exactly ``[start, end)``, wherever files have rolled since.

        A batch that is repeated is cut the same, on however many cores: a sink may know rows again by their task.
        """
        return planned(lambda: self._plan(start, end))

    def _plan(self, start: Offsets, end: Offsets) -> Sequence[LogPartition]:
        tasks: list[LogTask] = []
        begins = self._begins(start)
        for broker, known_end in self._positions(end).items():
            log = self._log(broker)
            begun = begin_of_first(start.get(broker), end[broker]) or begins[broker]
            begin = check_still_there(log, begun, fail_on_data_loss=self._source.fail_on_data_loss)
            stop = check_still_there(log, known_end, fail_on_data_loss=self._source.fail_on_data_loss)
            if stop < begin and log.is_committed and self._source.fail_on_data_loss:
                raise StoreError(_BACKWARDS.format(log.uri, begin, stop))
            log = replace(log, end=max(log.end, stop))  # what was planned of another member is committed
            options = replace(self._read, broker_name=broker)
            split_bytes, tasks_min = self._source.split_bytes or SPLIT_BYTES, self._source.partitions_min
            tasks += plan_tasks(
                log,
                begin,
                stop,
                options=options,
                split_bytes=split_bytes,
                tasks_min=tasks_min,
                planned_end=PlannedEnd.of(log, known_end.anchor),
            )
        return [LogPartition(task) for task in tasks]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's batches."""
        assert isinstance(partition, LogPartition)
        check_here(partition.packages)
        return read_task(partition.task, ReadReport(), fail_on_data_loss=self._source.fail_on_data_loss)

    def _log(self, broker: str) -> CommitLog:
        uri, known = self._source.logs[broker], self._known_ends.get(broker)
        log = open_log(uri, known_end=None if known is None else known.offset)
        was_cut = known is not None and (log.end < known.offset or bool(known.problem(log)))
        if was_cut:
            log = open_log(uri)
        if known is None or was_cut or log.end != known.offset:
            self._known_ends[broker] = position_at(log, log.end)
        return log


class UnlimitedStreamReader(LogStreamReader):
    """A batch ends with the last whole record. Spark 4.1 neither limits it nor says where the last one ended."""

    def __init__(self, source: SourceOptions, columns: tuple[str, ...]) -> None:
        """As any.

        Raises:
            ConfigError: a limit is asked for, or what replicas hold: where there are none for a moment, a batch would
                have to end where the last one did.
        """
        super().__init__(source, columns)
        self._first_begins: Offsets | None = None
        """Where a new query would start, until its first batch is planned: nobody says whether this is one."""
        self._last_ends: Offsets = {}
        self._planned = set[str]()
        """Brokers that a batch knows; another one that is added later is read from its oldest file."""
        if source.bytes_per_trigger_max != MAX_BYTES_PER_TRIGGER:
            raise ConfigError(f"maxBytesPerTrigger: {_NEWER}")
        if source.masters is not None:
            raise ConfigError(f"until=confirmed: {_NEWER}")

    def latestOffset(self, _start: object = None, _limit: object = None) -> Offsets:  # noqa: N802
        """The ends of the logs. Spark asks for the first before it asks where to start."""
        if self._first_begins is None:
            # A query that goes on from its checkpoint need not be able to start.
            with suppress(StoreError, ConfigError):
                self._first_begins = planned(self._starts)
        self._last_ends = planned(self._ends)
        return self._last_ends

    def _ends(self) -> Offsets:
        return {broker: self._end(broker, self._log(broker)) for broker in self._source.logs}

    def _end(self, broker: str, log: CommitLog) -> Any:
        """An end that is the last one is the same to Spark, too, which compares all of it."""
        end, known = position_at(log, log.end), self._last_ends.get(broker)
        if known is not None and from_json(known) == end:
            return known
        if self._first_begins is None or broker in self._planned:
            return end.as_json()
        first = self._first_begins.get(broker)
        return range_as_json(log, Position(log.min_offset) if first is None else from_json(first), end)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[LogPartition]:
        """As any. A query that goes on begins with an empty one, by which Spark 4.1 says where it is."""
        tasks = super().partitions(start, end)
        self._first_begins, self._last_ends, self._planned = {}, end, self._planned | end.keys()
        return tasks
