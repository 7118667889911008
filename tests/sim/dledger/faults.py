"""What happens to a group: drawn up front from the seed, within what it promises to survive."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from tests.sim.dledger.ambushes import draw_ambush
from tests.sim.dledger.swarm import Swarm
from tests.sim.nemesis import Fault
from tests.sim.sim_clock import stream

if TYPE_CHECKING:
    from tests.sim.dledger.machine import Machine
    from tests.sim.dledger.world import World

_DOWN_S: Final = (0.05, 0.3, 1.0, 4.0)
_OUTAGE_S: Final = (0.2, 0.7, 1.5, 4.0, 8.0)
_HANG_S: Final = (0.5, 2.0, 10.0)
_LATE_S: Final = (0.3, 1.5, 4.0, 7.0)
_CROWDED: Final = 4.0
"""So much longer than others such a fault lasts: a leader gives way, and may be asked to lead again."""
_GIVEN_UP_S: Final = 4.0
_MOMENT_S: Final = 0.3
_DAY_MS: Final = 86_400_000.0
LEADER: Final = "leader"
"""In place of a name: the leader when the fault strikes, or n0."""
FOLLOWER: Final = "follower"
"""The first member that does not."""
_LASTING: Final = {
    "kill",
    "power_cut",
    "restart",
    "blackout",
    "sync_error",
    "write_error",
    "read_only",
    "full",
    "crowded",
}
_LOSING: Final = (
    *["power_cut"] * 3, *["blackout"] * 2, *["crash_point"] * 3, *["sync_error"] * 2, "write_error", "read_only"
)  # fmt: skip
_ANY: Final = (
    "kill", "kill", "restart", "term_point", "full", "crowded", "slow", "hang", "skew", "reset", "cut", "cut",
    "partition", "isolate", "isolate", "split", "stall", "late", "late", "echo", "transfer", "client_reset",
    "usurp", "usurp", "usurp", "tail", "tail", "comeback", "comeback",
)  # fmt: skip


def draw_plan(seed: int, swarm: Swarm, *, has_ambushes: bool = True) -> list[Fault]:
    """All faults of a seed, in order."""
    if swarm.calm:
        return []
    random = stream(seed, "dledger/nemesis")
    faults: list[Fault] = []
    at = random.uniform(0.5, 3.0)
    while at < swarm.chaos_s:
        faults.append(_draw_fault(random, swarm, at=at))
        at += random.expovariate(swarm.fault_rate)
        if random.random() < 0.2:
            at = faults[-1].at + random.uniform(0.0, 0.3)  # misfortunes come in pairs
    ambushes = draw_ambush(seed, swarm, until=swarm.chaos_s) if has_ambushes else []
    return sorted(faults + ambushes, key=lambda fault: fault.at)


def _draw_fault(random: Random, swarm: Swarm, *, at: float) -> Fault:
    node, other = random.sample(swarm.names, 2)
    if random.random() < 0.5:
        node = random.choice((LEADER, LEADER, FOLLOWER))
        other = random.choice((other, FOLLOWER if node == LEADER else LEADER))
    kind = random.choice(_ANY + (_LOSING if swarm.acks_flushed else ()))
    if kind in _LASTING:
        return Fault(at, kind, node, other, value=random.choice(_DOWN_S))
    match kind:
        case "crash_point":
            return Fault(at, kind, node, value=float(random.randint(1, 40)))
        case "term_point":
            return Fault(at, kind, node, value=float(random.randint(1, 8)))
        case "skew":
            return Fault(at, kind, node, value=random.choice((-_DAY_MS, -500.0, 2000.0, _DAY_MS, _DAY_MS)))
        case "hang":
            return Fault(at, kind, node, value=random.choice(_HANG_S))
        case "comeback":
            return Fault(at, kind, LEADER, value=3 * swarm.heart_beat_s + random.choice((0.1, 0.3, 0.8)))
        case "late" | "echo":
            return Fault(at, kind, node, other, value=random.choice(_LATE_S))
        case _:
            return Fault(at, kind, node, other, value=random.choice(_OUTAGE_S))


class Nemesis:
    """Carries out a plan."""

    def __init__(self, world: "World") -> None:
        self.world: Final = world

    async def run(self, plan: list[Fault]) -> None:
        """Do everything at its time; return when all is done, though not when all is over."""
        for fault in plan:
            await trio.sleep_until(fault.at)
            node, other = self._named(fault.node), self._named(fault.other)
            self.world.journal.record("fault", fault.kind, node.name, other.name, fault.value)
            self.strike(fault, node, other)

    def _named(self, name: str) -> "Machine":
        machines = self.world.machines
        leader = next((one for one in machines.values() if one.leads), machines["n0"])
        if name == LEADER:
            return leader
        if name == FOLLOWER:
            return next(one for one in machines.values() if one is not leader)
        return machines.get(name, machines["n0"])

    def strike(self, fault: Fault, node: "Machine", other: "Machine") -> None:
        """One fault; what ends by itself is left to the world."""
        world, faults, lasts_s = self.world, node.disk.faults, fault.value
        match fault.kind:
            case "kill":
                node.kill()
                world.later(lasts_s, node.boot)
            case "restart":
                node.stop()
                world.later(lasts_s, node.boot)
            case "power_cut":
                node.cut_power()
                world.later(lasts_s, node.boot)
            case "blackout":
                for number, each in enumerate(world.machines.values()):
                    each.cut_power()
                    world.later(lasts_s * (1 + number / 7), each.boot)
            case "crash_point":
                node.disk.crash_at = node.disk.calls + int(lasts_s)
            case "term_point":
                node.disk.term_in = int(lasts_s)
            case "sync_error":
                faults.sync_errors = 1
                world.later(lasts_s, lambda: self._repair(fault, node))
            case "write_error":
                faults.write_errors = 1
                world.later(lasts_s, lambda: self._repair(fault, node))
            case "read_only":
                faults.read_only = True
                world.later(lasts_s, lambda: self._repair(fault, node))
            case "full":
                faults.full = True
                world.later(lasts_s, lambda: self._repair(fault, node))
            case "crowded":
                faults.crowded = True
                world.later(_CROWDED * lasts_s, lambda: setattr(faults, "crowded", False))
            case "slow":
                faults.slowness = 100.0
                world.later(lasts_s, lambda: setattr(faults, "slowness", 1.0))
            case "hang":
                faults.hung_until = max(faults.hung_until, trio.current_time() + lasts_s)
            case "skew":
                node.clock.skew_ms += int(lasts_s)
            case "transfer":
                world.nursery.start_soon(world.transfer, other.name)
            case "client_reset":
                for address in world.client_addresses:
                    world.net.reset_between(address, node.address)
            case _:
                self._strike_lines(fault, node, other)

    def _strike_lines(self, fault: Fault, node: "Machine", other: "Machine") -> None:
        names = list(self.world.machines)
        match fault.kind:
            case "reset":
                self.world.net.reset_between(node.address, other.address)
            case "cut":
                self._cut([(node.name, other.name)], fault.value)
            case "partition":
                self._cut([(node.name, other.name), (other.name, node.name)], fault.value)
            case "isolate":
                self._part({node.name}, fault.value)
            case "split":
                at = names.index(node.name)
                self._part({names[(at + step) % len(names)] for step in range(len(names) // 2)}, fault.value)
            case "usurp":  # one of the two is cut off in the midst of a transfer
                lost = (node, node, other)[int(fault.at * 1000) % 3]
                self.world.nursery.start_soon(self.world.transfer, other.name)
                self._soon(fault.at % 0.02, lambda: self._part({lost.name}, fault.value))
            case "comeback":  # a leader that was cut off comes back with its tail as the next one dies
                self._part({node.name}, fault.value)
                self._soon(fault.value, lambda: self._cut_power_of_leader(node))
            case "tail":  # a leader that was cut off, with a tail of its own, hears the next one late
                self._part({node.name}, fault.value)
                self._soon(fault.value + fault.at % 0.6, lambda: self._delay_from_leader(node))
            case "stall":
                self._stall(fault, node)
            case "late_truncate" | "cut_point":  # a leader comes back with a tail of its own, and is to cut it
                self._part({node.name}, fault.value)
                self.world.ambushes.strike(fault, node, other)
            case "stale_read" | "torn" | "told_once":
                self.world.ambushes.strike(fault, node, other)
            case "late":
                self._delay(node, other, fault.value)
            case "echo":
                self._delay_for_a_moment(node, other, fault.value)
            case _:
                raise AssertionError(f"no such fault: {fault.kind}")

    def _soon(self, delay_s: float, act: Callable[[], object]) -> None:
        self.world.later(delay_s, lambda: None if self.world.is_healed else act())

    def _repair(self, fault: Fault, node: "Machine") -> None:
        """The operator restarts a member whose disk failed; often the machine went down as well."""
        faults = node.disk.faults
        faults.read_only = faults.full = False
        faults.sync_errors = faults.write_errors = 0
        if node.is_broken:
            if int(fault.at * 1000) % 2:
                node.cut_power()
            else:
                node.kill()
            node.boot()

    def _cut(self, pairs: list[tuple[str, str]], lasts_s: float) -> None:
        net, machines = self.world.net, self.world.machines
        holes = [(machines[a].address, machines[b].address) for a, b in pairs if a != b]
        for sender, receiver in holes:
            net.cut(sender, receiver)
        self.world.later(lasts_s, lambda: net.mend(holes))

    def _part(self, some: set[str], lasts_s: float) -> None:
        names = self.world.machines
        self._cut([(a, b) for a in names for b in names if (a in some) != (b in some)], lasts_s)

    def _stall(self, fault: Fault, node: "Machine") -> None:
        """As SIGSTOP to the others: for a while the node hears nothing and its disk calls do not return."""
        faults = node.disk.faults
        faults.slowness = 300.0
        self.world.later(fault.value, lambda: setattr(faults, "slowness", 1.0))
        self._part({node.name}, fault.value)

    def _cut_power_of_leader(self, old: "Machine") -> None:
        leader = self._named(LEADER)
        if leader is not old:
            (leader.cut_power if self.world.swarm.acks_flushed else leader.kill)()
            self.world.later(1.0, leader.boot)

    def _delay_from_leader(self, node: "Machine") -> None:
        self._delay_for_a_moment(self._named(LEADER), node, _GIVEN_UP_S)

    def _delay_for_a_moment(self, node: "Machine", other: "Machine", late_s: float) -> None:
        """What is under way then may arrive after its connection was given up for another."""
        self._delay(node, other, late_s)
        self._soon(_MOMENT_S, lambda: self.world.net.delays.pop((node.address, other.address), None))

    def _delay(self, node: "Machine", other: "Machine", late_s: float) -> None:
        """What leaves one for the other in the next while arrives so late."""
        delays, line = self.world.net.delays, (node.address, other.address)
        if node is not other:
            delays[line] = late_s
            self.world.later(late_s, lambda: delays.pop(line, None))
