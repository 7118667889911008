"""Whether what lies beside a log is as late as that: a copy that was put back is not, nor a mount that was missing."""

from copy import deepcopy

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from tests.sim.sim_disk import Inode, SimDisk
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, put, running

MINUTE_MS = 60_000


def beside_the_log(device: SimDisk) -> dict[str, Inode]:
    return {path: deepcopy(file) for path, file in device.files.items() if not path.startswith("/store/commitlog/")}


async def written(device: SimDisk, clock: Clock, *, crash: bool) -> tuple[dict[str, Inode], int]:
    """What lay beside a log of five messages, and where that ended; five minutes later there are five more."""
    async with running(device.mount(), now_ms=clock, crash=crash) as store:
        await put(store, *[message() for _ in range(5)])
        await trio.sleep(61)
        end = store.max_offset
    copy = beside_the_log(device)
    clock.now_ms += 5 * MINUTE_MS
    async with running(device.mount(), now_ms=clock, crash=crash) as store:
        await put(store, *[message() for _ in range(5)])
        await trio.sleep(1)
    return copy, end


def put_back(device: SimDisk, copy: dict[str, Inode]) -> None:
    for path in beside_the_log(device):
        del device.files[path]
    device.files.update(deepcopy(copy))


@pytest.mark.parametrize("crash", [False, True])
async def test_after_whatever_end_all_is_as_late_as_the_log(autojump_clock: MockClock, *, crash: bool) -> None:
    device, clock = SimDisk(), Clock()
    await written(device, clock, crash=crash)
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of is None
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of is None


async def test_a_copy_from_a_clean_stop_is_older_than_any_message_since(autojump_clock: MockClock) -> None:
    device, clock = SimDisk(), Clock()
    copy, end = await written(device, clock, crash=False)
    put_back(device, copy)
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of == end
        assert store.max_offset > end
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of is None


@pytest.mark.parametrize(("later_ms", "is_older"), [(10 * MINUTE_MS, False), (11 * MINUTE_MS, True)])
async def test_a_copy_of_a_running_broker_is_older_if_its_log_goes_on_for_ten_minutes(
    later_ms: int, autojump_clock: MockClock, *, is_older: bool
) -> None:
    """The checkpoint is written each minute, and later where a disk has trouble."""
    device, clock = SimDisk(), Clock()
    copy, end = await written(device, clock, crash=True)
    clock.now_ms += later_ms
    async with running(device.mount(), now_ms=clock) as store:
        await put(store, message())
    put_back(device, copy)
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of == (end if is_older else None)


async def test_a_slave_that_stops_while_it_is_behind_leaves_nothing_older(autojump_clock: MockClock) -> None:
    """Where records end it learns by dispatching them, the last of them as it stops."""
    clock = Clock()
    async with running(SimDisk().mount(), now_ms=clock) as master:
        for _ in range(5):
            await put(master, message())
            clock.now_ms += MINUTE_MS
        data = bytes(commit_log(master).view_range(0, master.max_offset))
    device = SimDisk()
    async with running(device.mount(), now_ms=clock, is_slave=True) as slave:
        await slave.wait_allocated()
        first = len(data) // 5
        assert slave.append_raw(data[:first], 0) == first
        await trio.sleep(61)
        assert slave.append_raw(data[first:], first) == len(data) - first
    checkpoint = decode_checkpoint(device.mount().read_bytes("/store/checkpoint"))
    assert checkpoint.master_flushed_offset == len(data)
    async with running(device.mount(), now_ms=clock) as store:
        assert (store.max_offset, store.root_as_of) == (len(data), None)


async def test_rocketmq_s_checkpoint_need_not_tell_of_the_log_s_end(autojump_clock: MockClock) -> None:
    """It has no offset, and its time may be that of a flush before."""
    device, clock = SimDisk(), Clock()
    await written(device, clock, crash=False)
    mount = device.mount()
    ours = decode_checkpoint(mount.read_bytes("/store/checkpoint"))
    its_ms = ours.commit_log_timestamp_ms - MINUTE_MS
    theirs = Checkpoint(its_ms, its_ms)
    mount.replace_bytes("/store/checkpoint", encode_checkpoint(theirs))
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of is None


async def test_who_was_idle_and_is_killed_behind_one_message_is_no_copy(autojump_clock: MockClock) -> None:
    """The checkpoint tells when the last message came, and not when it was written."""
    device, clock = SimDisk(), Clock()
    copy, _ = await written(device, clock, crash=True)
    put_back(device, copy)
    async with running(device.mount(), now_ms=clock) as store:
        clock.now_ms += 600 * MINUTE_MS
        await trio.sleep(600)
    copy = beside_the_log(device)
    async with running(device.mount(), now_ms=clock, crash=True) as store:
        clock.now_ms += 600 * MINUTE_MS
        await put(store, message())
        known = beside_the_log(device)
    for beside in (copy | {"/store/abort": known["/store/abort"]}, known):
        put_back(device, beside)
        async with running(device.mount(), now_ms=clock) as store:
            assert store.root_as_of is None


async def test_what_is_in_the_queues_was_there_whatever_the_checkpoint_says(autojump_clock: MockClock) -> None:
    """It is not written while a queue cannot be flushed; and a clock that is set forward makes no copy of a store."""
    device, clock = SimDisk(), Clock()
    async with running(device.mount(), now_ms=clock, crash=True) as store:
        await put(store, message())
        await trio.sleep(61)
        held = deepcopy(device.files["/store/checkpoint"])
        for _ in range(20):
            clock.now_ms += MINUTE_MS
            await put(store, message())
        await dispatched(store)
        clock.now_ms += 60 * MINUTE_MS
        await put(store, message())
    device.files["/store/checkpoint"] = held
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of is None


async def test_a_copy_from_before_the_first_message_is_older(autojump_clock: MockClock) -> None:
    device, clock = SimDisk(), Clock()
    async with running(device.mount(), now_ms=clock):
        await trio.sleep(61)
    copy = beside_the_log(device)
    await written(device, clock, crash=False)
    put_back(device, copy)
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of == 0


async def test_without_a_checkpoint_nothing_is_known(autojump_clock: MockClock) -> None:
    device, clock = SimDisk(), Clock()
    await written(device, clock, crash=False)
    del device.files["/store/checkpoint"]
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of is None


async def test_a_copy_is_as_late_as_its_queues_which_may_be_ahead_of_its_checkpoint(autojump_clock: MockClock) -> None:
    device, clock = SimDisk(), Clock()
    async with running(device.mount(), now_ms=clock, crash=True) as store:
        await put(store, message())
        await trio.sleep(61)
        durable = store.max_offset
        await put(store, message())
        await dispatched(store)
        await trio.sleep(5)
        end, copy = store.max_offset, beside_the_log(device)
        for _ in range(2):
            clock.now_ms += 20 * MINUTE_MS
            await put(store, message())
    put_back(device, copy)
    assert decode_checkpoint(device.mount().read_bytes("/store/checkpoint")).master_flushed_offset == durable
    async with running(device.mount(), now_ms=clock) as store:
        assert store.root_as_of == end > durable


@pytest.mark.parametrize("has_expired", [False, True])
async def test_what_follows_a_copy_may_begin_with_the_next_file(
    autojump_clock: MockClock, *, has_expired: bool
) -> None:
    """Behind the copy's end is a blank alone, or its file has gone since."""
    device, clock = SimDisk(), Clock()
    async with running(device.mount(), now_ms=clock) as store:
        await put(store, message(size=3000))
        end = store.max_offset
    copy = beside_the_log(device)
    async with running(device.mount(), now_ms=clock) as store:
        await put(store, message(size=3000), message(size=3000))
    put_back(device, copy)
    if has_expired:
        del device.files["/store/commitlog/00000000000000000000"]
    async with running(device.mount(), now_ms=clock) as store:
        assert (store.min_offset, store.root_as_of) == (SEGMENT if has_expired else 0, end)
