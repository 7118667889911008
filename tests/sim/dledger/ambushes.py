"""Faults that strike at one moment which no chance meets: they wait for it, on the wire or on a disk."""

from random import Random
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.dledger_entry import BODY_OFFSET
from tests.sim.dledger.clients import Client
from tests.sim.dledger.held import data_path
from tests.sim.nemesis import Fault
from tests.sim.sim_clock import stream
from tests.sim.sim_disk import SECTOR

if TYPE_CHECKING:
    from tests.sim.dledger.machine import Machine
    from tests.sim.dledger.swarm import Swarm
    from tests.sim.dledger.world import World
    from tests.sim.sim_net import SimStream

_LATE_S: Final = (0.1, 0.3, 1.0)
_ELECTED_S: Final = (0.8, 1.5, 3.0)
"""The others elect a leader within such a time, once they know that the old one is gone."""
_LOOK_S: Final = 0.001
_HIDDEN_S: Final = 0.4
"""A client that waits so long more for a member that hears nothing has its answer in time."""
_HUNG_S: Final = 0.5
_BOOTS_AFTER_S: Final = 1.0
_AMBUSHED: Final = 0.8
_OF_THE_LEADER: Final = ("leader", "follower")
KINDS: Final = ("stale_read", "late_truncate", "cut_point", "torn")
_LOSING: Final = {"cut_point", "torn"}
_TOLD_ONCE: Final = 0.5
_SMALL: Final = 1024
"""Two data files of such a size end within a second."""
_LIE_S: Final = 1.0
_LIES_MAX: Final = 5


def draw_ambush(seed: int, swarm: "Swarm", *, until: float) -> list[Fault]:
    """One in most seeds, beside all else that happens."""
    random: Random = stream(seed, "dledger/ambush")
    kind = random.choice([kind for kind in KINDS if swarm.acks_flushed or kind not in _LOSING])
    at = random.uniform(1.5, until - 4.0)
    node, other = random.choice((("leader", "follower"), ("follower", "leader"))) if kind == "torn" else _OF_THE_LEADER
    value = 3 * swarm.heart_beat_s + random.choice(_ELECTED_S)
    ambushes = [Fault(at, kind, node, other, value=value)] if random.random() < _AMBUSHED else []
    if (
        swarm.acks_flushed
        and swarm.data_size <= _SMALL <= 16 * swarm.body_size_max
        and stream(seed, "dledger/told once").random() < _TOLD_ONCE
    ):
        ambushes.append(Fault(at, "told_once", "follower"))
    return ambushes


class Ambushes:
    """Those of one world."""

    def __init__(self, world: "World") -> None:
        self.world: Final = world
        self._late_s = 0.0
        self._is_cut_awaited = False
        self._visitors = 0

    def strike(self, fault: Fault, node: "Machine", other: "Machine") -> None:
        """Lie in wait."""
        match fault.kind:
            case "late_truncate":
                self._late_s = _LATE_S[int(fault.at * 1000) % len(_LATE_S)]
            case "cut_point":
                self._is_cut_awaited = True
            case "stale_read":
                self.world.nursery.start_soon(self._read_what_is_stale, node, other)
            case "torn":
                self.world.nursery.start_soon(self._tear, node)
            case "told_once":
                self.world.nursery.start_soon(self._tell_once, node)
            case _:
                raise AssertionError(f"no such fault: {fault.kind}")

    def on_truncate(self, line: "SimStream") -> None:
        """A leader has sent a TRUNCATE: its connection breaks there, and what was under way arrives all the same."""
        if self._late_s and not self.world.is_healed:
            self.world.journal.record("ambush.late_truncate", line.host.address, line.peer)
            line.outgoing.delay_last(self._late_s)
            line.break_at(trio.current_time())
            self._late_s = 0.0

    def on_truncated(self, machine: "Machine") -> None:
        """A follower says that it has cut its log: its machine loses power."""
        if self._is_cut_awaited and not self.world.is_healed:
            self.world.journal.record("ambush.cut_point", machine.name)
            self._is_cut_awaited = False
            machine.cut_power()
            self.world.later(_BOOTS_AFTER_S, machine.boot)

    async def _read_what_is_stale(self, old: "Machine", new: "Machine") -> None:
        """A leader hands over, hears nothing more, and is asked for what the next one has acknowledged.

        Nobody else asks it meanwhile: it would find out.
        """
        world = self.world
        net, visitor = world.net, Client(world, len(world.clients) + self._visitors)
        self._visitors += 1
        world.nursery.start_soon(visitor.live)
        await visitor.is_open.wait()
        lines = [(client.address, old.address) for client in world.clients]
        net.delays |= dict.fromkeys(lines, _HIDDEN_S)
        world.hidden_until = trio.current_time() + 2 * _HIDDEN_S
        world.later(_HIDDEN_S, lambda: [net.delays.pop(line, None) for line in lines])
        await trio.sleep(3 * world.swarm.network_latency_s[1])
        holes = [(one.address, old.address) for one in world.machines.values() if one is not old]
        for hole in holes:
            net.cut(*hole)
        world.later(_HIDDEN_S, lambda: net.mend(holes))
        world.nursery.start_soon(world.transfer, new.name, visitor)
        with trio.move_on_after(_HIDDEN_S):
            while not new.leads:  # noqa: ASYNC110 - a look from outside
                await trio.sleep(_LOOK_S)
            visitor.client.leader_id = new.name
            if await visitor.append():
                visitor.client.leader_id = old.name
                await visitor.get(world.known_end)

    async def _tear(self, machine: "Machine") -> None:
        """A machine loses power between an append and its flush, and of all that was written only the entry's end."""
        faults = machine.disk.faults
        faults.hung_until = max(faults.hung_until, trio.current_time() + _HUNG_S)
        with trio.move_on_after(_HUNG_S):
            while (sector := _end_of_unflushed(machine)) is None:  # noqa: ASYNC110 - as above
                await trio.sleep(_LOOK_S)
            if not self.world.is_healed:
                self.world.journal.record("ambush.torn", machine.name)
                machine.cut_power(loses=sector)
                self.world.later(_BOOTS_AFTER_S, machine.boot)

    async def _tell_once(self, machine: "Machine") -> None:
        """A disk hangs, and loses what is being flushed; who flushes beside that is told, and nobody else."""
        faults = machine.disk.faults
        for _ in range(_LIES_MAX):
            if not (self.world.is_healed or machine.is_broken):
                faults.is_told_once = True
                faults.hung_until = max(faults.hung_until, trio.current_time() + _LIE_S)
            await trio.sleep(2 * _LIE_S)
            faults.is_told_once = False
        if machine.is_broken:
            machine.kill()
            machine.boot()


def _end_of_unflushed(machine: "Machine") -> tuple[str, int] | None:
    """File and sector in which the last entry ends, if that is not durable, and begins in another sector."""
    store, config = None if machine.process is None else machine.process.store, machine.config
    if store is None or store.write_error is not None or store.is_flushed:
        return None
    entry, size = store.get(store.ledger_end_index), config.mapped_file_size_for_entry_data
    begin = entry.pos % size
    number = (begin + entry.size - 1) // SECTOR
    path = data_path(machine, entry.pos)
    return (path, number) if begin + BODY_OFFSET <= number * SECTOR else None
