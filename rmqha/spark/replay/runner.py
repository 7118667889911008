"""Spark runs the tasks: one job, a task each. Results come in any order."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from rmqha.errors import ConfigError, StoreError
from rmqha.spark.context import check_spark, first_line, spark_context
from rmqha.spark.replay.task import ReplayTask, TaskResult, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext

_REPORT_INTERVAL_S: Final = 0.5


class Runner(Protocol):
    """What runs tasks."""

    @property
    def master(self) -> str:
        """Where, in Spark's words."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    def run(self, tasks: Sequence[ReplayTask]) -> Iterator[TaskResult | int]:
        """Yield the number of finished tasks now and then, and each result.

        Raises:
            StoreError: a task failed, or Spark itself.
        """


def start_spark(master: str | None) -> Runner:
    """The active session, or a new one, which stays for the next run.

    Raises:
        ConfigError: Spark is not installed, there is no Java for it, or the session is one of Spark Connect.
        StoreError: Spark did not start.
    """
    check_spark()
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - an extra

    if is_remote():
        raise ConfigError("a replay cannot run through Spark Connect: use spark-submit, or --master")
    return _SparkRunner(spark_context("rmqha-replay", master=master))


class _SparkRunner:
    def __init__(self, context: "SparkContext") -> None:
        self._context = context

    @property
    def master(self) -> str:
        return str(self._context.master)

    @property
    def parallelism(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, tasks: Sequence[ReplayTask]) -> Iterator[TaskResult | int]:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
        from pyspark.errors import PySparkException  # noqa: PLC0415 - which pyspark.sql makes of Java's, once imported

        group = f"rmqha-replay-{uuid4().hex}"
        with ThreadPoolExecutor(1, "rmqha-replay") as pool:
            job = pool.submit(self._collect, tasks, group)
            try:
                while not wait([job], _REPORT_INTERVAL_S).done:
                    yield self._finished(group)
                yield from job.result()
            except (Py4JError, PySparkException, OSError, EOFError) as error:
                raise _told(error) from error
            finally:
                if not job.done():
                    self._context.cancelJobGroup(group)

    def _collect(self, tasks: Sequence[ReplayTask], group: str) -> list[TaskResult]:
        self._context.setJobGroup(group, "rmqha replay")
        results: list[TaskResult] = self._context.parallelize(tasks, len(tasks)).map(run_task).collect()
        return results

    def _finished(self, group: str) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def _told(error: Exception) -> StoreError:
    """Spark's long story in a line."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra

    java = getattr(error, "java_exception", None)
    if java is None and not isinstance(error, PySparkException):
        return StoreError(
            f"Spark has ended: {first_line(error)}; its Java may have been killed, as when memory is short"
        )
    story = str(java.getMessage() if java is not None else error)
    lines = [line for line in story.splitlines() if line and not line.startswith((" ", "\t"))]
    told = next((line for line in reversed(lines) if line.startswith("rmqha.")), lines[0] if lines else story)
    if "Python worker exited unexpectedly" in story:
        told = f"{lines[0]}: its Python was killed, as when memory is short; --master local[1] needs less"
    return StoreError(f"a Spark task failed: {told}")
