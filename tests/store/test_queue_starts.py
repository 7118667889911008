"""A start does nothing that waits for the device to queues that are as they should be; what erasing a unit needs."""

import errno
from collections import Counter
from contextlib import suppress

import pytest
from trio.testing import MockClock

from rmqha.errors import StoreWriteError
from rmqha.store import start
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDataFile, SimDisk
from tests.store.helpers import Clock, bodies, dispatched, make_store, message, options, put, running

QUEUES = 40
ERASING = "/store/consumequeue.erasing"
QUEUE_FILE = f"/store/consumequeue/TopicTest/0/{0:020d}"


async def many_queues(*, crash: bool) -> SimDisk:
    device = SimDisk()
    async with running(device.mount(), crash=crash) as store:
        await put(store, *[message(queue_id=number % QUEUES) for number in range(QUEUES * 3)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
    return device


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
async def test_a_start_syncs_no_queue(autojump_clock: MockClock, crash: bool) -> None:
    device = await many_queues(crash=crash)
    before = device.journal.counts
    store = make_store(options(), device.mount(), now_ms=Clock())
    store.load()
    made = Counter(device.journal.counts) - Counter(before)
    assert made["zero_tail"] + made["fdatasync"] <= 10, "the log's, and none of forty queues'"
    assert made["unlink"] == 0
    assert made["pwrite"] <= (3 * QUEUES + 10 if crash else 2), "units are written once at most"
    assert len(bodies(store, queue_id=QUEUES - 1)) == 3
    store.close()


async def test_a_queue_that_is_not_written_is_not_flushed(autojump_clock: MockClock) -> None:
    device = await many_queues(crash=False)
    async with running(device.mount()) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        await dispatched(store)
        assert [queue.queue_id for queue in store.queues.dirty] == [0]
        assert len(store.queues.dirty) == 1
        await store.queues.find("TopicTest", 0).flush_in_thread()  # type: ignore[union-attr]


async def test_after_a_start_no_queue_gives_a_place_twice(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next places are is learned of some queues at a time, and not of the first ones alone."""
    monkeypatch.setattr(start, "_PAGE", 7)
    device = await many_queues(crash=False)
    async with running(device.mount()) as store:
        results = await put(store, *[message(queue_id=number) for number in range(QUEUES)])
        assert {result.queue_offset for result in results} == {3}


async def lost_its_last_record(device: SimDisk) -> None:
    """The queues know a record that the log does not have any more."""
    async with running(device.mount(), crash=True) as store:
        await put(store, message(b"one"))
        (last,) = await put(store, message(b"two"))
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await store.queues.find("TopicTest", 0).flush_in_thread()  # type: ignore[union-attr]
    log = device.files[f"/store/commitlog/{0:020d}"]
    for data in (log.cache, log.durable):
        data[last.wrote_offset : last.end_offset] = bytes(last.wrote_bytes)
    log.dirty.clear()


async def test_what_is_erased_is_zero_on_the_device_in_the_end(autojump_clock: MockClock) -> None:
    """A flush that fails leaves zeros that only the page cache has: the next start must not believe them."""
    device = SimDisk()
    await lost_its_last_record(device)
    queue_file = device.files[QUEUE_FILE]
    unit = bytes(queue_file.durable[20:40])
    assert any(unit)

    zero_tail = SimDataFile.zero_tail

    def fail_for_the_queue(self: SimDataFile, at: int) -> None:
        """The zeros are in the page cache, and clean."""
        if self.path != QUEUE_FILE:
            zero_tail(self, at)
            return
        queue_file.write(bytes(queue_file.size - at), at)
        queue_file.dirty.clear()
        raise StoreWriteError(OSError(errno.EIO, "Input/output error"), operation="zero_tail", path=QUEUE_FILE)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDataFile, "zero_tail", fail_for_the_queue)
        with pytest.raises(StoreWriteError):
            make_store(options(), device.mount(), now_ms=Clock()).load()
    assert bytes(queue_file.cache[20:40]) == bytes(20), "as the page cache has it"
    assert bytes(queue_file.durable[20:40]) == unit
    assert ERASING in device.files
    async with running(device.mount(), crash=True) as store:
        assert bytes(queue_file.durable[20:40]) == bytes(20)
        assert bodies(store) == [b"one"]
        assert ERASING not in device.files


async def test_a_crash_before_what_was_taken_back_is_written_again(autojump_clock: MockClock) -> None:
    device = await many_queues(crash=True)
    for calls in range(3, 60, 4):
        device.crash_at = device.calls + calls
        with suppress(NodeDied):
            make_store(options(), device.mount(), now_ms=Clock()).load()
    device.crash_at = None
    async with running(device.mount()) as store:
        for number in range(QUEUES):
            assert len(bodies(store, queue_id=number)) == 3
