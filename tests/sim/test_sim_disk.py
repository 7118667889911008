"""The simulated disk keeps the promises of the real door, and breaks only those that hardware breaks."""

import errno
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import StoreError, StoreLockedError, StoreReadError, StoreWriteError
from rmqha.store.disk import Disk
from rmqha.store.os_disk import OsDisk
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SECTOR, SimDisk, SimMount

SIZE = 8 * SECTOR


@pytest.fixture(params=["os", "sim"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """The same assertions for both sides of the door."""
    if request.param == "os":
        return OsDisk(), str(tmp_path)
    mount = SimDisk().mount()
    mount.makedirs("/store")
    return mount, "/store"


def written(mount: SimMount, *, synced: bytes = b"", then: bytes = b"") -> None:
    file = mount.create("/file", SIZE)
    file.pwrite([synced], 0)
    file.sync()
    file.pwrite([then], len(synced))


def content(disk: SimDisk) -> bytes:
    return disk.mount().read_bytes("/file")


def test_both_disks_agree_on_files(door: tuple[Disk, str]) -> None:
    disk, root = door
    file = disk.create(f"{root}/a", SIZE)
    window = file.view()
    file.pwrite([b"ab", bytearray(b"cd")], 10)
    assert file.pread(6, 9) == bytes(window[9:15]) == b"\0abcd\0"
    file.zero_tail(12)
    file.sync()
    disk.replace_bytes(f"{root}/b", b"old")
    disk.replace_bytes(f"{root}/b", b"newer")
    disk.makedirs(f"{root}/c/d")
    reopened = disk.open(f"{root}/a", writable=True)
    disk.unlink(f"{root}/a")
    assert bytes(window[9:15]) == b"\0ab\0\0\0"
    assert reopened.pread(2, 10) == b"ab"
    assert disk.listdir(root) == ["b", "c"]
    assert disk.listdir(f"{root}/c") == ["d"]
    assert disk.listdir(f"{root}/nowhere") == []
    assert disk.exists(f"{root}/c/d")
    assert disk.exists(f"{root}/b")
    assert disk.read_bytes(f"{root}/b") == b"newer"
    assert disk.file_size(f"{root}/b") == 5


def test_both_disks_refuse_alike(door: tuple[Disk, str]) -> None:
    disk, root = door
    held = disk.lock(f"{root}/lock")
    held_directory = disk.lock_directory(root)
    disk.create(f"{root}/a", SIZE)
    refusals: list[StoreError] = []
    for attempt in (
        lambda: disk.lock(f"{root}/lock"),
        lambda: disk.lock_directory(root),
        lambda: disk.create(f"{root}/a", SIZE),
        lambda: disk.create(f"{root}/no/a", SIZE),
        lambda: disk.open(f"{root}/b", writable=False),
        lambda: disk.file_size(f"{root}/b"),
        lambda: disk.unlink(f"{root}/b"),
        lambda: disk.replace_bytes(f"{root}/no/b", b""),
        lambda: disk.open(f"{root}/a", writable=False).pwrite([b"x"], 0),
    ):
        with pytest.raises(StoreError) as caught:
            attempt()
        refusals.append(caught.value)
    kinds = [(type(e), getattr(e, "errno", None)) for e in refusals]
    assert kinds == [
        (StoreLockedError, None),
        (StoreLockedError, None),
        (StoreWriteError, errno.EEXIST),
        (StoreWriteError, errno.ENOENT),
        (StoreReadError, errno.ENOENT),
        (StoreReadError, errno.ENOENT),
        (StoreWriteError, errno.ENOENT),
        (StoreWriteError, errno.ENOENT),
        (StoreWriteError, errno.EBADF),
    ]
    held.close()
    held_directory.close()
    disk.lock(f"{root}/lock").close()
    disk.lock_directory(root).close()


def test_a_power_cut_spares_what_was_synced() -> None:
    """Over many cuts unsynced sectors come out old, new and torn; synced bytes never change."""
    tails = set()
    for seed in range(60):
        disk = SimDisk(Random(seed))
        written(disk.mount(), synced=b"S" * 700, then=b"n" * 2000)
        disk.power_cut()
        after = content(disk)
        assert after[:700] == b"S" * 700
        assert set(after[700:]) <= set(b"n\0")
        tails.add(after)
    assert len(tails) > 10


def test_a_killed_process_leaves_its_writes_to_the_kernel() -> None:
    disk = SimDisk()
    written(disk.mount(), then=b"kept")
    disk.kill()
    assert content(disk)[:4] == b"kept"


async def test_a_failed_sync_reports_once_and_loses_data(autojump_clock: MockClock) -> None:
    """fsyncgate: the second fdatasync succeeds although the bytes never reach the device."""
    lost = 0
    for seed in range(20):
        disk = SimDisk(Random(seed))
        file = disk.mount().create("/file", SIZE)
        file.pwrite([b"x" * SIZE], 0)
        disk.faults.sync_errors = 1
        with pytest.raises(StoreWriteError, match="errno 5"):
            await file.sync_in_thread()
        await file.sync_in_thread()
        assert file.pread(SIZE, 0) == b"x" * SIZE
        disk.lose_power(lambda _path, _number, _old, new: new)
        lost += content(disk) != b"x" * SIZE
    assert lost > 15


async def test_a_sync_covers_what_was_written_before_it_began(autojump_clock: MockClock) -> None:
    disk = SimDisk()
    file = disk.mount().create("/file", SIZE)
    file.pwrite([b"before"], 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync_in_thread)
        await trio.testing.wait_all_tasks_blocked()
        file.pwrite([b"during"], 6)
    disk.lose_power(lambda _path, _number, old, _new: old)
    assert content(disk)[:12] == b"before" + bytes(6)


async def test_the_dead_do_nothing_more(autojump_clock: MockClock) -> None:
    """Not in a call, not behind one, not in a finally block, and a slow call ends when its process does."""
    disk = SimDisk()
    disk.faults.slowness = 1e6
    mount = disk.mount()
    file = mount.create("/file", SIZE)
    ended: list[BaseException] = []

    async def slow_sync() -> None:
        try:
            await file.sync_in_thread()
        except NodeDied as died:
            ended.append(died)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow_sync)
        await trio.sleep(1)
        disk.power_cut()
    assert len(ended) == 1
    assert trio.current_time() == 1
    with pytest.raises(NodeDied):
        file.pwrite([b"x"], 0)
    with pytest.raises(NodeDied):
        file.sync()
    with pytest.raises(NodeDied):
        mount.unlink("/file")
    with pytest.raises(NodeDied):
        mount.open("/file", writable=True)


def test_every_call_is_a_crash_point() -> None:
    """Whatever call is the last one, a file is whole or absent, replaced or not, and never in between."""
    seen = set()
    for seed in range(40):
        for last in range(1, 8):
            disk = SimDisk(Random(seed))
            disk.crash_at = last
            mount = disk.mount()
            try:
                written(mount, synced=b"one", then=b"two")
                mount.replace_bytes("/small", b"small")
                mount.unlink("/file")
            except NodeDied:
                pass
            after = disk.mount()
            names = after.listdir("/")
            seen.add((last, tuple(names), after.file_size("/file") if "file" in names else None))
            if "small" in names:
                assert after.read_bytes("/small") == b"small"
            assert last < 5 or "small" in names or last == 5
    assert {(1, (), None), (1, ("file",), SIZE), (1, ("file",), 0)} <= seen
    assert {names for last, names, _ in seen if last == 5} == {("file",), ("file", "small"), ("file", "small.tmp")}
    assert {names for last, names, _ in seen if last == 6} == {("small",), ("file", "small")}


def test_a_full_or_read_only_disk_refuses_and_a_short_write_is_an_error() -> None:
    disk = SimDisk()
    mount = disk.mount()
    file = mount.create("/file", SIZE)
    disk.faults.full = True
    file.pwrite([b"allocated"], 0)
    with pytest.raises(StoreWriteError, match="create failed"):
        mount.create("/other", SIZE)
    disk.faults.heal()
    disk.faults.write_errors = 1
    with pytest.raises(StoreWriteError, match="pwrite failed"):
        file.pwrite([b"y" * SIZE], 0)
    disk.faults.read_only = True
    refused = pytest.raises(StoreWriteError, match="errno 30")
    with refused:
        file.pwrite([b"x"], 0)
    with refused:
        file.sync()
    with refused:
        file.zero_tail(0)
    with refused:
        mount.unlink("/file")
    assert mount.usage("/").read_only


async def test_a_call_that_hangs_returns_when_the_disk_does_though_its_caller_was_cancelled(
    autojump_clock: MockClock,
) -> None:
    """As in a worker thread: begun calls are finished, others are not begun."""
    disk = SimDisk()
    mount = disk.mount()
    disk.faults.hung_until = 30.0
    with trio.move_on_after(1.0) as scope:
        await mount.replace_bytes_in_thread("/begun", b"")
        assert trio.current_time() >= 30.0
        await mount.replace_bytes_in_thread("/not begun", b"")
    assert scope.cancelled_caught
    assert list(disk.files) == ["/begun"]


async def test_a_sync_does_not_take_back_what_a_later_one_made_durable(autojump_clock: MockClock) -> None:
    """A slow one is under way when a second, of newer bytes, comes and ends before it."""
    disk = SimDisk(latency_s=(1, 1))
    mount = disk.mount()
    file = mount.create("/file", SIZE)
    file.pwrite([b"old"], 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync_in_thread)
        await trio.sleep(0.5)
        file.pwrite([b"new"], 0)
        file.sync()
    disk.power_cut()
    assert content(disk)[:3] == b"new"
