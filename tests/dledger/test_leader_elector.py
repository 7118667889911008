"""Votes, heartbeats and rounds, row by row; and whole groups on a network that loses, delays and parts."""

import random
from dataclasses import dataclass, field, replace

import pytest

from rmqha.codec.dledger_properties import TermVote
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.member_state import MemberState, Role
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, Outgoing, VoteRequest, VoteResponse, VoteResult
from tests.dledger.defaults import default

PEERS = frozenset({"n0", "n1", "n2"})
OPTIONS = default(ElectorOptions)
Code = DLedgerResponseCode


def elector(state: MemberState, *, peers: frozenset[str] = PEERS, now: float = 0.0) -> DLedgerLeaderElector:
    return DLedgerLeaderElector(state, peers, options=OPTIONS, random=lambda: 0.5, now=now)


def state_of(**fields: object) -> MemberState:
    return replace(MemberState("n0", curr_term=5, ledger_end_index=10, ledger_end_term=4), **fields)  # type: ignore[arg-type]


ASK = VoteRequest("n1", 5, 10, 4)


def elect(member: DLedgerLeaderElector) -> None:
    """All vote for it, in its term."""
    for out in member.tick(now=0):
        member.on_vote_answer(out.peer, out.number, VoteResponse(VoteResult.ACCEPT, 5), now=0)


def loses_its_quorum(member: DLedgerLeaderElector, state: MemberState) -> None:
    """Nobody answers the leader of term 5 any more: it steps down, and asks for votes in term 6 only."""
    member.tick(now=6.1)
    assert state.role is Role.CANDIDATE
    asked = [out for now in range(610, 800) for out in member.tick(now=now / 100)]
    assert {out.request.term for out in asked} == {6}


class TestVote:
    """Spec: dledger §4.3."""

    @pytest.mark.parametrize(
        ("fields", "request_", "result", "term"),
        [
            ({}, replace(ASK, leader_id="n7"), VoteResult.REJECT_UNKNOWN_LEADER, 5),
            ({}, replace(ASK, leader_id="n0"), VoteResult.REJECT_UNEXPECTED_LEADER, 5),
            ({}, replace(ASK, ledger_end_term=3, term=9), VoteResult.REJECT_EXPIRED_LEDGER_TERM, 5),
            ({}, replace(ASK, ledger_end_index=9, term=9), VoteResult.REJECT_SMALL_LEDGER_END_INDEX, 5),
            ({"vote_floor": (4, 11)}, ASK, VoteResult.REJECT_SMALL_LEDGER_END_INDEX, 5),
            ({"vote_floor": (5, 0)}, ASK, VoteResult.REJECT_EXPIRED_LEDGER_TERM, 5),
            ({"vote_floor": (3, 99)}, ASK, VoteResult.ACCEPT, 5),
            ({}, replace(ASK, term=4), VoteResult.REJECT_EXPIRED_VOTE_TERM, 5),
            ({"curr_vote_for": "n2", "leader_id": "n2"}, ASK, VoteResult.REJECT_ALREADY_HAS_LEADER, 5),
            ({"curr_vote_for": "n2"}, ASK, VoteResult.REJECT_ALREADY_VOTED, 5),
            ({}, replace(ASK, term=6), VoteResult.REJECT_TERM_NOT_READY, 5),
            ({"ledger_end_term": 6}, replace(ASK, ledger_end_term=6), VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, 6),
            ({"curr_vote_for": "n1"}, ASK, VoteResult.REJECT_ALREADY_VOTED, 5),
            ({}, replace(ASK, ledger_end_term=5, ledger_end_index=0), VoteResult.ACCEPT, 5),
        ],
    )
    def test_the_table(self, fields: dict[str, object], request_: VoteRequest, result: VoteResult, term: int) -> None:
        member = elector(state_of(**fields))
        assert member.handle_vote(request_, now=0) == VoteResponse(result, term)

    @pytest.mark.parametrize(
        ("request_", "may_lead", "result"),
        [
            (replace(ASK, term=6), True, VoteResult.REJECT_TAKING_LEADERSHIP),
            (replace(ASK, term=6), False, VoteResult.ACCEPT),
            (replace(ASK, term=6, ledger_end_index=11), True, VoteResult.ACCEPT),
            (replace(ASK, term=6, ledger_end_term=5), True, VoteResult.ACCEPT),
            (replace(ASK, term=7), True, VoteResult.REJECT_TERM_NOT_READY),
        ],
    )
    def test_who_was_asked_to_take_over_votes_for_nobody_who_has_no_more(
        self, request_: VoteRequest, result: VoteResult, *, may_lead: bool
    ) -> None:
        """Another may have asked first in the term in which this member is to lead (spec: dledger §4.3, row 10)."""
        state = state_of(role=Role.FOLLOWER, leader_id="n2")
        member = DLedgerLeaderElector(
            state, PEERS, options=OPTIONS, random=lambda: 0.5, now=0, may_lead=lambda: may_lead
        )
        member.take_leadership(now=0)
        assert member.handle_vote(replace(ASK, term=6), now=0).result is VoteResult.REJECT_TERM_NOT_READY
        assert member.tick(now=0) == []
        assert state.curr_term == 6
        assert member.handle_vote(request_, now=0).result is result

    def test_who_was_asked_to_take_over_votes_for_itself(self) -> None:
        state = state_of(role=Role.FOLLOWER, leader_id="n2")
        member = elector(state)
        member.take_leadership(now=0)
        assert [outgoing.peer for outgoing in member.tick(now=0)] == ["n1", "n2"]
        assert state.curr_vote_for == "n0"

    def test_a_vote_is_to_be_saved_and_is_the_only_one_of_its_term(self) -> None:
        state = state_of()
        member = elector(state)
        assert member.handle_vote(ASK, now=0).result is VoteResult.ACCEPT
        assert member.unsaved == TermVote(5, "n1")
        assert member.handle_vote(replace(ASK, leader_id="n2"), now=0).result is VoteResult.REJECT_ALREADY_VOTED

    def test_who_leads_its_term_gets_no_vote_in_it_again(self) -> None:
        """Another process with its id did, and two led one term."""
        state = state_of()
        member = elector(state)
        assert member.handle_vote(ASK, now=0, asker="A").result is VoteResult.ACCEPT
        assert member.handle_vote(ASK, now=0, asker="A").result is VoteResult.ACCEPT, "its answer may have been lost"
        assert member.handle_heart_beat(HeartBeatRequest("n1", 5), now=0).code == Code.SUCCESS
        for asker in ("A", "B"):
            answer = member.handle_vote(ASK, now=1, asker=asker)
            assert answer == VoteResponse(VoteResult.REJECT_ALREADY_HAS_LEADER, 5)
        member.on_leader_gone("n1", now=2)
        assert member.handle_vote(ASK, now=2, asker="A").result is VoteResult.REJECT_ALREADY_VOTED

    def test_who_is_followed_without_a_vote_before_gets_none(self) -> None:
        member = elector(state_of())
        member.handle_heart_beat(HeartBeatRequest("n1", 5), now=0)
        assert member.handle_vote(ASK, now=1).result is VoteResult.REJECT_ALREADY_HAS_LEADER

    def test_a_vote_is_one_process_s(self) -> None:
        """Another with its id asked before the first one led: both would have led. So it is after a restart, too."""
        member = elector(state_of())
        assert member.handle_vote(ASK, now=0, asker="A").result is VoteResult.ACCEPT
        assert member.handle_vote(ASK, now=0, asker="B").result is VoteResult.REJECT_ALREADY_VOTED
        assert member.handle_vote(replace(ASK, term=6), now=0, asker="B").result is VoteResult.REJECT_TERM_NOT_READY
        member.tick(now=0.01)
        assert member.handle_vote(replace(ASK, term=6), now=0.02, asker="B").result is VoteResult.ACCEPT
        assert member.handle_vote(replace(ASK, term=6), now=0.02, asker="A").result is VoteResult.REJECT_ALREADY_VOTED

    def test_a_higher_term_is_taken_over_before_a_vote_in_it(self) -> None:
        state = state_of()
        member = elector(state)
        member.handle_vote(replace(ASK, term=9), now=0)
        assert (state.curr_term, member.unsaved) == (5, None)
        assert member.tick(now=0.01) == []
        assert (state.curr_term, member.unsaved) == (9, TermVote(9))
        assert member.handle_vote(replace(ASK, term=9), now=0.02).result is VoteResult.ACCEPT


class TestHeartBeat:
    """Spec: dledger §4.5."""

    @pytest.mark.parametrize(
        ("leader", "term", "code"),
        [
            ("n7", 5, Code.UNKNOWN_MEMBER),
            ("n0", 5, Code.UNEXPECTED_MEMBER),
            ("n1", 4, Code.EXPIRED_TERM),
            ("n1", 5, Code.SUCCESS),
            ("n2", 5, Code.INCONSISTENT_LEADER),
            ("n2", 6, Code.TERM_NOT_READY),
        ],
    )
    def test_the_table(self, leader: str, term: int, code: Code) -> None:
        state = state_of()
        state.change_to_follower(5, "n1")
        assert elector(state).handle_heart_beat(HeartBeatRequest(leader, term), now=0).code == code

    @pytest.mark.parametrize(("term", "role"), [(4, Role.LEADER), (5, Role.LEADER), (6, Role.CANDIDATE)])
    def test_only_a_higher_term_ends_a_leadership(self, term: int, role: Role) -> None:
        """Who says that its own has expired, and names none that is higher, is not believed."""
        state = state_of()
        member = elector(state)
        elect(member)
        assert state.role is Role.LEADER
        for out in member.tick(now=1):
            member.on_heart_beat_answer(out.peer, out.number, HeartBeatResponse(Code.EXPIRED_TERM, term), now=1)
        assert state.role is role

    @pytest.mark.parametrize(("sender", "term"), [("n1", 4), ("n2", 5), ("n2", 4), ("n0", 5), ("n7", 5)])
    def test_what_is_not_the_leader_s_heartbeat_does_not_keep_its_follower(self, sender: str, term: int) -> None:
        """A leader that is gone would be waited for as long as anybody else says that it leads."""
        state = state_of()
        state.change_to_follower(5, "n1")
        member = elector(state)
        assert member.handle_heart_beat(HeartBeatRequest("n1", 5), now=1).code == Code.SUCCESS
        assert member.handle_heart_beat(HeartBeatRequest(sender, term), now=2).code != Code.SUCCESS
        member.tick(now=1 + OPTIONS.leak_s)
        assert state.role is Role.CANDIDATE

    def test_a_candidate_follows_a_leader_of_its_term(self) -> None:
        state = state_of()
        assert elector(state).handle_heart_beat(HeartBeatRequest("n2", 5), now=0) == HeartBeatResponse(200, -1)
        assert (state.role, state.leader_id) == (Role.FOLLOWER, "n2")

    @pytest.mark.parametrize(("gone", "role"), [("n1", Role.CANDIDATE), ("n2", Role.FOLLOWER)])
    def test_only_its_leader_s_end_has_a_follower_ask_for_votes(self, gone: str, role: Role) -> None:
        """It would refuse what the leader pushes until that beats again."""
        state = state_of()
        state.change_to_follower(5, "n1")
        elector(state).on_leader_gone(gone, now=0)
        assert state.role is role

    def test_who_follows_a_leader_votes_for_no_other_in_its_term(self) -> None:
        """A member that voted for it, and was given an empty directory since, elected a second leader of that term."""
        state = state_of()
        member = elector(state)
        assert member.handle_heart_beat(HeartBeatRequest("n2", 5), now=0).code == Code.SUCCESS
        assert member.unsaved == TermVote(5, "n2")
        assert member.handle_vote(ASK, now=0).result is VoteResult.REJECT_ALREADY_HAS_LEADER
        member.on_leader_gone("n2", now=1)
        assert member.handle_vote(ASK, now=1).result is VoteResult.REJECT_ALREADY_VOTED

    def test_a_vote_for_another_than_who_was_elected_stays(self) -> None:
        state = state_of(curr_vote_for="n1")
        member = elector(state)
        assert member.handle_heart_beat(HeartBeatRequest("n2", 5), now=0).code == Code.SUCCESS
        assert (state.curr_vote_for, member.unsaved) == ("n1", None)

    def test_a_leader_that_hears_of_a_higher_term_steps_down(self) -> None:
        """§7.3 row 10; DLedger ignores it as long as a quorum answers."""
        state = state_of(curr_vote_for="n0")
        state.change_to_leader(5)
        member = elector(state)
        (beat, _other) = member.tick(now=0)
        member.on_heart_beat_answer("n1", beat.number, HeartBeatResponse(200), now=0.1)
        member.on_heart_beat_answer("n2", beat.number, HeartBeatResponse(Code.EXPIRED_TERM, 7), now=0.1)
        assert state.role is Role.CANDIDATE

    def test_a_leader_without_a_quorum_steps_down_and_never_leads_that_term_again(self) -> None:
        state = state_of(curr_vote_for="n0")
        state.change_to_leader(5)
        member = elector(state)
        assert len(member.tick(now=0)) == 2
        assert len(member.tick(now=3)) == 2
        loses_its_quorum(member, state)

    def test_who_was_elected_asks_for_votes_in_a_new_term_only(self) -> None:
        """Nobody else may have voted in that term: it would be elected again, and lead it twice."""
        state = state_of()
        member = elector(state)
        elect(member)
        assert (state.role, state.curr_term) == (Role.LEADER, 5)
        member.tick(now=0)
        loses_its_quorum(member, state)

    def test_only_a_later_heartbeat_proves_that_it_still_leads(self) -> None:
        """The answers to one that was sent before the question may have been given before another was elected."""
        state = state_of()
        member = elector(state)
        elect(member)
        (before, _other) = member.tick(now=0)
        proof = member.prove()
        member.on_heart_beat_answer("n1", before.number, HeartBeatResponse(200), now=0.1)
        assert member.confirmed_beat < proof
        (after, _other) = member.tick(now=0.1)
        member.on_heart_beat_answer("n1", after.number, HeartBeatResponse(200), now=0.2)
        assert member.confirmed_beat >= proof

    def test_a_proof_that_was_given_costs_no_more_heartbeats(self) -> None:
        """After the first one a leader beat again as soon as each beat was answered."""
        state = state_of()
        member = elector(state)
        elect(member)
        beats = list[int]()
        for now in (0, 0.1, 0.2, 0.3):
            sent = member.tick(now=now)
            beats.append(len(sent))
            for out in sent:
                member.on_heart_beat_answer(out.peer, out.number, HeartBeatResponse(200), now=now)
            if not now:
                member.prove()
        assert beats == [2, 2, 0, 0]

    def test_who_asks_for_proof_does_not_void_the_heartbeat_that_others_wait_for(self) -> None:
        """While reads come faster than answers, none would ever be proven."""
        state = state_of()
        member = elector(state)
        elect(member)
        (first, _other) = member.tick(now=0)
        proofs = [member.prove()]
        assert member.tick(now=0.01) == []
        proofs.append(member.prove())
        member.on_heart_beat_answer("n1", first.number, HeartBeatResponse(200), now=0.02)
        (second, _other) = member.tick(now=0.02)
        assert second.number >= max(proofs)
        assert member.tick(now=0.03) == []

    def test_a_leader_that_died_once_hurries_nobody_who_followed_another_since(self) -> None:
        """Those who still follow that one are right: to ask them again and again would unseat it."""
        state = state_of()
        member = elector(state)
        member.handle_heart_beat(HeartBeatRequest("n1", 5), now=0)
        member.on_leader_gone("n1", now=1)
        member.handle_heart_beat(HeartBeatRequest("n2", 5), now=1)
        leaked = 1 + OPTIONS.leak_s
        member.tick(now=leaked)
        (question, _other) = member.tick(now=leaked)
        refusal = VoteResponse(VoteResult.REJECT_ALREADY_HAS_LEADER, 5)
        member.on_vote_answer("n1", question.number, refusal, now=leaked)
        assert member.due_at >= leaked + OPTIONS.leak_s

    def test_who_follows_a_leader_that_died_is_told_of_a_higher_term_once(self) -> None:
        """One of Java's follows it for three heartbeats: a group of three with one took seven seconds to find another.

        Who leads that term then is let be.
        """
        member = elector(state_of())
        member.handle_heart_beat(HeartBeatRequest("n1", 5), now=0)
        member.on_leader_gone("n1", now=1)
        for now, term in ((1, 5), (3, 6)):
            (_first, question) = member.tick(now=now)
            assert (question.peer, question.request.term) == ("n2", term)
            refusal = VoteResponse(VoteResult.REJECT_ALREADY_HAS_LEADER, term)
            member.on_vote_answer("n2", question.number, refusal, now=now)
        assert member.due_at >= 3 + OPTIONS.leak_s

    def test_who_found_a_leader_asks_in_its_term_before_it_raises_it(self) -> None:
        """It had been about to raise it. Else a follower that was cut off for a moment unseats who leads the others."""
        member = elector(state_of())
        (question, _other) = member.tick(now=0)
        for peer in ("n1", "n2"):
            member.on_vote_answer(peer, question.number, VoteResponse(VoteResult.REJECT_ALREADY_VOTED, 5), now=0)
        member.handle_heart_beat(HeartBeatRequest("n1", 5), now=0.1)
        leaked = 0.1 + OPTIONS.leak_s
        member.tick(now=leaked)
        assert {outgoing.request.term for outgoing in member.tick(now=leaked)} == {5}

    def test_who_hands_over_lets_the_other_ask_for_votes_first(self) -> None:
        """It heard of the term in which that asks: it has as good a log, and would win as often."""
        state = state_of()
        member = elector(state)
        elect(member)
        state.transferee = "n1"
        member.handle_vote(replace(ASK, term=6), now=1)
        assert member.tick(now=1) == []
        assert state.curr_term == 6
        assert member.due_at >= 1 + OPTIONS.max_vote_interval_s + OPTIONS.min_vote_interval_s

    def test_an_answer_counts_from_when_the_heartbeat_was_sent(self) -> None:
        """It was given at any time since then: who gave it may follow another a leak after it."""
        state = state_of()
        member = elector(state)
        elect(member)
        (beat, _other) = member.tick(now=1)
        member.on_heart_beat_answer("n1", beat.number, HeartBeatResponse(200), now=2.9)
        member.tick(now=3)
        assert [member.is_surely_leading(now=now) for now in (6.9, 7)] == [True, False]
        assert member.due_at <= 7
        assert member.tick(now=6.9), "it beats"
        member.tick(now=7)
        assert state.role is Role.CANDIDATE

    def test_an_answer_that_the_next_heartbeat_has_overtaken_counts_for_neither(self) -> None:
        """It was given before the present one was sent: who gave it may have voted for another in between."""
        state = state_of()
        member = elector(state)
        elect(member)
        (slow, _other) = member.tick(now=0)
        proof = member.prove()
        member.on_heart_beat_answer("n1", slow.number, HeartBeatResponse(200), now=0.1)
        (present, _other) = member.tick(now=2)
        assert present.number >= proof
        member.on_heart_beat_answer("n2", slow.number, HeartBeatResponse(200), now=2.9)
        assert member.confirmed_beat < proof
        assert [member.is_surely_leading(now=now) for now in (5.9, 6)] == [True, False]
        member.on_heart_beat_answer("n2", present.number, HeartBeatResponse(200), now=3)
        assert member.confirmed_beat >= proof

    def test_a_leader_whose_disk_failed_steps_down_and_does_not_ask(self) -> None:
        """§7.3 row 18."""
        state = state_of(curr_vote_for="n0")
        state.change_to_leader(5)
        member = DLedgerLeaderElector(state, PEERS, options=OPTIONS, random=lambda: 0.5, now=0, may_lead=lambda: False)
        assert [member.tick(now=now) for now in range(60)] == [[]] * 60
        assert state.role is Role.CANDIDATE


def test_a_restarted_leader_leads_a_higher_term_only() -> None:
    """§7.2 W4. One answer is enough to know that nobody has a quorum in its term."""
    state = state_of(curr_vote_for="n0")
    member = elector(state)
    asked = member.tick(now=0)
    assert {out.request.term for out in asked} == {5}
    member.on_vote_answer("n1", asked[0].number, VoteResponse(VoteResult.ACCEPT, 5), now=0.1)
    assert not state.is_leader
    (question, _other) = member.tick(now=2)
    assert question.request.term == 6
    member.on_vote_answer("n1", question.number, VoteResponse(VoteResult.ACCEPT, 6), now=2)
    assert state.is_leader


@pytest.mark.parametrize("size", [3, 5])
def test_one_that_has_more_and_does_not_lead_keeps_the_others_from_no_higher_term(size: int) -> None:
    """As a leader whose disk failed: where its answer came first, the round ended, and nobody ever raised the term."""
    state = state_of(curr_vote_for="n1")
    member = elector(state, peers=frozenset(f"n{number}" for number in range(size)))
    (has_more, *others) = member.tick(now=0)
    answers = [VoteResult.REJECT_SMALL_LEDGER_END_INDEX] + [VoteResult.REJECT_ALREADY_VOTED] * len(others)
    for out, result in zip((has_more, *others), answers, strict=True):
        member.on_vote_answer(out.peer, out.number, VoteResponse(result, 5), now=0.1)
    assert {out.request.term for out in member.tick(now=2)} == {6}


@pytest.mark.parametrize("refusal", [VoteResult.REJECT_ALREADY_HAS_LEADER, VoteResult.REJECT_SMALL_LEDGER_END_INDEX])
def test_who_voted_for_itself_and_is_restarted_follows_who_leads_its_term(refusal: VoteResult) -> None:
    """It had raised its term, which a leader of Java's with a quorum ignores, and stayed outside for ever."""
    state = state_of(curr_vote_for="n0")
    member = elector(state)
    asked = member.tick(now=0)
    for out in asked:
        member.on_vote_answer(out.peer, out.number, VoteResponse(refusal, 5), now=0.1)
    assert [member.tick(now=now / 10) for now in range(1, 8)] == [[]] * 7
    assert member.handle_heart_beat(HeartBeatRequest("n1", 5), now=0.8).code == Code.SUCCESS
    assert (state.role, state.leader_id) == (Role.FOLLOWER, "n1")


def test_one_that_is_alone_leads_as_soon_as_it_is_restarted() -> None:
    state = state_of(curr_vote_for="n0")
    elector(state, peers=frozenset({"n0"})).tick(now=0)
    assert (state.role, state.curr_term) == (Role.LEADER, 6)


def test_nobody_leads_a_term_in_which_it_voted_for_another() -> None:
    """Restarted, it would not know that it had led, and its voters would vote for it again."""
    state = state_of(curr_vote_for="n4")
    member = elector(state, peers=frozenset({"n0", "n1", "n2", "n3", "n4"}))
    asked = member.tick(now=0)
    assert {outgoing.request.term for outgoing in asked} == {5}
    for peer in ("n1", "n2", "n3"):
        member.on_vote_answer(peer, asked[0].number, VoteResponse(VoteResult.ACCEPT, 5), now=0.1)
    assert state.role is Role.CANDIDATE
    assert {outgoing.request.term for outgoing in member.tick(now=5)} == {6}
    assert state.curr_vote_for == "n0"


@pytest.mark.parametrize("result", [VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY])
def test_who_may_not_vote_for_itself_asks_in_another_term_and_no_more_often(result: VoteResult) -> None:
    """Its log was dropped for a leader's that had more: with the others' votes it would ask for ever, in one term."""
    state = state_of(vote_floor=(4, 11))
    member, terms = elector(state), list[int]()
    for now in range(1000):
        asked = member.tick(now=now / 100)
        terms += {out.request.term for out in asked}
        for out in asked:
            member.on_vote_answer(out.peer, out.number, VoteResponse(result, out.request.term), now=now / 100)
    assert state.role is Role.CANDIDATE
    assert terms == [*range(5, 5 + len(terms))]
    assert len(terms) <= 10 / OPTIONS.min_vote_interval_s


def test_a_group_of_one_leads_itself() -> None:
    state = MemberState("n0")
    member = elector(state, peers=frozenset({"n0"}))
    assert member.tick(now=0) == []
    assert (state.role, state.curr_term, member.unsaved) == (Role.LEADER, 0, TermVote(0, "n0"))
    for now in range(30):
        member.tick(now=now)
    assert state.role is Role.LEADER


@dataclass(order=True)
class Message:
    at: float
    order: int
    source: str = field(compare=False)
    to: str = field(compare=False)
    content: object = field(compare=False)


def id_of(process: str) -> str:
    """Of ``n0`` and of its copy, ``n0-copy``."""
    return process.partition("-")[0]


class Group:
    """Members on a network; each has a file for its term, which a restart reads."""

    def __init__(self, size: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.peers = frozenset(f"n{number}" for number in range(size))
        self.files = {peer: TermVote(0) for peer in self.peers}
        self.members: dict[str, tuple[MemberState, DLedgerLeaderElector]] = {}
        self.now = 0.0
        self.messages: list[Message] = []
        self.leaders: dict[int, tuple[str, int]] = {}
        self.lives = dict.fromkeys(self.peers, 0)
        self.votes: dict[tuple[str, int], str] = {}
        self.given: dict[tuple[str, int], tuple[str, int]] = {}
        self.has_copy = False
        self.parted: frozenset[str] = frozenset()
        self.loss = 0.0
        for peer in self.peers:
            self.start(peer)

    def start(self, peer: str) -> None:
        saved = self.files[peer]
        state = MemberState(id_of(peer), curr_term=saved.curr_term, curr_vote_for=saved.vote_leader)
        self.lives[peer] = self.lives.get(peer, 0) + 1
        self.members[peer] = (
            state,
            DLedgerLeaderElector(state, self.peers, options=OPTIONS, random=self.chance.random, now=self.now),
        )

    def start_copy(self, peer: str) -> None:
        """Of its file as it is now; the others answer it, and ask the former."""
        copy, self.has_copy = f"{peer}-copy", True
        self.files[copy] = self.files[peer]
        self.votes |= {(copy, term): vote for (voter, term), vote in self.votes.items() if voter == peer}
        self.start(copy)

    def send(self, source: str, to: str, content: object) -> None:
        if (source in self.parted) == (to in self.parted) and self.chance.random() >= self.loss:
            at = self.now + self.chance.choice([0.001, 0.01, 0.1, 1.0]) * self.chance.random()
            self.messages.append(Message(at, len(self.messages), source, to, content))

    def save(self, peer: str) -> None:
        """Before anything that follows from it is sent."""
        state, member = self.members[peer]
        if member.unsaved is not None:
            assert member.unsaved.curr_term >= self.files[peer].curr_term, "a term fell"
            self.files[peer], member.unsaved = member.unsaved, None
        saved = self.files[peer]
        if saved.vote_leader is not None:
            assert self.votes.setdefault((peer, saved.curr_term), saved.vote_leader) == saved.vote_leader, "two votes"
        if state.is_leader:
            assert saved == TermVote(state.curr_term, id_of(peer)), "it leads without its own vote"
            life = (peer, self.lives[peer])
            first = self.leaders.setdefault(state.curr_term, life)
            assert first == life or self.has_copy, "two leaders of a term, or one twice"

    def step(self) -> None:
        self.now += 0.01
        for peer, (_state, member) in sorted(self.members.items()):
            out = member.tick(now=self.now)
            self.save(peer)
            for outgoing in out:
                self.send(peer, outgoing.peer, outgoing)
        due = sorted(message for message in self.messages if message.at <= self.now)
        self.messages = [message for message in self.messages if message.at > self.now]
        for message in due:
            self.deliver(message)

    def deliver(self, message: Message) -> None:
        _state, member = self.members[message.to]
        match message.content:
            case Outgoing(request=VoteRequest() as request, number=number):
                asker = self.members[message.source][0]
                answer: object = (vote := member.handle_vote(request, now=self.now, asker=asker))
                if vote.result is VoteResult.ACCEPT:
                    life = (message.source, self.lives[message.source])
                    assert self.given.setdefault((message.to, vote.term), life) == life, "a vote for two processes"
                self.save(message.to)
                self.send(message.to, message.source, (number, answer))
            case Outgoing(request=HeartBeatRequest() as request, number=number):
                answer = member.handle_heart_beat(request, now=self.now)
                self.save(message.to)
                self.send(message.to, message.source, (number, answer))
            case (int() as number, VoteResponse() as vote):
                member.on_vote_answer(message.source, number, vote, now=self.now)
                self.save(message.to)
            case (int() as number, HeartBeatResponse() as beat):
                member.on_heart_beat_answer(message.source, number, beat, now=self.now)
                self.save(message.to)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 100)):
            self.step()

    def agreed(self) -> bool:
        """One leads, and all others follow it."""
        roles = [state.role for state, _ in self.members.values()]
        leaders = {(state.curr_term, state.leader_id) for state, _ in self.members.values()}
        return roles.count(Role.LEADER) == 1 and roles.count(Role.FOLLOWER) == len(roles) - 1 and len(leaders) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_group_finds_a_leader_and_keeps_it(size: int) -> None:
    for seed in range(4):
        group = Group(size, seed)
        group.run(25)
        assert group.agreed()
        term = max(group.leaders)
        group.run(20)
        assert max(group.leaders) == term


@pytest.mark.parametrize("seed", range(12))
def test_no_term_has_two_leaders_and_a_healed_group_has_one(seed: int) -> None:
    """S1, S2, S11: members die and come back, the network loses, delays, and parts."""
    group = Group(random.Random(seed).choice([3, 5]), seed)
    chance = random.Random(seed + 1000)
    for _ in range(25):
        group.run(chance.uniform(0.2, 6))
        match chance.choice(["restart", "part", "heal", "lose"]):
            case "restart":
                group.start(chance.choice(sorted(group.peers)))
            case "part":
                group.parted = frozenset(chance.sample(sorted(group.peers), chance.randrange(1, len(group.peers))))
            case "heal":
                group.parted, group.loss = frozenset(), 0.0
            case "lose":
                group.loss = chance.choice([0.1, 0.4])
    group.parted, group.loss = frozenset(), 0.0
    group.run(45)
    assert group.agreed()


@pytest.mark.parametrize("seed", range(24))
def test_of_a_member_and_its_copy_one_gets_a_member_s_vote(seed: int) -> None:
    """Both asked the same members in one term, before and after the first led: both led it by the same votes."""
    group = Group(3, seed)
    chance = random.Random(seed)
    group.run(chance.uniform(0.1, 10))
    group.start_copy("n0")
    for _ in range(20):
        group.run(chance.uniform(0.2, 8))
        group.start(chance.choice(sorted(group.members)))
        group.parted = frozenset(chance.sample(sorted(group.members), chance.randrange(3)))
        group.loss = chance.choice([0.0, 0.2])
