"""Rows of a real Spark become messages: in batches and streams, at least once, and known again if it is twice."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.message import StoredMessage
from tests.client.fake_broker import FakeBroker
from tests.client.on_loopback import broker_on_loopback
from tests.e2e.commands import rmqha
from tests.e2e.processes import RmqhaBroker, reaping
from tests.spark.logs import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]
ROWS = 6000
REFUSED = int(ResponseCode.MESSAGE_ILLEGAL)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with broker_on_loopback() as broker:
        yield broker


def write(frame: "DataFrame", address: str, **options: str) -> None:
    frame.write.format("rmqha").mode("append").options(addresses=address, **options).save()


def stored(broker: FakeBroker, topic: str) -> list[StoredMessage]:
    return [message for queue in range(8) for message in broker.messages(topic, queue)]


def numbers(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as body", "concat('k', id) as keys")


def test_each_row_is_a_message_with_what_its_columns_say(spark: "SparkSession", broker: FakeBroker) -> None:
    """What is not safe, or refused for now, is sent again: then it may be there twice, under the same id."""
    broker.answers = [10, int(ResponseCode.SYSTEM_BUSY)]
    rows = numbers(spark, 300).selectExpr("*", "'A' as tags", "map('from', 'spark') as properties")
    write(rows, broker.address, topic="orders")
    messages = stored(broker, "orders")
    assert len(messages) == 301
    assert {message.body for message in messages} == {b"%d" % number for number in range(300)}
    for message in messages:
        properties = message.properties
        assert (properties["TAGS"], properties["from"]) == ("A", "spark")
        assert properties["KEYS"] == f"k{message.body.decode()}"
    assert len({message.properties["SPARK_ROW"] for message in messages}) == 300


def test_a_thread_of_its_own_writes_once_it_has_the_session(spark: "SparkSession", broker: FakeBroker) -> None:
    """Spark looks a sink up by the session that is active in the thread; in one that did not make it there is none."""
    from rmqha.spark.session import spark_session  # noqa: PLC0415 - an extra

    def work() -> None:
        write(numbers(spark_session(), 3), broker.address, topic="of-a-thread")

    with ThreadPoolExecutor() as pool:
        pool.submit(work).result()
    assert len(stored(broker, "of-a-thread")) == 3


def test_a_table_s_rows_go_to_the_topics_they_name(spark: "SparkSession", broker: FakeBroker) -> None:
    """As a job of Kafka's writes them."""
    rows = spark.range(10).selectExpr("concat('t', id % 2) as topic", "encode('k', 'UTF-8') as key", "'v' as value")
    write(rows, broker.address)
    for topic in ("t0", "t1"):
        assert [message.body for message in stored(broker, topic)] == [b"v"] * 5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda write: write.mode("overwrite"), "only appended to"),
        (lambda write: write.option("topik", "x"), "did you mean 'topic'"),
        (lambda write: write.option("credentials", "/no/such/file"), "/no/such/file"),
        (lambda write: write.option("addresses", "127.0.0.1:1").option("retryForMs", "1"), "tried for 0.001 s: "),
    ],
)
def test_what_cannot_be_written_is_told(
    change: Callable[[Any], Any], told: str, spark: "SparkSession", broker: FakeBroker
) -> None:
    writing = numbers(spark, 3).write.format("rmqha").mode("append").option("topic", "orders")
    with pytest.raises(Exception, match=told):
        change(writing.option("addresses", broker.address)).save()
    assert stored(broker, "orders") == []


def test_a_write_that_is_run_again_under_its_name_is_known_again(spark: "SparkSession", broker: FakeBroker) -> None:
    rows = numbers(spark, 50)
    broker.answers = [0] * 20 + [REFUSED]
    with pytest.raises(Exception, match=r"row \d+ of partition nightly:\d was not sent to topic orders: .*because"):
        write(rows, broker.address, topic="orders", writeId="nightly")
    assert stored(broker, "orders")
    write(rows, broker.address, topic="orders", writeId="nightly")
    assert_complete(broker, 50)
    write(rows, broker.address, topic="orders")
    assert len({message.properties["SPARK_ROW"] for message in stored(broker, "orders")}) == 100


def recipe() -> str:
    """How the page leaves out the properties of RocketMQ's own."""
    page = (Path(__file__).parents[2] / "docs" / "spark-sink.md").read_text()
    return f"map_filter({page.partition('`map_filter(')[2].partition('`')[0]}"


def assert_complete(broker: FakeBroker, count: int) -> None:
    """All rows, some of them twice: a reader that leaves out ids that it has seen has each row once."""
    messages = stored(broker, "orders")
    assert len(messages) > count
    once = {message.properties["SPARK_ROW"]: message.body for message in messages}
    assert sorted(once.values()) == sorted(b"%d" % number for number in range(count))
    assert {(message.properties["SPARK_ROW"], message.body) for message in messages} == set(once.items())


def test_a_stream_that_fails_goes_on_and_its_repeated_rows_are_known(
    spark: "SparkSession", broker: FakeBroker, tmp_path: Path
) -> None:
    """From one broker's log to another's topic: the batch that failed is sent again under the same ids."""
    log = LogWriter(tmp_path / "store")
    for number in range(200):
        log.append(b"%d" % number)

    def run() -> None:
        rows = spark.readStream.format("rmqha").option("maxBytesPerTrigger", "10k").load(str(log.root))
        sink = rows.selectExpr("body", "keys", recipe()).writeStream.format("rmqha").option("topic", "orders")
        sink = sink.option("addresses", broker.address).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    broker.answers = [0] * 120 + [REFUSED]
    with pytest.raises(Exception, match="was not sent to topic orders"):
        run()
    run()
    assert_complete(broker, 200)


def test_equal_rows_of_several_batches_are_not_taken_for_one(
    spark: "SparkSession", broker: FakeBroker, tmp_path: Path
) -> None:
    """As the ticks of a clock: each batch has the same rows at the same places, and all of them are messages."""
    log = LogWriter(tmp_path / "store")
    for _ in range(60):
        log.append(b"tick")
    rows = spark.readStream.format("rmqha").option("maxBytesPerTrigger", "2k").load(str(log.root)).select("body")
    sink = rows.writeStream.format("rmqha").options(addresses=broker.address, topic="orders")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    assert len(query.recentProgress) > 2
    assert len({message.properties["SPARK_ROW"] for message in stored(broker, "orders")}) == 60


def test_a_broker_that_is_killed_while_rows_come_loses_none(spark: "SparkSession", tmp_path: Path) -> None:
    """What it acknowledged is in its store, what it did not is sent again when it is back."""
    broker = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"})
    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as body")
    done = threading.Event()
    with reaping(broker), ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: trio.run(broker.start)).result()
        killing = thread.submit(trio.run, kill_and_start, broker, done)
        try:
            write(rows, broker.address, topic="orders", retryForMs="600000")
        finally:
            done.set()
        killing.result()
        thread.submit(lambda: trio.run(broker.stop)).result()
    found = spark.read.format("rmqha").load(str(broker.store))
    rows = found.selectExpr("properties['SPARK_ROW'] as row", "cast(body as string) as body").distinct()
    assert sorted(int(row.body) for row in rows.collect()) == list(range(ROWS))


async def kill_and_start(broker: RmqhaBroker, done: threading.Event) -> None:
    """When some rows are stored, or all."""
    with trio.fail_after(600):
        while not done.is_set():
            code, out, _ = await rmqha("topics", "list", "-b", broker.address)
            if code == 0 and "orders" in out:
                break
            await trio.sleep(0.1)
    await broker.kill()
    await broker.start()
