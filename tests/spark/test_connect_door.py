"""The job's door to Spark Connect, without a server."""

import sys
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException

from rmqha.errors import StoreError
from rmqha.spark.replay.connect import ConnectDoor


class FakeBuilder:
    """Raises what it is given, one after the other, and then has a session."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def appName(self, _name: str) -> "FakeBuilder":  # noqa: N802 - Spark's name
        return self

    def remote(self, _url: str) -> "FakeBuilder":
        return self

    def getOrCreate(self) -> "FakeBuilder":  # noqa: N802 - Spark's name
        if self.errors:
            raise self.errors.pop(0)
        return self

    def registerProgressHandler(self, _handler: Any) -> None:  # noqa: N802 - Spark's name
        """None comes."""


def begin(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> ConnectDoor:
    module: Any = ModuleType("pyspark.sql.connect.session")
    module.SparkSession = type("SparkSession", (), {"builder": FakeBuilder(*errors)})
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect", ModuleType("pyspark.sql.connect"))
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", module)
    return ConnectDoor("job", "sc://h:1")


GONE = PySparkException("[NO_ACTIVE_SESSION] No active Spark session found. Please create a new one.")
AWAY = PySparkException("[CONNECT] the server is away")


def test_a_session_of_a_server_that_was_restarted_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of the same program after that failed, and the second one was good."""
    assert begin(monkeypatch, GONE).master == "sc://h:1"


@pytest.mark.parametrize("errors", [[AWAY], [GONE, GONE], [GONE, AWAY], [OSError("refused")]])
def test_a_server_that_is_away_is_told(errors: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="Spark Connect did not begin"):
        begin(monkeypatch, *errors)
