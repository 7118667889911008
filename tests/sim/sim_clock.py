"""Time and chance of a simulated run: virtual seconds that jump, wrong wall clocks, a scheduler with a seed."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""What a true wall clock shows when a run begins."""


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
        return trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
