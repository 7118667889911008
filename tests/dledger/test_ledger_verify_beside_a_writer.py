"""A member's log that grows while `rmqha log verify`, or `dledger dump`, reads it is not a damaged one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.codec.dledger_entry import BODY_OFFSET
from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.dledger.ledger_reader import LedgerReader, ledger_files
from rmqha.dledger.ledger_verify import LedgerVerification, verify_ledger
from tests.dledger.ledgers import FILE_SIZE, blank, entries, entry
from tests.growing_disk import GrowingDisk, Write
from tests.memory_log import record

LOOKS = range(40)
FILES = (entries(0, 3) + blank(56), entries(4, 7, pos=FILE_SIZE) + blank(56), entries(8, 9, pos=2 * FILE_SIZE))


def put_file(directory: Path, offset: int, data: bytes, *, size: int = FILE_SIZE) -> Path:
    path = directory / f"{offset:020d}"
    path.write_bytes(data.ljust(size, b"\0"))
    return path


def verify(directory: Path, writes: Iterator[Write], looks: int) -> LedgerVerification:
    disk = GrowingDisk(writes, looks=looks)
    return verify_ledger(ledger_files(disk, [str(directory)]), LedgerCheckpoint())


def in_pieces(path: Path, position: int, data: bytes, size: int) -> Iterator[Write]:
    for at in range(0, len(data), size):
        yield path, position + at, data[at : at + size]


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("piece", [10, 50, FILE_SIZE], ids=["torn", "entries", "all at once"])
def test_entries_that_come_while_the_end_is_looked_at_are_no_damage(tmp_path: Path, looks: int, piece: int) -> None:
    """In the file that was the last one, and in the next one, which was empty."""
    put_file(tmp_path, 0, FILES[0])
    second = put_file(tmp_path, FILE_SIZE, FILES[1][:100])
    third = put_file(tmp_path, 2 * FILE_SIZE, b"")

    def writes() -> Iterator[Write]:
        yield from in_pieces(second, 100, FILES[1][100:], piece)
        yield from in_pieces(third, 0, FILES[2], piece)

    found = verify(tmp_path, writes(), looks)
    assert found.problems == []
    assert found.records == found.end_index + 1 >= 6
    assert found.tail is None or found.tail.offset == found.end_offset


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("piece", [100, 1000], ids=["torn", "all at once"])
def test_messages_that_come_while_the_end_is_looked_at_are_no_damage(tmp_path: Path, looks: int, piece: int) -> None:
    data, places = b"", []
    for index in range(6):
        places.append(len(data))
        data += entry(index, pos=len(data), body=record(len(data) + BODY_OFFSET, b"x" * 200))
    path = put_file(tmp_path, 0, data[: places[3]], size=4096)
    found = verify(tmp_path, in_pieces(path, places[3], data[places[3] :], piece), looks)
    assert found.problems == []
    assert found.records >= 3


@pytest.mark.parametrize("looks", LOOKS)
def test_a_hole_is_found_while_the_log_grows_behind_it(tmp_path: Path, looks: int) -> None:
    put_file(tmp_path, 0, FILES[0])
    second = put_file(tmp_path, FILE_SIZE, FILES[1][:50] + bytes(50) + FILES[1][100:150])
    found = verify(tmp_path, in_pieces(second, 150, FILES[1][150:], 10), looks)
    assert [(one.offset, one.reason) for one in found.problems] == [(FILE_SIZE + 50, "zeros, no entry")]


@pytest.mark.parametrize("looks", range(6))
def test_a_reader_takes_a_file_that_ends_meanwhile_for_no_damage(tmp_path: Path, looks: int) -> None:
    """The next file is made before the last one ends with its blank."""
    first = put_file(tmp_path, 0, FILES[0][:200])
    second = put_file(tmp_path, FILE_SIZE, b"")
    disk = GrowingDisk([(first, 200, FILES[0][200:]), (second, 0, FILES[1])], looks=looks, at_once=2)
    reader = LedgerReader(disk, [str(tmp_path)], checkpoint=LedgerCheckpoint(3, 3))
    assert len(list(reader.records())) >= 4
    assert reader.leftover == ""
