"""CatchUpPlan: what a master knows of its peers' logs, and whether it may accept sends, as a pure machine.

A peer may hold acknowledged messages that this master forgot in a crash. A send would take their places, so none is
accepted while a peer is known to hold more, nor before each peer was asked as carefully as ``haCatchUpAtStart``
promises. Answers go in with :meth:`CatchUpPlan.on_answer`; ``refusal`` says why sends are refused, and
:meth:`CatchUpPlan.next_question` whom to ask when. ``now`` is any clock in seconds that does not go back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rmqha.replication.backoff import Backoff
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import (
    PROVES_NOTHING,
    YET_TO_SAY,
    PeerAnswer,
    PeerKnowledge,
    PeerState,
)

UNKNOWN_RANGE: Final = LogRange(-1, -1)
"""Of a peer that has not said where its log begins and ends."""
_ASK_AGAIN_S: Final = 10.0
_WATCH_S: Final = 30.0
_LONG_UNKNOWN_S: Final = 60.0


@dataclass
class CatchUpPlan:
    """All peers of one master.

    Attributes:
        peers: what is known of each.
        answers_needed: so many peers must be settled before the first send is accepted (``require``); 0 with ``try``.
        refusal: why sends are refused; empty if they are accepted.
        is_open: sends were accepted at some time; then only a peer that is known to be longer ends that.
        began_empty: the local log was empty at the start, or at an earlier one after which its peers were not all
            heard, and has not begun like a peer's since.
    """

    peers: list[PeerKnowledge]
    answers_needed: int = 0
    refusal: str = field(default="", init=False)
    is_open: bool = field(default=False, init=False)
    began_empty: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._decide(own_end=0, now=0.0)

    @classmethod
    def of(cls, peers: Sequence[str], *, answers_needed: int, chance: Callable[[], float]) -> "CatchUpPlan":
        """Nothing is known yet."""
        return cls([PeerKnowledge(peer, Backoff(chance)) for peer in peers], answers_needed)

    def remember_longer(self, logs: Mapping[str, LogRange], *, own_end: int) -> None:
        """What :meth:`longer_logs` gave to an earlier process, before the first question. "": which is not known."""
        for peer in self.peers:
            begin, end, *_ = logs.get(peer.peer, logs.get("", UNKNOWN_RANGE))
            if (peer.peer in logs or "" in logs) and (end < 0 or end > own_end):
                peer.state, peer.begin, peer.end = PeerState.LONGER, begin, end
                peer.reason = "it said so before this start"
        self._decide(own_end=own_end, now=0.0)

    def longer_logs(self, own_end: int) -> dict[str, LogRange]:
        """Where the logs of those begin and end that are known to be longer, by their addresses."""
        return {peer.peer: LogRange(peer.begin, peer.end) for peer in self.peers if peer.is_longer(own_end)}

    def next_question(self, *, is_empty: bool, now: float) -> PeerKnowledge:
        """Whom to ask next, not before its ``ask_at``; there is at least one peer.

        While the local log is empty first all that have yet to say what they hold, then of those that are due the one
        that it begins like: see :meth:`takes_from`.
        """
        if not is_empty:
            return min(self.peers, key=lambda peer: peer.ask_at)
        yet_to_say = [peer for peer in self.peers if peer.state in YET_TO_SAY]
        firsts = self._firsts(own_end=0)
        return min(yet_to_say or self.peers, key=lambda peer: (max(peer.ask_at, now), peer not in firsts, -peer.end))

    def ask_at_once(self, *, now: float) -> None:
        """Ask every peer now: a slave reports that it holds more than this log, which may be true of one of them."""
        for peer in self.peers:
            peer.ask_at = min(peer.ask_at, now)

    def takes_from(self, peer: PeerKnowledge, *, is_empty: bool, own_end: int, now: float) -> bool:
        """Whether ``peer``, if it is asked now, has to send what it holds beyond the local log.

        An empty log begins where the log of the first peer that it takes from does, and could then take nothing from a
        peer whose log begins behind that one's end. So each peer first says where its log begins and ends; who does not
        is waited for as long as sends wait for so many, and for :data:`PATIENCE_S` in any case. An empty log
        begins like the one that begins first, of those from which others lead to the end of the longest, each of which
        begins before the one ahead of it ends, since logs that only touch cannot be compared: what lies before that the
        longest one has deleted, and consumers may not have had it. While that one is away it is waited for,
        as ``refusal`` says, until an operator takes it out of ``haPeers``. Of one that does not say where its log
        begins all is taken, from offset 0 on, or nothing.
        """
        if not is_empty or len(self.peers) == 1:
            return bool(self.refusal)
        if self._yet_to_say(now=now, asked=peer):
            return False
        firsts = self._firsts(own_end=own_end)
        return bool(self.refusal) and (peer in firsts or not firsts)

    def _yet_to_say(self, *, now: float, asked: PeerKnowledge | None = None) -> list[str]:
        """Whom an empty log waits for before it begins like any, or like ``asked``: see :meth:`takes_from`.

        Two of whom neither says where its log begins do not wait for each other: all of one is taken, or nothing.
        """
        silent = [peer for peer in self.peers if not peer.has_said]
        is_enough = len(self.peers) - len(silent) >= self.answers_needed

        def is_awaited(peer: PeerKnowledge) -> bool:
            is_as_silent = asked is not None and asked.is_untold and peer.is_untold and peer.reached_at is not None
            return not (is_enough or is_as_silent) or peer.may_soon_say(now=now)

        return [peer.peer for peer in silent if peer is not asked and is_awaited(peer)]

    def _firsts(self, *, own_end: int) -> list[PeerKnowledge]:
        """Those that an empty log may begin like; none: nobody is known to be longer."""
        longer = [peer for peer in self.peers if peer.is_longer(own_end)]
        longest = max(longer, key=lambda peer: peer.end, default=None)
        if longest is None or longest.begin < 0:
            return [peer for peer in longer if longest and peer.end == longest.end]
        firsts = [peer for peer in longer if peer.begin == longest.begin]
        while earlier := [peer for peer in longer if 0 <= peer.begin < firsts[0].begin < peer.end]:
            begin = min(peer.begin for peer in earlier)
            firsts = [peer for peer in earlier if peer.begin == begin]
        end = max(peer.end for peer in firsts)
        return [peer for peer in firsts if peer.end == end]

    def no_shorter(self, peer: str, there: LogRange | None) -> list[str]:
        """Other peers that are known to hold more than this log, and as much as the log of this one; longest first."""
        if there is None:
            return []
        others = [other for other in self.peers if other.peer != peer and other.state is PeerState.LONGER]
        longest_first = sorted(others, key=lambda other: -other.end)
        return [other.peer for other in longest_first if other.end >= there.max_offset]

    def beside_others(self, peer: PeerKnowledge, answer: PeerAnswer, *, own_end: int) -> PeerAnswer:
        """What an answer comes to: a log that begins behind this one's end is fit if another may bring what is between.

        The line to that other one may have broken while it was taken from.
        """
        others = [other.peer for other in self.peers if other is not peer and other.may_continue(own_end)]
        if not (answer.begins_behind and others):
            return answer
        begin = "behind this log's end" if answer.begin is None else f"at {answer.begin}"
        reason = f"its log begins {begin}, and what lies before that is awaited of {', '.join(others)}"
        return replace(answer, state=PeerState.LONGER, reason=reason, error=None)

    def on_answer(
        self, peer: PeerKnowledge, answer: PeerAnswer, *, is_empty: bool, own_end: int, asked_at: float, now: float
    ) -> None:
        """Take in what asking ``peer`` since ``asked_at`` has brought.

        ``is_empty`` says whether the local log is so after it, and ``own_end`` where it ends.
        """
        peer.on_answer(answer, own_end=own_end, asked_at=asked_at)
        self.began_empty = self.began_empty and not answer.taken_bytes
        for other in self.peers:
            if other is not peer:
                other.on_log_grown(own_end)
        awaited = self._yet_to_say(now=now) if is_empty and len(self.peers) > 1 else []
        self._decide(own_end=own_end, now=now, awaited=awaited)
        peer.ask_at = now + self._pause_s(peer, own_end)

    @property
    def unheard(self) -> list[str]:
        """Peers that may hold all that this log has lost, although sends are accepted."""
        if not (self.is_open and self.began_empty):
            return []
        return [peer.peer for peer in self.peers if peer.state in PROVES_NOTHING]

    def long_unknown(self, *, now: float) -> list[PeerKnowledge]:
        """Peers that were asked for more than a minute in vain, although sends are accepted."""
        unknown = [peer for peer in self.peers if self.is_open and peer.unknown_since is not None]
        return [peer for peer in unknown if now > (peer.unknown_since or 0.0) + _LONG_UNKNOWN_S]

    @property
    def is_doubtful(self) -> bool:
        """Whether a later start has to doubt as this one does: some peer is unheard, or holds other bytes."""
        is_doubted = self.is_open and self.began_empty
        return is_doubted and any(peer.state is not PeerState.SETTLED for peer in self.peers)

    def _pause_s(self, peer: PeerKnowledge, own_end: int) -> float:
        if peer.is_longer(own_end):  # an unfit one may have been rebuilt: sends are refused until that is known
            return _ASK_AGAIN_S if peer.state is PeerState.UNFIT else peer.backoff.next_pause_s()
        if peer.state in {PeerState.SETTLED, PeerState.UNFIT}:
            return _WATCH_S
        return _ASK_AGAIN_S if self.is_open else peer.backoff.next_pause_s()

    def _decide(self, *, own_end: int, now: float, awaited: Sequence[str] = ()) -> None:
        longer = [peer for peer in self.peers if peer.is_longer(own_end)]
        self.refusal = _why_longer(longer, own_end, awaited) or ("" if self.is_open else self._why_closed(now))
        self.is_open = self.is_open or not self.refusal

    def _why_closed(self, now: float) -> str:
        unfit = [peer for peer in self.peers if peer.state is PeerState.UNFIT]
        if unfit:
            return unfit[0].reason
        settled = sum(peer.state is PeerState.SETTLED for peer in self.peers)
        awaited = [peer.peer for peer in self.peers if peer.is_awaited(now=now)]
        if settled < self.answers_needed:
            reasons = "; ".join(
                f"{p.peer}: {p.reason or 'asking'}" for p in self.peers if p.state is not PeerState.SETTLED
            )
            return (
                f"haCatchUpAtStart=require: {settled} peers of haPeers have shown what they hold, but "
                f"{self.answers_needed} are needed to know of every acknowledged message ({reasons})"
            )
        return f"asking {', '.join(awaited)} what this log may have lost" if awaited else ""


def _why_longer(longer: Sequence[PeerKnowledge], own_end: int, awaited: Sequence[str]) -> str:
    """Empty if nobody is longer; before anything of theirs is fetched those that are ``awaited`` have to be heard."""
    say = "says where its log begins" if len(awaited) == 1 else "say where their logs begin"
    fetched = f"once {', '.join(awaited)} of haPeers {say}" if awaited else "first"
    return "; ".join(
        f"{peer.peer} holds messages beyond this log's end, {own_end}"
        + (f" (up to {peer.end})" if peer.end > own_end else "")
        + (f": {peer.reason}" if peer.reason else f", which are fetched {fetched}")
        for peer in longer
    )
