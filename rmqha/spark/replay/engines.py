"""What runs the tasks: this process, a few processes of this machine, or Spark. Results come in any order.

A JVM takes ten seconds to start and be warm; two local processes replay some 5 GB in that time.
"""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Final

from rmqha.errors import ConfigError, StoreError
from rmqha.spark.replay.options import Engine, ReplayOptions
from rmqha.spark.replay.task import ReplayTask, TaskResult, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext

SPARK_BYTES_MIN: Final = 16 << 30
"""``auto`` takes Spark from here on."""
PROCESSES_BYTES_MIN: Final = 192 << 20
"""Less is read by this process itself: starting others takes longer."""
_REPORT_INTERVAL_S: Final = 0.5


def choose_engine(options: ReplayOptions, total_bytes: int) -> Engine:
    """Resolve ``auto``: Spark where somebody chose it already, or the job is worth its start.

    Raises:
        ConfigError: Spark's master is given, but not Spark.
    """
    if options.engine is Engine.LOCAL and options.master is not None:
        raise ConfigError(f"the engine local has no use for Spark's master {options.master}")
    if options.engine is not Engine.AUTO:
        return options.engine
    if options.master is not None or _is_submitted():
        return Engine.SPARK
    large = total_bytes >= SPARK_BYTES_MIN and options.workers is None
    return Engine.SPARK if large and find_spec("pyspark") is not None else Engine.LOCAL


def worker_count(options: ReplayOptions) -> int:
    """Processes of the local engine."""
    return options.workers or len(os.sched_getaffinity(0))


def run_local(tasks: Sequence[ReplayTask], *, workers: int) -> Iterator[TaskResult]:
    """On this machine, without Spark.

    Raises:
        StoreError: somebody killed a worker; the system does when memory is short.
    """
    total = sum(task.log.size for task in tasks)
    if workers == 1 or len(tasks) == 1 or total < PROCESSES_BYTES_MIN:
        yield from map(run_task, tasks)
        return
    with worker_pool(min(workers, len(tasks))) as pool:
        futures = [pool.submit(run_task, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise StoreError("a worker was killed, as when memory is short: --workers 1 needs less") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def worker_pool(processes: int) -> ProcessPoolExecutor:
    """Processes that end with this one, however it ends."""
    # spawn: a forked child would inherit Arrow's threads in whatever state they are
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """A worker would wait for its next task for ever, as it holds both ends of the queue."""
    parent = parent_process()
    assert parent is not None

    def wait_for_end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_end, name="end-with-parent", daemon=True).start()


def run_spark(tasks: Sequence[ReplayTask], *, master: str | None) -> Iterator[TaskResult | int]:
    """One Spark job, a task each; yields the number of finished tasks now and then, at last all results.

    Raises:
        ConfigError: Spark is not installed, there is no Java for it, or the session is one of Spark Connect.
    """
    if find_spec("pyspark") is None:
        raise ConfigError("--engine spark needs Spark: pip install 'rmqha[spark]', or use --engine local")
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - an extra, and slow
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    from rmqha.spark.session import spark_session  # noqa: PLC0415

    if is_remote():
        raise ConfigError("a replay cannot run through Spark Connect: use spark-submit, --master, or --engine local")
    context = spark_session("rmqha-replay", master=master).sparkContext
    with ThreadPoolExecutor(1, "rmqha-replay") as pool:
        job = pool.submit(lambda: context.parallelize(tasks, len(tasks)).map(run_task).collect())
        while not wait([job], _REPORT_INTERVAL_S).done:
            yield _finished(context)
        try:
            results = job.result()
        except Py4JJavaError as error:
            raise StoreError(f"a Spark task failed: {_last_line(str(error.java_exception.getMessage()))}") from error
    yield from results


def _finished(context: "SparkContext") -> int:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _last_line(message: str) -> str:
    """The Python error at the end of Spark's long story."""
    lines = [line for line in message.splitlines() if line and not line.startswith((" ", "\t"))]
    return next((line for line in reversed(lines) if line.startswith("rmqha.")), lines[0] if lines else message)


def _is_submitted() -> bool:
    """Whether spark-submit started this process, or its caller has a session."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession  # noqa: PLC0415

    return SparkSession.getActiveSession() is not None
