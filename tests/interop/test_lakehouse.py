"""Tables of Delta Lake and of Iceberg, each with the Spark it is made for: every message once, whatever is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.processes import CHECKOUT
from tests.interop.fetched import LOCKS, PeerMissingError, check_sums, fetched, run_fetching
from tests.interop.peers import compiled
from tests.spark.growing_log import GrowingLog, wait_for_batches
from tests.spark.logs import LogWriter

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(1_800)

KILLS = 2
MESSAGES = 60
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
JOB = """
import json, sys, zlib
from pyspark.errors import AnalysisException
from rmqha.spark.session import spark_session
kind, settings, root, *steps = sys.argv[1:]
names = {"delta": "delta.`%s/{}`" % root, "iceberg": "lake.db.{}"}[kind]
spark = spark_session("lakehouse", master="local[2]", settings=json.loads(settings))

def stream(checkpoint="checkpoint", options={}, **trigger):
    messages = spark.readStream.format("rmqha").options(**options).load(f"{root}/store")
    writer = messages.writeStream.format(kind).option("checkpointLocation", f"{root}/{checkpoint}")
    writer = writer.trigger(**trigger).partitionBy("topic")
    return writer.start(f"{root}/stream") if kind == "delta" else writer.toTable(names.format("stream"))

def rows(name):
    try:
        found = spark.table(names.format(name)).select("physicalOffset", "topic", "keys", "body").collect()
    except AnalysisException:  # there is no such table
        found = []
    return sorted((row.physicalOffset, row.topic, row["keys"], zlib.crc32(row.body)) for row in found)

for step in steps:
    if step == "replace":
        messages = spark.read.format("rmqha").load(f"{root}/store")
        messages.writeTo(names.format("batch")).using(kind).partitionedBy("topic").createOrReplace()
    elif step == "start":
        query = stream(processingTime="100 milliseconds")
    elif step == "wait":
        query.awaitTermination()
    elif step == "once":
        stream(availableNow=True).awaitTermination()
    elif step == "restore":
        spark.sql(f"RESTORE TABLE {names.format('stream')} TO VERSION AS OF 0")
    elif step == "rollback":
        (first,) = spark.sql("SELECT snapshot_id FROM lake.db.stream.snapshots ORDER BY committed_at LIMIT 1").collect()
        spark.sql(f"CALL lake.system.rollback_to_snapshot('db.stream', {first.snapshot_id})")
    elif step.startswith("anew from "):
        options = {"startingOffsets": step.removeprefix("anew from ")}
        stream("checkpoint-2", options, availableNow=True).awaitTermination()
    else:
        print("ROWS", json.dumps({name: rows(name) for name in ("stream", "batch")}), flush=True)
"""
Rows = list[tuple[int, str, str, int]]
"""Of each row its physical offset, topic, key, and its body's CRC."""
Tables = dict[str, Rows]


@dataclass(frozen=True)
class Lakehouse:
    """A table format, and the Spark and the jars that fit together.

    Attributes:
        commits: the path to which a file is renamed when a table's commit is done.
        after_commits: of the first rename that follows, and belongs to the commit still.
    """

    kind: str
    spark: str
    version: str
    artifacts: tuple[str, ...]
    settings: dict[str, str]
    commits: str
    after_commits: str

    def start(self, root: Path, *steps: str, stop_at: Sequence[str] = ()) -> subprocess.Popen[str]:
        """The job in a process group of its own.

        Args:
            root: of the store, the tables and the checkpoint.
            steps: of the job.
            stop_at: lines of STOP_AT of ``StoppingFiles.java``.
        """
        packages, jars = _spark(self.spark), self._jars()
        settings = SETTINGS | {name: value.format(root=root) for name, value in self.settings.items()}
        settings["spark.jars"] = ",".join(str(jar) for jar in sorted(jars.iterdir()))
        environ = {**os.environ, "PYTHONPATH": f"{packages}:{CHECKOUT}"}
        environ.pop("SPARK_HOME", None)
        if stop_at:
            classes = compiled("StoppingFiles.java", packages / "pyspark" / "jars")
            settings |= STOPPING | {"spark.driver.extraClassPath": str(classes)}
            environ |= {"STOP_AT": "\n".join(stop_at), "STOPPED": str(root / "stopped")}
        command = [sys.executable, "-c", JOB, self.kind, json.dumps(settings), str(root), *steps]
        return subprocess.Popen(
            command, env=environ, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def run(self, root: Path, *steps: str) -> list[Tables]:
        """What the steps printed that print rows."""
        process = self.start(root, *steps)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0, out
        return rows_in(out)

    def run_to_kill(self, root: Path, *steps: str, stop_at: Sequence[str]) -> list[Tables]:
        """Kill the job when it has stopped at all of these places; as :meth:`run`."""
        process = self.start(root, *steps, stop_at=stop_at)
        stopped = [root / f"stopped-{number}" for number in range(len(stop_at))]
        try:
            wait_until(lambda: all(mark.exists() for mark in stopped), process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
        for mark in stopped:
            mark.unlink()
        return rows_in(out)

    def _jars(self) -> Path:
        name = f"{self.kind}-{self.version}"

        def fetch(directory: Path) -> None:
            for artifact in self.artifacts:
                command = ["mvn", "-q", "-B", _COPY, f"-Dartifact={artifact}:{self.version}"]
                run_fetching([*command, f"-DoutputDirectory={directory}"], cwd=directory.parent, what=artifact)

        jars = fetched(name, fetch)
        check_sums(jars, LOCKS / f"{name}.sha256")
        return jars


SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # starts in half the time
}
STOPPING = {
    "spark.hadoop.fs.file.impl": "StoppingFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "StoppingFiles$Context",
}
DELTA = Lakehouse(
    "delta",
    "4.2.0",
    "4.4.0",
    ("io.delta:delta-spark_4.2_2.13", "io.delta:delta-storage"),
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",  # of 50, for a table of some files
    },
    commits=r"_delta_log/\d+\.json$",
    after_commits=r"_delta_log/\.\d+\.json\.crc$",
)
ICEBERG = Lakehouse(
    "iceberg",
    "4.1.4",
    "1.12.0",
    ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13",),
    {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "{root}",
    },
    commits=r"metadata/v\d+\.metadata\.json$",
    after_commits=r"metadata/version-hint\.text$",
)


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
        compiled("StoppingFiles.java", _spark(found.spark) / "pyspark" / "jars")
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    return found


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """While it lives."""
    deadline = time.monotonic() + 600
    while not holds():
        assert process.poll() is None, "the job ended by itself"
        assert time.monotonic() < deadline, "the job did not come so far within ten minutes"
        time.sleep(0.1)


def rows_in(printed: str) -> list[Tables]:
    """Each time that the job printed rows."""
    lines = [json.loads(line.removeprefix("ROWS ")) for line in printed.splitlines() if line.startswith("ROWS ")]
    return [{name: [tuple(row) for row in rows] for name, rows in tables.items()} for tables in lines]


def write(log: LogWriter) -> Rows:
    """More messages of three topics."""
    rows: Rows = []
    for number in range(MESSAGES):
        topic, key, body = f"t{number % 3}", f"k{number}", b"%d" % len(log.offsets)
        offset = log.append(body, topic=topic.encode(), properties=f"KEYS\x01{key}".encode())
        rows.append((offset, topic, key, zlib.crc32(body)))
    return rows


def test_a_kill_at_any_step_of_a_commit_costs_and_repeats_nothing(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """Of a stream and of a batch, both into tables by topic; one job runs and is killed with both, to save time.

    A run first repeats the batch in which the stream was killed, then is killed in the next one.
    """
    log = LogWriter(tmp_path / "store")
    commits, after_commits, query_commits = lakehouse.commits, lakehouse.after_commits, "checkpoint/commits/"
    first = write(log)
    lakehouse.run_to_kill(tmp_path, "start", "replace", stop_at=[f"offsets/0$ stream/{commits}", f"batch/{commits}"])
    second = first + write(log)
    (rows,) = lakehouse.run_to_kill(
        tmp_path,
        *("rows", "start", "replace"),
        stop_at=[f"offsets/1$ stream/{commits} stream/{after_commits}", f"batch/{commits} batch/{after_commits}"],
    )
    assert rows == {"stream": [], "batch": []}
    third = second + write(log)
    (rows,) = lakehouse.run_to_kill(
        tmp_path, *("rows", "replace", "start", "wait"), stop_at=[rf"offsets/2$ {query_commits}2$"]
    )
    assert rows == {"stream": second, "batch": second}
    fourth = third + write(log)
    (rows,) = lakehouse.run_to_kill(
        tmp_path,
        *("rows", "start", "replace"),
        stop_at=[rf"offsets/3$ {query_commits}3$ {query_commits}\.3\.crc$", f"batch/{commits}"],
    )
    assert rows == {"stream": third, "batch": third}
    last = fourth + write(log)
    # Spark 4.1 ends after one batch, and that may be the one that was killed
    rows, at_last = lakehouse.run(tmp_path, *("rows", "once", "once", "replace", "rows"))
    assert rows == {"stream": fourth, "batch": third}
    assert at_last == {"stream": last, "batch": last}


@pytest.mark.parametrize("lakehouse", [DELTA], ids=["delta"], indirect=True)
def test_after_a_restore_a_new_checkpoint_begins_where_the_copied_one_ended(
    lakehouse: Lakehouse, tmp_path: Path
) -> None:
    """As docs/lakehouse.md says; with the copied one itself, Delta takes the next batch for one that it had."""
    log = LogWriter(tmp_path / "store")
    rows = write(log)
    lakehouse.run(tmp_path, "once")
    begin = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    rows += write(log)
    lakehouse.run(tmp_path, "once")
    anew = "anew from " + json.dumps({broker: position["offset"] for broker, position in begin.items()})
    restored, last = lakehouse.run(tmp_path, "restore", "rows", anew, "rows")
    assert restored["stream"] == rows[:MESSAGES]
    assert last["stream"] == rows


@pytest.mark.parametrize("lakehouse", [ICEBERG], ids=["iceberg"], indirect=True)
def test_after_a_rollback_the_checkpoint_of_that_time_goes_on(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """As docs/lakehouse.md says: Iceberg looks for a batch among the snapshots that the table still goes back to."""
    log, checkpoint, copy = LogWriter(tmp_path / "store"), tmp_path / "checkpoint", tmp_path / "copy"
    rows = write(log)
    lakehouse.run(tmp_path, "once")
    shutil.copytree(checkpoint, copy)
    rows += write(log)
    lakehouse.run(tmp_path, "once")
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    rolled_back, last = lakehouse.run(tmp_path, "rollback", "rows", "once", "once", "rows")
    assert rolled_back["stream"] == rows[:MESSAGES]
    assert last["stream"] == rows


def test_a_stream_that_is_killed_at_any_moment_writes_each_message_once(lakehouse: Lakehouse, tmp_path: Path) -> None:
    checkpoint, done = tmp_path / "checkpoint", 0
    with GrowingLog(tmp_path / "store") as growing:
        for _ in range(KILLS):
            query = lakehouse.start(tmp_path, "start", "wait")
            done = wait_for_batches(checkpoint, done + 1, query)
            os.killpg(query.pid, signal.SIGKILL)
            query.communicate()
    (rows,) = lakehouse.run(tmp_path, *("once", "once", "rows"))  # twice for Spark 4.1, as above
    assert [offset for offset, *_ in rows["stream"]] == growing.log.offsets
