"""``spark.readStream.format("rmqha")``: an offset is a position in each broker's log, at a record's start.

Nothing is kept between calls but a cheap hint: after a crash, Spark asks for the same ranges again from its checkpoint,
and the log gives the same messages again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqha.errors import ConfigError
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.confirmed import confirmed_end_or
from rmqha.spark.datasource import LogPartition
from rmqha.spark.executors import check_here
from rmqha.spark.partitions import LogTask, check_still_there, plan_tasks, read_task
from rmqha.spark.position import Position, from_json, position_at
from rmqha.spark.report import ReadReport
from rmqha.spark.source_options import SourceOptions

Offsets = dict[str, Any]
"""Broker name to :meth:`Position.as_json`, as checkpoints have it; those of rmqha 0.1 have physical offsets."""


class RmqhaStreamReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows logs. A batch ends at the last whole record (that replicas hold), or after ``maxBytesPerTrigger``."""

    def __init__(self, source: SourceOptions, columns: tuple[str, ...]) -> None:
        self._source = source
        self._read = replace(source.read, columns=columns)
        self._known_ends: dict[str, int] = {}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names, here and below
        """Where a new query starts; a restarted one goes on from its checkpoint.

        Raises:
            StoreError: nobody says what replicas hold, and that is to be asked for.
        """
        starts = {}
        for broker, uri in self._source.logs.items():
            log = open_log(uri)
            begin, _ = self._source.range_of(broker, log)
            begin = check_still_there(log, Position(begin), fail_on_data_loss=self._source.fail_on_data_loss)
            starts[broker] = position_at(log, log.start_at(begin)).as_json()
        return starts

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """The ends of the next batch, at most ``limit`` bytes after ``start`` over all brokers together."""
        share = limit.max_bytes // len(self._source.logs) if isinstance(limit, ReadMaxBytes) else None
        ends: Offsets = {}
        for broker, begin in self._begins(start).items():
            log = self._log(broker)
            end = self._next_end(broker, log, begin, share=share)
            ends[broker] = start[broker] if broker in start and end == begin.offset else position_at(log, end).as_json()
        return ends

    def _begins(self, start: Offsets) -> dict[str, Position]:
        """Where each broker's log is to be read on; one that the checkpoint does not know yet, from its oldest file."""
        unknown = start.keys() - self._source.logs.keys()
        if unknown:
            raise ConfigError(
                f"the checkpoint has broker {min(unknown)!r}, but only {', '.join(self._source.logs)} given"
            )
        return {
            broker: from_json(start[broker]) if broker in start else Position(self._log(broker).min_offset)
            for broker in self._source.logs
        }

    def _next_end(self, broker: str, log: CommitLog, begin: Position, *, share: int | None) -> int:
        at = check_still_there(log, begin, fail_on_data_loss=self._source.fail_on_data_loss)
        end = confirmed_end_or(log, self._source.masters, at)
        if self._target is not None:
            end = max(at, min(end, self._target.get(broker, end)))
        if share is None or end - at <= share:
            return end
        return log.start_at(at + max(share, 1))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxBytesPerTrigger``."""
        return ReadMaxBytes(self._source.bytes_per_trigger_max)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """Shown in the query's progress beside what was read."""
        return {broker: self._log(broker).end for broker in self._source.logs}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The ends of now are the query's end."""
        self._target = {broker: self._log(broker).end for broker in self._source.logs}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[LogPartition]:
        """Tasks that read exactly ``[start, end)``, wherever files have rolled since."""
        tasks: list[LogTask] = []
        begins = self._begins(start)
        for broker, planned_end in end.items():
            log = self._log(broker)
            begin = check_still_there(log, begins[broker], fail_on_data_loss=self._source.fail_on_data_loss)
            stop = check_still_there(log, from_json(planned_end), fail_on_data_loss=self._source.fail_on_data_loss)
            options = replace(self._read, broker_name=broker)
            split_bytes, tasks_min = self._source.split_bytes, self._source.partitions_min
            tasks += plan_tasks(log, begin, stop, options=options, split_bytes=split_bytes, tasks_min=tasks_min)
        return [LogPartition(task) for task in tasks]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's batches."""
        assert isinstance(partition, LogPartition)
        check_here(partition.packages)
        return read_task(partition.task, ReadReport(), fail_on_data_loss=self._source.fail_on_data_loss)

    def _log(self, broker: str) -> CommitLog:
        log = open_log(self._source.logs[broker], known_end=self._known_ends.get(broker))
        self._known_ends[broker] = log.end
        return log
