"""EntryDispatcher: brings one follower's log to the leader's, and keeps it there. Knows no socket and no clock.

Source: spec: dledger §3.1 to §3.4; dledger-all-0.3.1.2 DLedgerEntryPusher.java EntryDispatcher.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from rmqha.errors import StoreReadError

_PENDING_MAX: Final = 1000
_PENDING_BYTES_MAX: Final = 32 << 20
_COMPARE_WAIT_S: Final = 3.0
_AFTER_AN_ERROR_S: Final = 0.5
_NOT_FOLLOWER_YET_S: Final = 0.05
"""A member that this leader's first heartbeat has yet to reach, or that is saving the term, soon follows."""
_AT_ONCE_MAX: Final = 128
_AT_ONCE_BYTES_MAX: Final = 1 << 20
"""Entries, and their bytes, that are read and pushed before everybody else has a turn."""
_COMMIT_INTERVAL_S: Final = 1.0
_NEWS_AFTER_S: Final = 0.05
"""A follower that gets no entries hears so soon how far the log is committed; from DLedger after a second."""
_FAR_BEHIND: Final = 1000
"""Entries; only who is farther behind is throttled."""
_QUOTA_WINDOW_S: Final = 1.0
_REPEATED_MAX: Final = 2
_Code = DLedgerResponseCode


@dataclass(slots=True)
class _Asked:
    """The COMPARE or TRUNCATE that is under way."""

    request: PushEntryRequest
    until: float


class _Pushed(NamedTuple):
    """An entry without an answer."""

    entry_index: int
    size: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class PushOptions:
    """DLedger's (spec: dledger §8)."""

    max_push_time_out_s: float
    peer_push_throttle_point: int
    """Bytes; who is farther behind gets no more than the quota, so that the others are not held up."""
    peer_push_quota: int
    """Bytes a second."""
    is_enable_batch_push: bool
    max_batch_push_size: int
    """Bytes of entries, at which a request with several is sent."""


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
        options: PushOptions,
    ) -> None:
        self.peer: Final = peer
        self._store: Final = store
        self._checker: Final = checker
        self._options: Final = options
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
        self._pending: Final[deque[_Pushed]] = deque()
        self._pending_bytes = 0
        self._window_from = self._window_bytes = 0.0
        self._told_commit_index = -1
        self._has_more = False
        """There may be more to push at once."""
        self._repeated = 0
        self._refused_index = -1
        """The last entry that the follower refused, though it has the one before."""
        self._is_stuck = False
        """It has done so twice: its disk has failed or is full; or, with DLedger, bytes lie behind its end that only a
        TRUNCATE takes away (spec: dledger §7.2 W5)."""
        self._asked: _Asked | None = None
        self._not_before = 0.0
        self._pushed_at = 0.0
        self.is_refused = False
        """The follower did not cut its log: it cannot, or what would go is committed there. It takes nothing."""
        self.unreadable = ""
        """Why the follower does not get what it lacks, if this leader cannot read that; else empty."""
        self._unreadable_errno = 0
        """What the operating system said; 0: the bytes are damaged."""

    def poll(self, *, now: float) -> list[PushEntryRequest]:
        """What to send now; hand each answer to :meth:`on_answer`."""
        try:
            if self.type is PushType.APPEND:
                return self._appends(now=now)
            return self._question(now=now)
        except DLedgerException as error:  # or an entry was deleted meanwhile
            self._note_unreadable(error)
            self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S)
            return []

    def _note_unreadable(self, error: DLedgerException) -> None:
        """Of many entries that cannot be read for one reason, the first is named."""
        errno = error.__cause__.errno if isinstance(error.__cause__, StoreReadError) else 0
        if error.code is not _Code.DISK_ERROR:
            self.unreadable = ""
        elif not self.unreadable or errno != self._unreadable_errno:
            self.unreadable, self._unreadable_errno = str(error), errno

    @property
    def due_at(self) -> float:
        """When :meth:`poll` has something to do, if nothing is appended and no answer comes before."""
        if self.type is not PushType.APPEND:
            is_idle = self._asked is None and self._store.ledger_end_index == -1
            return inf if is_idle else self._not_before if self._asked is None else self._asked.until
        if self._has_more:
            return -inf
        has_news = self._told_commit_index < self._store.committed_index
        due_at = self._pushed_at + (_NEWS_AFTER_S if has_news else _COMMIT_INTERVAL_S)
        if self._is_throttled:  # news go with the next entry
            due_at = self._not_before
        if self._pending:
            due_at = min(due_at, self._pending[0].sent_at + self._options.max_push_time_out_s)
        return due_at

    @property
    def _is_throttled(self) -> bool:
        is_used_up = self._window_bytes >= self._options.peer_push_quota
        return is_used_up and self._write_index <= self._store.ledger_end_index and not self._is_pending_full

    @property
    def _is_pending_full(self) -> bool:
        return len(self._pending) >= _PENDING_MAX or self._pending_bytes >= _PENDING_BYTES_MAX

    def on_disconnected(self, *, now: float) -> None:
        """What is under way has no answer any more."""
        self._compare_again(now=now)

    def _request(self, kind: PushType, *indexes: int) -> PushEntryRequest:
        return self._request_of(kind, tuple(self._store.get(index) for index in indexes))

    def _request_of(self, kind: PushType, entries: tuple[DLedgerEntry, ...]) -> PushEntryRequest:
        self._told_commit_index = self._store.committed_index
        return PushEntryRequest(kind, self._term, self._store.member_state.self_id, self._told_commit_index, entries)

    def _compare_again(self, *, now: float, wait_s: float = 0.0) -> None:
        self.type = PushType.COMPARE
        self._compare_index = self._truncate_index = self._equal_index = self._different_index = -1
        self._stride = 1
        self._forget_pending()
        self._asked = None
        self._repeated = 0
        self._not_before = now + wait_s

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0

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
        if self._pending and now >= self._pending[0].sent_at + self._options.max_push_time_out_s:
            self._compare_again(now=now)
            return self._question(now=now)
        out, batch, batch_size, taken, taken_bytes = [], list[DLedgerEntry](), 0, 0, 0
        size_max = self._options.max_batch_push_size if self._options.is_enable_batch_push else 0
        while (entry := self._next_entry(now=now)) is not None:
            batch.append(entry)
            batch_size += entry.size
            taken += 1
            taken_bytes += entry.size
            if batch_size >= size_max:
                out.append(self._request_of(PushType.APPEND, tuple(batch)))
                batch, batch_size = [], 0
            if taken >= _AT_ONCE_MAX or taken_bytes >= _AT_ONCE_BYTES_MAX:
                break
        self._has_more = entry is not None
        if batch:
            out.append(self._request_of(PushType.APPEND, tuple(batch)))
        if not out and now >= self.due_at and not self._is_throttled:
            out.append(self._request(PushType.COMMIT))
        if out:
            self._pushed_at = now
        return out

    def _next_entry(self, *, now: float) -> DLedgerEntry | None:
        """The next one to push; None: there is none, or it is to wait."""
        store = self._store
        if self._write_index > store.ledger_end_index or self._is_pending_full:
            return None
        entry = store.recent.get(self._write_index) or store.get(self._write_index)
        if self._waits_for_quota(entry, now=now):
            return None
        self._write_index += 1
        self._pending.append(_Pushed(entry.index, entry.size, now))
        self._pending_bytes += entry.size
        return entry

    def _waits_for_quota(self, entry: DLedgerEntry, *, now: float) -> bool:
        """Flow control (spec: dledger §3.5), for single entries and batches alike."""
        behind_bytes = self._store.data_file_list.max_wrote_position - entry.pos
        is_far = self._store.ledger_end_index - entry.index > _FAR_BEHIND
        if not is_far or behind_bytes < self._options.peer_push_throttle_point:
            return False
        if now >= self._window_from + _QUOTA_WINDOW_S:
            self._window_from, self._window_bytes = now, 0
        if self._window_bytes >= self._options.peer_push_quota:
            self._not_before = self._window_from + _QUOTA_WINDOW_S
            return True
        self._window_bytes += entry.size
        return False

    def on_answer(self, request: PushEntryRequest, response: PushEntryResponse, *, now: float) -> None:
        """A follower's answer; what belongs to an older question is passed over."""
        if response.term != self._term:
            return
        if request.type is PushType.COMMIT:
            self._on_commit(response, now=now)
        elif request.type is PushType.APPEND:
            if self.type is PushType.APPEND:
                self._on_append(request, response, now=now)
        elif self._asked is not None and self._asked.request is request:
            self._asked = None
            if response.code not in {_Code.SUCCESS, _Code.INCONSISTENT_STATE}:
                soon = response.code == _Code.NOT_FOLLOWER
                self._compare_again(now=now, wait_s=_NOT_FOLLOWER_YET_S if soon else _AFTER_AN_ERROR_S)
            elif request.type is PushType.COMPARE:
                self._on_compare(response)
            elif response.code == _Code.SUCCESS:
                self._append_from(request.last_entry_index)
            else:
                self.is_refused = True
                self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S)

    def _on_compare(self, response: PushEntryResponse) -> None:
        """The first row that fits (spec: dledger §3.2); where DLedger goes back one by one, by twos, fours, and halves.

        The last entry that is equal has to be found exactly: a follower does not cut below what is committed. What it
        has deleted was that, so it is not cut to before its first entry; DLedger cuts it to the leader's first.
        """
        begin, end, index = self._store.ledger_begin_index, self._store.ledger_end_index, self._compare_index
        if begin < response.begin_index <= end:
            begin = response.begin_index
        self._checker.lower_peer_water_mark(self.peer, response.end_index)
        if response.code == _Code.SUCCESS:
            if response.end_index == index and not self._is_stuck:
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
        self.type, self._is_stuck, self.is_refused = PushType.APPEND, False, False
        self._compare_index = self._truncate_index = -1
        self._checker.update_peer_water_mark(self.peer, index)
        self._write_index = index + 1
        self._forget_pending()

    def _on_append(self, request: PushEntryRequest, response: PushEntryResponse, *, now: float) -> None:
        if response.code == _Code.SUCCESS:
            self._repeated, self.unreadable = 0, ""
            if response.index == request.first_entry_index:
                last = min(response.index + max(1, response.count) - 1, request.last_entry_index)
                self._checker.update_peer_water_mark(self.peer, last)
                while self._pending and self._pending[0].entry_index <= last:
                    self._pending_bytes -= self._pending.popleft().size
        elif response.code == _Code.INCONSISTENT_STATE:
            self._is_stuck = self._refused_index == response.index
            self._refused_index = response.index
            self._compare_again(now=now, wait_s=_AFTER_AN_ERROR_S if self._is_stuck else 0.0)
        elif response.code == _Code.REPEATED_PUSH:
            self._repeated += 1
            if self._repeated > _REPEATED_MAX:
                self._compare_again(now=now)

    def _on_commit(self, response: PushEntryResponse, *, now: float) -> None:
        """A follower that has less than it had lost its data, and shows it here first (spec: dledger §7.3 row 9)."""
        if response.code != _Code.SUCCESS or self.type is not PushType.APPEND:
            return
        if response.end_index < self._checker.water_mark(self.peer):
            self._checker.lower_peer_water_mark(self.peer, response.end_index)
            self._compare_again(now=now)
