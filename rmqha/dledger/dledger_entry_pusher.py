"""DLedgerEntryPusher: replication of one member, as the leader and as a follower. Knows no socket and no clock.

Source: spec: dledger §2.2, §2.6, §3; dledger-all-0.3.1.2 DLedgerEntryPusher.java.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.entry_dispatcher import EntryDispatcher, PushOptions
from rmqha.dledger.entry_handler import EntryHandler
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse
from rmqha.dledger.quorum_ack_checker import AppendFuture, QuorumAckChecker, Tell

Token = TypeVar("Token")
_NEARLY: Final = 1000
"""Entries; who lacks more is behind."""
_Code = DLedgerResponseCode


@dataclass(frozen=True, slots=True)
class PusherOptions:
    """DLedger's; times in seconds (spec: dledger §8)."""

    push: PushOptions
    max_wait_ack_time_s: float
    max_pending_requests_num: int
    acks_flushed: bool
    """As in :class:`~rmqha.dledger.dledger_config.DLedgerConfig`."""


class DLedgerEntryPusher(Generic[Token]):
    """Invariant: :attr:`checker` is there while this member leads in a term that its file has, and only then.

    Attributes:
        handler: takes what another leader pushes.
        checker: what a majority has, as this leader sees it; None: this member does not lead.
    """

    def __init__(self, store: DLedgerMmapFileStore, peers: frozenset[str], *, options: PusherOptions) -> None:
        self._store: Final = store
        self._state: Final = store.member_state
        self._peers: Final = peers
        self._options: Final = options
        self.handler: Final = EntryHandler[Token](store, acks_flushed=options.acks_flushed)
        self.checker: QuorumAckChecker | None = None
        self.dispatchers: dict[str, EntryDispatcher] = {}
        self._term = -1
        self.waits_since = inf
        """Since then a leader's own entries wait for a majority, and nothing was committed."""

    def end_leading(self) -> bool:
        """Stop leading if this member does not any more: all who wait are told. Returns whether it has stopped."""
        if self.checker is None or (self._state.is_leader and self._term == self._state.curr_term):
            return False
        checker, self.checker, self.dispatchers, self.waits_since = self.checker, None, {}, inf
        checker.end()
        return True

    def begin_leading(self) -> bool:
        """Lead if this member was elected, in a term that is durable. Returns whether it has begun to."""
        if self.checker is not None or not self._state.is_leader:
            return False
        self._term = self._state.curr_term
        checker = self.checker = QuorumAckChecker(
            self._peers,
            inherited_index=self._store.ledger_end_index,
            max_pending_requests_num=self._options.max_pending_requests_num,
        )
        self.dispatchers = {
            peer: EntryDispatcher(peer, self._store, checker, options=self._options.push)
            for peer in sorted(self._peers - {self._state.self_id})
        }
        return True

    def append(self, body: bytes, tell: Callable[[DLedgerEntry, DLedgerResponseCode], None], *, now: float) -> None:
        """Store a client's body, and tell how its waiting for a majority has ended.

        Raises:
            DLedgerException: it is not in the log: NOT_LEADER, LEADER_TRANSFERRING, LEADER_PENDING_FULL, or as
                :meth:`~rmqha.dledger.dledger_mmap_file_store.DLedgerMmapFileStore.append_as_leader`.
        """
        if self.checker is None:
            raise DLedgerException(_Code.NOT_LEADER, f"this member is {self._state.role.value}")
        if self._state.transferee is not None:
            raise DLedgerException(_Code.LEADER_TRANSFERRING, f"leadership goes to {self._state.transferee}")
        if self.checker.is_pending_full:
            raise DLedgerException(_Code.LEADER_PENDING_FULL, "too many appends wait for a majority")
        entry = self._store.append_as_leader(DLedgerEntry(body))

        def told(code: DLedgerResponseCode) -> None:
            tell(entry, code)

        self.wait_ack(entry.index, told, now=now)

    def wait_ack(self, index: int, tell: Tell, *, now: float) -> None:
        """Tell who waits how it ended for this leader's entry of that index."""
        assert self.checker is not None, "only the leader's clients wait"
        self.checker.wait_ack(AppendFuture(index, now + self._options.max_wait_ack_time_s, tell))

    def advance(self, *, now: float) -> bool:
        """Count what is stored, here and elsewhere, and tell who waits; whether more is committed than before."""
        if self.checker is None:
            return False
        store, checker = self._store, self.checker
        stored = store.flushed_index if self._options.acks_flushed else store.ledger_end_index
        checker.update_peer_water_mark(self._state.self_id, stored)
        if self.handler.diverged is not None and checker.is_agreed:
            self.handler.diverged = None
        is_more = store.update_committed_index(self._term, checker.committed)
        if store.ledger_end_index <= max(store.committed_index, checker.inherited_index):
            self.waits_since = inf
        elif is_more or self.waits_since == inf:
            self.waits_since = now
        checker.complete(store.committed_index)
        checker.time_out(now=now)
        return is_more

    def on_answer(self, peer: str, request: PushEntryRequest, response: PushEntryResponse, *, now: float) -> None:
        """A follower's answer to one of ``dispatchers``' requests."""
        if peer in self.dispatchers:
            self.dispatchers[peer].on_answer(request, response, now=now)

    @property
    def have_all_nearly_all(self) -> bool:
        """Whether each member has all but the last of what is committed, as far as this leader knows; else false."""
        if self.checker is None:
            return False
        least = min((self.checker.water_mark(peer) for peer in self.dispatchers), default=-1)
        return least >= self._store.committed_index - _NEARLY

    @property
    def unreadable(self) -> str:
        """What this leader cannot read of its log, and so cannot send to whom; empty: nothing that anybody lacks."""
        unreadable = {peer: one.unreadable for peer, one in self.dispatchers.items() if one.unreadable}
        return "; ".join(f"it cannot read what {peer} lacks: {reason}" for peer, reason in unreadable.items())

    def due_at(self, connected: frozenset[str]) -> float:
        """When there is something to do if nothing comes in before; only those ``connected`` can be pushed to."""
        due_at = self.handler.due_at
        if self.checker is not None:
            due_at = min(due_at, self.checker.times_out_at)
        return min([due_at, *(self.dispatchers[peer].due_at for peer in connected if peer in self.dispatchers)])
