"""The replay job run by Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqha.spark import OnCorrupt, ReadOptions
from rmqha.spark.replay import Engine, Progress, ReplayDamageError, ReplayOptions, replay
from tests import stores
from tests.spark.logs import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


def test_spark_writes_what_it_then_reads(spark: "SparkSession", tmp_path: Path) -> None:
    """All messages, topics found again by Spark from the directories' names; an active session is taken by auto."""
    out, seen = tmp_path / "out", list[Progress]()
    read = ReadOptions(include_system_topics=True)
    report = replay(ReplayOptions(str(stores.unpack("basic", tmp_path)), str(out), read), seen.append)
    assert report.engine == "spark"
    rows = spark.read.parquet(str(out)).select("physicalOffset", "topic").collect()
    expected = {(one["physicalOffset"], one["topic"]) for one in stores.expected_messages("basic")}
    assert {tuple(row) for row in rows} == expected
    assert len(rows) == len(expected)
    assert seen[-1].done_bytes == seen[-1].total_bytes
    assert seen[-1].messages == report.messages


def test_damage_found_by_tasks_fails_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "store")
    for index in range(200):
        log.append(b"%d" % index)
    log.write(log.offsets[120] + 4, b"\0")
    with pytest.raises(ReplayDamageError):
        replay(ReplayOptions(str(log.root), str(tmp_path / "out"), engine=Engine.SPARK))
    options = ReplayOptions(
        str(log.root), str(tmp_path / "out"), ReadOptions(on_corrupt=OnCorrupt.SKIP), engine=Engine.SPARK
    )
    assert replay(options).messages == 199
    assert spark.read.parquet(str(tmp_path / "out")).count() == 199
