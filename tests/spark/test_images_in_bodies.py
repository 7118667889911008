"""Bodies full of records that claim their own places: by the answer to a send a producer knows where the log ends."""

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqha.errors import CorruptLogError
from rmqha.spark import OnCorrupt, ReadOptions, ReadReport, iter_batches, log_end, records
from rmqha.spark.commit_log import open_log
from rmqha.spark.segments import SegmentReader
from tests.spark.logs import LogWriter, record
from tests.spark.readers import split_offsets

T0 = 1_700_000_000_000
HEAD = 88


def with_images(position: int, count: int, *, size: int = 50, behind: int = 5000, stored_ms: int = 1) -> bytes:
    """A record whose body holds images of records of another topic."""
    at, body = position + HEAD, b""
    for _ in range(count):
        body += record(at + len(body), b"F" * size, topic=b"payments", stored_ms=stored_ms)
    return record(position, body + b"z" * behind)


def read(root: Path, mode: OnCorrupt = OnCorrupt.FAIL, *, start: int | None = None) -> tuple[list[str], ReadReport]:
    report = ReadReport()
    options = ReadOptions(on_corrupt=mode, starting_offset=start)
    rows = [topic for batch in iter_batches(str(root), options, report=report) for topic in batch["topic"].to_pylist()]
    return rows, report


@pytest.mark.parametrize("mode", OnCorrupt)
@pytest.mark.parametrize("good", [0, 10])
@pytest.mark.parametrize("count", [1, 20, 5000])
def test_what_is_being_written_is_no_damage_and_none_of_its_body_a_message(
    count: int, good: int, mode: OnCorrupt, tmp_path: Path
) -> None:
    """As on a slave to which a large message comes in pieces, or for good when its master died meanwhile."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    for _ in range(good):
        log.append(b"good")
    whole = with_images(log.end, count)
    for written in (HEAD + 200, len(whole) // 2, len(whole) - 5000, len(whole) - 1):
        log.write(log.end, whole[:written])
        rows, report = read(tmp_path, mode)
        assert (rows, report.corrupt, report.next) == (["orders"] * good, [], log.end)
        assert open_log(str(tmp_path)).end == log.end
    log.write(log.end, whole)
    assert read(tmp_path, mode, start=log.end)[0] == ["orders"]


@pytest.mark.parametrize("count", [1, 20])
def test_a_copy_that_ends_within_such_a_record_ends_before_it(count: int, tmp_path: Path) -> None:
    log = LogWriter(tmp_path, file_size=1 << 20)
    log.append(b"good")
    whole = with_images(log.end, count)
    log.write(log.end, whole)
    data = log.path(log.end).read_bytes()
    for size in (log.end + HEAD + 200, log.end + len(whole) // 2, log.end + len(whole) - 1):
        log.path(log.end).write_bytes(data[:size])
        for mode in OnCorrupt:
            rows, report = read(tmp_path, mode)
            assert (rows, report.corrupt, report.next) == (["orders"], [], log.end)


@pytest.mark.parametrize("before", [5 << 20, 15 << 20])
def test_in_a_message_as_large_as_a_frame_lets_it_be_they_are_none(before: int, tmp_path: Path) -> None:
    """With maxMessageSize raised: a split that begins within its body looked back no further than the default is."""
    log = LogWriter(tmp_path, file_size=64 << 20)
    for _ in range(3):
        log.append(b"good")
    at = log.end + HEAD + before
    images = b""
    for _ in range(40):
        images += record(at + len(images), b"F" * 500, topic=b"payments")
    whole = record(log.end, bytes(before) + images + b"z" * 5000)
    log.write(log.end, whole)
    log.offsets.append(log.end)
    log.end += len(whole)
    log.append(b"good")
    for split_bytes in (before, at + 1000, at + 9000):
        assert split_offsets(tmp_path, split_bytes)[0] == log.offsets


@pytest.mark.parametrize("behind", [1, 5, 3000])
@pytest.mark.parametrize("split_bytes", [1 << 30, 100_000, 20_000])
def test_what_lies_behind_a_record_whose_end_was_never_written_back_is_read(
    behind: int, split_bytes: int, tmp_path: Path
) -> None:
    """Such a one is damage, since the log goes on; none of its body is a message, and all behind it are."""
    log = LogWriter(tmp_path, file_size=4 << 20)
    for _ in range(100):
        log.append(bytes(700))
    at, whole = log.end, with_images(log.end, 5, behind=3000)
    log.write(at, whole[:-2000])
    log.end += len(whole) + 500
    log.end += 3
    begun = log.end
    for _ in range(behind):
        log.append(bytes(700))
    found = open_log(str(tmp_path))
    assert found.end == log.end
    with pytest.raises(CorruptLogError, match=f"offset {at}"):
        read(tmp_path)
    rows, report = split_offsets(tmp_path, split_bytes, on_corrupt=OnCorrupt.SKIP)
    assert rows == log.offsets
    assert [(damage.start, damage.end) for damage in report.corrupt] == [(at, begun)]


def test_a_record_that_becomes_whole_between_two_looks_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image within it became the log's end: a stream's next batch began in the midst of a record."""
    log = LogWriter(tmp_path, file_size=4 << 20)
    log.append(b"good")
    whole = with_images(log.end, 20, behind=1_000_000)

    def late(really: Callable[..., Any]) -> Callable[..., Any]:
        def look(*arguments: Any, **more: Any) -> Any:
            log.write(log.end, whole)
            return really(*arguments, **more)

        return look

    for written in (HEAD + 3000, 500_000, len(whole) - 1):
        for late_by in ("find_record", "unfinished_body_end"):
            log.write(log.end, whole[:written] + bytes(len(whole) - written))
            with monkeypatch.context() as patch:
                patch.setattr(log_end, late_by, late(getattr(log_end, late_by)))
                assert open_log(str(tmp_path)).end in {log.end, log.end + len(whole)}


def test_a_record_whose_head_is_seen_last_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look of many bytes may have the first of them from before a write, and the others from behind it."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    log.append(b"good")
    at, whole = log.end, with_images(log.end, 20)
    log.write(at, bytes(HEAD) + whole[HEAD:])
    log.end += len(whole)
    really = records.find_record

    def late(*arguments: Any, **more: Any) -> int | None:
        found = really(*arguments, **more)
        log.write(at, whole)
        return found

    monkeypatch.setattr(log_end, "find_record", late)
    opened = open_log(str(tmp_path))
    assert opened.end == log.end, "not within it, where its last image ends"


@pytest.mark.parametrize("properties", [b"", b"TAGS\x01TagA"])
def test_a_damaged_record_that_ends_with_a_zero_is_whole(properties: bytes, tmp_path: Path) -> None:
    """As all do that have no properties: what follows shows it, and its body need not be passed over."""
    log = LogWriter(tmp_path)
    at = log.append(b"body" * 100, properties=properties)
    log.append(b"later")
    log.write(at + 84, (200).to_bytes(4, "big"))  # its body's length, of 400
    opened = open_log(str(tmp_path))
    with SegmentReader(opened.filesystem, opened.segments[0]) as file:
        assert records.unfinished_body_end(file, at) == 0


def test_what_is_whole_and_damaged_is_damage_still(tmp_path: Path) -> None:
    """And what its body holds is none of the log, as its lengths lead to where that goes on."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    log.append(b"good")
    at, whole = log.end, with_images(log.end, 20)
    log.write(at, whole)
    log.end += len(whole)
    log.append(b"later")
    log.write(at + 8, b"\x7f")
    for mode, topics in ((OnCorrupt.SKIP, ["orders"] * 2), (OnCorrupt.STOP, ["orders"])):
        rows, report = read(tmp_path, mode)
        assert rows == topics
        assert [damage.start for damage in report.corrupt] == [at]


def test_what_is_damaged_up_to_an_end_holds_no_record_before_it(tmp_path: Path) -> None:
    """As its lengths say, of which a part is the damage; the image in its body is its own."""
    log = LogWriter(tmp_path)
    at = log.append(b"whole")
    damaged = log.end
    log.write(damaged, data := with_images(damaged, 1))
    log.write(damaged + 4, bytes(4))
    opened, end = open_log(str(tmp_path)), damaged + len(data)
    with SegmentReader(opened.filesystem, opened.segments[0]) as file:
        assert records.find_record(file, damaged, end=end) == damaged + HEAD
        assert records.find_next(file, damaged, end=end) is None
        assert records.find_next(file, at, end=end) == damaged + HEAD, "of one whose lengths lead elsewhere"


@pytest.mark.parametrize("distance", [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, 192 << 10])
def test_a_record_is_found_wherever_a_look_ahead_ends(distance: int, tmp_path: Path) -> None:
    """It is searched for block by block, of 64 KiB, then of 128."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    log.append(bytes(300_000))
    at = log.append(b"next")
    opened = open_log(str(tmp_path))
    with SegmentReader(opened.filesystem, opened.segments[0]) as file:
        assert records.find_record(file, at - distance, end=log.end) == at
        assert records.find_record(file, at - distance, end=at) is None


@pytest.mark.parametrize("stored_ms", [1, T0 + 1_000_000, T0 * 2])
@pytest.mark.parametrize("name", ["starting_timestamp_ms", "ending_timestamp_ms"])
def test_no_body_hides_messages_from_a_search_by_time(stored_ms: int, name: str, tmp_path: Path) -> None:
    """The halves of the file that a made-up time led to were the wrong ones: half of a file was left out."""
    log = LogWriter(tmp_path, file_size=4 << 20)
    for number in range(600):
        log.append(bytes(1000), stored_ms=T0 + number * 1000)
    big = record(log.end, with_images(log.end, 12_000, stored_ms=stored_ms)[HEAD:], stored_ms=T0 + 600_000)
    log.write(log.end, big)
    log.end += len(big)
    for number in range(601, 1200):
        log.append(bytes(1000), stored_ms=T0 + number * 1000)
    for wanted in (0, 100, 599, 600, 601, 900, 1199, 1200):
        within: dict[str, Any] = {name: T0 + wanted * 1000}
        options = replace(ReadOptions(columns=("storeTimestamp",)), **within)
        rows = sum(batch.num_rows for batch in iter_batches(str(tmp_path), options))
        assert rows == (1200 - wanted if name == "starting_timestamp_ms" else wanted)


@pytest.mark.parametrize("hop_bytes", [500, 3000, 4 << 20])
@pytest.mark.parametrize("seed", range(6))
def test_hops_by_blocks_end_where_looks_at_each_record_do(
    seed: int, hop_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a body covers a place, the file is walked from its first byte: each poll of a stream took seconds."""
    chance, log = random.Random(seed), LogWriter(tmp_path, file_size=1 << 20)
    for _ in range(300):
        if chance.random() < 0.1:
            whole = with_images(log.end, chance.randrange(1, 20), behind=chance.randrange(2000))
            log.write(log.end, whole)
            log.end += len(whole)
        else:
            log.append(bytes(chance.randrange(900)))
    for _ in range(chance.choice([0, 1, 4])):
        log.write(chance.randrange(log.end), chance.randbytes(chance.choice([1, 9, 300])))
    opened = open_log(str(tmp_path))
    places = [chance.randrange(log.end + 5000) for _ in range(60)]
    monkeypatch.setattr(records, "_HOP_BYTES", hop_bytes)
    hopped = [opened.start_at(place) for place in places]
    monkeypatch.setattr(records, "_hop_to", lambda _file, at, _position: at)
    assert hopped == [opened.start_at(place) for place in places]


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 1, 7, 87, 90, 91, 200, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("body_size", [-(1 << 31), -1, 0, 500, (1 << 31) - 1])
def test_a_body_that_begins_like_a_record_of_any_size_harms_nobody(size: int, body_size: int, tmp_path: Path) -> None:
    """One with a negative size ended each reader, whatever it was to do about damage."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    for number in range(300):
        log.append(bytes(900), stored_ms=T0 + number)
    head = bytearray(record(log.end + HEAD, b"")[:HEAD])
    head[0:4], head[84:88] = struct.pack(">i", size), struct.pack(">i", body_size)
    log.append(bytes(head), stored_ms=T0 + 300)
    for number in range(301, 320):
        log.append(bytes(900), stored_ms=T0 + number)
    opened = open_log(str(tmp_path))
    assert opened.end == log.end
    assert [opened.start_at(place) for place in log.offsets] == log.offsets
    for mode in OnCorrupt:
        assert read(tmp_path, mode)[0] == ["orders"] * 320
        assert split_offsets(tmp_path, 10_000, on_corrupt=mode)[0] == log.offsets
    for wanted in (10, 300, 301, 315):
        options = ReadOptions(starting_timestamp_ms=T0 + wanted)
        assert sum(batch.num_rows for batch in iter_batches(str(tmp_path), options)) == 320 - wanted


@pytest.mark.parametrize("hole", [8, 9, 5000])
def test_behind_a_hole_the_log_goes_on_whatever_the_record_before_ends_in(hole: int, tmp_path: Path) -> None:
    """One whose last byte is a zero may be half written; what lies later says that the log does not end there."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    log.append(b"good")
    log.append(b"ends in a zero", properties=b"TAGS\x01a\x00")
    log.end += hole
    log.append(b"later")
    assert open_log(str(tmp_path)).end == log.end
    assert split_offsets(tmp_path, 1 << 30, on_corrupt=OnCorrupt.SKIP)[0][-1] == log.offsets[-1]
