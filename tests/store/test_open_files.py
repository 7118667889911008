"""However many files a store has, few of them are open; and what cannot be opened now can be opened later."""

import errno
import os
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDataFile, OsDisk
from tests.sim.sim_disk import SimDataFile, SimDisk, SimMount
from tests.store.helpers import SEGMENT, commit_log, descriptors, dispatched, message, put, running

FILES_MAX = 4
QUEUES = 30
SEGMENTS = 30


def maps(root: str) -> int:
    return Path("/proc/self/maps").read_text().count(root)


def bodies(store: DefaultMessageStore, queue_id: int) -> list[bytes]:
    found = store.get_message("TopicTest", queue_id, 0)
    return [bytes(view)[88 : 88 + 5] for view in found.views]


@pytest.mark.parametrize("crash", [False, True])
async def test_many_queues_and_segments_need_few_descriptors_and_maps(tmp_path: Path, crash: bool) -> None:
    root = str(tmp_path / "store")
    before = descriptors()
    with trio.fail_after(60):
        for life in range(2):
            async with running(OsDisk(), root=root, open_files_max=FILES_MAX, crash=crash) as store:
                for queue_id in range(QUEUES):
                    await put(store, message(b"%05d" % queue_id, queue_id=queue_id, properties=b"k\x01" + b"v" * 3500))
                    await store.flush_now(store.max_offset)
                await dispatched(store)
                assert len(commit_log(store).queue.files) == SEGMENTS * (life + 1)
                for queue_id in range(QUEUES):
                    assert bodies(store, queue_id)[0] == b"%05d" % queue_id
                assert descriptors() - before <= 2 * (FILES_MAX + 4) + 10
                assert maps(root) <= FILES_MAX + 4


class ScarceDisk(OsDisk):
    """A process that may have only so many files open at one time."""

    allowed = 1 << 30

    def open(self, path: str, *, writable: bool) -> OsDataFile:
        if descriptors() >= self.allowed:
            raise StoreReadError(OSError(errno.EMFILE, "Too many open files"), operation="open", path=path)
        return super().open(path, writable=writable)

    def create(self, path: str, size: int, *, sparse: bool = False) -> OsDataFile:
        if descriptors() >= self.allowed:
            raise StoreWriteError(OSError(errno.EMFILE, "Too many open files"), operation="create", path=path)
        return super().create(path, size, sparse=sparse)


async def test_a_file_that_needs_a_descriptor_gets_that_of_another(tmp_path: Path) -> None:
    disk = ScarceDisk()
    with trio.fail_after(60):
        async with running(disk, root=str(tmp_path / "store"), open_files_max=1000) as store:
            await put(store, *[message(b"hello", queue_id=number) for number in range(10)])
            await store.flush_now(store.max_offset)
            await dispatched(store)
        async with running(disk, root=str(tmp_path / "store"), open_files_max=1000) as store:
            for number in range(8):
                assert bodies(store, number) == [b"hello"]
            disk.allowed = descriptors()
            for number in range(10):
                assert bodies(store, number) == [b"hello"]
            await put(store, *[message(b"hello", queue_id=number) for number in range(10)])
            await store.flush_now(store.max_offset)
            await dispatched(store)
            assert store.running_flags.dispatch_hold is None
            for number in range(10):
                bodies(store, number)
            disk.allowed = descriptors()
            await put(store, message(b"hello", queue_id=11))
            await store.flush_now(store.max_offset)
            await dispatched(store)
            assert bodies(store, 11) == [b"hello"]
            assert store.running_flags.dispatch_hold is None


class Unreadable(SimMount):
    """Files that cannot be opened for a while."""

    error = 0

    def open(self, path: str, *, writable: bool) -> SimDataFile:
        if self.error:
            raise StoreReadError(OSError(self.error, os.strerror(self.error)), operation="open", path=path)
        return super().open(path, writable=writable)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.EACCES])
async def test_what_cannot_be_opened_is_tried_again(autojump_clock: MockClock, error: int) -> None:
    device = SimDisk()
    disk = Unreadable(device, device.mount().epoch)
    async with running(disk, open_files_max=1) as store:
        await put(store, message(b"hello"), message(b"hello", queue_id=1))
        await store.flush_now(store.max_offset)
        await dispatched(store)
        disk.error = error
        with pytest.raises(StoreReadError):
            [bodies(store, queue_id) for queue_id in (0, 1)]
        await put(store, message(b"later"), message(b"later", queue_id=1))
        await trio.sleep(70)
        assert "tries again" in store.refusal(), "dispatch is held, and the checkpoint waits"
        disk.error = 0
        await dispatched(store)
        assert (store.refusal(), store.running_flags.final_error) == ("", None)
        assert [bodies(store, queue_id) for queue_id in (0, 1)] == [[b"hello", b"later"]] * 2
    assert not device.mount().exists("/store/abort")


async def test_a_segment_that_is_written_stays_open(autojump_clock: MockClock) -> None:
    """Its next write must not need a descriptor."""
    device = SimDisk()
    disk = Unreadable(device, device.mount().epoch)
    async with running(disk, open_files_max=1) as store:
        await put(store, message())
        await dispatched(store)
        await put(store, *[message(queue_id=number) for number in range(5)])
        await dispatched(store)
        disk.error = errno.EMFILE
        await put(store, message(size=1000))
        await store.flush_now(store.max_offset)
        assert store.write_error is None
        assert store.max_offset < SEGMENT


async def test_a_file_that_was_cut_by_hand_is_no_sigbus(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with trio.fail_after(60):
        async with running(OsDisk(), root=str(root), open_files_max=1) as store:
            await put(store, message(b"hello"), message(b"hello", queue_id=1))
            await store.flush_now(store.max_offset)
            await dispatched(store)
            with (root / f"consumequeue/TopicTest/0/{0:020d}").open("r+b") as file:
                file.truncate(0)
            bodies(store, 1)
            with pytest.raises(StoreReadError, match="it has 0 bytes now, and had 200"):
                bodies(store, 0)


FEW_DESCRIPTORS = """
import gc, os, resource, sys
from rmqha.store.log_cut import plan_cut
from rmqha.store.log_reader import LogReader
from rmqha.store.log_verify import verify_log
from rmqha.store.os_disk import OsDisk
from rmqha.store.queue_verify import verify_queues

root, count, segment, spare = sys.argv[1], *map(int, sys.argv[2:])
log = f"{root}/commitlog"

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

gc.disable()
before = descriptors()
resource.setrlimit(resource.RLIMIT_NOFILE, (before + spare, before + spare))
with LogReader(OsDisk(), log) as reader:
    assert len([*reader.messages()]) == count
assert descriptors() == before
assert verify_log(OsDisk(), log).records == count
assert descriptors() == before
assert verify_queues(OsDisk(), log, f"{root}/consumequeue").units == count
assert descriptors() == before
assert plan_cut(OsDisk(), root, log, segment).records == count - 2
assert descriptors() == before
"""
"""With so few to spare, and no collection of garbage but what the code asks for."""


@pytest.mark.parametrize("spare", [29, 59, 60, 90])
async def test_a_log_with_more_files_than_a_process_may_open_is_read_verified_and_cut(
    tmp_path: Path, spare: int
) -> None:
    """A terabyte has a thousand, which is what a shell's processes may have open.

    With some of these the queues had taken the last descriptor when the log's first file was to be opened. The process
    is one of its own: here others' objects take descriptors when they are collected.
    """
    root, count = str(tmp_path), 300
    with trio.fail_after(60):
        async with running(OsDisk(), root=root) as store:
            await put(store, *[message(size=1800, queue_id=number % QUEUES) for number in range(count)])
    command = [sys.executable, "-c", FEW_DESCRIPTORS, root, str(count), str(SEGMENT), str(spare)]
    done = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
    assert done.returncode == 0, done.stderr.decode()


async def test_a_queue_file_is_closed_even_if_somebody_refers_to_it(tmp_path: Path) -> None:
    """PyPy drops references late; there are as many of these files as queues."""
    with trio.fail_after(60):
        async with running(OsDisk(), root=str(tmp_path / "store"), open_files_max=1) as store:
            await put(store, message(b"hello"), message(b"hello", queue_id=1))
            await store.flush_now(store.max_offset)
            await dispatched(store)
            held = []
            for queue_id in (0, 1, 0, 1):
                assert bodies(store, queue_id) == [b"hello"]
                queue = store.queues.find("TopicTest", queue_id)
                assert queue is not None
                held.append(queue.queue.files[0].file)
            assert [file.fileno() for file in held[:2]] == [-1, -1]
            assert held[3].fileno() != -1
