"""Which files OpenFiles closes, and when; and that a log lets go of the files it drops."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import DataFile
from rmqha.store.file_to_read import FileToRead
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.open_files import OpenFiles
from rmqha.store.os_disk import OsDisk
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import descriptors

SIZE = 4096
EACH = 2
"""Descriptors of a segment: the file's, and its map's."""
FILE: Any = object()


class Owner:
    """A file that can be opened."""

    def __init__(self, *, is_pinned: bool = False, was_used: bool = False) -> None:
        self.held: DataFile | None = None
        self.is_pinned = is_pinned
        self.was_used = was_used
        self.closes_by_name = False

    def open_file(self) -> DataFile:
        return FILE  # type: ignore[no-any-return]


def are_open(*owners: Owner) -> list[bool]:
    return [owner.held is not None for owner in owners]


def test_no_more_are_open_than_allowed() -> None:
    files, owners = OpenFiles(2), [Owner() for _ in range(5)]
    for number, owner in enumerate(owners, start=1):
        files.open(owner)
        assert sum(are_open(*owners)) == min(number, 2)


def test_also_where_all_have_been_used() -> None:
    files, owners = OpenFiles(2), [Owner(was_used=True) for _ in range(3)]
    for owner in owners:
        files.open(owner)
    assert are_open(*owners) == [False, True, True]


def test_what_was_not_used_is_closed_first_and_what_is_pinned_never() -> None:
    files = OpenFiles(2)
    pinned, used, idle, new = Owner(is_pinned=True), Owner(was_used=True), Owner(), Owner(was_used=True)
    for owner in (pinned, used):
        files.open(owner)
    for owner in (idle, new):
        files.keep(owner, FILE)
    assert are_open(pinned, used, idle, new) == [True, False, False, True]


@pytest.mark.parametrize(
    ("error", "helps"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ENOSPC, False), (errno.EIO, False)]
)
def test_room_is_made_only_where_descriptors_are_lacking(error: int, helps: bool) -> None:
    files, owners = OpenFiles(10), [Owner() for _ in range(4)]
    for owner in owners:
        files.open(owner)
    assert files.make_room(error) is helps
    assert sum(are_open(*owners)) == (2 if helps else 4)


def segments(root: Path, count: int) -> MappedFileQueue:
    """Full segments of a log."""
    queue = MappedFileQueue(OsDisk(), str(root), file_size=SIZE)
    for _ in range(count):
        queue.create_next().append([b"x" * SIZE], SIZE)
    return queue


async def test_a_log_gives_back_the_descriptors_of_what_it_drops(tmp_path: Path) -> None:
    before = descriptors()
    queue = segments(tmp_path, 4)
    assert descriptors() == before + 4 * EACH
    await queue.delete_first_in_thread()
    assert descriptors() == before + 3 * EACH
    queue.set_end(2 * SIZE)
    assert descriptors() == before + 2 * EACH
    queue.truncate(SIZE)
    assert descriptors() == before + 1 * EACH
    still_held = queue.files[0].file
    queue.close()
    assert descriptors() == before, "though somebody has not let go of it"
    del still_held


def test_segments_are_cut_off_from_the_end(tmp_path: Path) -> None:
    """A crash in between leaves no hole."""
    device = SimDisk(latency_s=(0, 0))
    disk = device.mount()
    disk.makedirs("/log")
    queue = MappedFileQueue(disk, "/log", file_size=SIZE)
    for _ in range(4):
        queue.create_next().append([b"x" * SIZE], SIZE)
    unlinked: list[str] = []
    device.on_unlink = unlinked.append
    queue.truncate(10)
    assert unlinked == [f"/log/{number * SIZE:020d}" for number in (3, 2, 1)]


def test_a_cut_that_fails_moves_no_end() -> None:
    disk = SimDisk(latency_s=(0, 0)).mount()
    disk.makedirs("/log")
    queue = MappedFileQueue(disk, "/log", file_size=SIZE)
    queue.create_next().append([b"x" * 100], 100)
    disk.disk.faults.read_only = True
    with pytest.raises(StoreWriteError):
        queue.truncate(10)
    assert queue.max_offset == 100


async def test_a_segment_that_is_written_again_after_a_cut_has_to_stay_open_till_it_is_flushed(tmp_path: Path) -> None:
    (mapped,) = segments(tmp_path, 1).files
    await mapped.sync_in_thread()
    assert not mapped.is_pinned
    mapped.cut(10)
    mapped.append([b"y" * (SIZE - 10)], SIZE - 10)
    assert mapped.is_pinned
    await mapped.sync_in_thread()
    assert not mapped.is_pinned


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_a_file_whose_length_was_changed_is_not_used(tmp_path: Path, size: int) -> None:
    segments(tmp_path, 1).close()
    queue = MappedFileQueue(OsDisk(), str(tmp_path), file_size=SIZE)
    queue.load()
    os.truncate(queue.files[0].path, size)
    with pytest.raises(StoreReadError, match=f"it has {size} bytes now"):
        queue.files[0].view  # noqa: B018 - it is opened here


class Mapped:
    """An open file whose map finds a descriptor once another file has been closed."""

    def __init__(self, others: list[Owner], error: int) -> None:
        self._others, self._error = others, error

    def view(self) -> memoryview:
        if all(are_open(*self._others)):
            raise StoreReadError(OSError(self._error, os.strerror(self._error)), operation="mmap", path="/file")
        return memoryview(b"mapped")


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_map_that_needs_a_descriptor_gets_that_of_another_file(error: int) -> None:
    files, others, owner = OpenFiles(), [Owner() for _ in range(3)], Owner(is_pinned=True)
    for other in others:
        files.open(other)
    mapped: Any = Mapped(others, error)
    files.keep(owner, mapped)
    assert bytes(files.view(owner)) == b"mapped"


class ClosedByName:
    """One that must not be mapped once it is closed: its number is -1 then, which maps zeros."""

    is_closed = False

    def view(self) -> memoryview:
        assert not self.is_closed
        raise StoreReadError(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), operation="mmap", path="/file")

    def close(self) -> None:
        self.is_closed = True


def test_a_file_that_was_closed_for_its_own_map_is_opened_again() -> None:
    files, owner, file = OpenFiles(), Owner(), ClosedByName()
    owner.closes_by_name = True
    held: Any = file
    files.keep(owner, held)
    again: Any = Mapped([], errno.EMFILE)
    again.view = lambda: memoryview(b"mapped")
    owner.open_file = lambda: again  # type: ignore[method-assign]
    assert bytes(files.view(owner)) == b"mapped"
    assert file.is_closed


def test_a_map_that_fails_for_another_reason_closes_nothing() -> None:
    files, others, owner = OpenFiles(), [Owner() for _ in range(3)], Owner(is_pinned=True)
    for other in others:
        files.open(other)
    mapped: Any = Mapped(others, errno.ENOMEM)
    files.keep(owner, mapped)
    with pytest.raises(StoreReadError):
        files.view(owner)
    assert are_open(*others) == [True] * 3


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last, fillers = max(map(int, os.listdir("/proc/self/fd"))), [os.open("/dev/null", os.O_RDONLY)]
    while fillers[-1] < last + 1:
        fillers.append(os.dup(fillers[0]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in fillers:
            os.close(number)


@pytest.mark.parametrize("count", [7, 8])
@pytest.mark.parametrize("kind", ["log", "ledger", "to read"])
def test_whichever_file_is_read_its_map_gets_a_descriptor(tmp_path: Path, kind: str, count: int) -> None:
    """A file takes one, its map another: for one of two numbers it is the map that finds none."""
    root, files = str(tmp_path), OpenFiles()
    segments(tmp_path, 10).close()
    log = MappedFileQueue(OsDisk(), root, file_size=SIZE)
    log.load()
    ledger = MmapFileList(OsDisk(), root, mapped_file_size=SIZE, open_files=files, size_key="theSize")
    ledger.load()
    for file in ledger.mapped_files:
        file.note_flushed()
    to_read = [FileToRead(OsDisk(), file.path, file.file_from_offset, open_files=files) for file in log.files]
    views: dict[str, Callable[[int], memoryview]] = {
        "log": lambda number: log.files[number].view,
        "ledger": lambda number: ledger.mapped_files[number].view(),
        "to read": lambda number: to_read[number].view(),
    }
    with few_descriptors(count):
        assert [bytes(views[kind](number)[:1]) for number in range(10)] == [b"x"] * 10
    ledger.close()
    log.close()
