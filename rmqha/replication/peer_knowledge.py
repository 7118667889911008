"""PeerKnowledge: what a master knows of the log of one of its ``haPeers``, as its answers have told."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rmqha.errors import StoreError
from rmqha.replication.backoff import Backoff

PATIENCE_S: Final = 20.0
"""A peer that was reached, but has not proved what it holds, is asked for so long before ``try`` goes on without it."""


class PeerState(Enum):
    """What is known of one peer."""

    UNASKED = "unasked"
    UNKNOWN = "unknown"
    """It was asked, and no answer proved what it holds."""
    STARTING = "starting"
    """It is there, and will say what it holds when it has recovered."""
    LONGER = "longer"
    """It holds bytes beyond the end of the local log."""
    SETTLED = "settled"
    """The logs were compared, and nothing of its is missing here."""
    UNFIT = "unfit"
    """Its log does not continue the local one (diverged, or begins later): a person must decide."""


YET_TO_SAY: Final = frozenset({PeerState.UNASKED, PeerState.STARTING})
PROVES_NOTHING: Final = frozenset({PeerState.UNASKED, PeerState.UNKNOWN, PeerState.STARTING})


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What asking a peer once has brought.

    Attributes:
        state: what is known now; UNKNOWN leaves what was known before.
        end: where the peer's log ends, if it said so.
        begin: where it begins, likewise.
        taken_bytes: what was added to the local log.
        was_reached: a connection was made, or the peer said where its log ends.
        broker_id: its brokerId, if it said so.
        error: with UNFIT, what to tell the operator.
        begins_behind: with UNFIT, it is so only since the peer's log begins where the local one ends, or behind that.
    """

    state: PeerState
    reason: str = ""
    end: int | None = None
    begin: int | None = None
    taken_bytes: int = 0
    was_reached: bool = True
    broker_id: int | None = None
    error: StoreError | None = None
    begins_behind: bool = False


@dataclass(slots=True)
class PeerKnowledge:
    """One peer of ``haPeers``.

    Attributes:
        end: where its log ends; -1 as long as it has not said so.
        begin: where it begins, when it said last where it ends; -1 as long as it has not said so.
        broker_id: what it said last; None if it never did.
        unknown_since: the first of the questions in a row after which it was :attr:`PeerState.UNKNOWN`.
        unknown_before_s: for so long it was that before, between starts of which none was its last.
    """

    peer: str
    backoff: Backoff
    state: PeerState = PeerState.UNASKED
    reason: str = ""
    end: int = -1
    begin: int = -1
    broker_id: int | None = None
    reached_at: float | None = None
    unknown_since: float | None = None
    unknown_before_s: float = 0.0
    ask_at: float = 0.0

    def on_answer(self, answer: PeerAnswer, *, own_end: int, asked_at: float) -> None:
        """Take in an answer; ``own_end`` is the end of the local log after it."""
        was_longer = self.is_longer(own_end)
        if answer.was_reached and self.reached_at is None:
            self.reached_at = asked_at
        if answer.broker_id is not None:
            self.broker_id = answer.broker_id
        is_news = answer.state not in PROVES_NOTHING or self.state in PROVES_NOTHING or answer.end is not None
        if is_news or self.state is not PeerState.UNFIT:
            self.reason = answer.reason
        if is_news:
            self.state = answer.state
        self._count_unknown(asked_at)
        self.begin = self.begin if answer.begin is None else answer.begin
        if answer.state is PeerState.SETTLED:
            self.end = own_end
        elif answer.end is not None:
            self.end = answer.end
        elif answer.state is PeerState.LONGER and not was_longer:
            self.end = -1  # what it said before is not true any more
        if answer.taken_bytes or (self.is_longer(own_end) and not was_longer):
            self.backoff.on_progress()

    def _count_unknown(self, asked_at: float) -> None:
        """One that ends in each of its starts is not waited for as one that is heard of for the first time."""
        if self.state not in PROVES_NOTHING:
            self.unknown_since, self.unknown_before_s = None, 0.0
        elif self.state is PeerState.UNKNOWN and self.unknown_since is None:
            self.unknown_since = asked_at
        elif self.state is not PeerState.UNKNOWN and self.unknown_since is not None:
            self.unknown_before_s += asked_at - self.unknown_since
            self.unknown_since = None

    def on_log_grown(self, own_end: int) -> None:
        """Another peer was asked. If that has brought all that this one said to hold, nothing is known beyond it."""
        if self.state is PeerState.LONGER and 0 <= self.end <= own_end:
            self.state, self.reason = PeerState.UNKNOWN, "what it said to hold came from another peer"

    def is_longer(self, own_end: int) -> bool:
        """Whether it is known to hold bytes beyond ``own_end``."""
        return self.end > own_end or self.state is PeerState.LONGER

    def may_continue(self, own_end: int) -> bool:
        """Whether it may bring what follows ``own_end``, as far as it is known."""
        if self.state in YET_TO_SAY:
            return True
        return self.state is not PeerState.UNFIT and self.is_longer(own_end) and self.begin < own_end

    @property
    def has_said(self) -> bool:
        """Whether it has proved what it holds, and said where that begins, if it is longer.

        The HA port alone shows that it is longer; RocketMQ's opens before the port that tells where the log begins.
        """
        return self.state not in PROVES_NOTHING and not self.is_untold

    @property
    def is_untold(self) -> bool:
        """Whether it is longer, and does not say where its log begins."""
        return self.state is PeerState.LONGER and self.begin < 0

    def may_soon_say(self, *, now: float) -> bool:
        """Whether it may say where its log begins: all may be starting at once, and it may be the last."""
        if self.state is PeerState.LONGER:
            return self.reached_at is not None and now < self.reached_at + PATIENCE_S
        is_news = self.unknown_since is not None and now < self.unknown_since + PATIENCE_S - self.unknown_before_s
        return self.state in YET_TO_SAY or is_news

    def is_awaited(self, *, now: float) -> bool:
        """Whether it may still prove what it holds: it was reached a short while ago, or not asked yet."""
        if self.state is PeerState.UNKNOWN:
            return self.reached_at is not None and now < self.reached_at + PATIENCE_S
        return self.state in YET_TO_SAY
