"""Asynchronous tests with the fixture ``virtual_clock`` run on the simulator's loop, not on trio's with a MockClock.

Machines that idle through hours of virtual time cost a third to a seventh there, and tasks run in the same order each
time. What it does not have: threads, files that are waited for, asynchronous fixtures.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction

import pytest

from tests.sim import sim_loop
from tests.sim.sim_clock import VirtualClock


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """The time of this test, which jumps to the next deadline when nobody can run."""
    return VirtualClock()


def _run(test: Callable[..., Awaitable[None]], *, virtual_clock: VirtualClock, **fixtures: object) -> None:
    sim_loop.run(partial(test, **fixtures, virtual_clock=virtual_clock), seed=0, clock=virtual_clock)


def run_on_virtual_clocks(items: list[pytest.Item]) -> None:
    """Before pytest-trio takes each coroutine for its own."""
    for item in items:
        if isinstance(item, pytest.Function) and "virtual_clock" in item.fixturenames and iscoroutinefunction(item.obj):
            item.obj = partial(_run, item.obj)
