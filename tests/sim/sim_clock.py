"""Time and chance of a simulated run: virtual seconds that jump, wrong wall clocks, random numbers for each consumer.

A cancel scope made to wait for a moment costs four times as much as the waiting: here there is none (:class:`Bell`).
"""

from collections.abc import Awaitable, Callable, Generator
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, Final

import trio
import trio._core._run as trio_run
import trio._core._traps as trio_traps

from tests.sim.sim_trio import NOTHING, Wait, checkpoint

_CONTEXT: Final = trio_run.GLOBAL_RUN_CONTEXT
EPOCH_MS: Final = 1_700_000_000_000
"""What a true wall clock shows when a run begins."""


class _Waiter:
    """A task that waits for :meth:`wake`, when awaited. ``task`` is None once it was woken or cancelled."""

    __slots__ = ("_is_shielded", "task")

    def __init__(self, *, is_shielded: bool = False) -> None:
        self.task: trio.lowlevel.Task | None = _CONTEXT.task
        self._is_shielded = is_shielded

    def wake(self) -> None:
        """Let it run, once."""
        task, self.task = self.task, None
        if task is not None:
            _CONTEXT.runner.reschedule(task)

    def abort_func(self, _: object) -> trio.lowlevel.Abort:
        """See trio.lowlevel.wait_task_rescheduled."""
        if self._is_shielded:
            return trio.lowlevel.Abort.FAILED
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def __await__(self) -> Generator[object, Any, None]:
        """As trio.lowlevel.wait_task_rescheduled, with this object for our loop, and no coroutine."""
        is_ours: bool = trio_traps.WaitTaskRescheduled is Wait  # type: ignore[comparison-overlap]
        waits_for = self if is_ours else trio_traps.WaitTaskRescheduled(self.abort_func)
        if (sent := (yield waits_for)) is not NOTHING:
            sent.unwrap()


class _Call:
    """Something to be done at a moment, by nobody's task."""

    __slots__ = ("task", "wake")

    def __init__(self, act: Callable[[], object]) -> None:
        self.task: object = self
        self.wake = act


class Timers(trio_run.Deadlines):
    """The deadlines of a run's cancel scopes, as trio keeps them, and beside them moments that tasks wait for."""

    def __init__(self, of_scopes: trio_run.Deadlines) -> None:
        super().__init__(of_scopes._heap, of_scopes._active)
        self.moments: Final[list[tuple[float, int, _Waiter | _Call]]] = []
        """A heap: when, a number that makes each unique (what was asked for first comes first), and who."""
        self._count = 0

    @classmethod
    def of_this_run(cls) -> "Timers":
        """They take the place of trio's own, whatever its clock is."""
        runner = _CONTEXT.runner
        timers = runner.deadlines
        if type(timers) is not cls:
            timers = runner.deadlines = cls(timers)
        return timers

    def wake_at(self, moment: float, waiter: _Waiter | _Call) -> None:
        """Wake it then, unless it was woken before."""
        if moment != inf:
            self._count += 1
            heappush(self.moments, (moment, self._count, waiter))

    def next_deadline(self) -> float:
        """Of scopes and waiting tasks alike."""
        moments, heap = self.moments, self._heap
        while moments and moments[0][2].task is None:
            heappop(moments)
        while heap and heap[0][0] != heap[0][2]._registered_deadline:
            heappop(heap)
        deadline = heap[0][0] if heap else inf
        return moments[0][0] if moments and moments[0][0] < deadline else deadline

    def expire(self, now: float) -> bool:
        """Cancel the scopes and wake the tasks whose time has come; whether there were any."""
        heap = self._heap
        has_expired = bool(heap) and heap[0][0] <= now and super().expire(now)
        moments = self.moments
        while moments and moments[0][0] <= now:
            waiter = heappop(moments)[2]
            if waiter.task is not None:
                has_expired = True
                waiter.wake()
        return has_expired


def call_at(moment: float, act: Callable[[], object]) -> None:
    """Do something then, if the run still goes on; it takes no task."""
    Timers.of_this_run().wake_at(moment, _Call(act))


def sleep_until(deadline: float) -> Awaitable[None]:
    """As trio.sleep_until, at a quarter of its price; to be awaited at once."""
    waiter = _Waiter()
    Timers.of_this_run().wake_at(deadline, waiter)
    return waiter


def sleep(seconds: float) -> Awaitable[None]:
    """As trio.sleep."""
    if seconds <= 0:
        return checkpoint()
    waiter = _Waiter()
    Timers.of_this_run().wake_at(trio.current_time() + seconds, waiter)
    return waiter


class Bell:
    """Tasks wait here for a ring or for a moment, whatever comes first."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[_Waiter] = []

    def ring(self) -> None:
        """The tasks that wait now go on."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.wake()

    def ring_at(self, moment: float) -> None:
        """The tasks that wait now go on then, at the latest."""
        if self._waiters:
            timers = Timers.of_this_run()
            for waiter in self._waiters:
                if waiter.task is not None:
                    timers.wake_at(moment, waiter)

    def wait(self, moment: float = inf, *, shield: bool = False) -> Awaitable[None]:
        """Return at the next ring, or at this moment; to be awaited at once."""
        waiter = _Waiter(is_shielded=shield)
        if moment != inf:
            Timers.of_this_run().wake_at(moment, waiter)
        if self._waiters:
            self._waiters = [other for other in self._waiters if other.task is not None]
        self._waiters.append(waiter)
        return waiter


class VirtualClock(trio.abc.Clock):
    """Seconds since a run began, on which nothing takes time: the loop's runner lets them jump."""

    def __init__(self) -> None:
        self.now = 0.0

    def start_clock(self) -> None:
        """See trio.abc.Clock."""

    def current_time(self) -> float:
        """See trio.abc.Clock."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See trio.abc.Clock."""
        return max(deadline - self.now, 0.0)


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
