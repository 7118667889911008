"""What merely lacks space, descriptors, memory or a thread is refused, tried again, and goes on by itself."""

import errno
import os

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk_calls import THREAD_START
from rmqha.store.passing import is_lack, may_pass
from rmqha.store.status import PutMessageStatus
from tests.sim.sim_disk import SimDataFile, SimDisk, SimMount
from tests.store.helpers import commit_log, dispatched, message, put, running

LACKING = [
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EINTR,
]


class LackingMount(SimMount):
    """Files of one directory can be neither made nor opened for a while."""

    error = 0
    directory = "/commitlog/"

    def create(self, path: str, size: int, *, sparse: bool = False) -> SimDataFile:
        if self.error and self.directory in path:
            raise StoreWriteError(OSError(self.error, os.strerror(self.error)), operation="create", path=path)
        return super().create(path, size, sparse=sparse)

    def open(self, path: str, *, writable: bool) -> SimDataFile:
        if self.error and self.directory in path:
            raise StoreReadError(OSError(self.error, os.strerror(self.error)), operation="open", path=path)
        return super().open(path, writable=writable)


def lacking(device: SimDisk) -> LackingMount:
    return LackingMount(device, device.mount().epoch)


@pytest.mark.parametrize("error", LACKING)
async def test_a_segment_that_cannot_be_made_is_made_later(autojump_clock: MockClock, error: int) -> None:
    device = SimDisk()
    disk = lacking(device)
    with capture_logs() as logs:
        async with running(disk) as store:
            await put(store, message(size=1000))
            disk.error = error
            results = await store.put_messages_when_allocated([message(size=2000) for _ in range(3)])
            refused = PutMessageStatus.CREATE_MAPEDFILE_FAILED
            assert [result.status for result in results] == [PutMessageStatus.PUT_OK, refused, refused]
            assert os.strerror(error) in results[1].remark
            await trio.sleep(100)
            (refusal,) = store.put_messages([message()])
            assert "is tried again" in refusal.remark
            assert (store.write_error, store.running_flags.final_error) == (None, None)
            disk.error = 0
            await trio.sleep(2)
            assert store.refusal() == ""
            await put(store, message(size=2000))
            await dispatched(store)
            assert store.get_max_offset_in_queue("TopicTest", 0) == 3
    assert not device.mount().exists("/store/abort")
    told = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert told.count("store.held") == 1
    assert len(told) <= 4, "not once a try"


async def test_a_slave_waits_for_a_segment_that_cannot_be_made(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as master:
        await put(master, *[message(size=2000) for _ in range(3)])
        data = [bytes(commit_log(master).view_range(offset, 1 << 20)) for offset in (0, 4096)]
    device = SimDisk()
    disk = lacking(device)
    async with running(disk, is_slave=True) as slave:
        while slave.append_raw(data[0], 0) == 0:
            await slave.wait_allocated()
        disk.error = errno.EMFILE
        tries = 0
        with trio.move_on_after(30):
            while slave.append_raw(data[1], 4096) == 0:
                tries += 1
                await slave.wait_allocated()
        assert 10 < tries < 40, "once a second"
        assert "Too many open files" in slave.running_flags.refusal()
        disk.error = 0
        while slave.append_raw(data[1], 4096) == 0:
            await slave.wait_allocated()
        assert (slave.running_flags.refusal(), slave.max_offset) == ("", 4096 + len(data[1]))


async def test_a_segment_that_cannot_be_opened_is_opened_later(autojump_clock: MockClock) -> None:
    """The first put after a start."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
    disk = lacking(device)
    async with running(disk) as store:
        commit_log(store).queue.open_files.forget(commit_log(store).queue.files[-1])
        disk.error = errno.EMFILE
        (refused,) = store.put_messages([message()])
        assert (refused.status, store.write_error) == (PutMessageStatus.SERVICE_NOT_AVAILABLE, None)
        assert "Too many open files" in refused.remark
        disk.error = 0
        (result,) = await put(store, message())
        assert result.queue_offset == 1


@pytest.mark.parametrize("error", LACKING)
async def test_a_queue_file_that_cannot_be_made_is_made_later(autojump_clock: MockClock, error: int) -> None:
    device = SimDisk()
    disk = lacking(device)
    disk.directory = "/consumequeue/"
    async with running(disk) as store:
        disk.error = error
        await put(store, message())
        await trio.sleep(10)
        assert "tries again" in store.refusal()
        disk.error = 0
        await dispatched(store)
        assert (store.refusal(), store.get_max_offset_in_queue("TopicTest", 0)) == ("", 1)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EPERM, errno.EFBIG, errno.ENOENT])
async def test_what_is_broken_stays_final(autojump_clock: MockClock, error: int) -> None:
    disk = lacking(SimDisk())
    async with running(disk) as store:
        await put(store, message(size=3000))
        disk.error = error
        await store.put_messages_when_allocated([message(size=2000)])
        assert store.write_error is not None
        assert store.write_error.errno == error


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOSPC, errno.ENOENT])
def test_nothing_passes_after_fdatasync(number: int) -> None:
    error = StoreWriteError(OSError(number, "it failed"), operation="fdatasync", path="/log")
    assert not is_lack(error)
    assert not may_pass(error)


@pytest.mark.parametrize("sync_flush", [True, False])
async def test_a_flush_for_which_there_is_no_thread_is_done_later(autojump_clock: MockClock, sync_flush: bool) -> None:
    async with running(SimDisk().mount(), sync_flush=sync_flush) as store:
        flush_in_thread, error = store.commit_log.flush_in_thread, OSError(errno.EAGAIN, "no thread")

        async def refused(end: int) -> None:
            raise StoreWriteError(error, operation=THREAD_START, path=f"log up to {end}")

        store.commit_log.flush_in_thread = refused  # type: ignore[method-assign]
        await put(store, message())
        with trio.move_on_after(5) as waiting:
            await store.flush_now(store.max_offset)
        assert (waiting.cancelled_caught, store.flushed_offset, store.write_error) == (True, 0, None)
        store.commit_log.flush_in_thread = flush_in_thread  # type: ignore[method-assign]
        await trio.sleep(2)
        assert store.flushed_offset == store.max_offset


async def test_a_store_that_could_not_be_flushed_at_its_end_is_recovered(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())

        async def refused(end: int) -> None:
            raise StoreWriteError(OSError(errno.EAGAIN, "no thread"), operation=THREAD_START, path=f"log up to {end}")

        store.commit_log.flush_in_thread = refused  # type: ignore[method-assign]
    assert device.mount().exists("/store/abort")
