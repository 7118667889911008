"""One Spark session for all tests marked ``spark``, as a user of ``pip install`` has it; and a log for streams."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.logs import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """Of 300 messages, in some files."""
    writer = LogWriter(tmp_path / "store")
    for index in range(300):
        writer.append(b"m" * (index % 700))
    return writer


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This machine's zone, as long as the test runs."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    pytest.importorskip("pyspark")
    from pyspark import SparkContext  # noqa: PLC0415 - an extra

    from rmqha.spark.session import spark_session  # noqa: PLC0415

    if (left_over := SparkContext._active_spark_context) is not None:  # of a replay in this process, for the next one
        left_over.stop()
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    session = spark_session("rmqha-tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
