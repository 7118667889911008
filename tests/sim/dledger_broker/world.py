"""The world of brokers on a group: as of members alone, with clients that send and pull."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from tests.sim import sim_loop
from tests.sim.dledger import world as group
from tests.sim.dledger.clients import Client
from tests.sim.dledger.handovers import LAST_S
from tests.sim.dledger.machine import Machine
from tests.sim.dledger_broker.clients import Consumer, Producer
from tests.sim.dledger_broker.machine import BrokerMachine
from tests.sim.dledger_broker.plan import draw as draw_plan
from tests.sim.dledger_broker.streams import Streams
from tests.sim.dledger_broker.swarm import ACKNOWLEDGED_MIN, BrokerSwarm, draw
from tests.sim.dledger_broker.tables import Tables
from tests.sim.nemesis import Fault
from tests.sim.sim_net import SimStream
from tests.sim.world import Outcome


@dataclass(eq=False)
class BrokerWorld(group.World):
    """See :class:`tests.sim.dledger.world.World`."""

    swarm: BrokerSwarm
    streams: Streams = field(init=False)
    brokers: list[BrokerMachine] = field(default_factory=list)
    producers: list[Producer] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)

    def _make_machine(self, number: int) -> Machine:
        self.brokers.append(BrokerMachine(self, number))
        return self.brokers[-1]

    def _make_clients(self) -> None:
        self.streams = Streams(self)
        self.clients = [Client(self, 0)]  # who asks for transfers
        self.producers = [Producer(self, number) for number in range(self.swarm.producers)]
        self.consumers = [Consumer(self, number) for number in range(self.swarm.consumers)]

    @property
    def _at_work(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return [one.run for one in self.producers] + [one.run for one in self.consumers]

    @property
    def client_addresses(self) -> list[str]:
        """Of all clients' machines."""
        return [self.clients[0].address, *(one.address for one in (*self.producers, *self.consumers))]

    def _watch(self, client: SimStream, port: int) -> None:
        """Members alone are watched elsewhere: what leaves a broker for its clients is what counts here."""

    @property
    def has_enough(self) -> bool:
        """Whether the chaos is over, and enough was sent; or nothing comes of it any more."""
        is_enough = len(self.streams.acknowledged) >= ACKNOWLEDGED_MIN
        is_late = trio.current_time() > self.swarm.chaos_s + group.LIVENESS_S
        return self.is_healed and (is_enough or is_late)

    @property
    def clocks_agree(self) -> bool:
        """Whether all wall clocks show the true time, always."""
        return not any(fault.kind == "skew" for fault in self.plan)

    def _look_at(self, machine: Machine) -> None:
        assert isinstance(machine, BrokerMachine)
        self.streams.look(machine)

    # ---- afterwards

    async def _liveness(self) -> None:
        """A new message is SEND_OK, every broker shows all there is, and what was delayed is delivered, in time."""
        hung_s = max(machine.disk.faults.hung_until for machine in self.machines.values()) - trio.current_time()
        limit_s = group.LIVENESS_S + max(hung_s, 0.0) + LAST_S * self._hands_over
        with trio.move_on_after(limit_s) as limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_when_over, nursery.cancel_scope)
                while not await self.producers[0].send():  # noqa: ASYNC110 - it is asked
                    await trio.sleep(0.1)
                await self._wait_until(self._is_all_delivered)
                await self._wait_until(self._is_converged)
                await self._wait_until(lambda: all(map(self.streams.is_dispatched, self.brokers)))
                if self._hands_over:
                    await Tables(self).run()
                    await self._wait_until(self._is_converged)
                    await self._wait_until(lambda: all(map(self.streams.is_dispatched, self.brokers)))
                nursery.cancel_scope.cancel()
        if limit.cancelled_caught and not self.checker.violations:
            late = f", not delivered: {self.streams.undelivered()[:3]}" if self.swarm.delayed else ""
            self.checker.violation("S11", f"not in order {limit_s:g} s after healing: {self.standing()}{late}")
        if not self.checker.violations:
            self.streams.check_at_rest()

    def _is_all_delivered(self) -> bool:
        self.streams.learn()
        return not self.streams.undelivered()


def simulate(
    seed: int,
    *,
    swarm: BrokerSwarm | None = None,
    plan: list[Fault] | None = None,
    keep_events: bool = False,
    is_last: bool = False,
) -> Outcome:
    """Run one seed, or what is left of it. ``is_last``: this process ends soon, see :func:`sim_loop.leave`."""
    with sim_loop.uncollected():
        swarm = swarm or draw(seed)
        plan = draw_plan(seed, swarm) if plan is None else plan
        world = BrokerWorld(seed, swarm, plan, keep_events=keep_events, is_last=is_last)
        return sim_loop.run(world.run, seed=seed)
