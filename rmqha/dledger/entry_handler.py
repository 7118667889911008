"""EntryHandler: a follower's side of replication. Knows no socket and no clock.

Source: spec: dledger §3.6; dledger-all-0.3.1.2 DLedgerEntryPusher.java EntryHandler; and §7.2 W1, W2 and W7.
"""

from collections import deque
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Generic, TypeVar

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.errors import DivergedLogError

_QUESTIONS_MAX: Final = 1024
_QUESTIONS_AT_ONCE: Final = 16
"""More wait for the next step, since an entry is read for each; a leader asks one at a time."""
_APPENDS_MAX: Final = 2048
"""Twice what a leader has under way."""
_ENTRIES_AT_ONCE: Final = 2048
"""Entries that are stored, or compared, before everybody else has a turn: some 15 ms' work. A push may have 32,768."""
_WAITS_FOR_A_GAP_S: Final = 1.0
_Code = DLedgerResponseCode
_MISFITS: Final = {DLedgerResponseCode.DISK_ERROR, DLedgerResponseCode.UNEXPECTED_ARGUMENT}
Token = TypeVar("Token")


@dataclass(frozen=True, slots=True)
class _Held(Generic[Token]):
    request: PushEntryRequest
    token: Token
    arrived_at: float
    done: int = 0
    """So many of its entries are stored, or were found to be."""

    def next_entries(self, count_max: int) -> tuple[DLedgerEntry, ...]:
        return self.request.entries[self.done : self.done + count_max]


class EntryHandler(Generic[Token]):
    """Takes a leader's pushes in whatever order they come, and answers each once; a token says which.

    Invariant: a success says that the entries are stored as this member promises: with ``acks_flushed``, durably; and
    that the file has the vote for their leader, or this member could vote for another in the same term.
    """

    def __init__(self, store: DLedgerMmapFileStore, *, acks_flushed: bool) -> None:
        self._store: Final = store
        self._acks_flushed: Final = acks_flushed
        self._write_requests: Final[dict[int, _Held[Token]]] = {}
        self._begun: _Held[Token] | None = None
        """An append of which a part is stored: nothing comes in between."""
        self._left = _ENTRIES_AT_ONCE
        """So many entries more may be stored, or compared, in this step."""
        self._questions: Final[deque[_Held[Token]]] = deque()
        self._unflushed: Final[deque[tuple[int, _Held[Token]]]] = deque()
        """Successes that wait until the entry of that index is durable."""
        self._leadership: tuple[int, str | None] = (-1, None)
        self._equal: tuple[tuple[int, str], int] = (-1, ""), -1
        """A leadership, and the last entry that is known to be as its leader has it."""
        self.leader_committed_index = -1
        """What the leader said last; this log may not go so far."""
        self.diverged: DivergedLogError | None = None
        """A leader wanted to have cut away what is committed here, and has not been found to have it since; nothing was
        changed. One of DLedger's that led before asks for that, and compares at its own end next. Who is elected all
        the same knows better once a majority has what it has (:meth:`DLedgerEntryPusher.advance`)."""
        self._is_outvoted = False
        self._refused: tuple[int, str] = (-1, "")
        """The leadership that last wanted to have cut what is committed here."""
        self._agreed: tuple[tuple[int, str], int, bool] = (-1, ""), -1, False
        """A leadership, what it told first of what is committed, and whether a quorum has agreed with it since."""
        self.misfit = ""
        """Why what the leader sent last cannot be stored here, such as for another size of files; else empty."""

    def handle_push(self, request: PushEntryRequest, token: Token, *, now: float) -> PushEntryResponse | None:
        """Take a push; None: :meth:`step` will answer it."""
        refusal = self._refusal(request)
        if refusal is not None:
            return self._response(request, refusal)
        held = _Held(request, token, now)
        if request.type is PushType.APPEND:
            self._write_requests[request.first_entry_index] = held
        else:
            self._questions.append(held)
        return None

    def _refusal(self, request: PushEntryRequest) -> DLedgerResponseCode | None:
        """Why a push is answered at once: what is held is bounded."""
        if request.type is PushType.APPEND:
            if not self._is_of_the_leader(request):
                return _Code.INCONSISTENT_STATE
            if request.first_entry_index in self._write_requests:
                return _Code.REPEATED_PUSH
            if len(self._write_requests) >= _APPENDS_MAX:
                return _Code.INCONSISTENT_STATE
        elif len(self._questions) >= _QUESTIONS_MAX:
            return _Code.PUSH_REQUEST_IS_FULL
        count = len(request.entries)
        is_complete = count > 0 if request.type is PushType.APPEND else count == 1 or request.type is PushType.COMMIT
        return None if is_complete else _Code.UNEXPECTED_ARGUMENT

    def step(self, *, now: float) -> list[tuple[Token, PushEntryResponse]]:
        """Do what can be done now: call it after each push and each flush, and every so often; the answers."""
        state = self._store.member_state
        answers: list[tuple[Token, PushEntryResponse]] = []
        leadership = (state.curr_term, state.leader_id if state.is_follower else None)
        if leadership != self._leadership:
            self._leadership, self.misfit = leadership, ""
            answers += self._drop()
        for _ in range(min(len(self._questions), _QUESTIONS_AT_ONCE)):
            self._answer_question(self._questions.popleft(), answers)
        self._left = _ENTRIES_AT_ONCE
        while self._left > 0 and (held := self._next_append()) is not None:
            self._append(held, answers)
        if self._write_requests:
            self._check_abnormal(answers, now=now)
        if self._unflushed:
            self._release(answers)
        return answers

    @property
    def due_at(self) -> float:
        """When :meth:`step` has something to do, if nothing is pushed or flushed before; ``inf`` if nothing waits."""
        if self._questions or self._left <= 0:
            return -inf
        return self._gap_ends_at

    @property
    def _gap_ends_at(self) -> float:
        if not self._write_requests:
            return inf
        return min(held.arrived_at for held in self._write_requests.values()) + _WAITS_FOR_A_GAP_S

    @property
    def is_outvoted(self) -> bool:
        """This log differs from one that a quorum has gone on with: this member is not to lead.

        With a longer log, such as another group's, it would; nobody could take anything from it then. Who asks once to
        cut what is committed may compare at its own end next; who asks again has found another log here.
        """
        return self.diverged is not None and self._is_outvoted

    @property
    def refused_term(self) -> int:
        """That of the leader that last wanted to have cut what is committed here, and has not been found to have it.

        -1: there is no such leader.
        """
        return -1 if self.diverged is None else self._refused[0]

    @property
    def has_leaders_log(self) -> bool:
        """Whether all that is here is known to be as the present leader has it."""
        state, (leadership, index) = self._store.member_state, self._equal
        is_present = state.is_follower and leadership == (state.curr_term, state.leader_id)
        return is_present and index >= self._store.ledger_end_index

    def note_outvoted(self, error: DivergedLogError) -> None:
        """That was found out before this start."""
        self.diverged, self._is_outvoted = error, True

    def _note_agreement(self, request: PushEntryRequest) -> None:
        """A quorum has what its leader has: something was committed under it, not only before it came."""
        leadership, entries = (request.term, request.leader_id), request.entries
        known, first, has_agreed = self._agreed
        if leadership != known:
            first, has_agreed = request.commit_index, False
        is_of_its_term = bool(entries) and entries[0].term == request.term
        has_agreed = has_agreed or first < request.commit_index
        has_agreed = has_agreed or (is_of_its_term and entries[0].index <= request.commit_index)
        self._agreed = leadership, first, has_agreed

    def _drop(self) -> list[tuple[Token, PushEntryResponse]]:
        """What was pushed before is nobody's business any more (spec: dledger §3.6, §7.2 W7)."""
        held = [*self._write_requests.values(), *(held for _index, held in self._unflushed)]
        held += [] if self._begun is None else [self._begun]
        self._begun = None
        self._write_requests.clear()
        self._unflushed.clear()
        return [(one.token, self._response(one.request, _Code.NOT_FOLLOWER)) for one in held]

    def _response(self, request: PushEntryRequest, code: DLedgerResponseCode) -> PushEntryResponse:
        begin, end = self._store.ledger_begin_index, self._store.ledger_end_index
        return PushEntryResponse(code, request.term, request.first_entry_index, len(request.entries), begin, end)

    def _is_of_the_leader(self, request: PushEntryRequest) -> bool:
        state = self._store.member_state
        return state.is_follower and (request.term, request.leader_id) == (state.curr_term, state.leader_id)

    def _why_not_of_the_leader(self, request: PushEntryRequest) -> DLedgerResponseCode:
        if not self._store.member_state.is_follower:
            return _Code.NOT_FOLLOWER
        is_of_its_term = request.term == self._store.member_state.curr_term
        return _Code.INCONSISTENT_LEADER if is_of_its_term else _Code.INCONSISTENT_TERM

    def _answer_question(self, held: _Held[Token], answers: list[tuple[Token, PushEntryResponse]]) -> None:
        request = held.request
        if not self._is_of_the_leader(request):
            answers.append((held.token, self._response(request, self._why_not_of_the_leader(request))))
            return
        self._note_agreement(request)
        if request.type is PushType.COMMIT:
            self.misfit = ""  # nothing is left to be stored
            self._commit(request)
            answers.append((held.token, self._response(request, _Code.SUCCESS)))
            return
        answers += self._drop()  # who asks begins anew, and pushes them again
        is_good = self._compare(request) if request.type is PushType.COMPARE else self._truncate(request)
        if is_good:
            self._unflushed.append((request.last_entry_index, held))
        else:
            answers.append((held.token, self._response(request, _Code.INCONSISTENT_STATE)))

    def _has(self, entries: tuple[DLedgerEntry, ...]) -> bool:
        try:
            return all(self._store.get(entry.index) == entry for entry in entries)
        except DLedgerException:
            return False

    def _equal_index(self, request: PushEntryRequest) -> int:
        leadership, index = self._equal
        return index if leadership == (request.term, request.leader_id) else -1

    def _note_equal(self, request: PushEntryRequest, index: int) -> None:
        self._equal = (request.term, request.leader_id), index

    def _compare(self, request: PushEntryRequest) -> bool:
        index, is_good = request.first_entry_index, self._has(request.entries)
        if is_good and index >= self._store.committed_index:
            self.diverged = None
        known = self._equal_index(request)
        self._note_equal(request, max(known, index) if is_good else min(known, index - 1))
        return is_good

    def _truncate(self, request: PushEntryRequest) -> bool:
        """Cut the log to the request's entry, but nothing that is known to be as the leader has it.

        What that leader counts on would go when a request that it gave up long ago arrives after all, by a connection
        that has been replaced; the entry may have been deleted since. DLedger cuts.
        """
        entry, equal = request.entries[0], self._equal_index(request)
        try:
            if equal > entry.index and (entry.index < self._store.ledger_begin_index or self._has(request.entries)):
                entry = self._store.get(equal)
            self._store.truncate(entry, request.term, request.leader_id)
        except DivergedLogError as error:
            leadership = request.term, request.leader_id
            is_again = self.diverged is not None and self._refused == leadership
            self._refused = leadership
            self._is_outvoted = (is_again and self._agreed[2]) or self.is_outvoted
            self.diverged = self.diverged or error
            return False
        except DLedgerException as error:
            self._note_misfit(error)
            return False
        self._note_equal(request, entry.index)
        self._commit(request)
        return True

    def _note_misfit(self, error: DLedgerException) -> None:
        if error.code in _MISFITS:
            self.misfit = str(error)

    def _commit(self, request: PushEntryRequest) -> None:
        self.leader_committed_index = request.commit_index
        self._store.update_committed_index(request.term, request.commit_index)

    def _next_append(self) -> _Held[Token] | None:
        begun, self._begun = self._begun, None
        return begun or self._write_requests.pop(self._store.ledger_end_index + 1, None)

    def _append(self, held: _Held[Token], answers: list[tuple[Token, PushEntryResponse]]) -> None:
        request, entries = held.request, held.next_entries(self._left)
        self._left -= len(entries)
        try:
            for entry in entries:
                self._store.append_as_follower(entry, request.term, request.leader_id)
        except DLedgerException as error:
            self._note_misfit(error)
            answers.append((held.token, self._response(request, _Code.INCONSISTENT_STATE)))
            return
        self.misfit = ""
        self._note_equal(request, entries[-1].index)
        if entries[-1] is not request.entries[-1]:
            self._begun = replace(held, done=held.done + len(entries))
            return
        self._commit(request)
        self._unflushed.append((request.last_entry_index, held))

    def _check_abnormal(self, answers: list[tuple[Token, PushEntryResponse]], *, now: float) -> None:
        """What is behind the end was stored before, or differs; what is beyond a gap waits for a second at most.

        DLedger looks once a second, and answers one request at a time.
        """
        end = self._store.ledger_end_index
        for index in [index for index, held in self._write_requests.items() if held.request.last_entry_index <= end]:
            if self._left <= 0:
                return
            self._compare_stored(self._write_requests.pop(index), answers)
        if self._gap_ends_at <= now:
            held = self._write_requests.pop(min(self._write_requests))
            answers.append((held.token, self._response(held.request, _Code.INCONSISTENT_STATE)))

    def _compare_stored(self, held: _Held[Token], answers: list[tuple[Token, PushEntryResponse]]) -> None:
        request, entries = held.request, held.next_entries(self._left)
        self._left -= len(entries)
        if not (self._is_of_the_leader(request) and self._has(entries)):
            answers.append((held.token, self._response(request, _Code.INCONSISTENT_STATE)))
        elif entries[-1] is request.entries[-1]:
            self._unflushed.append((request.last_entry_index, held))
        else:
            self._write_requests[request.first_entry_index] = replace(held, done=held.done + len(entries))

    def _release(self, answers: list[tuple[Token, PushEntryResponse]]) -> None:
        kept = deque[tuple[int, _Held[Token]]]()
        for index, held in self._unflushed:
            is_flushed = not self._acks_flushed or index <= self._store.flushed_index
            is_stored = is_flushed and self._store.member_state.is_saved
            if not is_stored and self._store.write_error is None:
                kept.append((index, held))
                continue
            code = _Code.SUCCESS if is_stored else _Code.INCONSISTENT_STATE
            answers.append((held.token, self._response(held.request, code)))
        self._unflushed.clear()
        self._unflushed.extend(kept)
