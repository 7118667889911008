"""The world: builds a group from a seed, lets things happen to it, heals it, and sees whether everything was kept."""

import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import trio

from rmqha.codec.record.layout import BARRIER_TOPIC
from rmqha.errors import MQBrokerError, RemoteProtocolError, RemotingError
from tests.sim import sim_loop
from tests.sim.dledger.ambushes import Ambushes
from tests.sim.dledger.at_rest import check_at_rest, observe
from tests.sim.dledger.clients import Client
from tests.sim.dledger.elections import LAST_S as ELECTIONS_LAST_S
from tests.sim.dledger.elections import Elections
from tests.sim.dledger.faults import Nemesis, draw_plan
from tests.sim.dledger.handovers import LAST_S, Handovers
from tests.sim.dledger.history import History
from tests.sim.dledger.invariants import Checker
from tests.sim.dledger.linearizability import why_not_linearizable
from tests.sim.dledger.machine import PORT, Machine
from tests.sim.dledger.swarm import OPERATIONS_MIN, Swarm, draw
from tests.sim.dledger.witness import watch
from tests.sim.journal import CountingLogger, Journal
from tests.sim.nemesis import Fault
from tests.sim.sim_clock import call_at, stream
from tests.sim.sim_net import SimNet, SimStream
from tests.sim.world import Outcome

LIVENESS_S: Final = 40.0
"""After healing a new entry is committed, and all logs are equal, within so many virtual seconds."""
_LOOK_S: Final = 0.25
_ELECTED_S: Final = 5.0
"""After the last fault somebody leads within this time and some heartbeats; most often at once, mostly within 2 s."""
_ELECTED_BEATS: Final = 4
_LEFT_ALONE_S: Final = 8.0
"""What was late, and what was asked again for it, is over so long after all is in order."""
_PEACE_BEATS: Final = 5
"""More heartbeats than a member misses before it asks for votes."""
_LINES_A_SECOND: Final = 8
_LINES_AT_ONCE: Final = 80


@dataclass(eq=False)
class World:
    """One run of one seed. ``plan`` replaces what the seed would draw, for shrinking."""

    seed: int
    swarm: Swarm
    plan: list[Fault]
    keep_events: bool = False
    is_last: bool = False
    journal: Journal = field(init=False)
    net: SimNet = field(init=False)
    checker: Checker = field(init=False)
    ambushes: Ambushes = field(init=False)
    machines: dict[str, Machine] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    history: History = field(default_factory=History)
    nursery: trio.Nursery = field(init=False)
    known_end: int = -1
    """The last index of which a client was told that it is there."""
    died_at: dict[str, float] = field(default_factory=dict)
    is_healed: bool = False
    is_over: bool = False
    is_calm_since: float = inf
    hidden_until: float = -inf
    """Until then something of a client may arrive late."""
    observed: int = 0
    """Entries that were looked at in the end, and that no client has read then."""
    traceback: str = ""

    async def run(self) -> Outcome:
        """Everything from the first boot to the verdict."""
        swarm = self.swarm
        self.journal = Journal(now=trio.current_time)
        self.net = SimNet(
            stream(self.seed, "net"),
            journal=self.journal,
            capacity=swarm.capacity,
            chopping=swarm.chopping,
            latency_s=swarm.network_latency_s,
        )
        self.net.on_connected = self._watch
        self.checker, self.ambushes = Checker(self), Ambushes(self)
        self._over = trio.Event()
        CountingLogger.events.clear()
        for number in range(swarm.members):
            machine = self._make_machine(number)
            self.machines[machine.name] = machine
        self._make_clients()
        async with trio.open_nursery() as self.nursery:
            for machine in self.machines.values():
                machine.boot()
            for client in self.clients:
                self.nursery.start_soon(client.live)
            await self._chaos()
            if not self.checker.violations:
                await self._liveness()
            self._judge()
            outcome = self._outcome()
            if self.is_last:
                await sim_loop.leave(outcome)
            self.is_over = True
            for machine in self.machines.values():
                machine.kill()
            self.nursery.cancel_scope.cancel()
        return outcome

    def _make_machine(self, number: int) -> Machine:
        return Machine(self, number)

    def _make_clients(self) -> None:
        self.clients = [Client(self, number) for number in range(self.swarm.clients)]

    @property
    def _at_work(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What clients do until the world has enough."""
        return [client.run for client in self.clients]

    @property
    def client_addresses(self) -> list[str]:
        """Of all clients' machines."""
        return [client.address for client in self.clients]

    def _watch(self, client: SimStream, port: int) -> None:
        if port == PORT:
            watch(self, client)

    def _outcome(self) -> Outcome:
        counts = Counter({f"log: {event}": n for event, n in CountingLogger.events.items()})
        counts["history: operations"] = self.history.completed - self.observed
        return Outcome(
            self.seed,
            self.journal.digest,
            self.checker.violations,
            len(self.checker.acknowledged),
            self.journal.counts + counts,
            trio.current_time(),
            self.journal.events if self.keep_events else None,
            self.traceback,
        )

    def stop(self) -> None:
        """A violation was found: what follows proves nothing."""
        self._over.set()

    def later(self, delay_s: float, act: Callable[[], object]) -> None:
        """Do something in a while, unless the run is over."""
        call_at(trio.current_time() + delay_s, lambda: None if self.is_over else act())

    def keep_traceback(self, error: BaseException) -> None:
        """For the report of a crash of the product."""
        self.traceback += "".join(traceback.format_exception(error))

    @property
    def has_enough(self) -> bool:
        """Whether the chaos is over, and the history long enough; or nothing comes of it any more."""
        is_long = self.history.completed >= OPERATIONS_MIN or trio.current_time() > self.swarm.chaos_s + LIVENESS_S
        return self.is_healed and is_long

    async def _chaos(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_over, nursery.cancel_scope)
            nursery.start_soon(self._look)
            nursery.start_soon(Nemesis(self).run, self.plan)
            if not self.plan:
                nursery.start_soon(self._note_calm)
            self.later(self.swarm.chaos_s, self._heal)
            async with trio.open_nursery() as clients:
                for work in self._at_work:
                    clients.start_soon(work)
            nursery.cancel_scope.cancel()

    async def _note_calm(self) -> None:
        """Who is preferred takes over first."""
        names = self.swarm.names[-1:] if self.swarm.prefers else self.swarm.names
        await self._wait_until(lambda: any(self.machines[name].leads for name in names))
        self.is_calm_since = trio.current_time() + 1.0

    async def _stop_when_over(self, scope: trio.CancelScope) -> None:
        await self._over.wait()
        scope.cancel()

    async def _look(self) -> None:
        while True:
            await trio.sleep(_LOOK_S)
            for machine in self.machines.values():
                self._look_at(machine)

    def _look_at(self, machine: Machine) -> None:
        self.checker.look(machine)

    async def transfer(self, transferee: str, operator: Client | None = None) -> int | None:
        """An operator asks for another leader; returns what was answered, if anything was."""
        leader = next((one for one in self.machines.values() if one.leads), None)
        if leader is None or leader.process is None or leader.process.server is None:
            return None
        term = leader.process.server.member_state.curr_term
        try:
            client = (operator or self.clients[0]).client
            answer = await client.transfer_leadership(leader.name, transferee, term=term)
        except (RemotingError, MQBrokerError, RemoteProtocolError) as error:
            self.journal.mark(f"transfer: {type(error).__name__}")
            return None
        self.journal.mark(f"transfer: {answer.code}")
        return answer.code

    # ---- afterwards

    def _heal(self) -> None:
        self.journal.record("healed")
        self.is_healed = True
        self.net.heal()
        for machine in self.machines.values():
            machine.disk.faults.heal()
            machine.disk.crash_at = None
            machine.disk.term_in = 0
            if machine.is_broken:
                machine.kill()
            machine.boot()
        self.nursery.start_soon(self._await_leader)

    async def _await_leader(self) -> None:
        """S11: somebody leads soon after the last fault is over."""
        hung_until = max(machine.disk.faults.hung_until for machine in self.machines.values())
        limit = max(hung_until, trio.current_time()) + self._elected_s
        while not any(machine.leads for machine in self.machines.values()):
            if trio.current_time() > limit:
                self.checker.violation("S11", f"nobody leads: {self.standing()}")
                return
            await trio.sleep(_LOOK_S)

    @property
    def _elected_s(self) -> float:
        return _ELECTED_S + _ELECTED_BEATS * self.swarm.heart_beat_s

    async def _liveness(self) -> None:
        """A new entry is committed, and all logs are equal, within limits."""
        hung_s = max([machine.disk.faults.hung_until for machine in self.machines.values()]) - trio.current_time()
        limit_s = LIVENESS_S + max(hung_s, 0.0)
        if self.swarm.rests:
            limit_s += max(hung_s, 0.0) + _LEFT_ALONE_S + self._peace_s
        limit_s += LAST_S * self._hands_over + ELECTIONS_LAST_S * self._elects
        with trio.move_on_after(limit_s) as limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_when_over, nursery.cancel_scope)
                while not await self.clients[0].append():  # noqa: ASYNC110 - it is asked
                    await trio.sleep(0.1)
                await self._wait_until(self._is_converged)
                await self.clients[0].get(self.known_end)
                if self.swarm.rests and not self.swarm.prefers:
                    await self._check_peace(hung_s)
                if self._hands_over:
                    await Handovers(self, is_taken=self.clients[0].append).run()
                    await self._wait_until(self._is_converged)
                if self._elects:
                    await Elections(self, is_taken=self.clients[0].append, limit_s=self._elected_s).run()
                    await self._wait_until(self._is_converged)
                nursery.cancel_scope.cancel()
        if limit.cancelled_caught and not self.checker.violations:
            self.checker.violation("S11", f"not in order {limit_s:g} s after healing: {self.standing()}")
        if not self.checker.violations:
            for machine in self.machines.values():
                self.checker.look(machine)
            check_at_rest(self)
            self.observed = observe(self)

    @property
    def _hands_over(self) -> bool:
        """Whether every member takes over in the end; who had no room lately does not."""
        return self.swarm.hands_over and not self.swarm.prefers and not self._has_lacked_room

    @property
    def _elects(self) -> bool:
        """Whether anybody may lead in the end."""
        return self.swarm.elects and not self._has_lacked_room

    @property
    def _has_lacked_room(self) -> bool:
        return any(fault.kind in {"full", "crowded"} for fault in self.plan)

    async def _check_peace(self, hung_s: float) -> None:
        """S11: in a group that is left alone nobody asks for votes, and nothing is handed over."""
        await trio.sleep(max(hung_s, 0.0) + _LEFT_ALONE_S)
        terms = self._terms()
        for _ in range(int(self._peace_s / _LOOK_S)):
            await trio.sleep(_LOOK_S)
            for machine in self.machines.values():
                self.checker.look(machine)
            if (
                self._terms() != terms
                or len(terms) != 1
                or sum(machine.leads for machine in self.machines.values()) != 1
            ):
                self.checker.violation("S11", f"nothing goes wrong, and the leader changes: {terms}, {self._terms()}")
                return

    @property
    def _peace_s(self) -> float:
        return _PEACE_BEATS * self.swarm.heart_beat_s + 2.0

    def _terms(self) -> set[tuple[int, str | None]]:
        """Each term that a member is in, and whom it follows there: one of each where all is well."""
        servers = [machine.process.server for machine in self.machines.values() if machine.process is not None]
        return {(one.member_state.curr_term, one.member_state.leader_id) for one in servers if one is not None}

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 - a look from outside; nobody inside tells us
            await trio.sleep(0.1)

    def _is_converged(self) -> bool:
        """All have one log, committed and durable to its end."""
        ends = set()
        for machine in self.machines.values():
            if not machine.serves or machine.process is None or machine.process.store is None:
                return False
            store = machine.process.store
            ends |= {(store.ledger_end_index, store.ledger_end_term), (store.committed_index, store.ledger_end_term)}
            ends.add((store.flushed_index, store.ledger_end_term))
        return len(ends) == 1

    def _judge(self) -> None:
        if not self.checker.violations:
            barrier = BARRIER_TOPIC.encode()
            for why in why_not_linearizable(self.history.operations, is_foreign=lambda body: barrier in body)[:3]:
                self.checker.violation("linearizable", why)
        lines, allowed = CountingLogger.events.total(), _LINES_AT_ONCE + _LINES_A_SECOND * trio.current_time()
        if lines > allowed * len(self.machines):
            self.checker.violation("log", f"{lines} log lines: {CountingLogger.events.most_common(3)}")

    def standing(self) -> str:
        parts = []
        for machine in self.machines.values():
            process = machine.process
            if process is None or process.server is None or process.store is None:
                parts.append(f"{machine.name} down")
                continue
            state, store = process.server.member_state, process.store
            ends = f"{store.committed_index}/{store.flushed_index}/{store.ledger_end_index}"
            parts.append(f"{machine.name} {state.role.value} {state.curr_term} {ends} {store.write_error or ''}")
        return "; ".join(parts)


def simulate(
    seed: int,
    *,
    swarm: Swarm | None = None,
    plan: list[Fault] | None = None,
    keep_events: bool = False,
    is_last: bool = False,
) -> Outcome:
    """Run one seed, or what is left of it. ``is_last``: this process ends soon, see :func:`sim_loop.leave`."""
    with sim_loop.uncollected():
        swarm = swarm or draw(seed)
        plan = draw_plan(seed, swarm) if plan is None else plan
        world = World(seed, swarm, plan, keep_events=keep_events, is_last=is_last)
        return sim_loop.run(world.run, seed=seed)
