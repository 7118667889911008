"""Elections in a group that is in order but for one member: after its leader's disk has failed, or a restart of all.

Latencies that are drawn for every message break each tie by chance. Here all lines are equally long, but for those of
the leader that failed, which lives on, has an entry more, and answers before everybody else.
"""

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from tests.sim.sim_clock import stream

if TYPE_CHECKING:
    from tests.sim.dledger.machine import Machine
    from tests.sim.dledger.world import World

_EQUAL_S: Final = 0.02
_FAILS_S: Final = 10.0
"""A disk that fails at the next flush has failed within this time: somebody appends all the while."""
_LOOK_S: Final = 0.1
_ASKS_S: Final = 6.0
"""A client that asked a member which then failed asks the next leader within this time."""
LAST_S: Final = 180.0
"""More than all of them take."""


class Elections:
    """Of one world. ``is_taken`` appends something, and says whether that was acknowledged."""

    def __init__(self, world: "World", *, is_taken: Callable[[], Awaitable[bool]], limit_s: float) -> None:
        self._world: Final = world
        self._is_taken: Final = is_taken
        self._limit_s: Final = limit_s + _ASKS_S
        self._random: Final = stream(world.seed, "dledger/elections")

    async def run(self) -> None:
        """S11: where a quorum is well somebody leads, though a failed member answers first, or all are equal."""
        self._world.is_calm_since = inf
        await self._takes("before the leader's disk fails")
        await self._survive_the_leaders_disk()
        await self._takes("once it is repaired")
        await self._restart_all()

    async def _survive_the_leaders_disk(self) -> None:
        world, machines = self._world, self._world.machines
        failed = next((one for one in machines.values() if one.leads), None)
        if failed is None:
            return
        self._even_out(but=failed)
        others = [one.address for one in machines.values() if one is not failed]
        for address in others:  # its last entry reaches nobody
            world.net.cut(failed.address, address)
        failed.disk.faults.sync_errors = 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._is_taken)
            with trio.move_on_after(_FAILS_S):
                while not failed.is_broken:  # noqa: ASYNC110 - a look from outside
                    await trio.sleep(_LOOK_S)
            for address in others:
                world.net.reset_between(failed.address, address)
            world.net.mend([(failed.address, address) for address in others])
        world.journal.record("failed for good", failed.name, failed.is_broken)
        await self._takes(f"after the disk of {failed.name} has failed")
        failed.disk.faults.sync_errors = 0
        failed.kill()
        failed.boot()
        world.net.delays.clear()

    async def _restart_all(self) -> None:
        """Of five members one stays away."""
        world = self._world
        machines = list(world.machines.values())
        away = self._random.choice(machines) if len(machines) > world.swarm.quorum + 1 else None
        self._even_out(but=None)
        for machine in machines:
            machine.kill()
        for machine in machines:
            if machine is not away:
                machine.boot()
        world.journal.record("all restarted", away.name if away else "")
        await self._takes("after a restart of all")
        if away is not None:
            away.boot()
        world.net.delays.clear()

    async def _takes(self, when: str) -> None:
        world = self._world
        if world.checker.violations:
            return
        with trio.move_on_after(self._limit_s) as limit:
            while not await self._is_taken():  # noqa: ASYNC110 - it is asked
                await trio.sleep(_LOOK_S)
        if limit.cancelled_caught and not world.checker.violations:
            world.checker.violation(
                "S11", f"the group takes nothing for {self._limit_s:g} s {when}: {world.standing()}"
            )

    def _even_out(self, *, but: "Machine | None") -> None:
        """Of all lines between members; those of one stay as they are."""
        addresses = [machine.address for machine in self._world.machines.values() if machine is not but]
        for sender in addresses:
            for receiver in addresses:
                if sender != receiver:
                    self._world.net.delays[sender, receiver] = _EQUAL_S
