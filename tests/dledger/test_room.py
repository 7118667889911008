"""Room: which failures pass by themselves, and when there is room again."""

import errno
import os

import pytest

from rmqha.dledger.ledger_files import make_data_file_list, make_index_file_list
from rmqha.dledger.room import Room
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import DiskUsage
from rmqha.store.open_files import OpenFiles
from tests.dledger.members import CONFIG
from tests.sim.sim_disk import SimDisk


def failed(operation: str, number: int) -> StoreWriteError:
    return StoreWriteError(OSError(number, os.strerror(number)), operation=operation, path="/x")


@pytest.mark.parametrize(
    ("operation", "number", "passes"),
    [
        ("create", errno.ENOSPC, True),
        ("mkdir", errno.EMFILE, True),
        ("create", errno.EIO, False),
        ("pwrite", errno.ENOSPC, False),
        ("fdatasync", errno.ENOSPC, False),
        ("zero_tail", errno.ENOSPC, False),
    ],
)
def test_what_passes_by_itself(operation: str, number: int, *, passes: bool) -> None:
    room = Room([])
    assert room.take_for_lacking(failed(operation, number)) is passes
    assert bool(room.refusal) is passes


def test_there_is_room_again_when_all_lists_can_grow() -> None:
    disk, open_files = SimDisk(latency_s=(0, 0)).mount(), OpenFiles()
    data = make_data_file_list(CONFIG, disk, open_files=open_files, full_store_paths=frozenset)
    index = make_index_file_list(CONFIG, disk, open_files=open_files)
    room = Room([data, index])
    room.take_for_lacking(failed("create", errno.ENOSPC))
    disk.create(f"{CONFIG.index_store_path}/{0:020d}", CONFIG.mapped_file_size_for_entry_index, sparse=True)
    room.look()
    assert room.refusal, "the index cannot make its next file: something is there"
    disk.unlink(f"{CONFIG.index_store_path}/{0:020d}")
    room.look()
    assert room.refusal == ""


def test_a_disk_that_cannot_be_asked_has_no_room_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(latency_s=(0, 0)).mount()
    data = make_data_file_list(CONFIG, disk, open_files=OpenFiles(), full_store_paths=frozenset)
    room = Room([data])
    room.take_for_lacking(failed("create", errno.ENOSPC))

    def usage(path: str) -> DiskUsage:
        raise StoreReadError(OSError(errno.EIO, "Input/output error"), operation="statvfs", path=path)

    with monkeypatch.context() as broken:
        broken.setattr(disk, "usage", usage)
        room.look()
        assert room.refusal
    room.look()
    assert room.refusal == ""


def test_a_full_disk_and_a_file_that_cannot_be_made_are_two_things() -> None:
    room = Room([])
    room.set_disk_full(True)
    room.take_for_lacking(failed("create", errno.ENOSPC))
    assert room.refusal == "the disk is too full"
    room.set_disk_full(False)
    assert "No space left" in room.refusal
    room.look()
    assert room.refusal == ""
