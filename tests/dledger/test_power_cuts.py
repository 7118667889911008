"""Crash states, exhaustively: whatever a power cut leaves of a run, a start finds what was durable, and no more.

Every prefix of a run's changes, and every subset of the sectors that were dirty then, is what the device may hold.
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import combinations

import pytest
import trio
import trio.testing

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from tests.dledger.members import all_of, bodies_of, cut_to, follow, lead, leader, opened, put
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk, Step, replay

SIZES = {"mapped_file_size_for_entry_data": 2048, "mapped_file_size_for_entry_index": 320}
SUBSETS_OF_MAX = 12
Log = tuple[DLedgerEntry, ...]
Act = Callable[[DLedgerMmapFileStore], Awaitable[object]]


class Recording:
    """The changes of a disk, the logs that were there, and how much of them was durable."""

    def __init__(self) -> None:
        self.disk = SimDisk(latency_s=(0, 0))
        self.steps: list[Step] = []
        self.disk.trace = self.steps
        self.logs: list[tuple[int, Log, int]] = [(0, (), -1)]
        """From so many changes on: this log, durable up to that index."""

    async def run(self, acts: Sequence[Act], *, store: DLedgerMmapFileStore) -> None:
        self.note(store)
        for act in acts:
            await act(store)
            self.note(store)

    def note(self, store: DLedgerMmapFileStore) -> None:
        durable = store.flushed_index if store.flushed_index >= store.ledger_begin_index else -1
        self.logs.append((len(self.steps), tuple(all_of(store)), durable))

    def at(self, length: int) -> tuple[list[Log], int]:
        """The logs that there may be after so many changes: the last, or the next. And what of both is durable."""
        before = [(log, flushed) for steps, log, flushed in self.logs if steps <= length][-1]
        after = next(((log, flushed) for steps, log, flushed in self.logs if steps > length), before)
        return [before[0], after[0]], min(before[1], after[1])


def appends(*sizes: int, seed: int = 0) -> Act:
    async def act(store: DLedgerMmapFileStore) -> None:
        put(store, *(random.Random(size + seed).randbytes(size) for size in sizes))

    return act


async def flush(store: DLedgerMmapFileStore) -> None:
    assert await store.flush_in_thread()


def commits(index: int) -> Act:
    async def act(store: DLedgerMmapFileStore) -> None:
        store.update_committed_index(store.member_state.curr_term, index)
        await store.persist_check_point_in_thread()

    return act


def cuts(index: int, *, term: int, size: int | None = None) -> Act:
    """Follow a leader that cuts to the entry that is here, or to one of its own."""

    async def act(store: DLedgerMmapFileStore) -> None:
        entry = store.get(index)
        follow(store, term)
        if size is not None:
            entry.body, entry.term, entry.size = random.Random(size).randbytes(size), term, size + 48
        cut_to(store, entry)

    return act


def begins_anew(index: int, *, pos: int, term: int = 2) -> Act:
    """Follow a leader whose log begins behind the end of this one."""

    async def act(store: DLedgerMmapFileStore) -> None:
        follow(store, term)
        cut_to(store, DLedgerEntry(b"first of the rest", index, term, pos, size=65))

    return act


def crashes(steps: Sequence[Step]) -> Iterator[tuple[int, frozenset[tuple[str, int]]]]:
    for length in range(len(steps) + 1):
        if length < len(steps) and length and steps[length][0] == "sync" == steps[length - 1][0]:
            continue  # in the middle of one fdatasync: the subsets of its beginning cover that
        dirty = replay(steps[:length]).dirty_sectors()
        assert len(dirty) <= SUBSETS_OF_MAX, "make the recorded run shorter"
        for size in range(len(dirty) + 1):
            for kept in combinations(dirty, size):
                yield length, frozenset(kept)


def crashed(steps: Sequence[Step], kept: frozenset[tuple[str, int]]) -> SimDisk:
    disk = replay(steps)
    disk.latency_s = (0, 0)
    disk.lose_power(lambda path, number, old, new: new if (path, number) in kept else old)
    return disk


def check_crash(recording: Recording, length: int, kept: frozenset[tuple[str, int]]) -> None:
    disk = crashed(recording.steps[:length], kept)
    logs, durable = recording.at(length)
    store = opened(disk.mount(), term=9, **SIZES)
    found = tuple(all_of(store))
    assert any(log[: len(found)] == found for log in logs), "not a prefix of what was there"
    assert store.ledger_end_index >= durable, "what was durable is gone"
    assert store.flushed_index == store.ledger_end_index
    end, index_end = store.data_file_list.max_wrote_position, store.index_file_list.max_wrote_position
    store.close()
    check_erased(disk, "/data/", end)
    check_erased(disk, "/index/", index_end)
    disk.lose_power(lambda path, number, old, new: old)
    again = opened(disk.mount(), term=9, **SIZES)
    assert tuple(all_of(again)) == found, "the second start finds something else"
    again.close()


def check_erased(disk: SimDisk, directory: str, end: int) -> None:
    """Nothing behind the end comes back to life."""
    for path, inode in disk.files.items():
        if directory in path:
            start = max(0, end - int(path.rpartition("/")[2]))
            assert not any(inode.durable[start:]), f"{path} has bytes behind {start}"


RUNS = {
    "appends": [appends(100, 700), flush, appends(900, 0), flush, appends(600)],
    "a file's end": [appends(700, 700), flush, appends(700, 800), flush, appends(40)],
    "an exact end": [appends(1000, 944), flush, appends(10), flush],
    "an index file's end": [appends(*[1] * 9), flush, appends(2, 3), flush],
    "with a checkpoint": [appends(100, 700), flush, commits(1), appends(900), commits(2), flush, commits(2)],
    "cut to an entry that is here": [appends(300, 400), flush, appends(500, 600), cuts(1, term=2), flush],
    "cut over a file's end": [appends(900, 900), flush, appends(900), cuts(0, term=2), flush],
    "cut, and written over": [appends(300, 400), flush, appends(500), cuts(1, term=2, size=200), flush],
    "written over behind what is committed": [
        appends(300, 400),
        flush,
        commits(0),
        appends(500),
        cuts(1, term=2, size=200),
        flush,
    ],
    "begun anew": [appends(300, 400), flush, commits(1), begins_anew(7, pos=8192), flush],
    "begun anew in the middle of a file": [appends(30, 40), flush, commits(0), begins_anew(7, pos=5000), flush],
    "cut of what was flushed": [appends(300, 400, 500), flush, cuts(1, term=2, size=90), flush],
}


@pytest.mark.parametrize("name", RUNS)
async def test_every_crash_state(name: str) -> None:
    recording = Recording()
    await recording.run(RUNS[name], store=leader(recording.disk.mount(), **SIZES))
    count = 0
    for length, kept in crashes(recording.steps):
        check_crash(recording, length, kept)
        count += 1
    assert count > 30


async def test_a_body_that_was_torn_is_no_entry() -> None:
    """Its header and its unit's sector reached the device, the middle of its body did not.

    Without a checksum that shows nowhere: DLedger takes such an entry, and as a leader makes all others take it.
    """
    disk = SimDisk(latency_s=(0, 0))
    store = leader(disk.mount(), **SIZES)
    put(store, b"first")
    assert await store.flush_in_thread()
    put(store, b"\xaa" * 1500)
    disk.lose_power(lambda path, number, old, new: old if number == 1 else new)
    again = opened(disk.mount(), **SIZES)
    assert [entry.body for entry in all_of(again)] == [b"first"]
    again.close()


async def test_what_a_killed_process_wrote_is_made_durable_before_it_counts() -> None:
    """Killed: the kernel has everything, the device nothing; what the start finds must survive a power cut."""
    disk = SimDisk(latency_s=(0, 0))
    store = leader(disk.mount(), acks_flushed=False, **SIZES)
    put(store, b"one", b"two" * 200, b"three" * 150, b"four" * 100)
    disk.kill()
    again = opened(disk.mount(), acks_flushed=False, **SIZES)
    assert again.flushed_index == again.ledger_end_index == 3
    disk.lose_power(lambda path, number, old, new: old)
    last = opened(disk.mount(), **SIZES)
    assert last.ledger_end_index == 3
    last.close()


async def test_what_a_failed_flush_left_in_memory_only_is_written_again() -> None:
    """The kernel takes its pages for clean: no later fdatasync would write them."""
    disk = SimDisk(random.Random(3), latency_s=(0, 0))
    store = leader(disk.mount(), acks_flushed=False, **SIZES)
    put(store, b"one" * 300, b"two" * 300)
    disk.faults.sync_errors = 1
    assert not await store.flush_in_thread()
    again = opened(disk.mount(), acks_flushed=False, **SIZES)
    found = all_of(again)
    disk.lose_power(lambda path, number, old, new: old)
    last = opened(disk.mount(), **SIZES)
    assert all_of(last) == found
    last.close()


@pytest.mark.parametrize("fails_at_s", [0.0005, 0.0015], ids=["data", "index"])
async def test_a_flush_beside_one_that_failed_counts_for_nothing(
    autojump_clock: trio.testing.MockClock, fails_at_s: float
) -> None:
    """The kernel tells one of two fdatasyncs of a file what it has lost; the other one succeeds (seed 11229)."""
    disk = SimDisk(random.Random(3), latency_s=(0.001, 0.001))
    store = leader(disk.mount(), **SIZES)
    put(store, b"one" * 500)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.flush_in_thread)
        await trio.sleep(fails_at_s)
        disk.faults.sync_errors = 1
        with pytest.raises(DLedgerException, match="fdatasync failed"):
            put(store, b"two" * 500, b"three" * 300)
    assert store.flushed_index == -1
    disk.lose_power(lambda path, number, old, new: old)
    assert opened(disk.mount(), **SIZES).ledger_end_index <= 0


async def test_an_entry_that_comes_during_a_flush_has_no_unit_yet(autojump_clock: trio.testing.MockClock) -> None:
    """Its unit would prove it, and is durable with the others: but of its body the device has the beginning only."""
    disk = SimDisk(random.Random(3), latency_s=(0.001, 0.001))
    store = leader(disk.mount(), **SIZES)
    put(store, b"one" * 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.flush_in_thread)
        await trio.sleep(0.0005)
        put(store, b"two" * 300)
    assert (store.flushed_index, store.ledger_end_index) == (0, 1)
    disk.lose_power(lambda path, number, old, new: new if number == 0 else old)
    assert bodies_of(opened(disk.mount(), **SIZES)) == [b"one" * 100]


async def test_of_units_that_are_not_durable_no_more_than_a_file_s_are_missing() -> None:
    """Files fill up while the index is flushed; a start that finds more to cut takes the log for damaged."""
    disk = SimDisk(latency_s=(0, 0))
    store = leader(disk.mount(), **SIZES)
    for body in (b"one" * 600, b"two" * 600, b"three" * 360):
        put(store, body)
        await store.data_file_list.flush_in_thread()
    assert [file.file_from_offset for file in store.data_file_list.mapped_files] == [0, 2048, 4096]
    disk.lose_power(lambda path, number, old, new: old)
    assert opened(disk.mount(), **SIZES).ledger_end_index >= 1


@pytest.mark.parametrize("seed", range(6))
async def test_units_that_are_in_memory_only_are_written_again(seed: int) -> None:
    """The fdatasync of the index failed, the process died; a start sees the units, and counts their entries."""
    disk = SimDisk(random.Random(seed), latency_s=(0, 0))
    store = leader(disk.mount(), **SIZES)
    put(store, b"one", b"two")
    await store.data_file_list.flush_in_thread()
    disk.faults.sync_errors = 1
    assert not await store.flush_in_thread()
    disk.epoch += 1  # it dies, and the kernel keeps its pages
    again = opened(disk.mount(), **SIZES)
    assert again.flushed_index == again.ledger_end_index
    held = all_of(again)
    disk.lose_power(lambda path, number, old, new: old)
    last = opened(disk.mount(), **SIZES)
    assert all_of(last) == held
    assert len(held) == 2


async def start_without_index(disk: SimDisk, *, gone: slice, killed_at: int) -> bool:
    """All entries are durable, not all are known to be committed; some files of the index are lost, and so it starts.

    Returns whether it was killed.
    """
    store = leader(disk.mount(), **SIZES)
    put(store, *[b"%d" % number for number in range(25)])
    await flush(store)
    await commits(13)(store)
    disk.kill()
    for path in sorted(path for path in disk.files if "/index/" in path)[gone]:
        disk.mount().unlink(path)
    disk.crash_at = disk.calls + killed_at
    try:
        opened(disk.mount(), **SIZES).close()
    except NodeDied:
        return True
    return False


@pytest.mark.parametrize("loses_power", [True, False])
@pytest.mark.parametrize("gone", [slice(None), slice(1)], ids=["all", "the oldest"])
async def test_a_crash_while_the_index_is_made_again_takes_no_entry(gone: slice, loses_power: bool) -> None:
    """The next start took the entries that had no unit yet for such as never were durable, and cut them."""
    killed = 0
    for calls in range(1, 60):
        disk = SimDisk(latency_s=(0, 0))
        killed += await start_without_index(disk, gone=gone, killed_at=calls)
        disk.crash_at = None
        if loses_power:
            disk.lose_power(lambda path, number, old, new: old)
        again = opened(disk.mount(), **SIZES)
        assert again.ledger_end_index == 24, f"killed at call {calls}"
        again.close()
    assert killed > 10


async def test_a_crash_while_the_index_is_made_again_takes_no_torn_entry() -> None:
    """A unit of what is committed is damaged, and a body was torn: it is cut before the index proves nothing."""
    killed = 0
    for calls in range(1, 60):
        disk = SimDisk(latency_s=(0, 0))
        store = leader(disk.mount(), **SIZES)
        put(store, *[b"%d" % number for number in range(5)])
        await flush(store)
        await commits(3)(store)
        put(store, b"\xaa" * 1500)
        disk.files[min(path for path in disk.files if "/index/" in path)].write(bytes(32), 32)
        disk.lose_power(lambda path, number, old, new: old if number == 2 else new)
        disk.crash_at = disk.calls + calls
        try:
            opened(disk.mount(), **SIZES).close()
        except NodeDied:
            killed += 1
        disk.crash_at = None
        disk.lose_power(lambda path, number, old, new: old)
        again = opened(disk.mount(), **SIZES)
        assert bodies_of(again) == [b"%d" % number for number in range(5)], f"killed at call {calls}"
        again.close()
    assert killed > 5


@pytest.mark.parametrize("seed", range(60))
async def test_a_crash_at_any_call_of_a_longer_life(seed: int) -> None:
    """A leader, or a follower, that is cut now and then; the power goes in the middle of some call."""
    chance = random.Random(seed)
    disk = SimDisk(random.Random(seed), latency_s=(0, 0))
    known: list[DLedgerEntry] = []
    durable = -1
    for life in range(4):
        term = life + 1
        disk.crash_at = disk.calls + chance.randrange(1, 120)
        try:
            store = leader(disk.mount(), term=term, **SIZES)
            check_life(store, known, durable)
            known[:] = all_of(store)
            durable = store.ledger_end_index
            for _ in range(60):
                if chance.random() < 0.1 and store.ledger_end_index > store.committed_index:
                    index = chance.randint(max(0, store.committed_index), store.ledger_end_index)
                    entry = store.get(index)
                    durable = min(durable, index)
                    follow(store, term)
                    cut_to(store, entry)
                    del known[index + 1 :]
                    lead(store, term)
                elif chance.random() < 0.3:
                    assert await store.flush_in_thread()
                    durable = store.flushed_index
                    store.update_committed_index(term, chance.randint(-1, durable))
                    await store.persist_check_point_in_thread()
                else:
                    known.append(
                        DLedgerEntry(chance.randbytes(chance.randrange(900)), index=store.ledger_end_index + 1)
                    )
                    known[-1] = store.append_as_leader(known[-1])
        except NodeDied:
            continue
        disk.power_cut()
    store = opened(disk.mount(), term=9, **SIZES)
    check_life(store, known, durable)
    store.close()


def check_life(store: DLedgerMmapFileStore, known: list[DLedgerEntry], durable: int) -> None:
    found = all_of(store)
    assert store.ledger_end_index >= durable
    for entry, expected in zip(found, known, strict=False):
        assert entry.body == expected.body
