"""A disk that is full at the start: dispatch waits, all else is served, and the cleaner makes the room."""

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageStatus
from tests.settings import clean_options
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import Clock, dispatched, message, put, running


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
