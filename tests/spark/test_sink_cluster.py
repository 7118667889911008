"""Rows sent by a cluster of which a worker is killed meanwhile: each is in the broker, and copies are known."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rmqha.spark import ReadOptions, iter_batches
from rmqha.spark.java import use_java
from tests.e2e.processes import RmqhaBroker, reaping
from tests.spark.cluster import WAIT_S, Cluster, cluster, start

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTS, AT_ONCE, ROWS = 3, 1000, 5000  # rows of a part, some MB: streams between processes hold back their last 64 KB
DRIVER = f"""
import sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from rmqha.spark.session import spark_session

master, address, go = sys.argv[1:]


def rows(part, go):
    for begin in range(0, {ROWS}, {AT_ONCE}):
        while begin == {ROWS - AT_ONCE} and not Path(go).exists():
            time.sleep(0.05)
        numbers = range(part * {ROWS} + begin, part * {ROWS} + begin + {AT_ONCE})
        yield pa.RecordBatch.from_pydict({{"body": [f"{{number:1000}}" for number in numbers]}})


class Reader(DataSourceReader):
    def __init__(self, go):
        self.go = go

    def partitions(self):
        return [InputPartition(part) for part in range({PARTS})]

    def read(self, partition):
        return rows(partition.value, self.go)


class Gated(DataSource):
    @classmethod
    def name(cls):
        return "gated"

    def schema(self):
        return "body string"

    def reader(self, schema):
        return Reader(self.options["go"])


spark = spark_session(master=master, settings={{"spark.sql.execution.arrow.maxRecordsPerBatch": "{AT_ONCE}"}})
spark.dataSource.register(Gated)
table = spark.read.format("gated").option("go", go).load()
table.write.format("rmqha").mode("append").option("addresses", address).option("topic", "orders").save()
"""


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[Cluster]:
    use_java()
    with cluster(tmp_path / "cluster") as started:
        yield started


def sent(broker: RmqhaBroker) -> dict[str, list[str]]:
    """The bodies of all copies of a row, by what it is known again by."""
    found = defaultdict[str, list[str]](list)
    for batch in iter_batches(str(broker.store), ReadOptions(columns=("body", "properties"))):
        for row in batch.to_pylist():
            found[dict(row["properties"])["SPARK_ROW"]].append(row["body"].decode())
    return found


def begun(broker: RmqhaBroker) -> int:
    """How many parts have all their first rows in the log."""
    batches = iter_batches(str(broker.store), ReadOptions(columns=("body",)))
    bodies = [body for batch in batches for body in batch.column(0).to_pylist()]
    return sum(count >= AT_ONCE for count in Counter(int(body) // ROWS for body in bodies).values())


def test_a_worker_killed_while_rows_are_sent_loses_none_and_copies_are_known(
    two_workers: Cluster, tmp_path: Path
) -> None:
    """Both tasks have sent some rows, and wait for their last ones, when one of them dies with its worker."""
    broker = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 16 << 20})
    go = tmp_path / "go"
    with reaping(broker):
        trio.run(broker.start)
        command = [sys.executable, "-c", DRIVER, two_workers.url, broker.address, str(go)]
        submit = "--conf spark.executor.memory=512m --conf spark.ui.enabled=false pyspark-shell"
        driver = start(command, tmp_path / "driver.log", PYSPARK_SUBMIT_ARGS=submit)
        try:
            driver.wait_until(lambda: begun(broker) == len(two_workers.workers))
            two_workers.workers[0].kill()
            go.touch()
            assert driver.popen.wait(WAIT_S) == 0, driver.log.read_text()[-3000:]
        finally:
            driver.kill()
        trio.run(broker.stop)
    found = sent(broker)
    assert sorted(int(bodies[0]) for bodies in found.values()) == list(range(PARTS * ROWS))
    assert all(len(set(bodies)) == 1 for bodies in found.values())
    assert sum(map(len, found.values())) >= PARTS * ROWS + AT_ONCE
