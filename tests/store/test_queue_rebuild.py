"""Consume queues whose files vanish while the broker runs are built again, and nobody else waits for it."""

import os
import shutil
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.errors import StoreReadError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDisk
from tests.sim.sim_disk import SimDataFile, SimDisk, SimMount
from tests.store.helpers import commit_log, dispatched, message, put, running

QUEUES = 6


def offsets(store: DefaultMessageStore, queue_id: int) -> list[int]:
    """Where the messages of a queue lie, from its first on."""
    queue = store.queues.find("TopicTest", queue_id)
    assert queue is not None
    units = [queue.unit(index) for index in range(queue.min_offset_in_queue, queue.max_offset_in_queue)]
    return [unit[0] for unit in units if unit is not None]


async def put_everywhere(store: DefaultMessageStore, rounds: int = 1) -> list[list[int]]:
    """``rounds`` messages for each queue; returns where those of each queue lie."""
    results = await put(store, *[message(queue_id=number % QUEUES) for number in range(rounds * QUEUES)])
    await store.flush_now(store.max_offset)
    return [[result.wrote_offset for result in results[number::QUEUES]] for number in range(QUEUES)]


async def healed(store: DefaultMessageStore) -> None:
    await dispatched(store)
    with trio.fail_after(60):
        while store.queues.lost:  # noqa: ASYNC110 - the store has no event for it
            await trio.sleep(0.01)


async def lose(store: DefaultMessageStore, queue_id: int = 0) -> None:
    """Have it noticed that files of this queue are gone."""
    store.queues.note_missing(f"/store/consumequeue/TopicTest/{queue_id}")
    with trio.fail_after(60):
        while not store.queues.lost:  # noqa: ASYNC110 - the store has no event for it
            await trio.sleep(0.01)


@pytest.mark.parametrize("gone", ["/0", "/0/00000000000000000000", ""])
async def test_a_queue_whose_files_vanish_is_built_again(autojump_clock: MockClock, gone: str) -> None:
    """One directory, one file of several, or a whole topic."""
    device = SimDisk()
    with capture_logs() as logs:
        async with running(device.mount(), open_files_max=2) as store:
            before = await put_everywhere(store, rounds=25)
            await dispatched(store)
            path = f"/store/consumequeue/TopicTest{gone}"
            device.files.pop(path, None)
            device.remove(path)
            with pytest.raises(StoreReadError):
                [store.get_message("TopicTest", number % QUEUES, 0) for number in range(2 * QUEUES)]
            after = await put_everywhere(store, rounds=2)
            await healed(store)
            assert [offsets(store, number) for number in range(QUEUES)] == [
                old + new for old, new in zip(before, after, strict=True)
            ]
            assert len((await put_everywhere(store))[0]) == 1
            await dispatched(store)
            assert store.get_max_offset_in_queue("TopicTest", 0) == 28
            assert (store.refusal(), store.running_flags.final_error) == ("", None)
    assert not device.mount().exists("/store/abort")
    told = [(line["event"], line["count"]) for line in logs if line["event"].startswith("consume_queue.")]
    lost, rebuilt = (sum(count for event, count in told if event.endswith(end)) for end in ("lost", "rebuilt"))
    assert 1 <= lost == rebuilt <= QUEUES
    assert not [line for line in logs if line["event"] == "reput_message_service.held"]
    async with running(device.mount()) as store:
        assert store.get_max_offset_in_queue("TopicTest", 0) == 28


async def test_other_queues_go_on_while_one_is_built_again(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        await put_everywhere(store, rounds=25)
        await dispatched(store)
        order = list(store.queues.next_offsets())
        device.faults.slowness = 1000.0  # making its files takes seconds
        device.remove("/store/consumequeue/TopicTest/0")
        await put(store, message(queue_id=1), message(queue_id=0))
        await dispatched(store)
        assert list(store.queues.lost) == [("TopicTest", 0)]
        assert (store.get_max_offset_in_queue("TopicTest", 0), store.get_max_offset_in_queue("TopicTest", 1)) == (
            26,
        ) * 2
        assert store.queues.next_offsets()["TopicTest", 0] == 26
        assert list(store.queues.next_offsets()) == order, "who asks for them page by page misses none"
        assert len(store.get_message("TopicTest", 1, 25).views) == 1
        with pytest.raises(StoreReadError, match="built again from the log"):
            store.get_message("TopicTest", 0, 25)
        assert "TopicTest/0 lost their files" in store.queue_rebuild.describe()
        assert store.refusal() == ""
        await put(store, message(queue_id=0))
        await healed(store)
        assert len(store.get_message("TopicTest", 0, 26).views) == 1
        assert list(store.queues.next_offsets()) == order
        assert store.queue_rebuild.describe() == ""


async def test_who_waits_for_messages_of_a_lost_queue_is_told_of_them(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        await put_everywhere(store)
        await dispatched(store)
        arrived: list[tuple[str, int, int]] = []
        store.connect_consumers(lambda *queue: arrived.append(queue))
        device.remove("/store/consumequeue/TopicTest/3")
        await put(store, message(queue_id=3))
        await healed(store)
        assert arrived == [("TopicTest", 3, 2)]


async def test_a_lost_queue_without_messages_in_the_log_keeps_its_end(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        await put(store, *[message() for _ in range(25)])
        await put(store, *[message(topic="Other", size=2000) for _ in range(3)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await commit_log(store).queue.delete_first_in_thread()
        store.queues.correct_min_offset(store.min_offset)
        device.remove("/store/consumequeue/TopicTest")
        arrived: list[tuple[str, int, int]] = []
        store.connect_consumers(lambda *queue: arrived.append(queue))
        await lose(store)
        await healed(store)
        assert arrived == [("TopicTest", 0, 25)]
        (range_of, queue) = store.queues.range_of("TopicTest", 0), store.queues.find("TopicTest", 0)
        assert queue is not None
        assert (range_of, queue.has_messages, queue.max_offset_in_queue) == ((25, 25), False, 25)
        await put(store, message())
        await dispatched(store)
        assert store.queues.range_of("TopicTest", 0) == (25, 26)
    async with running(device.mount()) as store:
        assert store.queues.range_of("TopicTest", 0) == (25, 26)


async def test_nothing_is_built_of_a_store_that_is_gone_as_a_whole(autojump_clock: MockClock) -> None:
    """Its file system is not mounted any more: in a place that is not the store's. Nor is anything acknowledged."""
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        await put_everywhere(store)
        await dispatched(store)
        files = dict(device.files)
        for path in files:
            if path.startswith("/store/co"):
                del device.files[path]
        store.queues.note_missing("/store/consumequeue/TopicTest/0")
        await trio.sleep(10)
        assert not store.queues.lost
        device.files.update(files)
        await trio.sleep(10)
        assert not store.queues.lost
        assert "was removed, moved or replaced" in str(store.running_flags.final_error)


class SlowForOther(SimMount):
    """Making a file for topic ``Other`` takes ten seconds."""

    async def create_in_thread(self, path: str, size: int, *, sparse: bool = False) -> SimDataFile:
        await trio.sleep(10 if "/Other/" in path else 0)
        return await super().create_in_thread(path, size, sparse=sparse)


async def test_what_a_round_of_dispatch_has_passed_over_is_built_before_the_queue_comes_back(
    autojump_clock: MockClock,
) -> None:
    """The rebuilding is where the last round ended, while the next one still waits for another queue's file."""
    device = SimDisk()
    async with running(SlowForOther(device, device.mount().epoch), open_files_max=1) as store:
        before = await put_everywhere(store)
        await dispatched(store)
        device.remove("/store/consumequeue/TopicTest/0")
        store.queues.note_missing("/store/consumequeue/TopicTest/0")
        passed_over, _ = await put(store, message(queue_id=0), message(topic="Other"))
        await trio.sleep(5)
        assert store.reput_from_offset == passed_over.wrote_offset, "the round is under way"
        await healed(store)
        assert offsets(store, 0) == [*before[0], passed_over.wrote_offset]
        assert store.running_flags.final_error is None


async def test_what_the_rebuilding_lacks_is_waited_for(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        device.faults.root_full = True
        device.remove("/store/consumequeue/TopicTest/0")
        store.queues.note_missing("/store/consumequeue/TopicTest/0")
        await trio.sleep(30)
        assert "No space left" in store.queue_rebuild.describe()
        device.faults.heal()
        await healed(store)
        assert offsets(store, 0) == before[0]


async def test_a_crash_while_a_queue_is_built_again(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1, crash=True) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        device.creation_s = 10.0
        device.remove("/store/consumequeue/TopicTest/0")
        store.queues.note_missing("/store/consumequeue/TopicTest/0")
        await trio.sleep(15)
        assert store.queues.lost
    device.creation_s = 0.0
    async with running(device.mount()) as store:
        assert offsets(store, 0) == before[0]


async def test_a_cleaning_that_overtakes_the_rebuilding_makes_it_begin_again(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        device.creation_s = 10.0
        device.remove("/store/consumequeue/TopicTest/0")
        await lose(store)
        await trio.sleep(3)
        await commit_log(store).queue.delete_first_in_thread()
        await healed(store)
        assert offsets(store, 0) == [offset for offset in before[0] if offset >= store.min_offset]
        assert store.get_max_offset_in_queue("TopicTest", 0) == 25


async def test_a_cleaning_behind_the_rebuilding_takes_from_the_queue_what_it_takes_from_the_log(
    autojump_clock: MockClock,
) -> None:
    """All is read by then, and a file of the queue is still being made."""
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        device.creation_s = 10.0
        device.remove("/store/consumequeue/TopicTest/0")
        await lose(store)
        with trio.fail_after(60):
            while ", 0 bytes of the log to go" not in store.queue_rebuild.describe():  # noqa: ASYNC110 - likewise
                await trio.sleep(0.01)
        await commit_log(store).queue.delete_first_in_thread()
        assert store.queues.lost
        await healed(store)
        assert offsets(store, 0) == [offset for offset in before[0] if offset >= store.min_offset]


async def test_a_directory_that_is_removed_from_a_real_disk(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with running(OsDisk(), root=str(tmp_path / "store"), open_files_max=1) as store:
            before = await put_everywhere(store, rounds=25)
            await dispatched(store)
            shutil.rmtree(tmp_path / "store/consumequeue")
            after = await put_everywhere(store, rounds=2)
            await healed(store)
            assert [offsets(store, number) for number in range(QUEUES)] == [
                old + new for old, new in zip(before, after, strict=True)
            ]


async def test_a_file_that_is_cut_short_on_a_real_disk_while_it_is_open(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with running(OsDisk(), root=str(tmp_path / "store")) as store:
            before = await put_everywhere(store, rounds=5)
            await dispatched(store)
            os.truncate(tmp_path / f"store/consumequeue/TopicTest/0/{0:020d}", 30)
            with pytest.raises(StoreReadError, match="it has 30 bytes now, and had 200"):
                store.get_message("TopicTest", 0, 0)
            await trio.sleep(0.1)
            await healed(store)
            assert offsets(store, 0) == before[0]
