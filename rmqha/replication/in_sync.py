"""InSyncReplicas: up to which offset enough slaves hold the log.

``in_sync_replicas`` = N counts the master, so an offset is replicated when N - 1 distinct live slaves acknowledged
it: the (N-1)-th largest acknowledgement. RocketMQ 4.9 keeps a maximum over everything ever reported, 5.x counts
connections, so one slave connected twice counts twice (spec: ha §14, §15 rows 10, 11).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final


def address_of(peer: str) -> str:
    """The host of ``ip:port`` or ``[ip]:port``."""
    return peer.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Whether ``address`` is this very host."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@dataclass(eq=False, slots=True)
class _Replica:
    slave: str
    reported: int = -1
    """The last report, the first one included."""
    acked: int = -1
    """The last but for the first: that only asks for a stream, by a slave that has yet to compare the logs."""


@dataclass(slots=True)
class InSyncReplicas:
    """The acknowledgements of all live connections.

    Connections from one address are one slave and count with the best of them, except on loopback, where several
    slaves of a trial share the address and each connection is a slave of its own.
    """

    in_sync_replicas: int
    slave_fallbehind_max: int
    _replicas: dict[str, _Replica] = field(default_factory=dict, init=False)

    @property
    def slaves_needed(self) -> int:
        """How many slaves must hold a record before it counts as replicated."""
        return max(self.in_sync_replicas - 1, 0)

    def add(self, peer: str) -> None:
        """A connection from ``peer`` is live; it counts from its first report on."""
        address = address_of(peer)
        self._replicas[peer] = _Replica(peer if is_loopback(address) else address)

    def remove(self, peer: str) -> None:
        """That connection is gone, and its acknowledgements with it."""
        self._replicas.pop(peer, None)

    def acknowledge(self, peer: str, offset: int) -> None:
        """A live connection reported ``offset``, which was checked before; the first time it acknowledges nothing."""
        replica = self._replicas[peer]
        if replica.reported >= 0:
            replica.acked = offset
        replica.reported = offset

    def value(self) -> int:
        """Everything below this is held by enough live slaves; -1 when there are not enough of them."""
        needed: Final = self.slaves_needed
        acked = self._best_by_slave(lambda replica: replica.acked)
        if needed == 0 or len(acked) < needed:
            return -1
        return acked[needed - 1]

    @property
    def live_slaves(self) -> int:
        """How many distinct slaves are connected and have reported."""
        return len(self._reported_by_slave())

    def push2_slave_max_offset(self) -> int:
        """The largest report of any live connection, 0 without one."""
        return max(self._reported_by_slave(), default=0)

    def is_slave_ok(self, next_offset: int) -> bool:
        """Whether enough live slaves are close enough to be worth waiting for.

        Source: HAService.java:67-73; here only slaves that have reported count, and enough of them.
        """
        reported = self._reported_by_slave()
        close = sum(1 for offset in reported if next_offset - offset < self.slave_fallbehind_max)
        return close >= self.slaves_needed

    def _reported_by_slave(self) -> list[int]:
        return self._best_by_slave(lambda replica: replica.reported)

    def _best_by_slave(self, offset_of: Callable[[_Replica], int]) -> list[int]:
        """The best offset of each distinct slave that has one, largest first."""
        best: dict[str, int] = {}
        for replica in self._replicas.values():
            offset = offset_of(replica)
            if offset >= 0:
                best[replica.slave] = max(offset, best.get(replica.slave, -1))
        return sorted(best.values(), reverse=True)
