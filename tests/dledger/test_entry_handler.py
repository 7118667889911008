"""What a follower makes of a leader's pushes, in whatever order they come."""

import errno
import random
from dataclasses import replace
from math import inf

import pytest

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.entry_handler import EntryHandler
from rmqha.dledger.push_entry import PushEntryRequest, PushType
from rmqha.errors import StoreWriteError
from tests.dledger.members import DATA_SIZE, LEADER, all_of, bodies_of, follow, follower, lead, leader, put, take
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode


class Pushed:
    """A follower, and its leader, whose pushes are answered at once."""

    def __init__(self, **sizes: int) -> None:
        self.store = follower(SimDisk().mount(), acks_flushed=False, **sizes)
        self.handler = EntryHandler[int](self.store, acks_flushed=False)

    def push(self, kind: PushType, *entries: DLedgerEntry, term: int = 1, commit_index: int = -1) -> int:
        request = PushEntryRequest(kind, term, LEADER, commit_index, entries)
        refusal = self.handler.handle_push(request, 0, now=0.0)
        [response] = [refusal] if refusal else [answer for _, answer in self.handler.step(now=0.0)]
        return response.code


@pytest.mark.parametrize("commit_index", [-1, 2])
def test_a_late_truncate_takes_back_nothing_that_was_acknowledged_since(commit_index: int) -> None:
    """One that its leader gave up waiting for may arrive by the old connection, behind what came by the new one."""
    one, two, three = put(leader(SimDisk().mount()), b"one", b"two", b"three")
    pushed = Pushed()
    assert pushed.push(PushType.TRUNCATE, one) == Code.SUCCESS
    assert pushed.push(PushType.APPEND, two) == Code.SUCCESS
    assert pushed.push(PushType.APPEND, three, commit_index=commit_index) == Code.SUCCESS
    assert pushed.push(PushType.TRUNCATE, one) == Code.SUCCESS
    assert all_of(pushed.store) == [one, two, three]
    assert pushed.handler.diverged is None, "nobody is alarmed"


def test_a_late_truncate_takes_back_nothing_that_was_cut_to_since() -> None:
    """A follower that has cut is counted on up to there, though nothing was pushed yet."""
    one, two, three = put(leader(SimDisk().mount()), b"one", b"two", b"three")
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, one)
    pushed.push(PushType.APPEND, two, three)
    follow(pushed.store, 2)
    assert pushed.push(PushType.TRUNCATE, three, term=2) == Code.SUCCESS
    assert pushed.push(PushType.TRUNCATE, one, term=2) == Code.SUCCESS
    assert all_of(pushed.store) == [one, two, three]


def diverged_from_the_next_leader(*, committed: int = 2, later: int = 2) -> tuple[Pushed, list[DLedgerEntry]]:
    """As of DLedger's: who leads again compares first where it had stopped as leader of a former term, and cuts."""
    entries = put(leader(SimDisk().mount()), b"one", b"two", b"three")
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, entries[0])
    assert pushed.push(PushType.APPEND, *entries[1:], commit_index=2) == Code.SUCCESS
    follow(pushed.store, 2)
    assert pushed.push(PushType.COMPARE, entries[0], term=2, commit_index=committed) == Code.SUCCESS
    assert pushed.push(PushType.TRUNCATE, entries[0], term=2, commit_index=later) == Code.INCONSISTENT_STATE
    assert pushed.handler.diverged is not None
    return pushed, entries


def test_a_log_that_is_found_to_be_the_leader_s_is_diverged_no_more() -> None:
    """Up to what is committed: what is equal before that says nothing about it."""
    pushed, entries = diverged_from_the_next_leader()
    assert pushed.push(PushType.COMPARE, entries[1], term=2) == Code.SUCCESS
    assert pushed.handler.diverged is not None
    other = replace(entries[2], body=b"THREE")
    assert pushed.push(PushType.COMPARE, other, term=2) == Code.INCONSISTENT_STATE
    assert pushed.handler.diverged is not None
    assert pushed.push(PushType.COMPARE, entries[2], term=2) == Code.SUCCESS
    assert pushed.handler.diverged is None
    assert all_of(pushed.store) == entries
    assert pushed.push(PushType.TRUNCATE, entries[0], term=2) == Code.SUCCESS, "late, and cuts nothing"
    assert all_of(pushed.store) == entries


@pytest.mark.parametrize(
    ("first", "later", "term_of_last", "expected"),
    [
        (2, 2, 1, False),
        (-1, -1, 2, False),
        (2, 3, 1, True),
        (3, 3, 2, True),
        (3, 3, 1, False),
    ],
    ids=["no news", "nothing committed", "more is committed", "its own term's is committed", "a former term's is"],
)
def test_who_differs_from_what_a_quorum_goes_on_with_is_not_to_lead(
    first: int, later: int, term_of_last: int, *, expected: bool
) -> None:
    """Only what was committed under that leader proves a quorum: a foreign log tells of commits, too."""
    entries = put(leader(SimDisk().mount()), b"one", b"two", b"three", b"four")
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, entries[0])
    assert pushed.push(PushType.APPEND, *entries[1:], commit_index=3) == Code.SUCCESS
    follow(pushed.store, 2)
    last = replace(entries[3], body=b"FOUR", term=term_of_last)
    assert pushed.push(PushType.COMPARE, last, term=2, commit_index=first) == Code.INCONSISTENT_STATE
    assert not pushed.handler.is_outvoted
    other = replace(entries[1], body=b"TWO")
    assert pushed.push(PushType.TRUNCATE, other, term=2, commit_index=later) == Code.INCONSISTENT_STATE
    assert not pushed.handler.is_outvoted, "its next comparison may show the same log"
    assert pushed.push(PushType.COMPARE, last, term=2, commit_index=later) == Code.INCONSISTENT_STATE
    assert pushed.push(PushType.TRUNCATE, other, term=2, commit_index=later) == Code.INCONSISTENT_STATE
    assert pushed.handler.is_outvoted is expected
    follow(pushed.store, 3)
    for _ in range(2):
        assert pushed.push(PushType.TRUNCATE, other, term=3, commit_index=later) == Code.INCONSISTENT_STATE
        assert pushed.handler.is_outvoted is expected, "the next leader has proved nothing, and takes nothing back"
    assert pushed.push(PushType.COMPARE, entries[3], term=3) == Code.SUCCESS
    assert not pushed.handler.is_outvoted


def test_what_a_quorum_had_of_a_former_leader_proves_nothing_for_the_next() -> None:
    """Who follows that one alone, and has what the group committed, would not lead either: nobody would."""
    entries = put(leader(SimDisk().mount()), b"one", b"two", b"three")
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, entries[0])
    assert pushed.push(PushType.APPEND, *entries[1:], commit_index=2) == Code.SUCCESS
    assert pushed.push(PushType.COMMIT, commit_index=2) == Code.SUCCESS
    follow(pushed.store, 2)
    for _ in range(3):
        assert pushed.push(PushType.TRUNCATE, entries[0], term=2, commit_index=2) == Code.INCONSISTENT_STATE
        assert pushed.handler.diverged is not None
        assert not pushed.handler.is_outvoted


def test_who_is_asked_to_cut_by_a_leader_that_compares_where_it_had_stopped_may_lead() -> None:
    """Its log may be the longest there is, and that leader lost before it compares at its own end."""
    pushed, entries = diverged_from_the_next_leader(committed=1, later=2)
    assert not pushed.handler.is_outvoted, "that one entry is the same says nothing about those behind it"
    assert pushed.push(PushType.COMPARE, entries[2], term=2, commit_index=2) == Code.SUCCESS
    assert pushed.push(PushType.COMPARE, entries[0], term=2, commit_index=2) == Code.SUCCESS
    follow(pushed.store, 3)
    for term, commit_index in ((3, 1), (3, 2)):
        assert pushed.push(PushType.COMPARE, entries[0], term=term, commit_index=commit_index) == Code.SUCCESS
    assert pushed.push(PushType.TRUNCATE, entries[0], term=3, commit_index=2) == Code.INCONSISTENT_STATE
    assert not pushed.handler.is_outvoted, "another leader has asked for that before"


async def test_a_late_truncate_to_what_has_been_deleted_since_alarms_nobody() -> None:
    """What is known to be as that leader has it lies behind (seed 27222)."""
    entries = put(leader(SimDisk().mount()), *[bytes(200)] * 6)
    pushed = Pushed()
    assert pushed.push(PushType.TRUNCATE, entries[0]) == Code.SUCCESS
    for entry in entries[1:]:
        pushed.push(PushType.APPEND, entry, commit_index=entry.index)
    data = pushed.store.data_file_list
    assert await data.delete_expired_file_by_time(lambda _path: True, kept_from=data.max_wrote_position) > 0
    pushed.store.revise_ledger_begin_index()
    assert pushed.store.ledger_begin_index > 0
    pushed.push(PushType.TRUNCATE, entries[0])
    assert pushed.handler.diverged is None
    assert pushed.store.ledger_end_index == 5


def test_what_does_not_fit_is_said_until_something_does() -> None:
    """Files of another size: the leader only hears that it is to compare, again and again."""
    one, *others = put(leader(SimDisk().mount()), *[bytes(200)] * 3)
    pushed = Pushed(mapped_file_size_for_entry_data=2 * DATA_SIZE)
    assert pushed.push(PushType.TRUNCATE, one) == Code.SUCCESS
    assert pushed.push(PushType.APPEND, others[0]) == Code.SUCCESS
    assert pushed.handler.misfit == ""
    for kind, entry in ((PushType.APPEND, others[1]), (PushType.COMPARE, others[0]), (PushType.TRUNCATE, others[0])):
        pushed.push(kind, entry)
        assert "is mappedFileSizeForEntryData the same?" in pushed.handler.misfit
    pushed.push(PushType.APPEND, replace(others[1], pos=others[0].pos + others[0].size))
    assert pushed.handler.misfit == ""


def test_another_leader_may_have_what_fits() -> None:
    pushed = Pushed()
    [entry] = put(leader(SimDisk().mount()), b"one")
    pushed.push(PushType.TRUNCATE, replace(entry, index=7, pos=DATA_SIZE - 10))
    assert "is mappedFileSizeForEntryData the leader's?" in pushed.handler.misfit
    follow(pushed.store, 2)
    pushed.handler.step(now=0.0)
    assert pushed.handler.misfit == ""


def test_what_differs_goes_all_the_same() -> None:
    """What a leader of an older term left, and what was there before this leader's term."""
    old = leader(SimDisk().mount())
    one, *others = put(old, b"one", b"old", b"older")
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, one)
    for other in others:
        pushed.push(PushType.APPEND, other)
    follow(pushed.store, 2)
    new_log = leader(SimDisk().mount())
    put(new_log, b"one")
    lead(new_log, 2)
    [new] = put(new_log, b"new")
    assert pushed.push(PushType.COMPARE, one, term=2) == Code.SUCCESS
    assert pushed.push(PushType.TRUNCATE, one, term=2) == Code.SUCCESS
    assert bodies_of(pushed.store) == [b"one"]
    assert pushed.push(PushType.APPEND, new, term=2) == Code.SUCCESS
    assert all_of(pushed.store) == [one, new]


def test_many_questions_at_once_are_answered_some_at_a_time() -> None:
    """For each an entry is read, which may have 4 MiB; a leader asks one, who is none may ask a thousand."""
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, *put(leader(SimDisk().mount()), b"one"))
    request = PushEntryRequest(PushType.COMMIT, 1, LEADER, 0, ())
    for token in range(40):
        assert pushed.handler.handle_push(request, token, now=0.0) is None
    told, steps = list[int](), 0
    while pushed.handler.due_at == -inf:
        told += [token for token, _ in pushed.handler.step(now=0.0)]
        steps += 1
    assert (told, steps, pushed.handler.due_at) == ([*range(40)], 3, inf)


class TestCodes:
    """Spec: dledger §3.6, §5.7, §7.2 W1."""

    @pytest.fixture
    def pushed(self) -> Pushed:
        pushed = Pushed()
        pushed.push(PushType.TRUNCATE, *put(leader(SimDisk().mount()), b"one"))
        return pushed

    @pytest.mark.parametrize("kind", [PushType.COMPARE, PushType.TRUNCATE, PushType.COMMIT])
    def test_who_does_not_lead_this_member(self, pushed: Pushed, kind: PushType) -> None:
        [entry] = all_of(pushed.store)
        assert pushed.push(kind, entry, term=2) == Code.INCONSISTENT_TERM
        pushed.store.member_state.leader_id = "n7"
        assert pushed.push(kind, entry) == Code.INCONSISTENT_LEADER
        pushed.store.member_state.change_to_candidate()
        assert pushed.push(kind, entry) == Code.NOT_FOLLOWER
        assert pushed.push(PushType.APPEND, entry) == Code.INCONSISTENT_STATE

    def test_what_is_held_already(self, pushed: Pushed) -> None:
        later = put(leader(SimDisk().mount()), b"one", b"two", b"three")[2]
        request = PushEntryRequest(PushType.APPEND, 1, LEADER, -1, (later,))
        assert pushed.handler.handle_push(request, 0, now=0.0) is None
        refusal = pushed.handler.handle_push(request, 1, now=0.0)
        assert refusal is not None
        assert refusal.code == Code.REPEATED_PUSH

    def test_too_many_questions(self, pushed: Pushed) -> None:
        request = PushEntryRequest(PushType.COMMIT, 1, LEADER, 0, ())
        refusals = [pushed.handler.handle_push(request, token, now=0.0) for token in range(1025)]
        assert refusals[:-1] == [None] * 1024
        assert refusals[-1] is not None
        assert refusals[-1].code == Code.PUSH_REQUEST_IS_FULL

    def test_too_many_appends(self, pushed: Pushed) -> None:
        """Behind a gap; a leader has half as many under way."""
        [_, second] = put(leader(SimDisk().mount()), b"one", b"two")
        later = [PushEntryRequest(PushType.APPEND, 1, LEADER, -1, (replace(second, index=n),)) for n in range(5, 2054)]
        refusals = [pushed.handler.handle_push(request, 0, now=0.0) for request in later]
        assert refusals[:-1] == [None] * 2048
        assert refusals[-1] is not None
        assert refusals[-1].code == Code.INCONSISTENT_STATE

    def test_no_entry(self, pushed: Pushed) -> None:
        assert pushed.push(PushType.COMPARE) == Code.UNEXPECTED_ARGUMENT


def test_a_gap_is_waited_for_no_longer_though_pushes_go_on_to_come() -> None:
    """Else a leader that lost one of many would hear of it only when it has nothing more to push."""
    _, two, three, four = put(leader(SimDisk().mount()), b"one", b"two", b"three", b"four")
    pushed = Pushed()
    for token, (entry, now) in enumerate(((two, 0.0), (three, 0.9), (four, 1.5))):
        answers = pushed.handler.step(now=now)
        assert [(answered, answer.code) for answered, answer in answers] == (
            [] if now < 1 else [(0, Code.INCONSISTENT_STATE)]
        )
        request = PushEntryRequest(PushType.APPEND, 1, LEADER, -1, (entry,))
        assert pushed.handler.handle_push(request, token, now=now) is None
        assert pushed.handler.step(now=now) == []
        assert pushed.handler.due_at == (1.0 if now < 1 else 1.9)


LARGE_FILES = {"mapped_file_size_for_entry_data": 1 << 20, "mapped_file_size_for_entry_index": 1 << 20}


def pushed_batch(pushed: Pushed) -> PushEntryRequest:
    """So many entries behind the first, which the follower has."""
    one, *others = put(leader(SimDisk().mount(), **LARGE_FILES), *[b"%d" % number for number in range(5001)])
    assert pushed.push(PushType.TRUNCATE, one) == Code.SUCCESS
    return PushEntryRequest(PushType.APPEND, 1, LEADER, 5000, tuple(others))


def steps_of(pushed: Pushed) -> tuple[list[int], list[tuple[int, int]]]:
    """Where the log ended after each step, and the answers."""
    ends, told = list[int](), list[tuple[int, int]]()
    while not ends or pushed.handler.due_at == -inf:
        told += [(token, answer.code) for token, answer in pushed.handler.step(now=0.0)]
        ends.append(pushed.store.ledger_end_index)
    return ends, told


def test_a_large_batch_is_stored_and_compared_in_turns() -> None:
    """A leader of Java's may push 30,000 small entries at once."""
    pushed = Pushed(**LARGE_FILES)
    request = pushed_batch(pushed)
    assert pushed.handler.handle_push(request, 7, now=0.0) is None
    ends, told = steps_of(pushed)
    assert len(ends) == 3 == len({*ends})
    assert (ends[-1], told) == (5000, [(7, Code.SUCCESS)])
    assert pushed.store.committed_index == 5000
    assert pushed.handler.handle_push(request, 8, now=0.0) is None
    ends, told = steps_of(pushed)
    assert (len(ends), told) == (3, [(8, Code.SUCCESS)])
    last = replace(request.entries[-1], body=b"another")
    assert pushed.handler.handle_push(replace(request, entries=(*request.entries[:-1], last)), 9, now=0.0) is None
    assert steps_of(pushed) == ([5000] * 3, [(9, Code.INCONSISTENT_STATE)])


def test_a_batch_that_is_begun_is_answered_when_its_leader_is_replaced() -> None:
    pushed = Pushed(**LARGE_FILES)
    request = pushed_batch(pushed)
    assert pushed.handler.handle_push(request, 7, now=0.0) is None
    assert not pushed.handler.step(now=0.0)
    follow(pushed.store, 2)
    assert steps_of(pushed)[1] == [(7, Code.NOT_FOLLOWER)]
    assert pushed.store.ledger_end_index < 5000


@pytest.mark.parametrize("kind", [PushType.COMPARE, PushType.TRUNCATE])
def test_a_question_has_one_entry(kind: PushType) -> None:
    """With thousands each would be compared in one step."""
    pushed = Pushed()
    assert pushed.push(kind, *put(leader(SimDisk().mount()), b"one", b"two")) == Code.UNEXPECTED_ARGUMENT


def test_a_late_truncate_takes_back_nothing_though_an_earlier_entry_was_compared_since() -> None:
    """A leader that was not heard of for a while compares anew, and what it knew before is still acknowledged."""
    one, two, three = put(leader(SimDisk().mount()), b"one", b"two", b"three")
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, one)
    assert pushed.push(PushType.APPEND, two, three) == Code.SUCCESS
    assert pushed.push(PushType.COMPARE, one) == Code.SUCCESS
    assert pushed.push(PushType.TRUNCATE, one) == Code.SUCCESS
    assert all_of(pushed.store) == [one, two, three]


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_what_was_equal_and_is_damaged_since_is_replaced(damaged: int) -> None:
    """The leader finds out what is still as it has it, and cuts there; what it knew before would keep the damage."""
    entries = put(leader(SimDisk().mount()), *[b"%d" % number for number in range(5)])
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, entries[0])
    assert pushed.push(PushType.APPEND, *entries[1:]) == Code.SUCCESS
    file = pushed.store.data_file_list.mapped_files[0]
    file.file().pwrite([b"?"], entries[damaged].pos + BODY_OFFSET)
    for index in range(4, 0, -1):
        expected = Code.INCONSISTENT_STATE if index == damaged else Code.SUCCESS
        assert pushed.push(PushType.COMPARE, entries[index]) == expected
    assert pushed.push(PushType.TRUNCATE, entries[damaged - 1]) == Code.SUCCESS
    assert all_of(pushed.store) == entries[:damaged]
    assert pushed.push(PushType.APPEND, *entries[damaged:]) == Code.SUCCESS
    assert all_of(pushed.store) == entries


@pytest.mark.parametrize("seed", range(20))
def test_in_whatever_order_one_leader_s_pushes_come_what_was_acknowledged_stays(seed: int) -> None:
    """By several connections, of which those that were given up may be late with any of what it ever sent."""
    chance = random.Random(seed)
    entries = put(leader(SimDisk().mount()), *[b"%d" % number for number in range(12)])
    pushed = Pushed()
    pushed.push(PushType.TRUNCATE, entries[0])
    has = 0
    for now in range(0, 1000, 2):
        kind = chance.choice((PushType.APPEND, PushType.APPEND, PushType.COMPARE, PushType.TRUNCATE, PushType.COMMIT))
        first = chance.randrange(has + 1 if kind is PushType.TRUNCATE else min(has + 4, len(entries)))
        count = chance.randrange(1, 4) if kind is PushType.APPEND else int(kind is not PushType.COMMIT)
        commit_index = chance.randrange(-1, has + 1)
        request = PushEntryRequest(kind, 1, LEADER, commit_index, tuple(entries[first : first + count]))
        refusal = pushed.handler.handle_push(request, now, now=now)
        answers = [refusal] if refusal else [answer for _, answer in pushed.handler.step(now=now)]
        for answer in answers:
            if answer.code == Code.SUCCESS:
                has = max(has, answer.index + answer.count - 1)
        assert pushed.store.ledger_end_index >= has
        assert all_of(pushed.store) == entries[: pushed.store.ledger_end_index + 1]
    assert has == len(entries) - 1
    assert pushed.handler.diverged is None


async def test_what_is_equal_is_told_once_it_is_durable() -> None:
    """The leader counts it from then on, as if it had been pushed."""
    one, two = put(leader(SimDisk().mount()), b"one", b"two")
    store = follower(SimDisk(latency_s=(0, 0)).mount())
    handler = EntryHandler[PushType](store, acks_flushed=True)
    told = list[tuple[PushType, int]]()
    for kind, entry in ((PushType.TRUNCATE, one), (PushType.APPEND, two), (PushType.COMPARE, two)):
        assert handler.handle_push(PushEntryRequest(kind, 1, LEADER, -1, (entry,)), kind, now=0.0) is None
        told += [(token, answer.code) for token, answer in handler.step(now=0.0)]
    assert all(code == Code.NOT_FOLLOWER for _, code in told), "they are to be pushed again"
    assert await store.flush_in_thread()
    assert [(token, answer.code) for token, answer in handler.step(now=0.0)] == [(PushType.COMPARE, Code.SUCCESS)]


async def test_what_no_flush_makes_durable_any_more_is_not_stored() -> None:
    """Its leader would count it, and acknowledge what only a kernel's memory has."""
    (one,) = put(leader(SimDisk().mount()), b"one")
    store = follower(SimDisk(latency_s=(0, 0)).mount())
    handler = EntryHandler[None](store, acks_flushed=True)
    compare, append = (PushEntryRequest(kind, 1, LEADER, -1, (one,)) for kind in (PushType.COMPARE, PushType.APPEND))
    assert handler.step(now=0.0) == []
    assert handler.handle_push(append, None, now=0.0) is None
    assert handler.step(now=0.0) == []
    store.fail(StoreWriteError(OSError(errno.EIO, "it is broken"), operation="fdatasync", path="/store/data"))
    assert [answer.code for _, answer in handler.step(now=0.0)] == [Code.INCONSISTENT_STATE]
    assert handler.handle_push(compare, None, now=0.0) is None
    assert [answer.code for _, answer in handler.step(now=0.0)] == [Code.INCONSISTENT_STATE]


@pytest.mark.parametrize("kind", [PushType.APPEND, PushType.COMPARE, PushType.TRUNCATE])
async def test_what_is_stored_is_told_once_the_file_has_the_vote_for_its_leader(kind: PushType) -> None:
    """Restarted before, this member could vote for another in the same term, and take back what is counted on."""
    (one,) = put(leader(SimDisk().mount()), b"one")
    store = follower(SimDisk(latency_s=(0, 0)).mount())
    handler = EntryHandler[None](store, acks_flushed=True)
    assert handler.step(now=0.0) == []
    if kind is not PushType.APPEND:
        take(store, one)
    store.member_state.is_saved = False
    assert handler.handle_push(PushEntryRequest(kind, 1, LEADER, -1, (one,)), None, now=0.0) is None
    handler.step(now=0.0)
    assert await store.flush_in_thread()
    assert handler.step(now=0.0) == []
    store.member_state.is_saved = True
    assert [answer.code for _, answer in handler.step(now=0.0)] == [Code.SUCCESS]


def test_a_log_is_known_to_be_the_leader_s_by_its_comparison_and_by_what_it_pushes() -> None:
    entries = put(leader(SimDisk().mount()), *[b"%d" % number for number in range(4)])
    pushed = Pushed()
    assert not pushed.handler.has_leaders_log
    assert pushed.push(PushType.TRUNCATE, entries[0]) == Code.SUCCESS
    for entry in entries[1:3]:
        pushed.push(PushType.APPEND, entry)
    assert pushed.handler.has_leaders_log
    pushed.push(PushType.COMPARE, replace(entries[1], body=b"other"))
    assert not pushed.handler.has_leaders_log
    pushed.push(PushType.COMPARE, entries[1])
    assert not pushed.handler.has_leaders_log, "of what lies behind it nothing is known"
    pushed.push(PushType.COMPARE, entries[2])
    assert pushed.handler.has_leaders_log
    follow(pushed.store, 3)
    assert not pushed.handler.has_leaders_log, "another one leads"
    lead(pushed.store, 4)
    assert not pushed.handler.has_leaders_log
