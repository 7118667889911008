"""One Spark session for all tests marked ``spark``, as a user of ``pip install`` has it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
