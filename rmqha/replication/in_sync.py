"""InSyncReplicas: what enough slaves hold of the log.

``in_sync_replicas`` = N counts the master, so bytes are replicated when N - 1 distinct live slaves hold them. RocketMQ
4.9 keeps a maximum over everything ever reported, 5.x counts connections, so one slave connected twice counts twice
(spec: ha §14, §15 rows 10, 11). Here connections that may be one slave's count as one.

What a slave holds is known only of bytes that it was sent over this connection, and of those only when it reports an
offset behind the place where its stream began. A report of that place, the first one or any later, says nothing: the
log below it may be another one, which our slaves have yet to find out and RocketMQ's never do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Final, NamedTuple

from rmqha.replication.slave_identity import SlaveIdentity


class Proof(NamedTuple):
    """Enough slaves held all bytes of ``[begin, end)`` at once."""

    begin: int
    end: int


@dataclass(eq=False, slots=True)
class Replica:
    """One live connection of a slave."""

    who: SlaveIdentity
    begins_at: int = -1
    """From here on the slave was sent the log."""
    reported: int = -1
    """Its last report; -1 before the first one."""

    @property
    def has_proven(self) -> bool:
        """Whether it holds ``[begins_at, reported)``, which is not empty."""
        return self.reported > self.begins_at


@dataclass(slots=True)
class InSyncReplicas:
    """The acknowledgements of all live connections."""

    in_sync_replicas: int
    slave_fallbehind_max: int
    _replicas: dict[Replica, None] = field(default_factory=dict, init=False)

    @property
    def slaves_needed(self) -> int:
        """How many slaves must hold a record before it counts as replicated."""
        return max(self.in_sync_replicas - 1, 0)

    def add(self, replica: Replica) -> None:
        """This connection is live; it counts from its first report on."""
        self._replicas[replica] = None

    def remove(self, replica: Replica) -> None:
        """That connection is gone, and its acknowledgements with it."""
        self._replicas.pop(replica, None)

    def acknowledge(self, replica: Replica, offset: int, *, begins_at: int) -> None:
        """A live connection, whose stream began at ``begins_at``, reported ``offset``; both were checked before."""
        replica.begins_at = begins_at
        replica.reported = offset

    def proof_beyond(self, offset: int) -> Proof | None:
        """What enough slaves hold at once, to an end beyond ``offset``; None if nothing is proven there.

        A proof that begins at or before ``offset`` comes first. Only where there is none, bytes are skipped: as few
        as possible, of which no live slave can show that it holds them.
        """
        needed = self.slaves_needed
        ahead = [one for one in self._replicas if one.reported > offset and one.reported > one.begins_at]
        if not needed or len(ahead) < needed:
            return None
        if len(ahead) == 1:
            return Proof(ahead[0].begins_at, ahead[0].reported)
        later = (replica.begins_at for replica in ahead if replica.begins_at > offset)
        for begin in (offset, *sorted(later)):
            proof = self._proof([replica for replica in ahead if replica.begins_at <= begin])
            if proof is not None:
                return proof
        return None

    def _proof(self, replicas: Iterable[Replica]) -> Proof | None:
        """What enough of these hold at once; each has proven something."""
        best = _distinct(replicas)
        needed: Final = self.slaves_needed
        if needed == 0 or len(best) < needed:
            return None
        counted = nlargest(needed, best, key=lambda replica: replica.reported)
        return Proof(max(replica.begins_at for replica in counted), counted[-1].reported)

    def value(self) -> int:
        """Up to here enough live slaves took what they were sent; -1 when there are not enough of them."""
        proof = self._proof(replica for replica in self._replicas if replica.has_proven)
        return -1 if proof is None else proof.end

    @property
    def live_slaves(self) -> int:
        """How many distinct slaves are connected and have reported."""
        return len(_distinct(self._reported()))

    def taken_max_offset(self) -> int:
        """What the live slave that took most holds of what it was sent, 0 without one."""
        return max((replica.reported for replica in self._replicas if replica.has_proven), default=0)

    def push2_slave_max_offset(self) -> int:
        """The largest report of any live connection, 0 without one."""
        return max((replica.reported for replica in self._reported()), default=0)

    def reported_of(self, name: str) -> int:
        """What the slave of that name has reported; of those that have said no name any may be it: the least of them.

        0 if no live slave can be it.
        """
        named = [one.reported for one in self._reported() if one.who.name == name]
        unnamed = [one.reported for one in self._reported() if not one.who.name]
        return max(named) if named else min(unnamed, default=0)

    def is_slave_ok(self, next_offset: int) -> bool:
        """Whether enough live slaves are close enough to be worth waiting for.

        Source: HAService.java:67-73; here only slaves that have reported count, and enough of them.
        """
        close = _distinct(one for one in self._reported() if next_offset - one.reported < self.slave_fallbehind_max)
        return len(close) >= self.slaves_needed

    def _reported(self) -> Iterator[Replica]:
        return (replica for replica in self._replicas if replica.reported >= 0)


def _distinct(replicas: Iterable[Replica]) -> list[Replica]:
    """Of the connections of one slave the one that reported most; none that may be the slave of another one here.

    Those that have said their names come first: one that has not may be any slave of its host.
    """
    taken: set[str] = set()
    distinct: list[Replica] = []
    for replica in sorted(replicas, key=lambda one: (bool(one.who.name), one.reported), reverse=True):
        who = replica.who
        if taken.isdisjoint(who.marks):
            taken.update(who.marks, (who.host,))
            distinct.append(replica)
    return distinct
