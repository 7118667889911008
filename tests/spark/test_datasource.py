"""``spark.read.format("rmqha")`` on a real Spark."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqha.errors import StoreError
from rmqha.spark.commit_log import CommitLog
from rmqha.spark.partitions import share_of
from tests import stores
from tests.dledger.ledgers import unpack
from tests.spark.logs import LedgerWriter, LogWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


def load(spark: "SparkSession", root: Path, **options: str) -> "DataFrame":
    return spark.read.format("rmqha").options(**options).load(str(root))


@pytest.mark.parametrize("name", ["basic", "v6", "odd"])
def test_spark_sees_what_rocketmq_says(spark: "SparkSession", name: str, tmp_path: Path) -> None:
    frame = load(spark, stores.unpack(name, tmp_path), includeSystemTopics="true", splitBytes="64k")
    rows = sorted(frame.collect(), key=lambda row: int(row["physicalOffset"]))
    expected = stores.expected_messages(name)
    assert [row["physicalOffset"] for row in rows] == [message["physicalOffset"] for message in expected]
    for row, message in zip(rows, expected, strict=True):
        assert row["topic"] == message["topic"]
        assert row["properties"] == (message["properties"] or {})
        assert len(row["body"]) == message["bodyLength"]


def test_an_empty_store_is_an_empty_table(spark: "SparkSession", tmp_path: Path) -> None:
    assert load(spark, stores.unpack("empty", tmp_path)).count() == 0


def test_a_given_schema_selects_columns(spark: "SparkSession", tmp_path: Path) -> None:
    root = stores.unpack("basic", tmp_path)
    frame = spark.read.format("rmqha").schema("queueId int, topic string").load(str(root))
    assert frame.columns == ["queueId", "topic"]
    assert frame.count() > 0
    with pytest.raises(Exception, match="cast it later"):
        spark.read.format("rmqha").schema("queueId long").load(str(root)).collect()
    with pytest.raises(Exception, match="did you mean 'subscribe'"):
        load(spark, root, subscribed="x").collect()


def test_a_frame_can_be_used_for_one_query_after_the_other(spark: "SparkSession", tmp_path: Path) -> None:
    """What one query filters is no business of the next: Spark may keep a scan that was narrowed by a filter."""
    frame = load(spark, stores.unpack("basic", tmp_path), includeSystemTopics="true")
    rows = frame.collect()
    for condition in ("topic = 'order-events'", "queueId = 1 AND physicalOffset >= 70000"):
        assert 0 < frame.where(condition).count() < len(rows)
        assert frame.count() == len(rows)
    with pytest.raises(Exception, match="pushdown"):
        load(spark, tmp_path, pushdown="true").count()


def test_spark_takes_a_scan_that_a_filter_narrowed_for_others(spark: "SparkSession") -> None:
    """Why this source takes no filters. Where this fails, that Spark has mended it: then they can be taken there.

    Every filter is handed back, as of something that reads less but not exactly what is asked for.
    """
    from pyspark.sql import datasource  # noqa: PLC0415 - an extra

    class Reader(datasource.DataSourceReader):
        def __init__(self) -> None:
            self.numbers = list(range(10))

        def pushFilters(self, filters: list[datasource.Filter]) -> list[datasource.Filter]:  # noqa: N802 - Spark's name
            wanted = {one.value for one in filters if isinstance(one, datasource.EqualTo)}
            self.numbers = [number for number in self.numbers if not wanted or number in wanted]
            return filters

        def read(self, partition: datasource.InputPartition) -> Iterator[tuple[int]]:
            return ((number,) for number in self.numbers)

    class Source(datasource.DataSource):
        @classmethod
        def name(cls) -> str:
            return "narrowed"

        def schema(self) -> str:
            return "number int"

        def reader(self, schema: object) -> Reader:
            return Reader()

    spark.dataSource.register(Source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame, again = (spark.read.format("narrowed").load() for _ in range(2))
        assert frame.count() == 10
        assert frame.where("number = 3").collect() == [(3,)]
        assert frame.count() == 1, "not 10: this query has no filter"
        both = again.where("number = 3").union(again.where("number = 4"))
        assert both.count() == 1, "not 2: one query, of which each half has its filter"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_batch_is_cut_by_the_cores_that_the_session_has_told(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqha.spark.datasource import RmqhaDataSource  # noqa: PLC0415 - an extra
    from rmqha.spark.session import spark_session  # noqa: PLC0415

    log = LogWriter(tmp_path, file_size=72 << 20)
    for _ in range(17):
        log.append(bytes(4 << 20))

    def parts(**options: str) -> int:
        return load(spark, tmp_path, **options).select("physicalOffset").rdd.getNumPartitions()

    assert (parts(), parts(splitBytes="64m"), parts(splitBytes="1g")) == (2, 2, 1)
    spark.dataSource.register(RmqhaDataSource)
    try:
        assert (parts(), parts(minPartitions="3")) == (1, 3)
    finally:
        spark_session()
    assert parts() == 2


@pytest.mark.parametrize(("total", "cores", "share"), [(20, 1, 32), (100, 4, 32), (300, 4, 75), (999, 4, 128)])
def test_a_core_s_share_is_worth_a_task(total: int, cores: int, share: int) -> None:
    assert share_of(total << 20, cores=cores) == share << 20


@pytest.mark.parametrize("times", [1, 4, 5])
def test_a_file_that_expires_while_a_read_is_planned_is_no_bare_error(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and gone when it was looked into: the read is planned anew, without it."""
    pytest.importorskip("pyspark")
    from rmqha.spark.datasource import RmqhaDataSource  # noqa: PLC0415 - an extra

    log = LogWriter(tmp_path)
    for _ in range(130):
        log.append(bytes(4000))
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) > times
    start_at, expiring = CommitLog.start_at, iter(files[:times])

    def expires(self: CommitLog, position: int) -> int:
        if (file := next(expiring, None)) is not None:
            file.unlink()
        return start_at(self, position)

    monkeypatch.setattr(CommitLog, "start_at", expires)
    source = RmqhaDataSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    if times == 5:
        with pytest.raises(StoreError, match="5 times a file went while the read was planned"):
            reader.partitions()
    else:
        first, *_ = reader.partitions()
        assert first.task.splits[0].begin == int(files[times].name)


def test_damage_fails_the_query_or_is_skipped(spark: "SparkSession", tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    for index in range(300):
        log.append(random.Random(index).randbytes(700))
    log.write(log.offsets[200] + 90, b"\0\0\0\0")
    with pytest.raises(Exception, match=f"physical offset {log.offsets[200]}"):
        load(spark, tmp_path, splitBytes="20k").count()
    assert load(spark, tmp_path, splitBytes="20k", onCorrupt="skip").count() == 299
    assert load(spark, tmp_path, splitBytes="20k", onCorrupt="stop").count() == 200


def test_a_deleted_range_is_data_loss(spark: "SparkSession", tmp_path: Path) -> None:
    root = stores.unpack("trimmed", tmp_path)
    with pytest.raises(Exception, match="files between were deleted"):
        load(spark, root, startingOffsets="4096").count()
    frame = load(spark, root, startingOffsets="4096", failOnDataLoss="false", includeSystemTopics="true")
    assert frame.count() == len(stores.expected_messages("trimmed"))


def test_several_brokers_are_one_table(spark: "SparkSession", tmp_path: Path) -> None:
    one, two = stores.unpack("bench", tmp_path / "1"), stores.unpack("v6", tmp_path / "2")
    path = f'{{"a": "{one}", "b": "{two}"}}'
    frame = spark.read.format("rmqha").option("includeSystemTopics", "true").load(path)
    counts = {row["brokerName"]: row["count"] for row in frame.groupBy("brokerName").count().collect()}
    assert counts == {"a": 2600, "b": 72}


def test_a_dledger_log_is_a_table_of_what_is_committed(spark: "SparkSession", tmp_path: Path) -> None:
    log = LedgerWriter(tmp_path)
    messages = [log.put(b"%d" % number * 300) for number in range(300)]
    log.commit(249)
    rows = load(spark, tmp_path, splitBytes="20k").select("physicalOffset").collect()
    assert sorted(row["physicalOffset"] for row in rows) == messages[:250]
    assert load(spark, log.member, startingOffsets=str(messages[100])).count() == 150
    bare = unpack(tmp_path / "bare") / "dledger-n0"
    assert load(spark, bare).where("queueOffset >= 50").count() == 5


def test_a_job_of_kafka_s_finds_its_columns(spark: "SparkSession", tmp_path: Path) -> None:
    """In a batch and in a stream; with types that can be cast and compared as those of Spark's source."""
    log = LogWriter(tmp_path / "store")
    log.append(b"bare", queue_id=2, queue_offset=7, properties=b"")
    log.append(b"hello", queue_id=3)
    messages = load(spark, log.root, layout="kafka")
    assert messages.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    row, bare = messages.orderBy("offset").collect()
    assert (row.key, row.value, row.topic, row.partition, row.offset) == (b"k1 k2", b"hello", "orders", 3, 0)
    assert (row.timestamp.timestamp(), row.timestampType) == (1_700_000_000, 1)
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("TAGS", b"TagA"), ("KEYS", b"k1 k2")]
    assert (bare.key, bare.value, bare.partition, bare.offset, bare.headers) == (None, b"bare", 2, 7, None)
    text = messages.selectExpr("cast(value as string) as text").collect()
    assert {one.text for one in text} == {"hello", "bare"}
    stream = spark.readStream.format("rmqha").option("layout", "kafka").load(str(log.root))
    sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    sink.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect() == [row, bare]


def test_kafka_s_columns_of_several_brokers_are_named_with_the_broker(spark: "SparkSession", tmp_path: Path) -> None:
    for name in "ab":
        LogWriter(tmp_path / name).append(name.encode())
    reader = spark.read.format("rmqha").option("layout", "kafka")
    path = f'{{"a": "{tmp_path / "a"}", "b": "{tmp_path / "b"}"}}'
    with pytest.raises(Exception, match="each broker counts partitions and offsets for itself"):
        reader.load(path)
    rows = reader.schema("brokerName string, partition int, offset long, value binary").load(path).collect()
    assert sorted(rows) == [("a", 0, 0, b"a"), ("b", 0, 0, b"b")]
