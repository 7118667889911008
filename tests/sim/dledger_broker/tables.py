"""The tables that brokers of a group have from their master, and what becomes of them when another one leads."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from rmqha.codec.dledger_properties import TERM_FILE, TermVote, encode_term_vote
from tests.sim.dledger.handovers import Handovers
from tests.sim.dledger_broker.machine import BrokerMachine
from tests.sim.dledger_broker.streams import LATE, QUEUES
from tests.sim.sim_clock import stream

if TYPE_CHECKING:
    from tests.sim.dledger_broker.world import BrokerWorld

_TAKEN_OVER_S: Final = 25.0
"""A broker asks when it begins to follow, 3 s later if that failed, and then every 10 s."""
_MASTER_S: Final = 10.0
_LOOK_S: Final = 0.25
_MOMENT_S: Final = 0.001
_RESTARTED: Final = 0.5
_SECOND: Final = 0.5
_GOES_ON: Final = 0.5
_HAS_STOOD: Final = 0.5
_DELIVERED_AGAIN_S: Final = 2.5
"""A new master would deliver again what it does not know to be delivered by then."""


class Tables:
    """Of one world."""

    def __init__(self, world: "BrokerWorld") -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, "dledger_broker/tables")

    async def run(self) -> None:
        """Q7: all brokers have their master's tables; who leads next has them, and delivers nothing again."""
        world = self._world
        for consumer in world.consumers:
            await consumer.settle()
        if await self._wait_same() is None:
            return
        master = await self._wait_master()
        if master is None:
            return
        before, delivered = tables_of(master), self._delivered()
        between, heir = self._random.sample([machine for machine in world.brokers if machine is not master], 2)
        handovers = Handovers(world, is_taken=world.producers[0].send)
        is_restarted, is_second = (self._random.random() < chance for chance in (_RESTARTED, _SECOND))
        if is_restarted or is_second:
            is_on = self._random.random() < _GOES_ON
            for consumer in world.consumers:
                await (consumer.advance() if is_on else consumer.go_back())
            before = tables_of(master)
        if is_restarted:  # it has saved nothing of late, and asked nobody yet
            await self._restart(heir, has_stood=self._random.random() < _HAS_STOOD)
        elif is_second:  # it has hardly noticed that another leads in between
            await handovers.hand_over(between.name)
            await self._until(lambda: between.master is not None)
        await handovers.hand_over(heir.name)
        new = await self._wait_master()
        if new is None or world.checker.violations:
            return
        if difference := differs(before, tables_of(new)):
            told = f"{new.name} is master after {master.name}, and has other tables: {difference}"
            world.checker.violation("Q7", told)
        await trio.sleep(_DELIVERED_AGAIN_S)
        world.streams.learn()
        if (now := self._delivered()) != delivered:
            world.checker.violation("Q7", f"{new.name} delivers {now - delivered} delayed messages again")

    async def _restart(self, machine: BrokerMachine, *, has_stood: bool) -> None:
        """Return when it follows, or leads before it has followed anybody, as who ``has_stood`` for this term may."""
        machine.kill()
        if has_stood:
            self._let_stand(machine)
        machine.boot()

        def is_there() -> bool:
            life = machine.life
            return machine.leads or (life is not None and bool(life.broker.role.master))

        await self._until(is_there)

    async def _until(self, condition: Callable[[], bool]) -> None:
        with trio.move_on_after(_MASTER_S):
            while not condition():  # noqa: ASYNC110 - they tell nobody
                await trio.sleep(_MOMENT_S)

    def _let_stand(self, machine: BrokerMachine) -> None:
        """Have it on its disk that it asked for votes in the present term, too: a majority of the others was enough."""
        vote, terms = (
            TermVote(self._world.checker.terms[machine.name].curr_term, machine.name),
            self._world.checker.terms,
        )
        terms[machine.name] = vote  # nobody takes it for a second vote
        (path,) = [path for path in machine.disk.files if path.endswith(f"/{TERM_FILE}")]
        machine.disk.mount().replace_bytes(path, encode_term_vote(vote))

    def _delivered(self) -> int:
        return sum(len(self._world.streams.queues[LATE, queue]) for queue in range(QUEUES))

    async def _wait_same(self) -> dict[str, Any] | None:
        """What all have; None if that is not the same in time."""
        difference = ""
        with trio.move_on_after(_TAKEN_OVER_S):
            while True:
                difference = self._difference()
                master = next((one for one in self._world.brokers if one.master is not None), None)
                if master is not None and not difference:
                    return tables_of(master)
                await trio.sleep(_LOOK_S)
        told = f"{_TAKEN_OVER_S:g} s after all is in order brokers differ: {difference or 'nobody is master'}"
        self._world.checker.violation("Q7", told)
        return None

    def _difference(self) -> str:
        master = next((one for one in self._world.brokers if one.master is not None), None)
        if master is None:
            return "nobody is master"
        has = tables_of(master)
        found = [(one.name, differs(has, tables_of(one))) for one in self._world.brokers]
        return "; ".join(f"{name}: {difference}" for name, difference in found if difference)

    async def _wait_master(self) -> BrokerMachine | None:
        with trio.move_on_after(_MASTER_S):
            while True:
                masters = [one for one in self._world.brokers if one.master is not None]
                if len(masters) == 1 and masters[0].leads:
                    return masters[0]
                await trio.sleep(_LOOK_S)
        self._world.checker.violation("Q7", f"nobody is master for {_MASTER_S:g} s, though all is in order")
        return None


def tables_of(machine: BrokerMachine) -> dict[str, Any]:
    """What its broker has in memory, flat."""
    if (life := machine.life) is None:
        return {}
    metadata = life.broker.metadata
    offsets = metadata.offsets.to_json()["offsetTable"]
    flat = {f"topic {name}": value for name, value in metadata.topics.to_json()["topicConfigTable"].items()}
    flat |= {f"offset of {key}/{queue}": value for key, queues in offsets.items() for queue, value in queues.items()}
    flat |= {f"level {level}": offset for level, offset in dict(metadata.delay_offsets).items() if offset}
    return flat | {f"group {name}": str(value) for name, value in metadata.groups._table.items()}


def differs(here: dict[str, Any], there: dict[str, Any]) -> str:
    """The first that is another there, and how; empty: they are the same."""
    keys = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
    return f"{keys[0]} is {here.get(keys[0])} and {there.get(keys[0])}" if keys else ""
