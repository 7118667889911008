"""``spark.read.format("rmqha")`` on a real Spark."""

import ast
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


def test_kafka_s_columns_are_made_of_ours_as_the_page_says(spark: "SparkSession", tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()
    call = page.partition("messages.selectExpr(")[2].partition("\n)")[0]
    log = LogWriter(tmp_path / "store")
    log.append(b"hello", queue_id=3)
    messages = spark.read.format("rmqha").load(str(log.root))
    (row,) = messages.selectExpr(*ast.literal_eval(f"[{call}]")).collect()
    assert (row.key, row.value, row.topic, row.partition, row.offset) == (b"k1 k2", b"hello", "orders", 3, 0)
    assert (row.timestamp.timestamp(), row.timestampType) == (1_700_000_000, 1)
    assert {(header.key, bytes(header.value)) for header in row.headers} == {("TAGS", b"TagA"), ("KEYS", b"k1 k2")}
