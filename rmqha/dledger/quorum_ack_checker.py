"""QuorumAckChecker: what a majority has, and who waits for it.

Source: spec: dledger §2.3, §2.6, §2.7, §3.7, and the rules of §7.3 rows 1, 14 and 15.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from rmqha.dledger.dledger_exception import DLedgerResponseCode

Tell = Callable[[DLedgerResponseCode], None]


@dataclass(frozen=True, slots=True)
class AppendFuture:
    """A client that waits until its entry is committed."""

    index: int
    times_out_at: float
    tell: Tell


class QuorumAckChecker:
    """Of one leadership: a new term begins with a new one, and :meth:`end` ends the old.

    Invariants: a watermark is the highest index that a member is known to have stored, as this group understands it;
    pending appends are in ascending order, of index and of time, each told once.
    """

    def __init__(self, peers: frozenset[str], *, inherited_index: int, max_pending_requests_num: int) -> None:
        """Nothing is known of anybody.

        Args:
            peers: the ids of all members, the leader's too.
            inherited_index: the last entry of the leader's log when it was elected; what is behind it is of its term.
            max_pending_requests_num: of appends that wait.
        """
        self._peer_water_marks: Final = dict.fromkeys(sorted(peers), -1)
        self.inherited_index: Final = inherited_index
        self._max_pending: Final = max_pending_requests_num
        self._pending: Final[deque[AppendFuture]] = deque()

    @property
    def is_pending_full(self) -> bool:
        """Whether the next append is answered LEADER_PENDING_FULL; one more than the option says is let in."""
        return len(self._pending) > self._max_pending

    def wait_ack(self, future: AppendFuture) -> None:
        """Tell who waits when its entry is committed, its time is over, or this leadership is."""
        last = self._pending[-1] if self._pending else future
        assert last is future or (last.index < future.index and last.times_out_at <= future.times_out_at), "in order"
        self._pending.append(future)

    def water_mark(self, peer: str) -> int:
        """The last entry that ``peer`` is known to have; -1 if none is."""
        return self._peer_water_marks[peer]

    def update_peer_water_mark(self, peer: str, index: int) -> None:
        """``peer`` has stored all up to ``index``; one that is lower changes nothing."""
        self._peer_water_marks[peer] = max(self._peer_water_marks[peer], index)

    def lower_peer_water_mark(self, peer: str, index: int) -> None:
        """``peer`` was found to have less than was known: it lost some (spec: dledger §7.2 W2)."""
        self._peer_water_marks[peer] = min(self._peer_water_marks[peer], index)

    @property
    def committed(self) -> int:
        """What may be committed; -1 for nothing.

        That is what a majority has, if its last entry is of this leader's term. An older term's entries are committed
        by one of this term behind them, or once all members have them: the next leader has them then, too. Never by
        counting a majority (spec: dledger §7.4).
        """
        marks = sorted(self._peer_water_marks.values(), reverse=True)
        index = marks[len(marks) // 2]
        return index if index > self.inherited_index else marks[-1]

    @property
    def is_agreed(self) -> bool:
        """Whether a majority has all that the leader's log held when it was elected: that log is the group's."""
        marks = sorted(self._peer_water_marks.values(), reverse=True)
        return marks[len(marks) // 2] >= self.inherited_index

    def complete(self, committed_index: int) -> None:
        """Tell all whose entries are committed, in order."""
        while self._pending and self._pending[0].index <= committed_index:
            self._pending.popleft().tell(DLedgerResponseCode.SUCCESS)

    @property
    def times_out_at(self) -> float:
        """When the first of those who wait does so no longer; ``inf`` if nobody waits."""
        return self._pending[0].times_out_at if self._pending else inf

    def time_out(self, *, now: float) -> None:
        """Tell those whose time is over; their entries stay, and may still be committed."""
        while self.times_out_at <= now:
            self._pending.popleft().tell(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def end(self) -> None:
        """This member leads no more in this term: whether the rest is committed the next leader decides."""
        while self._pending:
            self._pending.popleft().tell(DLedgerResponseCode.TERM_CHANGED)
