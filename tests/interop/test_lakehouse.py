"""Tables of Delta Lake and of Iceberg, each with the Spark it is made for: every message once, whatever is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.processes import CHECKOUT
from tests.interop.fetched import LOCKS, PeerMissingError, check_sums, fetched, run_fetching
from tests.spark.growing_log import GrowingLog, wait_for_batches
from tests.spark.logs import LogWriter

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(1_800)

KILLS = 2
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
JOB = """
import json, sys
from rmqha.spark.session import spark_session
kind, jars, root, job = sys.argv[1:]
settings = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
if kind == "delta":
    settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
    settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    table = f"delta.`{root}/table`"
else:
    settings["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    settings["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
    settings["spark.sql.catalog.lake.type"] = "hadoop"
    settings["spark.sql.catalog.lake.warehouse"] = root
    table = "lake.db.messages"
spark = spark_session("lakehouse", master="local[2]", settings=settings)
if job == "replace":
    messages = spark.read.format("rmqha").load(f"{root}/store")
    messages.writeTo(table).using(kind).createOrReplace()
elif job != "rows":
    messages = spark.readStream.format("rmqha").load(f"{root}/store")
    writer = messages.writeStream.format(kind).option("checkpointLocation", f"{root}/checkpoint")
    writer = writer.trigger(availableNow=True) if job == "once" else writer.trigger(processingTime="100 milliseconds")
    query = writer.start(f"{root}/table") if kind == "delta" else writer.toTable(table)
    query.awaitTermination()
if job in ("replace", "rows"):
    rows = spark.table(table).select("physicalOffset", "body").collect()
    print("ROWS", json.dumps(sorted([row.physicalOffset, len(row.body)] for row in rows)))
"""


@dataclass(frozen=True)
class Lakehouse:
    """A table format, and the Spark and the jars that fit together."""

    kind: str
    spark: str
    version: str
    artifacts: tuple[str, ...]

    def start(self, root: Path, job: str) -> subprocess.Popen[str]:
        """The job in a process group of its own."""
        packages, jars = _spark(self.spark), self._jars()
        names = ",".join(str(jar) for jar in sorted(jars.iterdir()))
        environ = {**os.environ, "PYTHONPATH": f"{packages}:{CHECKOUT}"}
        environ.pop("SPARK_HOME", None)
        command = [sys.executable, "-c", JOB, self.kind, names, str(root), job]
        return subprocess.Popen(
            command, env=environ, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def run(self, root: Path, job: str) -> str:
        """What the job printed."""
        process = self.start(root, job)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0, out
        return out

    def _jars(self) -> Path:
        name = f"{self.kind}-{self.version}"

        def fetch(directory: Path) -> None:
            for artifact in self.artifacts:
                command = ["mvn", "-q", "-B", _COPY, f"-Dartifact={artifact}:{self.version}"]
                run_fetching([*command, f"-DoutputDirectory={directory}"], cwd=directory.parent, what=artifact)

        jars = fetched(name, fetch)
        check_sums(jars, LOCKS / f"{name}.sha256")
        return jars


DELTA = Lakehouse("delta", "4.2.0", "4.4.0", ("io.delta:delta-spark_4.2_2.13", "io.delta:delta-storage"))
ICEBERG = Lakehouse("iceberg", "4.1.4", "1.12.0", ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13",))


def _spark(version: str) -> Path:
    def fetch(directory: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--no-compile")
        lock = LOCKS / f"pyspark-{version}.txt"
        run_fetching([*pip, "--target", str(directory), "-r", str(lock)], cwd=directory, what=f"pyspark {version}")

    return fetched(f"pyspark-{version}", fetch)


@pytest.fixture(params=[DELTA, ICEBERG], ids=lambda lakehouse: lakehouse.kind)
def lakehouse(request: pytest.FixtureRequest) -> Lakehouse:
    """With all that it takes on this machine."""
    if shutil.which("mvn") is None:
        pytest.skip("no `mvn` on the PATH: install Maven, it fetches the published jars")
    found = request.param
    assert isinstance(found, Lakehouse)
    try:
        _spark(found.spark), found._jars()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    return found


def rows_in(printed: str) -> list[int]:
    """The physical offsets of a table's rows."""
    (line,) = [line for line in printed.splitlines() if line.startswith("ROWS ")]
    return [offset for offset, _ in json.loads(line.removeprefix("ROWS "))]


def test_a_table_that_is_replaced_has_each_message_once(lakehouse: Lakehouse, tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "store")
    for number in range(300):
        log.append(b"%d" % number)
    assert rows_in(lakehouse.run(tmp_path, "replace")) == log.offsets
    log.append(b"one more")
    assert rows_in(lakehouse.run(tmp_path, "replace")) == log.offsets


def test_a_stream_that_is_killed_writes_each_message_once(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """At any moment, and between a commit of the table and that of the query, which then repeats the batch."""
    checkpoint, done = tmp_path / "checkpoint", 0
    with GrowingLog(tmp_path / "store") as growing:
        for _ in range(KILLS):
            query = lakehouse.start(tmp_path, "on")
            done = wait_for_batches(checkpoint, done + 1, query)
            os.killpg(query.pid, signal.SIGKILL)
            query.communicate()
    for _ in range(2):  # Spark 4.1 ends after one batch, and that may be the one that was killed
        lakehouse.run(tmp_path, "once")
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    lakehouse.run(tmp_path, "once")
    assert rows_in(lakehouse.run(tmp_path, "rows")) == growing.log.offsets
