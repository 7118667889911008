"""The replay job run by Spark: in a session that is there, and by a command that starts its own."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqha.errors import ConfigError, StoreError
from rmqha.spark import OnCorrupt, ReadOptions
from rmqha.spark.replay import Progress, ReplayDamageError, ReplayOptions, job, replay
from tests import stores
from tests.spark.logs import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


def test_spark_writes_what_it_then_reads(spark: "SparkSession", tmp_path: Path) -> None:
    """All messages, topics found again by Spark from the directories' names; the active session is taken."""
    out, seen = tmp_path / "out", list[Progress]()
    read = ReadOptions(include_system_topics=True)
    report = replay(ReplayOptions(str(stores.unpack("basic", tmp_path)), str(out), read), seen.append)
    assert report.master == "local[2]"
    rows = spark.read.parquet(str(out)).select("physicalOffset", "topic").collect()
    expected = {(one["physicalOffset"], one["topic"]) for one in stores.expected_messages("basic")}
    assert {tuple(row) for row in rows} == expected
    assert len(rows) == len(expected)
    assert seen[-1].done_bytes == seen[-1].total_bytes
    assert seen[-1].messages == report.messages


def test_many_tasks_write_each_message_once(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_TASK_BYTES_MIN", 1 << 16)
    log = LogWriter(tmp_path / "store", file_size=1 << 18)
    for index in range(900):
        log.append(b"x" * (index % 3000), topic=b"t%d" % (index % 7))
    report = replay(ReplayOptions(str(log.root), str(tmp_path / "out")))
    assert len({file.path.rpartition("/")[2] for file in report.files}) > 5
    rows = spark.read.parquet(str(tmp_path / "out")).select("physicalOffset").collect()
    assert sorted(row["physicalOffset"] for row in rows) == log.offsets


def test_damage_found_by_tasks_fails_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "store")
    for index in range(200):
        log.append(b"%d" % index)
    log.write(log.offsets[120] + 4, b"\0")
    with pytest.raises(ReplayDamageError):
        replay(ReplayOptions(str(log.root), str(tmp_path / "out")))
    options = ReplayOptions(str(log.root), str(tmp_path / "out"), ReadOptions(on_corrupt=OnCorrupt.SKIP))
    assert replay(options).messages == 199
    assert spark.read.parquet(str(tmp_path / "out")).count() == 199


@pytest.mark.usefixtures("spark")
def test_a_session_elsewhere_is_not_taken_for_another_master(tmp_path: Path) -> None:
    store = str(stores.unpack("basic", tmp_path))
    with pytest.raises(ConfigError, match=r"active on local\[2\]: stop it, or do not name the master local\[3\]"):
        replay(ReplayOptions(store, str(tmp_path / "out"), master="local[3]"))


@pytest.mark.usefixtures("spark")
def test_a_task_that_fails_is_told_in_a_line(tmp_path: Path) -> None:
    """Here its log has gone when it begins to read."""
    log = LogWriter(tmp_path / "store")
    log.append(b"x")

    def go(progress: Progress) -> None:
        log.path(0).unlink(missing_ok=True)

    with pytest.raises(StoreError, match=r"^a Spark task failed: rmqha\S*StoreError: .* were deleted before") as caught:
        replay(ReplayOptions(str(log.root), str(tmp_path / "out")), go)
    assert "\n" not in str(caught.value)


def test_the_command_starts_spark_and_a_report_that_cannot_be_printed_fails_nothing(tmp_path: Path) -> None:
    store, out = str(stores.unpack("bench", tmp_path)), tmp_path / "out"
    command = [sys.executable, "-m", "rmqha", "replay", store, "--out", str(out), "--master", "local[1]"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "The replay is done, up to offset" in done.stderr
    assert "the output cannot be written" in done.stderr
    assert list(out.rglob("*.parquet"))
