"""A ledger behind the commitlog of the classic broker that the member was."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.codec.record.message import decode_message
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.term_barrier import barrier_body
from rmqha.errors import CorruptLogError, DivergedLogError, StoreLockedError
from rmqha.replication.role import Role
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.status import PutMessageStatus
from rmqha.store.store_log import StoreGround, StoreLog
from tests.dledger.ledger_log import LedgerLog
from tests.settings import clean_options
from tests.sim.sim_disk import SimDisk, Step, replay
from tests.store.helpers import Clock, dispatched, make_store, message, options, put, running

SIZE = 1024
"""Of a segment, and of a data file."""
SMALL: dict[str, Any] = {"mapped_file_size_commit_log": SIZE}
OLD = [b"old-%d" % number for number in range(12)]
NEW = [b"new-%d" % number for number in range(10)]
OLD_LOG = "/store/commitlog"


async def old_store(device: SimDisk, *bodies: bytes, crash: bool = False) -> None:
    """A classic broker was here."""
    async with running(device.mount(), crash=crash, **SMALL) as store:
        await put(store, *[message(body) for body in bodies or OLD])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        if crash:
            device.kill()


class MixedStore:
    """One life of a member's store; its majority is given to it by the test."""

    def __init__(self, device: SimDisk, **changes: Any) -> None:
        self.clock = Clock()
        ground = StoreGround(options(**SMALL | changes), device.mount(), now_ms=self.clock)
        self.log = LedgerLog(ground.disk, ground=ground, mapped_file_size_for_entry_data=SIZE)
        log: StoreLog = self.log
        self.store = DefaultMessageStore(make_parts(ground, log, role=Role()))
        self.store.connect_replication(confirmed=lambda: self.log.confirmed)

    async def put(self, *bodies: bytes) -> None:
        """And commit."""
        results = await self.store.put_messages_when_allocated([message(body) for body in bodies])
        assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
        await self.commit()

    async def commit(self) -> None:
        await self.log.commit()
        self.store.confirm()
        await dispatched(self.store)

    def bodies(self) -> list[bytes]:
        """What a consumer is shown of queue 0."""
        found = list[bytes]()
        at = self.store.get_min_offset_in_queue("TopicTest", 0)
        while views := self.store.get_message("TopicTest", 0, at + len(found)).views:
            found += [decode_message(view).body for view in views]
        return found

    def begin(self) -> DLedgerEntry:
        """The first entry that a leader appends."""
        return self.log.ledger.append_as_leader(DLedgerEntry(barrier_body(self.log.ledger, now_ms=1)))


@asynccontextmanager
async def living(device: SimDisk, *, crash: bool = False, term: int = 1, **changes: Any) -> AsyncIterator[MixedStore]:
    """Loaded and serving; stopped cleanly at the end, or just dropped."""
    mixed = MixedStore(device, **changes)
    mixed.store.load()
    mixed.log.lead(term)
    async with trio.open_nursery() as nursery:
        await nursery.start(mixed.store.run)
        yield mixed
        if crash:
            nursery.cancel_scope.cancel()
        else:
            mixed.store.stop()


@pytest.mark.parametrize("was_killed", [False, True])
async def test_entries_go_on_behind_the_old_log(autojump_clock: MockClock, was_killed: bool) -> None:
    device = SimDisk()
    await old_store(device, crash=was_killed)
    async with living(device) as mixed:
        divided = mixed.log.max_offset
        assert divided > SIZE
        assert divided % SIZE == 0
        assert mixed.log.confirmed == mixed.store.flushed_offset == mixed.store.reput_from_offset == divided
        assert mixed.log.min_offset == 0
        assert mixed.bodies() == OLD, "also before the group has a leader"
        await mixed.put(*NEW)
        assert mixed.log.ledger.get(0).pos == divided
        assert mixed.bodies() == OLD + NEW
        assert mixed.log.next_queue_offset("TopicTest", 0) == 22
        assert mixed.store.earliest_message_time_ms() == Clock()()
        places = [mixed.store.queues.find("TopicTest", 0).unit(index)[0] for index in range(22)]  # type: ignore[union-attr,index]
        for place, body in zip(places, OLD + NEW, strict=True):
            record = mixed.store.look_message_by_offset(place)
            assert record is not None
            assert decode_message(record).body == body
        assert places[11] < divided == places[12] - BODY_OFFSET


async def test_an_offset_is_found_by_time_on_both_sides_of_the_border(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device) as mixed:
        old_ms = mixed.clock.now_ms
        mixed.clock.now_ms += 1000
        await mixed.put(*NEW)
        look_up = mixed.store.get_offset_in_queue_by_time
        assert look_up("TopicTest", 0, old_ms - 1) == 0
        assert look_up("TopicTest", 0, old_ms + 500) in {len(OLD) - 1, len(OLD)}
        assert look_up("TopicTest", 0, old_ms + 1000) >= len(OLD)


async def test_a_leader_that_names_no_old_log_is_followed_and_said_once(autojump_clock: MockClock) -> None:
    """As RocketMQ's are; and an entry may hold anything."""
    device = SimDisk()
    await old_store(device)
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        async with living(device) as mixed:
            divided = mixed.log.max_offset
            mixed.log.follow(1)
            for body in (b"", b"?" * 100):
                first = DLedgerEntry(body, 0, 0, divided, size=BODY_OFFSET + len(body))
                assert mixed.log.ledger.truncate(first, 1, "n9") == 0
    assert [log["event"] for log in logs].count("old_commit_log.not_compared") == 1


@pytest.mark.parametrize("crash", [False, True])
async def test_it_is_there_again_after_a_restart(autojump_clock: MockClock, crash: bool) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device, crash=crash):
        pass
    async with living(device, crash=crash, term=2) as mixed:
        divided = mixed.log.max_offset
        await mixed.put(*NEW)
        await mixed.log.ledger.persist_check_point_in_thread()
    if crash:
        device.power_cut()
    async with living(device, term=3) as mixed:
        assert (mixed.log.confirmed, mixed.log.min_offset) == (mixed.log.max_offset, 0)
        assert mixed.bodies() == OLD + NEW
        assert mixed.log.ledger.get(0).pos == divided
        await mixed.put(b"last")
        assert mixed.bodies() == [*OLD, *NEW, b"last"]
    assert not device.mount().exists("/store/abort")


@pytest.mark.parametrize("loses_power", [False, True])
async def test_the_queues_are_built_again_from_both_parts(autojump_clock: MockClock, loses_power: bool) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device, crash=loses_power) as mixed:
        await mixed.put(*NEW)
        await mixed.log.ledger.persist_check_point_in_thread()
    if loses_power:
        device.lose_power(lambda _path, _number, old, _new: old)
    disk = device.mount()
    for name in disk.listdir("/store/consumequeue/TopicTest/0"):
        disk.unlink(f"/store/consumequeue/TopicTest/0/{name}")
    async with living(device, term=2) as mixed:
        await mixed.commit()
        assert mixed.bodies() == OLD + NEW


async def test_a_crash_while_it_is_closed_off_costs_nothing(autojump_clock: MockClock) -> None:
    """The blank is there, and no data file yet; then the data file is there, and no entry."""
    device = SimDisk()
    await old_store(device)
    mixed = MixedStore(device)
    mixed.store.load()
    divided = mixed.log.max_offset
    mixed.store.close()
    device.mount().unlink(f"/store/dledger-n0/data/{divided:020d}")
    for _ in range(2):
        async with living(device, crash=True) as again:
            assert (again.log.max_offset, again.bodies()) == (divided, OLD)
        device.power_cut()


async def first_life(device: SimDisk) -> list[Step]:
    """What the first start, the first entries and a clean stop change, behind what a classic broker did."""
    await old_store(device)
    steps: list[Step] = []
    device.trace = steps
    async with living(device) as mixed:
        mixed.begin()
        await mixed.put(*NEW)
        await mixed.log.ledger.persist_check_point_in_thread()
        await mixed.store.parts.flush_queues.flush_all()
    return steps


async def before_first_life() -> list[Step]:
    device = SimDisk()
    steps: list[Step] = []
    device.trace = steps
    await old_store(device)
    return steps


@pytest.mark.parametrize("keeps", [True, False])
async def test_wherever_the_first_life_ends_nothing_is_lost(autojump_clock: MockClock, keeps: bool) -> None:
    """By ``kill -9``, or with the power, which takes all that was not flushed."""
    before, steps = await before_first_life(), await first_life(SimDisk())
    lengths = set[int]()
    for count in range(len(steps) + 1):
        device = replay([*before, *steps[:count]])
        if not keeps:
            device.lose_power(lambda _path, _number, old, _new: old)
        mixed = MixedStore(device)
        mixed.store.load()
        found = mixed.bodies()
        assert found == (OLD + NEW)[: len(found)], f"after {count} of {len(steps)} changes"
        assert len(found) >= len(OLD)
        assert mixed.log.ledger.ledger_begin_index <= 0
        lengths.add(len(found))
        mixed.store.close()
    assert lengths >= {len(OLD), len(OLD) + len(NEW)}


@pytest.mark.parametrize("crash", [False, True])
async def test_a_classic_broker_does_not_come_back(autojump_clock: MockClock, crash: bool) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device, crash=crash) as mixed:
        await mixed.put(*NEW)
        assert await mixed.store.flush_service.flush()
        assert await mixed.store.parts.flush_queues.flush_all()
    with pytest.raises(CorruptLogError, match=r"the consume queues know|durable up to"):
        make_store(options(**SMALL), device.mount(), now_ms=Clock()).load()


async def test_an_empty_last_segment_is_left_out(autojump_clock: MockClock) -> None:
    """It was made ahead, on one broker and not on another: their logs are the same all the same."""
    one, other = SimDisk(), SimDisk()
    for device in (one, other):
        await old_store(device)
    names = one.mount().listdir(OLD_LOG)
    one.mount().create(f"{OLD_LOG}/{len(names) * SIZE:020d}", SIZE).sync()
    async with living(one) as first, living(other) as second:
        assert first.log.max_offset == second.log.max_offset
        assert first.begin().body == second.begin().body


async def test_old_files_go_first_and_the_last_of_them_too(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    clean = replace(clean_options(), delete_when=tuple(range(24)), file_reserved_time_s=1)
    async with living(device, clean=clean) as mixed:
        divided, count = mixed.log.max_offset, len(mixed.store.disk.listdir(OLD_LOG))
        assert await mixed.store.cleaner.clean() == count - 1 > 0, "what holds the last messages stays"
        await mixed.put(b"new")
        assert await mixed.store.cleaner.clean() == 1
        assert (mixed.log.min_offset, mixed.bodies()) == (divided, [b"new"])
        assert mixed.store.get_min_offset_in_queue("TopicTest", 0) == len(OLD)
        assert mixed.log.ledger.get(0).pos == divided, "entries stay as long as any old segment does"
    assert device.mount().listdir(OLD_LOG) == []
    async with living(device, term=2) as mixed:
        assert (mixed.log.min_offset, mixed.bodies()) == (divided, [b"new"])


async def test_a_follower_takes_the_first_entry_of_a_leader_that_has_the_same_old_log(
    autojump_clock: MockClock,
) -> None:
    one, other = SimDisk(), SimDisk()
    for device in (one, other):
        await old_store(device)
    async with living(one) as leader, living(other) as follower:
        first = leader.begin()
        await leader.put(b"new")
        follower.log.follow(1)
        ledger = follower.log.ledger
        ledger.append_as_follower(replace(first), 1, "n9")
        assert ledger.truncate(replace(first), 1, "n9") == 0
        ledger.append_as_follower(replace(leader.log.ledger.get(1)), 1, "n9")
        await follower.commit()
        assert follower.bodies() == leader.bodies() == [*OLD, b"new"]


@pytest.mark.parametrize(
    "theirs", [pytest.param(OLD[:-1], id="a tail is missing"), pytest.param([], id="none"), [b"x"], OLD * 3]
)
async def test_who_has_another_old_log_takes_nothing(autojump_clock: MockClock, theirs: list[bytes]) -> None:
    """RocketMQ takes it if the end is the same, and else begins anew behind its own messages, or over them."""
    one, other = SimDisk(), SimDisk()
    await old_store(one)
    if theirs:
        await old_store(other, *theirs)
    async with living(one) as leader, living(other) as follower:
        first = leader.begin()
        for source, target in ((first, follower), (follower.begin(), leader)):
            target.log.follow(2)
            ledger, files = target.log.ledger, [file.path for file in target.log.files.files]
            with pytest.raises(DivergedLogError, match="Nothing was changed, and no member copies such a log"):
                ledger.truncate(replace(source, term=2), 2, "n9")
            assert [file.path for file in target.log.files.files] == files
        assert leader.bodies() == OLD
        assert follower.bodies() == theirs


async def test_the_same_end_is_not_the_same_log(autojump_clock: MockClock) -> None:
    one, other = SimDisk(), SimDisk()
    await old_store(one)
    await old_store(other, *OLD[:-1])
    async with living(one) as leader, living(other) as follower:
        assert leader.log.max_offset == follower.log.max_offset
        first = leader.begin()
        follower.log.follow(1)
        with pytest.raises(DLedgerException, match="has SHA-256"):
            follower.log.ledger.append_as_follower(replace(first), 1, "n9")
        assert follower.log.ledger.ledger_end_index == -1


async def test_nor_is_it_after_a_restart_with_an_entry_that_is_not_committed(autojump_clock: MockClock) -> None:
    """The leader's takes its place."""
    one, other = SimDisk(), SimDisk()
    await old_store(one)
    await old_store(other, *OLD[:-1])
    async with living(other) as former:
        former.begin()
        assert await former.log.ledger.flush_in_thread()
    async with living(one) as leader, living(other) as follower:
        assert (follower.log.ledger.committed_index, follower.log.ledger.ledger_end_index) == (-1, 0)
        first = leader.begin()
        follower.log.follow(2)
        with pytest.raises(DivergedLogError, match="has SHA-256"):
            follower.log.ledger.truncate(replace(first, term=2), 2, "n9")


async def test_far_behind_it_begins_anew_without_the_old_log(autojump_clock: MockClock) -> None:
    """The leader has deleted its own, and entries too; but only for a member that had entries of the group."""
    device, other = SimDisk(), SimDisk()
    for one in (device, other):
        await old_store(one)
    async with living(SimDisk()) as leader, living(device) as behind, living(other) as stranger:
        await leader.put(*[b"new-%d" % number for number in range(40)])
        first = replace(leader.log.ledger.get(30))
        await behind.put(b"1")
        behind.log.follow(1)
        behind.log.ledger.truncate(replace(first), 1, "n9")
        assert behind.store.disk.listdir(OLD_LOG) == []
        await behind.commit()
        assert behind.log.min_offset == first.pos
        stranger.log.follow(1)
        with pytest.raises(DivergedLogError, match="no entry of the group"):
            stranger.log.ledger.truncate(replace(first), 1, "n9")
        assert stranger.bodies() == OLD


async def test_what_another_broker_wrote_since_is_refused(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device) as mixed:
        await mixed.put(b"new")
        await mixed.log.ledger.persist_check_point_in_thread()
        divided = 2 * SIZE
    device.mount().create(f"{OLD_LOG}/{divided:020d}", SIZE).sync()
    mixed = MixedStore(device)
    with pytest.raises(CorruptLogError, match="but the entries behind it begin at"):
        mixed.store.load()


async def test_nobody_else_writes_it_meanwhile(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device) as mixed:
        with pytest.raises(StoreLockedError):
            async with running(mixed.store.disk, root="/elsewhere", store_path_commit_log=OLD_LOG, **SMALL):
                pass


async def test_an_old_log_that_is_damaged_is_refused(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    disk = device.mount()
    disk.open(f"{OLD_LOG}/{0:020d}", writable=True).pwrite([b"?"], 89)
    mixed = MixedStore(device)
    with pytest.raises(CorruptLogError, match="BODYCRC"):
        mixed.store.load()
