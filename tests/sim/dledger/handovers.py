"""Transfers of leadership in a group that is in order: several in a row, and one to a member that has just died."""

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from tests.sim.sim_clock import stream

if TYPE_CHECKING:
    from tests.sim.dledger.machine import Machine
    from tests.sim.dledger.world import World

ROUNDS: Final = 2
"""So often each member takes over: once proves nothing of the second time."""
_TRIES: Final = 8
_AGAIN_S: Final = 0.5
"""A new leader learns first what the others have."""
_LOOK_S: Final = 0.1
_LEADER_S: Final = 10.0
_GOES_ON_S: Final = 6.0
"""A leader that could not hand over takes appends again within this time."""
LAST_S: Final = 120.0
"""More than all of them take."""


class Handovers:
    """Of one world. ``is_taken`` appends something, and says whether that was acknowledged."""

    def __init__(self, world: "World", *, is_taken: Callable[[], Awaitable[bool]]) -> None:
        self._world: Final = world
        self._is_taken: Final = is_taken
        self._random: Final = stream(world.seed, "dledger/handovers")

    async def run(self) -> None:
        """S11: each member takes over whenever it is asked, and a leader that could not hand over goes on."""
        for _ in range(ROUNDS):
            names = self._world.swarm.names
            self._random.shuffle(names)
            for name in names:
                await self.hand_over(name)
        await self._fail_to_hand_over()

    async def hand_over(self, name: str) -> None:
        """To this member, unless it leads; where a line or a disk is slow an attempt may fail."""
        world, codes = self._world, list[int | None]()
        while len(codes) < _TRIES and not world.checker.violations:
            leader = await self._leader()
            if leader is None or leader.name == name:
                return
            codes.append(await world.transfer(name))
            if codes[-1] == DLedgerResponseCode.SUCCESS:
                world.journal.record("handed over", leader.name, name)
                return
            await trio.sleep(_AGAIN_S)
        if world.checker.violations:
            return
        world.checker.violation("S11", f"{name} does not take over, though all is in order: {codes}")

    async def _leader(self) -> "Machine | None":
        with trio.move_on_after(_LEADER_S):
            while True:
                for machine in self._world.machines.values():
                    if machine.leads:
                        return machine
                await trio.sleep(_LOOK_S)
        self._world.checker.violation("S11", "nobody leads, though all is in order")
        return None

    async def _fail_to_hand_over(self) -> None:
        """To a member that has just died, of which the leader does not know yet."""
        world, leader = self._world, await self._leader()
        if leader is None:
            return
        name = self._random.choice([name for name in world.swarm.names if name != leader.name])
        world.is_calm_since = inf
        world.machines[name].kill()
        code = await world.transfer(name)
        world.machines[name].boot()
        world.journal.record("not handed over", leader.name, name, code)
        with trio.move_on_after(_GOES_ON_S) as limit:
            while not await self._is_taken():  # noqa: ASYNC110 - it is asked
                await trio.sleep(_LOOK_S)
        if limit.cancelled_caught and not world.checker.violations:
            told = f"{leader.name} could not hand over to {name}, which had died"
            world.checker.violation("S11", f"{told}, and the group takes nothing for {_GOES_ON_S:g} s")
