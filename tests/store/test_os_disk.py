"""The real disk door: what it promises about writing, erasing, locking and refusing."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from rmqha.errors import StoreLockedError, StoreReadError, StoreWriteError
from rmqha.store.direct_read import DirectReader
from rmqha.store.disk_calls import in_thread
from rmqha.store.os_disk import OsDisk
from rmqha.store.passing import is_lack

ST_RDONLY = 1  # os.ST_RDONLY, which PyPy does not name


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk()


def test_create_allocates_private_zeros_and_refuses_what_exists(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = disk.create(path, 8192)
    stat = Path(path).stat()
    assert (stat.st_size, stat.st_mode & 0o777, stat.st_blocks * 512 >= 8192) == (8192, 0o600, True)
    assert bytes(file.view()) == bytes(8192)
    with pytest.raises(StoreWriteError, match=r"create failed on .*File exists") as caught:
        disk.create(path, 8192)
    assert (caught.value.errno, caught.value.operation, caught.value.path) == (errno.EEXIST, "create", path)
    assert disk.exists(path)


def test_a_sparse_file_takes_no_blocks(disk: OsDisk, tmp_path: Path) -> None:
    disk.create(str(tmp_path / "a"), 1 << 20, sparse=True)
    stat = (tmp_path / "a").stat()
    assert (stat.st_size, stat.st_blocks) == (1 << 20, 0)


def test_a_file_that_cannot_be_allocated_is_not_left_behind(disk: OsDisk, tmp_path: Path) -> None:
    with pytest.raises(StoreWriteError):
        disk.create(str(tmp_path / "a"), 1 << 62)
    assert disk.listdir(str(tmp_path)) == []


def test_an_allocation_that_is_interrupted_is_tried_again(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyPy tells it: CPython raises the error, and never this one."""
    answers = [errno.EINTR, 0, errno.ENOSPC]
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: answers.pop(0))
    disk.create(str(tmp_path / "a"), 0)
    with pytest.raises(StoreWriteError, match="No space left"):
        disk.create(str(tmp_path / "b"), 0)
    assert disk.listdir(str(tmp_path)) == ["a"]


def test_a_file_that_cannot_be_mapped_is_not_left_behind(disk: OsDisk, tmp_path: Path) -> None:
    """No address space for the next segment is a failed allocation, not an error of its first reader."""
    program = """
import resource, sys
from rmqha.errors import StoreWriteError
from rmqha.store.direct_read import DirectReader
from rmqha.store.os_disk import OsDisk
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), -1))
try:
    OsDisk().create(sys.argv[1], 64 << 20)
except StoreWriteError as error:
    print(error)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "create failed on" in done.stdout
    assert "Cannot allocate memory" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_view_shows_later_writes_and_outlives_close_and_unlink(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = disk.create(path, 4096)
    view = file.view()
    file.pwrite([b"ab", bytearray(b"cd"), memoryview(b"ef")], 10)
    assert bytes(view[8:18]) == b"\0\0abcdef\0\0"
    assert file.view() is view
    with pytest.raises(TypeError):
        view[0] = 1
    disk.unlink(path)
    assert file.pread(4, 10) == b"abcd"
    file.close()
    file.close()
    assert bytes(view[10:16]) == b"abcdef"


async def test_an_unlinked_file_takes_space_as_long_as_it_is_read(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    view = disk.create(path, 4096).view()
    reader = disk.open(path, writable=False)
    await disk.unlink_in_thread(path)
    await disk.release_unlinked()
    assert (reader.pread(4, 0), bytes(view[:4])) == (bytes(4), bytes(4))
    assert held(path) == {"map", "descriptor"}
    assert disk.unlinked_bytes(str(tmp_path)) == 4096
    assert disk.unlinked_bytes(str(tmp_path / "a")) == disk.unlinked_bytes("/nowhere") == 0
    del reader, view
    await disk.release_unlinked()
    assert held(path) == set()
    assert disk.unlinked_bytes(str(tmp_path)) == 0


def held(path: str) -> set[str]:
    """What this process has of a file."""
    maps = Path("/proc/self/maps").read_text()
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    found = {"map": path in maps, "descriptor": any(path in link for link in links)}
    return {what for what, is_held in found.items() if is_held}


def test_a_file_knows_whether_its_name_still_leads_to_it(disk: OsDisk, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    file = disk.create(str(directory / "a"), 4096)
    assert file.is_in_place()
    directory.rename(tmp_path / "elsewhere")
    assert not file.is_in_place()
    directory.mkdir()
    disk.create(str(directory / "a"), 4096)
    assert not file.is_in_place(), "another file"
    (directory / "a").unlink()
    directory.rmdir()
    directory.touch()
    assert not file.is_in_place(), "no directory any more"
    directory.unlink()
    (tmp_path / "elsewhere").rename(directory)
    assert file.is_in_place()


def test_many_buffers_are_written_with_one_call(disk: OsDisk, tmp_path: Path) -> None:
    file = disk.create(str(tmp_path / "a"), 4096)
    file.pwrite([b"x"] * 3000, 1)
    assert file.pread(4096, 0) == b"\0" + b"x" * 3000 + bytes(1095)


def test_a_short_write_is_completed(disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create(str(tmp_path / "a"), 64)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    file.pwrite([b"abcd", b"efgh"], 4)
    assert file.pread(16, 0) == b"\0\0\0\0abcdefgh\0\0\0\0"


def test_a_device_that_takes_nothing_is_an_error(disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create(str(tmp_path / "a"), 64)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(StoreWriteError, match="takes no more bytes"):
        file.pwrite([b"abcd"], 0)


def test_writing_what_was_opened_for_reading_is_an_error(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    disk.create(path, 64).pwrite([b"abcd"], 0)
    file = disk.open(path, writable=False)
    assert bytes(file.view()[:4]) == b"abcd"
    with pytest.raises(StoreWriteError) as caught:
        file.pwrite([b"x"], 0)
    assert caught.value.errno == errno.EBADF


def test_zero_tail_erases_everything_behind_and_nothing_before(disk: OsDisk, tmp_path: Path) -> None:
    size = 5 << 20
    file = disk.create(str(tmp_path / "a"), size)
    file.pwrite([b"\xff" * 100], 1000)
    file.pwrite([b"\xff"], (3 << 20) + 17)
    file.pwrite([b"\xff"], size - 1)
    file.zero_tail(1010)
    data = bytes(file.view())
    assert (data[1000:1010], data[1010:] == bytes(size - 1010)) == (b"\xff" * 10, True)
    file.zero_tail(size)


def test_reading_what_is_not_there_is_an_error(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    assert (disk.exists(path), disk.listdir(path)) == (False, [])
    with pytest.raises(StoreReadError, match=r"open failed on .*none: No such file or directory"):
        disk.open(path, writable=False)
    for read in (disk.file_size, disk.mtime_ms, disk.read_bytes, disk.usage):
        with pytest.raises(StoreReadError):
            read(path)
    with pytest.raises(StoreWriteError):
        disk.unlink(path)


def test_replace_bytes_leaves_no_temporary_file(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    disk.replace_bytes(path, b"one")
    disk.replace_bytes(path, b"two")
    assert (disk.read_bytes(path), disk.listdir(str(tmp_path)), disk.file_size(path)) == (b"two", ["a"], 3)


def test_what_is_created_replaced_or_unlinked_is_synced_and_its_directory_after_it(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut may bring back the former file, or none; and a name may come before its bytes."""
    calls: list[str] = []

    def recorded(name: str, path_of: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(f"{name} {Path(path_of(*args)).name}")
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    recorded("fsync", lambda descriptor: str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    recorded("replace", lambda _from, to: str(to))
    recorded("unlink", str)
    directory = tmp_path / "config"
    directory.mkdir()
    path = str(directory / "a")
    disk.replace_bytes(path, b"one")
    disk.unlink(path)
    disk.create(path, 10)
    disk.makedirs(str(directory / "topic" / "0"))
    assert calls == [
        *("fsync a.tmp", "replace a", "fsync config"),
        *("unlink a", "fsync config"),
        *("fsync a", "fsync config"),
        *("fsync config", "fsync topic"),
    ]


def test_makedirs_makes_private_parents(disk: OsDisk, tmp_path: Path) -> None:
    disk.makedirs(str(tmp_path / "a" / "b"))
    disk.makedirs(str(tmp_path / "a" / "b"))
    assert [(tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b")] == [0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(StoreWriteError):
        disk.makedirs(str(tmp_path / "file" / "x"))


def test_usage_rounds_up_and_knows_what_is_writable(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    assert disk.usage(str(tmp_path)).read_only is False

    class Stat:
        f_blocks, f_bfree, f_bavail, f_frsize, f_files, f_favail = 1000, 300, 250, 4096, 90, 7
        f_flag = real.f_flag | ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: Stat)
    usage = disk.usage("/any")
    assert (usage.total, usage.available, usage.used_percent, usage.read_only) == (
        4096000,
        1024000,
        74,
        True,
    )
    assert usage.free_inodes == 7
    monkeypatch.setattr(Stat, "f_files", 0)
    assert disk.usage("/btrfs").free_inodes is None


@pytest.mark.parametrize("attempt", ["create", "replace", "mkdir"])
def test_no_space_is_told_from_no_inodes(
    attempt: str, disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are ENOSPC, "No space left on device", and of the one df says that there is space."""

    class Stat:
        f_files, f_favail, f_bavail = 90, 1, 5

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = str(tmp_path / "new")
    attempts: dict[str, Callable[[], Any]] = {
        "create": lambda: disk.create(path, 1),
        "replace": lambda: disk.replace_bytes(path, b""),
        "mkdir": lambda: disk.makedirs(path),
    }
    monkeypatch.setattr(os, "statvfs", lambda _: Stat())
    monkeypatch.setattr(os, "open", full)
    monkeypatch.setattr(os, "mkdir", full)
    for inodes, blocks, told in ((1, 5, False), (0, 5, True), (0, 0, False)):
        monkeypatch.setattr(Stat, "f_favail", inodes)
        monkeypatch.setattr(Stat, "f_bavail", blocks)
        with pytest.raises(StoreWriteError, match="No space left on device") as raised:
            attempts[attempt]()
        assert ("no inode is free" in str(raised.value), raised.value.errno) == (told, errno.ENOSPC)
        assert is_lack(raised.value)


TAKE_LOCK = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(7)
"""


def test_the_lock_keeps_others_out_and_ourselves(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = disk.lock(path)
    with pytest.raises(StoreLockedError, match="by this process"):
        disk.lock(path)
    assert subprocess.run([sys.executable, "-c", TAKE_LOCK, path], check=False).returncode == 7
    held.close()
    held.close()
    assert subprocess.run([sys.executable, "-c", TAKE_LOCK, path], check=False).returncode == 0
    assert disk.read_bytes(path) == b"lock"
    disk.lock(path).close()


HOLD_LOCK = """
import fcntl, sys
f = open(sys.argv[1], "r+b")
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_held_by_another_process_is_reported(disk: OsDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    disk.lock(path).close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError, match="by another process: stop that broker"):
            disk.lock(path)
        holder.communicate()


async def test_the_threaded_twins_do_the_same(disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a")
    file = await disk.create_in_thread(path, 64)
    file.pwrite([b"abcd"], 0)
    await file.sync_in_thread()
    assert disk.read_bytes(path)[:4] == b"abcd"
    await disk.unlink_in_thread(path)
    assert not disk.exists(path)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreWriteError, match=r"fdatasync failed on .*errno 5"):
        await file.sync_in_thread()


def test_what_cannot_be_known_is_an_error_and_not_a_no(disk: OsDisk, tmp_path: Path) -> None:
    """A link to itself fails as a directory on a bad disk does; taken for "not there", it would be an empty log."""
    (tmp_path / "loop").symlink_to("loop")
    loop = str(tmp_path / "loop")
    assert disk.exists(loop)  # the link itself is there
    with pytest.raises(StoreReadError, match="symbolic links"):
        disk.exists(f"{loop}/abort")
    with pytest.raises(StoreReadError, match="symbolic links"):
        disk.listdir(loop)
    with pytest.raises(StoreWriteError, match="symbolic links"):
        disk.makedirs(f"{loop}/commitlog")


def test_what_a_file_stands_in_the_way_of_is_not_there(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not disk.exists(str(tmp_path / "file/below"))
    assert disk.listdir(str(tmp_path / "file")) == disk.listdir(str(tmp_path / "file/below")) == []


async def test_a_thread_that_cannot_be_started_is_a_failed_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pids.max or memory at its end, the interpreter raises RuntimeError where the call is made.

    It is none of the device: nothing was asked of it.
    """

    def refused(_call: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refused)
    with pytest.raises(StoreWriteError, match="start of a thread failed on log: no thread") as caught:
        await in_thread(lambda: None, operation="fdatasync", path="log")
    assert (caught.value.errno, is_lack(caught.value)) == (errno.EAGAIN, True)


async def test_another_runtime_error_is_a_bug(tmp_path: Path) -> None:
    def wrong() -> None:
        raise RuntimeError("dictionary changed size")

    with pytest.raises(RuntimeError, match="dictionary"):
        await in_thread(wrong, operation="fdatasync", path="log")


def test_the_device_is_read_past_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(5000) + b"x" + bytes(3000))
    with DirectReader(str(path)) as device:
        assert device.is_zero(0, 5000)
        assert device.is_zero(5001, 8001)
        assert device.is_zero(4990, 5001) == device.is_zero(5000, 8001) == (not device.is_direct)
        assert device.is_direct == can_read_directly(path)


def can_read_directly(path: Path) -> bool:
    """Asked with dd, which is no part of what is tested."""
    command = ["dd", f"if={path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


async def test_work_in_a_thread_leaves_the_event_loop_its_turns(disk: OsDisk) -> None:
    goes_on = threading.Event()

    async def other() -> None:
        goes_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await disk.in_thread(lambda: goes_on.wait(60))


async def test_a_file_that_is_closed_while_a_thread_syncs_it_waits_for_that(tmp_path: Path) -> None:
    """Its descriptor may be another file's a moment later."""
    file, gate = OsDisk().create(str(tmp_path / "file"), 100), threading.Event()
    file.sync = gate.wait  # type: ignore[method-assign, assignment]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.sync_in_thread)
            await trio.testing.wait_all_tasks_blocked()
            file.close()
            assert file.fileno() != -1
            gate.set()
    assert file.fileno() == -1


def test_a_store_that_was_moved_is_not_made_again_for_a_queue(disk: OsDisk, tmp_path: Path) -> None:
    """What was moved back landed inside the directory that a new queue had made."""
    store = tmp_path / "store"
    disk.makedirs(str(store))
    held = disk.lock(str(store / "lock"))
    disk.create(str(store / "consumequeue/t/0/0"), 20, sparse=True).close()
    store.rename(tmp_path / "moved")
    with pytest.raises(StoreWriteError, match="No such file"):
        disk.create(str(store / "consumequeue/t/1/0"), 20, sparse=True)
    assert not store.exists()
    held.close()
