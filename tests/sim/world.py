"""The world: builds a cluster from a seed, lets the nemesis loose, heals, and sees whether everything was kept."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

import trio

from rmqha.ha.runtime_info import ClientState
from tests.sim import sim_loop, workload
from tests.sim.consumer import Consumer
from tests.sim.convergence import check_at_rest, check_converged
from tests.sim.invariants import Checker
from tests.sim.journal import CountingLogger, Journal
from tests.sim.nemesis import Fault, Nemesis, draw_plan
from tests.sim.node import HA_PORT, Process, SimNode
from tests.sim.operator import Operator
from tests.sim.sim_client import CLIENTS
from tests.sim.sim_clock import call_at, stream
from tests.sim.sim_net import SimNet, SimNetwork, SimStream
from tests.sim.stream_witness import ReportWitness, StreamWitness
from tests.sim.swarm import CHAOS_S, Swarm, draw
from tests.sim.takeover.handovers import Handovers
from tests.sim.workload import Message, Producer

LIVENESS_S: Final = 90.0
"""After healing, everything is in order again within so many virtual seconds."""
SETTLED_S: Final = 2.0
"""So long after healing nothing is left of it: no call that a slow disk still holds."""
ASKED_AGAIN_S: Final = 12.0
"""A peer for which a master refuses sends is asked again after so long at most: every 10 s, beside others."""
REST_S: Final = 1.0
"""Nothing is under way any more so long after the last request ended."""
_TAKEOVER_S: Final = 600.0
"""More than a change of master at rest, and all that is waited for before and after it, takes."""
_LOOK_S: Final = 1.0


@dataclass(frozen=True)
class Outcome:
    """What came of one seed."""

    seed: int
    digest: str
    violations: list[str]
    acked: int
    counts: Counter[str]
    virtual_s: float
    events: list[str] | None = None
    traceback: str = ""


@dataclass(eq=False)
class World:
    """One run of one seed. ``plan`` and ``only_messages`` are less than what the seed would draw, for shrinking."""

    seed: int
    swarm: Swarm
    plan: list[Fault]
    drawn: list[Fault]
    """The faults near which messages are sent, whatever is left of them in ``plan``."""
    only_messages: frozenset[int] | None = None
    keep_events: bool = False
    is_last: bool = False
    """The process ends soon after this: nothing needs to be ended in order."""
    journal: Journal = field(init=False)
    random: Random = field(init=False)
    net: SimNet = field(init=False)
    clients: SimNetwork = field(init=False)
    checker: Checker = field(init=False)
    nodes: dict[str, SimNode] = field(init=False)
    master: SimNode = field(init=False)
    nursery: trio.Nursery = field(init=False)
    consumers: list[Consumer] = field(init=False)
    traceback: str = ""
    is_over: bool = False
    is_healed: bool = False
    """Nothing begins to go wrong any more."""
    disturbed_at: float = field(init=False)
    """The next fault that may cost somebody time happens then, or happened and is not over."""
    is_formed: bool = False
    """The cluster has come into order since the last fault."""
    operator: Operator = field(init=False)
    handovers: Handovers | None = None
    """Of schedules that replace masters at rest."""

    async def run(self) -> Outcome:
        """Everything from the first boot to the verdict."""
        self.journal = Journal(now=trio.current_time)
        self.net = SimNet(
            stream(self.seed, "net"),
            journal=self.journal,
            capacity=self.swarm.capacity,
            chopping=self.swarm.chopping,
            latency_s=self.swarm.network_latency_s,
        )
        self.net.reuse = self.swarm.port_reuse
        self.net.narrow[HA_PORT] = self.swarm.report_capacity
        self.random = stream(self.seed, "world")
        self.clients = self.net.host(CLIENTS).mount()
        self.checker = Checker(self)
        self.operator = Operator(self)
        self.net.on_connected = self._watch_stream
        CountingLogger.events.clear()
        self.nodes = {}
        for number in range(self.swarm.slaves + 1):
            node = SimNode(self, number)
            self.nodes[node.name] = node
        self.master = self.nodes["n0"]
        async with trio.open_nursery() as self.nursery:
            for node in reversed(self.nodes.values()):
                node.boot()
            if self.swarm.master_forgets or self.swarm.cleans:
                for node in self.nodes.values():
                    self.nursery.start_soon(self.operator.rebuild_when_alarmed, node)
            if self.swarm.takeovers:
                self.handovers = Handovers(self)
                self.handovers.start()
            self.consumers = [Consumer(self, number) for number in range(self.swarm.consumers)]
            for consumer in self.consumers:
                self.nursery.start_soon(consumer.run)
            await self._chaos()
            if not self.checker.violations:
                await self._liveness()
            self.checker.check_log_lines()
            outcome = self._outcome()
            if self.is_last:
                await sim_loop.leave(outcome)
            self.is_over = True
            for node in self.nodes.values():
                node.kill()
            self.nursery.cancel_scope.cancel()
        return outcome

    def _watch_stream(self, client: SimStream, port: int) -> None:
        if port == HA_PORT:
            client.on_coming = StreamWitness(self.checker, client.host.address).on_coming
            slave = next((node.process for node in self.nodes.values() if node.address == client.host.address), None)
            if slave is not None and not self.swarm.ack_durable:
                client.other.on_coming = ReportWitness(slave).on_coming

    def _outcome(self) -> Outcome:
        return Outcome(
            self.seed,
            self.journal.digest,
            self.checker.violations,
            len(self.checker.acked),
            self.journal.counts + Counter({f"log: {event}": n for event, n in CountingLogger.events.items()}),
            trio.current_time(),
            self.journal.events if self.keep_events else None,
            self.traceback,
        )

    def stop(self) -> None:
        """A violation was found: what follows proves nothing."""
        self._over.set()

    def __post_init__(self) -> None:
        self._over = trio.Event()
        self.disturbed_at = self.plan[0].at if self.plan else inf

    def is_calm_until(self, moment: float) -> bool:
        """Whether all is in order and nothing will go wrong before this moment."""
        if moment >= self.disturbed_at:
            return False
        self.is_formed = self.is_formed or (self._is_in_order() and self._takes_sends())
        return self.is_formed

    def _is_in_order(self) -> bool:
        """All serve, and each slave follows the master."""
        processes = [node.process for node in self.nodes.values()]
        if not all(process is not None and process.is_serving for process in processes):
            return False
        clients = [p.replication.ha_client for p in processes if p is not None and not p.is_master]
        if any(client is None or client.info().state is not ClientState.TRANSFER for client in clients):
            return False
        assert self.master.process is not None, "all serve"
        return self.master.process.replication.ha_service.live_slaves == len(clients)

    def _takes_sends(self) -> bool:
        """Whether the master refuses nothing: it knows of no peer whose log is longer, or was until a while ago."""
        return self.master.process is not None and not self.master.process.broker.store.refusal()

    def keep_traceback(self, error: BaseException) -> None:
        """For the report of a crash of the product."""
        self.traceback += "".join(traceback.format_exception(error))

    def later(self, delay_s: float, act: Callable[[], object]) -> None:
        """Do something in a while, unless the run is over."""
        call_at(trio.current_time() + delay_s, lambda: None if self.is_over else act())

    async def _chaos(self) -> None:
        messages = workload.draw_messages(self)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_over, nursery.cancel_scope)
            nursery.start_soon(self._look)
            nursery.start_soon(Nemesis(self).run, self.plan)
            async with trio.open_nursery() as producers:
                for mine in messages:
                    producers.start_soon(Producer(self, mine).run)
            await trio.sleep_until(CHAOS_S)
            nursery.cancel_scope.cancel()
        for node in self.nodes.values():
            node.disk.crash_at = None
            node.disk.term_in = 0

    async def _stop_when_over(self, scope: trio.CancelScope) -> None:
        await self._over.wait()
        scope.cancel()

    async def _look(self) -> None:
        while True:
            await trio.sleep(_LOOK_S)
            self.checker.look()

    # ---- afterwards

    async def _liveness(self) -> None:
        """Heal everything; then a new message is acknowledged and all logs are equal, within limits."""
        self.journal.record("healed")
        self.is_healed = True
        self.net.heal()
        for node in self.nodes.values():
            node.disk.faults.heal()
            node.gone = False
            if node.process is not None and node.process.is_broken:
                node.kill()
            node.boot()
        limit_s = LIVENESS_S + 2 * max(self.swarm.flush_s, self.swarm.thorough_s) + _TAKEOVER_S * self.swarm.takeovers
        with trio.move_on_after(limit_s) as limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_when_over, nursery.cancel_scope)
                await self._send_until_acked()
                await self._wait_until(self._is_converged)
                await self._wait_until(self._is_in_order)
                with trio.move_on_after(ASKED_AGAIN_S):
                    await self._wait_until(self._takes_sends)
                await trio.sleep_until(CHAOS_S + SETTLED_S)
                self.is_formed, self.disturbed_at = True, inf
                await self._send_promptly()
                await self._wait_until(self._is_the_same_everywhere)
                if self.handovers is not None:
                    await self.handovers.run()
                for consumer in self.consumers:
                    consumer.stop()
                await trio.sleep(max([consumer.suspend_s for consumer in self.consumers], default=0.0) + REST_S)
                nursery.cancel_scope.cancel()
        if limit.cancelled_caught and not self.checker.violations:
            self.checker.violation("liveness", f"not in order {limit_s:g} s after healing: {self._standing()}")
        if not self.checker.violations:
            self.checker.look()
            check_converged(self.checker)
            check_at_rest(self.checker)

    async def _send_until_acked(self) -> None:
        producer = Producer(self, [])
        for number in range(100_000, 200_000):
            message = Message(number, trio.current_time(), "alpha", 0, b"<%d>" % number)
            await producer.send([message])
            if message.code == 0:
                return
            await trio.sleep(1.0)

    async def _send_promptly(self) -> None:
        body, now = bytes(self.swarm.body_size_max), trio.current_time()
        await Producer(self, []).send([Message(n, now, "alpha", 0, b"<%d>" % n + body) for n in (200_000, 200_001)])

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 - a look from outside; nobody inside tells us
            await trio.sleep(0.5)

    def _is_converged(self) -> bool:
        """Whether every node has the same on its device: what is flushed from time to time was, too."""
        return self._is_the_same_everywhere() and all(
            process.broker.store.flushed_offset == process.broker.store.max_offset for process in self._serving()
        )

    def _is_the_same_everywhere(self) -> bool:
        """Whether every node has the same log, and has dispatched it into queues that are all there."""
        stores = [process.broker.store for process in self._serving()]
        ends = {store.max_offset for store in stores} | {store.reput_from_offset for store in stores}
        return len(stores) == len(self.nodes) and len(ends) == 1 and not any(store.queues.lost for store in stores)

    def is_at_rest(self) -> bool:
        """Whether a master takes sends, all follow it, and nobody lacks anything."""
        return self._is_in_order() and self._takes_sends() and self._is_converged()

    @property
    def clocks_agree(self) -> bool:
        """Whether all wall clocks show the true time, always."""
        return not any(fault.kind in {"skew", "clock_back"} for fault in self.plan)

    def _serving(self) -> list[Process]:
        processes = [node.process for node in self.nodes.values()]
        return [process for process in processes if process is not None and process.is_serving]

    def _standing(self) -> str:
        parts = []
        for node in self.nodes.values():
            process = node.process
            if process is None:
                parts.append(f"{node.name} down")
                continue
            store, client = process.broker.store, process.replication.ha_client
            state = client.info().state.value + " " + client.info().last_error if client is not None else "master"
            error = store.write_error or store.running_flags.dispatch_error or store.queue_rebuild.describe()
            offsets = f"{store.reput.reput_from_offset}/{store.flushed_offset}/{store.max_offset}"
            parts.append(f"{node.name} {state} {offsets} {error}")
        return "; ".join(parts)


def simulate(
    seed: int,
    *,
    swarm: Swarm | None = None,
    plan: list[Fault] | None = None,
    drawn: list[Fault] | None = None,
    only_messages: frozenset[int] | None = None,
    keep_events: bool = False,
    is_last: bool = False,
) -> Outcome:
    """Run one seed, or what is left of it. ``is_last``: this process ends soon, see :func:`sim_loop.leave`."""
    with sim_loop.uncollected():
        swarm = swarm or draw(seed)
        drawn = draw_plan(seed, swarm) if drawn is None else drawn
        plan = drawn if plan is None else plan
        world = World(seed, swarm, plan, drawn, only_messages=only_messages, keep_events=keep_events, is_last=is_last)
        return sim_loop.run(world.run, seed=seed)
