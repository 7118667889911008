"""LeadershipTransfer: a leader hands over, and a member takes over. Knows no socket and no clock.

Source: spec: dledger §4.6, §4.7; dledger-all-0.3.1.2 DLedgerServer.java, DLedgerLeaderElector.java.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from rmqha.codec.dledger_wire import LeadershipTransferRequest
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore

_Code = DLedgerResponseCode
Answer = Callable[[int], None]
"""Called once with a code."""
Ask = Callable[[str, LeadershipTransferRequest, Answer], None]
"""Has a member take over; NETWORK_ERROR if it does not answer in time."""
_ELECTION_MAX_S: Final = 2.0
"""So long an election may take for which somebody waits 3 s."""
_LOOK_INTERVAL_S: Final = 1.0
_FAILED_INTERVAL_S: Final = 30.0
"""Pause after a preferred leader did not take over: during each attempt appends are refused."""
_SOON_AGAIN: Final = frozenset(
    {_Code.SUCCESS, _Code.FALL_BEHIND_TOO_MUCH, _Code.INCONSISTENT_LEADER, _Code.INCONSISTENT_TERM}
)
"""After these another look is worth it: who has not heard of this leader yet says at once that it follows another."""


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """DLedger's; times in seconds (spec: dledger §8)."""

    max_leadership_transfer_wait_index: int
    leadership_transfer_wait_timeout_s: float
    preferred_leader_ids: tuple[str, ...]


@dataclass(slots=True)
class _Taking:
    """What this member is to take over; ``answer`` is told how that ends."""

    request: LeadershipTransferRequest
    answer: Answer
    until: float
    is_ready: bool = False
    """It has what it needs."""
    is_asking: bool = False
    """It asks for votes."""


class LeadershipTransfer:
    """Of one member. Every request is answered, and none keeps a leader from taking appends for long."""

    def __init__(
        self,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        peers: frozenset[str],
        *,
        options: TransferOptions,
        ask: Ask,
        elect: Callable[[Callable[[], None]], None],
        answering: Callable[[], frozenset[str]],
        may_take_over: Callable[[], bool],
    ) -> None:
        """Nothing is under way.

        Args:
            store: this member's.
            pusher: knows who has what.
            peers: the ids of all members.
            options: what the operator decided.
            ask: asks another member to take over.
            elect: has this member ask for votes, and calls back when it has begun to.
            answering: those who can be asked, and answer.
            may_take_over: whether this member could take appends.
        """
        self._store: Final = store
        self._state: Final = store.member_state
        self._pusher: Final = pusher
        self._peers: Final = peers
        self._options: Final = options
        self._ask = ask
        self._elect = elect
        self._answering = answering
        self._may_take_over = may_take_over
        self._taking: _Taking | None = None
        self._looks_at = 0.0
        self._has_failed = False
        """The preferred leader that was asked last has not taken over."""
        self._is_leaving = False

    def handle(self, request: LeadershipTransferRequest, answer: Answer, *, now: float) -> None:
        """Hand over, or take over, as the request says."""
        if request.transfer_id == self._state.self_id:
            self._hand_over(request, answer)
        elif request.transferee_id == self._state.self_id:
            self._take_over(request, answer, now=now)
        else:
            answer(_Code.UNEXPECTED_ARGUMENT)

    def hand_over_to(self, peer: str, answer: Answer) -> None:
        """Have ``peer`` lead in place of this member."""
        self._hand_over(LeadershipTransferRequest(self._state.curr_term, self._state.self_id, peer), answer)

    def leave(self, answer: Answer) -> None:
        """Have one of those who answer lead in place of this member, which takes over from nobody any more."""
        self._is_leaving = True
        if self._pusher.checker is None:
            answer(_Code.NOT_LEADER)
        else:
            self._hand_over_to_one_of(sorted(self._answering() & self._peers, key=self.lag), answer)

    def _hand_over_to_one_of(self, peers: list[str], answer: Answer) -> None:
        if not peers:
            answer(_Code.TAKE_LEADERSHIP_FAILED)
            return

        def on_answer(code: int) -> None:
            if code == _Code.SUCCESS:
                answer(code)
            else:
                self._hand_over_to_one_of(peers[1:], answer)

        self.hand_over_to(peers[0], on_answer)

    def _hand_over(self, request: LeadershipTransferRequest, answer: Answer) -> None:
        refusal = self._why_not_hand_over(request)
        transferee = request.transferee_id or ""
        if refusal is not None:
            answer(refusal)
        elif transferee == self._state.self_id:
            answer(_Code.SUCCESS)
        else:
            self._state.transferee, term = transferee, self._state.curr_term

            def on_answer(code: int) -> None:
                if self._state.transferee == transferee and self._state.curr_term == term:
                    self._state.transferee = None
                answer(code)

            end = self._store.ledger_end_index
            self._ask(transferee, LeadershipTransferRequest(term, self._state.self_id, transferee, end), on_answer)

    def _why_not_hand_over(self, request: LeadershipTransferRequest) -> DLedgerResponseCode | None:
        if request.transferee_id not in self._peers:
            return _Code.UNKNOWN_MEMBER
        if request.term != self._state.curr_term:
            return _Code.INCONSISTENT_TERM
        if self._pusher.checker is None:
            return _Code.NOT_LEADER
        if request.transferee_id == self._state.self_id:
            return None
        if self.lag(request.transferee_id) >= self._options.max_leadership_transfer_wait_index:
            return _Code.FALL_BEHIND_TOO_MUCH
        return None if self._state.transferee is None else _Code.LEADER_TRANSFERRING

    def lag(self, peer: str) -> int:
        """How many entries ``peer`` lacks, as this leader knows."""
        assert self._pusher.checker is not None, "only a leader knows"
        return self._store.ledger_end_index - self._pusher.checker.water_mark(peer)

    def _take_over(self, request: LeadershipTransferRequest, answer: Answer, *, now: float) -> None:
        if request.transfer_id != self._state.leader_id:
            answer(_Code.INCONSISTENT_LEADER)
        elif self._taking is not None or self._is_leaving or not self._may_take_over():
            answer(_Code.TAKE_LEADERSHIP_FAILED)
        else:
            self._taking = _Taking(request, answer, now + self._options.leadership_transfer_wait_timeout_s)
            self.step(now=now)

    @property
    def due_at(self) -> float:
        """When :meth:`step` has something to do, if nothing else happens before."""
        due_at = inf if self._taking is None else self._taking.until
        return min(due_at, self._looks_at) if self._may_prefer_another else due_at

    @property
    def _may_prefer_another(self) -> bool:
        preferred = self._options.preferred_leader_ids
        leads = self._pusher.checker is not None and self._state.transferee is None
        return bool(preferred) and leads and self._state.self_id not in preferred

    def step(self, *, now: float) -> None:
        """Look how far it is: the log, the role or the time is another."""
        if self._taking is not None:
            self._look_at_taking(self._taking, now=now)
        if self._has_failed:
            self._has_failed, self._looks_at = False, now + _FAILED_INTERVAL_S
        if self._may_prefer_another and now >= self._looks_at:
            self._looks_at = now + _LOOK_INTERVAL_S
            self._prefer_another()

    def _look_at_taking(self, taking: _Taking, *, now: float) -> None:
        state, term = self._state, taking.request.term
        if taking.is_asking:
            code = self._outcome(term + 1)
        elif state.curr_term != term:
            code = _Code.INCONSISTENT_TERM
        else:
            code = None
            if not taking.is_ready and self._store.ledger_end_index >= taking.request.take_leadership_ledger_index:
                taking.is_ready = True

                def on_begun() -> None:
                    taking.is_asking, taking.until = True, now + _ELECTION_MAX_S

                self._elect(on_begun)
        if code is None and now >= taking.until:
            code = _Code.TAKE_LEADERSHIP_FAILED
        if code is not None:
            self._taking = None
            taking.answer(code)

    def _outcome(self, term: int) -> DLedgerResponseCode | None:
        """Of asking for votes in ``term``; None while it is open."""
        state = self._state
        if state.curr_term > term:
            return _Code.EXPIRED_TERM
        if state.is_follower:
            return _Code.TAKE_LEADERSHIP_FAILED
        return _Code.SUCCESS if self._pusher.checker is not None and state.curr_term == term else None

    def _prefer_another(self) -> None:
        there = [peer for peer in self._options.preferred_leader_ids if peer in self._peers & self._answering()]
        if there:
            self.hand_over_to(min(there, key=self.lag), self._on_preferred)

    def _on_preferred(self, code: int) -> None:
        self._has_failed = code not in _SOON_AGAIN
