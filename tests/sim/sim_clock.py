"""Time and chance of a simulated run: virtual seconds that jump, wrong wall clocks, a scheduler with a seed."""

from collections.abc import Awaitable, Callable
from math import inf
from random import Random
from typing import Final, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""What a true wall clock shows when a run begins."""


def make_clock() -> MockClock:
    """Virtual time that jumps to the next deadline, exactly, whenever everybody waits.

    trio insists on a MockClock; that one's arithmetic lands beside the deadline now and then, and is slow.
    """
    clock = MockClock(autojump_threshold=0)
    now = 0.0

    def autojump() -> None:
        nonlocal now
        deadline = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if deadline != inf:
            now = max(now, deadline)

    clock.current_time = lambda: now  # type: ignore[method-assign]
    clock.deadline_to_sleep_time = lambda deadline: 0.0 if deadline <= now else 999_999_999.0  # type: ignore[method-assign]
    clock._autojump = autojump  # type: ignore[method-assign]
    return clock


class WallClock:
    """The wall clock of one machine: true time plus an error that may jump."""

    def __init__(self, *, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms

    def __call__(self) -> int:
        """Milliseconds since the epoch, as this machine believes."""
        return EPOCH_MS + self.skew_ms + int(trio.current_time() * 1000)


def stream(seed: int, consumer: str) -> Random:
    """The random numbers of one consumer; what others draw does not shift them."""
    return Random(f"{seed}/{consumer}")


def run(main: Callable[[], Awaitable[T]], *, seed: int) -> T:
    """Run ``main`` with virtual time and a schedule that depends on ``seed`` alone."""
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # as trio's plugin for Hypothesis does
    trio_run._r.seed(f"{seed}/schedule")
    try:
        return trio.run(main, clock=make_clock())
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
