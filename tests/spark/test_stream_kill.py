"""A streaming query is killed (SIGKILL, with its JVM) again and again while the log grows: every message once."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.growing_log import GrowingLog, wait_for_batches

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


def start(root: Path, out: Path, checkpoint: Path, once: str) -> subprocess.Popen[bytes]:
    """The query in a process group of its own."""
    command = [sys.executable, "-c", QUERY, str(root), str(out), str(checkpoint), once]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


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
