"""``spark.readStream.format("rmqha")``: offsets are physical, one of each broker's log, at a record's start.

Nothing is kept between calls but a cheap hint: after a crash, Spark asks for the same ranges again from its checkpoint,
and the log gives the same messages again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqha.errors import ConfigError
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.datasource import LogPartition
from rmqha.spark.partitions import LogTask, check_still_there, plan_tasks, read_task
from rmqha.spark.report import ReadReport
from rmqha.spark.source_options import SourceOptions

Offsets = dict[str, int]
"""Broker name to physical offset."""


class RmqhaStreamReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows logs. A batch ends at the last whole record, or after about ``maxBytesPerTrigger``."""

    def __init__(self, source: SourceOptions, columns: tuple[str, ...]) -> None:
        self._source = source
        self._read = replace(source.read, columns=columns)
        self._known_ends: Offsets = {}
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names, here and below
        """Where a new query starts; a restarted one goes on from its checkpoint."""
        starts = {}
        for broker, uri in self._source.logs.items():
            log = open_log(uri)
            begin, _ = self._source.range_of(broker, log)
            begin = check_still_there(log, begin, fail_on_data_loss=self._source.fail_on_data_loss)
            starts[broker] = log.start_at(begin)
        return starts

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """The ends of the next batch, at most ``limit`` bytes after ``start`` over all brokers together."""
        share = limit.max_bytes // len(self._source.logs) if isinstance(limit, ReadMaxBytes) else None
        begins = self._begins(start)
        return {broker: self._next_end(broker, begin, share=share) for broker, begin in begins.items()}

    def _begins(self, start: Offsets) -> Offsets:
        """Where each broker's log is to be read on; one that the checkpoint does not know yet, from its oldest file."""
        unknown = start.keys() - self._source.logs.keys()
        if unknown:
            raise ConfigError(
                f"the checkpoint has broker {min(unknown)!r}, but only {', '.join(self._source.logs)} given"
            )
        return {broker: start.get(broker, self._log(broker).min_offset) for broker in self._source.logs}

    def _next_end(self, broker: str, begin: int, *, share: int | None) -> int:
        log = self._log(broker)
        begin = check_still_there(log, begin, fail_on_data_loss=self._source.fail_on_data_loss)
        end = log.end if self._target is None else max(begin, min(log.end, self._target.get(broker, log.end)))
        if share is None or end - begin <= share:
            return end
        return log.start_at(begin + max(share, 1))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxBytesPerTrigger``."""
        return ReadMaxBytes(self._source.bytes_per_trigger_max)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
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
            stop = check_still_there(log, planned_end, fail_on_data_loss=self._source.fail_on_data_loss)
            options = replace(self._read, broker_name=broker)
            split_bytes, tasks_min = self._source.split_bytes, self._source.partitions_min
            tasks += plan_tasks(log, begin, stop, options=options, split_bytes=split_bytes, tasks_min=tasks_min)
        return [LogPartition(task) for task in tasks]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's batches."""
        assert isinstance(partition, LogPartition)
        return read_task(partition.task, ReadReport(), fail_on_data_loss=self._source.fail_on_data_loss)

    def _log(self, broker: str) -> CommitLog:
        log = open_log(self._source.logs[broker], known_end=self._known_ends.get(broker))
        self._known_ends[broker] = log.end
        return log
