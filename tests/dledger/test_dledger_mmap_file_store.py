"""DLedgerMmapFileStore: appending as leader and as follower, reading, cutting."""

from dataclasses import replace

import pytest
import trio
import trio.testing

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.dledger import ledger_recovery
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.vote import VoteRequest, VoteResult
from rmqha.errors import DivergedLogError, StoreLockedError
from tests.dledger.defaults import default
from tests.dledger.members import (
    DATA_SIZE,
    LEADER,
    all_of,
    bodies_of,
    cut_to,
    follow,
    follower,
    lead,
    leader,
    opened,
    put,
    take,
)
from tests.sim.sim_disk import SimDisk, SimMount

Code = DLedgerResponseCode


@pytest.fixture
def sim() -> SimDisk:
    return SimDisk(latency_s=(0, 0))


@pytest.fixture
def mount(sim: SimDisk) -> SimMount:
    return sim.mount()


def code_of(raised: pytest.ExceptionInfo[DLedgerException]) -> Code:
    return raised.value.code


def made(bodies: list[bytes], *, term: int = 1) -> list[DLedgerEntry]:
    """What a leader makes of these bodies."""
    return put(leader(SimDisk(latency_s=(0, 0)).mount(), term=term), *bodies)


def replica(mount: SimMount, entries: list[DLedgerEntry]) -> DLedgerMmapFileStore:
    store = follower(mount, term=entries[-1].term)
    cut_to(store, entries[0])
    for entry in entries[1:]:
        take(store, entry)
    return store


class TestLeader:
    def test_only_a_leader_appends(self, mount: SimMount) -> None:
        """Seed checklist, steps 1 and 4: leader role, and again under the lock (spec: dledger §2.4)."""
        store = follower(mount)
        with pytest.raises(DLedgerException) as raised:
            put(store, b"x")
        assert code_of(raised) is Code.NOT_LEADER
        store.member_state.change_to_candidate()
        with pytest.raises(DLedgerException, match="this member is CANDIDATE"):
            put(store, b"x")

    def test_a_full_disk_takes_nothing(self, mount: SimMount) -> None:
        """Seed checklist, step 1: isDiskFull (spec: dledger §2.4, §1.14)."""
        store = leader(mount)
        store.room.set_disk_full(True)
        with pytest.raises(DLedgerException) as raised:
            put(store, b"x")
        assert (code_of(raised), store.ledger_end_index) == (Code.DISK_FULL, -1)
        store.room.set_disk_full(False)
        assert put(store, b"x")[0].index == 0

    def test_who_hands_over_takes_nothing(self, mount: SimMount) -> None:
        """Seed checklist, step 4: getTransferee, LEADER_TRANSFERRING (spec: dledger §2.4)."""
        store = leader(mount)
        store.member_state.transferee = "n1"
        with pytest.raises(DLedgerException, match="leadership goes to n1") as raised:
            put(store, b"x")
        assert code_of(raised) is Code.LEADER_TRANSFERRING

    def test_indexes_terms_and_positions(self, mount: SimMount) -> None:
        """Seed checklist, steps 5, 6 and 10 (spec: dledger §2.4).

        nextIndex, term, CURRENT_MAGIC, setIndexTerm; preAppend, setPos; ledgerEndIndex, ledgerEndTerm,
        ledgerBeginIndex, updateLedgerEndIndexAndTerm.
        """
        store = leader(mount, term=0)
        first, second = put(store, b"one", b"")
        lead(store, 4)
        (third,) = put(store, b"three")
        fields = [(entry.index, entry.term, entry.pos, entry.size, entry.magic) for entry in (first, second, third)]
        assert fields == [(0, 0, 0, 51, 1), (1, 0, 51, 48, 1), (2, 4, 99, 53, 1)]
        assert (store.ledger_begin_index, store.ledger_end_index, store.ledger_end_term) == (0, 2, 4)
        assert (store.member_state.ledger_end_index, store.member_state.ledger_end_term) == (2, 4)

    def test_hooks_change_the_bytes(self, mount: SimMount) -> None:
        """Seed checklist, step 7: AppendHook.doHook(entry, slice, BODY_OFFSET) (spec: dledger §2.4, §6.1)."""
        store = leader(mount)

        def write_position(entry: DLedgerEntry, buffer: memoryview, body_offset: int) -> None:
            assert body_offset == BODY_OFFSET
            buffer[body_offset + 2 : body_offset + 4] = (entry.pos + body_offset).to_bytes(2, "big")

        store.append_hooks.append(write_position)
        put(store, b"abcd", b"efgh")
        assert bodies_of(store) == [b"ab\0\x30", b"ef\0\x64"]

    @pytest.mark.parametrize(("size", "fits"), [(DATA_SIZE - 48 - 8, True), (DATA_SIZE - 48 - 7, False)])
    def test_what_fits_into_no_file_burns_none(self, mount: SimMount, size: int, *, fits: bool) -> None:
        """DLedger ends two files with blanks for it, and refuses then (spec: dledger §2.5)."""
        store = leader(mount)
        put(store, b"first")
        before = store.data_file_list.max_wrote_position
        if fits:
            assert put(store, bytes(size))[0].pos == DATA_SIZE
            return
        with pytest.raises(DLedgerException, match="the body has 457 bytes, at most 456 can be stored") as raised:
            put(store, bytes(size))
        assert (code_of(raised), store.data_file_list.max_wrote_position) == (Code.UNEXPECTED_ARGUMENT, before)

    def test_a_buffer_s_limit(self, mount: SimMount) -> None:
        """Seed checklist, step 2: buffers of 4 MB and of 64 bytes, in which a unit fits (spec: dledger §1.2)."""
        store = leader(mount, mapped_file_size_for_entry_data=5 << 20)
        assert put(store, bytes((4 << 20) - 48))[0].size == 4 << 20
        with pytest.raises(DLedgerException) as raised:
            put(store, bytes((4 << 20) - 47))
        assert code_of(raised) is Code.UNEXPECTED_ARGUMENT

    async def test_the_first_failed_write_is_final(self, sim: SimDisk, mount: SimMount) -> None:
        """Seed checklist, steps 6 to 9: DISK_ERROR checks (spec: dledger §2.4)."""
        store = leader(mount)
        put(store, b"good")
        assert await store.flush_in_thread()
        sim.faults.write_errors = 1
        for _ in range(2):
            with pytest.raises(DLedgerException, match="pwrite failed") as raised:
                put(store, b"bad")
            assert (code_of(raised), store.ledger_end_index) == (Code.DISK_ERROR, 0)
        assert bodies_of(store) == [b"good"]
        store.close()
        assert bodies_of(opened(sim.mount())) == [b"good"]

    def test_a_next_file_that_lacks_space_is_tried_again(self, sim: SimDisk, mount: SimMount) -> None:
        store = leader(mount)
        put(store, bytes(400))
        sim.faults.full = True
        for code in (Code.DISK_ERROR, Code.DISK_FULL, Code.DISK_FULL):
            with pytest.raises(DLedgerException, match="create failed") as raised:
                put(store, b"x" * 200)
            assert (code_of(raised), store.ledger_end_index, store.write_error) == (code, 0, None)
            store.room.look()
        sim.faults.full = False
        store.room.look()
        assert store.room.refusal == ""
        assert put(store, b"x" * 200)[0].pos == DATA_SIZE
        assert bodies_of(store) == [bytes(400), b"x" * 200]

    def test_appends_do_not_try_to_make_a_file_that_could_not_be_made(self, sim: SimDisk, mount: SimMount) -> None:
        """Each attempt on a disk that is nearly full would take all that others need of it, for a moment."""
        store = leader(mount)
        put(store, bytes(400))
        sim.faults.full = True
        with pytest.raises(DLedgerException, match="create failed"):
            put(store, b"x" * 200)
        calls = sim.calls
        for _ in range(10):
            with pytest.raises(DLedgerException, match="create failed"):
                put(store, b"x" * 200)
        assert sim.calls == calls
        files = dict(sim.files)
        sim.faults.full = False
        store.room.look()
        assert sim.files == files, "what was made to see whether it can be is gone again"


class TestFollower:
    def test_entries_arrive_as_they_are(self, mount: SimMount) -> None:
        entries = made([b"one", b"two", bytes(400), b"four"])
        store = replica(mount, entries)
        assert all_of(store) == entries
        assert (store.ledger_begin_index, store.ledger_end_index, store.ledger_end_term) == (0, 3, 1)

    @pytest.mark.parametrize(
        ("changed", "term", "leader_id", "code"),
        [
            ({"index": 3}, 2, LEADER, Code.INCONSISTENT_INDEX),
            ({"index": 1}, 2, LEADER, Code.INCONSISTENT_INDEX),
            ({}, 1, LEADER, Code.INCONSISTENT_TERM),
            ({}, 3, LEADER, Code.INCONSISTENT_TERM),
            ({}, 2, "n1", Code.INCONSISTENT_LEADER),
            ({"pos": 1000}, 2, LEADER, Code.DISK_ERROR),
            ({"term": 3}, 2, LEADER, Code.UNEXPECTED_ARGUMENT),
            ({"term": 0}, 2, LEADER, Code.UNEXPECTED_ARGUMENT),
            ({"magic": 2}, 2, LEADER, Code.UNEXPECTED_ARGUMENT),
            ({"size": 50}, 2, LEADER, Code.UNEXPECTED_ARGUMENT),
            ({"body": bytes(500), "size": 548}, 2, LEADER, Code.UNEXPECTED_ARGUMENT),
            ({"channel": 1 << 40}, 2, LEADER, Code.UNEXPECTED_ARGUMENT),
        ],
    )
    def test_what_is_not_taken(
        self, sim: SimDisk, mount: SimMount, changed: dict[str, int], term: int, leader_id: str, code: Code
    ) -> None:
        """Seed checklist: INCONSISTENT_INDEX, INCONSISTENT_TERM, INCONSISTENT_LEADER (spec: dledger §1.10).

        Nothing is written of it; DLedger writes first, and looks at the position then (§7.2 W5).
        """
        entries = made([b"one", b"two", b"three"])
        store = replica(mount, entries[:2])
        follow(store, 2)
        before = {path: bytes(inode.cache) for path, inode in sim.files.items()}
        with pytest.raises(DLedgerException) as raised:
            store.append_as_follower(replace(entries[2], **changed), term, leader_id)  # type: ignore[arg-type]
        assert code_of(raised) is code
        assert {path: bytes(inode.cache) for path, inode in sim.files.items()} == before
        assert take(store, entries[2]).index == 2

    def test_a_full_disk_and_another_role(self, mount: SimMount) -> None:
        """Seed checklist: NOT_FOLLOWER, DISK_FULL (spec: dledger §1.10)."""
        entries = made([b"one", b"two"])
        store = replica(mount, entries[:1])
        store.room.set_disk_full(True)
        with pytest.raises(DLedgerException) as raised:
            take(store, entries[1])
        assert code_of(raised) is Code.DISK_FULL
        store.room.set_disk_full(False)
        store.member_state.change_to_candidate()
        for call in (take, cut_to):
            with pytest.raises(DLedgerException) as raised:
                call(store, entries[1])
            assert code_of(raised) is Code.NOT_FOLLOWER


class TestGet:
    def test_what_is_not_there(self, mount: SimMount) -> None:
        """Seed checklist: get(index), indexCheck (spec: dledger §1.10)."""
        store = replica(mount, made([bytes(400)] * 6)[3:])
        assert (store.ledger_begin_index, store.ledger_end_index) == (3, 5)
        for index, code in [
            (-1, Code.INDEX_OUT_OF_RANGE),
            (0, Code.INDEX_LESS_THAN_LOCAL_BEGIN),
            (2, Code.INDEX_LESS_THAN_LOCAL_BEGIN),
            (6, Code.INDEX_OUT_OF_RANGE),
        ]:
            with pytest.raises(DLedgerException) as raised:
                store.get(index)
            assert code_of(raised) is code
        empty = opened(SimDisk().mount())
        with pytest.raises(DLedgerException) as raised:
            empty.get(0)
        assert code_of(raised) is Code.INDEX_OUT_OF_RANGE

    async def test_an_entry_is_read_before_and_after_its_unit_is_written(self, mount: SimMount) -> None:
        """Seed checklist: index unit, data slice, pos check; release: a copy is given (spec: dledger §1.10)."""
        store = leader(mount, mapped_file_size_for_entry_data=4096)
        entries = put(store, *(bytes([number]) * 40 for number in range(25)))
        assert store.index_file_list.max_wrote_position == 0
        assert all_of(store) == entries
        assert {type(body) for body in bodies_of(store)} == {bytes}
        assert await store.flush_in_thread()
        assert store.index_file_list.max_wrote_position == 25 * 32
        assert all_of(store) == entries

    async def test_an_index_that_leads_elsewhere_is_no_entry(self, mount: SimMount) -> None:
        store = leader(mount)
        put(store, b"one", b"two", b"three")
        assert await store.flush_in_thread()
        file = store.index_file_list.mapped_files[0].file()
        file.pwrite([file.pread(32, 64)], 32)
        with pytest.raises(DLedgerException, match="entry 1 is at 102: it is not there") as raised:
            store.get(1)
        assert code_of(raised) is Code.DISK_ERROR


class TestTruncate:
    """Seed checklist: truncate, existedEntry, rebuildWithPos, INCONSISTENT_TERM and _LEADER (spec: dledger §1.10)."""

    ENTRIES = made([bytes([number]) * 150 for number in range(9)])

    def test_to_an_entry_that_is_here(self, mount: SimMount) -> None:
        store = replica(mount, self.ENTRIES)
        assert cut_to(store, self.ENTRIES[4]) == 4
        assert all_of(store) == self.ENTRIES[:5]
        assert store.member_state.ledger_end_index == 4
        for entry in self.ENTRIES[5:]:
            take(store, entry)
        assert all_of(store) == self.ENTRIES

    @pytest.mark.parametrize("index", [1, 2, 3, 4, 8, 9])
    def test_to_an_entry_of_the_leader(self, mount: SimMount, index: int) -> None:
        """In the middle, as first and as last of a file, and as the next."""
        kept = self.ENTRIES[:index]
        other = leader(SimDisk(latency_s=(0, 0)).mount())
        put(other, *(entry.body for entry in kept))
        lead(other, 2)
        (entry, following) = put(other, b"another", b"and so on")
        store = replica(mount, self.ENTRIES)
        store.update_committed_index(1, index - 1)
        follow(store, 2)
        assert cut_to(store, entry) == index
        take(store, following)
        assert all_of(store) == [*kept, entry, following]
        assert store.ledger_end_term == 2

    def test_to_an_entry_for_which_there_is_no_room(self, sim: SimDisk, mount: SimMount) -> None:
        """What is cut is gone: a member that still counted it would answer for it, and could not go on as leader."""
        kept, *others = made([bytes(352), b"old", b"older"])
        store = replica(mount, [kept, *others])
        store.update_committed_index(1, 0)
        follow(store, 2)
        new = DLedgerEntry(bytes(100), index=1, term=2, pos=DATA_SIZE, size=148)
        sim.faults.full = True
        with pytest.raises(DLedgerException, match="create failed"):
            cut_to(store, new)
        assert (store.ledger_end_index, store.ledger_end_term, store.member_state.ledger_end_index) == (0, 1, 0)
        assert all_of(store) == [kept]
        sim.faults.full = False
        store.room.look()
        assert cut_to(store, new) == 1
        assert all_of(store) == [kept, new]

    @pytest.mark.parametrize(("committed", "pos"), [(-1, 910), (2, 910), (2, 1024)])
    def test_what_the_leader_could_not_compare_goes(self, mount: SimMount, committed: int, pos: int) -> None:
        """Its log begins there, and what lies before that here may be of a leader that nobody followed."""
        store = replica(mount, self.ENTRIES)
        store.update_committed_index(1, committed)
        follow(store, 2)
        entry = DLedgerEntry(b"first", index=4, term=2, pos=pos, size=53)
        assert cut_to(store, entry) == 4
        assert all_of(store) == [entry]
        assert store.ledger_begin_index == 4

    async def test_what_was_deleted_holds_nothing_up(self, mount: SimMount) -> None:
        """All that is committed has expired; the rest is a deposed leader's, and lies elsewhere than the leader's."""
        store = replica(mount, self.ENTRIES[:7])
        first = next(entry.index for entry in self.ENTRIES if entry.pos >= DATA_SIZE)
        store.update_committed_index(1, first - 1)
        assert await store.flush_in_thread()
        assert await store.data_file_list.delete_expired_file_by_time(lambda _path: True, kept_from=DATA_SIZE) == 1
        store.revise_ledger_begin_index()
        assert store.ledger_begin_index == first
        follow(store, 2)
        entry = DLedgerEntry(b"x", index=first, term=2, pos=self.ENTRIES[first - 1].pos + 198, size=49)
        assert cut_to(store, entry) == first
        assert all_of(store) == [entry]

    def test_twice_the_same(self, mount: SimMount) -> None:
        store = replica(mount, self.ENTRIES)
        for _ in range(2):
            cut_to(store, self.ENTRIES[8])
            assert all_of(store) == self.ENTRIES

    async def test_what_is_cut_is_erased(self, sim: SimDisk, mount: SimMount) -> None:
        """In DLedger's store it shows again after a restart (81 entries, and 51 had been left)."""
        entries = made([bytes([number]) * 2 for number in range(81)])
        store = replica(mount, entries)
        cut_to(store, entries[50])
        await store.shutdown()
        again = opened(sim.mount())
        assert all_of(again) == entries[:51]

    @pytest.mark.parametrize("first", [5, 7])
    def test_a_log_without_overlap_begins_anew(self, mount: SimMount, first: int) -> None:
        """The leader begins behind this log's end; seed checklist: rebuildWithPos (spec: dledger §1.5)."""
        store = replica(mount, self.ENTRIES[:3])
        store.update_committed_index(1, 2)
        cut_to(store, self.ENTRIES[first])
        for entry in self.ENTRIES[first + 1 :]:
            take(store, entry)
        assert all_of(store) == self.ENTRIES[first:]
        assert (store.ledger_begin_index, store.committed_index) == (first, -1)

    async def test_a_log_that_began_anew_is_there_at_the_next_start(self, sim: SimDisk, mount: SimMount) -> None:
        """Its first file begins in the middle: DLedger loses all of it at a restart (spec: dledger §1.8)."""
        store = replica(mount, self.ENTRIES[:2])
        assert self.ENTRIES[5].pos % DATA_SIZE > 0
        cut_to(store, self.ENTRIES[5])
        take(store, self.ENTRIES[6])
        await store.shutdown()
        again = opened(sim.mount())
        assert all_of(again) == self.ENTRIES[5:7]
        assert (again.ledger_begin_index, again.ledger_end_index) == (5, 6)

    def test_a_log_that_began_anew_in_vain_begins_where_the_next_leader_s_does(
        self, sim: SimDisk, mount: SimMount
    ) -> None:
        """A power cut took the entry; the file is there, far behind the first entry of who has all (seed 10728)."""
        first = self.ENTRIES[6]
        assert first.pos % DATA_SIZE == 0
        cut_to(replica(mount, self.ENTRIES[:2]), first)
        sim.lose_power(lambda path, number, old, new: old)
        again = follower(sim.mount())
        assert (again.ledger_end_index, again.data_file_list.min_offset) == (-1, first.pos)
        cut_to(again, self.ENTRIES[0])
        for entry in self.ENTRIES[1:]:
            take(again, entry)
        assert all_of(again) == self.ENTRIES

    async def test_who_begins_anew_votes_by_what_it_had(self, sim: SimDisk, mount: SimMount) -> None:
        """It may have been counted for that; a power cut, or a full disk, takes what came instead."""
        store = replica(mount, self.ENTRIES[:6])
        store.update_committed_index(1, 2)
        assert await store.flush_in_thread()
        cut_to(store, DLedgerEntry(b"first", index=6, term=1, pos=2 * DATA_SIZE, size=53))
        await store.persist_check_point_in_thread()
        sim.lose_power(lambda path, number, old, new: old)
        again = follower(sim.mount())
        assert (again.ledger_end_index, again.member_state.vote_floor) == (-1, (1, 5))
        await again.shutdown()
        state = follower(sim.mount()).member_state
        state.curr_vote_for = state.leader_id = None
        elector = DLedgerLeaderElector(
            state, frozenset({"n0", "n1", "n2"}), options=default(ElectorOptions), random=lambda: 0.5, now=0
        )
        less, more = VoteRequest("n2", state.curr_term, 4, 1), VoteRequest("n2", state.curr_term, 5, 1)
        assert elector.handle_vote(less, now=0).result is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        assert elector.handle_vote(more, now=0).result is VoteResult.ACCEPT

    def test_a_log_that_began_later_begins_with_the_leader_s_first_entry(self, mount: SimMount) -> None:
        """It is another leader's, and not committed: where it lay in its file is no matter."""
        store = replica(mount, self.ENTRIES[:2])
        cut_to(store, DLedgerEntry(b"another's", index=6, term=1, pos=2 * DATA_SIZE + 60, size=57))
        follow(store, 2)
        cut_to(store, self.ENTRIES[0])
        assert all_of(store) == self.ENTRIES[:1]

    def test_the_vote_floor_stays_when_what_came_instead_goes_too(self, sim: SimDisk, mount: SimMount) -> None:
        """What came instead ended before what was here."""
        store = replica(mount, self.ENTRIES[:7])
        follow(store, 2)
        cut_to(store, DLedgerEntry(b"first", index=3, term=1, pos=2 * DATA_SIZE, size=53))
        assert (store.ledger_begin_index, store.member_state.vote_floor) == (3, (1, 6))
        follow(store, 3)
        cut_to(store, DLedgerEntry(b"first", index=9, term=1, pos=4 * DATA_SIZE, size=53))
        assert (store.ledger_begin_index, store.member_state.vote_floor) == (9, (1, 6))
        store.close()
        assert opened(sim.mount()).member_state.vote_floor == (1, 6)

    async def test_what_cannot_begin_anew_keeps_what_it_has(self, sim: SimDisk, mount: SimMount) -> None:
        """On a full disk (seed 10458)."""
        store = replica(mount, self.ENTRIES[:2])
        store.update_committed_index(1, 1)
        assert await store.flush_in_thread()
        sim.faults.full = True
        with pytest.raises(DLedgerException):
            cut_to(store, self.ENTRIES[5])
        ends = (store.ledger_end_index, store.member_state.ledger_end_index, store.flushed_index, store.committed_index)
        assert ends == (1, 1, 1, 1)
        sim.faults.full = False
        cut_to(store, self.ENTRIES[5])
        assert (all_of(store), store.flushed_index) == ([self.ENTRIES[5]], 4)
        assert await store.flush_in_thread()
        assert store.flushed_index == 5

    @pytest.mark.parametrize("committed", [2, 3, 8])
    def test_what_is_committed_stays(self, mount: SimMount, committed: int) -> None:
        """§7.3 rows 2 and 17: never at or below the committed index."""
        store = replica(mount, self.ENTRIES)
        store.update_committed_index(1, committed)
        other = replace(self.ENTRIES[committed], body=b"other", size=53)
        wrong = [self.ENTRIES[committed - 1], other, replace(self.ENTRIES[4], index=committed + 1, pos=51200)]
        for entry in wrong:
            with pytest.raises(DivergedLogError, match=f"up to index {committed} it is committed here"):
                cut_to(store, entry)
        assert all_of(store) == self.ENTRIES
        cut_to(store, self.ENTRIES[committed])
        assert store.ledger_end_index == committed

    def test_an_entry_of_an_older_term_cannot_follow_one_of_a_newer(self, mount: SimMount) -> None:
        """A start would cut it: the log begins anew."""
        store = replica(mount, made([b"one", b"two"], term=3))
        follow(store, 5)
        cut_to(store, DLedgerEntry(b"x", index=1, term=2, pos=51, size=49))
        assert (store.ledger_begin_index, store.ledger_end_index, bodies_of(store)) == (1, 1, [b"x"])

    def test_nor_behind_what_is_committed(self, mount: SimMount) -> None:
        """No leader can have that: nothing is changed."""
        entries = made([b"one", b"two"], term=3)
        store = replica(mount, entries)
        store.update_committed_index(3, 0)
        follow(store, 5)
        with pytest.raises(DivergedLogError, match="up to index 0 it is committed here"):
            cut_to(store, DLedgerEntry(b"x", index=1, term=2, pos=51, size=49))
        assert all_of(store) == entries

    @pytest.mark.parametrize("after_s", [0.0005, 0.0015], ids=["data", "index"])
    async def test_what_is_cut_during_a_flush_is_not_counted_by_it(
        self, sim: SimDisk, mount: SimMount, autojump_clock: trio.testing.MockClock, after_s: float
    ) -> None:
        """And what came in its place is not, either."""
        sim.latency_s = (0.001, 0.001)
        store = replica(mount, made([b"one", b"two", b"three"]))
        follow(store, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.flush_in_thread)
            await trio.sleep(after_s)
            cut_to(store, DLedgerEntry(b"another", index=1, term=2, pos=51, size=55))
            take(store, DLedgerEntry(b"more", index=2, term=2, pos=106, size=52))
        assert store.flushed_index <= 0
        sim.lose_power(lambda path, number, old, new: old)
        assert len(all_of(opened(sim.mount()))) <= 1

    async def test_what_came_in_place_of_what_was_cut_during_a_flush_is_not_vouched_for(
        self, sim: SimDisk, mount: SimMount, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Its unit in the index would say that its data is durable, of which a power cut left the beginning."""
        sim.latency_s = (0.001, 0.001)
        large: dict[str, int] = {"mapped_file_size_for_entry_data": 4096}
        store = follower(mount, term=1, **large)
        first, *others = made([b"one", b"two", b"three"])
        cut_to(store, first)
        for entry in others:
            take(store, entry)
        follow(store, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.flush_in_thread)
            await trio.sleep(0.0005)
            cut_to(store, DLedgerEntry(b"another", index=1, term=2, pos=first.size, size=55))
            take(store, DLedgerEntry(b"x" * 1500, index=2, term=2, pos=first.size + 55, size=1548))
        sim.lose_power(lambda path, number, old, new: old if number else new)
        assert b"x" * 1500 not in bodies_of(opened(sim.mount(), **large))
        assert len(bodies_of(opened(sim.mount(), **large))) <= 1

    def test_an_entry_that_can_lie_nowhere_drops_nothing(self, mount: SimMount) -> None:
        store = replica(mount, self.ENTRIES[:2])
        for pos in (DATA_SIZE - 100, 10 * DATA_SIZE + 5):
            with pytest.raises(DLedgerException) as raised:
                cut_to(store, replace(self.ENTRIES[7], pos=pos))
            assert code_of(raised) is Code.UNEXPECTED_ARGUMENT
        assert all_of(store) == self.ENTRIES[:2]

    @pytest.mark.parametrize("made_up", [{"index": 1 << 58}, {"index": (1 << 63) - 1}, {"pos": 1 << 62}])
    def test_a_log_that_could_not_be_opened_again_is_not_begun(self, mount: SimMount, made_up: dict[str, int]) -> None:
        store = replica(mount, self.ENTRIES[:2])
        with pytest.raises(DLedgerException) as raised:
            cut_to(store, replace(self.ENTRIES[7], **made_up))  # type: ignore[arg-type]
        assert code_of(raised) is Code.UNEXPECTED_ARGUMENT
        assert all_of(store) == self.ENTRIES[:2]

    def test_who_may_not(self, mount: SimMount) -> None:
        store = replica(mount, self.ENTRIES[:3])
        for term, leader_id, code in [(2, LEADER, Code.INCONSISTENT_TERM), (1, "n1", Code.INCONSISTENT_LEADER)]:
            with pytest.raises(DLedgerException) as raised:
                store.truncate(self.ENTRIES[1], term, leader_id)
            assert code_of(raised) is code
        assert store.ledger_end_index == 2

    def test_a_full_disk_does_not_hinder_it(self, mount: SimMount) -> None:
        store = replica(mount, self.ENTRIES[:3])
        store.room.set_disk_full(True)
        assert cut_to(store, self.ENTRIES[1]) == 1


class TestCommittedIndex:
    def test_it_never_falls_and_never_leaves_the_log(self, mount: SimMount) -> None:
        store = leader(mount, term=2)
        assert not store.update_committed_index(2, 5)
        entries = put(store, b"one", b"two", b"three")
        assert not store.update_committed_index(1, 1), "of an older term"
        assert store.update_committed_index(2, 1)
        assert (store.committed_index, store.committed_pos) == (1, entries[2].pos)
        for index in (-1, 0, 1):
            assert not store.update_committed_index(2, index)
        assert store.update_committed_index(3, 99)
        assert (store.committed_index, store.committed_pos) == (2, entries[2].pos + entries[2].size)

    async def test_it_is_known_at_the_next_start(self, sim: SimDisk, mount: SimMount) -> None:
        store = leader(mount)
        put(store, b"one", b"two", b"three")
        store.update_committed_index(1, 1)
        await store.shutdown()
        assert sim.files["/store/dledger-n0/checkpoint"].cache == b"committedIndex=1\nendIndex=2\n"
        assert opened(sim.mount()).committed_index == 1


async def test_what_a_start_writes_again_is_what_was_there(mount: SimMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has a thousand pieces, and each its place."""
    monkeypatch.setattr(ledger_recovery, "_WRITE_BYTES", 100)
    store = leader(mount)
    before = put(store, *[b"%02d" % number * 40 for number in range(12)])
    assert await store.flush_in_thread()
    store.close()
    assert all_of(opened(mount)) == before


def test_one_process_has_a_store(mount: SimMount) -> None:
    opened(mount)
    with pytest.raises(StoreLockedError):
        opened(mount)


def test_what_waits_for_a_flush_is_not_written_once_the_store_is_closed(mount: SimMount) -> None:
    """It came into a new first file of the index: a log whose first files were deleted could not start again."""
    store = leader(mount, acks_flushed=True)
    put(store, b"one", b"two")
    store.close()
    assert not trio.run(store.flush_in_thread)
    assert store.write_error is None, "no file was to be made"
