"""TakesTablesBack by itself: what it remembers of each peer."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.classic.takes_tables_back import TakeBackNotes, TakesTablesBack
from rmqha.errors import RemoteProtocolError
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from rmqha.store.store_note import StoreNote
from tests.sim.sim_disk import SimDisk

PEER = MasterAddress("10.0.0.2", 10912)


class Tables:
    """Of a peer that tells them, or not."""

    def __init__(self) -> None:
        self.failures = list[str]()
        self.asked_before = list[int]()

    async def merge(self, _address: str, **_how: object) -> str:
        return self.failures.pop() if self.failures else ""

    async def learn(self, *, before: int) -> bool:
        self.asked_before.append(before)
        return True


async def nothing(*_args: object) -> None:
    """All is well."""


def notes_on(disk: SimDisk) -> TakeBackNotes:
    mount = disk.mount()
    mount.makedirs("/store")
    return TakeBackNotes(*(StoreNote(mount, f"/store/{name}") for name in TakeBackNotes._fields))


def taking_back(
    tables: Tables, *, dispatched: int = 100, begin: int = 0, notes: TakeBackNotes | None = None
) -> TakesTablesBack:
    """Of a master whose log goes to 100, and that lacks nothing but what its ``notes`` say."""
    queues = SimpleNamespace(ends_before=lambda _offset, *, start, count: {}, known_ends={})
    store: Any = SimpleNamespace(
        min_offset=begin,
        max_offset=100,
        taken_to=0,
        reput_from_offset=dispatched,
        queues=queues,
        next_queue_offset=lambda *_queue: 0,
    )
    metadata: Any = SimpleNamespace(
        save=nothing,
        learn_queues=nothing,
        had_topics=True,
        files=SimpleNamespace(lost={}),
        trouble="",
        delay_offsets=SimpleNamespace(is_settled=lambda _end: True),
        forget_made_since=lambda: None,
    )
    asks: Any = tables
    return TakesTablesBack(
        notes or notes_on(SimDisk(latency_s=(0, 0))),
        store,
        metadata,
        peers={str(PEER)},
        tables=asks,
        queue_ends_client=lambda _address: asks,
    )


async def test_a_peer_that_has_lost_its_store_since_has_told_nothing_that_is_to_be_saved() -> None:
    """The next start would wait for what it cannot tell any more."""
    takes_back = taking_back(Tables())
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    assert takes_back.told_by == {str(PEER)}
    await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
    assert takes_back.told_by == set()


async def test_a_peer_that_has_told_once_and_then_holds_more_and_does_not_tell_is_awaited() -> None:
    tables = Tables()
    takes_back = taking_back(tables)
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    assert not takes_back.are_awaited
    tables.failures.append("busy")
    await takes_back.take(PEER, LogRange(0, 300, checks_reports=True), is_longer=True)
    assert (takes_back.are_awaited, takes_back.told_by) == (True, set())
    assert f"{PEER} of haPeers have yet to tell" in takes_back.why_awaited()
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    assert (takes_back.are_awaited, takes_back.why_awaited()) == (False, "")


async def test_an_empty_peer_is_heard_while_the_log_is_being_dispatched() -> None:
    """A new slave keeps no master from its start that lacks nothing."""
    takes_back = taking_back(Tables(), dispatched=50)
    await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
    assert takes_back.told_by == set()


@pytest.mark.parametrize(("begin", "before"), [(0, 0), (40, 40), (100, 70)])
async def test_where_queues_end_is_asked_of_what_lies_before_the_log_here(begin: int, before: int) -> None:
    """The peer's began earlier: it held the messages, and told no end of their queues, which gave places again."""
    takes_back = taking_back(tables := Tables(), begin=begin)
    await takes_back.take(PEER, LogRange(70, 100, checks_reports=True), is_longer=False)
    assert tables.asked_before == [before]


async def test_each_peer_is_heard_once_though_nothing_is_missing_here() -> None:
    takes_back = taking_back(tables := Tables())
    assert takes_back.origin.are_to_be_heard
    tables.failures.append("busy")
    for _ in range(3):
        await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    assert (len(tables.asked_before), takes_back.origin.are_to_be_heard) == (2, False)


@pytest.mark.parametrize("is_longer", [False, True])
async def test_a_start_goes_on_with_taking_tables_back(is_longer: bool, autojump_clock: MockClock) -> None:
    """The one before had made topics by then: this one began with a part of the tables, and took that for all."""
    tables, notes = Tables(), notes_on(SimDisk(latency_s=(0, 0)))
    notes.taking.make()
    takes_back = taking_back(tables, notes=notes)
    await takes_back.note_loss()
    tables.failures.append("busy")
    with pytest.raises(RemoteProtocolError, match="could not be taken over: busy"):
        await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=is_longer)


async def test_the_note_stays_while_a_peer_that_is_away_may_hold_all_that_was_lost(autojump_clock: MockClock) -> None:
    """A start in between took the tables of the new store for the group's."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    notes.taking.make()
    takes_back = taking_back(Tables(), notes=notes)
    await takes_back.note_loss()
    for is_in_doubt in (True, False):
        with trio.move_on_after(60):
            await takes_back.finish(nothing, partial(bool, is_in_doubt))
        assert notes.taking.look() == is_in_doubt
