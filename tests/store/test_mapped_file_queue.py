"""Segments that together are one log: contiguity at load, cutting, deleting."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import CorruptLogError, StoreWriteError
from rmqha.store.mapped_file import file_name, parse_file_name
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.os_disk import OsDisk
from tests.sim.sim_disk import SimDisk, SimMount

SIZE = 1024
DIRECTORY = "/store/commitlog"


@pytest.fixture
def disk() -> SimMount:
    mount = SimDisk(latency_s=(0, 0)).mount()
    mount.makedirs(DIRECTORY)
    return mount


def queue_of(disk: SimMount, *, files: int, start: int = 0) -> MappedFileQueue:
    """``files`` full segments of 0xFF."""
    queue = MappedFileQueue(disk, DIRECTORY, file_size=SIZE)
    queue.start_offset = start
    for _ in range(files):
        queue.create_next().append([b"\xff" * SIZE], SIZE)
    return queue


def loaded(disk: SimMount, *, writable: bool = True) -> MappedFileQueue:
    queue = MappedFileQueue(disk, DIRECTORY, file_size=SIZE)
    queue.load(writable=writable)
    return queue


def test_names_are_twenty_ascii_digits() -> None:
    assert file_name(1073741824) == "00000000001073741824"
    assert parse_file_name("00000000001073741824") == 1073741824
    for bad in ("1073741824", "0000000000107374182x", "\N{ARABIC-INDIC DIGIT ONE}" * 20, "lock"):
        assert parse_file_name(bad) is None


def test_an_empty_queue_begins_at_its_start_offset(disk: SimMount) -> None:
    queue = loaded(disk)
    queue.start_offset = 3 * SIZE
    assert (queue.min_offset, queue.max_offset, queue.next_file_offset) == (3 * SIZE, 3 * SIZE, 3 * SIZE)
    assert queue.find(3 * SIZE) is None
    assert queue.create_next().file.path == f"{DIRECTORY}/{file_name(3 * SIZE)}"
    assert (queue.max_offset, queue.next_file_offset) == (3 * SIZE, 4 * SIZE)


def test_load_finds_the_segments_and_takes_them_for_full(disk: SimMount) -> None:
    queue_of(disk, files=3, start=2 * SIZE)
    queue = loaded(disk)
    assert [file.file_from_offset for file in queue.files] == [2 * SIZE, 3 * SIZE, 4 * SIZE]
    assert (queue.min_offset, queue.max_offset) == (2 * SIZE, 5 * SIZE)
    found = queue.find(3 * SIZE + 5)
    assert found is queue.files[1]
    assert (queue.find(2 * SIZE - 1), queue.find(5 * SIZE)) == (None, None)
    assert queue.between(3 * SIZE - 1, 4 * SIZE) == queue.files[:2]
    assert queue.between(3 * SIZE, 3 * SIZE) == queue.between(3 * SIZE + 5, 3 * SIZE + 5) == []


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("lock", 4, "is no segment: move it out"),
        (file_name(0), SIZE - 1, f"has {SIZE - 1} bytes, but {SIZE} are configured for each file"),
        (file_name(4 * SIZE), SIZE, f"segment {file_name(2 * SIZE)} is missing"),
        (file_name(2 * SIZE), SIZE + 1, "bytes, but .* or this file is damaged$"),
    ],
)
def test_load_refuses_what_does_not_fit(disk: SimMount, name: str, size: int, reason: str) -> None:
    queue_of(disk, files=2)
    if disk.exists(f"{DIRECTORY}/{name}"):
        disk.unlink(f"{DIRECTORY}/{name}")
    disk.create(f"{DIRECTORY}/{name}", size).pwrite([b"x"], 0)
    with pytest.raises(CorruptLogError, match=reason):
        loaded(disk)


@pytest.mark.parametrize("size", [0, 7, SIZE - 1])
def test_a_last_file_that_was_never_finished_is_deleted(disk: SimMount, size: int) -> None:
    queue_of(disk, files=1)
    disk.create(f"{DIRECTORY}/{file_name(SIZE)}", size)
    assert loaded(disk).max_offset == SIZE
    assert disk.listdir(DIRECTORY) == [file_name(0)]


def test_an_unfinished_file_is_left_alone_when_only_reading(disk: SimMount) -> None:
    disk.create(f"{DIRECTORY}/{file_name(0)}", 7)
    assert loaded(disk, writable=False).files == []
    assert disk.listdir(DIRECTORY) == [file_name(0)]


def test_a_short_last_file_with_content_stops_the_start(disk: SimMount) -> None:
    disk.create(f"{DIRECTORY}/{file_name(0)}", 7).pwrite([b"x"], 3)
    with pytest.raises(CorruptLogError, match="has 7 bytes"):
        loaded(disk)


def test_truncate_deletes_what_is_behind_and_erases_the_rest(disk: SimMount) -> None:
    queue = queue_of(disk, files=3)
    queue.truncate(SIZE + 10)
    assert disk.listdir(DIRECTORY) == [file_name(0), file_name(SIZE)]
    assert (queue.max_offset, bytes(queue.files[1].view)) == (SIZE + 10, b"\xff" * 10 + bytes(SIZE - 10))
    disk.disk.lose_power(lambda _path, _sector, old, _new: old)
    assert disk.disk.mount().read_bytes(f"{DIRECTORY}/{file_name(SIZE)}")[10:] == bytes(SIZE - 10)


def test_truncate_at_a_boundary_keeps_an_empty_segment(disk: SimMount) -> None:
    queue = queue_of(disk, files=3)
    queue.truncate(SIZE)
    assert [file.wrote_position for file in queue.files] == [SIZE, 0]
    queue.truncate(SIZE)
    assert queue.max_offset == SIZE


def test_truncate_at_the_end_changes_nothing(disk: SimMount) -> None:
    queue = queue_of(disk, files=1)
    queue.truncate(SIZE)
    assert bytes(queue.files[0].view) == b"\xff" * SIZE
    empty = MappedFileQueue(disk, "/none", file_size=SIZE)
    empty.truncate(0)
    assert empty.files == []


def test_set_end_changes_memory_only(disk: SimMount) -> None:
    queue = queue_of(disk, files=3)
    queue.set_end(SIZE + 10)
    assert (queue.max_offset, len(queue.files), len(disk.listdir(DIRECTORY))) == (SIZE + 10, 2, 3)
    MappedFileQueue(disk, "/none", file_size=SIZE).set_end(0)


async def test_deleting_the_oldest_leaves_readers_their_bytes(tmp_path: Path) -> None:
    queue = MappedFileQueue(OsDisk(), str(tmp_path), file_size=SIZE)
    for _ in range(2):
        queue.create_next().append([b"\xff" * SIZE], SIZE)
    window = queue.files[0].view[10:20]
    await queue.delete_first_in_thread()
    assert (queue.min_offset, bytes(window)) == (SIZE, b"\xff" * 10)
    assert OsDisk().listdir(str(tmp_path)) == [file_name(SIZE)]
    queue.close()
    assert queue.files == []


async def test_the_next_segment_can_be_made_in_a_thread(disk: SimMount) -> None:
    queue = queue_of(disk, files=1)
    mapped = await queue.create_next_in_thread()
    assert (mapped.file_from_offset, mapped.end_offset, mapped.wrote_offset) == (SIZE, 2 * SIZE, SIZE)


async def test_a_failed_append_does_not_move_the_position(disk: SimMount) -> None:
    mapped = queue_of(disk, files=0).create_next()
    disk.disk.faults.write_errors = 1
    with pytest.raises(StoreWriteError, match="errno 5"):
        mapped.append([b"abc"], 3)
    assert mapped.wrote_position == 0


def test_a_failed_delete_keeps_the_segment(disk: SimMount) -> None:
    queue = queue_of(disk, files=2)
    disk.disk.faults.read_only = True
    with pytest.raises(StoreWriteError):
        queue.truncate(0)
    assert queue.max_offset == 2 * SIZE


async def test_a_segment_stays_pinned_until_what_came_during_its_flush_is_durable(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    disk = SimDisk(latency_s=(1, 1)).mount()
    disk.makedirs(DIRECTORY)
    mapped = queue_of(disk, files=0).create_next()
    mapped.append([b"abc"], 3)
    nursery.start_soon(mapped.sync_in_thread)
    await trio.sleep(0.5)
    mapped.append([bytes(SIZE - 3)], SIZE - 3)
    await trio.sleep(1)
    assert mapped.is_pinned
    await mapped.sync_in_thread()
    assert not mapped.is_pinned


def test_one_that_somebody_else_has_deleted_meanwhile_is_forgotten(disk: SimMount) -> None:
    """The cleaner's thread may be doing just that."""
    queue = queue_of(disk, files=3)
    disk.unlink(queue.files[0].path)
    queue.delete(queue.files[0])
    assert (queue.min_offset, len(queue.files)) == (SIZE, 2)
