"""What a leader has just appended is pushed without being read again."""

from collections.abc import Callable

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_usual import read_entry, write_entry
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.recent_entries import BYTES_MAX, COUNT_MAX, RecentEntries
from tests.dledger.members import follower, lead, leader, put
from tests.sim.sim_disk import SimDisk


def entry(index: int, size: int = 49) -> DLedgerEntry:
    return DLedgerEntry(b"x" * (size - 48), index, 1, index * size, size=size)


def test_it_keeps_the_last_ones() -> None:
    recent = RecentEntries()
    assert recent.get(0) is None
    entries = [entry(index) for index in range(COUNT_MAX + 3)]
    for one in entries:
        recent.put(one)
    assert [recent.get(index) for index in (2, 3, COUNT_MAX + 2, COUNT_MAX + 3)] == [
        None,
        entries[3],
        entries[-1],
        None,
    ]


def test_what_is_forgotten_takes_no_room_any_more() -> None:
    recent = RecentEntries()
    recent.put(entry(0, BYTES_MAX))
    recent.clear()
    for index in (7, 8):
        recent.put(entry(index, BYTES_MAX // 2))
    assert [recent.get(index) is not None for index in (0, 7, 8)] == [False, True, True]


def test_large_ones_push_others_out() -> None:
    recent = RecentEntries()
    for index in range(5):
        recent.put(entry(index, BYTES_MAX // 3))
    assert [recent.get(index) is not None for index in range(5)] == [False, False, True, True, True]
    recent.put(entry(5, BYTES_MAX + 1))
    assert [recent.get(index) for index in range(6)] == [None] * 6


def test_after_a_gap_it_begins_anew() -> None:
    recent = RecentEntries()
    recent.put(entry(1))
    recent.put(entry(5))
    assert (recent.get(1), recent.get(5)) == (None, entry(5))


def test_a_leader_s_entries_are_those_of_its_file() -> None:
    store = leader(SimDisk().mount())
    put(store, b"one", b"two")
    assert [store.recent.get(index) for index in range(2)] == [store.get(index) for index in range(2)]


def test_an_entry_that_a_hook_has_changed_is_read_from_its_file() -> None:
    store = leader(SimDisk().mount())

    def change(_entry: DLedgerEntry, data: memoryview, body_at: int) -> None:
        data[body_at] = ord("X")

    store.append_hooks.append(change)
    put(store, b"one")
    assert (store.recent.get(0), store.get(0).body) == (None, b"Xne")


def _cut_behind(store: DLedgerMmapFileStore) -> None:
    store.truncate(store.get(0), 2, "n1")


def _begin_anew(store: DLedgerMmapFileStore) -> None:
    store.truncate(DLedgerEntry(b"other", 0, 2, 0, size=53), 2, "n1")


@pytest.mark.parametrize("cut", [_cut_behind, _begin_anew])
def test_what_was_cut_is_not_pushed_by_who_leads_again(cut: Callable[[DLedgerMmapFileStore], None]) -> None:
    store = leader(SimDisk().mount())
    put(store, b"one", b"two", b"three")
    store.member_state.curr_term = 2
    store.member_state.change_to_follower(2, "n1")
    cut(store)
    end = store.ledger_end_index
    position = store.data_file_list.max_wrote_position
    for number, body in enumerate((b"four", b"five"), end + 1):
        store.append_as_follower(DLedgerEntry(body, number, 2, position, size=48 + len(body)), 2, "n1")
        position += 48 + len(body)
    lead(store, 3)
    put(store, b"six")
    for index in range(store.ledger_end_index + 1):
        assert store.recent.get(index) in (None, store.get(index))


def test_a_follower_keeps_none() -> None:
    store = follower(SimDisk().mount())
    store.append_as_follower(DLedgerEntry(b"one", 0, 1, 0, size=51), 1, store.member_state.leader_id or "")
    assert store.recent.get(0) is None


def test_json_is_written_once() -> None:
    one = entry(7)
    json = write_entry(one)
    assert write_entry(one) is json
    assert read_entry(json, 0) == (one, len(json))
