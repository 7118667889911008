"""The checkpoint says only what is durable, and survives a missing file."""

import pytest

from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint
from rmqha.errors import StoreWriteError
from rmqha.store.store_checkpoint import StoreCheckpoint
from tests.sim.sim_disk import SimDisk, SimMount


@pytest.fixture
def disk() -> SimMount:
    return SimDisk(latency_s=(0, 0)).mount()


async def test_new_values_are_durable_and_zero_keeps_the_old(disk: SimMount) -> None:
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    checkpoint.load()
    assert checkpoint.durable == Checkpoint()
    await checkpoint.update_in_thread(commit_log_timestamp_ms=7, consume_queue_timestamp_ms=5, flushed_offset=99)
    await checkpoint.update_in_thread(commit_log_timestamp_ms=0, consume_queue_timestamp_ms=6, flushed_offset=100)
    expected = Checkpoint(7, 6, 0, 100)
    again = StoreCheckpoint(disk, "/checkpoint")
    again.load()
    assert (checkpoint.durable, again.durable) == (expected, expected)
    assert decode_checkpoint(disk.read_bytes("/checkpoint")) == expected
    assert disk.file_size("/checkpoint") == 4096


async def test_what_has_not_changed_is_not_written(disk: SimMount) -> None:
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    for _ in range(3):
        await checkpoint.update_in_thread(commit_log_timestamp_ms=7, consume_queue_timestamp_ms=5, flushed_offset=9)
    assert disk.disk.calls == 1
    checkpoint.forget()
    checkpoint.forget()
    assert (disk.disk.calls, decode_checkpoint(disk.read_bytes("/checkpoint"))) == (2, Checkpoint())


async def test_times_alone_are_not_written(disk: SimMount) -> None:
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    await checkpoint.update_in_thread(commit_log_timestamp_ms=0, consume_queue_timestamp_ms=5, flushed_offset=0)
    assert (checkpoint.durable, disk.exists("/checkpoint")) == (Checkpoint(), False)


async def test_a_failed_update_is_forgotten(disk: SimMount) -> None:
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    disk.disk.faults.read_only = True
    with pytest.raises(StoreWriteError):
        await checkpoint.update_in_thread(commit_log_timestamp_ms=7, consume_queue_timestamp_ms=5, flushed_offset=9)
    assert checkpoint.durable == Checkpoint()
