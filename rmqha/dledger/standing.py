"""Standing: when a member does not stand for election, though its log may be the longest. Knows no socket and no clock.

A log of another group, put in a member's place, is elected when it is longer; nobody takes anything from it then, and
members of Java's are cut to it (spec: dledger §4.4). So

* a leader that a majority refuses to be cut to, and that has committed nothing, gives up: they elect one of themselves;
* who has entries, and no note of whose they are, listens first: where others have a leader, it finds out by following.
  Not where all that it hears have none, if with it they are a majority: they would elect one of themselves.

Whose log is found to be the leader's may stand at once.

DLedger's leads on, and stands at once.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

import structlog

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_lists import AskMetadata
from rmqha.log_limit import LogLimit

logger = structlog.get_logger()

_LOOK_INTERVAL_S: Final = 1.0
_ANSWERS_WITHIN_S: Final = 0.1
"""Who is connected; members that are empty need longer to elect one of themselves."""
_STAYS_AWAY_S: Final = 30.0
"""Time for the others to miss the leader, and to elect one of them; if they cannot, it may be they who are wrong."""


class Standing:
    """Of one member. It looks once a second while this member leads."""

    def __init__(
        self,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        *,
        ask: AskMetadata,
        wakeup: Callable[[], None],
    ) -> None:
        """Nothing keeps it from standing yet.

        Args:
            store: this member's.
            pusher: knows who refuses what this leader has.
            ask: asks another member.
            wakeup: whether this member may lead may be another.
        """
        self._store: Final = store
        self._state: Final = store.member_state
        self._pusher: Final = pusher
        self._ask = ask
        self._wakeup = wakeup
        self._stands_from = -inf
        self._is_away = False
        self._listens_to = frozenset[str]()
        """The other members, while this one listens first."""
        self._unheard: set[str] = set()
        """Which of these are asked, and have yet to answer."""
        self._empty: set[str] = set()
        """Which have no entries, nor a leader."""
        self._full: set[str] = set()
        """Which have some, or one, or do not say."""
        self._judges_at = inf
        self._looks_at = 0.0
        self._refused_by: set[str] = set()
        """Who told that it keeps what this leader, in its present term, wants to have cut."""
        self._term = -1
        self._lines: Final = LogLimit(burst=3)

    def listen_first(self, for_s: float, others: frozenset[str], *, now: float) -> None:
        """This member has entries, and nobody noted whose they are: let those of ``others`` go first who know."""
        self._stay_away_until(now + for_s)
        self._listens_to = others
        logger.info("dledger.listens_first", for_s=for_s, reason="it has entries, and no note of who its members are")

    def on_change(self, peer: str, *, now: float) -> None:
        """``peer`` is connected, or is not any more: does it have entries that this member could displace?"""
        if self._is_away and peer in self._listens_to:
            self._unheard.add(peer)
            self._judges_at = now + _ANSWERS_WITHIN_S
            self._ask(peer, partial(self._on_told, peer))

    def _on_told(self, peer: str, response: MetadataResponse | None) -> None:
        self._unheard.discard(peer)
        status = None if response is None else response.rmqha_status
        for found in (self._empty, self._full):
            found.discard(peer)
        if response is not None:
            is_empty = status is not None and status.end_index == -1 and response.leader_id is None
            (self._empty if is_empty else self._full).add(peer)

    def _judge(self, *, now: float) -> None:
        """All that are connected are heard before one of them counts: who has entries may be the last to answer."""
        self._judges_at = now + _ANSWERS_WITHIN_S if self._unheard else inf
        if self._unheard or self._full or len(self._empty) < (len(self._listens_to) + 1) // 2:
            return
        logger.info("dledger.listens_no_more", empty=sorted(self._empty), reason="they know of no entries")
        self._stand()

    def _stand(self) -> None:
        self._stands_from, self._is_away, self._listens_to, self._judges_at = -inf, False, frozenset(), inf
        self._wakeup()

    def _stay_away_until(self, until: float) -> None:
        self._stands_from, self._is_away = until, True

    def may_stand(self, *, now: float) -> bool:
        """Whether this member stands for election, as far as is decided here."""
        return now >= self._stands_from

    @property
    def due_at(self) -> float:
        """See :class:`~rmqha.dledger.push_service.Waiting`."""
        if self._is_away:
            return min(self._stands_from, self._judges_at)
        return inf if self._pusher.checker is None else self._looks_at

    def step(self, *, now: float) -> None:
        """Look who refuses."""
        if self._is_away and (now >= self._stands_from or self._pusher.handler.has_leaders_log):
            self._stand()
        elif self._is_away and now >= self._judges_at:
            self._judge(now=now)
        if self._is_away or self._pusher.checker is None or now < self._looks_at:
            return
        self._looks_at = now + _LOOK_INTERVAL_S
        if self._state.curr_term != self._term:
            self._term, self._refused_by = self._state.curr_term, set()
        peers = {peer for peer, one in self._pusher.dispatchers.items() if one.is_refused}
        self._refused_by &= peers
        if self._is_blocked_by(self._refused_by):
            self._give_up(now=now)
        elif self._is_blocked_by(peers):
            for peer in sorted(peers):
                self._ask_one(peer, self._term)

    def _is_blocked_by(self, peers: set[str]) -> bool:
        """Whether these are a majority, and could elect one of themselves, and this leader has committed nothing."""
        checker, quorum = self._pusher.checker, (len(self._pusher.dispatchers) + 1) // 2 + 1
        has_committed = checker is None or self._store.committed_index > checker.inherited_index
        return not has_committed and len(peers) >= quorum

    def _ask_one(self, peer: str, term: int) -> None:
        """A full disk is refused with, too: who refuses says why."""

        def on_answer(response: MetadataResponse | None) -> None:
            status = None if response is None else response.rmqha_status
            if status is not None and status.refused_term == term == self._term:
                self._refused_by.add(peer)

        self._ask(peer, on_answer)

    def _give_up(self, *, now: float) -> None:
        self._stay_away_until(now + _STAYS_AWAY_S)
        self._lines.log(
            logger.error,
            "dledger.gave_up",
            term=self._term,
            refused_by=sorted(self._refused_by),
            reason="they have committed what this log has not, and they are a majority",
            next=f"this member does not stand for {_STAYS_AWAY_S:.0f} s, so that they elect one of them; compare the "
            "logs ('rmqha dledger dump'), and move the wrong one away",
        )
        self._wakeup()
