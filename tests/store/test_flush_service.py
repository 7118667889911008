"""Flushing: what moves ``flushed``, who is answered when, and that the first failure is the last."""

import errno
from math import inf

import pytest
import structlog
import trio
from trio.testing import MockClock

from rmqha.errors import StoreError, StoreWriteError
from rmqha.store.status import PutMessageStatus
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, dispatched, message, put, running

SLOW = (0.01, 0.01)


async def test_group_commit_flushes_what_was_written_before_it(autojump_clock: MockClock) -> None:
    device = SimDisk(latency_s=SLOW)
    async with running(device.mount(), sync_flush=True) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        first = store.max_offset
        await put(store, message())
        await trio.testing.wait_all_tasks_blocked()  # the fdatasync is under way
        await put(store, message())
        await store.flush_now(first + 1)
        assert store.flushed_offset == 2 * first, "not what was written after the fdatasync was issued"
        assert store.flush_service.flushed_boundary == 2 * first, "nor does the checkpoint hear of it"
        await store.flush_now(store.max_offset)
        assert store.flushed_offset == 3 * first


async def test_commits_during_a_flush_share_the_next(autojump_clock: MockClock) -> None:
    device = SimDisk(latency_s=SLOW)
    async with running(device.mount(), sync_flush=True) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        reached: list[int] = []
        started_at = trio.current_time()
        for _ in range(20):
            await put(store, message())
            store.flushed.add(store.max_offset, inf, lambda ok, value: reached.append(value))
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            await store.flush_now(store.max_offset)
        assert trio.current_time() - started_at == pytest.approx(0.02), "two flushes for twenty commits"
        assert len(reached) == 20


async def test_who_waits_for_a_disk_that_never_answers_is_answered_in_time(autojump_clock: MockClock) -> None:
    device = SimDisk(latency_s=SLOW)
    answers: list[tuple[bool, float]] = []
    async with running(device.mount(), sync_flush=True) as store:
        device.faults.slowness = 10_000.0
        await put(store, message())
        deadline = trio.current_time() + 5
        store.flushed.add(store.max_offset, deadline, lambda ok, _: answers.append((ok, trio.current_time())))
        await trio.sleep(20)
        assert answers == [(False, deadline)]


async def test_who_waits_for_the_flush_of_what_is_cut_is_told_so(autojump_clock: MockClock) -> None:
    """Also if so much is flushed again before his task goes on."""
    device = SimDisk(latency_s=SLOW)
    async with running(device.mount()) as store:
        await put(store, message())
        end = store.max_offset
        device.faults.slowness = 10.0
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(StoreError, match=f"{end} is not flushed, and will not be: the log was cut"):
                    await store.flush_now(end)

            nursery.start_soon(wait)
            await trio.sleep(0.01)
            store.flushed.cut(end - 1)
            store.flushed.advance(end)


async def test_flushed_passes_segment_boundaries(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), sync_flush=True) as store:
        await put(store, *[message(size=1500) for _ in range(9)])
        with trio.fail_after(60):
            await store.flush_now(store.max_offset)
        assert store.flushed_offset == store.max_offset > 4 * SEGMENT


async def test_async_flush_waits_for_enough_pages_or_long_enough(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), mapped_file_size_commit_log=1 << 20) as store:
        await put(store, message())
        await trio.sleep(9.5)
        assert store.flushed_offset == 0, "less than four pages are dirty"
        await trio.sleep(1)
        assert store.flushed_offset == store.max_offset, "after ten seconds everything is flushed"
        await put(store, *[message(size=1500) for _ in range(12)])
        await trio.sleep(0.6)
        assert store.flushed_offset == store.max_offset


async def test_async_flush_does_not_wait_when_a_segment_is_full(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        await put(store, *[message(size=1500) for _ in range(3)])
        await trio.sleep(0.6)
        assert store.flushed_offset == store.max_offset == SEGMENT + 1500


async def test_async_flush_serves_a_request_at_once(autojump_clock: MockClock) -> None:
    async with running(SimDisk(latency_s=SLOW).mount()) as store:
        await put(store, message())
        started_at = trio.current_time()
        await store.flush_now(store.max_offset)
        assert trio.current_time() - started_at < 0.1
        await store.flush_now(1)
        assert store.flushed_offset == store.max_offset


@pytest.mark.parametrize("sync_flush", [True, False])
async def test_a_request_that_comes_during_a_flush_is_served_by_the_next(
    autojump_clock: MockClock, sync_flush: bool
) -> None:
    disk = SimDisk(latency_s=(1.0, 1.0)).mount()
    async with running(disk, sync_flush=sync_flush) as store, trio.open_nursery() as nursery:
        await put(store, message())
        nursery.start_soon(store.flush_now, store.max_offset)
        await trio.sleep(0.5)
        await put(store, message())
        started_at = trio.current_time()
        with trio.fail_after(60):
            await store.flush_now(store.max_offset)
        assert trio.current_time() - started_at == pytest.approx(1.5)


async def test_giving_up_waiting_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with running(SimDisk(latency_s=(1.0, 1.0)).mount()) as store:
        await put(store, message())
        with trio.move_on_after(0.1) as patience:
            await store.flush_now(store.max_offset)
        assert (patience.cancelled_caught, store.flushed.waiting) == (True, 0)


@pytest.mark.parametrize("sync_flush", [True, False])
async def test_the_first_failed_flush_is_final(autojump_clock: MockClock, sync_flush: bool) -> None:
    device = SimDisk(latency_s=SLOW)
    answers: list[tuple[bool, int]] = []
    with structlog.testing.capture_logs() as logs:
        async with running(device.mount(), sync_flush=sync_flush) as store:
            await put(store, message())
            await store.flush_now(store.max_offset)
            durable = store.flushed_offset
            device.faults.sync_errors = 1
            await put(store, message())
            store.flushed.add(store.max_offset, inf, lambda ok, value: answers.append((ok, value)))
            with pytest.raises(StoreWriteError) as caught:
                await store.flush_now(store.max_offset)
            assert answers == [(False, durable)], "who waits above the durable offset is told at once"
            assert (caught.value.errno, caught.value.operation) == (errno.EIO, "fdatasync")
            assert store.write_error is caught.value
            (refused,) = store.put_messages([message()])
            assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert "errno 5" in refused.remark
            with pytest.raises(StoreWriteError):
                store.append_raw(b"x", store.max_offset)
            store.request_flush()
            await trio.sleep(60)
            assert not await store.flush_service.flush()
            assert store.flushed_offset == durable, "the device works again, and is not believed"
            await store.flush_now(durable)
            with pytest.raises(StoreWriteError):
                await store.flush_now(durable + 1)
    assert [log["event"] for log in logs].count("store.write_failed") == 1
    assert device.mount().exists("/store/abort"), "the next start has to recover"


async def test_a_read_only_disk_is_noticed_before_the_first_write_fails(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        await dispatched(store)
        device.faults.read_only = True
        await trio.sleep(75)
        assert store.write_error is not None
        assert (store.write_error.errno, store.write_error.operation) == (errno.EROFS, "statvfs")
        assert len(store.get_message("TopicTest", 0, 0).views) == 1, "reading goes on"
