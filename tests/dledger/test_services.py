"""FlushDataService and CleanSpaceService."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.dledger_properties import TermVote
from rmqha.dledger.clean_space_service import CleanSpaceService
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.flush_data_service import FlushDataService
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.term_file import TermFile
from rmqha.errors import CorruptLogError, StoreReadError
from rmqha.store.disk import DiskUsage
from rmqha.store.os_disk import OsDisk
from tests.dledger.defaults import store_config
from tests.dledger.members import CONFIG, all_of, leader, put
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_mount import SimMount

DIRECTORY = "/store/dledger-n0"
HOUR_MS = 3_600_000
NOON = 1_800_000_000_000 - 1_800_000_000_000 % (24 * HOUR_MS) + 12 * HOUR_MS


@pytest.fixture
def sim() -> SimDisk:
    return SimDisk(latency_s=(0.001, 0.001))


class TestFlushDataService:
    """Seed checklist: FlushDataService, checkpoint interval, flush interval, errors (spec: dledger §1.12)."""

    async def test_what_is_appended_becomes_durable_and_is_told(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        store = leader(sim.mount())
        told: list[int] = []
        service = FlushDataService(store, CONFIG, on_flushed=lambda: told.append(store.flushed_index))
        nursery.start_soon(service.run)
        for _ in range(3):
            put(store, b"one", b"two")
        await trio.sleep(0.1)
        assert (store.flushed_index, told) == (5, [5])
        put(store, b"three")
        await trio.sleep(0.1)
        assert told == [5, 6]

    async def test_the_data_is_durable_before_its_index(self, sim: SimDisk) -> None:
        """Seed checklist: flush(0) twice, of the data and of the index (spec: dledger §1.12)."""
        store = leader(sim.mount())
        put(store, b"one")
        data, index = store.data_file_list.mapped_files[0], store.index_file_list
        seen: list[int] = []
        sync = data.file().sync_in_thread

        async def watched() -> None:
            seen.append(index.max_wrote_position)
            await sync()

        data.file().sync_in_thread = watched  # type: ignore[method-assign]
        assert await store.flush_in_thread()
        assert seen == [0], "no unit is written before its entry is durable"
        assert (store.data_file_list.flushed_where, index.flushed_where) == (51, 32)

    @pytest.mark.parametrize(("latency_s", "lines"), [(0.2, 0), (0.3, 1)])
    async def test_a_slow_flush_is_told(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock, latency_s: float, lines: int
    ) -> None:
        """Seed checklist: 500 ms log, of data and index together (spec: dledger §1.12)."""
        store = leader(sim.mount())
        put(store, b"one")
        sim.latency_s = (latency_s, latency_s)
        structlog.configure(wrapper_class=structlog.BoundLogger)
        with capture_logs() as logs:
            nursery.start_soon(FlushDataService(store, CONFIG).run)
            await trio.sleep(2)
        assert [entry["event"] for entry in logs] == ["flush_data_service.slow"] * lines

    async def test_where_nobody_waits_for_it_the_interval_is_kept(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        store = leader(sim.mount(), acks_flushed=False)
        told: list[float] = []
        config = replace(CONFIG, acks_flushed=False, flush_file_interval_s=0.5)
        service = FlushDataService(store, config, on_flushed=lambda: told.append(trio.current_time()))
        nursery.start_soon(service.run)
        for _ in range(30):
            put(store, b"one")
            await trio.sleep(0.05)
        assert 2 <= len(told) <= 4

    async def test_the_checkpoint_is_written_now_and_then(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        store = leader(sim.mount())
        nursery.start_soon(FlushDataService(store, CONFIG).run)
        put(store, b"one", b"two")
        await trio.sleep(1)
        store.update_committed_index(1, 1)
        path = f"{DIRECTORY}/checkpoint"
        assert b"committedIndex=-1\n" in sim.files[path].cache
        await trio.sleep(2.5)
        assert b"committedIndex=1\nendIndex=1\n" in sim.files[path].cache

    async def test_a_checkpoint_that_cannot_be_written_is_told_once(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        store = leader(sim.mount())
        put(store, b"one")
        assert await store.flush_in_thread()
        sim.faults.full = True
        structlog.configure(wrapper_class=structlog.BoundLogger)
        with capture_logs() as logs:
            nursery.start_soon(FlushDataService(store, CONFIG).run)
            await trio.sleep(60)
        assert [line["event"] for line in logs] == ["flush_data_service.check_point_failed"]

    async def test_the_checkpoint_vouches_only_for_what_is_durable(self, sim: SimDisk) -> None:
        store = leader(sim.mount(), acks_flushed=False)
        put(store, b"one")
        assert await store.flush_in_thread()
        put(store, b"two")
        store.update_committed_index(1, 1)
        await store.persist_check_point_in_thread()
        assert b"committedIndex=0\n" in sim.files[f"{DIRECTORY}/checkpoint"].cache

    async def test_a_failed_flush_is_final(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        """§7.3 row 18: DLedger goes on, every 200 ms."""
        store = leader(sim.mount())
        put(store, b"good")
        assert await store.flush_in_thread()
        told: list[int] = []
        sim.faults.sync_errors = 1
        service = FlushDataService(store, CONFIG, on_flushed=lambda: told.append(store.flushed_index))
        put(store, b"lost")
        with trio.fail_after(5):
            await service.run()
        assert (store.flushed_index, told, store.write_error is not None) == (0, [0], True)
        with pytest.raises(DLedgerException, match="an earlier failure is final") as raised:
            put(store, b"more")
        assert raised.value.code is DLedgerResponseCode.DISK_ERROR
        assert not await store.flush_in_thread()
        await store.shutdown()
        assert b"committedIndex=-1\n" in sim.files[f"{DIRECTORY}/checkpoint"].cache

    async def test_an_index_file_that_lacks_space_is_waited_for(
        self, sim: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        """Seed checklist: 200 ms on error (spec: dledger §1.12)."""
        store = leader(sim.mount(), mapped_file_size_for_entry_data=4096)
        put(store, *[b""] * 15)
        sim.faults.full = True
        nursery.start_soon(FlushDataService(store, CONFIG).run)
        await trio.sleep(1)
        assert (store.write_error, store.flushed_index) == (None, -1)
        sim.faults.full = False
        await trio.sleep(1)
        assert store.flushed_index == 14


class FakeDisk(SimMount):
    """Directories as full as a test says, in percent."""

    used: dict[str, int]
    is_unreadable = False

    def usage(self, path: str) -> DiskUsage:
        if self.is_unreadable:
            raise StoreReadError(OSError(errno.EIO, "Input/output error"), operation="statvfs", path=path)
        return replace(super().usage(path), used_percent=self.used.get(path, 10))


class Member:
    """A store of seven data files, all of it committed and durable, and its service."""

    def __init__(self, sim: SimDisk, **options: Any) -> None:
        self.now_ms = NOON
        sim.now_ms = lambda: self.now_ms
        self.disk = FakeDisk(sim, sim.epoch)
        self.disk.used = {}
        self.config = replace(CONFIG, **options)
        self.store = leader(self.disk, **options)
        self.service = CleanSpaceService(self.store, self.config, self.disk, now_ms=lambda: self.now_ms)

    async def fill(self) -> None:
        put(self.store, *[bytes(400)] * 7)
        assert await self.store.flush_in_thread()
        self.store.update_committed_index(1, 6)

    async def clean(self, **used: int) -> int:
        self.disk.used = {f"{DIRECTORY}/data": used.get("data", 10), DIRECTORY: used.get("base", 10)}
        return await self.service.clean()


class TestCleanSpaceService:
    """Seed checklist: CleanSpaceService (spec: dledger §1.13, §1.14)."""

    @pytest.fixture
    async def member(self, sim: SimDisk) -> Member:
        sim.latency_s = (0, 0)
        member = Member(sim)
        await member.fill()
        return member

    async def test_young_files_stay_at_any_hour(self, member: Member) -> None:
        for hours in range(24):
            member.now_ms = NOON + hours * HOUR_MS
            assert await member.clean() == 0

    async def test_a_data_file_that_somebody_took_away_ends_acknowledgements(
        self, member: Member, sim: SimDisk
    ) -> None:
        """It is written and flushed as before, and is gone when the process ends."""
        await member.clean()
        assert member.store.write_error is None
        sim.files.pop(member.store.data_file_list.mapped_files[-1].path)
        await member.clean()
        assert "was removed, moved or replaced" in str(member.store.write_error)

    async def test_a_disk_that_tells_nothing_fills_no_log(self, member: Member, autojump_clock: MockClock) -> None:
        member.disk.is_unreadable = True
        structlog.configure(wrapper_class=structlog.BoundLogger)
        with capture_logs() as logs, trio.move_on_after(60):
            await member.service.run()
        assert 0 < len(logs) < 100, "one a second, of two directories asked ten times a second"

    @pytest.mark.parametrize(("hour", "deleted"), [(3, 0), (4, 6), (5, 0)])
    async def test_expired_files_go_at_their_hour(self, member: Member, hour: int, deleted: int) -> None:
        """Seed checklist: isTimeToDelete; and reviseLedgerBeginIndex (spec: dledger §1.11)."""
        member.now_ms = NOON + (5 * 24 - 12 + hour) * HOUR_MS
        assert await member.clean() == deleted
        assert member.store.ledger_begin_index == deleted
        with_index = [entry.index for entry in all_of(member.store)]
        assert with_index == list(range(deleted, 7))

    async def test_a_clock_that_jumps_ahead_expires_nothing(self, member: Member, autojump_clock: MockClock) -> None:
        """DLedger's files would go at the next hour of deleteWhen (`tests/store/test_expiry_clock.py`)."""
        assert await member.clean() == 0
        member.now_ms = NOON + (5 * 24 - 12 + 4) * HOUR_MS
        assert await member.clean(data=71) == 0
        assert member.service.clock.jumped_ms == member.now_ms - NOON

    @pytest.mark.parametrize("used", [{"data": 71}, {"base": 71}])
    async def test_on_a_crowded_disk_expired_files_go_at_any_hour(self, member: Member, used: dict[str, int]) -> None:
        """Seed checklist: isNeedCheckExpired; both ratios count (spec: dledger §1.13)."""
        member.now_ms = NOON + 73 * HOUR_MS
        assert await member.clean(data=70, base=70) == 0
        assert await member.clean(**used) == 6
        assert member.store.room.early.segments == 0

    @pytest.mark.parametrize(("percent", "enabled", "deleted"), [(85, True, 0), (86, True, 6), (86, False, 0)])
    async def test_on_a_fuller_disk_young_files_go(
        self, sim: SimDisk, percent: int, *, enabled: bool, deleted: int
    ) -> None:
        """Seed checklist: isNeedForceClean, enableDiskForceClean (spec: dledger §1.13)."""
        sim.latency_s = (0, 0)
        member = Member(sim, enable_disk_force_clean=enabled)
        await member.fill()
        assert await member.clean(data=percent) == deleted
        assert member.store.room.early.segments == deleted
        told_s = member.store.room.early.last_s_ago(now=trio.current_time())
        assert (told_s is not None) == (deleted > 0), "rmqha dledger status tells of it"

    @pytest.mark.parametrize(("used", "is_full"), [({"data": 90}, False), ({"data": 91}, True), ({"base": 91}, True)])
    async def test_on_a_full_disk_nothing_is_appended(
        self, member: Member, used: dict[str, int], *, is_full: bool
    ) -> None:
        """Seed checklist: isNeedForbiddenWrite, isDiskFull: above 90 %, not 85 (spec: dledger §1.14)."""
        await member.clean(**used)
        assert member.store.room.is_disk_full is is_full
        await member.clean()
        assert member.store.room.is_disk_full is False

    async def test_the_reserved_time_is_at_least_an_hour(self, sim: SimDisk) -> None:
        """Seed checklist: hour floor (spec: dledger §1.13)."""
        sim.latency_s = (0, 0)
        member = Member(sim, file_reserved_hours=0)
        await member.fill()
        member.now_ms = NOON + HOUR_MS - 1
        assert await member.clean(data=80) == 0
        member.now_ms = NOON + HOUR_MS
        assert await member.clean(data=80) == 6

    async def test_what_is_not_committed_and_durable_stays(self, sim: SimDisk) -> None:
        sim.latency_s = (0, 0)
        member = Member(sim)
        put(member.store, *[bytes(400)] * 7)
        assert await member.store.flush_in_thread()
        assert await member.clean(data=99) == 0
        member.store.update_committed_index(1, 2)
        assert await member.clean(data=99) == 2
        assert member.store.ledger_begin_index == 2

    async def test_what_others_have_durably_stays_until_it_is_durable_here(self, sim: SimDisk) -> None:
        """A leader's entries are committed by a majority of others: its own disk may be slower than theirs."""
        sim.latency_s = (0, 0)
        member = Member(sim)
        put(member.store, *[bytes(400)] * 8)
        member.store.update_committed_index(1, 7)
        data, flushed = member.store.data_file_list, member.store.data_file_list.flushed_where
        assert flushed < data.mapped_files[-2].end_offset <= member.store.committed_pos
        await member.clean(data=99)
        assert data.min_offset <= flushed
        assert await member.store.flush_in_thread()
        await member.clean(data=99)
        assert member.store.ledger_begin_index == 7

    async def test_the_emptiest_directory_counts_and_full_ones_get_no_file(self, sim: SimDisk) -> None:
        """Seed checklist: calcDataStorePathPhysicRatio, fullStorePaths (spec: dledger §1.13)."""
        sim.latency_s = (0, 0)
        member = Member(sim, data_store_path="/d1,/d2,/d3")
        for path in ("/d1", "/d2", "/d3"):
            sim.directories[path] = None
        member.disk.used = {"/d1": 86, "/d2": 40, "/d3": 85}
        await member.service.clean()
        assert member.service.data_ratio == 0.40
        assert member.store.full_store_paths == {"/d1"}
        put(member.store, *[bytes(400)] * 4)
        assert [file.path[:3] for file in member.store.data_file_list.mapped_files] == ["/d2", "/d3", "/d2", "/d3"]

    async def test_a_directory_in_which_no_file_is_made_counts_for_nothing(self, sim: SimDisk) -> None:
        """A retired disk has room: because of it expired files would stay until nothing can be stored."""
        sim.latency_s = (0, 0)
        member = Member(sim, data_store_path="/d1,/d2", read_only_data_store_dirs="/d2")
        for path in ("/d1", "/d2"):
            sim.directories[path] = None
        member.disk.used = {"/d1": 96, "/d2": 10}
        await member.service.clean()
        assert member.service.data_ratio == 0.96
        assert member.store.room.is_disk_full
        assert member.store.full_store_paths == {"/d1"}

    async def test_it_looks_ten_times_a_second(
        self, member: Member, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        """Seed checklist: wait 100 (spec: dledger §1.13)."""
        nursery.start_soon(member.service.run)
        await trio.sleep(1.05)
        member.disk.used = {DIRECTORY: 95}
        assert not member.store.room.is_disk_full
        await trio.sleep(0.1)
        assert member.store.room.is_disk_full

    async def test_a_missing_directory_is_unknown(self, sim: SimDisk) -> None:
        member = Member(sim, data_store_path="/d1,/d2")
        for path in ("/d1", "/d2"):
            del sim.directories[path]
        assert member.service.calc_data_store_path_physic_ratio() == -1

    async def test_a_read_only_disk_ends_it(self, sim: SimDisk, member: Member) -> None:
        sim.faults.read_only = True
        assert await member.clean(data=99) == 0
        assert "statvfs" in str(member.store.write_error)

    @pytest.mark.parametrize("deleted_before", [0, 1])
    async def test_it_goes_on_after_an_error(
        self, sim: SimDisk, member: Member, nursery: trio.Nursery, autojump_clock: MockClock, deleted_before: int
    ) -> None:
        member.disk.used = {f"{DIRECTORY}/data": 99}
        path = member.store.data_file_list.mapped_files[deleted_before].path
        inode = sim.files.pop(path)
        nursery.start_soon(member.service.run)
        await trio.sleep(1)
        assert member.store.ledger_begin_index == deleted_before
        sim.files[path] = inode
        await trio.sleep(1)
        assert member.store.ledger_begin_index == 6


class TestTermFile:
    """Term and vote (spec: dledger §1.15)."""

    def test_a_new_member_has_term_0(self, sim: SimDisk) -> None:
        assert TermFile(sim.mount(), DIRECTORY).load(ledger_end_term=-1) == TermVote(0, None)

    def test_what_is_saved_is_there_after_a_power_cut(self, sim: SimDisk) -> None:
        mount = sim.mount()
        mount.makedirs(DIRECTORY)
        for state in (TermVote(7, "n2"), TermVote(8)):
            TermFile(mount, DIRECTORY).save(state)
            sim.lose_power(lambda path, number, old, new: old)
            mount = sim.mount()
            assert TermFile(mount, DIRECTORY).load(ledger_end_term=3) == state

    @pytest.mark.parametrize(
        ("files", "end_term", "expected"),
        [
            ({"": b"voteLeader=n1\ncurrTerm=5\n", ".bak": b"currTerm=4\n"}, 5, TermVote(5, "n1")),
            ({".tmp": b"voteLeader=n1\ncurrTerm=6\n", ".bak": b"voteLeader=n0\ncurrTerm=5\n"}, 5, TermVote(6, "n1")),
            ({".tmp": b"", ".bak": b"voteLeader=n0\ncurrTerm=5\n"}, 5, TermVote(5, "n0")),
            ({"": b"", ".bak": b"voteLeader=n0\ncurrTerm=5\n"}, 7, TermVote(8)),
            ({"": b"voteLeader=n0\ncurrTerm=5\n"}, 7, TermVote(8)),
            ({"": b"voteLeader=\ncurrTerm=5\n"}, -1, TermVote(5)),
            ({"": b"voteLeader=n1\ncurrTerm=1", ".bak": b"voteLeader=n0\ncurrTerm=14\n"}, 5, TermVote(14, "n0")),
            ({"": b"currTerm=6"}, 5, TermVote(6)),
            ({"": b"currTerm=6\nvoteLeader="}, 5, TermVote(6)),
        ],
    )
    def test_what_dledger_leaves_when_it_dies_while_it_replaces_the_file(
        self, sim: SimDisk, files: dict[str, bytes], end_term: int, expected: TermVote
    ) -> None:
        mount = sim.mount()
        mount.makedirs(DIRECTORY)
        for suffix, data in files.items():
            mount.replace_bytes(f"{DIRECTORY}/currterm{suffix}", data)
        assert TermFile(mount, DIRECTORY).load(ledger_end_term=end_term) == expected

    def test_a_term_that_was_cut_within_is_not_taken_for_a_lower_one(self, sim: SimDisk) -> None:
        mount = sim.mount()
        mount.makedirs(DIRECTORY)
        mount.replace_bytes(f"{DIRECTORY}/currterm", b"voteLeader=n1\ncurrTerm=1")
        with pytest.raises(CorruptLogError, match="is cut short, but the log ends in term 1:"):
            TermFile(mount, DIRECTORY).load(ledger_end_term=1)

    def test_a_log_without_any_term_does_not_vote_again(self, sim: SimDisk) -> None:
        with pytest.raises(CorruptLogError, match="the log ends in term 4: whom this member voted for is lost"):
            TermFile(sim.mount(), DIRECTORY).load(ledger_end_term=4)


async def test_a_store_on_a_real_disk(tmp_path: Path) -> None:
    config = store_config(
        tmp_path, data_store_path=f"{tmp_path}/d1,{tmp_path}/d2", mapped_file_size_for_entry_data=65536
    )
    store = DLedgerMmapFileStore(config, MemberState("n0"), OsDisk())
    store.startup()
    store.member_state.change_to_leader(0)
    entries = put(store, *(bytes([number]) * 30_000 for number in range(9)))
    assert await CleanSpaceService(store, config, OsDisk(), now_ms=lambda: 0).clean() == 0
    await store.shutdown()
    assert [len(list((tmp_path / name).iterdir())) for name in ("d1", "d2")] == [3, 2]
    again = DLedgerMmapFileStore(config, MemberState("n0"), OsDisk())
    again.startup()
    assert all_of(again) == entries
    again.close()
