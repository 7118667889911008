"""The operator of a simulated cluster: changes masters, replaces machines, and empties disks when a broker says so."""

from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.record.scan import Stop, scan_records
from rmqha.ha.runtime_info import ClientState
from tests.sim.held import COMMIT_LOG
from tests.sim.node import SimNode

if TYPE_CHECKING:
    from tests.sim.world import World


class Operator:
    """Knows of the cluster what a person would: what its brokers say, and where the logs on their disks end.

    Attributes:
        usurped: nodes that a change of master may have left ahead of the new one, until somebody looks: an old master
            that came back with all it had, and everybody if the new one had not flushed its tail.
        apart: old masters that came back with all they had, and have not been seen following since: what they have more
            is nobody's, and a change of master passes them over.
    """

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self.usurped: Final[set[str]] = set()
        self.apart: Final[set[str]] = set()

    def fail_over(self, node: SimNode, *, how: str) -> None:
        """A machine is destroyed, or only taken for dead; if it was the master the longest log takes over.

        Of equal ones that of which the device has most: the new master may lose power before the rest is durable.

        The operator stops everything first, so that no two masters ever take messages, and passes over who is ``apart``
        if anybody is not. The old master is rebuilt empty; or (``usurp``) it just comes back as a slave, and the
        operator acts when that slave raises the alarm.
        """
        world = self._world
        if how == "destroy":
            node.wipe()
            node.gone = True
            world.later(5.0, lambda: self._replace(node))
        if node is not world.master:
            return
        for other in world.nodes.values():
            self._note_following(other)
            other.kill()
        candidates = [other for other in world.nodes.values() if other is not node]
        eligible = [other for other in candidates if other.name not in self.apart] or candidates
        world.master = max(eligible, key=lambda n: (self._log_end(n), self._log_end(n, durable=True), n.name))
        world.journal.record("operator.promoted", world.master.name)
        world.checker.on_failed_over()
        if how == "failover":
            node.wipe()
        if how == "usurp":
            self.apart.add(node.name)
            self._watch(node)
        files = world.master.disk.files.items()
        if any(inode.cache != inode.durable for path, inode in files if path.startswith(COMMIT_LOG)):
            for other in candidates:
                self._watch(other)
        for other in world.nodes.values():
            world.later(0.5, other.boot)

    def _watch(self, node: SimNode) -> None:
        self.usurped.add(node.name)
        self._world.nursery.start_soon(self.rebuild_when_alarmed, node)

    async def rebuild_when_alarmed(self, node: SimNode) -> None:
        """Some seconds after a slave says that its log does not fit, the operator gives it an empty disk.

        Not while its master has yet to take over what the slave has before it.
        """
        while True:
            await trio.sleep(3.0)
            self._note_following(node)
            process = node.process
            if process is None or process.replication.ha_client is None:
                continue
            info = process.replication.ha_client.info()
            master = self._world.master.process
            is_awaited = node.name not in self.usurped and master is not None and master.is_behind
            if info.state is ClientState.AHEAD and is_awaited:
                continue
            if info.state in {ClientState.DIVERGED, ClientState.AHEAD, ClientState.BELOW_MIN}:
                self._rebuild(node, info.state.value)

    def _note_following(self, node: SimNode) -> None:
        client = node.process.replication.ha_client if node.process is not None else None
        if client is not None and client.info().state is ClientState.TRANSFER:
            self.apart.discard(node.name)

    def rebuild_usurped(self) -> None:
        """A new master will not start beside an old one with other bytes: the operator gives that one an empty disk."""
        for node in self._world.nodes.values():
            if node.name in self.usurped and node is not self._world.master:
                self._rebuild(node, "usurped")

    def rebuild_forgetful(self, node: SimNode) -> None:
        """A master forgot more than its slave still has in front: it says so, and the operator starts it empty."""
        self._rebuild(node, "forgetful")

    def _rebuild(self, node: SimNode, why: str) -> None:
        self._world.journal.record("operator.rebuilt", node.name, why)
        node.wipe()
        self.usurped.discard(node.name)
        self.apart.discard(node.name)
        self._world.checker.on_failed_over()
        node.boot()

    def _replace(self, node: SimNode) -> None:
        node.gone = False
        node.boot()

    def _log_end(self, node: SimNode, *, durable: bool = False) -> int:
        """Where the log on a node's disk will end when it starts: a last record with torn properties is cut then.

        With ``durable`` where it would after a loss of power.
        """
        segment_size, end = self._world.swarm.segment_size, 0
        for path, inode in sorted(node.disk.files.items()):
            if not path.startswith(COMMIT_LOG) or inode.size != segment_size:
                continue
            base = int(path.removeprefix(COMMIT_LOG))
            view = memoryview(inode.durable if durable else inode.cache)
            scan = scan_records(view, 0, inode.size, phy_offset_base=base, file_end=inode.size, torn_from=0)
            end = base + (inode.size if scan.stop is Stop.BLANK else scan.end)
            if scan.stop is not Stop.BLANK:
                break
        return end
