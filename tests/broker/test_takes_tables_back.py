"""TakesTablesBack by itself: what it remembers of each peer."""

import errno
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from itertools import islice
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.classic.take_back_notes import TakeBackNotes
from rmqha.broker.classic.takes_tables_back import TakesTablesBack
from rmqha.broker.slave_synchronize import Merged
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.errors import RemoteProtocolError, StoreError, StoreReadError, StoreWriteError
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from rmqha.store.config_files import TOPICS
from rmqha.store.consume_queue_table import QueueKey
from rmqha.store.store_note import StoreNote
from tests.sim.sim_disk import SimDisk

PEER = MasterAddress("10.0.0.2", 10912)


class Tables:
    """Of a peer that tells them, or not."""

    def __init__(self) -> None:
        self.failures = list[str]()
        self.asked_before = list[int]()
        self.heard = list[HeardLogs]()
        self.ends: Mapping[QueueKey, int] | None = None
        self.how = dict[str, object]()
        self.knows_ends = True
        self.lacks_some = False

    async def merge(
        self, _address: str, *, heard: HeardLogs, ends: Mapping[QueueKey, int] | None = None, **how: object
    ) -> Merged:
        self.heard.append(heard)
        self.ends, self.how = ends, how
        return Merged(self.failures.pop() if self.failures else "", lacks_some=self.lacks_some)

    async def learn(self, *, before: int) -> bool:
        self.asked_before.append(before)
        return self.knows_ends


async def nothing(*_args: object) -> None:
    """All is well."""


def notes_on(disk: SimDisk) -> TakeBackNotes:
    mount = disk.mount()
    mount.makedirs("/store")
    return TakeBackNotes(*(StoreNote(mount, f"/store/{name}") for name in TakeBackNotes._fields))


def taking_back(
    tables: Tables,
    *,
    dispatched: int = 100,
    begin: int = 0,
    notes: TakeBackNotes | None = None,
    peers: Collection[str] = (str(PEER),),
    lost: dict[str, str] | None = None,
    had_topics: bool = True,
    trouble: str = "",
    are_ends_saved: bool = True,
    ends: Mapping[QueueKey, int] | None = None,
    as_of: int | None = None,
    is_required: bool = False,
) -> TakesTablesBack:
    """Of a master whose log goes to 100, and that lacks nothing but what is ``lost``, or its ``notes`` say."""

    def ends_before(_offset: int, *, start: int, count: int) -> dict[QueueKey, int]:
        return dict(islice((ends or {}).items(), start, start + count))

    queues = SimpleNamespace(ends_before=ends_before, known_ends={})
    store: Any = SimpleNamespace(
        min_offset=begin,
        max_offset=100,
        taken_to=0,
        reput_from_offset=dispatched,
        queues=queues,
        next_queue_offset=lambda *_queue: 0,
        first_stored_from=lambda *_of: None,
        root_as_of=as_of,
    )
    metadata: Any = SimpleNamespace(
        save=nothing,
        learn_queues=nothing,
        had_topics=had_topics,
        found=TablesOrigin(),
        had_offsets=had_topics,
        files=SimpleNamespace(lost=lost or {}),
        trouble=trouble,
        delay_offsets=SimpleNamespace(is_settled=lambda _end: True),
        forget_made_since=lambda: None,
        queue_ends=SimpleNamespace(dirty=not are_ends_saved),
    )
    asks: Any = tables
    return TakesTablesBack(
        notes or notes_on(SimDisk(latency_s=(0, 0))),
        store,
        metadata,
        peers=peers,
        tables=asks,
        queue_ends_client=lambda _address: asks,
        why_untold=lambda _peer: "nothing answers",
        is_required=is_required,
    )


async def test_a_peer_that_has_lost_its_store_since_has_told_nothing_that_is_to_be_saved() -> None:
    """The next start would wait for what it cannot tell any more."""
    takes_back = taking_back(Tables())
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    assert takes_back.told_by == {str(PEER)}
    await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
    assert takes_back.told_by == set()


@pytest.mark.parametrize("how", [{"trouble": "the disk is full"}, {"are_ends_saved": False}, {}], ids=str)
async def test_what_a_peer_tells_counts_once_it_is_saved(how: dict[str, Any]) -> None:
    """Ended before, a master with an empty store would begin without it, and ask nobody."""
    takes_back = taking_back(Tables(), had_topics=False, **how)
    await takes_back.note_loss()
    with pytest.raises(RemoteProtocolError, match="could not be saved") if how else nullcontext():
        await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    assert bool(takes_back.why_withheld(may_be_older=False)) == bool(how)


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


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ({"lost": {"topics.json": "it is gone"}}, 100),
        ({"is_noted": True}, 100),
        ({"had_topics": False}, 0),
        ({"as_of": 50}, 50),
    ],
)
async def test_tables_that_are_here_are_as_late_as_the_log(how: dict[str, Any], end: int) -> None:
    """What a slave of RocketMQ's whose log is shorter says undid what was decided here since.

    So it was at each start that waited for it, though a peer had told the tables before.
    """
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    if how.pop("is_noted", False):
        await notes.lost.make_in_thread()
    takes_back = taking_back(tables := Tables(), notes=notes, **how)
    await takes_back.note_loss()
    for _ in range(2):
        await takes_back.take(PEER, LogRange(0, 90, checks_reports=False), is_longer=False)
    assert [heard.end for heard in tables.heard] == [end, end]


@pytest.mark.parametrize("had_topics", [True, False])
async def test_a_longer_log_waits_until_its_peer_says_where_queues_end(
    autojump_clock: MockClock, *, had_topics: bool
) -> None:
    """It may be busy for a moment: without that the places of queues that hold nothing by now are given again.

    A master that has tables waits 20 s for it; one that lost them would have nothing to go on with.
    """
    takes_back, there = taking_back(tables := Tables(), had_topics=had_topics), LogRange(0, 200, checks_reports=True)
    await takes_back.note_loss()
    tables.knows_ends = False
    for waits_s, is_refused in ((0, True), (19, True), (2, not had_topics)):
        await trio.sleep(waits_s)
        with pytest.raises(RemoteProtocolError, match="where its queues end") if is_refused else nullcontext():
            await takes_back.take(PEER, there, is_longer=True)
        assert takes_back.told_by == set()
    tables.knows_ends = True
    await takes_back.take(PEER, there, is_longer=True)
    assert takes_back.told_by == {str(PEER)}


OURS, ROCKETMQS = LogRange(0, 100, checks_reports=True), LogRange(0, 100, checks_reports=False)
BELOW = LogRange(0, 19, checks_reports=True)


@pytest.mark.parametrize("lacks", [{"had_topics": False}, {"as_of": 40}, {"lost": {"topics.json": "is gone"}}])
@pytest.mark.parametrize(
    ("there", "is_required", "is_refused"),
    [
        (OURS, True, True),
        (None, True, True),
        (ROCKETMQS, True, False),
        (BELOW, True, False),
        (OURS, False, False),
        (None, False, False),
    ],
)
async def test_an_equal_peer_has_20_s_to_say_where_queues_end_or_all_the_time_where_that_is_required(
    there: LogRange | None,
    lacks: dict[str, Any],
    autojump_clock: MockClock,
    *,
    is_required: bool,
    is_refused: bool,
) -> None:
    """It took sends 20 s after its start, or at once: places of queues whose messages had expired were given again."""
    takes_back = taking_back(tables := Tables(), is_required=is_required, begin=20, **lacks)
    await takes_back.note_loss()
    tables.knows_ends = False
    await trio.sleep(28)  # it stood still
    for waits_s, refuses in ((0, True), (19, True), (2, is_refused), (3600, is_refused)):
        await trio.sleep(waits_s)
        with pytest.raises(RemoteProtocolError) if refuses else nullcontext():
            await takes_back.take(PEER, there, is_longer=False)
        assert takes_back.are_awaited
    tables.knows_ends = True
    await takes_back.take(PEER, there or OURS, is_longer=False)
    assert not takes_back.are_awaited


async def test_the_end_of_each_queue_is_known_before_a_shorter_peer_tells_where_groups_are() -> None:
    """No offset counts beyond it: of queues whose end were missing groups would begin at 0 again."""
    ends = {("topic", number): number + 1 for number in range(250)}
    takes_back = taking_back(tables := Tables(), had_topics=False, ends=ends)
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 90, checks_reports=True), is_longer=False)
    assert tables.ends == ends


async def test_an_empty_peer_is_heard_while_the_log_is_being_dispatched() -> None:
    """A new slave keeps no master from its start that lacks nothing."""
    takes_back = taking_back(Tables(), dispatched=50)
    await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
    assert takes_back.told_by == set()


@pytest.mark.parametrize(("begin", "before"), [(0, 0), (40, 40), (100, 70)])
async def test_where_queues_end_is_asked_of_what_lies_before_the_log_here(begin: int, before: int) -> None:
    """The peer's began earlier: it held the messages, and told no end of their queues, which gave places again."""
    takes_back = taking_back(tables := Tables(), begin=begin)
    await takes_back.take(PEER, LogRange(70, 200, checks_reports=True), is_longer=True)
    assert tables.asked_before == [before]


async def test_a_note_of_a_process_before_goes_with_what_is_lost_since(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It could not be made a second time, nor was it removed: the broker was degraded from then on."""
    disk = SimDisk(latency_s=(0, 0))
    notes = notes_on(disk)
    notes.older.make()
    takes_back = taking_back(Tables(), notes=notes_on(disk), lost={"consumerOffset.json": "no JSON"})
    await takes_back.note_loss()
    assert takes_back.are_awaited
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    nursery.start_soon(takes_back.finish, nothing, lambda: False)
    await trio.sleep(10)
    assert (takes_back.are_awaited, [*disk.files]) == (False, [])
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["10.0.0.2", "[fd00::2]"])
async def test_of_two_peers_on_one_host_both_have_to_tell_before_it_may_take_over_what_is_here(host: str) -> None:
    """Who has yet to tell may have what is awaited, and would replace it."""
    first, second = (MasterAddress(host.strip("[]"), port) for port in (10912, 20912))
    takes_back = taking_back(Tables(), lost={"topics.json": "it is gone"}, peers=[f"{host}:10912", f"{host}:20912"])
    await takes_back.note_loss()
    asks_from = host.strip("[]")
    for peer, is_withheld in ((None, True), (first, True), (second, False)):
        if peer is not None:
            await takes_back.take(peer, LogRange(0, 100, checks_reports=True), is_longer=False)
        assert bool(takes_back.why_withheld_from(asks_from)) == is_withheld


async def test_who_has_told_may_take_over_what_is_here_though_another_has_yet_to_tell() -> None:
    """All that it knew is here; with one that stays away it would follow without tables for ever."""
    takes_back = taking_back(Tables(), lost={"topics.json": "it is gone"}, peers=["10.0.0.2:10912", "10.0.0.3:10912"])
    await takes_back.note_loss()
    await takes_back.take(MasterAddress("10.0.0.2", 10912), LogRange(0, 100, checks_reports=True), is_longer=False)
    assert "10.0.0.3:10912 of haPeers have yet to tell" in takes_back.why_awaited()
    withheld = [bool(takes_back.why_withheld_from(f"10.0.0.{number}")) for number in (2, 3, 4)]
    assert withheld == [False, True, True]


async def test_a_group_without_an_offset_is_told_so_a_minute_after_the_start(autojump_clock: MockClock) -> None:
    """It would wait for ever for a peer that does not come back."""
    await trio.sleep(1000)
    takes_back = taking_back(Tables(), lost={"topics.json": "it is gone"})
    await takes_back.note_loss()
    await trio.sleep(59)
    assert "until 60 s after the start" in takes_back.why_offsets_unknown
    await trio.sleep(2)
    assert takes_back.why_offsets_unknown == ""
    assert takes_back.why_awaited()


@pytest.mark.parametrize("had_topics", [True, False])
async def test_a_start_without_tables_is_noted_before_any_are_made(had_topics: bool) -> None:
    """Ended at once, the next start would take what clients made in between for this group's tables."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    await taking_back(Tables(), notes=notes, had_topics=had_topics).note_loss()
    assert (notes.taking.look(), notes.lost.look()) == (not had_topics, not had_topics)


@pytest.mark.parametrize("there", [LogRange(0, 200, checks_reports=True), None], ids=["told", "untold"])
async def test_an_empty_log_s_tables_are_noted_as_lost_before_a_longer_peer_s_are_taken(there: LogRange | None) -> None:
    """Others that are away may know more: the next start has to ask them, too."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    takes_back = taking_back(Tables(), notes=notes, begin=100, had_topics=False)
    await takes_back.note_loss()
    assert not notes.lost.look()
    with nullcontext() if there else pytest.raises(RemoteProtocolError, match="nothing answers"):
        await takes_back.take(PEER, there, is_longer=True)
    assert notes.lost.look()


@pytest.mark.parametrize(("begun_before", "begun_to"), [(-1, 100), (50, 50)])
async def test_where_it_began_to_serve_without_tables_outlasts_a_start(
    begun_before: int, begun_to: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What was decided since is later than what a peer still has to tell."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    await notes.lost.make_in_thread()
    takes_back = taking_back(Tables(), notes=notes)
    metadata: Any = takes_back._metadata
    metadata.has_decided, metadata.found = False, TablesOrigin(are_told=True, log_end=40, begun_to=begun_before)
    await takes_back.note_loss()
    assert takes_back.origin.begun_to == begun_before
    nursery.start_soon(takes_back.finish, nothing, lambda: False)
    await trio.sleep(60)
    assert takes_back.origin.begun_to == begun_to
    nursery.cancel_scope.cancel()


async def test_what_is_taken_later_has_to_be_settled_before_the_loss_is_forgotten(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut in between left tables that counted as whole."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    takes_back, settled_to = taking_back(Tables(), notes=notes, lost={"topics.json": "it is gone"}), 100
    takes_back._store.taken_to = 200
    monkeypatch.setattr(takes_back._metadata.delay_offsets, "is_settled", lambda end: end <= settled_to)
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    nursery.start_soon(takes_back.finish, nothing, lambda: False)
    for is_noted in (True, False):
        await trio.sleep(10)
        assert notes.older.is_there == is_noted
        settled_to = 200
    nursery.cancel_scope.cancel()


async def test_the_note_stays_while_it_cannot_be_saved_that_peers_have_told(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Gone before, a start in between would not know that tables were being taken back."""
    notes, is_full, noted = notes_on(SimDisk(latency_s=(0, 0))), True, list[bool]()
    takes_back = taking_back(Tables(), notes=notes, had_topics=False)

    async def save() -> None:
        await nothing()
        noted.append(notes.taking.is_there)
        if is_full:
            raise StoreWriteError(OSError(errno.ENOSPC, "no space left"), operation="create", path="/store/saved")

    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    nursery.start_soon(takes_back.finish, save, lambda: False)
    await trio.sleep(20)
    is_full = False
    await trio.sleep(10)
    assert len(noted) > 1
    assert all(noted)
    assert not notes.taking.is_there
    nursery.cancel_scope.cancel()


async def test_an_empty_peer_that_could_not_tell_is_asked_again(autojump_clock: MockClock) -> None:
    """After 20 s it counted as one that had told: its tables may be all that there are."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    notes.older.make()
    tables = Tables()
    takes_back = taking_back(tables, notes=notes)
    await takes_back.note_loss()
    tables.failures = ["busy"]
    with pytest.raises(RemoteProtocolError, match="busy"):
        await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
    await trio.sleep(21)
    for failures, is_awaited in (["busy"], True), (list[str](), False):
        tables.failures = failures
        await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
        assert takes_back.are_awaited is is_awaited


async def test_a_group_is_told_that_it_has_no_offset_once_one_peer_has_told(autojump_clock: MockClock) -> None:
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    notes.older.make()
    takes_back = taking_back(Tables(), notes=notes, peers={str(PEER), "10.0.0.3:10912"})
    await takes_back.note_loss()
    assert takes_back.why_offsets_unknown
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    assert (takes_back.are_awaited, takes_back.why_offsets_unknown) == (True, "")


async def test_who_told_is_remembered_until_it_can_be_noted_that_nobody_has_to_be_asked(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A full disk: the next start asks again those whose tables are not saved for good."""
    takes_back = taking_back(Tables())
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    told = list[set[str]]()
    full, unread = OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "unread")
    refusals: list[StoreError] = [
        StoreWriteError(full, operation="unlink", path="/store/beganEmpty"),
        StoreReadError(unread, operation="open", path="/store/beganEmpty"),
    ]

    async def on_saved() -> None:
        told.append(set(takes_back.told_by))
        if refusals:
            raise refusals.pop()

    nursery.start_soon(takes_back.finish, on_saved, lambda: False)
    await trio.sleep(1)
    assert (takes_back.told_by, told) == ({str(PEER)}, [set()])
    await trio.sleep(5)
    assert (takes_back.told_by, told) == ({str(PEER)}, [set()] * 2)
    await trio.sleep(5)
    assert (takes_back.told_by, told) == (set(), [set()] * 3)
    nursery.cancel_scope.cancel()


async def test_while_a_longer_peer_may_tell_newer_tables_no_slave_takes_those_of_another() -> None:
    takes_back = taking_back(Tables(), had_topics=False)
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    assert [bool(takes_back.why_withheld(may_be_older=may)) for may in (False, True)] == [False, True]


async def test_where_neither_has_a_log_no_queue_s_end_cuts_what_the_other_tells() -> None:
    """All groups were at 0 again: places that went with the log count, as the ends of silent queues do."""
    takes_back = taking_back(tables := Tables(), begin=100, had_topics=False)
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 0, checks_reports=True), is_longer=False)
    assert tables.ends is None


async def test_that_a_longer_peer_was_met_is_known_to_the_next_start_until_all_have_told() -> None:
    """Others that are as long may know what that one missed."""
    notes, saved = notes_on(SimDisk(latency_s=(0, 0))), list[bool]()
    takes_back = taking_back(Tables(), notes=notes, peers=[str(PEER), "10.0.0.3:10912"])
    metadata: Any = takes_back._metadata

    async def save() -> None:
        await nothing()
        saved.append(notes.older.look())

    metadata.save = save
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 200, checks_reports=True), is_longer=True)
    assert (takes_back.are_awaited, saved) == (True, [True])


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_longer_slave_of_rocketmqs_that_tells_nothing_keeps_nobody_for_ever(
    is_ours: bool, autojump_clock: MockClock
) -> None:
    """It may lack some tables for good; one of ours is yet to have them."""
    takes_back = taking_back(tables := Tables(), had_topics=False)
    await takes_back.note_loss()
    for waits_s, is_refused in ((0, True), (19, True), (2, is_ours)):
        await trio.sleep(waits_s)
        tables.failures.append("it has none")
        with pytest.raises(RemoteProtocolError, match="it has none") if is_refused else nullcontext():
            await takes_back.take(PEER, LogRange(0, 200, checks_reports=is_ours), is_longer=True)


@pytest.mark.parametrize(
    ("how", "offsets_to", "sets_back", "takes_unknown"),
    [
        ({"as_of": 50}, -1, False, True),
        ({"as_of": 50}, 40, True, True),
        ({"lost": {"consumerOffset.json": "no JSON"}, "had_offsets": False}, -1, True, True),
        ({"had_topics": False}, -1, True, False),
        ({"had_topics": False, "had_offsets": True}, -1, False, False),
    ],
    ids=str,
)
async def test_offsets_here_are_set_back_where_they_are_others_alone(
    how: dict[str, Any], offsets_to: int, *, sets_back: bool, takes_unknown: bool
) -> None:
    """Of an older copy they are this broker's own, at the first start at least."""
    had_offsets = how.pop("had_offsets", how.get("had_topics", True))
    takes_back = taking_back(tables := Tables(), **how)
    metadata: Any = takes_back._metadata
    metadata.had_offsets, metadata.found = had_offsets, TablesOrigin(offsets_to=offsets_to)
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    known = {name: tables.how[name] for name in ("sets_back", "takes_unknown")}
    assert known == {"sets_back": sets_back, "takes_unknown": takes_unknown}
    assert (tables.how["next_offset"] is None) == sets_back


@pytest.mark.parametrize(
    ("found", "is_lost", "follows_from", "end"),
    [
        (TablesOrigin(), True, inf, 0),
        (TablesOrigin(are_told=True, log_end=40), False, inf, 40),
        (TablesOrigin(are_told=True, log_end=40, begun_to=60), False, 60, 40),
    ],
    ids=["by nobody", "by a peer", "by a peer, and had begun to serve"],
)
async def test_a_start_goes_on_with_what_the_process_before_was_told(
    found: TablesOrigin, is_lost: bool, follows_from: float, end: int
) -> None:
    """Topics that were made since the loss are no word of before; those that a peer told are."""
    notes = notes_on(SimDisk(latency_s=(0, 0)))
    notes.lost.make()
    notes.taking.make()
    takes_back = taking_back(tables := Tables(), notes=notes)
    metadata: Any = takes_back._metadata
    metadata.found = found
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    assert (tables.how["is_lost"], tables.how["follows_from"]) == (is_lost, follows_from)
    assert tables.heard[0].end_of(TOPICS) == end


async def test_what_was_told_before_all_had_come_says_nothing_of_what_is_lost_since() -> None:
    """The note went, and the file that says who had told did not go with it, as in a crash between the two."""
    takes_back = taking_back(tables := Tables(), lost={"topics.json": "it is gone"})
    metadata: Any = takes_back._metadata
    metadata.found = TablesOrigin(are_told=True, log_end=40)
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 90, checks_reports=True), is_longer=False)
    assert tables.heard[0].end_of(TOPICS) == 100


async def test_who_tells_less_than_the_log_is_heard_once_that_is_dispatched() -> None:
    """Before, ends of queues would be missing, beyond which no offset counts."""
    takes_back = taking_back(tables := Tables(), dispatched=50, lost={"topics.json": "it is gone"})
    await takes_back.note_loss()
    with pytest.raises(RemoteProtocolError, match="not all of the log here"):
        await takes_back.take(PEER, LogRange(0, 90, checks_reports=True), is_longer=False)
    assert (tables.heard, takes_back.are_awaited) == ([], True)


async def test_once_one_has_told_all_who_lacks_some_makes_nothing_older() -> None:
    first, second, third = (MasterAddress("10.0.0.2", port) for port in (10912, 20912, 30912))
    lost = {"topics.json": "it is gone"}
    peers = [str(peer) for peer in (first, second, third)]
    takes_back = taking_back(tables := Tables(), lost=lost, peers=peers)
    await takes_back.note_loss()
    for peer, lacks_some, are_told in ((first, True, 2), (second, False, 1), (third, True, 1)):
        tables.lacks_some = lacks_some
        await takes_back.take(peer, LogRange(0, 100, checks_reports=True), is_longer=False)
        assert len(lost) == are_told


@pytest.mark.parametrize("lost", [{}, {"topics.json": "it is gone"}], ids=["nothing", "topics"])
async def test_peers_are_asked_late_where_something_is_awaited(
    lost: dict[str, str], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    takes_back, asked = taking_back(Tables(), lost=lost), list[MasterAddress]()
    await takes_back.note_loss()

    async def probe(peer: MasterAddress) -> LogRange:
        await nothing()
        asked.append(peer)
        return LogRange(0, 100, checks_reports=True)

    nursery.start_soon(takes_back.ask_late, lambda: [PEER], probe)
    await trio.sleep(30)
    assert asked == ([PEER] if lost else [])
    nursery.cancel_scope.cancel()


async def test_all_that_says_what_was_lost_goes_once_nobody_is_in_doubt(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Who is away may hold all of this group; names of what clients made meanwhile go last."""
    notes, forgotten, is_in_doubt = notes_on(SimDisk(latency_s=(0, 0))), list[float](), True
    takes_back = taking_back(Tables(), notes=notes, had_topics=False)
    metadata: Any = takes_back._metadata
    metadata.forget_made_since = lambda: forgotten.append(trio.current_time())
    await takes_back.note_loss()
    await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
    nursery.start_soon(takes_back.finish, nothing, lambda: is_in_doubt)
    for doubts in (True, False):
        is_in_doubt = doubts
        await trio.sleep(10)
        assert (notes.taking.is_there, notes.lost.is_there, bool(forgotten)) == (doubts, doubts, not doubts)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", TakeBackNotes._fields)
async def test_an_operator_who_has_a_master_ask_nobody_has_decided(name: str) -> None:
    """A note that stayed would count at the first start that asks again."""
    disk, forgotten = SimDisk(latency_s=(0, 0)), list[str]()
    notes = notes_on(disk)
    getattr(notes, name).make()
    takes_back = taking_back(Tables(), notes=notes_on(disk), peers=())
    metadata: Any = takes_back._metadata
    metadata.forget_made_since = lambda: forgotten.append(name)
    await takes_back.forget_loss()
    assert ([*disk.files], forgotten) == ([], [name])


async def test_a_note_that_could_not_be_made_at_the_start_is_made_before_tables_are_taken() -> None:
    disk = SimDisk(latency_s=(0, 0))
    notes = notes_on(disk)
    takes_back = taking_back(Tables(), notes=notes, begin=100, had_topics=False)
    for is_full in (True, False):
        disk.faults.full = is_full
        if is_full:
            await takes_back.note_loss()
        else:
            await takes_back.take(PEER, LogRange(0, 100, checks_reports=True), is_longer=False)
        assert notes.taking.look() != is_full
