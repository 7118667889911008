"""What a leader pushes to one follower, and when."""

import errno
import random
from dataclasses import replace
from typing import NoReturn

import pytest

from rmqha.codec.dledger_entry import BODY_OFFSET, encode_header
from rmqha.dledger import entry_dispatcher
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.entry_dispatcher import EntryDispatcher, PushOptions
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from rmqha.errors import StoreReadError
from tests.dledger.defaults import default
from tests.dledger.members import leader, put
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode
PEERS = frozenset({"n0", "n1"})


class Follower:
    """Of one dispatcher; takes everything, unless told otherwise."""

    def __init__(self, store: DLedgerMmapFileStore, options: PushOptions | None = None) -> None:
        self.store = store
        checker = QuorumAckChecker(PEERS, inherited_index=-1, max_pending_requests_num=10)
        self.checker = checker
        self.dispatcher = EntryDispatcher("n1", store, checker, options=options or default(PushOptions))
        self.end = -1
        self.refuses = False
        self.now = 0.0

    def poll(self) -> list[PushEntryRequest]:
        return self.dispatcher.poll(now=self.now)

    def answer(self, requests: list[PushEntryRequest]) -> None:
        for request in requests:
            code = Code.SUCCESS
            match request.type:
                case PushType.COMPARE:
                    code = Code.SUCCESS if request.first_entry_index <= self.end else Code.INCONSISTENT_STATE
                case PushType.TRUNCATE:
                    self.end = request.first_entry_index
                case PushType.APPEND if self.refuses:
                    code = Code.INCONSISTENT_STATE
                case PushType.APPEND:
                    self.end = request.last_entry_index
            begin = 0 if self.end >= 0 else -1
            response = PushEntryResponse(
                code, request.term, request.first_entry_index, len(request.entries), begin, self.end
            )
            self.dispatcher.on_answer(request, response, now=self.now)

    def converge(self) -> None:
        while self.end < self.store.ledger_end_index:
            requests = self.poll()
            assert requests, "it has nothing to send, and is not done"
            self.answer(requests)


def kinds(requests: list[PushEntryRequest]) -> list[PushType]:
    return [request.type for request in requests]


def test_one_entry_a_request_or_several() -> None:
    """Spec: dledger §3.3, §3.4."""
    store = leader(SimDisk().mount())
    single = Follower(store, default(PushOptions, is_enable_batch_push=False))
    put(store, b"first")
    single.converge()
    put(store, *[b"x" * 100] * 10)
    assert [len(request.entries) for request in single.poll()] == [1] * 10
    batches = Follower(store, default(PushOptions, is_enable_batch_push=True, max_batch_push_size=444))
    batches.end = 0
    batches.answer(batches.poll())
    batches.answer(batches.poll())
    assert [len(request.entries) for request in batches.poll()] == [3, 3, 3, 1]


def test_an_answer_to_a_batch_is_one_to_each_of_its_entries() -> None:
    """One that still counted as under way would fill the window, and have all compared again."""
    store = leader(SimDisk().mount())
    put(store, b"first")
    follower = Follower(store, default(PushOptions, is_enable_batch_push=True, max_batch_push_size=444))
    follower.converge()
    put(store, *[b"x" * 100] * 10)
    follower.answer(follower.poll())
    assert follower.checker.water_mark("n1") == 10
    follower.now = default(PushOptions).max_push_time_out_s
    assert kinds(follower.poll()) == [PushType.COMMIT], "nothing is under way"


def test_much_is_pushed_in_turns() -> None:
    store = leader(SimDisk().mount(), mapped_file_size_for_entry_data=1 << 20, mapped_file_size_for_entry_index=1 << 20)
    put(store, b"first")
    follower = Follower(store, default(PushOptions, is_enable_batch_push=False))
    follower.converge()
    put(store, *[b"x"] * 1200)
    sent = []
    while requests := follower.poll():
        assert len(requests) <= 128
        sent += requests
        if follower.dispatcher.due_at > follower.now:
            break
    assert len(sent) == 1000, "the window"
    follower.answer(sent)
    assert len(follower.poll()) == 128


@pytest.mark.parametrize(("limit", "value"), [("_PENDING_MAX", 10), ("_PENDING_BYTES_MAX", 1000)])
def test_only_what_has_no_answer_yet_holds_more_back(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a follower takes in one leadership; else it would get nothing more, and never be asked why."""
    monkeypatch.setattr(entry_dispatcher, limit, value)
    store, chance = leader(SimDisk().mount(), mapped_file_size_for_entry_data=1 << 20), random.Random(1)
    put(store, b"first")
    follower, held = Follower(store, default(PushOptions, is_enable_batch_push=False)), list[PushEntryRequest]()
    follower.converge()
    put(store, *[bytes(100 - BODY_OFFSET)] * 100)
    while follower.end < store.ledger_end_index:
        held += follower.poll()
        assert len(held) == min(10, store.ledger_end_index - follower.end), "so many are under way"
        taken = chance.randint(1, len(held))
        follower.answer(held[:taken])
        del held[:taken]


def test_who_refuses_twice_is_cut_at_its_end_and_asked_less_often() -> None:
    """§7.2 W5: a follower of DLedger's with garbage behind its end would be stuck; one without a disk, a hot loop."""
    store = leader(SimDisk().mount())
    put(store, b"first")
    follower = Follower(store)
    follower.converge()
    follower.refuses = True
    put(store, b"second")
    seen = list[PushType]()
    for _ in range(100):
        follower.now += 0.01
        requests = follower.poll()
        seen += kinds(requests)
        follower.answer(requests)
    assert PushType.TRUNCATE in seen
    assert len(seen) < 15
    follower.refuses = False
    follower.now += 1
    follower.converge()
    assert follower.checker.water_mark("n1") == 1


def test_who_refuses_twice_is_cut_though_it_had_more_when_it_was_compared_before() -> None:
    """Between its end now and what differed then there is nothing to be compared: that would go on for ever."""
    store = leader(SimDisk().mount())
    put(store, *[b"x"] * 20)
    follower = Follower(store)
    (compare,) = follower.poll()
    longer = PushEntryResponse(Code.INCONSISTENT_STATE, compare.term, compare.first_entry_index, 1, 0, 19)
    follower.dispatcher.on_answer(compare, longer, now=0.0)
    follower.dispatcher.on_disconnected(now=0.0)
    follower.end, follower.refuses = 5, True
    seen = list[PushType]()
    for _ in range(100):
        follower.now += 0.02
        requests = follower.poll()
        seen += kinds(requests)
        follower.answer(requests)
    assert PushType.TRUNCATE in seen


def test_what_was_equal_before_the_connection_ended_is_not_cut_to() -> None:
    """The follower may be another by now, or have lost its disk: its log would begin with what it never compared."""
    store = leader(SimDisk().mount())
    put(store, *[b"x"] * 20)
    follower, equal = Follower(store), False
    while not equal:
        (compare,) = follower.poll()
        assert compare.type is PushType.COMPARE
        equal = compare.first_entry_index <= 5
        code = Code.SUCCESS if equal else Code.INCONSISTENT_STATE
        response = PushEntryResponse(code, compare.term, compare.first_entry_index, 1, 0, 19)
        follower.dispatcher.on_answer(compare, response, now=0)
    follower.dispatcher.on_disconnected(now=0)
    asked = list[PushEntryRequest]()
    while kinds(asked[-1:]) != [PushType.TRUNCATE]:
        asked += follower.poll()
        follower.answer(asked[-1:])
    assert asked[-1].first_entry_index == 0
    follower.converge()


def test_who_has_deleted_what_was_equal_is_cut_to_its_first_entry() -> None:
    """What it has is a deposed leader's; what it had before that is committed, and it would not be cut to that."""
    store = leader(SimDisk().mount())
    put(store, *[b"x"] * 9)
    follower = Follower(store)
    request = None
    while request is None or request.type is PushType.COMPARE:
        if request is not None:
            response = PushEntryResponse(Code.INCONSISTENT_STATE, request.term, request.first_entry_index, 1, 5, 7)
            follower.dispatcher.on_answer(request, response, now=0)
        (request,) = follower.poll()
    assert (request.type, request.first_entry_index) == (PushType.TRUNCATE, 5)


def test_who_is_far_behind_gets_its_quota() -> None:
    """Spec: dledger §3.5, with batches too (§7.3 row 16)."""
    for batch in (False, True):
        store = leader(
            SimDisk().mount(), mapped_file_size_for_entry_data=1 << 20, mapped_file_size_for_entry_index=1 << 20
        )
        put(store, b"first")
        options = default(
            PushOptions, peer_push_throttle_point=10_000, peer_push_quota=5_000, is_enable_batch_push=batch
        )
        follower = Follower(store, options)
        follower.converge()
        put(store, *[b"x" * 52] * 3000)
        sent = 0
        for _ in range(500):
            follower.now += 0.01
            requests = follower.poll()
            sent += sum(entry.size for request in requests for entry in request.entries)
            follower.answer(requests)
        assert 5 * 5_000 <= sent <= 6 * 5_100
        assert follower.dispatcher.due_at <= follower.now + 1


@pytest.mark.parametrize(
    ("count", "size", "throttle_point"),
    [(3000, 52, 1 << 20), (30, 1000, 10_000)],
    ids=["many entries, few bytes", "few entries, many bytes"],
)
def test_who_is_behind_in_one_way_only_is_not_held_back(count: int, size: int, throttle_point: int) -> None:
    """Spec: dledger §3.5: by more than 1000 entries, and by so many bytes."""
    store = leader(SimDisk().mount(), mapped_file_size_for_entry_data=1 << 20, mapped_file_size_for_entry_index=1 << 20)
    put(store, b"first")
    follower = Follower(store, default(PushOptions, peer_push_throttle_point=throttle_point, peer_push_quota=100))
    follower.converge()
    put(store, *[b"x" * size] * count)
    follower.converge()
    assert follower.checker.water_mark("n1") == count


@pytest.mark.parametrize("quota", [5_000, 100_000], ids=["used up", "used up as the window is full"])
def test_who_has_used_up_its_quota_is_left_alone_until_it_has_more(quota: int) -> None:
    """The leader looked all the time what there was to send, with all of its processor, for most of each second."""
    store = leader(SimDisk().mount(), mapped_file_size_for_entry_data=1 << 20, mapped_file_size_for_entry_index=1 << 20)
    put(store, b"first")
    follower = Follower(store, default(PushOptions, peer_push_throttle_point=10_000, peer_push_quota=quota))
    follower.converge()
    put(store, *[b"x" * 52] * 3000)
    while follower.poll():
        pass
    assert follower.dispatcher.due_at > follower.now
    store.update_committed_index(1, 1000)
    follower.now = 0.5
    follower.poll()
    assert follower.dispatcher.due_at > follower.now


def test_an_idle_follower_hears_what_is_committed_and_shows_what_it_lost() -> None:
    """§7.3 row 9."""
    store = leader(SimDisk().mount())
    put(store, b"one", b"two")
    follower = Follower(store)
    follower.converge()
    store.update_committed_index(1, 1)
    assert follower.dispatcher.due_at == 0.05
    follower.now = follower.dispatcher.due_at
    [news] = follower.poll()
    assert (news.type, news.commit_index) == (PushType.COMMIT, 1)
    follower.end = 0
    follower.answer([news])
    assert follower.checker.water_mark("n1") == 0
    follower.converge()
    assert follower.checker.water_mark("n1") == 1


def test_who_has_less_than_it_had_is_counted_for_that() -> None:
    """It lost some, and is compared with before anything is pushed (§7.2 W2)."""
    store = leader(SimDisk().mount())
    put(store, b"one", b"two", b"three")
    follower = Follower(store)
    follower.converge()
    follower.dispatcher.on_disconnected(now=0)
    follower.end = 0
    follower.answer(follower.poll())
    assert follower.checker.water_mark("n1") == 0


def test_only_what_is_answered_is_counted() -> None:
    """Its log may go farther than what is durable there."""
    store = leader(SimDisk().mount())
    put(store, b"one")
    follower = Follower(store, default(PushOptions, is_enable_batch_push=False))
    follower.converge()
    put(store, b"two", b"three")
    first, _second = follower.poll()
    follower.end = 2
    follower.dispatcher.on_answer(first, PushEntryResponse(Code.SUCCESS, 1, 1, 1, 0, 2), now=0)
    assert follower.checker.water_mark("n1") == 1


def test_an_answer_to_what_was_pushed_in_another_term_counts_for_nothing() -> None:
    store = leader(SimDisk().mount())
    put(store, b"one")
    follower = Follower(store)
    follower.converge()
    put(store, b"two")
    [pushed] = follower.poll()
    late = PushEntryResponse(Code.SUCCESS, 0, 1, 1, 0, 1)
    follower.dispatcher.on_answer(replace(pushed, term=0), late, now=0)
    assert follower.checker.water_mark("n1") == 0


def test_what_is_under_way_when_the_connection_ends_is_asked_for() -> None:
    store = leader(SimDisk().mount())
    put(store, b"one")
    follower = Follower(store)
    follower.converge()
    put(store, b"two")
    late = follower.poll()
    follower.dispatcher.on_disconnected(now=0)
    assert kinds(follower.poll()) == [PushType.COMPARE]
    follower.dispatcher.on_answer(late[0], replace(PushEntryResponse(Code.SUCCESS, 1, 1, 1, 0, 1)), now=0)
    assert follower.checker.water_mark("n1") == 0, "an answer to what nobody waits for any more"


def test_what_cannot_be_read_is_said() -> None:
    """A damaged file: the follower would lack it for ever, and nobody know why."""
    disk = SimDisk()
    store = leader(disk.mount())
    entries = put(store, *[bytes(100)] * 3)
    store.recent.clear()
    follower = Follower(store)
    follower.end = 0
    store.data_file_list.mapped_files[0].file().pwrite([b"damage"], entries[1].pos + 8)
    for _ in range(5):
        follower.answer(follower.poll())
        follower.now += 1
    assert (follower.end, "entry 1 is at" in follower.dispatcher.unreadable) == (0, True)
    store.data_file_list.mapped_files[0].file().pwrite([encode_header(entries[1])], entries[1].pos)
    for _ in range(5):
        follower.answer(follower.poll())
        follower.now += 1
    assert (follower.end, follower.dispatcher.unreadable) == (2, "")


def test_why_nothing_can_be_read_is_said_once_for_all_entries_and_anew_for_another_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last entry is asked about first: with each that came the same damage had other words."""
    disk = SimDisk()
    store = leader(disk.mount())
    follower, said = Follower(store), set[str]()
    for _ in range(5):
        entry = put(store, bytes(10))[0]
        store.recent.clear()
        store.data_file_list.mapped_files[0].file().pwrite([b"damage"], entry.pos + 8)
        follower.answer(follower.poll())
        said.add(follower.dispatcher.unreadable)
        follower.now += 1
    assert (len(said), "entry 0 is at" in min(said)) == (1, True)

    def fail(_index: int) -> NoReturn:
        raise StoreReadError(OSError(errno.EMFILE, "Too many open files"), operation="open", path="/store/0")

    monkeypatch.setattr(store.index, "place", fail)
    follower.answer(follower.poll())
    assert "Too many open files" in follower.dispatcher.unreadable


def test_an_answer_counts_for_no_more_than_was_pushed() -> None:
    """A count that is made up, or that a follower has wrong: entries would be committed that nobody else has."""
    store = leader(SimDisk().mount())
    put(store, b"one")
    follower = Follower(store, default(PushOptions, is_enable_batch_push=False))
    follower.converge()
    put(store, b"two", b"three")
    first, _second = follower.poll()
    follower.dispatcher.on_answer(first, PushEntryResponse(Code.SUCCESS, 1, 1, 1000, 0, 1), now=0)
    assert follower.checker.water_mark("n1") == 1


def test_an_answer_without_a_count_is_one_to_the_entry_that_it_names() -> None:
    """Of DLedger 0.2.2, in RocketMQ 4.9.0 to 4.9.2 (spec: dledger §7.3 row 7)."""
    store = leader(SimDisk().mount())
    put(store, b"one")
    follower = Follower(store, default(PushOptions, is_enable_batch_push=False))
    follower.converge()
    put(store, b"two")
    [request] = follower.poll()
    follower.dispatcher.on_answer(request, PushEntryResponse(Code.SUCCESS, 1, 1, 0, 0, 1), now=0)
    assert follower.checker.water_mark("n1") == 1
    follower.now = default(PushOptions).max_push_time_out_s
    assert kinds(follower.poll()) == [PushType.COMMIT], "nothing is under way"


def test_what_was_under_way_on_connections_that_ended_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_dispatcher, "_PENDING_BYTES_MAX", 1000)
    store = leader(SimDisk().mount())
    put(store, b"first")
    follower = Follower(store)
    follower.converge()
    put(store, bytes(300))
    for _ in range(5):
        assert kinds(follower.poll()) == [PushType.APPEND]
        follower.dispatcher.on_disconnected(now=0)
        follower.answer(follower.poll())
        follower.answer(follower.poll())
    follower.converge()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_answered_no_more_counts_than_was_asked_about(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of any numbers, in any order, some of them late, or twice; and nobody who gets nothing is due at once."""
    chance = random.Random(seed)
    monkeypatch.setattr(entry_dispatcher, "_FAR_BEHIND", 5)
    monkeypatch.setattr(entry_dispatcher, "_PENDING_MAX", 8)
    store = leader(SimDisk().mount(), mapped_file_size_for_entry_data=1 << 16, mapped_file_size_for_entry_index=1 << 16)
    put(store, *[b"x"] * 50)
    options = default(PushOptions, peer_push_throttle_point=0, peer_push_quota=chance.choice((49, 300, 392, 1 << 20)))
    follower, asked, highest = Follower(store, options), list[PushEntryRequest](), -1
    for _ in range(300):
        follower.now += chance.choice((0, 0.01, 1))
        if chance.random() < 0.2:
            store.update_committed_index(1, chance.randrange(50))
        requests = follower.poll()
        asked += requests
        assert requests or follower.dispatcher.due_at > follower.now
        highest = max([highest, *(request.last_entry_index for request in asked)])
        if asked and chance.random() < 0.8:
            request = chance.choice(asked)
            code = chance.choice((Code.SUCCESS, Code.SUCCESS, Code.INCONSISTENT_STATE, Code.REPEATED_PUSH, 7))
            index = chance.choice((request.first_entry_index, request.last_entry_index, -1, 1 << 40))
            count, begin, end = (chance.choice((-(1 << 40), -1, 0, 1, 7, 49, 50, 1 << 40)) for _ in range(3))
            if code == Code.SUCCESS and request.type is not PushType.APPEND:
                end = request.last_entry_index
            follower.dispatcher.on_answer(
                request, PushEntryResponse(code, request.term, index, count, begin, end), now=follower.now
            )
        if chance.random() < 0.05:
            follower.dispatcher.on_disconnected(now=follower.now)
        assert follower.checker.water_mark("n1") <= highest
