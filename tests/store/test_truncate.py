"""The classic log fulfils Log.truncate: what was cut stays away, and nothing is taken for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import StoreError, StoreWriteError
from rmqha.store.disk import Disk
from rmqha.store.message_store import DefaultMessageStore
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, dispatched, message, put, running


@asynccontextmanager
async def replicated(disk: Disk, *, crash: bool = False) -> AsyncIterator[DefaultMessageStore]:
    """A store as in a broker: consumers see what is confirmed, and nothing else."""
    async with running(disk, crash=crash) as store:
        store.connect_replication(confirmed=lambda: store.commit_log.confirmed)
        yield store


async def cut(store: DefaultMessageStore, offset: int) -> None:
    store.commit_log.truncate(offset)
    await store.recover_topic_queue_table()


async def sizes(store: DefaultMessageStore) -> list[int]:
    """How large the messages are that consumers see."""
    await store.flush_now(store.max_offset)
    store.confirm()
    await dispatched(store)
    return [len(view) for view in store.get_message("TopicTest", 0, 0).views]


@pytest.mark.parametrize("kept", [1, 3, 4, 8])
async def test_what_is_cut_is_gone_and_the_log_goes_on_there(autojump_clock: MockClock, kept: int) -> None:
    """Three messages fill a segment; a restart brings nothing back."""
    device = SimDisk()
    async with replicated(device.mount()) as store:
        (first,) = await put(store, message(size=1000))
        await store.flush_now(first.end_offset)
        results = [first, *await put(store, *[message(size=1100) for _ in range(7)])]
        end = results[kept - 1].end_offset
        await cut(store, end)
        assert (store.max_offset, store.wrote.value) == (end, end)
        assert (store.flushed_offset, store.commit_log.confirmed) == (first.end_offset, first.end_offset)
        await store.flush_now(end)
        assert store.flush_service.flushed_boundary == end, "the checkpoint hears of no more"
        (again,) = await put(store, message(size=1200))
        assert again.queue_offset == kept
        assert await sizes(store) == [1000, *[1100] * (kept - 1), 1200]
        end = store.max_offset
    async with replicated(device.mount()) as store:
        assert (store.max_offset, await sizes(store)) == (end, [1000, *[1100] * (kept - 1), 1200])


async def test_after_a_crash_what_was_cut_does_not_come_back(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with replicated(device.mount(), crash=True) as store:
        results = await put(store, *[message(size=1100) for _ in range(7)])
        await cut(store, results[3].end_offset)
        end = store.max_offset
    async with replicated(device.mount()) as store:
        assert (store.max_offset, await sizes(store)) == (end, [1100] * 4)


async def test_who_waits_for_what_is_cut_is_failed(autojump_clock: MockClock) -> None:
    async with replicated(SimDisk().mount()) as store:
        first, second = await put(store, message(), message())
        answers: list[tuple[str, bool]] = []
        store.flushed.add(second.end_offset, inf, lambda reached, _: answers.append(("flushed", reached)))
        store.wrote.add(second.end_offset + 1, inf, lambda reached, _: answers.append(("wrote", reached)))
        store.commit_log.truncate(first.end_offset)
        assert answers == [("wrote", False), ("flushed", False)], "so nobody takes the old end for the end"


@pytest.mark.parametrize("beyond", [-1, 1])
async def test_what_is_durable_is_not_cut_nor_what_is_not_there(autojump_clock: MockClock, beyond: int) -> None:
    async with replicated(SimDisk().mount()) as store:
        await put(store, message(), message())
        end = store.max_offset
        await store.flush_now(end)
        with pytest.raises(StoreError, match=f"cannot be cut at {end + beyond}: it is durable up to {end}, and ends"):
            store.commit_log.truncate(end + beyond)
        assert store.max_offset == end
        store.commit_log.truncate(end)
        assert (store.max_offset, store.flushed_offset) == (end, end)


async def test_a_flush_under_way_does_not_count_for_what_takes_the_place(autojump_clock: MockClock) -> None:
    """It was asked for before the cut: nothing says that it has what was written after."""
    device = SimDisk(latency_s=(0.01, 0.01))
    async with replicated(device.mount()) as store:
        results = await put(store, *[message(size=1100) for _ in range(5)])
        store.request_flush()
        await trio.testing.wait_all_tasks_blocked()
        kept = results[1].end_offset
        await cut(store, kept)
        await put(store, *[message(size=1100) for _ in range(3)])
        await trio.sleep(0.05)
        assert store.max_offset > SEGMENT
        assert store.flushed_offset == kept
        assert store.flush_service.flushed_boundary <= kept
        await store.flush_now(store.max_offset)
        assert store.flushed_offset == store.flush_service.flushed_boundary == store.max_offset


async def test_a_cut_that_the_disk_refuses_is_final(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with replicated(device.mount(), crash=True) as store:
        first, _ = await put(store, message(), message())
        device.faults.sync_errors = 1
        with pytest.raises(StoreWriteError):
            store.commit_log.truncate(first.end_offset)
        assert store.write_error is not None
