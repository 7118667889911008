"""A leader may push again what its follower has stored already, and not yet made durable."""

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.entry_handler import EntryHandler
from rmqha.dledger.push_entry import PushEntryRequest, PushType
from tests.dledger.members import LEADER, cut_to, follower, leader, put, take
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode


def push_of(kind: PushType, *entries: DLedgerEntry) -> PushEntryRequest:
    return PushEntryRequest(kind, 1, LEADER, -1, entries)


@pytest.mark.parametrize("kind", [PushType.APPEND, PushType.COMPARE, PushType.TRUNCATE])
async def test_what_is_asked_about_again_counts_no_sooner(kind: PushType) -> None:
    """By whichever push the leader hears of it: it counts what it hears of, and a power cut would take it."""
    first, second, third = put(leader(SimDisk(latency_s=(0, 0)).mount()), b"one", b"two", b"three")
    store = follower(SimDisk(latency_s=(0, 0)).mount())
    cut_to(store, first)
    assert await store.flush_in_thread()
    handler = EntryHandler[str](store, acks_flushed=True)
    assert handler.step(now=0) == []
    assert handler.handle_push(push_of(PushType.APPEND, second, third), "pushed", now=0) is None
    assert handler.step(now=0) == [], "it is stored, and not durable"
    again = (second, third) if kind is PushType.APPEND else (third,)
    assert handler.handle_push(push_of(kind, *again), "again", now=0) is None
    dropped = [] if kind is PushType.APPEND else [("pushed", Code.NOT_FOLLOWER)]
    assert [(token, answer.code) for token, answer in handler.step(now=0)] == dropped
    assert await store.flush_in_thread()
    waiting = ["pushed", "again"] if kind is PushType.APPEND else ["again"]
    assert [(token, answer.code) for token, answer in handler.step(now=0)] == [(one, Code.SUCCESS) for one in waiting]


async def test_a_batch_that_is_asked_about_again_counts_once_all_of_it_is_durable() -> None:
    """Its first entry may have been so for long: pushed alone before, where the connection ended."""
    first, second, third = put(leader(SimDisk(latency_s=(0, 0)).mount()), b"one", b"two", b"three")
    store = follower(SimDisk(latency_s=(0, 0)).mount())
    cut_to(store, first)
    handler = EntryHandler[str](store, acks_flushed=True)
    handler.step(now=0)
    assert handler.handle_push(push_of(PushType.APPEND, second), "alone", now=0) is None
    handler.step(now=0)
    assert await store.flush_in_thread()
    assert [(token, answer.code) for token, answer in handler.step(now=0)] == [("alone", Code.SUCCESS)]
    take(store, third)
    assert handler.handle_push(push_of(PushType.APPEND, second, third), "both", now=0) is None
    assert handler.step(now=0) == [], "its last entry is not durable"
    assert await store.flush_in_thread()
    assert [(token, answer.code) for token, answer in handler.step(now=0)] == [("both", Code.SUCCESS)]
