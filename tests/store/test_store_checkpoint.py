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


def test_a_new_log_is_told_from_one_whose_checkpoint_is_lost(disk: SimMount) -> None:
    """Nothing is known of either; but only of the latter something may have been durable."""
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    checkpoint.load()
    assert not checkpoint.is_blank
    checkpoint.begin()
    again = StoreCheckpoint(disk, "/checkpoint")
    again.load()
    assert (checkpoint.is_blank, again.is_blank, again.durable) == (True, True, Checkpoint())
    for lost in (b"", bytes(4096)):  # as RocketMQ makes it, and as an operator may leave it
        disk.replace_bytes("/checkpoint", lost)
        again = StoreCheckpoint(disk, "/checkpoint")
        again.load()
        assert (again.is_blank, again.durable) == (False, Checkpoint())


async def test_what_is_durable_is_no_new_log_any_more(disk: SimMount) -> None:
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    checkpoint.begin()
    await checkpoint.update_in_thread(commit_log_timestamp_ms=7, consume_queue_timestamp_ms=5, flushed_offset=9)
    assert not checkpoint.is_blank
    checkpoint.forget()
    assert (checkpoint.is_blank, decode_checkpoint(disk.read_bytes("/checkpoint"))) == (True, Checkpoint())


def test_a_new_store_starts_on_a_full_disk(disk: SimMount) -> None:
    checkpoint = StoreCheckpoint(disk, "/checkpoint")
    disk.disk.faults.full = True
    checkpoint.begin()
    assert not checkpoint.is_blank
    disk.disk.faults.full = False
    checkpoint.begin()
    assert checkpoint.is_blank
