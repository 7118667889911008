"""QuorumAckChecker: what a majority has, and who waits for it.

Source: spec: dledger §2.3, §2.6, §2.7, §3.7, and the rules of §7.3 rows 1, 14 and 15.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
    pending appends are in ascending order, each told once.
    """

    def __init__(self, peers: frozenset[str], *, term: int, max_pending_requests_num: int) -> None:
        self._peer_water_marks: Final = dict.fromkeys(sorted(peers), -1)
        self._term: Final = term
        self._max_pending: Final = max_pending_requests_num
        self._pending: Final[dict[int, AppendFuture]] = {}

    @property
    def is_pending_full(self) -> bool:
        """Whether the next append is answered LEADER_PENDING_FULL; one more than the option says is let in."""
        return len(self._pending) > self._max_pending

    def wait_ack(self, future: AppendFuture) -> None:
        """Tell who waits when its entry is committed, its time is over, or this leadership is."""
        assert not self._pending or future.index > next(reversed(self._pending)), "entries are appended in order"
        self._pending[future.index] = future

    def water_mark(self, peer: str) -> int:
        """The last entry that ``peer`` is known to have; -1 if none is."""
        return self._peer_water_marks[peer]

    def update_peer_water_mark(self, peer: str, index: int) -> None:
        """``peer`` has stored all up to ``index``; one that is lower changes nothing."""
        self._peer_water_marks[peer] = max(self._peer_water_marks[peer], index)

    def lower_peer_water_mark(self, peer: str, index: int) -> None:
        """``peer`` was found to have less than was known: it lost some (spec: dledger §7.2 W2)."""
        self._peer_water_marks[peer] = min(self._peer_water_marks[peer], index)

    def committed(self, *, term_of: Callable[[int], int]) -> int:
        """What may be committed: what a majority has, and its last entry is of this leader's term; -1 for nothing.

        An older term's entries are committed by one of this term behind them, never by counting (spec: dledger §7.4).
        """
        marks = sorted(self._peer_water_marks.values(), reverse=True)
        index = marks[len(marks) // 2]
        return index if index >= 0 and term_of(index) == self._term else -1

    def complete(self, committed_index: int) -> None:
        """Tell all whose entries are committed, in order."""
        while self._pending and next(iter(self._pending)) <= committed_index:
            self._pop().tell(DLedgerResponseCode.SUCCESS)

    def time_out(self, *, now: float) -> None:
        """Tell those whose time is over; their entries stay, and may still be committed."""
        for index in [index for index, future in self._pending.items() if now >= future.times_out_at]:
            self._pending.pop(index).tell(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def end(self) -> None:
        """This member leads no more in this term: whether the rest is committed the next leader decides."""
        while self._pending:
            self._pop().tell(DLedgerResponseCode.TERM_CHANGED)

    def _pop(self) -> AppendFuture:
        return self._pending.pop(next(iter(self._pending)))
