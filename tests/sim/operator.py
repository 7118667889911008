"""The operator of a simulated cluster: changes masters, replaces machines, and empties disks when a broker says so."""

from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import DivergedLogError
from rmqha.ha.runtime_info import ClientState
from tests.sim.held import COMMIT_LOG
from tests.sim.node import LISTEN_PORT, Process, SimNode
from tests.sim.visible import decoded

if TYPE_CHECKING:
    from tests.sim.world import World

_LOOK_S: Final = 3.0
_REFUSED_OFTEN: Final = 5
_ALARMS: Final = frozenset({ClientState.DIVERGED, ClientState.AHEAD, ClientState.BELOW_MIN})


class Operator:
    """Knows of the cluster what a person would: what its brokers say, and where the logs on their disks end.

    Attributes:
        usurped: nodes that a change of master may have left ahead of the new one, until they are seen to follow it or
            are rebuilt: an old master that came back with all it had, and everybody if the new one had not flushed its
            tail.
    """

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self.usurped: Final[set[str]] = set()
        self._compared_before: Process | None = None
        """The master's process when an old master was rebuilt: it may have compared with that one's log."""
        self._reign_from: int | None = None
        """Where the master's log ended when it first served as such."""
        self._refused_beside: Final[Counter[str]] = Counter()
        """How often a master ended its start for the log of a node, since that one was rebuilt."""

    def fail_over(self, node: SimNode, *, how: str) -> None:
        """A machine is destroyed, or only taken for dead; if it was the master the longest log takes over.

        Before it come logs with messages of the old master: what is longer without them is the tail of a former one,
        and lacks what was acknowledged since. Of equal ones that of which the device has most: the new master may lose
        power before the rest is durable.

        The operator stops everything first, so that no two masters ever take messages. The old master is rebuilt
        empty; or (``usurp``) it just comes back as a slave, and the operator acts when that slave raises the alarm.
        """
        world = self._world
        if how == "destroy":
            node.wipe()
            node.gone = True
            world.later(5.0, lambda: self._replace(node))
        if node is not world.master:
            return
        for other in world.nodes.values():
            other.kill()
        candidates = [other for other in world.nodes.values() if other is not node]
        world.master = max(candidates, key=lambda other: (*self._standing(other, old=node), other.name))
        self._reign_from = None
        world.journal.record("operator.promoted", world.master.name)
        world.checker.on_failed_over()
        if how == "failover":
            node.wipe()
        if how == "usurp":
            self._watch(node)
        files = world.master.disk.files.items()
        if any(inode.cache != inode.durable for path, inode in files if path.startswith(COMMIT_LOG)):
            for other in candidates:
                self._watch(other)
        for other in world.nodes.values():
            world.later(0.5, other.boot)

    def _standing(self, node: SimNode, *, old: SimNode) -> tuple[bool, int, int]:
        """Whether a log has messages that the old master stored as such, where it ends, and where on the device."""
        end, stored_by = self._end_of_log(node)
        is_of_its_reign = self._reign_from is not None and end > self._reign_from
        durable_end, _ = self._end_of_log(node, durable=True)
        return is_of_its_reign and stored_by == f"{old.address}:{LISTEN_PORT}", end, durable_end

    def on_serving(self, process: Process) -> None:
        """A broker says that it has started, and where its log ends."""
        if process.is_master and self._reign_from is None:
            self._reign_from = process.broker.store.max_offset

    def _watch(self, node: SimNode) -> None:
        self.usurped.add(node.name)
        self._world.nursery.start_soon(self._rebuild_unless_following, node)

    async def _rebuild_unless_following(self, node: SimNode) -> None:
        """Look at a node after a change of master, until it follows the new one or was given an empty disk."""
        while node.name in self.usurped:
            await trio.sleep(_LOOK_S)
            state = _state(node)
            if state is ClientState.TRANSFER:
                self.usurped.discard(node.name)
            elif state in _ALARMS:
                self._rebuild(node, state.value)

    async def rebuild_when_alarmed(self, node: SimNode) -> None:
        """Some seconds after a slave says that its log does not fit, the operator gives it an empty disk.

        Not while its master has yet to take over what the slave has before it.
        """
        while True:
            await trio.sleep(_LOOK_S)
            state, master = _state(node), self._world.master.process
            is_awaited = state is ClientState.AHEAD and master is not None and master.is_behind
            if state in _ALARMS and not is_awaited:
                self._rebuild(node, state.value)

    def rebuild_usurped(self) -> None:
        """A new master will not start beside an old one with other bytes: the operator gives that one an empty disk."""
        for node in self._world.nodes.values():
            if node.name in self.usurped and node is not self._world.master:
                self._rebuild(node, "usurped")

    def expects_divergence(self, process: Process) -> bool:
        """Whether this master may end its start because an old one, rebuilt meanwhile or not, has other bytes."""
        return process.is_master and (bool(self.usurped) or process is self._compared_before)

    def on_refused_beside(self, error: DivergedLogError) -> None:
        """A master that forgot its tail, and stored other messages, ended its start for what a slave kept of that tail.

        The slave says so, too, and is rebuilt, if it gets to ask the master. If the master ends each time before, the
        operator takes the master's word for it.
        """
        for node in self._world.nodes.values():
            if f"{node.address}:" in str(error) and node is not self._world.master:
                self._refused_beside[node.name] += 1
                if self._refused_beside[node.name] >= _REFUSED_OFTEN:
                    self._rebuild(node, "refused")

    def rebuild_forgetful(self, node: SimNode) -> None:
        """A master forgot more than its slave still has in front: it says so, and the operator starts it empty."""
        self._rebuild(node, "forgetful")

    def _rebuild(self, node: SimNode, why: str) -> None:
        self._world.journal.record("operator.rebuilt", node.name, why)
        self._refused_beside[node.name] = 0
        node.wipe()
        if node.name in self.usurped:
            self._compared_before = self._world.master.process
        self.usurped.discard(node.name)
        self._world.checker.on_failed_over()
        node.boot()

    def _replace(self, node: SimNode) -> None:
        node.gone = False
        node.boot()

    def _end_of_log(self, node: SimNode, *, durable: bool = False) -> tuple[int, str]:
        """Where the log on a node's disk will end when it starts, and who stored its last record.

        A last record with torn properties is cut then. With ``durable`` after a loss of power.
        """
        segment_size, end, stored_by = self._world.swarm.segment_size, 0, ""
        for path, inode in sorted(node.disk.files.items()):
            if not path.startswith(COMMIT_LOG) or inode.size != segment_size:
                continue
            base = int(path.removeprefix(COMMIT_LOG))
            view = memoryview(inode.durable if durable else inode.cache)
            scan = scan_records(view, 0, inode.size, phy_offset_base=base, file_end=inode.size, torn_from=0)
            if scan.records:
                stored_by = decoded(_last_record(view[: scan.end])).store_host
            end = base + (inode.size if scan.stop is Stop.BLANK else scan.end)
            if scan.stop is not Stop.BLANK:
                break
        return end, stored_by


def _state(node: SimNode) -> ClientState:
    """What a slave's status says."""
    client = node.process.replication.ha_client if node.process is not None else None
    return client.info().state if client is not None else ClientState.NO_MASTER


def _last_record(records: memoryview) -> bytes:
    at = last = 0
    while at < len(records):
        last, at = at, at + int.from_bytes(records[at : at + 4], "big")
    return bytes(records[last:])
