"""A disk that is full at the start: dispatch waits, all else is served, and the cleaner makes the room."""

import errno

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.consume_queue import UNIT_SIZE
from rmqha.errors import StoreWriteError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageStatus
from tests.settings import clean_options
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, put, running
from tests.store.test_queue_rebuild import offsets


def end_of(store: DefaultMessageStore) -> int:
    return store.get_max_offset_in_queue("TopicTest", 0)


async def killed_on_a_full_disk(device: SimDisk) -> None:
    """Its queues lack what its log holds."""
    clock = Clock()
    async with running(device.mount(), mapped_file_size_consume_queue=2000, now_ms=clock) as store:
        await put(store, *[message(size=1000) for _ in range(13)])
        clock.now_ms += 60_000
        await put(store, message(size=1000))
    async with running(device.mount(), mapped_file_size_consume_queue=2000, now_ms=clock, crash=True) as store:
        dispatched_bytes = store.max_offset
        store.connect_replication(confirmed=lambda: dispatched_bytes)
        await put(store, *[message(size=1000) for _ in range(9)])
        await store.flush_now(store.max_offset)
    device.kill()
    device.faults.root_full = True


async def test_it_serves_what_is_there_and_goes_on_when_there_is_room(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await killed_on_a_full_disk(device)
    with capture_logs() as logs:
        async with running(device.mount(), mapped_file_size_consume_queue=2000) as store:
            await trio.sleep(60)
            assert "No space left" in store.refusal()
            assert store.get_message("TopicTest", 0, 0).status is GetMessageStatus.FOUND
            assert end_of(store) < 23
            assert store.running_flags.final_error is None
            device.faults.heal()
            await dispatched(store)
            assert (end_of(store), store.refusal()) == (23, "")
            await put(store, message())
            await dispatched(store)
            assert end_of(store) == 24
    told = [line["event"] for line in logs if line["event"].startswith("reput")]
    assert told == ["reput_message_service.held", "reput_message_service.goes_on"]
    assert not device.mount().exists("/store/abort")
    async with running(device.mount(), mapped_file_size_consume_queue=2000) as store:
        assert end_of(store) == 24


async def test_the_cleaner_makes_the_room(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await killed_on_a_full_disk(device)

    def make_room(path: str) -> None:
        device.faults.root_full &= "/commitlog/" not in path

    device.on_unlink = make_room
    expired = clean_options(file_reserved_time_s=0.0, delete_when=tuple(range(24)))
    async with running(device.mount(), mapped_file_size_consume_queue=2000, clean=expired) as store:
        await trio.sleep(120)
        assert store.min_offset > 0
        assert (end_of(store), store.refusal()) == (23, "")


async def test_a_crash_while_it_is_held(autojump_clock: MockClock) -> None:
    device = SimDisk()
    await killed_on_a_full_disk(device)
    async with running(device.mount(), mapped_file_size_consume_queue=2000, crash=True) as store:
        await trio.sleep(60)
    device.power_cut()
    async with running(device.mount(), mapped_file_size_consume_queue=2000, crash=True) as store:
        await trio.sleep(60)
        device.faults.heal()
    device.kill()
    async with running(device.mount(), mapped_file_size_consume_queue=2000) as store:
        await dispatched(store)
        assert (end_of(store), store.refusal()) == (23, "")


def lose_units(device: SimDisk, queue_id: int, first: int) -> None:
    """A power cut takes what was not flushed of a queue: the units from ``first`` on."""
    file = device.files[f"/store/consumequeue/TopicTest/{queue_id}/{0:020d}"]
    for data in (file.cache, file.durable):
        data[first * UNIT_SIZE :] = bytes(len(data) - first * UNIT_SIZE)


async def put_and_delete_the_first_segment(store: DefaultMessageStore) -> list[list[int]]:
    """Two queues, the second with messages in the first and the third segment; returns where what is kept lies."""
    await put(store, *[message(size=600, queue_id=number % 2) for number in range(6)])
    await put(store, *[message(size=600) for _ in range(7)])
    await put(store, *[message(size=600, queue_id=number % 2) for number in range(4)])
    await store.flush_now(store.max_offset)
    await dispatched(store)
    await commit_log(store).queue.delete_first_in_thread()
    store.queues.correct_min_offset(SEGMENT)
    return [offsets(store, queue_id) for queue_id in (0, 1)]


def no_space() -> StoreWriteError:
    return StoreWriteError(OSError(errno.ENOSPC, "No space left on device"), operation="create", path="somewhere")


async def test_a_queue_that_lost_units_of_deleted_messages_is_built_again_when_there_is_room(
    autojump_clock: MockClock,
) -> None:
    """A start with room empties all queues for it; one that is held sees to it while it serves."""
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        kept = await put_and_delete_the_first_segment(store)
    device.kill()
    lose_units(device, queue_id=1, first=1)
    device.faults.root_full = True
    async with running(device.mount()) as store:
        assert "No space left" in store.refusal()
        await trio.sleep(60)
        assert (store.running_flags.final_error, store.refusal() != "") == (None, True)
        device.faults.heal()
        await trio.sleep(60)
        assert (store.refusal(), store.queue_rebuild.describe()) == ("", "")
        assert [offsets(store, queue_id) for queue_id in (0, 1)] == kept
    async with running(device.mount()) as store:
        assert [offsets(store, queue_id) for queue_id in (0, 1)] == kept


async def test_a_start_that_can_empty_only_some_of_the_queues_fills_them_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        kept = await put_and_delete_the_first_segment(store)
    lose_units(device, queue_id=1, first=1)
    empty = ConsumeQueue.empty

    def empty_the_first(self: ConsumeQueue) -> None:
        if self.queue_id != 0:
            raise no_space()
        empty(self)

    monkeypatch.setattr(ConsumeQueue, "empty", empty_the_first)
    async with running(device.mount()) as store:
        assert store.commit_log.next_queue_offset("TopicTest", 0) == 12
        await trio.sleep(60)
        assert (store.refusal(), store.queue_rebuild.describe()) == ("", "")
        assert [offsets(store, queue_id) for queue_id in (0, 1)] == kept


async def test_a_log_with_a_gap_stops_the_queue_that_has_it(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        (first,) = await put(store, message())
        await store.flush_now(store.max_offset)
        await dispatched(store)
        store.connect_replication(confirmed=lambda: first.end_offset)
        await put(store, message(queue_id=1))
        store.commit_log.learn_queue_offsets({("TopicTest", 0): 3})
        await put(store, message())
        await store.flush_now(store.max_offset)
    device.kill()
    device.faults.root_full = True
    async with running(device.mount(), crash=True) as store:
        assert "No space left" in store.refusal()
        device.faults.heal()
        await trio.sleep(60)
        assert (store.running_flags.final_error, store.refusal()) == (None, "")
        assert [*store.queues.stopped] == [("TopicTest", 0)]
        assert [offsets(store, queue_id) for queue_id in (0, 1)] == [[first.wrote_offset], [first.end_offset]]
