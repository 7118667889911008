"""Time and chance of a simulated run: virtual seconds that jump, wrong wall clocks, a scheduler with a seed.

Half of a run used to be trio's own work, most of it cancel scopes made to wait for a moment and system calls that ask
for events of no file. So moments are waited for without a scope here (:class:`Bell`), and nobody asks the kernel.
"""

from collections.abc import Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, Final, TypeVar

import trio
import trio._core._run as trio_run
from trio._core._mock_clock import MockClock  # trio.testing would load pytest

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""What a true wall clock shows when a run begins."""


class _Waiter:
    """A task that waits. ``task`` is None once it was woken or cancelled."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = trio_run.GLOBAL_RUN_CONTEXT.task

    def wake(self) -> None:
        """Let it run, once."""
        task, self.task = self.task, None
        if task is not None:
            trio_run.GLOBAL_RUN_CONTEXT.runner.reschedule(task)

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait(self, *, shield: bool) -> None:
        """Return when somebody calls :meth:`wake`."""
        await trio.lowlevel.wait_task_rescheduled(_refuse if shield else self._give_up)


def _refuse(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class Timers(trio_run.Deadlines):
    """The deadlines of a run's cancel scopes, as trio keeps them, and beside them moments that tasks wait for."""

    def __init__(self, of_scopes: trio_run.Deadlines) -> None:
        super().__init__(of_scopes._heap, of_scopes._active)
        self._moments: list[tuple[float, int, _Waiter]] = []
        self._count = 0
        """Makes each moment unique: what was asked for first comes first."""

    @classmethod
    def of_this_run(cls) -> "Timers":
        """They take the place of trio's own, whatever its clock is."""
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        timers = runner.deadlines
        if type(timers) is not cls:
            timers = runner.deadlines = cls(timers)
        return timers

    def wake_at(self, moment: float, waiter: _Waiter) -> None:
        """Wake it then, unless it was woken before."""
        if moment != inf:
            self._count += 1
            heappush(self._moments, (moment, self._count, waiter))

    def next_deadline(self) -> float:
        """Of scopes and waiting tasks alike."""
        moments = self._moments
        while moments and moments[0][2].task is None:
            heappop(moments)
        deadline = super().next_deadline()
        return min(deadline, moments[0][0]) if moments else deadline

    def expire(self, now: float) -> bool:
        """Cancel the scopes and wake the tasks whose time has come; whether there were any."""
        has_expired = bool(self._heap) and super().expire(now)
        moments = self._moments
        while moments and moments[0][0] <= now:
            waiter = heappop(moments)[2]
            has_expired = has_expired or waiter.task is not None
            waiter.wake()
        return has_expired


async def sleep_until(deadline: float) -> None:
    """As trio.sleep_until, at a quarter of its price."""
    waiter = _Waiter()
    Timers.of_this_run().wake_at(deadline, waiter)
    await waiter.wait(shield=False)


async def sleep(seconds: float) -> None:
    """As trio.sleep."""
    if seconds > 0:
        await sleep_until(trio.current_time() + seconds)
    else:
        await trio.lowlevel.checkpoint()


class Bell:
    """Tasks wait here for a ring or for a moment, whatever comes first."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[_Waiter] = []

    def ring(self) -> None:
        """Whoever waits now goes on."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.wake()

    async def wait(self, moment: float = inf, *, shield: bool = False) -> None:
        """Return at the next ring, or at this moment."""
        waiter = _Waiter()
        if moment != inf:
            Timers.of_this_run().wake_at(moment, waiter)
        self._waiters.append(waiter)
        try:
            await waiter.wait(shield=shield)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)


class _FewFiles:
    """trio's io_manager, in a world without files: the kernel is asked only when there is nothing else to wait for.

    (trio ends a run through a socket to itself.)
    """

    def __init__(self, real: Any) -> None:
        self._real = real
        self.process_events = real.process_events
        self.is_all_that_is_left = False

    def get_events(self, timeout: float) -> Any:
        """Those of files, if it matters."""
        return self._real.get_events(timeout) if self.is_all_that_is_left else []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def make_clock() -> MockClock:
    """Virtual time that jumps to the next deadline, exactly, whenever everybody waits.

    trio insists on a MockClock; that one's arithmetic lands beside the deadline now and then, and is slow.
    """
    clock = MockClock(autojump_threshold=0)
    now = 0.0

    def autojump() -> None:
        nonlocal now
        runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
        deadline = runner.deadlines.next_deadline()
        runner.io_manager.is_all_that_is_left = deadline == inf
        if deadline != inf:
            now = max(now, deadline)

    clock.current_time = lambda: now  # type: ignore[method-assign]
    clock.deadline_to_sleep_time = lambda deadline: 0.0 if deadline <= now else 999_999_999.0  # type: ignore[method-assign]
    clock._autojump = autojump  # type: ignore[method-assign]
    start = clock.start_clock

    def start_clock() -> None:
        start()
        runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
        runner.io_manager = _FewFiles(runner.io_manager)
        runner.instruments = {}  # looked into seven times a step

    clock.start_clock = start_clock  # type: ignore[method-assign]
    return clock


class WallClock:
    """The wall clock of one machine: true time plus an error that may jump."""

    def __init__(self, *, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms

    def __call__(self) -> int:
        """Milliseconds since the epoch, as this machine believes."""
        return EPOCH_MS + self.skew_ms + int(trio.current_time() * 1000)


class _Order(Random):
    """The order in which trio runs what may run at once. Most often that is one task."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """As Random's."""
        if len(x) > 1:
            super().shuffle(x)


def stream(seed: int, consumer: str) -> Random:
    """The random numbers of one consumer; what others draw does not shift them."""
    return Random(f"{seed}/{consumer}")


@contextmanager
def _cheap_time(clock: MockClock) -> Iterator[None]:
    """For as long as this is entered everybody sleeps by :func:`sleep`."""
    before = trio.sleep, trio.sleep_until, trio.current_time
    trio.sleep, trio.sleep_until, trio.current_time = sleep, sleep_until, clock.current_time
    try:
        yield
    finally:
        trio.sleep, trio.sleep_until, trio.current_time = before


def run(main: Callable[[], Awaitable[T]], *, seed: int) -> T:
    """Run ``main`` with virtual time and a schedule that depends on ``seed`` alone."""
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # as trio's plugin for Hypothesis does
    trio_run._r = _Order(f"{seed}/schedule")
    clock = make_clock()
    try:
        with _cheap_time(clock):
            return trio.run(main, clock=clock)
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r = before  # type: ignore[misc]
