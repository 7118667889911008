"""Records that changed below a running store are found behind the pulls that were given them."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.store import damaged_records
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import ROOT, SEGMENT, commit_log, dispatched, message, put, running


async def test_a_body_that_changed_is_told_of_once(autojump_clock: MockClock) -> None:
    """Nobody but a consumer that compared the CRC noticed."""
    disk = SimDisk()
    async with running(disk.mount()) as store:
        results = await put(store, *[message(b"body %d" % number) for number in range(6)])
        await dispatched(store)
        store.get_message("TopicTest", 0, 0)
        await trio.sleep(1)
        assert store.damaged_records.describe(store.min_offset) == ""
        offset = results[3].wrote_offset
        disk.files[f"{ROOT}/commitlog/{0:020}"].cache[offset + 88] ^= 1
        with capture_logs() as logs:
            for _ in range(20):
                assert len(store.get_message("TopicTest", 0, 2).views) == 4, "it is given all the same"
                await trio.sleep(0.5)
        (told,) = [line for line in logs if line["event"] == "commit_log.record_damaged"]
        assert (told["offset"], "BODYCRC" in told["reason"]) == (offset, True)
        assert f"a record is damaged in its log, the first at offset {offset}" in store.damaged_records.describe(0)
        assert store.damaged_records.offsets(0) == [offset]


async def test_more_than_are_counted_are_told_of_as_more(autojump_clock: MockClock) -> None:
    disk = SimDisk()
    async with running(disk.mount(), mapped_file_size_commit_log=1 << 14) as store:
        results = await put(store, *[message(b"body %d" % number) for number in range(70)])
        await dispatched(store)
        for one in results:
            disk.files[f"{ROOT}/commitlog/{0:020}"].cache[one.wrote_offset + 90] ^= 1
        for first in range(0, 70, 10):
            store.get_message("TopicTest", 0, first)
        await trio.sleep(10)
        assert "64 or more records are damaged" in store.damaged_records.describe(store.min_offset)


async def test_what_is_deleted_is_damaged_no_more(autojump_clock: MockClock) -> None:
    disk = SimDisk()
    async with running(disk.mount()) as store:
        results = await put(store, *[message(size=1500) for _ in range(5)])
        await dispatched(store)
        disk.files[f"{ROOT}/commitlog/{0:020}"].cache[100] ^= 1
        disk.files[f"{ROOT}/commitlog/{SEGMENT:020}"].cache[100] ^= 1
        store.get_message("TopicTest", 0, 0)
        await trio.sleep(1)
        assert "2 records are damaged" in store.damaged_records.describe(store.min_offset)
        await commit_log(store).queue.delete_first_in_thread()
        assert store.damaged_records.offsets(store.min_offset) == [results[2].wrote_offset]


async def test_of_fast_pulls_the_last_are_checked(autojump_clock: MockClock) -> None:
    """Who compares the CRC stops at the record, and what came before it was sound."""
    disk = SimDisk()
    async with running(disk.mount()) as store:
        results = await put(store, *[message(b"body %d" % number) for number in range(10)])
        await dispatched(store)
        for result in (results[2], results[9]):
            disk.files[f"{ROOT}/commitlog/{0:020}"].cache[result.wrote_offset + 88] ^= 1
        store.get_message("TopicTest", 0, 2, max_msg_nums=1)
        for _ in range(300):
            store.get_message("TopicTest", 0, 0, max_msg_nums=1)
        store.get_message("TopicTest", 0, 9, max_msg_nums=1)
        await trio.sleep(20)
        assert store.damaged_records.offsets(0) == [results[9].wrote_offset]


async def test_all_that_a_pull_was_given_is_checked_some_at_a_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged_records, "_AT_ONCE", 3)
    disk = SimDisk()
    async with running(disk.mount()) as store:
        offsets = [one.wrote_offset for one in await put(store, *[message(b"body %d" % number) for number in range(8)])]
        await dispatched(store)
        for offset in offsets[2:]:
            disk.files[f"{ROOT}/commitlog/{0:020}"].cache[offset + 88] ^= 1
        assert len(store.get_message("TopicTest", 0, 0).views) == 8
        await trio.sleep(5)
        assert store.damaged_records.offsets(0) == offsets[2:]


async def test_a_queue_that_is_gone_is_not_checked(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        await put(store, message(b"body"))
        await dispatched(store)
        store.get_message("TopicTest", 0, 0)
        queue = store.queues.find("TopicTest", 0)
        assert queue is not None
        queue.empty()
        await trio.sleep(1)
        assert store.damaged_records.offsets(0) == []
