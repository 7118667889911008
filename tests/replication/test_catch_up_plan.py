"""What a master makes of its peers' answers."""

from dataclasses import replace
from itertools import permutations

import pytest

from rmqha.errors import StoreError
from rmqha.replication.catch_up_plan import CatchUpPlan
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import PATIENCE_S, PeerAnswer, PeerKnowledge, PeerState


class Plan:
    """A plan whose log ends at 100, and a clock set by hand."""

    def __init__(self, *peers: str, answers_needed: int = 0) -> None:
        self.plan = CatchUpPlan.of(peers, answers_needed=answers_needed, chance=lambda: 0.0)
        self.own_end = 100
        self.now = 1000.0

    def answer(self, peer: str, state: PeerState, *, end: int | None = None, **more: object) -> float:
        """Returns the pause before this peer is asked again."""
        known, own_end = self._known(peer), self.own_end
        answer = PeerAnswer(state, end=end, **more)  # type: ignore[arg-type]
        self.plan.on_answer(known, answer, is_empty=own_end == 0, own_end=own_end, asked_at=self.now, now=self.now)
        return known.ask_at - self.now

    def takes_from(self, peer: str, *, is_empty: bool = True) -> bool:
        return self.plan.takes_from(self._known(peer), is_empty=is_empty, own_end=self.own_end, now=self.now)

    def _known(self, peer: str) -> PeerKnowledge:
        (known,) = [known for known in self.plan.peers if known.peer == peer]
        return known


def test_without_peers_there_is_nothing_to_wait_for() -> None:
    assert Plan().plan.is_open


def test_nothing_is_accepted_before_each_peer_was_asked() -> None:
    plan = Plan("a", "b")
    plan.answer("a", PeerState.SETTLED)
    assert plan.plan.refusal == "asking b what this log may have lost"
    assert plan.plan.next_question(is_empty=False, now=plan.now).peer == "b"
    plan.answer("b", PeerState.UNKNOWN, was_reached=False)
    assert plan.plan.is_open


@pytest.mark.parametrize("needed", [0, 1])
def test_a_longer_peer_is_waited_for_though_it_goes_away(needed: int) -> None:
    plan = Plan("a", answers_needed=needed)
    assert plan.answer("a", PeerState.LONGER, end=200) == 0.0, "what it holds is fetched at once"
    for pause_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        plan.now += 100 * PATIENCE_S
        assert plan.answer("a", PeerState.LONGER, was_reached=False, reason="it is away") == pause_s
        assert plan.plan.refusal == "a holds messages beyond this log's end, 100 (up to 200): it is away"
    plan.own_end = 150
    assert plan.answer("a", PeerState.LONGER, taken_bytes=50) == 0.0, "it gets on"
    assert plan.plan.refusal.startswith("a holds messages beyond this log's end, 150")
    plan.own_end = 200
    plan.answer("a", PeerState.SETTLED, taken_bytes=50)
    assert plan.plan.refusal == ""


@pytest.mark.parametrize("state", [PeerState.UNKNOWN, PeerState.STARTING])
def test_who_shows_nothing_that_is_missing_is_asked_less_and_less_often(state: PeerState) -> None:
    """Only one that turns out to be longer is asked at once."""
    plan = Plan("a", answers_needed=1)
    pauses = [plan.answer("a", state, was_reached=False, reason="no answer") for _ in range(5)]
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert plan.answer("a", PeerState.LONGER, end=200) == 0.0


def test_a_peer_that_was_rebuilt_empty_holds_no_more() -> None:
    plan = Plan("a")
    plan.answer("a", PeerState.LONGER, end=200)
    plan.now += PATIENCE_S
    plan.answer("a", PeerState.UNKNOWN, end=0, reason="it broke the line", was_reached=False)
    assert plan.plan.is_open


@pytest.mark.parametrize("state", [PeerState.LONGER, PeerState.UNKNOWN])
def test_another_peer_may_bring_what_one_holds(state: PeerState) -> None:
    """The one that went away said where its log ends: nothing of that is missing any more."""
    plan = Plan("a", "b")
    plan.answer("a", state, end=200)
    plan.answer("a", state, was_reached=False)
    assert plan.plan.refusal.startswith("a holds messages")
    plan.own_end = 199
    plan.answer("b", PeerState.UNKNOWN, taken_bytes=99)
    assert plan.plan.refusal.startswith("a holds messages")
    plan.own_end = 200
    plan.answer("b", PeerState.SETTLED, taken_bytes=1)
    plan.now += PATIENCE_S
    plan.answer("a", PeerState.UNKNOWN, was_reached=False)
    assert plan.plan.is_open


def test_what_a_peer_that_is_longer_holds_is_not_told_by_what_it_said_before() -> None:
    plan = Plan("a", "b")
    plan.answer("a", PeerState.SETTLED, end=100)
    plan.answer("a", PeerState.LONGER)
    plan.own_end = 200
    plan.answer("b", PeerState.SETTLED, taken_bytes=100)
    assert plan.plan.refusal.startswith("a holds messages")


def test_the_incomplete_record_at_the_end_of_a_settled_peer_is_no_message() -> None:
    """It was never acknowledged, and cannot be fetched: waiting for it would never end."""
    plan = Plan("a")
    plan.answer("a", PeerState.SETTLED, end=105, taken_bytes=50)
    assert plan.plan.is_open


def test_who_began_empty_does_not_know_of_peers_that_it_has_not_heard() -> None:
    plan = Plan("a", "b")
    plan.plan.began_empty = True
    plan.own_end = 0
    plan.answer("a", PeerState.UNKNOWN, was_reached=False)
    assert (plan.plan.unheard, plan.plan.is_doubtful) == ([], False), "it takes no sends yet"
    plan.answer("b", PeerState.UNKNOWN, was_reached=False)
    assert (plan.plan.is_open, plan.plan.unheard, plan.plan.is_doubtful) == (True, ["a", "b"], True)
    plan.answer("a", PeerState.SETTLED)
    assert (plan.plan.unheard, plan.plan.is_doubtful) == (["b"], True)
    plan.answer("b", PeerState.SETTLED)
    assert (plan.plan.unheard, plan.plan.is_doubtful) == ([], False)
    plan.answer("b", PeerState.UNKNOWN, was_reached=False)
    plan.own_end = 50
    plan.answer("a", PeerState.SETTLED, taken_bytes=50)
    assert plan.plan.unheard == [], "it has a log of the group's now"


def test_a_peer_that_starts_has_yet_to_say_whether_it_holds_what_a_log_that_began_empty_lacks() -> None:
    """Slaves would take the new store's tables over until it has recovered, and tells the lost ones."""
    plan = Plan("a")
    plan.plan.began_empty = True
    plan.answer("a", PeerState.UNKNOWN, was_reached=False)
    plan.answer("a", PeerState.STARTING)
    assert (plan.plan.is_open, plan.plan.unheard, plan.plan.is_doubtful) == (True, ["a"], True)


def test_who_has_a_log_doubts_nobody_that_is_away() -> None:
    plan = Plan("a")
    plan.answer("a", PeerState.UNKNOWN, was_reached=False)
    assert (plan.plan.is_open, plan.plan.unheard, plan.plan.is_doubtful) == (True, [], False)


def test_try_bears_with_a_peer_that_was_reached_for_a_while() -> None:
    plan = Plan("a")
    plan.answer("a", PeerState.UNKNOWN, was_reached=True)
    plan.now += PATIENCE_S - 0.1
    plan.answer("a", PeerState.UNKNOWN, was_reached=False)
    assert not plan.plan.is_open
    plan.now += 0.1
    plan.answer("a", PeerState.UNKNOWN, was_reached=False)
    assert plan.plan.is_open


def test_require_counts_only_proofs() -> None:
    plan = Plan("a", "b", "c", answers_needed=2)
    plan.answer("a", PeerState.SETTLED)
    for _ in range(100):
        plan.now += PATIENCE_S
        plan.answer("b", PeerState.UNKNOWN, reason="silent")
        plan.answer("c", PeerState.UNKNOWN, was_reached=False, reason="refused")
    assert "1 peers of haPeers have shown what they hold, but 2 are needed" in plan.plan.refusal
    assert "(b: silent; c: refused)" in plan.plan.refusal
    plan.answer("c", PeerState.SETTLED)
    assert plan.plan.is_open


def test_a_peer_that_was_longer_and_turns_out_not_to_be_is_waited_for_no_more() -> None:
    """What it said once no longer holds: it was compared, and nothing of its is missing here."""
    plan = Plan("a")
    plan.answer("a", PeerState.LONGER, end=200)
    plan.answer("a", PeerState.SETTLED)
    assert (plan.plan.refusal, plan.plan.is_open) == ("", True)


def test_a_log_that_does_not_continue_this_one_is_never_passed_over() -> None:
    plan = Plan("a")
    plan.answer("a", PeerState.UNFIT, end=50, reason="diverged")
    assert (plan.plan.refusal, plan.plan.is_open) == ("diverged", False)


def test_in_life_only_a_longer_peer_ends_the_sends() -> None:
    plan = Plan("a", "b")
    assert plan.answer("a", PeerState.SETTLED) == 30.0
    plan.answer("b", PeerState.UNKNOWN, was_reached=False)
    assert plan.answer("b", PeerState.UNKNOWN, was_reached=True) == 10.0
    assert plan.answer("a", PeerState.UNFIT, end=100, reason="diverged") == 30.0
    assert plan.plan.refusal == ""
    plan.answer("b", PeerState.LONGER, end=101)
    assert plan.plan.refusal.startswith("b holds messages beyond this log's end, 100 (up to 101)")
    assert plan.answer("b", PeerState.UNFIT, end=101, reason="diverged") == 10.0, "somebody may rebuild it any moment"
    assert plan.plan.refusal.endswith("diverged")
    plan.answer("b", PeerState.UNKNOWN, end=7)
    assert plan.plan.refusal == ""


def test_an_empty_log_takes_nothing_before_each_peer_has_said_what_it_holds() -> None:
    """It begins like the log of the peer it takes from first, and another may begin behind that one's end."""
    plan = Plan("short", "long")
    plan.own_end = 0
    assert not plan.takes_from("short")
    plan.answer("short", PeerState.LONGER, begin=0, end=200)
    plan.answer("long", PeerState.STARTING)
    assert plan.plan.next_question(is_empty=True, now=plan.now).peer == "long"
    assert not plan.takes_from("short"), "the other will say so when it has recovered"
    assert plan.takes_from("short", is_empty=False)
    plan.answer("long", PeerState.LONGER, begin=0, end=300)
    assert plan.takes_from("long")
    assert plan.plan.next_question(is_empty=True, now=plan.now).peer == "long"


def test_an_empty_log_waits_a_moment_for_a_peer_that_does_not_answer() -> None:
    """All may be starting at once: the last one's log may begin first, with what is nowhere else."""
    plan = Plan("late", "early")
    plan.own_end = 0
    plan.answer("early", PeerState.UNKNOWN, was_reached=False)
    plan.answer("late", PeerState.LONGER, begin=250, end=300)
    for _ in range(10):
        assert not plan.takes_from("late")
        assert plan.takes_from("late", is_empty=False)
        plan.now += PATIENCE_S / 10
        plan.answer("early", PeerState.UNKNOWN, was_reached=False)
    assert plan.takes_from("late")
    plan.answer("early", PeerState.LONGER, begin=0, end=300)
    assert not plan.takes_from("late")


def test_who_ends_in_each_of_its_starts_is_not_waited_for_without_end() -> None:
    """It was heard of anew each time: all that another one held was left there."""
    plan, begun_at = Plan("late", "early"), 1000.0
    plan.own_end = 0
    plan.answer("late", PeerState.LONGER, begin=250, end=300)
    while not plan.takes_from("late"):
        state = PeerState.STARTING if (plan.now - begun_at) % 10 >= 5 else PeerState.UNKNOWN
        plan.answer("early", state, was_reached=False)
        plan.now += 1
        assert plan.now < begun_at + 10 * PATIENCE_S
    assert plan.now >= begun_at + PATIENCE_S
    plan.answer("early", PeerState.LONGER, begin=0, end=300)
    plan.answer("early", PeerState.LONGER, was_reached=False)
    assert plan.plan.peers[1].unknown_before_s == 0


def test_the_only_peer_waits_for_nobody_and_is_not_named_as_one_that_is_waited_for() -> None:
    """Wherever its log begins, the empty one here begins like that."""
    plan = Plan("only")
    plan.own_end = 0
    plan.answer("only", PeerState.LONGER, end=300)
    assert plan.plan.refusal.endswith("(up to 300), which are fetched first")
    assert plan.takes_from("only")


def test_who_is_waited_for_before_anything_is_fetched_is_named() -> None:
    plan = Plan("late", "early", answers_needed=2)
    plan.own_end = 0
    plan.answer("early", PeerState.UNKNOWN, was_reached=False)
    plan.answer("late", PeerState.LONGER, begin=250, end=300)
    held = "late holds messages beyond this log's end, 0 (up to 300), which are fetched "
    assert plan.plan.refusal == f"{held}once early of haPeers says where its log begins"
    plan.answer("early", PeerState.SETTLED, end=0)
    plan.answer("late", PeerState.LONGER, begin=250, end=300)
    assert plan.plan.refusal == f"{held}first"


@pytest.mark.parametrize("needed", [1, 2])
def test_an_empty_log_waits_as_long_as_sends_do(needed: int) -> None:
    """Under ``require`` sends wait for so many peers in any case: to begin before that gains nothing."""
    plan = Plan("late", "early", answers_needed=needed)
    plan.own_end = 0
    plan.answer("early", PeerState.UNKNOWN, was_reached=False)
    plan.answer("late", PeerState.LONGER, begin=250, end=300)
    plan.now += 100 * PATIENCE_S
    assert plan.takes_from("late") == (needed == 1)
    plan.answer("early", PeerState.SETTLED, end=0)
    assert plan.takes_from("late")


def test_of_peers_that_are_due_the_one_is_asked_that_an_empty_log_begins_like() -> None:
    """Who was due earlier has nothing to send before that one has."""
    plan = Plan("late", "early")
    plan.own_end = 0
    plan.answer("late", PeerState.LONGER, begin=250, end=300)
    plan.now += 1
    plan.answer("early", PeerState.LONGER, begin=0, end=300)
    assert plan.plan.next_question(is_empty=True, now=plan.now - 1).peer == "late", "the other one is not due yet"
    assert plan.plan.next_question(is_empty=True, now=plan.now).peer == "early"


@pytest.mark.parametrize("order", [("late", "early"), ("early", "late")])
@pytest.mark.parametrize("late_end", [300, 400])
def test_an_empty_log_begins_like_the_peer_whose_log_begins_first(order: tuple[str, str], late_end: int) -> None:
    """The other one had deleted segments that had not expired: groups passed over what they had not had yet."""
    plan = Plan(*order)
    plan.own_end = 0
    plan.answer("late", PeerState.LONGER, begin=250, end=late_end)
    plan.answer("early", PeerState.LONGER, begin=0, end=300)
    assert [plan.takes_from(peer) for peer in ("late", "early")] == [False, True]
    assert plan.plan.next_question(is_empty=True, now=plan.now).peer == "early"
    plan.own_end = 300
    assert plan.takes_from("late", is_empty=False)


def test_an_empty_log_does_not_begin_like_one_that_does_not_reach_to_the_longest() -> None:
    plan = Plan("old", "long")
    plan.own_end = 0
    plan.answer("old", PeerState.LONGER, begin=0, end=200)
    plan.answer("long", PeerState.LONGER, begin=250, end=300)
    assert [plan.takes_from(peer) for peer in ("old", "long")] == [False, True]


def test_an_empty_log_does_not_begin_like_one_that_ends_where_the_longest_begins() -> None:
    """Logs that only touch are not joined, since nothing of them can be compared."""
    plan = Plan("old", "long")
    plan.own_end = 0
    plan.answer("old", PeerState.LONGER, begin=0, end=250)
    plan.answer("long", PeerState.LONGER, begin=250, end=300)
    assert [plan.takes_from(peer) for peer in ("old", "long")] == [False, True]
    plan.answer("old", PeerState.LONGER, begin=0, end=251)
    assert [plan.takes_from(peer) for peer in ("old", "long")] == [True, False]


@pytest.mark.parametrize("order", list(permutations(("first", "between", "long"))))
@pytest.mark.parametrize("between_end", [260, 300])
def test_an_empty_log_begins_like_one_from_which_another_leads_to_the_longest(
    order: tuple[str, ...], between_end: int
) -> None:
    """Also if two are the longest, whichever is named first."""
    plan = Plan(*order)
    plan.own_end = 0
    plan.answer("first", PeerState.LONGER, begin=0, end=200)
    plan.answer("between", PeerState.LONGER, begin=150, end=between_end)
    plan.answer("long", PeerState.LONGER, begin=250, end=300)
    assert [plan.takes_from(peer) for peer in ("first", "between", "long")] == [True, False, False]


def test_an_empty_log_does_not_begin_like_one_that_does_not_say_where_it_begins_if_another_does() -> None:
    """It is waited for, for a moment: its HA port may have opened before the one that tells, as RocketMQ's does."""
    plan = Plan("unspoken", "long")
    plan.own_end = 0
    plan.answer("unspoken", PeerState.LONGER)
    plan.answer("long", PeerState.LONGER, begin=250, end=301)
    assert [plan.takes_from(peer) for peer in ("unspoken", "long")] == [False, False]
    assert "once unspoken of haPeers says where its log begins" in plan.plan.refusal
    plan.now += PATIENCE_S - 1
    assert not plan.takes_from("long")
    plan.now += 1
    assert [plan.takes_from(peer) for peer in ("unspoken", "long")] == [False, True]
    plan.answer("unspoken", PeerState.LONGER, begin=0, end=300)
    assert [plan.takes_from(peer) for peer in ("unspoken", "long")] == [True, False]


def test_so_it_is_as_long_as_sends_wait() -> None:
    plan = Plan("unspoken", "long", answers_needed=2)
    plan.own_end = 0
    plan.answer("unspoken", PeerState.LONGER)
    plan.answer("long", PeerState.LONGER, begin=250, end=301)
    plan.now += 1000 * PATIENCE_S
    assert [plan.takes_from(peer) for peer in ("unspoken", "long")] == [False, False]


def test_an_empty_log_does_not_begin_like_a_shorter_peer_because_the_longest_fails() -> None:
    """The line broke, and it took from the other: then the longest log began behind its end, and each start ended."""
    plan = Plan("short", "long")
    plan.own_end = 0
    plan.answer("short", PeerState.LONGER, begin=0, end=200)
    plan.answer("long", PeerState.LONGER, begin=0, end=300)
    plan.answer("long", PeerState.LONGER, was_reached=False)
    assert plan.plan.next_question(is_empty=True, now=plan.now).peer == "short"
    assert not plan.takes_from("short")
    plan.answer("short", PeerState.LONGER, begin=0, end=300)
    assert plan.takes_from("short"), "it has grown meanwhile, and brings all that the one that fails has said to hold"
    assert plan.takes_from("long")


def test_an_empty_log_begins_like_a_peer_that_does_not_say_where_it_ends_if_no_other_holds_more() -> None:
    """Its remoting port cannot be reached. Beside an empty peer, which had said 0, sends were refused for ever."""
    plan = Plan("unspoken", "other")
    plan.own_end = 0
    plan.answer("other", PeerState.SETTLED, end=0)
    plan.answer("unspoken", PeerState.LONGER)
    assert plan.takes_from("unspoken")
    plan.answer("other", PeerState.LONGER, begin=0, end=200)
    assert not plan.takes_from("unspoken")
    plan.now += PATIENCE_S
    assert plan.takes_from("other")


def test_an_empty_log_waits_for_the_longest_peer_though_that_is_gone_and_says_so() -> None:
    """However long: only an operator knows that it does not come back, and takes it out of haPeers."""
    plan = Plan("short", "long")
    plan.own_end = 0
    plan.answer("short", PeerState.LONGER, end=200)
    plan.answer("long", PeerState.LONGER, end=300)
    for _ in range(100):
        plan.now += PATIENCE_S
        plan.answer("short", PeerState.LONGER, end=200)
        plan.answer("long", PeerState.LONGER, was_reached=False, reason="connection refused")
    assert not plan.takes_from("short")
    assert "long holds messages beyond this log's end, 0 (up to 300): connection refused" in plan.plan.refusal


@pytest.mark.parametrize("is_empty", [True, False])
def test_of_one_peer_what_it_holds_is_taken_at_once(is_empty: bool) -> None:
    plan = Plan("a")
    assert plan.takes_from("a", is_empty=is_empty)
    plan.answer("a", PeerState.SETTLED)
    assert not plan.takes_from("a", is_empty=is_empty)


def test_a_peer_is_long_unknown_a_minute_after_the_first_question_in_vain() -> None:
    plan = Plan("a", "b")
    plan.answer("a", PeerState.SETTLED)
    told = []
    for _ in range(8):
        plan.answer("b", PeerState.UNKNOWN, was_reached=False, reason="refused")
        told.append([peer.peer for peer in plan.plan.long_unknown(now=plan.now)])
        plan.now += 10
    assert told == [[]] * 7 + [["b"]]
    plan.answer("b", PeerState.SETTLED)
    assert plan.plan.long_unknown(now=plan.now) == []
    plan.answer("b", PeerState.UNKNOWN, was_reached=False)
    assert plan.plan.long_unknown(now=plan.now + 90) == [], "what it holds was seen"


def test_whose_tables_do_for_one_that_does_not_tell_its_own() -> None:
    plan = Plan("a", "b", "c")
    plan.own_end = 0
    plan.answer("a", PeerState.LONGER, begin=0, end=200)
    plan.answer("b", PeerState.LONGER, begin=150, end=250)
    plan.answer("c", PeerState.LONGER, begin=150, end=300)
    ends: tuple[tuple[int, list[str]], ...] = (
        (200, ["c", "b"]),
        (250, ["c", "b"]),
        (251, ["c"]),
        (300, ["c"]),
        (301, []),
    )
    assert [plan.plan.no_shorter("a", LogRange(0, end)) for end, _ in ends] == [told for _, told in ends]
    assert plan.plan.no_shorter("c", LogRange(150, 300)) == [], "not by itself, nor by a shorter one"
    assert plan.plan.no_shorter("a", None) == []
    plan.answer("c", PeerState.UNFIT, end=300)
    assert plan.plan.no_shorter("a", LogRange(0, 200)) == ["b"]


BEHIND = PeerAnswer(PeerState.UNFIT, "it begins later", end=300, begin=250, error=StoreError("!"), begins_behind=True)


@pytest.mark.parametrize(
    ("state", "known", "waits"),
    [
        (PeerState.STARTING, {}, True),
        (PeerState.LONGER, {"begin": 0, "end": 200}, True),
        (PeerState.LONGER, {"begin": 99, "end": 200}, True),
        (PeerState.LONGER, {"begin": 100, "end": 200}, False),
        (PeerState.LONGER, {}, True),
        (PeerState.UNKNOWN, {"end": 200}, True),
        (PeerState.UNKNOWN, {}, False),
        (PeerState.SETTLED, {"end": 100}, False),
        (PeerState.UNFIT, {"begin": 0, "end": 200}, False),
    ],
)
def test_a_log_that_begins_behind_this_one_is_fit_while_another_may_bring_what_is_between(
    state: PeerState, known: dict[str, int], waits: bool
) -> None:
    plan = Plan("other", "behind")
    other, behind = plan.plan.peers
    plan.answer("other", state, **known)
    answer = plan.plan.beside_others(behind, BEHIND, own_end=100)
    assert (answer.state, answer.error is None) == ((PeerState.LONGER, True) if waits else (PeerState.UNFIT, False))
    assert ("begins at 250, and what lies before that is awaited of other" in answer.reason) == waits
    unfit = replace(BEHIND, begins_behind=False)
    assert plan.plan.beside_others(behind, unfit, own_end=100) is unfit, "it is of another group, say"
    assert "awaited of other" not in plan.plan.beside_others(other, BEHIND, own_end=100).reason, "nor for itself"


def test_why_a_peer_is_unfit_stays_known_while_it_is_away() -> None:
    """That it refused connections was told as if it did not belong to the group."""
    plan = Plan("a")
    plan.answer("a", PeerState.UNFIT, reason="its brokerName is b")
    plan.answer("a", PeerState.UNKNOWN, was_reached=False, reason="Connection refused")
    (peer,) = plan.plan.peers
    assert (peer.state, peer.reason) == (PeerState.UNFIT, "its brokerName is b")
