"""One queue: bytes, recovery, cutting, fillers, and the lookup by time."""

from collections.abc import Callable
from itertools import combinations

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.consume_queue import FILLER, UNIT
from rmqha.errors import CorruptLogError, StoreWriteError
from rmqha.store import consume_queue
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from tests.sim.sim_disk import SimDisk, SimMount

PER_FILE = 10
DIRECTORY = "/store/consumequeue/TopicTest/0"


@pytest.fixture
def disk() -> SimMount:
    mount = SimDisk(latency_s=(0, 0)).mount()
    mount.makedirs(DIRECTORY)
    return mount


def queue_of(disk: SimMount) -> ConsumeQueue:
    return ConsumeQueue(disk, DIRECTORY, topic="TopicTest", queue_id=0, file_size=PER_FILE * 20 + 7)


def fill(queue: ConsumeQueue, count: int, *, first: int = 0, step: int = 100) -> None:
    """Units for records of 50 bytes, ``step`` apart."""
    rest = memoryview(b"".join(UNIT.pack((first + i) * step, 50, i) for i in range(count)))
    while rest := rest[queue.append(rest) :]:
        queue.create_file()


def loaded(disk: SimMount, *, writable: bool = True) -> ConsumeQueue:
    queue = queue_of(disk)
    queue.load(writable=writable)
    return queue


def test_units_lie_at_twenty_times_their_offset(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 12)
    assert disk.listdir(DIRECTORY) == [f"{0:020d}", f"{200:020d}"]
    assert disk.read_bytes(f"{DIRECTORY}/{200:020d}")[20:40] == UNIT.pack(1100, 50, 11)
    assert (queue.max_offset_in_queue, queue.unit(11), queue.unit(12), queue.unit(-1)) == (
        12,
        (1100, 50, 11),
        None,
        None,
    )
    assert [unit[0] for unit in queue.units(8, 100)] == [800, 900], "up to the end of the file"
    assert [unit[0] for unit in queue.units(10, 1)] == [1000]
    assert list(queue.units(12, 10)) == []
    assert list(queue.units(99, 10)) == []


def test_sizes_are_added_up_piece_by_piece(disk: SimMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is far behind has millions of units before the end, in several files."""
    monkeypatch.setattr(consume_queue, "_PIECE_BYTES_MAX", 60)
    queue = queue_of(disk)
    fill(queue, 25)
    for low, high in combinations(range(26), 2):
        assert queue.sum_of_sizes(low, high) == 50 * (high - low)


def test_load_finds_the_end(disk: SimMount) -> None:
    fill(queue_of(disk), 42)
    queue = loaded(disk)
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue, queue.max_physic_offset) == (0, 42, 4150)


@pytest.mark.parametrize("junk", [UNIT.pack(-1, 50, 0), UNIT.pack(100, 0, 0), UNIT.pack(100, -5, 0)])
def test_load_ends_at_the_first_invalid_unit_and_erases_what_follows(disk: SimMount, junk: bytes) -> None:
    queue = queue_of(disk)
    fill(queue, 25)
    queue.queue.files[1].file.pwrite([junk], 5 * 20)
    assert loaded(disk, writable=False).max_offset_in_queue == 15
    assert len(disk.listdir(DIRECTORY)) == 3, "nothing is changed when only reading"
    again = loaded(disk)
    assert (again.max_offset_in_queue, again.max_physic_offset) == (15, 1450)
    assert disk.listdir(DIRECTORY) == [f"{0:020d}", f"{200:020d}"]
    assert disk.read_bytes(f"{DIRECTORY}/{200:020d}")[100:] == bytes(100)


def test_cut_drops_the_records_at_and_behind(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 25)
    queue.cut(1500)
    assert (queue.max_offset_in_queue, queue.max_physic_offset) == (15, 1450)
    assert disk.read_bytes(f"{DIRECTORY}/{200:020d}")[100:] == bytes(100)
    queue.cut(10_000)
    assert queue.max_offset_in_queue == 15
    queue.cut(0)
    assert (queue.max_offset_in_queue, queue.max_physic_offset, queue.has_units) == (0, 0, False)


def test_a_queue_that_begins_later_starts_with_fillers(disk: SimMount) -> None:
    queue = queue_of(disk)
    queue.start_at(13)
    queue.create_file()
    assert not queue.has_units
    queue.append(memoryview(UNIT.pack(1300, 50, 0)))
    assert disk.read_bytes(f"{DIRECTORY}/{200:020d}")[:80] == FILLER * 3 + UNIT.pack(1300, 50, 0)
    assert disk.listdir(DIRECTORY) == [f"{200:020d}"]
    again = loaded(disk)
    assert (again.max_offset_in_queue, again.max_physic_offset) == (14, 1350)
    again.correct_min_offset(0)
    assert again.min_offset_in_queue == 13
    again.cut(1300)
    assert (again.has_units, again.max_physic_offset) == (False, 0), "fillers alone are nothing"
    again.start_at(4)
    assert disk.listdir(DIRECTORY) == []


def test_a_cleaning_leaves_the_beginning_of_a_queue_alone_that_has_yet_to_get_its_first_unit(disk: SimMount) -> None:
    """It went back to 0, among the fillers, whose readers were then told that the queue is damaged."""
    queue = queue_of(disk)
    queue.start_at(13)
    queue.correct_min_offset(500)
    assert queue.min_offset_in_queue == 13
    queue.create_file()
    queue.correct_min_offset(500)
    assert queue.min_offset_in_queue == 13


def test_min_offset_follows_the_log(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 25)
    queue.correct_min_offset(1150)
    assert queue.min_offset_in_queue == 12
    queue.correct_min_offset(10**9)
    assert queue.min_offset_in_queue == 25
    queue.cut(500)
    assert queue.min_offset_in_queue == 5


@pytest.mark.parametrize("drop", [ConsumeQueue.cut, ConsumeQueue.take_back], ids=["cut", "taken back"])
def test_min_offset_follows_the_log_in_a_queue_that_was_left_empty(
    disk: SimMount, drop: Callable[[ConsumeQueue, int], None]
) -> None:
    """What came after that lies before what was its first: consumers were to read what the log held no more."""
    queue = queue_of(disk)
    fill(queue, 3, first=20)
    queue.correct_min_offset(0)
    drop(queue, 500)
    fill(queue, 3, first=6)
    queue.correct_min_offset(750)
    assert (queue.min_offset_in_queue, queue.begins_at_phy_offset) == (2, 800)


async def test_files_with_nothing_left_are_deleted_but_never_the_last(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 30)
    queue.correct_min_offset(2050)
    assert await queue.delete_expired_files_in_thread(pause_s=0) == 2
    assert disk.listdir(DIRECTORY) == [f"{400:020d}"]
    queue.correct_min_offset(10**9)
    assert await queue.delete_expired_files_in_thread(pause_s=0) == 0


async def test_a_file_that_ends_exactly_where_the_queue_begins_is_deleted(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 25)
    queue.correct_min_offset(1000)
    assert queue.min_offset_in_queue == PER_FILE
    assert await queue.delete_expired_files_in_thread(pause_s=0) == 1
    assert disk.listdir(DIRECTORY) == [f"{200:020d}", f"{400:020d}"]


def test_a_file_that_was_made_and_not_written_hides_no_end(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, PER_FILE)
    queue.create_file()
    again = loaded(disk)
    assert (again.max_offset_in_queue, again.max_physic_offset) == (PER_FILE, 950)


def test_of_what_was_taken_back_nothing_is_left(disk: SimMount) -> None:
    fill(queue_of(disk), 8)
    queue = loaded(disk)
    queue.take_back(300)
    fill(queue, 2, first=3)
    queue.erase_leftovers()
    assert loaded(disk).max_offset_in_queue == 5


async def test_flush_makes_durable_what_is_dirty(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 12)
    assert (queue.flushed_offset, queue.dirty_pages) == (0, 0)
    await queue.flush_in_thread()
    assert queue.flushed_offset == 240
    fill(queue, 1, first=12)
    await queue.flush_in_thread()
    disk.disk.lose_power(lambda _path, _sector, old, _new: old)
    assert loaded(disk.disk.mount()).max_offset_in_queue == 13


async def test_what_comes_during_a_flush_waits_for_the_next(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The device may have begun before it came; also if it went into a file that the flush did not touch."""
    device = SimDisk(latency_s=(1, 1))
    disk = device.mount()
    disk.makedirs(DIRECTORY)
    queue = queue_of(disk)
    fill(queue, 8)
    nursery.start_soon(queue.flush_in_thread)
    await trio.sleep(0.5)
    fill(queue, 5, first=8)
    await trio.sleep(1)
    assert queue.flushed_offset == 160
    await queue.flush_in_thread()
    assert queue.flushed_offset == 260
    device.lose_power(lambda _path, _sector, old, _new: old)
    assert loaded(device.mount()).max_offset_in_queue == 13


@pytest.mark.parametrize("take_back", [ConsumeQueue.take_back, ConsumeQueue.cut])
async def test_what_is_dispatched_again_is_flushed_again(
    disk: SimMount, take_back: Callable[[ConsumeQueue, int], None]
) -> None:
    queue = queue_of(disk)
    fill(queue, 8)
    await queue.flush_in_thread()
    take_back(queue, 300)
    fill(queue, 5, first=3)
    await queue.flush_in_thread()
    disk.disk.lose_power(lambda _path, _sector, old, _new: old)
    assert [unit[2] for unit in loaded(disk.disk.mount()).units(0, 10)] == [0, 1, 2, 0, 1, 2, 3, 4]


async def test_a_queue_that_begins_again_further_ahead_is_flushed(disk: SimMount) -> None:
    queue = queue_of(disk)
    queue.start_at(25)
    queue.create_file()
    fill(queue, 3)
    await queue.flush_in_thread()
    queue.cut(0)
    queue.start_at(0)
    fill(queue, 12)
    await queue.flush_in_thread()
    disk.disk.lose_power(lambda _path, _sector, old, _new: old)
    assert loaded(disk.disk.mount()).max_offset_in_queue == 12


def test_a_failed_append_takes_nothing(disk: SimMount) -> None:
    queue = queue_of(disk)
    fill(queue, 1)
    disk.disk.faults.full = True
    with pytest.raises(StoreWriteError, match="errno 28"):
        queue.append(memoryview(UNIT.pack(100, 50, 0)))
    assert queue.max_offset_in_queue == 1


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [(0, 0), (100, 0), (101, 0), (104, 0), (105, 0), (106, 1), (110, 1), (115, 1), (116, 2), (190, 9), (999, 9)],
)
def test_lookup_by_time_takes_the_nearest(disk: SimMount, timestamp_ms: int, offset: int) -> None:
    """Messages stored at 100, 110, 120 ... 190."""
    queue = queue_of(disk)
    fill(queue, 10)
    assert queue.get_offset_in_queue_by_time(timestamp_ms, lambda phy: 100 + phy // 10) == offset


def test_lookup_by_time_begins_at_the_first_message_that_is_left(disk: SimMount) -> None:
    queue = queue_of(disk)
    assert queue.get_offset_in_queue_by_time(5, lambda phy: phy) == 0
    fill(queue, 10)
    queue.correct_min_offset(500)
    assert queue.get_offset_in_queue_by_time(0, lambda phy: phy) == 5
    queue.correct_min_offset(10**9)
    assert queue.get_offset_in_queue_by_time(0, lambda phy: phy) == 0


def table_of(disk: SimMount) -> ConsumeQueueTable:
    return ConsumeQueueTable(disk, "/store/consumequeue", file_size=200)


def test_the_table_loads_what_is_a_queue_and_leaves_the_rest_alone(disk: SimMount) -> None:
    fill(queue_of(disk), 3)
    for other in ("TopicTest/notes", "TopicTest/-1", "bad.topic/0", "\udcff/0", "TopicTest/1"):
        disk.makedirs(f"/store/consumequeue/{other}")
    table = table_of(disk)
    table.load()
    assert sorted((queue.topic, queue.queue_id) for queue in table) == [("TopicTest", 0), ("TopicTest", 1)]
    assert (table.max_physic_offset, table.next_offsets()) == (250, {("TopicTest", 0): 3, ("TopicTest", 1): 0})
    assert table.find("TopicTest", 2) is None
    assert table.find_or_create("TopicTest", 0) is table.find("TopicTest", 0)
    table.close()


def test_the_table_says_which_queue_is_damaged_and_what_to_do(disk: SimMount) -> None:
    disk.create(f"{DIRECTORY}/{0:020d}", 40).pwrite([b"x"], 0)
    with pytest.raises(CorruptLogError, match=r"consume queue TopicTest/0: .*move /store/consumequeue away"):
        table_of(disk).load()


@pytest.mark.parametrize(("topic", "queue_id"), [("../../etc", 0), ("a/b", 0), ("..", 0), ("", 0), ("T", -1), ("ü", 0)])
def test_no_name_leaves_the_store(disk: SimMount, topic: str, queue_id: int) -> None:
    before = dict(disk.disk.directories)
    with pytest.raises(CorruptLogError, match="no queue can be named"):
        table_of(disk).find_or_create(topic, queue_id)
    assert disk.disk.directories == before


def test_the_empty_table(disk: SimMount) -> None:
    table = ConsumeQueueTable(disk, "/none", file_size=200)
    table.load()
    assert (table.max_physic_offset, list(table)) == (0, [])
