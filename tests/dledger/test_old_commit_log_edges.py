"""The old commitlog of a member, where it ends and how it goes: what a classic broker may have left."""

from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from rmqha.codec.record.layout import encode_blank
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.errors import CorruptLogError
from tests.dledger.test_old_commit_log import OLD, OLD_LOG, SIZE, SMALL, MixedStore, living, old_store
from tests.sim.sim_disk import SimDisk, Step
from tests.store.helpers import message, put, running


async def test_a_segment_made_ahead_of_a_full_log_is_left_out(autojump_clock: MockClock) -> None:
    """On one broker, and not on another: the power went between the blank and what it was for."""
    one, other = SimDisk(), SimDisk()
    for device in (one, other):
        await old_store(device, *OLD[:6])
        disk = device.mount()
        async with running(disk, **SMALL) as store:
            end = store.max_offset
        assert end < SIZE
        disk.open(f"{OLD_LOG}/{0:020d}", writable=True).pwrite([encode_blank(SIZE - end)], end)
    one.mount().create(f"{OLD_LOG}/{SIZE:020d}", SIZE).sync()
    async with living(one) as first, living(other) as second:
        assert first.log.max_offset == second.log.max_offset == SIZE
        assert first.begin().body == second.begin().body


async def test_all_of_the_last_segment_tells_logs_apart(autojump_clock: MockClock) -> None:
    large: dict[str, Any] = {"mapped_file_size_commit_log": 2 << 20}
    one, other = SimDisk(), SimDisk()
    for device, last in ((one, b"x"), (other, b"y")):
        async with running(device.mount(), **large) as store:
            await put(store, message(bytes(1_200_000)), message(last))
            await store.flush_now(store.max_offset)
    async with living(one, **large) as leader, living(other, **large) as follower:
        assert leader.log.max_offset == follower.log.max_offset
        first = leader.begin()
        follower.log.follow(1)
        with pytest.raises(DLedgerException, match="has SHA-256"):
            follower.log.ledger.append_as_follower(replace(first), 1, "n9")


async def test_a_newest_segment_that_is_missing_is_damage(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device) as mixed:
        await mixed.put(b"new")
    disk = device.mount()
    disk.unlink(f"{OLD_LOG}/{disk.listdir(OLD_LOG)[-1]}")
    with pytest.raises(CorruptLogError, match="Restore the segments that are missing"):
        MixedStore(device).store.load()


async def test_it_goes_from_its_oldest_segment_on(autojump_clock: MockClock) -> None:
    """A log whose first segments are missing is one that has expired; another would be damaged."""
    device, steps = SimDisk(), list[Step]()
    await old_store(device, *OLD * 3)
    async with living(SimDisk()) as leader, living(device) as behind:
        await leader.put(*[b"new-%d" % number for number in range(40)])
        await behind.put(b"1")
        behind.log.follow(1)
        names, device.trace = behind.store.disk.listdir(OLD_LOG), steps
        behind.log.ledger.truncate(replace(leader.log.ledger.get(39)), 1, "n9")
        device.trace = None
    gone = [path.rpartition("/")[2] for kind, path, *_ in steps if kind == "unlink" and path.startswith(OLD_LOG)]
    assert gone == names
    assert len(gone) > 2


async def test_it_stays_while_the_disk_is_too_full_to_begin_anew(autojump_clock: MockClock) -> None:
    """Who began anew all the same, and forgot nothing, would be damaged at its next start."""
    device = SimDisk()
    await old_store(device)
    async with living(SimDisk()) as leader, living(device) as behind:
        await leader.put(*[b"new-%d" % number for number in range(40)])
        await behind.put(b"1")
        behind.log.follow(1)
        first = leader.log.ledger.get(39)
        device.faults.full = True
        with pytest.raises(DLedgerException, match="not dropped yet"):
            behind.log.ledger.truncate(replace(first), 1, "n9")
        device.faults.full = False
        assert behind.bodies() == [*OLD, b"1"]
        behind.log.ledger.truncate(replace(first), 1, "n9")
        assert behind.store.disk.listdir(OLD_LOG) == []


async def test_who_closes_it_leaves_it_to_others(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await old_store(device)
    async with living(device) as mixed:
        disk = mixed.store.disk
    disk.lock_directory(OLD_LOG).close()
