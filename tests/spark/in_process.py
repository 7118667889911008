"""Tasks run here and now, without Spark: for tests of what is around them."""

from collections.abc import Callable, Iterator, Sequence

from rmqha.spark.replay.task import ReplayTask, TaskResult, run_task

Tasks = Sequence[ReplayTask]


class InProcess:
    """One task after the other; ``around`` may do what other machines or a wild Spark would."""

    master = "in-process"
    parallelism = 1

    def __init__(self, around: Callable[[Tasks], Iterator[TaskResult]] | None = None) -> None:
        self._around = around or (lambda tasks: map(run_task, tasks))

    def run(self, tasks: Tasks) -> Iterator[TaskResult | int]:
        yield 0
        yield from self._around(tasks)


def in_process(_master: str | None) -> InProcess:
    """Takes the place of start_spark."""
    return InProcess()
