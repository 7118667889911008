"""A unit that does not lead to its record: the queue is built again, unless it is the log that is damaged."""

import errno

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.consume_queue import UNIT, UNIT_SIZE
from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.hashing import tags_code
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.message import decode_message
from rmqha.errors import CorruptLogError, StoreReadError
from rmqha.store import segment_reader
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageStatus
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, commit_log, dispatched, message, put, running
from tests.store.test_queue_rebuild import healed, offsets, put_everywhere
from tests.store.test_stopped_queues import feed

SIZE = 105
"""Of each record here."""


def overwrite(store: DefaultMessageStore, index: int, unit: bytes) -> None:
    """Damage a unit of queue 0 behind the broker's back."""
    queue = store.queues.find("TopicTest", 0)
    assert queue is not None
    mapped = queue.queue.find(index * UNIT_SIZE)
    assert mapped is not None
    mapped.file.pwrite([unit], index * UNIT_SIZE - mapped.file_from_offset)


def damage_log(store: DefaultMessageStore, offset: int, data: bytes) -> None:
    mapped = commit_log(store).queue.find(offset)
    assert mapped is not None
    mapped.file.pwrite([data], offset - mapped.file_from_offset)


async def settled(store: DefaultMessageStore) -> None:
    """Time enough to read this log, and to build what can be built."""
    await trio.sleep(5)


@pytest.mark.parametrize(
    "wrong", [(1, SIZE), (1 << 40, SIZE), (0, SIZE - 1), (-5, SIZE), (SIZE, SIZE)], ids=lambda pair: str(pair[0])
)
async def test_a_queue_with_a_unit_that_leads_elsewhere_is_built_again(
    autojump_clock: MockClock, wrong: tuple[int, int]
) -> None:
    """Into a record, behind the log, to a record of another size, before the log, to another queue's record."""
    with capture_logs() as logs:
        async with running(SimDisk().mount()) as store:
            before = await put_everywhere(store, rounds=25)
            await dispatched(store)
            overwrite(store, 12, UNIT.pack(*wrong, 0))
            up_to_it = store.get_message("TopicTest", 0, 11)
            assert (up_to_it.status, up_to_it.next_begin_offset) == (GetMessageStatus.FOUND, 12)
            with pytest.raises(StoreReadError, match=r"unit 12 does not lead to its message.*try later"):
                store.get_message("TopicTest", 0, 12)
            assert store.get_message("TopicTest", 0, 13).status is GetMessageStatus.FOUND
            assert "TopicTest/0" in store.queue_rebuild.describe()
            after = await put_everywhere(store)
            assert (store.refusal(), store.running_flags.final_error) == ("", None)
            await settled(store)
            await healed(store)
            assert offsets(store, 0) == before[0] + after[0]
            found = store.get_message("TopicTest", 0, 12).views[0]
            assert decode_message(found).queue_offset == 12
            assert (store.queue_rebuild.describe(), store.running_flags.final_error) == ("", None)
    told = [(line["event"], line["log_level"]) for line in logs if line["event"].startswith("consume_queue.")]
    assert told == [
        ("consume_queue.damaged", "warning"),
        ("consume_queue.lost", "warning"),
        ("consume_queue.rebuilt", "info"),
    ]


async def test_it_is_built_again_where_nobody_sends_any_more_and_stays_so(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        before = await put_everywhere(store, rounds=3)
        await dispatched(store)
        overwrite(store, 1, UNIT.pack(1 << 40, SIZE, 0))
    async with running(device.mount()) as store:
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 1)
        await settled(store)
        assert offsets(store, 0) == before[0]
    async with running(device.mount()) as store:
        assert len(store.get_message("TopicTest", 0, 0).views) == 3


async def test_a_filter_that_matches_nothing_before_it_stops_there_first(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        await put(store, message(properties=b"TAGS\x01a"), message(properties=b"TAGS\x01b"))
        await dispatched(store)
        overwrite(store, 1, UNIT.pack(7, SIZE, tags_code("b")))
        nothing = store.get_message("TopicTest", 0, 0, code_set=frozenset({tags_code("b")}))
        assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 1)


async def test_a_unit_that_leads_before_the_log_is_not_taken_for_a_message_that_was_removed(
    autojump_clock: MockClock,
) -> None:
    async with running(SimDisk().mount()) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        await commit_log(store).queue.delete_first_in_thread()
        overwrite(store, 22, UNIT.pack(0, SIZE, 0))
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 22)
        await settled(store)
        assert offsets(store, 0) == [offset for offset in before[0] if offset >= store.min_offset]


async def test_a_damaged_first_unit_does_not_tell_where_the_queue_begins(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        before = await put_everywhere(store, rounds=5)
        await dispatched(store)
        overwrite(store, 0, UNIT.pack(before[0][4], SIZE, 0))
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 0)
        await settled(store)
        assert offsets(store, 0) == before[0]


@pytest.mark.parametrize(
    ("at", "data"),
    [(4, b"\xff"), (0, b"\x00\x00\x0f\xff"), (20, b"\0\0\0\0\0\0\0\x09"), (28, b"\x01"), (93, b"x")],
    ids=["magic", "size", "queue offset", "physical offset", "topic"],
)
async def test_a_damaged_log_ends_dispatch_and_the_queue_is_kept(
    autojump_clock: MockClock, at: int, data: bytes
) -> None:
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        places = await put_everywhere(store, rounds=25)
        await dispatched(store)
        damage_log(store, places[0][12] + at, data)
        overwrite(store, 12, UNIT.pack(1, SIZE, 0))
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 12)
        await settled(store)
        assert isinstance(store.running_flags.final_error, CorruptLogError)
        assert not store.queues.lost
        assert store.get_message("TopicTest", 0, 13).status is GetMessageStatus.FOUND
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 12)


async def test_a_last_message_that_the_log_does_not_hold_is_missing_as_well(autojump_clock: MockClock) -> None:
    """Nothing behind it shows a gap; built again the queue would end before what consumers may have seen."""
    async with running(SimDisk().mount(), crash=True) as store:
        places = await put_everywhere(store, rounds=3)
        await dispatched(store)
        last = len(places[0]) - 1
        damage_log(store, places[0][last] + 94, b"x")
        overwrite(store, last, UNIT.pack(1, SIZE, 0))
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, last)
        await settled(store)
        assert isinstance(store.running_flags.final_error, CorruptLogError)
        assert (store.queues.lost, store.queues.range_of("TopicTest", 0)) == ({}, (0, last + 1))


async def test_a_log_that_cannot_be_read_at_present_is_read_later(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=2) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        overwrite(store, 12, UNIT.pack(1, SIZE, 0))
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 12)
        first = f"/store/commitlog/{0:020d}"
        held = device.files.pop(first)
        await settled(store)
        assert "TopicTest/0" in store.queue_rebuild.describe()
        device.files[first] = held
        await settled(store)
        assert offsets(store, 0) == before[0]


async def test_a_log_that_cannot_be_read_for_long_is_told_of_once(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        overwrite(store, 12, UNIT.pack(1, SIZE, 0))
        log, read = commit_log(store), store.commit_log.records

        def fail(start: int, end: int) -> tuple[list[DispatchRequest], int]:
            raise StoreReadError(OSError(errno.EMFILE, "none left"), operation="open", path=f"{start}..{end}")

        log.records = fail  # type: ignore[method-assign]
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 12)
        with capture_logs() as logs:
            await trio.sleep(60)
        told = [line["event"] for line in logs if line["event"].startswith("consume_queue.")]
        assert told == ["consume_queue.damaged", "consume_queue.rebuild_held"]
        log.records = read  # type: ignore[method-assign]
        await settled(store)
        assert offsets(store, 0) == before[0]


def clean_once_read_to(store: DefaultMessageStore, offset: int) -> None:
    """Delete the oldest segment as soon as somebody has read on from ``offset``, or from behind it."""
    log, read = commit_log(store), store.commit_log.records

    def records(start: int, end: int) -> tuple[list[DispatchRequest], int]:
        answer = read(start, end)
        if offset <= start < SEGMENT and log.min_offset == 0:
            log.queue.delete(log.queue.files[0])
        return answer

    log.records = records  # type: ignore[method-assign]


async def test_cleaning_while_the_log_is_read_is_no_gap_in_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "_ROUND_BYTES", 300)
    async with running(SimDisk().mount()) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        overwrite(store, 20, UNIT.pack(1, SIZE, 0))
        clean_once_read_to(store, 1000)
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 20)
        await settled(store)
        assert store.min_offset == SEGMENT
        assert (store.refusal(), store.running_flags.final_error) == ("", None)
        assert offsets(store, 0) == [offset for offset in before[0] if offset >= SEGMENT]


async def test_a_queue_of_which_all_messages_are_deleted_meanwhile_keeps_its_end(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "_ROUND_BYTES", 300)
    async with running(SimDisk().mount()) as store:
        await put(store, *[message() for _ in range(5)])
        await put(store, *[message(queue_id=1) for _ in range(60)])
        await dispatched(store)
        overwrite(store, 3, UNIT.pack(1, SIZE, 0))
        clean_once_read_to(store, 1000)
        with pytest.raises(StoreReadError):
            store.get_message("TopicTest", 0, 3)
        await settled(store)
        assert (store.refusal(), store.queue_rebuild.describe()) == ("", "")
        assert store.queues.range_of("TopicTest", 0) == (5, 5)


@pytest.mark.parametrize("index", [0, 2])
async def test_a_filter_does_not_pass_over_a_unit_that_is_none(autojump_clock: MockClock, index: int) -> None:
    """Zeros, as a file that was cut short has them, have no tag."""
    wanted = frozenset({tags_code("a")})
    async with running(SimDisk().mount()) as store:
        await put(store, *[message(properties=b"TAGS\x01a") for _ in range(5)])
        await dispatched(store)
        overwrite(store, index, bytes(UNIT_SIZE))
        with pytest.raises(StoreReadError, match=f"unit {index} does not lead to its message"):
            store.get_message("TopicTest", 0, index, code_set=wanted)
        await settled(store)
        assert len(store.get_message("TopicTest", 0, 0, code_set=wanted).views) == 5


async def test_zeros_are_no_message_that_was_removed(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        await put_everywhere(store, rounds=25)
        await dispatched(store)
        await commit_log(store).queue.delete_first_in_thread()
        first = store.queues.find("TopicTest", 0)
        assert first is not None
        first.correct_min_offset(store.min_offset)
        overwrite(store, first.min_offset_in_queue, bytes(UNIT_SIZE))
        with pytest.raises(StoreReadError, match="does not lead to its message"):
            store.get_message("TopicTest", 0, first.min_offset_in_queue)


async def test_a_cleaning_does_not_take_the_messages_behind_zeros_for_deleted(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        before = await put_everywhere(store, rounds=25)
        await dispatched(store)
        overwrite(store, 10, bytes(UNIT_SIZE * 6))
        await commit_log(store).queue.delete_first_in_thread()
        store.queues.correct_min_offset(store.min_offset)
        await trio.sleep(1)
        with pytest.raises(StoreReadError, match="unit 12 does not lead to its message"):
            store.get_message("TopicTest", 0, 12)
        await settled(store)
        assert offsets(store, 0) == [offset for offset in before[0] if offset >= store.min_offset]


@pytest.mark.parametrize("end", ["a 0th message", "a deletion"])
async def test_what_ended_a_stop_is_no_gap_in_the_log(autojump_clock: MockClock, end: str) -> None:
    """One such unit ended the dispatch of all topics for good."""
    device, key, deleted = SimDisk(), ("TopicTest", 0), end == "a deletion"
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, *((0, 1, 2, 3, 4, 9) if deleted else (0, 1, 2, 5)))
        if deleted:
            store.queues.hide({key: DeletedQueue(10, store.max_offset)})
            store.queues.drop_hidden([key], before=store.max_offset)
            await settled(store)
        first = 10 if deleted else 0
        await feed(store, first, first + 1, first + 2)
        assert (store.queues.range_of(*key), store.queues.stopped.describe()) == ((first, first + 3), "")
        places = offsets(store, 0)
        queue = store.queues.find(*key)
        assert queue is not None
        store.queue_rebuild.suspect(queue, first + 1)
        await settled(store)
        await feed(store, first + 3)
        assert (store.running_flags.final_error, store.queue_rebuild.describe()) == (None, "")
        assert offsets(store, 0)[:3] == places
        assert store.queues.range_of(*key) == (first, first + 4)


async def test_a_unit_that_is_deleted_while_the_log_is_read_misses_no_message(autojump_clock: MockClock) -> None:
    """Its queue's files go a while later, when it is saved that its topic is deleted."""
    key = ("TopicTest", 0)
    async with running(SimDisk().mount()) as store:
        await put_everywhere(store, rounds=3)
        await dispatched(store)
        queue = store.queues.find(*key)
        assert queue is not None
        store.queue_rebuild.suspect(queue, 1)
        store.queues.hide({key: DeletedQueue(3, store.max_offset)})
        await settled(store)
        assert store.running_flags.final_error is None
        assert store.queues.range_of(*key) == (3, 3)


async def test_a_queue_that_has_stopped_goes_on_while_the_log_is_read(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, 0, 1, 2, 5)
        queue, read = store.queues.find("TopicTest", 0), store.commit_log.records
        assert queue is not None

        def records(start: int, end: int) -> tuple[list[DispatchRequest], int]:
            store.queues.stopped.pop(("TopicTest", 0), None)  # as a 0th message behind the end has it
            return read(start, end)

        commit_log(store).records = records  # type: ignore[method-assign]
        store.queue_rebuild.suspect(queue, 1)
        await trio.sleep(0.15)
        assert store.running_flags.final_error is None


async def test_a_gap_behind_which_nothing_begins_anew_is_damage(autojump_clock: MockClock) -> None:
    """Of a queue that began anew, too."""
    async with running(SimDisk().mount(), is_slave=True, crash=True) as store:
        await feed(store, 0, 1, 2, 5, 0, 1, 2, 3)
        queue = store.queues.find("TopicTest", 0)
        assert queue is not None
        damage_log(store, 6 * SIZE + 20, (9).to_bytes(8, "big"))
        store.queue_rebuild.suspect(queue, 1)
        await settled(store)
        assert isinstance(store.running_flags.final_error, CorruptLogError)
        assert not store.queues.lost
