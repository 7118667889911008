"""A stream whose batches have a limit, and that knows where "all that is there now" ends: from Spark 4.2 on."""

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqha.spark.commit_log import CommitLog
from rmqha.spark.confirmed import confirmed_end_or
from rmqha.spark.partitions import check_still_there, planned
from rmqha.spark.position import Position, position_at, range_as_json
from rmqha.spark.source_options import SourceOptions
from rmqha.spark.stream import LogStreamReader, Offsets


class RmqhaStreamReader(LogStreamReader, SupportsTriggerAvailableNow):
    """A batch ends at the last whole record (that replicas hold), or after ``maxBytesPerTrigger``."""

    def __init__(self, source: SourceOptions, columns: tuple[str, ...]) -> None:
        super().__init__(source, columns)
        self._target: dict[str, int] | None = None

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """The ends of the next batch, at most ``limit`` bytes after ``start`` over all brokers together."""
        return planned(lambda: self._next_ends(start, limit))

    def _next_ends(self, start: Offsets, limit: ReadLimit) -> Offsets:
        share = limit.max_bytes // len(self._source.logs) if isinstance(limit, ReadMaxBytes) else None
        ends: Offsets = {}
        for broker, begin in self._begins(start).items():
            log = self._log(broker)
            end = self._next_end(broker, log, begin, share=share)
            is_same = broker in start and end == begin.offset
            ends[broker] = start[broker] if is_same else range_as_json(log, begin, position_at(log, end))
        return ends

    def _next_end(self, broker: str, log: CommitLog, begin: Position, *, share: int | None) -> int:
        at = check_still_there(log, begin, fail_on_data_loss=self._source.fail_on_data_loss)
        end = confirmed_end_or(log, self._source.masters, at)
        if self._target is not None:
            target = self._target.get(broker, end)
            if target <= at:
                return at
            end = max(at, min(end, log.start_at(target)))  # it may be within another record now
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
