"""Stores of members on a simulated disk, and entries for them."""

from dataclasses import replace
from typing import Any

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.store.disk import Disk
from tests.dledger.defaults import store_config

DATA_SIZE = 512
INDEX_SIZE = 320
CONFIG = store_config("/store", mapped_file_size_for_entry_data=DATA_SIZE, mapped_file_size_for_entry_index=INDEX_SIZE)
LEADER = "n9"


def opened(disk: Disk, *, term: int = 1, **options: Any) -> DLedgerMmapFileStore:
    """A store that was started; its member is a candidate."""
    store = DLedgerMmapFileStore(replace(CONFIG, **options), MemberState("n0", curr_term=term), disk)
    store.startup()
    return store


def leader(disk: Disk, *, term: int = 1, **options: Any) -> DLedgerMmapFileStore:
    store = opened(disk, term=term, **options)
    store.member_state.change_to_leader(term)
    return store


def follower(disk: Disk, *, term: int = 1, **options: Any) -> DLedgerMmapFileStore:
    """Of :data:`LEADER`."""
    store = opened(disk, term=term, **options)
    store.member_state.change_to_follower(term, LEADER)
    return store


def lead(store: DLedgerMmapFileStore, term: int) -> None:
    store.member_state.curr_term = term
    store.member_state.change_to_leader(term)


def put(store: DLedgerMmapFileStore, *bodies: bytes) -> list[DLedgerEntry]:
    """As the leader."""
    return [store.append_as_leader(DLedgerEntry(body)) for body in bodies]


def take(store: DLedgerMmapFileStore, entry: DLedgerEntry) -> DLedgerEntry:
    """As a follower of :data:`LEADER`."""
    return store.append_as_follower(replace(entry), store.member_state.curr_term, LEADER)


def cut_to(store: DLedgerMmapFileStore, entry: DLedgerEntry) -> int:
    """As a follower of :data:`LEADER`."""
    return store.truncate(replace(entry), store.member_state.curr_term, LEADER)


def follow(store: DLedgerMmapFileStore, term: int) -> None:
    store.member_state.curr_term = term
    store.member_state.change_to_follower(term, LEADER)


def all_of(store: DLedgerMmapFileStore) -> list[DLedgerEntry]:
    if store.ledger_end_index == -1:
        return []
    return [store.get(index) for index in range(store.ledger_begin_index, store.ledger_end_index + 1)]


def bodies_of(store: DLedgerMmapFileStore) -> list[bytes]:
    return [entry.body for entry in all_of(store)]
