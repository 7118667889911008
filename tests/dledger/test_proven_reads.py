"""Reads that a leader proves: how many it answers at once."""

import random
from math import inf
from types import SimpleNamespace
from typing import Any

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.proven_reads import ProvenReads
from tests.dledger.members import leader, put
from tests.sim.sim_disk import SimDisk


def proven_reads(pusher: Any) -> ProvenReads:
    """Of a large entry and a small one, by a leader whose last heartbeat was answered."""
    store = leader(SimDisk(random.Random(1)).mount(), mapped_file_size_for_entry_data=8 << 20)
    put(store, bytes(600_000), b"small")
    store.update_committed_index(1, 1)
    elector: Any = SimpleNamespace(prove=lambda: 1, confirmed_beat=1)
    return ProvenReads(store, elector, pusher, append_barrier=lambda: None)


def leading() -> Any:
    return SimpleNamespace(checker=SimpleNamespace(inherited_index=-1))


def test_large_entries_are_told_of_in_turns() -> None:
    """Else a few hundred clients that ask for the largest entry keep a leader from its heartbeats for seconds."""
    pusher = leading()
    reads = proven_reads(pusher)
    told = list[int]()

    def tell(_code: DLedgerResponseCode, entry: DLedgerEntry | None) -> None:
        told.append(-1 if entry is None else entry.index)

    for index in (0, 0, 0, 1, 1):
        reads.ask(index, tell, now=0.0)
    reads.step(now=0.0)
    assert (told, reads.due_at) == ([0, 0], -inf)
    reads.step(now=0.0)
    assert (told, reads.due_at) == ([0, 0, 0, 1, 1], inf)
    for _ in range(3):
        reads.ask(0, tell, now=0.0)
    reads.step(now=0.0)
    pusher.checker = None
    reads.step(now=0.0)
    assert told[5:] == [0, 0, -1]


def test_for_who_does_not_take_it_nothing_is_read() -> None:
    """Clients that asked for thousands of large entries and left kept others waiting for theirs until they were 404."""
    reads = proven_reads(leading())
    told = list[tuple[int, int | None]]()

    def tell(code: DLedgerResponseCode, entry: DLedgerEntry | None) -> None:
        told.append((code, None if entry is None else entry.index))

    for _ in range(100):
        reads.ask(0, tell, now=0.0, is_wanted=lambda: False)
    reads.ask(1, tell, now=0.0)
    reads.step(now=0.0)
    assert told == [(404, None)] * 100 + [(200, 1)]


def test_many_small_entries_are_told_of_in_turns() -> None:
    pusher, told = leading(), list[DLedgerResponseCode]()
    reads = proven_reads(pusher)
    for _ in range(2500):
        reads.ask(1, lambda code, _entry: told.append(code), now=0.0)
    reads.step(now=0.0)
    assert (told, reads.due_at) == ([DLedgerResponseCode.SUCCESS] * 1000, -inf)
    pusher.checker = None
    for _ in range(2):
        reads.step(now=0.0)
    assert (told[1000:], reads.due_at) == ([DLedgerResponseCode.NOT_LEADER] * 1500, inf)


def test_so_many_wait_at_most() -> None:
    """Each costs memory until a heartbeat is answered; who comes then is to come again."""
    reads = proven_reads(leading())
    told = list[DLedgerResponseCode]()
    for _ in range(10_001):
        reads.ask(0, lambda code, _entry: told.append(code), now=0.0)
    assert told == [DLedgerResponseCode.NOT_LEADER]
