"""LogReader against stores recorded from RocketMQ: every message, field by field; and from any place."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from rmqha.codec.record.resync import find_record
from rmqha.errors import CorruptLogError
from rmqha.store.log_reader import LogReader, dump_line
from rmqha.store.os_disk import OsDisk
from tests import stores


def reader_of(name: str, directory: Path) -> LogReader:
    return LogReader(OsDisk(), str(stores.unpack(name, directory) / "commitlog"))


@pytest.mark.parametrize("name", stores.SIDES)
def test_every_message_of_a_recorded_store_decodes_as_rocketmq_decodes_it(name: str, tmp_path: Path) -> None:
    if name == "basic":
        pytest.importorskip("lz4.frame", reason="lz4 is in the extra [compression]")
    expected = stores.expected_messages(name)
    reader = reader_of(name, tmp_path)
    end = stores.expected_log(name)["maxOffset"]  # behind it the killed slave's log has a part of a record
    decoded = [dump_line(message) for message in reader.messages(end=end)]
    for line, wanted in zip(decoded, expected, strict=False):
        assert line == wanted
        assert list(line) == list(wanted)
    assert len(decoded) == len(expected)


def test_reading_begins_with_the_first_record_at_or_behind_any_offset(tmp_path: Path) -> None:
    reader = reader_of("v6", tmp_path)
    offsets = [message.physical_offset for message in reader.messages()]
    for before, offset in pairwise(offsets):
        for start in (before + 1, offset - 1, offset):
            assert next(reader.messages(start)).physical_offset == offset
    assert list(reader.messages(offsets[-1] + 1)) == []


def test_reading_ends_before_a_record_at_or_behind_the_end(tmp_path: Path) -> None:
    reader = reader_of("rolled", tmp_path)
    offsets = [message.physical_offset for message in reader.messages()]
    for end in (0, 1, offsets[7] - 1, offsets[7], offsets[7] + 1, 65536, 65537, 10**9):
        wanted = [offset for offset in offsets if offset < end]
        assert [message.physical_offset for message in reader.messages(end=end)] == wanted


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    reader = reader_of("trimmed", tmp_path)
    assert reader.min_offset == stores.expected_log("trimmed")["minOffset"] > 0
    assert next(reader.messages(5)).physical_offset == reader.min_offset


def test_damage_is_named_with_file_and_position(tmp_path: Path) -> None:
    reader = reader_of("rolled", tmp_path)
    path = tmp_path / "store" / "commitlog" / f"{65536:020d}"
    offsets = [message.physical_offset for message in reader.messages()]
    position = next(offset for offset in offsets if offset > 65536) - 65536
    with path.open("r+b") as file:
        file.seek(position + 5)
        file.write(b"\0")
    read = reader.messages()
    with pytest.raises(CorruptLogError, match=rf"{path}, position {position}"):
        for _ in read:
            pass


@pytest.mark.parametrize("begin", [0, 65536, 70000])
def test_zeros_before_records_are_damage_not_the_end(begin: int, tmp_path: Path) -> None:
    reader = reader_of("rolled", tmp_path)
    offsets = [message.physical_offset for message in reader.messages()]
    first, following = [offset for offset in offsets if offset >= begin][:2]
    path = tmp_path / "store" / "commitlog" / f"{first - first % 65536:020d}"
    for size in (following - first, 65536 - first % 65536):
        data = bytearray(path.read_bytes())
        data[first % 65536 : first % 65536 + size] = bytes(size)
        path.write_bytes(data)
        with pytest.raises(CorruptLogError, match="zeros, no record") as caught:
            list(LogReader(OsDisk(), str(path.parent)).messages())
        assert caught.value.offset == first


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    root = stores.unpack("rolled", tmp_path)
    (root / "commitlog" / f"{131072:020d}").unlink()
    with pytest.raises(CorruptLogError, match=r"the segment before .*196608 is missing") as caught:
        list(LogReader(OsDisk(), str(root / "commitlog")).messages())
    assert caught.value.offset == 131072


@pytest.mark.parametrize(("left", "errors"), [(0, 1), (30_000, 2)], ids=["gone", "cut-short"])
def test_what_lies_behind_a_missing_segment_is_read_from_within_it(left: int, errors: int, tmp_path: Path) -> None:
    """As ``rmqha log dump`` says to go on."""
    root = stores.unpack("rolled", tmp_path)
    path = root / "commitlog" / f"{196608:020d}"
    path.write_bytes(path.read_bytes()[:left])
    reader, start, offsets = LogReader(OsDisk(), str(root / "commitlog")), 0, list[int]()
    for _ in range(errors):
        with pytest.raises(CorruptLogError) as caught:
            offsets += (message.physical_offset for message in reader.messages(start))
        start = caught.value.offset + 1
    offsets += (message.physical_offset for message in reader.messages(start))
    missing = range(196608 + left + 1, 262144 + 1)
    assert offsets == [
        message["physicalOffset"]
        for message in stores.expected_messages("rolled")
        if message["physicalOffset"] + message["storeSize"] not in missing
    ]


def test_an_empty_and_an_absent_directory_hold_nothing(tmp_path: Path) -> None:
    assert list(reader_of("empty", tmp_path).messages()) == []
    shutil.rmtree(tmp_path / "store" / "commitlog")
    reader = LogReader(OsDisk(), str(tmp_path / "store" / "commitlog"))
    assert (list(reader.messages()), reader.min_offset) == ([], 0)


def test_the_next_record_is_found_from_every_byte(tmp_path: Path) -> None:
    reader = reader_of("v6", tmp_path)
    segment = reader.segments[0]
    view = segment.view()
    positions = [message.physical_offset for message in reader.messages()][:6]
    for start in range(positions[-1] + 1):
        wanted = next(position for position in positions if position >= start)
        assert find_record(view, start, segment.size, phy_offset_base=0) == wanted
    assert find_record(view, 0, segment.size, phy_offset_base=1) is None
