"""``spark.read.format("rmqha")``: the batch side and the door to the stream side. The decoder core does the work.

Spark pickles these objects between the driver's Python processes and its workers.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqha.errors import ConfigError
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.executors import check_here, packages
from rmqha.spark.options import ReadOptions
from rmqha.spark.partitions import LogTask, check_end, check_still_there, plan_tasks, planned, read_task, share_of
from rmqha.spark.position import PlannedEnd, Position, last_record_before
from rmqha.spark.report import ReadReport
from rmqha.spark.schema import KAFKA_COLUMNS, select
from rmqha.spark.source_options import SourceOptions, parse_options

_GO_ON: Final = "leave endingOffsets out, or give failOnDataLoss=false, to read what is there"


class LogPartition(spark.InputPartition):
    """One Spark task.

    Attributes:
        packages: of the driver; an executor must have the same.
    """

    def __init__(self, task: LogTask) -> None:
        super().__init__(task)
        self.task = task
        self.packages = packages()


class RmqhaDataSource(spark.DataSource):
    """The format ``rmqha``. Read, its columns are those of the layout; a schema given by the user selects among all.

    Attributes:
        cores: on which a batch is read, as far as known; see :func:`for_cores`.
    """

    cores = 1

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @property
    def _source(self) -> SourceOptions:
        """What the options mean to a reader; those of a sink are others."""
        return parse_options(self.options)

    @classmethod
    def name(cls) -> str:
        """As in ``format("rmqha")``."""
        return "rmqha"

    def schema(self) -> StructType:
        """All columns of the layout."""
        return spark_schema(self._source.columns())

    def reader(self, schema: StructType) -> "RmqhaReader":
        """For batch queries."""
        return RmqhaReader(self._source, _columns(schema), cores=self.cores)

    def streamReader(self, schema: StructType) -> spark.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For streaming queries.

        Raises:
            ConfigError: Spark 4.1 does not have what an option asks for.
        """
        if find_spec("pyspark.sql.streaming.datasource") is None:
            from rmqha.spark.stream import UnlimitedStreamReader  # noqa: PLC0415 - as below

            return UnlimitedStreamReader(self._source, _columns(schema))
        from rmqha.spark.limited_stream import RmqhaStreamReader  # noqa: PLC0415 - only Spark >= 4.2 can load it

        return RmqhaStreamReader(self._source, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> spark.DataSourceWriter:
        """For batch queries whose rows are sent."""
        from rmqha.spark.sink.options import parse_sink_options  # noqa: PLC0415 - brings the client library with it
        from rmqha.spark.sink.writer import RmqhaWriter  # noqa: PLC0415

        return RmqhaWriter(parse_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> spark.DataSourceStreamWriter:
        """For streaming queries whose rows are sent."""
        from rmqha.spark.sink.options import parse_sink_options  # noqa: PLC0415 - as above
        from rmqha.spark.sink.writer import RmqhaStreamWriter  # noqa: PLC0415

        return RmqhaStreamWriter(parse_sink_options(self.options), schema, overwrite=overwrite)


def for_cores(cores: int) -> type[RmqhaDataSource]:
    """The format, for a session that runs so many tasks at once.

    Spark plans a read in a Python process of the driver's, which is told the class and the options, and nothing of the
    session. cloudpickle sends a class that no module has with its attributes.
    """
    return type("SizedDataSource", (RmqhaDataSource,), {"cores": cores})


class RmqhaReader(spark.DataSourceReader):
    """Plans tasks over each broker's log and reads them."""

    def __init__(self, source: SourceOptions, columns: tuple[str, ...], *, cores: int) -> None:
        self._source = source
        self._cores = cores
        self._read = replace(source.read, columns=columns)

    def partitions(self) -> Sequence[LogPartition]:
        """Large tasks, as each costs Spark some 50 ms; a log that grows meanwhile is read to where it ends now."""
        return planned(self._plan)

    def _plan(self) -> Sequence[LogPartition]:
        source, ranges = self._source, list[tuple[str, CommitLog, int, int]]()
        for broker, uri in source.logs.items():
            log = open_log(uri)
            begin, end = source.range_of(broker, log)
            check_end(log, source.end_of(broker), fail_on_data_loss=source.fail_on_data_loss, instead=_GO_ON)
            begin = log.start_at(check_still_there(log, Position(begin), fail_on_data_loss=source.fail_on_data_loss))
            ranges.append((broker, log, begin, max(begin, end)))
        total = sum(end - begin for _, _, begin, end in ranges)
        tasks = [
            task
            for broker, log, begin, end in ranges
            for task in plan_tasks(
                log,
                begin,
                end,
                options=replace(self._read, broker_name=broker),
                split_bytes=source.split_bytes or share_of(total, cores=self._cores),
                tasks_min=source.partitions_min,
                planned_end=PlannedEnd.of(log, last_record_before(log, end)),
            )
        ]
        return [LogPartition(task) for task in tasks] or [LogPartition(LogTask("", (), ReadOptions()))]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's batches."""
        assert isinstance(partition, LogPartition)
        check_here(partition.packages)
        if not partition.task.splits:
            return iter(())
        return read_task(partition.task, ReadReport(), fail_on_data_loss=self._source.fail_on_data_loss)


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns in Spark's types."""
    return StructType([StructField(field.name, _TYPES[field.type], nullable=True) for field in schema])


def _columns(schema: StructType) -> tuple[str, ...]:
    """The wanted columns, with the types they have; casts are the query's business."""
    names: tuple[str, ...] = tuple(schema.names)
    for wanted, ours in zip(schema.fields, spark_schema(select(names)).fields, strict=True):
        if wanted.dataType != ours.dataType:
            kind: Any = ours.dataType.simpleString()
            raise ConfigError(f"column {wanted.name} is {kind}, not {wanted.dataType.simpleString()}: cast it later")
    return names


_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
    KAFKA_COLUMNS.field("headers").type: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
