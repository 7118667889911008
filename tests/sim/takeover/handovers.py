"""Handovers: once all is in order, masters are replaced at rest, and what they knew must be there afterwards.

During the chaos nobody can tell what a slave should know of its master's tables. Here everything is settled first: what
is asked for was done, what is due was delivered, slaves had their round. Then nothing may be lost, or come again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from rmqha.broker.transaction.half_message import HALF_TOPIC
from tests.sim.node import HA_PORT, STORE
from tests.sim.sim_clock import stream
from tests.sim.takeover.admin import GUARDED, Admin
from tests.sim.takeover.delayed import Delayed
from tests.sim.takeover.ledger import Ledger
from tests.sim.takeover.tables import Tables, saved_tables, tables_of
from tests.sim.takeover.transactions import Transactions
from tests.sim.workload import LATE

if TYPE_CHECKING:
    from tests.sim.node import Process, SimNode
    from tests.sim.world import World

_KINDS: Final = ("usurp", "usurp", "failover", "destroy", "stop", "power", "same", "lost", "lag", "lag")
"""What a change of master at rest may be, besides those of the operator: ``stop`` and ``power`` end all brokers first,
by SIGTERM or with their machines; ``same`` is none, all machines lose power; ``lost`` is a master that comes back with
an empty disk, and takes everything from its peers; ``lag`` is a master whose slaves had its tables, but not its log
any more, while it delivered and asked, and which is then gone for good."""
_LAG_S: Final = 14.0
"""A slave asks for tables in this time, and does not miss its master's frames yet."""
_HOW: Final = {"failover": "failover", "destroy": "destroy", "lag": "failover"}
_REST_S: Final = 60.0
"""Within so long all is settled: delays and questions of half messages beside."""
_ROUND_S: Final = 25.0
"""Within so long a slave has had a round of tables that began later than now: they begin every 10 s."""
_LOOK_S: Final = 0.5
_STOP_S: Final = 1.9
"""A node that was stopped starts again by itself after two seconds."""


class Handovers:
    """All that is needed for them, in one world."""

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, "takeover/handovers")
        self._delayed: Final = Delayed(world)
        self._transactions: Final = Transactions(world)
        self._admin: Final = Admin(world)
        self._ledger: Final = Ledger()
        self._counts: dict[tuple[str, bytes], int] = {}
        self._expires: Final = world.swarm.cleans
        """Messages expire: there are topics that are silent, and none that are waited for."""
        self._unlike: Final = ("deleted",) if self._expires else ()
        """What each broker forgets with its own files."""

    def start(self) -> None:
        """Let them do what they do during the chaos."""
        actors = (self._admin.run,) if self._expires else (self._delayed.run, self._transactions.run, self._admin.run)
        for run in actors:
            self._world.nursery.start_soon(run)

    async def run(self) -> None:
        """After healing: as many changes of master as the seed has, and a rest before and after each."""
        for number in range(self._world.swarm.takeovers + 1):
            is_last = number == self._world.swarm.takeovers
            await self._admin.settle()
            if self._expires:
                await self._expire()
            else:
                await self._delayed.send_some()
                await self._transactions.begin_some(is_last=is_last)
            before = await self._rest()
            if is_last or self._world.checker.violations:
                return
            await self._hand_over(self._draw())
            await self._wait_until(self._is_in_order, "a new master serves, and is followed", limit_s=_REST_S)
            if (master := self._world.master.process) is not None:
                self._check_tables(master, before)
            self._transactions.chapter += 1
            await self._transactions.end_due(self._ledger)
            await self._admin.send_everywhere()

    async def _expire(self) -> None:
        """Send until all that is in the log now has expired everywhere: of silent topics no message is left."""
        master = self._world.master.process
        end = 0 if master is None else master.broker.store.max_offset

        def is_gone() -> bool:
            processes = [node.process for node in self._world.nodes.values()]
            return all(process is not None and process.broker.store.min_offset >= end for process in processes)

        with trio.move_on_after(_REST_S) as limit:
            while not is_gone():
                await self._admin.fill(self._world.swarm.segment_size // 3)
                await trio.sleep(_LOOK_S)
        if limit.cancelled_caught:
            self._violation(f"not everybody has deleted what lies before {end} within {_REST_S:.0f} s")

    # ---- the change

    def _draw(self) -> str:
        kinds = [kind for kind in _KINDS if kind != "lost" or self._world.swarm.peers]
        if self._expires or self._world.swarm.sync_master is False or self._world.swarm.master_forgets:
            kinds = [kind for kind in kinds if kind != "lag"]
        return self._random.choice(kinds)

    async def _hand_over(self, kind: str) -> None:
        world, old = self._world, self._world.master
        nodes = list(world.nodes.values())
        world.journal.record("handover", kind, old.name)
        match kind:
            case "lag":
                await self._delayed.send_some(levels=2)
                world.net.choke(HA_PORT)
                await trio.sleep(_LAG_S)
            case "stop":
                for node in nodes:
                    node.stop()
                with trio.move_on_after(_STOP_S):
                    while any(node.process is not None for node in nodes):  # noqa: ASYNC110 - a look from outside
                        await trio.sleep(0.05)
            case "power" | "same":
                for node in nodes:
                    node.power_cut()
                    if self._expires:  # where queues end only their table tells then
                        node.disk.remove(f"{STORE}/consumequeue")
        if kind == "same":
            for node in nodes:
                world.later(self._random.uniform(0.1, 1.0), node.boot)
        elif kind == "lost":
            world.checker.on_failed_over()
            old.wipe()
            world.later(0.5, old.boot)
        else:
            world.operator.fail_over(old, how=_HOW.get(kind, "usurp"))

    def _check_tables(self, master: "Process", before: Tables) -> None:
        """What the new master knows; deliveries and questions go on as soon as it serves."""
        after = tables_of(master)
        if LATE not in before.topics:  # made since, with the first delayed messages of a change that lags
            after.topics.pop(LATE, None)
        if why := before.differs(after, but=("delay", "halves", *self._unlike)):
            self._violation(f"{master.node.name} is master, and of {why}")
        for level, offset in before.delay.items():
            if after.delay.get(level, 0) < offset:
                self._violation(f"{master.node.name} is master, and delivers level {level} again from {offset} on")

    # ---- the rest

    async def _rest(self) -> Tables:
        """Wait until everything is settled, and look at it."""
        world, delayed, transactions = self._world, self._delayed, self._transactions
        await self._wait_until(self._is_in_order, "all is in order", limit_s=_REST_S)
        is_last = not transactions.are_open
        if not self._expires and (is_last or self._random.random() < 0.3):
            await trio.sleep_until(delayed.all_due_at())
        limit_s = 3 * (world.swarm.check_interval_s + world.swarm.check_after_s) + 2 * _REST_S
        await self._wait_until(self._is_done, self._why_not_done, limit_s=limit_s)
        await self._wait_until(self._is_learned, self._why_not_learned, limit_s=_ROUND_S + world.net.latency_s[1] * 40)
        assert world.master.process is not None, "it is in order"
        tables = tables_of(world.master.process)
        counts = self._ledger.counts(tables.delay)
        await trio.sleep(world.swarm.save_s + 1.0)
        self._read()
        delayed.check(self._ledger)
        transactions.check(self._ledger)
        self._check_admin()
        self._check_repeated()
        self._counts = counts
        for node in world.nodes.values():
            self._check_saved(node, but=() if is_last else ("delay", "halves"))
        if is_last and not self._expires:
            await self._check_still()
        return tables

    def _is_in_order(self) -> bool:
        return self._world.is_at_rest()

    def _read(self) -> None:
        if (master := self._world.master.process) is not None:
            self._ledger.read(master)

    def _is_done(self) -> bool:
        self._read()
        return not (self._transactions.lacks(self._ledger) or self._is_delayed_due() or self._is_somebody_to_be_asked())

    def _is_somebody_to_be_asked(self) -> bool:
        """Whether a half message waits that all have to end by now; of one that is rolled back nothing else tells."""
        if self._transactions.are_open or (master := self._world.master.process) is None:
            return False
        dealt_with = tables_of(master).halves[HALF_TOPIC].get(0, 0)
        return dealt_with < master.broker.store.next_queue_offset(HALF_TOPIC, 0)

    def _is_delayed_due(self) -> bool:
        return trio.current_time() >= self._delayed.all_due_at() and self._delayed.waits(self._ledger)

    def _why_not_done(self) -> str:
        if lacking := self._transactions.lacks(self._ledger):
            return f"committed messages are visible: {sorted(lacking)} are not"
        if self._is_somebody_to_be_asked():
            return "half messages are dealt with"
        return "delayed messages are delivered"

    def _slaves(self) -> list["Process"]:
        return [node.process for node in self._world.nodes.values() if node.process and not node.process.is_master]

    def _is_learned(self) -> bool:
        if not self._is_in_order() or self._why_not_learned():
            return False
        self._read()
        return True

    def _why_not_learned(self) -> str:
        if (master := self._world.master.process) is None:
            return "there is a master"
        tables = tables_of(master)
        unsettled = ("halves", *self._unlike) if self._transactions.are_open else self._unlike
        for slave in self._slaves():
            if why := tables.differs(tables_of(slave), but=unsettled):
                return f"{slave.node.name} has its master's tables: of {why}"
        return ""

    def _check_saved(self, node: "SimNode", *, but: tuple[str, ...]) -> None:
        assert node.process is not None, "it is in order"
        saved = saved_tables(node.disk)
        if isinstance(saved, str):
            self._violation(f"{node.name}: {saved}")
        elif why := tables_of(node.process).differs(saved, but=but):
            self._violation(f"{node.name} has not saved what it knows, of {why}")

    def _check_admin(self) -> None:
        """What was asked for, and done, is so on the master."""
        assert self._world.master.process is not None, "it is in order"
        tables, admin = tables_of(self._world.master.process), self._admin
        for topic, config in admin.topics.items():
            if tables.topics.get(topic) != config:
                self._violation(f"{topic} is {tables.topics.get(topic)}, not {config}")
        for (topic, queue_id), offset in admin.committed.items():
            if (said := tables.offsets[topic].get(queue_id)) != offset:
                self._violation(f"the group is at {said} of {topic}/{queue_id}, not at {offset}")
        if GUARDED in tables.groups and tables.groups[GUARDED].consume_enable is not admin.guarded:
            self._violation(f"{GUARDED} may consume: {not admin.guarded}")
        for node in self._world.nodes.values():
            self._check_deleted(node)

    def _check_deleted(self, node: "SimNode") -> None:
        assert node.process is not None, "it is in order"
        for (topic, queue_id), end in self._admin.deleted.items():
            result = node.process.broker.store.get_message(topic, queue_id, 0)
            found = [int.from_bytes(bytes(view[20:28]), "big") for view in result.views]
            if any(offset < end for offset in found):
                self._violation(f"{node.name} shows {found} of {topic}/{queue_id}, and all before {end} was deleted")

    def _check_repeated(self) -> None:
        """What was delivered, or committed, before a master was replaced at rest, does not come again."""
        counts = self._ledger.counts()
        for key, count in self._counts.items():
            if counts.get(key, 0) != count:
                self._violation(f"{key} was there {count} times, and is {counts.get(key, 0)} times now")

    async def _check_still(self) -> None:
        """Nothing is written any more when all is ended."""
        world = self._world
        assert world.master.process is not None, "it is in order"
        store, swarm = world.master.process.broker.store, world.swarm
        await trio.sleep(2 * swarm.check_interval_s)
        end = store.max_offset
        await trio.sleep(3 * swarm.check_interval_s)
        if store.max_offset != end:
            self._violation(f"the log grows at rest, from {end} to {store.max_offset}")
        halves = tables_of(world.master.process).halves
        for topic, offsets in halves.items():
            if offsets.get(0, 0) != store.next_queue_offset(topic, 0):
                self._violation(f"{topic} is dealt with up to {offsets}, not {store.next_queue_offset(topic, 0)}")

    async def _wait_until(self, is_so: Callable[[], bool], what: str | Callable[[], str], *, limit_s: float) -> None:
        with trio.move_on_after(limit_s) as limit:
            while not is_so() and not self._world.checker.violations:  # noqa: ASYNC110 - a look from outside
                await trio.sleep(_LOOK_S)
        if limit.cancelled_caught:
            told = what if isinstance(what, str) else what() or "all is in order"
            self._violation(f"not so within {limit_s:.0f} s: {told}")
            await trio.sleep_forever()

    def _violation(self, what: str) -> None:
        self._world.checker.violation("takeover", what)
