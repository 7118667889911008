"""Spark runs the tasks: one job, a task each. Results come in any order."""

import pickle
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from rmqha.errors import StoreError
from rmqha.spark.context import check_spark, first_line, is_connect, spark_context
from rmqha.spark.executors import Check, checking, guarded, packages
from rmqha.spark.replay.task import ReplayTask, TaskResult, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext

_REPORT_INTERVAL_S: Final = 0.5
_NAME: Final = "rmqha-replay"


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


class Door(Protocol):
    """What Spark's context and a session of Connect do in their own ways.

    Attributes:
        master: as Runner's.
    """

    master: str

    def ask(self, check: Check) -> list[str]:
        """The check's answers of all executors, one a core at least."""

    def collect(self, items: list[bytes], group: str, check: Check) -> list[TaskResult]:
        """What ``run_task`` makes of the pickled tasks, one Spark task each."""

    def finished(self, group: str) -> int:
        """How many tasks of the group are done."""

    def cancel(self, group: str) -> None:
        """Run the rest no more."""


def start_spark(master: str | None) -> Runner:
    """The active session, or a new one, which stays for the next run. All executors there are have what it takes.

    Raises:
        ConfigError: Spark is not installed, there is no Java for it, or no such master.
        StoreError: Spark did not start, or an executor lacks a package.
    """
    check_spark()
    if is_connect(master):
        from rmqha.spark.replay.connect import ConnectDoor  # noqa: PLC0415 - needs more packages

        return SparkRunner(ConnectDoor(_NAME, master))
    return SparkRunner(ContextDoor(spark_context(_NAME, master=master)))


class SparkRunner:
    """One job at a time, through either door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._check = checking(packages())
        self.master = door.master
        with _told():
            answers = door.ask(self._check)
        if problems := sorted({answer for answer in answers if answer}):
            raise StoreError("; ".join(problems[:_PROBLEMS_MAX]))
        self.parallelism = len(answers)

    def run(self, tasks: Sequence[ReplayTask]) -> Iterator[TaskResult | int]:
        """As Runner's."""
        group = f"{_NAME}-{uuid4().hex}"
        items = [pickle.dumps(task) for task in tasks]
        with _told(), ThreadPoolExecutor(1, _NAME) as pool:
            job = pool.submit(self._door.collect, items, group, self._check)
            try:
                while not wait([job], _REPORT_INTERVAL_S).done:
                    yield self._door.finished(group)
                yield from job.result()
            finally:
                if not job.done():
                    self._door.cancel(group)


class ContextDoor:
    """RDDs, which need no SQL."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self.master = str(context.master)

    def ask(self, check: Check) -> list[str]:
        """As Door's; again as long as more executors come."""
        answers: list[str] = []
        while (cores := int(self._context.defaultParallelism)) > len(answers):
            answers = self._context.parallelize(range(cores), cores).map(lambda _: check()).collect()
        return answers

    def collect(self, items: list[bytes], group: str, check: Check) -> list[TaskResult]:
        """As Door's."""
        self._context.setJobGroup(group, "rmqha replay")
        work = guarded(run_task, check)
        results: list[TaskResult] = self._context.parallelize(items, len(items)).mapPartitions(work).collect()
        return results

    def finished(self, group: str) -> int:
        """As Door's."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def cancel(self, group: str) -> None:
        """As Door's."""
        self._context.cancelJobGroup(group)


@contextmanager
def _told() -> Iterator[None]:
    """Spark's long stories, each in a line."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - which pyspark.sql makes of Java's, once imported

    try:
        yield
    except (Py4JError, PySparkException, OSError, EOFError) as error:
        java = getattr(error, "java_exception", None)
        if java is None and not isinstance(error, PySparkException):
            ended = f"Spark has ended: {first_line(error)}; its Java may have been killed, as when memory is short"
            raise StoreError(ended) from error
        raise StoreError(in_a_line(str(java.getMessage() if java is not None else error))) from error


def in_a_line(story: str) -> str:
    """What made a job fail, of all that Spark says about it."""
    lines = [line for line in story.splitlines() if line and not line.startswith((" ", "\t"))]
    if asked := re.search(r"executor on \S+: .*", story):
        return asked[0]
    if missing := re.search(r'\((\S+) executor \S+\): .*Cannot run program "(\S+)"', story):
        return f"executor on {missing[1]} has no {missing[2]}: install there what is here, or name its PYSPARK_PYTHON"
    if "Python worker exited unexpectedly" in story:
        return (
            f"a Spark task failed: {lines[0]}: its Python was killed, as when memory is short; fewer at once need less"
        )
    told = next((line for line in reversed(lines) if _IS_TOLD.match(line)), lines[0] if lines else story)
    where = re.search(r"\((\S+) executor \S+\)", lines[0]) if lines else None
    return f"a Spark task failed{f' on {where[1]}' if where else ''}: {told}"


_PROBLEMS_MAX: Final = 5
_IS_TOLD: Final = re.compile(r"rmqha\.|\S+Error: |\S+Exception: \[")
