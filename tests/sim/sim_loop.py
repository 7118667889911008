"""trio's run loop without what a simulation does not have: threads, files, instruments, a guest. Order and rules stay.

Time jumps to the next deadline when nobody can run, and the kernel is asked only when there is none.
"""

import gc
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from math import inf
from operator import attrgetter
from random import Random
from typing import Any, Final, TypeVar

import trio
import trio._core._run as trio_run
from outcome import Error, Outcome, Value
from trio._core._traps import CancelShieldedCheckpoint

from tests.sim import sim_trio
from tests.sim.sim_clock import Bell, Timers, VirtualClock, sleep, sleep_until, stream

T = TypeVar("T")

_AGE: Final = attrgetter("_counter")
_KERNEL_S: Final = 60.0
_LEFT: Final[list[Any]] = []
"""Runs that were left with tasks in them. Tasks that nobody holds would be closed, and go on with their last words."""


class _Now:
    """Of the run that goes on: its clock, and the order in which tasks run."""

    clock: VirtualClock
    order: Random


_NOW: Final = _Now()
_INSTALLED: Final[list[bool]] = []


@contextmanager
def uncollected() -> Iterator[None]:
    """A schedule runs without garbage collections: each would go through all that a whole world holds."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def installed() -> Iterator[None]:
    """Replace what runs use for the time of several; a class that is changed is slow for a while."""
    if _INSTALLED:
        yield
        return
    replacements = (
        (trio_run, "unrolled_run", lambda runner, main, args: _loop(runner, main, args, _NOW.order)),
        *sim_trio.replacements(),
        (trio, "sleep", sleep),
        (trio, "sleep_until", sleep_until),
        (trio, "current_time", lambda: _NOW.clock.now),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    _INSTALLED.append(True)
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        _INSTALLED.clear()
        for owner, name, original in before:
            setattr(owner, name, original)


def run(main: Callable[[], Awaitable[T]], *, seed: int, clock: VirtualClock | None = None) -> T:
    """Run ``main`` with virtual time and a schedule that depends on ``seed`` alone."""
    with installed():
        _NOW.clock, _NOW.order = clock or VirtualClock(), stream(seed, "schedule")
        return trio.run(main, clock=_NOW.clock)


async def leave(result: object) -> None:
    """End the run here and now with this result; every task stays where it is for the rest of the process.

    Cancelling all that runs on three machines is a tenth of a schedule.
    """
    runner: Any = trio_run.GLOBAL_RUN_CONTEXT.runner
    runner.main_task_outcome = Value(result)
    _LEFT.append(runner)
    await Bell().wait()


def _loop(
    runner: Any, main: Callable[..., Awaitable[object]], args: tuple[object, ...], order: Random
) -> Generator[float, Any, None]:
    """A run from its first task to its last; yields how long the kernel may take to bring something."""
    clock: VirtualClock = runner.clock
    timers = runner.deadlines = Timers(runner.deadlines)
    moments, context, runnable = timers.moments, trio_run.GLOBAL_RUN_CONTEXT, runner.runq
    try:
        runner.entry_queue.wakeup.wakeup_on_signals()  # Ctrl-C
        runner.init_task = runner.spawn_impl(runner.init, (main, args), None, "<init>", system_task=True)
        while runner.tasks and not (_LEFT and _LEFT[-1] is runner):
            if not runnable:
                moment = timers.next_deadline()
                if moment == inf:
                    runner.io_manager.process_events((yield _KERNEL_S))
                elif moment > clock.now:
                    clock.now = moment
            now, heap = clock.now, timers._heap
            if (moments and moments[0][0] <= now) or (heap and heap[0][0] <= now):
                timers.expire(now)
            batch = list(runnable)
            runnable.clear()
            if len(batch) > 1:
                batch.sort(key=_AGE)
                _shuffle(batch, order.random)
            while batch:
                task = context.task = batch.pop()
                task._next_send_fn = None
                try:
                    message = task.coro.send(task._next_send)
                except BaseException as error:  # noqa: BLE001 - whatever a task dies of, its nursery is told
                    runner.task_exited(task, _end(error))
                    continue
                if message is CancelShieldedCheckpoint:
                    runner.reschedule(task)
                    continue
                task._abort_func = message.abort_func
                if task._cancel_status.effectively_cancelled:
                    task._attempt_delivery_of_any_pending_cancel()
                elif runner.ki_pending and task is runner.main_task:
                    task._attempt_delivery_of_pending_ki()
    except BaseException as error:
        raise trio.TrioInternalError("the simulator's loop failed") from error
    finally:
        runner.close()
        trio_run.GLOBAL_RUN_CONTEXT.__dict__.clear()


def _shuffle(batch: list[Any], chance: Callable[[], float]) -> None:
    """As Random.shuffle, whose numbers cost five times as much."""
    for at in range(len(batch) - 1, 0, -1):
        other = int(chance() * (at + 1))
        batch[at], batch[other] = batch[other], batch[at]


def _end(error: BaseException) -> Outcome[object]:
    """How a task ended: with a value, or of this."""
    if isinstance(error, StopIteration):
        return Value(error.value)
    traceback = error.__traceback__
    return Error(error.with_traceback(traceback.tb_next if traceback is not None else None))
