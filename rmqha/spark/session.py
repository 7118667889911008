"""A Spark session for replays: Java found, the ``rmqha`` format registered, few and fitting settings."""

import threading
from collections.abc import Mapping

from pyspark.sql import SparkSession

from rmqha.spark.context import is_connect, use_this_python
from rmqha.spark.datasource import RmqhaDataSource, for_cores
from rmqha.spark.java import use_java


def spark_session(
    app_name: str = "rmqha", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The active session, or a new one, and how many cores it has now told to the format.

    It is active in this thread then: Spark looks sinks up by that, and it is so in the thread alone that made it.

    Args:
        app_name: shown in Spark's pages.
        master: where to run; None: what spark-submit said, else all cores of this machine.
        settings: Spark's own configuration, over ours.

    Raises:
        ConfigError: no usable Java.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        use_java()
        use_this_python()
        builder = SparkSession.builder.appName(app_name)
        for key, value in {**_SETTINGS, **(settings or {})}.items():
            builder = builder.config(key, value)
        if master is not None:
            builder = builder.master(master)
        active = builder.getOrCreate()
    known = RmqhaDataSource if is_connect(None) else for_cores(active.sparkContext.defaultParallelism)
    active.dataSource.register(known)
    if threading.current_thread() is not threading.main_thread():
        active.createDataFrame([], "number int")  # which makes it active, as nothing else public does
    return active


# Not spark.python.unix.domain.socket.enabled: a reused worker that Spark closes at its end writes a last word, which a
# closed unix socket answers with EPIPE at once, and Spark's daemon prints a traceback for each of them. TCP takes it.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
