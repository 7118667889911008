"""Parts of trio as a simulation needs them: the same steps in the same order, without the words for a debugger.

Half of a schedule was trio's own work, and half of that what nobody needs here. What is replaced, while a run lasts:

* why a scope was cancelled is not told: each nursery that is left would repeat the text of those inside;
* a task is told that it is cancelled by one object for all; and by one more that it waited for nothing in particular;
* what a cancel scope does around a change of its deadline: a context manager made of a generator, twice a scope;
* a scope or task that is made or ends looks for cancellation only where there is some;
* the abstract base class behind trio's own ones, which Python asks at each raise.
"""

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, copy_context
from math import inf
from typing import Any, Final

import trio
import trio._core._run as trio_run
import trio._core._traps as trio_traps

from tests.sim import sim_nursery

_CONTEXT: Final = trio_run.GLOBAL_RUN_CONTEXT
_SHARED: Final = copy_context()
"""Nobody here has context variables."""


class _Nothing:
    """What is sent to a task that waited for nothing in particular."""

    def unwrap(self) -> None:
        """See outcome.Value."""


class _Cancellation:
    """What is sent to a task that is cancelled."""

    def unwrap(self) -> None:
        """See outcome.Error. What the exception knows of its reason is for a text that nobody reads."""
        raise BaseException.__new__(trio.Cancelled)


NOTHING: Final = _Nothing()
_REASON: Final = trio_run.CancelReason(source="unknown")
CANCELLATION: Final = _Cancellation()


class Wait:
    """What a task hands to the loop, to wait: as WaitTaskRescheduled, which is frozen."""

    __slots__ = ("abort_func",)

    def __init__(self, abort_func: Callable[[Any], trio.lowlevel.Abort]) -> None:
        self.abort_func = abort_func


class _EventWait:
    """trio.Event.wait, without a coroutine of its own, nor two of trio's core; the loop is handed this object."""

    __slots__ = ("_task", "_tasks")

    def __init__(self, tasks: set[Any]) -> None:
        self._tasks = tasks

    def abort_func(self, _: object) -> trio.lowlevel.Abort:
        """See trio.lowlevel.wait_task_rescheduled."""
        self._tasks.remove(self._task)
        return trio.lowlevel.Abort.SUCCEEDED

    def __await__(self) -> Generator[object, Any, None]:
        self._task = _CONTEXT.task
        self._tasks.add(self._task)
        if (sent := (yield self)) is not NOTHING:
            sent.unwrap()


def _wait(event: Any) -> Awaitable[None]:
    return _CHECKPOINT if event._flag else _EventWait(event._tasks)


class _Checkpoint:
    """trio.lowlevel.checkpoint, which has two coroutines inside."""

    def __await__(self) -> Generator[object, Any, None]:
        yield trio_traps.CancelShieldedCheckpoint
        task = _CONTEXT.task
        if task._cancel_status.effectively_cancelled:
            yield from _be_cancelled().__await__()


_CHECKPOINT: Final = _Checkpoint()


def checkpoint() -> Awaitable[None]:
    """As trio.lowlevel.checkpoint."""
    return _CHECKPOINT


class _Passing:
    """An awaitable that waits for nothing."""

    def __await__(self) -> Generator[object, Any, None]:
        return
        yield


_PASSING: Final = _Passing()


def _checkpoint_if_cancelled() -> Awaitable[None]:
    return _CHECKPOINT if _CONTEXT.task._cancel_status.effectively_cancelled else _PASSING


async def _be_cancelled() -> None:
    """The rest of trio's checkpoint, when there is a cancellation to deliver."""
    with trio.CancelScope(deadline=-inf):
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)


def _set(event: Any) -> None:
    if not event._flag:
        event._flag = True
        for task in event._tasks:
            _CONTEXT.runner.reschedule(task)
        event._tasks.clear()


def _reschedule(runner: Any, task: Any, next_send: Any = NOTHING) -> None:
    task._next_send = NOTHING if next_send is trio_run._NO_SEND else next_send
    task._abort_func = task.custom_sleep_data = None
    runner.runq.append(task)


def _spawn(
    runner: Any,
    async_fn: Callable[..., Any],
    args: tuple[object, ...],
    nursery: Any,
    name: object,
    *,
    system_task: bool = False,
    context: Context | None = None,
) -> Any:
    if nursery is not None and nursery._closed:
        raise RuntimeError("Nursery is closed to new arrivals")
    task = type.__call__(
        trio.lowlevel.Task,
        coro=async_fn(*args),
        parent_nursery=nursery,
        runner=runner,
        name=name or async_fn,
        context=_SHARED,
        ki_protected=system_task,
    )
    runner.tasks.add(task)
    if nursery is not None:
        nursery._children.add(task)
        task._activate_cancel_status(nursery._cancel_status)
    runner.reschedule(task, None)
    return task


def _activate_cancel_status(task: Any, status: Any) -> None:
    if task._cancel_status is not None:
        task._cancel_status._tasks.remove(task)
    task._cancel_status = status
    if status is not None:
        status._tasks.add(task)
        if status.effectively_cancelled:
            task._attempt_delivery_of_any_pending_cancel()


def _deliver_cancel(task: Any) -> None:
    abort = task._abort_func
    if abort is not None and task._cancel_status.effectively_cancelled:
        task._abort_func = None
        if abort(CANCELLATION.unwrap) is trio.lowlevel.Abort.SUCCEEDED:
            task._runner.reschedule(task, CANCELLATION)


def _is_cancelled(status: Any) -> bool:
    scope, parent = status._scope, status._parent
    return scope._cancel_called or (parent is not None and parent.effectively_cancelled and not scope._shield)


def _make_status(status: Any, scope: Any, *, parent: Any = None) -> None:
    status._scope, status._parent, status.effectively_cancelled = scope, parent, False
    status._children, status._tasks, status.abandoned_by_misnesting = set(), set(), False
    if parent is not None:
        parent._children.add(status)
        if scope._cancel_called or (parent.effectively_cancelled and not scope._shield):
            status.recalculate()


def _make_scope(scope: Any, *, relative_deadline: float = inf, deadline: float = inf, shield: bool = False) -> None:
    scope._relative_deadline, scope._deadline, scope._shield = relative_deadline, deadline, shield
    scope._has_been_entered = scope._cancel_called = scope.cancelled_caught = False
    scope._cancel_status = scope._cancel_reason = None
    scope._registered_deadline = inf


def _recalculate(status: Any) -> None:
    todo = [status]
    while todo:
        current = todo.pop()
        is_cancelled = _is_cancelled(current)
        if is_cancelled != current.effectively_cancelled:
            current.effectively_cancelled = is_cancelled
            if is_cancelled:
                current._scope._cancel_reason = _REASON
                for task in current._tasks:
                    task._attempt_delivery_of_any_pending_cancel()
            todo.extend(current._children)


def _cancel(scope: Any, reason: object = None) -> None:
    if not scope._cancel_called:
        scope._cancel_called, scope._cancel_reason = True, _REASON
        _register_deadline(scope)
        if scope._cancel_status is not None:
            scope._cancel_status.recalculate()


def _enter_scope(scope: Any) -> Any:
    if scope._has_been_entered:
        raise RuntimeError("a cancel scope is entered once")
    scope._has_been_entered = True
    task = _CONTEXT.task
    if scope._relative_deadline != inf or scope._deadline != inf:
        now = _CONTEXT.runner.clock.current_time()
        if scope._relative_deadline != inf:
            scope._deadline, scope._relative_deadline = now + scope._relative_deadline, inf
        if now >= scope._deadline:
            scope._cancel_called, scope._cancel_reason = True, _REASON
    before = task._cancel_status
    status = scope._cancel_status = task._cancel_status = trio_run.CancelStatus(scope, parent=before)
    if before is not None:
        before._tasks.remove(task)
    status._tasks.add(task)
    if status.effectively_cancelled:
        task._attempt_delivery_of_any_pending_cancel()
    if scope._deadline != inf and not scope._cancel_called:
        scope._registered_deadline = scope._deadline
        _CONTEXT.runner.deadlines.add(scope._deadline, scope)
    return scope


_close_any: Final = trio.CancelScope._close


def _close_scope(scope: Any, error: BaseException | None) -> BaseException | None:
    status, task = scope._cancel_status, _CONTEXT.task
    if status is None or status._parent is None or status._children or task._cancel_status is not status:
        return _close_any(scope, error)
    if len(status._tasks) > 1:
        return _close_any(scope, error)
    parent = status._parent
    task._cancel_status = parent
    parent._tasks.add(task)
    if parent.effectively_cancelled:
        task._attempt_delivery_of_any_pending_cancel()
    is_ours = status.effectively_cancelled and (scope._shield or not parent.effectively_cancelled)
    if error is not None and is_ours:
        error = _without_cancellations(scope, error)
    parent._children.remove(status)
    status._parent = scope._cancel_status = None
    if scope._registered_deadline != inf:
        _register_deadline(scope)
    return error


def _without_cancellations(scope: Any, error: BaseException) -> BaseException | None:
    if isinstance(error, trio.Cancelled):
        scope.cancelled_caught = True
        return None
    if not isinstance(error, BaseExceptionGroup):
        return error
    cancelled, rest = error.split(trio.Cancelled)
    if cancelled is not None:
        scope.cancelled_caught = True
    return trio_run.collapse_exception_group(rest) if rest is not None else None


def _register_deadline(scope: Any) -> None:
    is_waiting = scope._cancel_status is not None and not scope._cancel_called
    before, now = scope._registered_deadline, scope._deadline if is_waiting else inf
    if before != now:
        scope._registered_deadline = now
        deadlines = _CONTEXT.runner.deadlines
        if before != inf:
            deadlines.remove(before, scope)
        if now != inf:
            deadlines.add(now, scope)


class _ChangedDeadline:
    """trio registers the deadline of a scope again, after whatever is done inside."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Any) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        """Nothing is done yet."""

    def __exit__(self, *_: object) -> None:
        _register_deadline(self._scope)


def _changing_deadline(scope: Any) -> _ChangedDeadline:
    return _ChangedDeadline(scope)


def replacements() -> list[tuple[Any, str, Any]]:
    """Each as owner, name, and what stands there while a run lasts."""
    scope, status, task = trio.CancelScope, trio_run.CancelStatus, trio.lowlevel.Task
    return [
        (trio_run.Runner, "reschedule", _reschedule),
        (trio_run.Runner, "spawn_impl", _spawn),
        (trio_run, "CancelReason", lambda **_: _REASON),
        (trio_traps, "WaitTaskRescheduled", Wait),
        (trio.lowlevel, "checkpoint", checkpoint),
        (trio.lowlevel, "checkpoint_if_cancelled", _checkpoint_if_cancelled),
        *sim_nursery.replacements(),
        (trio.Event, "wait", _wait),
        (trio.Event, "set", _set),
        (scope, "__init__", _make_scope),
        (scope, "__enter__", _enter_scope),
        (scope, "_close", _close_scope),
        (scope, "cancel", _cancel),
        (scope, "_cancel", _cancel),
        (scope, "_might_change_registered_deadline", _changing_deadline),
        (status, "__init__", _make_status),
        (status, "recalculate", _recalculate),
        (task, "_activate_cancel_status", _activate_cancel_status),
        (task, "_attempt_delivery_of_any_pending_cancel", _deliver_cancel),
        (task, "__repr__", lambda task: "a task"),
        (trio.Cancelled, "__repr__", lambda _: "Cancelled"),
        (type(trio.Cancelled), "__subclasscheck__", type.__subclasscheck__),
    ]
