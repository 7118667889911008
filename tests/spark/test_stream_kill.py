"""A streaming query is killed (SIGKILL, with its JVM) again and again while the log grows: every message once."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from tests.spark.logs import LogWriter, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default"), pytest.mark.timeout(1_800)]

KILLS = 2
QUERY = """
import sys
from rmqha.spark.session import spark_session
store, out, checkpoint, once = sys.argv[1:]
limit = "64m" if once == "once" else "300k"
spark = spark_session("stream", master="local[2]", settings={"spark.ui.enabled": "false"})
frame = spark.readStream.format("rmqha").option("maxBytesPerTrigger", limit).load(store).select("physicalOffset")
writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
writer = writer.trigger(availableNow=True) if once == "once" else writer.trigger(processingTime="100 milliseconds")
writer.start(out).awaitTermination()
"""


class GrowingLog:
    """Appends a record at a time, its beginning first and the rest a little later, until told to end."""

    def __init__(self, root: Path) -> None:
        self.log = LogWriter(root, file_size=1 << 20)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        chance = random.Random(8)
        while not self._end.wait(0.01):
            body = chance.randbytes(chance.randint(1, 3000))
            if chance.random() < 0.2:
                torn = record(self.log.end, body)[: chance.randint(1, 80)]
                if self.log.end % self.log.file_size + len(body) + 200 < self.log.file_size:
                    self.log.write(self.log.end, torn)
                    self._end.wait(0.01)
            self.log.append(body)


def start(root: Path, out: Path, checkpoint: Path, once: str) -> subprocess.Popen[bytes]:
    """The query in a process group of its own."""
    command = [sys.executable, "-c", QUERY, str(root), str(out), str(checkpoint), once]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_batches(checkpoint: Path, more_than: int, query: subprocess.Popen[bytes]) -> int:
    """Return the number of committed batches once it has grown; the query must be alive."""
    deadline = threading.Event()
    for _ in range(3000):
        done = len(list((checkpoint / "commits").glob("[0-9]*")))
        if done > more_than:
            return done
        assert query.poll() is None, "the query ended by itself"
        deadline.wait(0.1)
    raise AssertionError("no batch within five minutes")


def test_every_message_once(spark: "SparkSession", tmp_path: Path) -> None:
    root, out, checkpoint = tmp_path / "store", tmp_path / "out", tmp_path / "ckpt"
    done = 0
    with GrowingLog(root) as growing:
        for _ in range(KILLS):
            query = start(root, out, checkpoint, "on")
            done = wait_for_batches(checkpoint, done + 1, query)
            os.killpg(query.pid, signal.SIGKILL)
            query.wait()
    assert start(root, out, checkpoint, "once").wait(timeout=600) == 0
    rows = spark.read.parquet(str(out)).collect()
    assert sorted(row["physicalOffset"] for row in rows) == growing.log.offsets
