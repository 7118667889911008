"""DLedgerLeaderElector: who leads, decided without a socket, a clock or a disk.

The edge hands in what arrived and what time it is, and carries out what comes back. Before anything of it is sent,
:attr:`DLedgerLeaderElector.unsaved` must be durable (:class:`~rmqha.dledger.term_file.TermFile`), if it is not None.

Where this differs from DLedger 0.3.1.2 (spec: dledger §7.2 W4, §7.3 rows 10 and 18):

* A member that stepped down from leading raises its term before it asks again, and one that voted for itself and was
  restarted counts its vote in a higher term only: DLedger may lead one term twice, with different entries. The latter
  first asks in the term it was in: a leader of Java's that has a quorum ignores a higher one, and who is in that hears
  no more of it.
* Nobody leads a term in which it voted for another, though a quorum of others votes for it: after a restart its file
  would not tell that it had led.
* Who follows a leader has voted for it: one whose directory was emptied had, and does not know. DLedger may lead twice.
* A vote is one process's, and it leads a term once: who asks again by another connection, or in a term in which it has
  been followed, may be another process with that id, as a copy of its store is. It gets a vote in the next term.
* A log that was dropped for a leader's still counts when votes are given, until that has come so far.
* A leader that hears of a higher term steps down, even while a quorum answers; so it does when its disk has failed.

Source: spec: dledger §4; dledger-all-0.3.1.2 DLedgerLeaderElector.java.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from rmqha.codec.dledger_properties import TermVote
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.member_state import MemberState, Role
from rmqha.dledger.vote import (
    HeartBeatRequest,
    HeartBeatResponse,
    Outgoing,
    Send,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from rmqha.dledger.vote_round import Beat, ParseResult, Round, count_larger, saves_of_a_round

_Code = DLedgerResponseCode
_ASK_AGAIN_S: Final = 0.02
"""A member takes over a term at its next round; DLedger's are 10 ms apart."""
_NOBODY: Final = object()


class DLedgerLeaderElector:
    """The election of one member (spec: dledger §4.3 to §4.5).

    Invariants: the term never falls; one vote a term; a member leads a term once.
    """

    def __init__(
        self,
        state: MemberState,
        peers: frozenset[str],
        *,
        options: ElectorOptions,
        random: Callable[[], float],
        now: float,
        may_lead: Callable[[], bool] = lambda: True,
    ) -> None:
        """A candidate.

        Args:
            state: this member's, with the term and the vote of its file.
            peers: the ids of all members, this one's too.
            options: the timers.
            random: the next of numbers from 0 to 1.
            now: seconds.
            may_lead: false once the disk has failed, or a broker could not serve.
        """
        assert state.self_id in peers, "a member of its group"
        self._state: Final = state
        self._peers: Final = peers
        self._options: Final = options
        self._random = random
        self._may_lead = may_lead
        self.unsaved: TermVote | None = None
        """Make it durable before anything is sent or answered, then set None."""
        self._known_max_term = -1
        self._needs_term = state.curr_vote_for == state.self_id and len(peers) == 1
        self._voted_by: object = _NOBODY
        """By what the vote of this term was asked for; nobody, if this is not known, or it has led already."""
        self._is_forced = False
        """The term was raised from outside: the first round waits."""
        self._next_vote_at = now
        self._parsed = ParseResult.WAIT_TO_REVOTE
        self._round: Round | None = None
        self._beat: Beat | None = None
        self._number = 0
        self._saves_s = 0.0
        """What the saves of a round take, as far as is known here."""
        self._heard_at = now
        """Of the leader; as a leader: of a quorum."""
        self._next_beat_at = now
        self._gone_leader: str | None = None
        """It was found dead; who still follows it does so in vain."""
        self.confirmed_beat = -1
        """The last heartbeat that a quorum answered: this member led when it was sent."""
        self._is_proof_wanted = False
        self._term_to_take = -1
        """In which this member was asked to lead."""
        self._yields_until = now
        """Who was asked to take over from this member asks for votes first."""

    @property
    def quorum(self) -> int:
        """More than half of the members."""
        return len(self._peers) // 2 + 1

    @property
    def due_at(self) -> float:
        """When :meth:`tick` has something to do, if nothing comes in before; ``inf`` if it may not ask for votes."""
        leak_at = self._heard_at + self._options.leak_s
        match self._state.role:
            case Role.LEADER:
                return -inf if self._is_proof_due or not self._may_lead() else min(self._next_beat_at, leak_at)
            case Role.FOLLOWER:
                return leak_at
            case Role.CANDIDATE if self._round is not None:
                return self._round.waits_until
            case Role.CANDIDATE:
                return -inf if self._is_forced else self._next_vote_at if self._may_lead() else inf

    @property
    def _is_proof_due(self) -> bool:
        """Whether to beat now for those who want proof: one beat at a time, as each makes the one before void."""
        return self._is_proof_wanted and (self._beat is None or self._beat.number == self.confirmed_beat)

    def is_surely_leading(self, *, now: float) -> bool:
        """Whether it leads, and has not stood still for so long that others may have elected one of them."""
        return self._state.is_leader and now < self._heard_at + self._options.leak_s

    def prove(self) -> int:
        """Have the leader find out whether it still leads: it does, once :attr:`confirmed_beat` has come so far."""
        self._is_proof_wanted = True
        return self._number + 1

    def take_leadership(self, *, now: float) -> None:
        """Ask for votes at once, in the next term: the leader wants this member to lead (spec: dledger §4.6)."""
        self._term_to_take = self._state.curr_term + 1
        self._become_candidate(self._term_to_take, now=now, force=False)
        self._needs_term, self._next_vote_at = True, now

    def on_leader_gone(self, leader_id: str, *, now: float) -> None:
        """Nobody listens any more where ``leader_id`` did: its process has ended. Nothing is waited for."""
        if self._state.is_follower and self._state.leader_id == leader_id:
            self._gone_leader = leader_id
            self._become_candidate(self._state.curr_term, now=now, force=False)
            self._next_vote_at = now

    def _save(self) -> None:
        self.unsaved = TermVote(self._state.curr_term, self._state.curr_vote_for)

    def on_saved(self, took_s: float) -> None:
        """:attr:`unsaved` is durable, which took so long: as long as others take to hear of a term, and to vote."""
        is_over = self._state.role is not Role.CANDIDATE  # the next election finds out again
        known_s, self._saves_s = self._saves_s, 0.0 if is_over else saves_of_a_round(took_s)
        more_s = self._saves_s - known_s
        if more_s > 0 and self._round is not None:
            self._round.waits_until += more_s
        elif more_s > 0:
            self._next_vote_at += more_s * (1 + self._random())

    def _become_candidate(self, term: int, *, now: float, force: bool) -> None:
        """Know of ``term``; with ``force`` take it over at the next round, and wait before asking."""
        if self._state.is_leader:
            self._needs_term = True
            if self._state.transferee is not None:
                self._yields_until = now + self._options.max_vote_interval_s
        self._known_max_term = max(self._known_max_term, term)
        self._state.change_to_candidate()
        self._round = self._beat = None
        if force:
            self._needs_term = self._is_forced = True
            self._next_vote_at = now

    def _vote_at(self, now: float, extra_s: float = 0.0) -> None:
        options = self._options
        low, high = options.min_vote_interval_s, options.max_vote_interval_s
        if self._state.curr_term == self._term_to_take:
            low, high = options.min_take_leadership_vote_interval_s, options.max_take_leadership_vote_interval_s
        low, high = low + self._saves_s, high + 2 * self._saves_s
        self._next_vote_at = max(now, self._yields_until) + low + (high - low) * self._random() + extra_s

    def handle_vote(self, request: VoteRequest, *, now: float, asker: object = None) -> VoteResponse:
        """Answer another member's question, which came by ``asker``; :attr:`unsaved` is to be durable first."""
        if request.leader_id == self._state.self_id:
            return VoteResponse(VoteResult.REJECT_UNEXPECTED_LEADER, self._state.curr_term)
        return self._judge(request, asker, now=now)

    def _judge(  # noqa: PLR0911 - a table, row by row
        self, request: VoteRequest, asker: object, *, now: float
    ) -> VoteResponse:
        state, term = self._state, self._state.curr_term
        mine = max((state.ledger_end_term, state.ledger_end_index), state.vote_floor)
        if request.leader_id not in self._peers:
            return VoteResponse(VoteResult.REJECT_UNKNOWN_LEADER, term)
        if request.ledger_end_term < mine[0]:
            return VoteResponse(VoteResult.REJECT_EXPIRED_LEDGER_TERM, term)
        if (request.ledger_end_term, request.ledger_end_index) < mine:
            return VoteResponse(VoteResult.REJECT_SMALL_LEDGER_END_INDEX, term)
        if request.term < term:
            return VoteResponse(VoteResult.REJECT_EXPIRED_VOTE_TERM, term)
        if request.term > term:
            self._become_candidate(request.term, now=now, force=True)
            return VoteResponse(VoteResult.REJECT_TERM_NOT_READY, term)
        is_repeated = state.curr_vote_for == request.leader_id and self._voted_by is asker
        if state.curr_vote_for is not None and not is_repeated:
            has_leader = state.leader_id is not None
            result = VoteResult.REJECT_ALREADY_HAS_LEADER if has_leader else VoteResult.REJECT_ALREADY_VOTED
            return VoteResponse(result, term)
        if request.term < state.ledger_end_term:
            return VoteResponse(VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, state.ledger_end_term)
        is_equal = (request.ledger_end_term, request.ledger_end_index) == mine
        if request.leader_id != state.self_id and is_equal and term == self._term_to_take and self._may_lead():
            return VoteResponse(VoteResult.REJECT_TAKING_LEADERSHIP, term)
        if state.curr_vote_for is None:
            state.curr_vote_for, self._voted_by = request.leader_id, asker
            self._save()
        return VoteResponse(VoteResult.ACCEPT, term)

    def handle_heart_beat(  # noqa: PLR0911 - a table, row by row
        self, request: HeartBeatRequest, *, now: float
    ) -> HeartBeatResponse:
        """Answer a leader's heartbeat; :attr:`unsaved` is to be durable first."""
        state = self._state
        if request.leader_id not in self._peers:
            return HeartBeatResponse(_Code.UNKNOWN_MEMBER, state.curr_term)
        if request.leader_id == state.self_id:
            return HeartBeatResponse(_Code.UNEXPECTED_MEMBER, state.curr_term)
        if request.term < state.curr_term:
            return HeartBeatResponse(_Code.EXPIRED_TERM, state.curr_term)
        if request.term > state.curr_term:
            self._become_candidate(request.term, now=now, force=True)
            return HeartBeatResponse(_Code.TERM_NOT_READY, state.curr_term)
        if state.leader_id == request.leader_id:
            self._heard_at = now
            return HeartBeatResponse(_Code.SUCCESS)
        if state.leader_id is not None:
            return HeartBeatResponse(_Code.INCONSISTENT_LEADER, state.curr_term)
        state.change_to_follower(request.term, request.leader_id)
        self._voted_by, self._saves_s = _NOBODY, 0.0
        if state.curr_vote_for is None:
            state.curr_vote_for = request.leader_id
            self._save()
        self._round, self._gone_leader, self._parsed = None, None, ParseResult.WAIT_TO_REVOTE
        self._heard_at = now
        return HeartBeatResponse(_Code.SUCCESS)

    def tick(self, *, now: float) -> list[Outgoing]:
        """What is due; call it every 10 ms."""
        match self._state.role:
            case Role.LEADER:
                return self._tick_leader(now=now)
            case Role.FOLLOWER:
                if now >= self._heard_at + self._options.leak_s:
                    self._become_candidate(self._state.curr_term, now=now, force=False)
                    self._next_vote_at = now
                return []
            case Role.CANDIDATE:
                return self._tick_candidate(now=now)

    def _tick_leader(self, *, now: float) -> list[Outgoing]:
        if now >= self._heard_at + self._options.leak_s or not self._may_lead():
            self._become_candidate(self._state.curr_term, now=now, force=False)
            self._vote_at(now)
            return []
        if now < self._next_beat_at and not self._is_proof_due:
            return []
        self._is_proof_wanted = False
        self._next_beat_at = now + self._options.heart_beat_time_interval_s
        self._number += 1
        self._beat = Beat(now, self._number)
        self._count_beats(now=now)
        return self._to_others(HeartBeatRequest(self._state.self_id, self._state.curr_term))

    def _to_others(self, request: Send) -> list[Outgoing]:
        return [Outgoing(peer, self._number, request) for peer in sorted(self._peers - {self._state.self_id})]

    def _tick_candidate(self, *, now: float) -> list[Outgoing]:
        if self._round is not None and now >= self._round.waits_until:
            self._parse(now=now)
        is_early = not self._is_forced and (now < self._next_vote_at or not self._may_lead())
        if self._round is not None or self._state.role is not Role.CANDIDATE or is_early:
            return []
        if self._needs_term or self._parsed is ParseResult.WAIT_TO_VOTE_NEXT:
            self._next_term()
            if self._is_forced:
                self._is_forced = False
                self._vote_at(now)
                return []
        return self._ask(now=now)

    def _next_term(self) -> None:
        state = self._state
        state.curr_term = max(state.curr_term + 1, self._known_max_term)
        state.curr_vote_for = None
        self._needs_term = False
        self._parsed = ParseResult.WAIT_TO_REVOTE
        self._save()

    def _ask(self, *, now: float) -> list[Outgoing]:
        state = self._state
        request = VoteRequest(state.self_id, state.curr_term, state.ledger_end_index, state.ledger_end_term)
        self._number += 1
        until = now + self._options.heart_beat_time_interval_s + self._random() + self._saves_s
        self._round = Round(self._number, until)
        self._round.answers[state.self_id] = self._judge(request, self, now=now)
        out = self._to_others(request)
        self._look_at_answers(now=now)
        return out

    def on_vote_answer(self, peer: str, number: int, response: VoteResponse | None, *, now: float) -> None:
        """A member's answer to what :meth:`tick` gave out; None: none came."""
        if self._round is None or self._round.number != number or peer not in self._peers:
            return
        self._round.answers[peer] = response or VoteResponse(VoteResult.UNKNOWN, -1)
        self._look_at_answers(now=now)

    def _look_at_answers(self, *, now: float) -> None:
        """Whether nothing that may still come changes the result."""
        assert self._round is not None, "asked during a round"
        results = [answer.result for answer in self._round.answers.values()]
        accepted, not_ready = results.count(VoteResult.ACCEPT), results.count(VoteResult.REJECT_TERM_NOT_READY)
        is_lost = self._round.answers[self._state.self_id].result is not VoteResult.ACCEPT
        no_larger = len(results) - results.count(VoteResult.UNKNOWN) - count_larger(results)
        if (
            len(results) == len(self._peers)
            or accepted + not_ready >= self.quorum
            or (is_lost and no_larger >= self.quorum)
            or VoteResult.REJECT_ALREADY_HAS_LEADER in results
        ):
            self._parse(now=now)

    def _parse(self, *, now: float) -> None:
        """The end of a round: the first row that fits (spec: dledger §4.4)."""
        assert self._round is not None, "there are answers to look at"
        is_own_vote = self._round.answers[self._state.self_id].result is VoteResult.ACCEPT
        answers, self._round = list(self._round.answers.values()), None
        results = [answer.result for answer in answers]
        higher = {VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER}
        max_term = max([answer.term for answer in answers if answer.result in higher], default=-1)
        valid = len(answers) - results.count(VoteResult.UNKNOWN)
        accepted, not_ready = results.count(VoteResult.ACCEPT), results.count(VoteResult.REJECT_TERM_NOT_READY)
        if max_term > self._state.curr_term:
            self._become_candidate(max_term, now=now, force=False)
            self._wait(ParseResult.WAIT_TO_VOTE_NEXT, now=now)
        elif VoteResult.REJECT_ALREADY_HAS_LEADER in results:
            if self._gone_leader is None:
                self._wait(ParseResult.WAIT_TO_REVOTE, now=now, extra_s=self._options.leak_s)
            else:  # who follows it still, and would for three heartbeats, asks as well once it hears of a higher term
                self._gone_leader = None
                self._wait(ParseResult.WAIT_TO_VOTE_NEXT, now=now)
        elif valid < self.quorum:
            self._wait(ParseResult.WAIT_TO_REVOTE, now=now)
        elif valid - count_larger(results) < self.quorum:
            self._wait(ParseResult.WAIT_TO_REVOTE, now=now, extra_s=self._options.max_vote_interval_s)
        elif accepted >= self.quorum and is_own_vote:
            self._lead(now=now)
        elif accepted + not_ready >= self.quorum and is_own_vote:
            self._parsed, self._next_vote_at = ParseResult.REVOTE_IMMEDIATELY, now + _ASK_AGAIN_S
        else:
            self._wait(ParseResult.WAIT_TO_VOTE_NEXT, now=now)

    def _wait(self, result: ParseResult, *, now: float, extra_s: float = 0.0) -> None:
        self._parsed = result
        self._vote_at(now, extra_s)

    def _lead(self, *, now: float) -> None:
        self._parsed, self._gone_leader, self._saves_s = ParseResult.PASSED, None, 0.0
        self._state.change_to_leader(self._state.curr_term)
        self._heard_at = self._next_beat_at = now

    def on_heart_beat_answer(self, peer: str, number: int, response: HeartBeatResponse | None, *, now: float) -> None:
        """A member's answer to what :meth:`tick` gave out; None: none came."""
        beat = self._beat
        if beat is None or beat.number != number or not self._state.is_leader or response is None:
            return
        beat.answers[peer] = response
        if response.code == _Code.EXPIRED_TERM and response.term > self._state.curr_term:
            self._become_candidate(response.term, now=now, force=False)
            self._vote_at(now)
            return
        self._count_beats(now=now)

    def _count_beats(self, *, now: float) -> None:
        assert self._beat is not None, "there is one under way"
        codes = [answer.code for answer in self._beat.answers.values()]
        good, not_ready = codes.count(_Code.SUCCESS) + 1, codes.count(_Code.TERM_NOT_READY)
        if good >= self.quorum:
            self._heard_at = max(self._heard_at, self._beat.sent_at)
            self.confirmed_beat = self._beat.number
        elif good + not_ready >= self.quorum:
            self._next_beat_at = now + _ASK_AGAIN_S
        elif codes.count(_Code.INCONSISTENT_LEADER) and len(codes) == len(self._peers) - 1:
            self._become_candidate(self._state.curr_term, now=now, force=False)
            self._vote_at(now)
