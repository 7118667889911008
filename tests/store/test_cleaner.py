"""Expiry, disk ratios, and what is never deleted."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import structlog
import trio
from trio.testing import MockClock

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import DiskUsage
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import PutMessageStatus
from tests.settings import clean_options
from tests.sim.sim_disk import SimDisk, SimMount
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, put, running

HOUR_MS = 3600 * 1000
NEVER = clean_options(delete_when=(), file_reserved_time_s=72 * 3600)


class Machine:
    """A disk whose use can be dialled, and a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.device = SimDisk(now_ms=self.clock, latency_s=(0, 0))
        self.disk = self.device.mount()
        self.percent = 50
        self.unknown = False
        self.free_inodes: int | None = None
        self.released = 0
        self.held = 0
        """Bytes of unlinked files, of the 100 that the disk has."""
        self.disk.unlinked_bytes = self._unlinked_bytes  # type: ignore[method-assign]
        self.disk.usage = self._usage  # type: ignore[method-assign]
        self.disk.release_unlinked = self._release_unlinked  # type: ignore[method-assign]

    def hours_ago(self, hours: int) -> None:
        """All that is there was written so long ago."""
        for inode in self.device.files.values():
            inode.mtime_ms -= hours * HOUR_MS

    async def _release_unlinked(self) -> None:
        self.released += 1

    def _unlinked_bytes(self, directory: str) -> int:
        return self.held if directory else 0

    def _usage(self, path: str) -> DiskUsage:
        if self.unknown:
            raise StoreReadError(OSError(5, "gone"), operation="statvfs", path=path)
        return DiskUsage(100, 100 - self.percent, self.percent, self.device.faults.read_only, self.free_inodes)


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def five_segments(store: DefaultMessageStore) -> None:
    """Ten messages, two a segment, all flushed and dispatched."""
    await put(store, *[message(size=1800) for _ in range(10)])
    await store.flush_now(store.max_offset)
    await dispatched(store)
    assert len(commit_log(store).queue.files) == 5


async def test_expired_segments_go_but_never_the_last(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, disk_max_used_space_ratio=40)) as store:
        await five_segments(store)
        assert await store.cleaner.clean() == 0, "nothing is old enough"
        machine.hours_ago(72)
        assert await store.cleaner.clean() == 4
        assert machine.released == 1
        assert (store.min_offset, store.max_offset) == (4 * SEGMENT, 4 * SEGMENT + 3600)
        assert store.get_min_offset_in_queue("TopicTest", 0) == 8
        assert machine.disk.listdir("/store/commitlog")[0] == f"{4 * SEGMENT:020d}"


async def test_the_last_messages_stay_though_an_empty_segment_follows(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """It was made ahead, and taken in by a restart. A log cleaned empty would begin like its master's, even earlier."""
    options = replace(NEVER, disk_max_used_space_ratio=40)
    async with running(machine.disk, now_ms=machine.clock) as store:
        await put(store, *[message(size=1800) for _ in range(3)])
        first_segment = bytes(machine.device.files["/store/commitlog/00000000000000000000"].cache)
    slave = Machine()
    async with running(slave.disk, now_ms=slave.clock, is_slave=True, crash=True) as store:
        await store.wait_allocated()
        assert store.append_raw(first_segment, 0) == SEGMENT
        await store.flush_now(SEGMENT)
    slave.disk.create(f"/store/commitlog/{SEGMENT:020d}", SEGMENT)
    async with running(slave.disk, now_ms=slave.clock, is_slave=True, clean=options) as store:
        await dispatched(store)
        slave.hours_ago(72)
        assert len(commit_log(store).queue.files) == 2
        assert await store.cleaner.clean() == 0
        assert (store.min_offset, store.max_offset) == (0, SEGMENT)


async def test_what_is_deleted_and_still_read_makes_room_without_deleting_more(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """A client that took no answers held what was deleted: the disk stayed full, and all of the log was deleted."""
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.percent, machine.held = 90, 5
        assert await store.cleaner.clean() == 0
        machine.held = 4
        assert await store.cleaner.clean() == 4


async def test_all_that_is_about_to_go_is_told_before_the_first_of_it_goes(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """Where queues end whose last messages are in it has to be saved first."""
    told: list[tuple[int, int]] = []

    async def before_deleting(offset: int) -> bool:
        await trio.lowlevel.checkpoint()
        told.append((offset, store.min_offset))
        return True

    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, disk_max_used_space_ratio=40)) as store:
        store.cleaner.before_deleting = before_deleting
        await five_segments(store)
        assert await store.cleaner.clean() == 0
        machine.hours_ago(72)
        assert await store.cleaner.clean() == 4
        assert told == [(4 * SEGMENT, 0)]


async def test_queue_files_follow(autojump_clock: MockClock, machine: Machine) -> None:
    options = replace(NEVER, disk_max_used_space_ratio=40)
    async with running(machine.disk, now_ms=machine.clock, clean=options, mapped_file_size_consume_queue=60) as store:
        await five_segments(store)
        machine.hours_ago(72)
        await store.cleaner.clean()
        assert machine.disk.listdir("/store/consumequeue/TopicTest/0") == [f"{n:020d}" for n in (120, 180)]
    async with running(machine.device.mount(), clean=NEVER, mapped_file_size_consume_queue=60) as store:
        assert store.get_min_offset_in_queue("TopicTest", 0) == 8
        (result,) = await put(store, message())
        assert result.queue_offset == 10


async def test_the_first_younger_segment_ends_a_run(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, disk_max_used_space_ratio=40)) as store:
        await put(store, *[message(size=1800) for _ in range(4)])
        machine.hours_ago(72)
        await put(store, *[message(size=1800) for _ in range(6)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        assert await store.cleaner.clean() == 1, "the second was closed by a blank, today"


@pytest.mark.parametrize(("hour_offset", "deleted"), [(0, 4), (1, 0)])
async def test_at_the_given_hours_whatever_the_disk(
    autojump_clock: MockClock, machine: Machine, hour_offset: int, deleted: int
) -> None:
    hour = (time.localtime(machine.clock.now_ms / 1000).tm_hour + hour_offset) % 24
    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, delete_when=(hour,))) as store:
        await five_segments(store)
        machine.hours_ago(72)
        assert await store.cleaner.clean() == deleted


@pytest.mark.parametrize(
    ("percent", "forcibly", "deleted"), [(75, True, 0), (85, True, 0), (86, True, 4), (86, False, 0)]
)
async def test_above_the_second_ratio_age_does_not_count(
    autojump_clock: MockClock, machine: Machine, percent: int, forcibly: bool, deleted: int
) -> None:
    options = replace(NEVER, clean_file_forcibly_enable=forcibly)
    async with running(machine.disk, now_ms=machine.clock, clean=options) as store:
        await five_segments(store)
        machine.percent = percent
        assert await store.cleaner.clean() == deleted


async def test_an_operator_may_ask(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.hours_ago(72)
        assert await store.cleaner.clean() == 0
        store.cleaner.execute_delete_files_manually()
        assert await store.cleaner.clean() == 4


async def test_a_slave_holds_back_what_it_still_needs_until_the_disk_is_too_full(
    autojump_clock: MockClock, machine: Machine
) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, disk_max_used_space_ratio=40)) as store:
        await five_segments(store)
        machine.hours_ago(72)
        store.connect_replication(kept_from=lambda: 2 * SEGMENT)
        assert await store.cleaner.clean() == 2
        machine.percent = 86
        assert await store.cleaner.clean() == 2


@pytest.mark.parametrize("which", ["undispatched", "unflushed"])
async def test_what_is_not_flushed_and_dispatched_stays(
    autojump_clock: MockClock, machine: Machine, which: str
) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER, flush_interval_commit_log_s=10_000.0) as store:
        if which == "undispatched":
            store.connect_replication(confirmed=lambda: SEGMENT)
        await put(store, *[message(size=1800) for _ in range(10)])
        if which == "undispatched":
            await store.flush_now(store.max_offset)
        await trio.sleep(1)
        machine.percent = 95
        assert await store.cleaner.clean() == (1 if which == "undispatched" else 0)


async def test_at_most_ten_a_run(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await put(store, *[message(size=1800) for _ in range(30)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        machine.percent = 86
        assert [await store.cleaner.clean() for _ in range(3)] == [10, 4, 0]


async def test_a_full_disk_refuses_puts_until_it_is_not(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.percent = 91
        await trio.sleep(11)
        (refused,) = store.put_messages([message()])
        assert (refused.status, refused.remark) == (PutMessageStatus.SERVICE_NOT_AVAILABLE, "the disk is too full")
        assert (store.is_disk_full, store.disk_used_percent) == (True, 91)
        assert trio.current_time() - store.cleaner.disk_looked_at == pytest.approx(1, abs=0.1)
        machine.percent = 90
        await trio.sleep(10)
        await put(store, message())
        assert not store.is_disk_full


async def test_that_no_inode_is_free_is_told_while_there_is_none(autojump_clock: MockClock, machine: Machine) -> None:
    """Nothing said so before the next segment could not be made, and then it was "No space left"."""
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        with structlog.testing.capture_logs() as logs:
            machine.free_inodes = 0
            await trio.sleep(30)
            assert "of /store/commitlog and /store/consumequeue: no file can be made" in store.cleaner.inodes.trouble
            machine.percent = 100  # of some kinds a full one has no inode, either: it is full
            await trio.sleep(30)
            assert store.cleaner.inodes.trouble == ""
        told = [line["event"] for line in logs if "inodes" in line["event"]]
        assert told == ["store.no_inodes", "store.inodes_free"]


async def test_nothing_is_deleted_in_the_first_minute(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.percent = 91
        await trio.sleep(50)
        assert (len(commit_log(store).queue.files), store.is_disk_full) == (5, True)
        await trio.sleep(20)
        assert len(commit_log(store).queue.files) == 1


async def test_a_disk_that_cannot_be_looked_at_is_crowded_but_not_full(
    autojump_clock: MockClock, machine: Machine
) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.unknown = True
        assert await store.cleaner.clean() == 0
        machine.hours_ago(72)
        with structlog.testing.capture_logs() as logs:
            assert await store.cleaner.clean() == 4
        assert "clean_commit_log_service.disk_unknown" not in [line["event"] for line in logs], "it was told before"
        assert (store.disk_used_percent, store.is_disk_full) == (None, False)


async def test_a_disk_that_cannot_be_looked_at_is_not_called_full(autojump_clock: MockClock, machine: Machine) -> None:
    """A directory that was gone was told as a disk that is 100 % full, every ten seconds."""
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        machine.unknown = True
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                store.cleaner.check_disk()
        (told,) = [line["reason"] for line in logs if line["event"] == "clean_commit_log_service.disk_unknown"]
        assert told == store.cleaner.disk_unknown
        assert told.startswith("how full the disk is cannot be read: ")
        used = [store.disk_used_percent]
        machine.unknown = False
        store.cleaner.check_disk()
        assert [*used, store.disk_used_percent] == [None, 50]
        assert store.cleaner.disk_unknown == ""


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_last_segment_that_somebody_took_away_ends_acknowledgements(
    autojump_clock: MockClock, machine: Machine, *, replaced: bool
) -> None:
    """It is written and flushed as before, and is gone when the process ends."""
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        store.cleaner.check_disk()
        assert store.write_error is None
        path = commit_log(store).queue.files[-1].path
        machine.device.files.pop(path)
        if replaced:
            machine.disk.create(path, SEGMENT)
        store.cleaner.check_disk()
        assert "was removed, moved or replaced while this process writes it" in store.refusal()
        (answer,) = store.put_messages([message()])
        assert answer.status is PutMessageStatus.SERVICE_NOT_AVAILABLE


async def test_a_deletion_that_fails_is_tried_again_in_the_next_run(
    autojump_clock: MockClock, machine: Machine
) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.percent = 86
        real: Callable[[SimMount, str], None] = SimMount.unlink
        machine.device.faults.read_only = True
        usage = machine.disk.usage
        machine.disk.usage = lambda path: replace(usage(path), read_only=False)  # type: ignore[method-assign]
        with structlog.testing.capture_logs() as logs:
            assert await store.cleaner.clean() == 0
        assert (logs[0]["event"], real) == ("clean_commit_log_service.failed", SimMount.unlink)
        machine.device.faults.read_only = False
        assert await store.cleaner.clean() == 4


async def test_nothing_is_deleted_after_a_write_error(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.percent = 99
        machine.device.faults.read_only = True
        assert await store.cleaner.clean() == 0
        assert store.write_error is not None


async def test_an_error_of_a_healthy_looking_disk_keeps_what_it_has(
    autojump_clock: MockClock, machine: Machine
) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.percent = 89
        store.running_flags.fail(StoreWriteError(OSError(5, "Input/output error"), operation="pwrite", path="/store"))
        assert await store.cleaner.clean() == 0


async def test_an_operators_request_ends_after_twenty_runs(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        store.cleaner.execute_delete_files_manually()
        assert [await store.cleaner.clean() for _ in range(20)] == [0] * 20
        machine.hours_ago(72)
        assert await store.cleaner.clean() == 0


async def test_of_two_disks_one_that_cannot_be_looked_at_is_enough(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        machine.hours_ago(72)
        assert await store.cleaner.clean() == 0
        look = machine.disk.usage

        def only_at_the_log(path: str) -> DiskUsage:
            if path == store.queues.directory:
                raise StoreReadError(OSError(5, "gone"), operation="statvfs", path=path)
            return look(path)

        machine.disk.usage = only_at_the_log  # type: ignore[method-assign]
        assert await store.cleaner.clean() == 4
        assert store.disk_used_percent is None


@pytest.mark.parametrize("gone", [1, 2])
async def test_segments_removed_by_hand_are_forgotten(autojump_clock: MockClock, machine: Machine, gone: int) -> None:
    """Their messages are gone; consumers go on with what is left, and so does the broker."""
    options = replace(NEVER, disk_max_used_space_ratio=40)
    async with running(machine.disk, now_ms=machine.clock, clean=options, mapped_file_size_consume_queue=60) as store:
        await five_segments(store)
        for number in range(gone):
            del machine.device.files[f"/store/commitlog/{number * SEGMENT:020d}"]
        assert await store.cleaner.clean() == 0
        assert store.min_offset == gone * SEGMENT
        assert store.get_min_offset_in_queue("TopicTest", 0) == 2 * gone
        machine.hours_ago(73)
        assert await store.cleaner.clean() == 4 - gone
        await trio.sleep(3600)
        await put(store, message())
        await dispatched(store)
        assert store.running_flags.final_error is None


async def test_where_queues_end_is_saved_when_segments_were_removed_by_hand(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """The last messages of some may have gone with them: after a start those would begin at 0."""
    told: list[tuple[int, int]] = []

    async def before_deleting(offset: int) -> bool:
        await trio.lowlevel.checkpoint()
        told.append((offset, store.min_offset))
        return True

    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        store.cleaner.before_deleting = before_deleting
        await five_segments(store)
        for number in range(2):
            del machine.device.files[f"/store/commitlog/{number * SEGMENT:020d}"]
        assert await store.cleaner.clean() == 0
        assert told == [(2 * SEGMENT, 2 * SEGMENT)]
        assert await store.cleaner.clean() == 0
        assert len(told) == 1, "nothing has gone since"


async def test_dispatch_goes_on_behind_segments_removed_by_hand(autojump_clock: MockClock, machine: Machine) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        store.connect_replication(confirmed=lambda: SEGMENT)
        await put(store, *[message(size=1800) for _ in range(10)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        for number in range(2):
            del machine.device.files[f"/store/commitlog/{number * SEGMENT:020d}"]
        await store.cleaner.clean()
        store.connect_replication(confirmed=lambda: store.max_offset)
        store.confirm()
        await dispatched(store)
        assert (store.get_min_offset_in_queue("TopicTest", 0), store.get_max_offset_in_queue("TopicTest", 0)) == (4, 10)


async def test_a_directory_that_vanished_is_not_taken_for_expired_segments(
    autojump_clock: MockClock, machine: Machine
) -> None:
    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, disk_max_used_space_ratio=40)) as store:
        await five_segments(store)
        machine.hours_ago(73)
        files = {path: machine.device.files.pop(path) for path in list(machine.device.files) if "commitlog" in path}
        assert await store.cleaner.clean() == 0
        machine.device.files |= files
        assert await store.cleaner.clean() == 0, "what was taken since may be nowhere"
        assert (store.min_offset, store.write_error is None) == (0, False)
    async with running(machine.device.mount(), now_ms=machine.clock) as store:
        assert (store.min_offset, len(commit_log(store).queue.files)) == (0, 5)


async def test_queue_files_removed_by_hand_end_nothing(autojump_clock: MockClock, machine: Machine) -> None:
    options = replace(NEVER, disk_max_used_space_ratio=40)
    async with running(machine.disk, now_ms=machine.clock, clean=options, mapped_file_size_consume_queue=60) as store:
        await five_segments(store)
        for path in [path for path in machine.device.files if "/consumequeue/" in path]:
            del machine.device.files[path]
        machine.hours_ago(73)
        assert await store.cleaner.clean() == 4
        await trio.sleep(3600)
        assert store.running_flags.final_error is None
    async with running(machine.device.mount(), clean=NEVER, mapped_file_size_consume_queue=60) as store:
        assert (store.get_min_offset_in_queue("TopicTest", 0), store.get_max_offset_in_queue("TopicTest", 0)) == (8, 10)


async def test_the_queues_disk_counts_as_well(autojump_clock: MockClock, machine: Machine) -> None:
    """No put is taken there is no room to dispatch; but no segment of another disk is deleted by force for it."""
    used = {"/store/commitlog": 50, "/store/consumequeue": 50}

    def usage(path: str) -> DiskUsage:
        return DiskUsage(100, 100 - used[path], used[path], False)

    machine.disk.usage = usage  # type: ignore[method-assign]
    async with running(machine.disk, now_ms=machine.clock, clean=NEVER) as store:
        await five_segments(store)
        used["/store/consumequeue"] = 95
        assert await store.cleaner.clean() == 0
        assert (store.is_disk_full, store.disk_used_percent) == (True, 95)
        used["/store/consumequeue"] = 50
        await store.cleaner.clean()
        assert not store.is_disk_full


async def test_what_goes_before_it_expires_is_warned_of_and_counted(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """What is expired goes without a word, also by force."""
    options = replace(NEVER, disk_space_clean_forcibly_ratio=85, clean_file_forcibly_enable=True)
    async with running(machine.disk, now_ms=machine.clock, clean=options) as store:
        await five_segments(store)
        machine.percent = 86
        assert store.cleaner.early.facts(now=trio.current_time()) is None
        with structlog.testing.capture_logs() as lines:
            assert await store.cleaner.clean() == 4
        told = [line for line in lines if line["event"] == "commit_log.unexpired_segment_deleted"]
        assert [line["log_level"] for line in told] == ["warning"] * 4
        assert (told[0]["path"], told[0]["expires_in_h"]) == (f"/store/commitlog/{0:020d}", 72.0)
        assert (told[0]["disk_used_percent"], told[0]["disk_space_clean_forcibly_ratio"]) == (86, 85)
        last_at = trio.current_time()
        await trio.sleep(5)
        facts = store.cleaner.early.facts(now=trio.current_time())
        assert facts is not None
        assert facts["segments"] == 4
        assert 5 <= facts["last_s_ago"] <= trio.current_time() - last_at + 1

        await put(store, *[message(size=1800) for _ in range(2)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        machine.hours_ago(72)
        with structlog.testing.capture_logs() as lines:
            assert await store.cleaner.clean() == 1
        assert "commit_log.segment_deleted" in {line["event"] for line in lines}
        assert store.cleaner.early.segments == 4


async def test_what_a_slave_still_needs_goes_by_force_with_a_warning(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """Expired as well: no count tells of it, and that slave must be rebuilt."""
    options = replace(NEVER, disk_space_clean_forcibly_ratio=85, clean_file_forcibly_enable=True)
    async with running(machine.disk, now_ms=machine.clock, clean=options) as store:
        await five_segments(store)
        store.cleaner.keep_from(lambda: 2 * SEGMENT)
        machine.hours_ago(73)
        machine.percent = 86
        with structlog.testing.capture_logs() as lines:
            assert await store.cleaner.clean() == 4
    needed = [line["path"][-20:] for line in lines if line["event"] == "commit_log.needed_segment_deleted"]
    assert needed == [f"{number * SEGMENT:020d}" for number in (2, 3)]
    assert store.cleaner.early.segments == 0


async def test_a_segment_whose_age_nobody_knows_goes_by_force_all_the_same(
    autojump_clock: MockClock, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends wait for the room; the age is for the log's line alone."""
    options = replace(NEVER, disk_space_clean_forcibly_ratio=85, clean_file_forcibly_enable=True)
    async with running(machine.disk, now_ms=machine.clock, clean=options) as store:
        await five_segments(store)
        machine.percent = 86

        def fails(path: str) -> float:
            raise StoreReadError(OSError(5, "Input/output error"), operation="stat", path=path)

        with monkeypatch.context() as patched:
            patched.setattr(machine.disk, "mtime_ms", fails)
            assert await store.cleaner.clean() == 4


async def test_what_went_while_the_ends_of_queues_were_saved_costs_no_other_segment(
    autojump_clock: MockClock, machine: Machine
) -> None:
    """The log may begin elsewhere by then: what is first now is not what was to go, and the last is never."""
    options = replace(NEVER, disk_space_clean_forcibly_ratio=85, clean_file_forcibly_enable=True)
    async with running(machine.disk, now_ms=machine.clock, clean=options) as store:

        async def before_deleting(_offset: int) -> bool:
            await commit_log(store).queue.delete_first_in_thread()
            return True

        store.cleaner.before_deleting = before_deleting
        await five_segments(store)
        end, machine.percent = store.max_offset, 86
        assert await store.cleaner.clean() == 0
        assert (store.min_offset, store.max_offset) == (SEGMENT, end)


@pytest.mark.parametrize("kept_from", [0, SEGMENT])
async def test_what_is_needed_again_while_the_ends_of_queues_were_saved_stays(
    autojump_clock: MockClock, machine: Machine, kept_from: int
) -> None:
    """A slave may come back meanwhile, and has to be sent it."""
    async with running(machine.disk, now_ms=machine.clock, clean=replace(NEVER, disk_max_used_space_ratio=40)) as store:
        kept = [2 * SEGMENT]

        async def before_deleting(_offset: int) -> bool:
            kept[0] = kept_from
            return True

        store.cleaner.before_deleting = before_deleting
        store.connect_replication(kept_from=lambda: kept[0])
        await five_segments(store)
        machine.hours_ago(72)
        assert await store.cleaner.clean() == kept_from // SEGMENT
        assert store.min_offset == kept_from
