"""Spark's job around the tasks: what comes of it when nobody waits for its results any more."""

from collections.abc import Callable
from contextlib import suppress
from threading import Event

import pytest

pytest.importorskip("pyspark")
from rmqha.errors import StoreError
from rmqha.spark.executors import Check
from rmqha.spark.replay import runner
from rmqha.spark.replay.runner import SparkRunner
from rmqha.spark.replay.task import TaskResult
from rmqha.spark.report import ReadReport

TOO_LONG_S = 10
"""A job that is not cancelled: the test does not wait for ever."""


class FakeDoor:
    """Spark, whose job ends when it is cancelled, or let go."""

    master = "fake"

    def __init__(self, *answers: str) -> None:
        self.answers = [*answers]
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.over = Event()

    def ask(self, check: Check) -> list[str]:
        return self.answers or [check(), check()]

    def collect(self, items: list[bytes], group: str, check: Check) -> list[TaskResult]:
        assert check() == ""
        self.begun.append(group)
        self.over.wait(TOO_LONG_S)
        return [TaskResult(ReadReport(), "host") for _ in items]

    def finished(self, group: str) -> int:
        return int(group in self.begun)

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)
        self.over.set()


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> FakeDoor:
    monkeypatch.setattr(runner, "_REPORT_INTERVAL_S", 0.001)
    return FakeDoor()


@pytest.mark.parametrize("give_up", [lambda run: run.close(), lambda run: run.throw(KeyboardInterrupt)])
def test_a_run_that_is_given_up_is_run_no_more(give_up: Callable[..., object], door: FakeDoor) -> None:
    """Its tasks would write on where the next run begins, and who pressed Ctrl-C would wait for all of them."""
    run = SparkRunner(door).run([])
    while next(run) == 0:
        pass
    with suppress(KeyboardInterrupt):
        give_up(run)
    assert door.cancelled == door.begun != []


def test_a_run_that_ends_is_not_cancelled(door: FakeDoor) -> None:
    """Each one is a group of its own: to cancel one ends no other."""
    spark = SparkRunner(door)
    door.over.set()
    for _ in range(2):
        assert [one for one in spark.run([]) if not isinstance(one, int)] == []
    assert not door.cancelled
    assert len(set(door.begun)) == 2
    assert spark.parallelism == 2


def test_executors_that_lack_something_are_told_before_anything_runs() -> None:
    door = FakeDoor("", "executor on b: numpy is missing", "", "executor on a: rmqha is missing")
    with pytest.raises(StoreError, match="executor on a: rmqha is missing; executor on b: numpy is missing"):
        SparkRunner(door)
    assert not door.begun
