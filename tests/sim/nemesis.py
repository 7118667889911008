"""The nemesis: what happens to the cluster, drawn up front from the seed and within the mode's fault budget."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from tests.sim.journal import NodeDied
from tests.sim.node import HA_PORT, LISTEN_PORT, STORE
from tests.sim.sim_clock import stream
from tests.sim.swarm import CHAOS_S, Swarm

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.sim.world import World

_DOWN_S: Final = (0.05, 0.3, 1.0, 4.0)
_OUTAGE_S: Final = (0.2, 1.0, 4.0, 10.0)
_HANG_S: Final = (2.0, 10.0, 30.0, 60.0)
_STALL_S: Final = (1.1, 2.0, 6.0)
_BACK_MS: Final = 3_600_000
_QUEUES: Final = tuple(f"{STORE}/consumequeue{path}" for path in ("", "/alpha", "/alpha/0", "/beta/1"))
_TWINS_S: Final = 1.2
_LATE_S: Final = 6.0
_STORMS: Final = 6
_RELAPSE_S: Final = 0.4
_HUGE: Final = b"\x7f" + b"\xff" * 7
_FORGED: Final = (
    (_HUGE, b"\xff" * 8),
    (b"\xff" * 8, _HUGE),
    (bytes(8), (1 << 20).to_bytes(8, "big")),
    ((1 << 20).to_bytes(8, "big"), bytes(4)),
    (b"GET / HTTP/1.1\r\n\r\n", b""),
)
"""What strangers send: at once, and half a second later."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong at one moment. ``value`` is a duration in seconds unless its kind says otherwise.

    What needs explaining: ``relapse`` hangs a disk, and meanwhile breaks a connection of that node again and again;
    ``usurp`` lets another node be master while the old one comes back as it was; ``echo`` stalls one slave while the
    other one reboots, so that its old connection and its new one stand side by side; ``lose_queues`` removes consume
    queues of a node that is down; ``clock_back`` is a power cut after its clock was set back; ``stall_start`` stalls a
    node while another one starts, and perhaps catches up from it; ``root_full`` fills the disk of all but the log;
    ``storm`` are connections that are reset before they are accepted; ``twins`` has an old master come back as a slave
    whose tail is another one, of the same length perhaps, on a line that is slow.
    """

    at: float
    kind: str
    node: str = ""
    other: str = ""
    value: float = 0.0


def draw_plan(seed: int, swarm: Swarm) -> list[Fault]:
    """All faults of a seed, in order."""
    if swarm.calm:
        return []
    random = stream(seed, "nemesis")
    names = [f"n{number}" for number in range(swarm.slaves + 1)]
    faults = []
    losses = swarm.losses_allowed
    at = random.uniform(0.2, 2.0)
    while at < CHAOS_S:
        fault = _draw_fault(random, swarm, names, at=at, losses=losses)
        losses -= fault.kind in {"destroy", "failover", "usurp", "twins"}
        faults.append(fault)
        at += random.expovariate(swarm.fault_rate)
        if random.random() < 0.15:
            at = fault.at + random.uniform(0.0, 0.3)  # misfortunes come in pairs
    return sorted(faults + _draw_takeover(seed, swarm, losses=losses), key=lambda fault: fault.at)


def _draw_takeover(seed: int, swarm: Swarm, *, losses: int) -> list[Fault]:
    """Where changes of master are looked at, one happens in the midst of everything, too, if it may."""
    random = stream(seed, "takeover/nemesis")
    if not swarm.takeovers or losses <= 0:
        return []
    kind = random.choice(("destroy", "failover", "usurp", "usurp", "twins"))
    return [Fault(random.uniform(1.0, CHAOS_S - 0.5), kind, "n0", value=random.choice(_DOWN_S))]


def _draw_fault(random: Random, swarm: Swarm, names: list[str], *, at: float, losses: int) -> Fault:
    node, other = random.sample(names, 2)
    kinds = ["kill", "kill", "cut", "partition", "reset", "stall", "skew", "slow", "forge", "restart"]
    kinds += ["hang", "term_point", "relapse", "lose_queues", "stall_start", "root_full", "storm"]
    if swarm.may_lose_power(node):
        kinds += ["clock_back"] + ["power_cut"] * 3 + ["crash_point"] * 4 + ["read_only"]
    if swarm.may_fail_sync and swarm.may_lose_power(node):
        kinds += ["sync_error"] * 3 + ["write_error"]
    kinds += ["full"]
    if "n0" not in {node, other} and swarm.may_lose_power(node):
        kinds += ["echo"] * 3
    if losses > 0:
        kinds += ["destroy", "failover", "usurp", "twins"]
    kind = random.choice(kinds)
    match kind:
        case "kill" | "power_cut" | "destroy" | "failover" | "usurp" | "restart" | "clock_back" | "lose_queues":
            return Fault(at, kind, node, value=random.choice(_DOWN_S))
        case "crash_point":
            return Fault(at, kind, node, value=float(random.randint(1, 30)))
        case "term_point":
            return Fault(at, kind, node, value=float(random.randint(1, 8)))
        case "sync_error" | "write_error":
            return Fault(at, kind, node, value=random.choice(_DOWN_S))
        case "skew":
            return Fault(at, kind, node, value=random.choice((-3_600_000.0, -500.0, 2000.0, 86_400_000.0)))
        case "stall_start":
            return Fault(at, kind, node, other, value=random.choice(_STALL_S))
        case "forge" | "storm":
            return Fault(at, kind, "n0", value=float(random.randrange(len(_FORGED))))
        case "reset":
            return Fault(at, kind, node, other)
        case "hang":
            return Fault(at, kind, node, value=random.choice(_HANG_S))
        case _:
            return Fault(at, kind, node, other, value=random.choice(_OUTAGE_S))


class Nemesis:
    """Carries out a plan."""

    def __init__(self, world: "World") -> None:
        self.world = world

    async def run(self, plan: list[Fault]) -> None:
        """Do everything at its time; return when all is done, though not when all is over."""
        for fault in plan:
            await trio.sleep_until(fault.at)
            self.world.journal.record("fault", fault.kind, fault.node, fault.other, fault.value)
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """One fault; what ends by itself is left to a task of the world."""
        world = self.world
        node = world.nodes[fault.node]
        match fault.kind:
            case "kill":
                node.kill()
                world.later(fault.value, node.boot)
            case "restart":
                node.stop()
                world.later(fault.value, node.boot)
            case "power_cut":
                node.power_cut()
                world.later(fault.value, node.boot)
            case "lose_queues":
                node.kill()
                node.disk.remove(_QUEUES[int(fault.at * 1000) % len(_QUEUES)])
                world.later(fault.value, node.boot)
            case "clock_back":
                node.clock.skew_ms -= _BACK_MS
                self._soon(0.3, node.power_cut)
                world.later(0.3 + fault.value, node.boot)
            case "stall_start":
                node.kill()
                world.later(0.1, node.boot)
                stall = Fault(fault.at, "stall", fault.other, value=fault.value)
                self._soon(0.1 + int(fault.at * 1000) % 40 / 1000, lambda: self._stall(stall))
            case "twins":
                self._twins()
            case "storm":
                world.nursery.start_soon(self._storm, (HA_PORT, LISTEN_PORT)[int(fault.at * 1000) % 2])
            case "crash_point":
                node.disk.crash_at = node.disk.calls + int(fault.value)
            case "term_point":
                node.disk.term_in = int(fault.value)
            case "echo":
                self._stall(Fault(fault.at, "stall", fault.other, value=fault.value))
                self._soon(0.6, node.power_cut)
                world.later(0.7, node.boot)
            case "sync_error":
                node.disk.faults.sync_errors = 1
                world.later(fault.value, lambda: self._after_write_failure(fault))
            case "write_error":
                node.disk.faults.write_errors = 1
                world.later(fault.value, lambda: self._after_write_failure(fault))
            case "read_only":
                node.disk.faults.read_only = True
                world.later(fault.value, lambda: self._after_write_failure(fault))
            case "full":
                node.disk.faults.full = True
                world.later(fault.value, lambda: setattr(node.disk.faults, "full", False))
            case "root_full":
                node.disk.faults.root_full = True
                world.later(fault.value, lambda: setattr(node.disk.faults, "root_full", False))
            case "slow":
                node.disk.faults.slowness = 300.0
                world.later(fault.value, lambda: setattr(node.disk.faults, "slowness", 1.0))
            case "hang":
                self._hang(fault)
            case "relapse":
                self._relapse(fault)
            case "skew":
                node.clock.skew_ms += int(fault.value)
            case "reset":
                world.net.reset_between(node.host.address, world.nodes[fault.other].host.address)
            case "cut":
                self._cut([(fault.node, fault.other)], fault.value)
            case "partition":
                self._cut([(fault.node, fault.other), (fault.other, fault.node)], fault.value)
            case "stall":
                self._stall(fault)
            case "destroy" | "failover" | "usurp":
                world.operator.fail_over(node, how=fault.kind)
            case "forge":
                world.nursery.start_soon(self._forge, *_FORGED[int(fault.value)])
            case _:
                raise AssertionError(f"no such fault: {fault.kind}")

    def _soon(self, delay_s: float, act: Callable[[], object]) -> None:
        """The next part of a fault comes in a while, unless all is healed by then."""
        self.world.later(delay_s, lambda: None if self.world.is_healed else act())

    def _after_write_failure(self, fault: Fault) -> None:
        """The operator restarts a node whose disk failed; often the machine went down as well."""
        node = self.world.nodes[fault.node]
        node.disk.faults.read_only = False
        node.disk.faults.sync_errors = node.disk.faults.write_errors = 0
        if node.process is not None and node.process.write_error is not None:
            self.world.checker.check_gone(node, node.process)
            if int(fault.at * 1000) % 2:
                node.power_cut()
            else:
                node.kill()
            node.boot()

    def _hang(self, fault: Fault) -> None:
        faults = self.world.nodes[fault.node].disk.faults
        faults.hung_until = max(faults.hung_until, trio.current_time() + fault.value)

    def _relapse(self, fault: Fault) -> None:
        self._hang(fault)
        addresses = [self.world.nodes[name].host.address for name in (fault.node, fault.other)]
        for number in range(1, 1 + int(min(fault.value, CHAOS_S - fault.at) / _RELAPSE_S)):
            self.world.later(number * _RELAPSE_S, lambda: self.world.net.reset_between(*addresses))

    def _cut(self, pairs: list[tuple[str, str]], duration: float) -> None:
        net = self.world.net
        holes = [(self.world.nodes[a].host.address, self.world.nodes[b].host.address) for a, b in pairs]
        for sender, receiver in holes:
            net.cut(sender, receiver)
        self.world.later(duration, lambda: net.mend(holes))

    def _stall(self, fault: Fault) -> None:
        """As SIGSTOP: for a while the node hears nothing and its disk calls do not return."""
        node = self.world.nodes[fault.node]
        others = [name for name in self.world.nodes if name != fault.node]
        node.disk.faults.slowness = 300.0
        self.world.later(fault.value, lambda: setattr(node.disk.faults, "slowness", 1.0))
        self._cut([(fault.node, o) for o in others] + [(o, fault.node) for o in others], fault.value)

    def _twins(self) -> None:
        """The master is cut off from its slaves, takes messages all the same, and gives way to one of them."""
        world, old = self.world, self.world.master
        others = [name for name in world.nodes if name != old.name]
        self._cut([(old.name, o) for o in others] + [(o, old.name) for o in others], _TWINS_S)
        self._soon(_TWINS_S, lambda: world.operator.fail_over(old, how="usurp"))
        self._soon(_TWINS_S + 0.01, lambda: self._delay_to(old))
        if len(others) > 1:
            self._soon(2 * _TWINS_S, lambda: self._stall_one_of(others))

    def _delay_to(self, node: "SimNode") -> None:
        delays = self.world.net.delays
        delay = (self.world.master.address, node.address)
        delays[delay] = _LATE_S
        self.world.later(_LATE_S, lambda: delays.pop(delay, None))

    def _stall_one_of(self, names: list[str]) -> None:
        slaves = [name for name in names if name != self.world.master.name]
        self._stall(Fault(trio.current_time(), "stall", slaves[0], value=_LATE_S))

    async def _storm(self, port: int) -> None:
        """Connections that are reset at once, several before the first of them is accepted."""
        stranger = self.world.net.host("10.0.0.67").mount()
        master = self.world.master.address
        for _ in range(_STORMS):
            try:
                streams = [await stranger.connect(master, port, timeout_s=0.5) for _ in range(2)]
            except (OSError, NodeDied):  # refused, or another storm came
                return
            for stream_ in streams:
                stream_.other.break_at(trio.current_time())
                stream_.close()

    async def _forge(self, first: bytes, second: bytes) -> None:
        """Somebody acknowledges what he has no right to, leaves, comes again, and stays connected."""
        stranger = self.world.net.host("10.0.0.66").mount()
        try:
            for stay_s in (0.6, 5.0):
                stream_ = await stranger.connect(self.world.master.address, HA_PORT, timeout_s=1)
                await stream_.send_all(first)
                await trio.sleep(0.5)
                await stream_.send_all(second)
                await trio.sleep(stay_s)
                stream_.close()
        except (OSError, trio.BrokenResourceError, NodeDied):  # refused, as it should be, or another stranger came
            return
