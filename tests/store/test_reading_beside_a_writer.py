"""A log that grows while it is read is not a damaged one: its end is looked at twice, and may have moved between."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import CorruptLogError
from rmqha.store.log_reader import LogReader
from rmqha.store.log_verify import LogVerification, verify_log
from rmqha.store.os_disk import OsDisk
from tests import stores
from tests.growing_disk import GrowingDisk, Write, put

SEGMENT_SIZE = 65536
MESSAGES = stores.expected_messages("rolled")
END = MESSAGES[-1]["physicalOffset"] + MESSAGES[-1]["storeSize"]
LOOKS = range(20)
"""As many as a verification of the store does, and more."""


def segment_of(log: Path, offset: int) -> Path:
    return log / f"{offset // SEGMENT_SIZE * SEGMENT_SIZE:020d}"


def taken_away(log: Path, begin: int, end: int = END) -> list[Write]:
    """Make zeros of all between two offsets; returns the writes that bring it back, one a file."""
    writes = []
    while begin < end:
        path, position = segment_of(log, begin), begin % SEGMENT_SIZE
        size = min(SEGMENT_SIZE - position, end - begin)
        writes.append((path, position, path.read_bytes()[position : position + size]))
        put(path, position, bytes(size))
        begin += size
    return writes


def in_pieces(writes: list[Write], size: int) -> Iterator[Write]:
    for path, position, data in writes:
        for at in range(0, len(data), size):
            yield path, position + at, data[at : at + size]


def verified(log: Path, writes: Iterator[Write], looks: int) -> LogVerification:
    return verify_log(GrowingDisk(writes, looks=looks), str(log))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return stores.unpack("rolled", tmp_path) / "commitlog"


@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize("piece", [100, 500, 10_000], ids=["torn", "records", "all at once"])
@pytest.mark.parametrize("lacking", [5, 30], ids=lambda count: f"{count} more")
def test_records_that_come_while_the_end_is_looked_at_are_no_damage(
    log: Path, looks: int, piece: int, lacking: int
) -> None:
    """The last of 13 files has 11 records; of 30 that come some fill the file before, and with it its blank."""
    begin = MESSAGES[-lacking]["physicalOffset"]
    found = verified(log, in_pieces(taken_away(log, begin), piece), looks)
    assert found.problems == []
    assert len(MESSAGES) - lacking <= found.records <= len(MESSAGES)
    assert found.segments == 13
    assert begin <= found.end_offset <= END
    assert found.tail is None or found.tail.offset == found.end_offset


def test_all_that_came_meanwhile_is_counted_once(log: Path) -> None:
    writes = taken_away(log, MESSAGES[-5]["physicalOffset"])
    told: list[int] = []
    disk = GrowingDisk(writes, looks=13)
    found = verify_log(disk, str(log), on_segment=lambda found: told.append(found.end_offset))
    assert (found.problems, found.records, found.end_offset) == ([], len(MESSAGES), END)
    assert told == [SEGMENT_SIZE * number for number in range(1, 13)] + [END]


@pytest.mark.parametrize("looks", LOOKS)
def test_a_hole_is_found_while_the_log_grows_behind_it(log: Path, looks: int) -> None:
    writes = taken_away(log, MESSAGES[-4]["physicalOffset"])
    hole = MESSAGES[-7]
    taken_away(log, hole["physicalOffset"], MESSAGES[-6]["physicalOffset"])
    found = verified(log, in_pieces(writes, 500), looks)
    assert [(one.offset, one.reason) for one in found.problems] == [(hole["physicalOffset"], "zeros, no record")]


@pytest.mark.parametrize("looks", LOOKS)
def test_damage_in_what_came_meanwhile_is_found(log: Path, looks: int) -> None:
    bad = MESSAGES[-3]["physicalOffset"]
    put(segment_of(log, bad), bad % SEGMENT_SIZE + 90, b"\xff\xff")
    writes = taken_away(log, MESSAGES[-5]["physicalOffset"])
    found = verified(log, iter(writes), looks)
    assert [one.offset for one in found.problems] in ([bad], [])
    assert bool(found.problems) == (found.end_offset == END)


def test_a_file_that_was_empty_for_a_moment_is_no_problem(log: Path) -> None:
    """As one is that a broker makes: first it is there, then it has its size."""
    made = log / f"{13 * SEGMENT_SIZE:020d}"
    made.touch()

    def make(_: LogVerification) -> None:
        made.write_bytes(bytes(SEGMENT_SIZE))

    found = verify_log(OsDisk(), str(log), on_segment=make)
    assert (found.problems, found.records) == ([], len(MESSAGES))


def read(log: Path, writes: Iterator[Write], looks: int, *, check_crc: bool = True) -> int:
    """The number of messages that are read, the one after the other."""
    disk = GrowingDisk(writes, looks=looks)

    def write_all() -> None:
        for write in writes:
            put(*write)

    with LogReader(disk, str(log), wait=write_all) as reader:
        return sum(1 for _ in reader.messages(check_crc=check_crc))


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("looks", range(24, 42))
@pytest.mark.parametrize("piece", [100, 500, 10_000], ids=["torn", "records", "all at once"])
def test_a_reader_takes_what_is_being_written_for_no_damage(log: Path, looks: int, piece: int, check_crc: bool) -> None:
    writes = in_pieces(taken_away(log, MESSAGES[-5]["physicalOffset"]), piece)
    assert len(MESSAGES) - 5 <= read(log, writes, looks, check_crc=check_crc) <= len(MESSAGES)


def test_a_reader_names_what_is_still_damaged_when_it_is_read_once_more(log: Path) -> None:
    bad = MESSAGES[-3]["physicalOffset"]
    put(segment_of(log, bad), bad % SEGMENT_SIZE + 90, b"\xff\xff")
    waited: list[None] = []
    with (
        LogReader(OsDisk(), str(log), wait=lambda: waited.append(None)) as reader,
        pytest.raises(CorruptLogError, match=f"{bad}.*BODYCRC"),
    ):
        list(reader.messages())
    assert len(waited) == 1


def test_a_record_that_is_whole_once_the_reason_is_looked_for_is_called_unwritten(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk stops at zeros, and all is there when it is looked why: an AssertionError, without the CRC's check."""
    from rmqha.codec.record import scan  # noqa: PLC0415 - its function is replaced

    data = segment_of(log, 0).read_bytes()[: MESSAGES[0]["storeSize"]]
    growing, why_here = bytearray(len(data)), scan._why_here

    def write_and_look(*args: object, **keys: object) -> tuple[Stop, str]:
        growing[:] = data
        return why_here(*args, **keys)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "_why_here", write_and_look)
    for check_crc in (True, False):
        growing[:] = bytes(len(data))
        found = scan_records(growing, 0, len(data), phy_offset_base=0, check_crc=check_crc)
        assert (found.stop, found.reason) == (Stop.CORRUPT, "it was being written while it was read")
