"""Reading a store that somebody else may be writing, and damage in it."""

from collections.abc import Callable

import pytest

from rmqha.codec.dledger_entry import Blank
from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.dledger.ledger_reader import LedgerEntry, LedgerReader
from rmqha.errors import CorruptLogError, StoreReadError
from tests.dledger.ledgers import DATA, FILE_SIZE, blank, entries, entry, put_file, put_log
from tests.sim.sim_disk import SimDisk, SimMount

FULL = entries(0, 3) + blank(56)


@pytest.fixture
def mount() -> SimMount:
    return SimDisk().mount()


def reader_of(
    mount: SimMount, *directories: str, kept: int = -1, wait: Callable[[], None] = lambda: None
) -> LedgerReader:
    return LedgerReader(mount, directories or (DATA,), checkpoint=LedgerCheckpoint(kept, kept), wait=wait)


def read(reader: LedgerReader, start: int = 0) -> list[int | Blank]:
    """Indexes, and blanks."""
    return [record.header.index if isinstance(record, LedgerEntry) else record for record in reader.records(start)]


def test_entries_and_blanks_of_several_files(mount: SimMount) -> None:
    put_log(mount, [FULL, entries(4, 5, pos=FILE_SIZE)])
    reader = reader_of(mount, kept=5)
    assert read(reader) == [0, 1, 2, 3, Blank(200, 56), 4, 5]
    assert (reader.end_index, reader.leftover) == (5, "")


def test_files_of_several_directories_are_one_log(mount: SimMount) -> None:
    """Seed checklist: MULTI_PATH_SPLITTER, multi-path lists: load takes the union (spec: dledger §1.6)."""
    put_file(mount, 0, FULL, directory="/disk1")
    put_file(mount, FILE_SIZE, entries(4, 7, pos=FILE_SIZE) + blank(56), directory="/disk2")
    put_file(mount, 2 * FILE_SIZE, entries(8, 8, pos=2 * FILE_SIZE), directory="/disk1")
    assert read(reader_of(mount, "/disk1", "/disk2", "/nothing")) == [
        *(0, 1, 2, 3, Blank(200, 56)),
        *(4, 5, 6, 7, Blank(456, 56), 8),
    ]
    put_file(mount, 0, FULL, directory="/disk2")
    with pytest.raises(CorruptLogError, match=r"there twice: /disk1/0{20} and /disk2/0{20}"):
        reader_of(mount, "/disk1", "/disk2")


@pytest.mark.parametrize(("start", "first"), [(0, 0), (3, 3), (4, 4), (5, 5), (8, 8)])
def test_reading_begins_in_the_file_that_has_the_index(mount: SimMount, start: int, first: int) -> None:
    put_log(mount, [FULL, entries(4, 7, pos=FILE_SIZE) + blank(56), entries(8, 9, pos=2 * FILE_SIZE)])
    assert read(reader_of(mount), start)[0] == first


def test_a_log_begins_anywhere(mount: SimMount) -> None:
    for number in (2, 3):
        put_file(mount, number * FILE_SIZE, entries(4 * number, 4 * number + 3, pos=number * FILE_SIZE) + blank(56))
    assert read(reader_of(mount)) == [8, 9, 10, 11, Blank(712, 56), 12, 13, 14, 15, Blank(968, 56)]


def test_a_first_file_whose_beginning_nobody_sent(mount: SimMount) -> None:
    put_file(mount, FILE_SIZE, blank(100) + bytes(92) + entries(7, 8, pos=FILE_SIZE + 100))
    assert read(reader_of(mount)) == [7, 8]


def test_an_empty_store(mount: SimMount) -> None:
    assert read(reader_of(mount)) == []
    put_file(mount, 0, b"")
    assert read(reader_of(mount)) == []


def test_names_that_are_no_data_files(mount: SimMount) -> None:
    put_log(mount, [entries(0, 1)])
    mount.create(f"{DATA}/notes.txt", 4)
    assert read(reader_of(mount)) == [0, 1]


@pytest.mark.parametrize("size", [0, 100])
def test_a_last_file_that_is_being_made(mount: SimMount, size: int) -> None:
    put_log(mount, [FULL])
    put_file(mount, FILE_SIZE, b"", size=size)
    assert read(reader_of(mount, kept=3)) == [0, 1, 2, 3, Blank(200, 56)]


def test_what_a_truncate_cut_shows_again_as_in_java(mount: SimMount) -> None:
    """A cut to 1 in Java's memory leaves 2 to 4 in the file; written over, they are leftovers, and no damage."""
    put_log(mount, [entries(0, 4)])
    assert read(reader_of(mount, kept=1)) == [0, 1, 2, 3, 4]
    overwritten = entries(0, 1) + entry(2, pos=100, term=2, body=b"another one") + entries(0, 4)[159:]
    put_file(mount, 0, overwritten, directory="/other")
    reader = reader_of(mount, "/other", kept=2)
    assert read(reader) == [0, 1, 2]
    assert reader.leftover.endswith(f"(/other/{0:020d}, position 159)")


def test_an_entry_is_read_when_it_is_written_whole(mount: SimMount) -> None:
    """The server is in the middle of its last entry: the header is there, of the body the first half."""
    path = put_file(mount, 0, entries(0, 1) + entry(2, pos=100, body=b"0123456789")[:53])

    def goes_on() -> None:
        mount.open(path, writable=True).pwrite([b"56789", entries(3, 3, pos=158)], 153)

    *_, last = reader_of(mount, wait=goes_on).records()
    assert isinstance(last, LedgerEntry)
    assert (last.header.index, last.body) == (2, b"0123456789")


def test_an_entry_whose_header_is_half_written_is_not_there_yet(mount: SimMount) -> None:
    path = put_file(mount, 0, entries(0, 1) + entry(2, pos=100)[:30])
    reader = reader_of(mount, wait=lambda: mount.open(path, writable=True).pwrite([entry(2, pos=100)], 100))
    assert read(reader) == [0, 1]
    assert reader.leftover == ""


@pytest.mark.parametrize("at", [0, 3, 4, 7, 12, 30, 44, 47])
def test_damage_in_what_is_committed_has_a_file_and_a_position(mount: SimMount, at: int) -> None:
    path = put_log(mount, [FULL, entries(4, 7, pos=FILE_SIZE)])[1]
    file = mount.open(path, writable=True)
    file.pwrite([bytes([file.pread(1, 100 + at)[0] ^ 0x55])], 100 + at)
    reader = reader_of(mount, kept=7)
    with pytest.raises(CorruptLogError) as raised:
        read(reader)
    assert raised.value.offset == FILE_SIZE + 100
    assert f"({path}, position 100), but the checkpoint says that index 7 was committed" in str(raised.value)
    assert "restore it from another member's" in str(raised.value)


@pytest.mark.parametrize("middle", [b"", entries(0, 1) + b"\x7f" * 40])
def test_entries_in_a_later_file_tell_of_damage_too(mount: SimMount, middle: bytes) -> None:
    put_log(mount, [middle, entries(4, 7, pos=FILE_SIZE)])
    with pytest.raises(CorruptLogError, match=f"but {DATA}/0{{17}}256 goes on with index 4"):
        read(reader_of(mount))


def test_entries_behind_a_file_without_any_tell_of_damage_too(mount: SimMount) -> None:
    put_log(mount, [entries(0, 1), b"", entries(8, 9, pos=2 * FILE_SIZE)])
    with pytest.raises(CorruptLogError, match=f"but {DATA}/0{{17}}512 goes on with index 8"):
        read(reader_of(mount))


def test_a_later_file_without_entries_is_a_crash_s_leftover(mount: SimMount) -> None:
    put_log(mount, [entries(0, 1), b""])
    assert read(reader_of(mount, kept=1)) == [0, 1]


def test_a_missing_file_is_named(mount: SimMount) -> None:
    put_file(mount, 0, FULL)
    put_file(mount, 2 * FILE_SIZE, entries(8, 9, pos=2 * FILE_SIZE))
    with pytest.raises(CorruptLogError, match=r"0{17}256 is missing before"):
        read(reader_of(mount))


def test_no_file_at_all_where_something_was_committed(mount: SimMount) -> None:
    with pytest.raises(CorruptLogError, match="index 3 was committed, the last one here is -1"):
        read(reader_of(mount, kept=3))


def test_a_last_file_that_is_gone_is_missed_for_one_committed_entry(mount: SimMount) -> None:
    put_log(mount, [FULL])
    assert read(reader_of(mount, kept=3))[-1] == Blank(200, 56)
    with pytest.raises(CorruptLogError, match="index 4 was committed, the last one here is 3"):
        read(reader_of(mount, kept=4))


def test_a_file_that_changes_its_length_is_an_error_of_reading(mount: SimMount) -> None:
    path = put_log(mount, [entries(0, 1)])[0]
    reader = reader_of(mount)
    mount.unlink(path)
    put_file(mount, 0, b"", size=100)
    with pytest.raises(StoreReadError, match="it has 100 bytes now, and had 256"):
        read(reader)
