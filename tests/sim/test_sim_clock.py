"""Waiting without cancel scopes is waiting all the same: in order, until the moment, and not when cancelled."""

import trio
from trio.testing import MockClock

from tests.sim import sim_clock, sim_loop
from tests.sim.sim_clock import Bell


def test_sleepers_wake_at_their_moments_in_order() -> None:
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        woken.append((name, trio.current_time()))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name, seconds in (("c", 3.0), ("a", 0.1), ("b", 2.0)):
                nursery.start_soon(sleeper, name, seconds)
            with trio.move_on_after(1.0) as scope:
                await trio.sleep(2.5)
            woken.append(("cancelled", trio.current_time()))
            assert scope.cancelled_caught

    assert trio.sleep is not sim_clock.sleep
    sim_loop.run(main, seed=1)
    assert woken == [("a", 0.1), ("cancelled", 1.0), ("b", 2.0), ("c", 3.0)]
    assert trio.sleep is not sim_clock.sleep


async def test_a_bell_wakes_all_who_wait_and_nobody_twice(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    bell, woken = Bell(), []

    async def wait(moment: float) -> None:
        await bell.wait(moment)
        woken.append(trio.current_time())

    for moment in (1.0, 5.0, float("inf")):
        nursery.start_soon(wait, moment)
    await trio.sleep(3.0)
    assert woken == [1.0]
    bell.ring()
    await trio.sleep(10.0)
    assert woken == [1.0, 3.0, 3.0]


async def test_who_waits_behind_a_shield_is_cancelled_afterwards(autojump_clock: MockClock) -> None:
    bell = Bell()
    with trio.move_on_after(1.0) as scope:
        await bell.wait(trio.current_time() + 2.0, shield=True)
        assert trio.current_time() == 2.0
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
