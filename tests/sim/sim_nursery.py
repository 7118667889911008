"""trio's nurseries as a simulation needs them: the same steps, and no words about why a child ended."""

from typing import Any, Final

import trio
import trio._core._run as trio_run
from outcome import Error, Outcome, Value

_CONTEXT: Final = trio_run.GLOBAL_RUN_CONTEXT
_NESTED: Final = "Exceptions from Trio nursery"
_exit_any: Final = trio_run.Runner.task_exited
_make: Final = type.__call__


async def _enter(manager: Any) -> Any:
    scope = manager._scope = trio.CancelScope()
    scope.__enter__()
    nursery = manager._nursery = _make(trio.Nursery, _CONTEXT.task, scope, manager.strict_exception_groups)
    return nursery


async def _exit(manager: Any, _type: object, error: BaseException | None, _traceback: object) -> bool:
    ended = await _finish(manager._nursery, error)
    raised = manager._scope._close(ended)
    if raised is None:
        return True
    if raised is error:
        return False
    before = raised.__context__
    try:
        raise raised
    finally:
        raised.__context__ = before


async def _finish(nursery: Any, error: BaseException | None) -> BaseException | None:
    """What trio calls the nested child has ended: wait for the other ones."""
    if error is not None:
        nursery._pending_excs.append(error)
        nursery.cancel_scope._cancel(None)
    nursery._nested_child_running = False
    _check_closed(nursery)
    if nursery._closed:
        await trio.lowlevel.cancel_shielded_checkpoint()
    else:
        nursery._parent_waiting_in_aexit = True
        await trio.lowlevel.wait_task_rescheduled(_wait_on)
    popped = nursery._parent_task._child_nurseries.pop()
    assert popped is nursery, "nurseries are left in the order in which they were entered, backwards"
    errors, nursery._pending_excs = nursery._pending_excs, []
    if not errors:
        return None
    if len(errors) == 1 and not nursery._strict_exception_groups:
        return errors[0]  # type: ignore[no-any-return]
    return BaseExceptionGroup(_NESTED, errors)


def _wait_on(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


def _check_closed(nursery: Any) -> None:
    if not (nursery._nested_child_running or nursery._children or nursery._pending_starts):
        nursery._closed = True
        if nursery._parent_waiting_in_aexit:
            nursery._parent_waiting_in_aexit = False
            _CONTEXT.runner.reschedule(nursery._parent_task)


def _child_finished(nursery: Any, task: Any, outcome: Outcome[object]) -> None:
    nursery._children.remove(task)
    if isinstance(outcome, Error):
        nursery._pending_excs.append(outcome.error)
        nursery.cancel_scope._cancel(None)
    _check_closed(nursery)


def _task_exited(runner: Any, task: Any, outcome: Outcome[object]) -> None:
    if task._child_nurseries or task is runner.init_task:
        return _exit_any(runner, task, outcome)
    task._activate_cancel_status(None)
    runner.tasks.remove(task)
    if task is runner.main_task:
        runner.main_task_outcome, outcome = outcome, Value(None)
    return _child_finished(task._parent_nursery, task, outcome)


def replacements() -> list[tuple[Any, str, Any]]:
    """See :func:`tests.sim.sim_trio.replacements`."""
    manager = trio_run.NurseryManager
    return [
        (manager, "__aenter__", _enter),
        (manager, "__aexit__", _exit),
        (trio.Nursery, "_check_nursery_closed", _check_closed),
        (trio.Nursery, "_child_finished", _child_finished),
        (trio_run.Runner, "task_exited", _task_exited),
    ]
