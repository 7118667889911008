"""Spark without its SQL: all that the replay needs, at less than half the CPU of a whole session (see decision 9)."""

import os
import re
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from rmqha.errors import ConfigError, StoreError
from rmqha.spark.java import use_java

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext


def check_spark() -> None:
    """Whether PySpark is here.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("pyspark") is None:
        raise ConfigError("Spark is not installed: pip install 'rmqha[spark]'; without it there is rmqha log dump")


def is_connect(master: str | None) -> bool:
    """Whether the job goes through Spark Connect: ``sc://HOST:PORT``, or a session of the kind is active.

    Raises:
        StoreError: no server answers there.
    """
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - an extra

    if master is not None and master.startswith(_CONNECT):
        _look_for(_CONNECT, master.partition(";")[0].rstrip("/"), port=15002)
        return True
    return bool(is_remote())


def spark_context(app_name: str, *, master: str | None = None) -> "SparkContext":
    """The active session's context, or a new one.

    Args:
        app_name: shown in Spark's pages.
        master: where to run; None: what spark-submit says, else all cores of this machine.

    Raises:
        ConfigError: there is no usable Java, no such kind of master, or an active session that runs elsewhere.
        StoreError: Spark did not start; no master answers, for example.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    if (active := SparkContext._active_spark_context) is not None:
        if master not in {None, active.master}:
            raise ConfigError(
                f"a Spark session is active on {active.master}: stop it, or do not name the master {master}"
            )
        return active
    if master is not None and not _MASTER.match(master):
        raise ConfigError(
            f"{master!r} is no master of Spark: local[4], spark://HOST:7077, yarn, k8s://HOST:PORT, sc://HOST:15002"
        )
    if master is not None and master.startswith("spark://"):
        _look_for("spark://", master)
    use_this_python()
    conf = SparkConf().setAppName(app_name)
    if master is not None:
        conf.setMaster(master)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets, whose settings stand
        use_java(is_quiet=True)
        _configure_own_java(conf)
    try:
        return SparkContext.getOrCreate(conf)
    except (Py4JError, PySparkException, OSError) as error:
        raise StoreError(f"Spark did not start: {first_line(error)}") from error


def _look_for(scheme: str, master: str, *, port: int = 7077) -> None:
    """Of several, one must answer. Spark itself would try for a minute, and then say that it was shut down."""
    problems = []
    for address in master.removeprefix(scheme).split(","):
        try:
            url = urlsplit(f"//{address}")
            with socket.create_connection((url.hostname or "", url.port or port), timeout=_ANSWER_TIMEOUT_S):
                return
        except (OSError, ValueError) as error:
            problems.append(f"{address}: {error}")
    raise StoreError(f"nothing of Spark answers at {'; '.join(problems)}")


def _configure_own_java(conf: "SparkConf") -> None:
    conf.setIfMissing("spark.master", "local[*]")
    for key, value in _OWN_JAVA.items():
        conf.set(key, value)
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has business with it
        conf.set("spark.log.level", "FATAL")  # what fails is told in words


def use_this_python() -> None:
    """Workers take the interpreter of this process, which has the packages, unless another is named."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def first_line(error: Exception) -> str:
    """What Java says, without where it says so."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString() if java is not None else error)
    return next((line for line in text.splitlines() if line), text)


_ANSWER_TIMEOUT_S: Final = 10
_CONNECT: Final = "sc://"
_MASTER: Final = re.compile(r"local(\[[\w*, ]+\]|-cluster\[.*\])?$|spark://.|yarn$|k8s://.")
_OWN_JAVA: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # the JVM hands tasks out and moves few bytes: what its second compiler would cost never comes back
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 "
    f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}",
}
