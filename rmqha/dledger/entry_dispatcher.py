"""EntryDispatcher: brings one follower's log to the leader's, and keeps it there. Knows no socket and no clock.

Source: spec: dledger §3.1 to §3.4; dledger-all-0.3.1.2 DLedgerEntryPusher.java EntryDispatcher.
"""

from dataclasses import dataclass
from typing import Final

from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker

_PENDING_MAX: Final = 1000
_COMPARE_WAIT_S: Final = 3.0
_AFTER_AN_ERROR_S: Final = 0.5
_COMMIT_INTERVAL_S: Final = 1.0
_REPEATED_MAX: Final = 2
_Code = DLedgerResponseCode


@dataclass(slots=True)
class _Asked:
    """The COMPARE or TRUNCATE that is under way."""

    request: PushEntryRequest
    until: float


class EntryDispatcher:
    """Of one follower, for one leadership.

    Invariant: what is not known to be equal is compared first: nothing is pushed behind an entry that may differ.

    A push without an answer ends in a comparison, which finds out at once what the follower has; DLedger sends that one
    entry again, and so needs a second for each that was lost.
    """

    def __init__(
        self,
        peer: str,
        store: DLedgerMmapFileStore,
        checker: QuorumAckChecker,
        *,
        max_push_time_out_s: float = 1.0,
    ) -> None:
        self.peer: Final = peer
        self._store: Final = store
        self._checker: Final = checker
        self._push_time_out_s: Final = max_push_time_out_s
        self._term: Final = store.member_state.curr_term
        self.type = PushType.COMPARE
        self._compare_index = -1
        self._truncate_index = -1
        self._equal_index = -1
        """The highest that is known to be equal, while more may be."""
        self._different_index = -1
        """The lowest that is known to differ."""
        self._stride = 1
        self._write_index = -1
        self._pending: Final[dict[int, float]] = {}
        """Index to the time when it was sent, in ascending order."""
        self._repeated = 0
        self._asked: _Asked | None = None
        self._not_before = 0.0
        self._pushed_at = 0.0

    def poll(self, *, now: float) -> list[PushEntryRequest]:
        """What to send now; hand each answer to :meth:`on_answer`."""
        try:
            if self.type is PushType.APPEND:
                return self._appends(now=now)
            return self._question(now=now)
        except DLedgerException:  # an entry that was deleted meanwhile
            self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S)
            return []

    def _request(self, kind: PushType, *indexes: int) -> PushEntryRequest:
        state = self._store.member_state
        entries = tuple(self._store.get(index) for index in indexes)
        return PushEntryRequest(kind, self._term, state.self_id, self._store.committed_index, entries)

    def _compare_again(self, *, now: float, wait_s: float = 0.0) -> None:
        self.type = PushType.COMPARE
        self._compare_index = self._truncate_index = self._equal_index = self._different_index = -1
        self._stride = 1
        self._pending.clear()
        self._asked = None
        self._repeated = 0
        self._not_before = now + wait_s

    def _question(self, *, now: float) -> list[PushEntryRequest]:
        store = self._store
        if self._asked is not None and now >= self._asked.until:
            self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S)
        if self._asked is not None or now < self._not_before or store.ledger_end_index == -1:
            return []
        if self.type is PushType.TRUNCATE:
            request = self._request(PushType.TRUNCATE, self._truncate_index)
        else:
            if not store.ledger_begin_index <= self._compare_index <= store.ledger_end_index:
                self._compare_index = store.ledger_end_index
            request = self._request(PushType.COMPARE, self._compare_index)
        self._asked = _Asked(request, now + _COMPARE_WAIT_S)
        return [request]

    def _appends(self, *, now: float) -> list[PushEntryRequest]:
        if self._pending and now - next(iter(self._pending.values())) > self._push_time_out_s:
            self._compare_again(now=now)
            return self._question(now=now)
        out = []
        while self._write_index <= self._store.ledger_end_index and len(self._pending) < _PENDING_MAX:
            out.append(self._append(self._write_index, now=now))
            self._write_index += 1
        if not out and now - self._pushed_at > _COMMIT_INTERVAL_S:
            out.append(self._request(PushType.COMMIT))
        if out:
            self._pushed_at = now
        return out

    def _append(self, index: int, *, now: float) -> PushEntryRequest:
        self._pending[index] = now
        return self._request(PushType.APPEND, index)

    def on_answer(self, request: PushEntryRequest, response: PushEntryResponse | None, *, now: float) -> None:
        """A follower's answer, None if none came; what belongs to an older question is passed over."""
        if response is not None and response.term != self._term:
            return
        if request.type is PushType.COMMIT:
            self._on_commit(response, now=now)
        elif request.type is PushType.APPEND:
            if self.type is PushType.APPEND and response is not None:
                self._on_append(request, response, now=now)
        elif self._asked is not None and self._asked.request is request:
            self._asked = None
            if response is None or response.code not in {_Code.SUCCESS, _Code.INCONSISTENT_STATE}:
                self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S)
            elif request.type is PushType.COMPARE:
                self._on_compare(response)
            elif response.code == _Code.SUCCESS:
                self._append_from(request.last_entry_index)
            else:
                self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S)

    def _on_compare(self, response: PushEntryResponse) -> None:
        """The first row that fits (spec: dledger §3.2); where DLedger goes back one by one, by twos, fours, and halves.

        The last entry that is equal has to be found exactly: a follower does not cut below what is committed.
        """
        begin, end, index = self._store.ledger_begin_index, self._store.ledger_end_index, self._compare_index
        self._checker.lower_peer_water_mark(self.peer, response.end_index)
        if response.code == _Code.SUCCESS:
            if response.end_index == index:
                self._append_from(index)
                return
            self._equal_index = index
        elif response.end_index < begin or response.begin_index > end or index < response.begin_index:
            self._different_index = begin
        elif index > response.end_index:
            self._compare_index = response.end_index
            return
        else:
            self._different_index = index
        self._go_between(begin)

    def _go_between(self, begin: int) -> None:
        """Compare between what is equal and what is different; where they meet, cut."""
        equal, different = self._equal_index, self._different_index
        if equal == -1 and different > begin:
            self._compare_index = max(begin, different - self._stride)
            self._stride *= 2
        elif equal != -1 and different - equal > 1:
            self._compare_index = (equal + different) // 2
        else:
            self._truncate_index = begin if equal == -1 else equal
            self.type = PushType.TRUNCATE

    def _append_from(self, index: int) -> None:
        self.type = PushType.APPEND
        self._compare_index = self._truncate_index = -1
        self._checker.update_peer_water_mark(self.peer, index)
        self._write_index = index + 1
        self._pending.clear()

    def _on_append(self, request: PushEntryRequest, response: PushEntryResponse, *, now: float) -> None:
        if response.code == _Code.SUCCESS:
            self._repeated = 0
            if response.index == request.first_entry_index:
                last = min(response.index + max(1, response.count) - 1, request.last_entry_index)
                self._checker.update_peer_water_mark(self.peer, last)
                while self._pending and next(iter(self._pending)) <= last:
                    del self._pending[next(iter(self._pending))]
        elif response.code == _Code.INCONSISTENT_STATE:
            self._compare_again(now=now)
        elif response.code == _Code.REPEATED_PUSH:
            self._repeated += 1
            if self._repeated > _REPEATED_MAX:
                self._compare_again(now=now)

    def _on_commit(self, response: PushEntryResponse | None, *, now: float) -> None:
        """A follower that has less than it had lost its data, and shows it here first (spec: dledger §7.3 row 9)."""
        if response is None or response.code != _Code.SUCCESS or self.type is not PushType.APPEND:
            return
        if response.end_index < self._checker.water_mark(self.peer):
            self._checker.lower_peer_water_mark(self.peer, response.end_index)
            self._compare_again(now=now)
