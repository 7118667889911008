"""FlushConsumeQueueService: what comes while it flushes is neither vouched for nor forgotten."""

import errno
from math import inf

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.checkpoint import decode_checkpoint
from rmqha.errors import CorruptLogError
from rmqha.store.flush_consume_queue_service import FlushConsumeQueueService
from rmqha.store.message_store import DefaultMessageStore
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import ROOT, Clock, commit_log, dispatched, make_store, message, options, put, running
from tests.store.test_open_files import Unreadable


def service_of(store: DefaultMessageStore) -> FlushConsumeQueueService:
    return FlushConsumeQueueService(
        store.queues,
        store.parts.checkpoint,
        flush_service=store.flush_service,
        reput=store.reput,
        flags=store.running_flags,
        interval_s=inf,
        least_pages=0,
        thorough_interval_s=inf,
    )


async def test_what_comes_during_a_flush_waits_for_the_next(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    clock = Clock()
    async with running(SimDisk(latency_s=(1, 1)).mount(), now_ms=clock) as store:
        service = service_of(store)
        first_ms = clock.now_ms
        await put(store, message(), message(queue_id=1))
        first_end = store.max_offset
        await store.flush_now(first_end)
        await dispatched(store)
        nursery.start_soon(service.flush_all)
        await trio.sleep(0.5)  # the first of two fdatasyncs is under way
        clock.now_ms += 10_000
        await put(store, message(), message(queue_id=1))
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await trio.sleep(5)
        saved = decode_checkpoint(store.disk.read_bytes("/store/checkpoint"))
        assert (saved.commit_log_timestamp_ms, saved.consume_queue_timestamp_ms) == (first_ms, first_ms)
        assert saved.master_flushed_offset == first_end
        assert await service.flush_all()
        assert [queue.flushed_offset for queue in store.queues] == [40, 40]
        assert store.queues.dirty == {}
        saved = decode_checkpoint(store.disk.read_bytes("/store/checkpoint"))
        assert saved.consume_queue_timestamp_ms == clock.now_ms
        assert saved.master_flushed_offset == store.max_offset


async def test_a_queue_that_cannot_be_opened_holds_the_checkpoint(autojump_clock: MockClock) -> None:
    device = SimDisk()
    disk = Unreadable(device, device.mount().epoch)
    async with running(disk, open_files_max=1) as store:
        service = service_of(store)
        await put(store, message(), message(queue_id=1))
        await store.flush_now(store.max_offset)
        await dispatched(store)
        before = store.parts.checkpoint.durable
        disk.error = errno.EMFILE
        assert not await service.flush_all()
        assert store.parts.checkpoint.durable == before
        disk.error = 0
        assert await service.flush_all()
        assert store.parts.checkpoint.durable.master_flushed_offset == store.max_offset


async def test_where_dispatch_ended_for_good_the_log_is_vouched_for(autojump_clock: MockClock) -> None:
    """Damage that ends it is none that a crash left: the next start cut what it had just called damaged."""
    disk = SimDisk()
    async with running(disk.mount()) as store:
        await put(store, *[message() for _ in range(5)])
        await store.flush_now(store.max_offset)
        end = store.max_offset
        assert store.parts.checkpoint.durable.master_flushed_offset < end
        store.running_flags.fail_dispatch(CorruptLogError(0, "MAGICCODE"))
        await trio.sleep(5)
        assert store.parts.checkpoint.durable.master_flushed_offset == end
        disk.files[f"{ROOT}/commitlog/{0:020}"].cache[4] ^= 1
    with pytest.raises(CorruptLogError, match="the log was durable up to"):
        make_store(options(), disk.mount(), now_ms=Clock()).load()


async def test_whole_records_that_a_start_cuts_are_told(autojump_clock: MockClock) -> None:
    disk = SimDisk()
    async with running(disk.mount(), crash=True) as store:
        results = await put(store, *[message() for _ in range(5)])
        assert store.dropped == ""
    damaged = results[2].wrote_offset
    disk.files[f"{ROOT}/commitlog/{0:020}"].cache[damaged + 4] ^= 1
    async with running(disk.mount()) as store:
        assert store.max_offset == damaged
        assert f"cut the log at offset {damaged}" in store.dropped
        assert "2 whole records behind" in store.dropped


async def test_a_slave_vouches_for_the_records_that_it_dispatched(autojump_clock: MockClock) -> None:
    """Bytes come to it cut anywhere; only dispatch tells where a record ends."""
    async with running(SimDisk().mount()) as master:
        await put(master, message(b"one"), message(b"two"))
        data = bytes(commit_log(master).view_range(0, master.max_offset))
    async with running(SimDisk().mount(), is_slave=True) as slave:
        await slave.wait_allocated()
        assert slave.append_raw(data[:-1], 0) == len(data) - 1
        await dispatched_to(slave, len(data) // 2)
        await slave.flush_service.flush()
        assert await service_of(slave).flush_all()
        saved = decode_checkpoint(slave.disk.read_bytes("/store/checkpoint"))
        assert saved.master_flushed_offset == len(data) // 2


async def dispatched_to(store: DefaultMessageStore, offset: int) -> None:
    with trio.fail_after(60):
        while store.reput_from_offset < offset:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)
