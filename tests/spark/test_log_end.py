"""The safe end of a log that somebody may be writing to."""

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pyarrow import fs

from rmqha.errors import CorruptLogError
from rmqha.spark import OnCorrupt, ReadOptions, ReadReport, iter_batches
from rmqha.spark.commit_log import open_log
from rmqha.spark.log_end import _written, find_log_end
from rmqha.spark.partitions import plan_tasks
from tests.spark.logs import LogWriter, record

SKIP: Final = ReadOptions(on_corrupt=OnCorrupt.SKIP)


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    writer, chance = LogWriter(tmp_path / "store", file_size=4 << 20), random.Random(4)
    for _ in range(6000):
        writer.append(chance.randbytes(chance.randint(0, 700)))
    return writer


def test_every_prefix_of_the_last_record_ends_before_it(log: LogWriter) -> None:
    """However much of a record is there, the end is the last whole one; with its last byte it counts."""
    before, at = log.end, log.end
    tail = record(at, b"torn", properties=b"TAGS\x01TagA")
    for size in range(1, len(tail)):
        log.write(at, tail[:size])
        assert open_log(str(log.root)).end == before
    log.write(at, tail)
    assert open_log(str(log.root)).end == before + len(tail)


def test_a_last_record_without_properties_is_whole_with_its_topic(log: LogWriter) -> None:
    """It ends with zeros as a file has where nothing was written: in a copy it would wait for ever."""
    before, tail = log.end, record(log.end, b"no properties", properties=b"")
    for size in range(1, len(tail) - 2):
        log.write(before, tail[:size])
        assert open_log(str(log.root)).end == before
    log.write(before, tail)
    assert open_log(str(log.root)).end == before + len(tail)


def test_an_unfinished_record_is_named(log: LogWriter) -> None:
    log.write(log.end, record(log.end, bytes(range(1, 100)))[:150])
    opened = open_log(str(log.root))
    assert opened.end == log.end
    assert opened.unfinished


def test_a_file_allocated_ahead_is_not_the_end(log: LogWriter) -> None:
    log.path(log.end + log.file_size).write_bytes(bytes(log.file_size))
    assert open_log(str(log.root)).end == log.end


def test_a_file_that_is_just_being_made_is_not_the_end(log: LogWriter) -> None:
    log.path(log.end + log.file_size).touch()
    assert open_log(str(log.root)).end == log.end


def test_a_last_file_that_lost_its_first_page_is_not_empty(log: LogWriter) -> None:
    """Zeros where it begins look like a file allocated ahead; the records behind them tell."""
    log.roll()
    log.append(b"lost")
    log.append(b"still there")
    log.write(log.offsets[-2], bytes(log.offsets[-1] - log.offsets[-2]))
    assert open_log(str(log.root)).end == log.end


def test_a_trailing_blank_is_not_consumed(log: LogWriter) -> None:
    """RocketMQ cuts it at its next start and writes there, so the next run must look at it again."""
    end = log.end
    log.roll()
    assert open_log(str(log.root)).end == end
    log.append(b"in the next file")
    assert open_log(str(log.root)).end == log.end


def test_bodies_full_of_zeros_do_not_hide_the_end(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, file_size=16 << 20)
    for size in (3 << 20, 100, 5 << 20, 100):
        writer.append(bytes(size))
    assert open_log(str(tmp_path)).end == writer.end


def test_a_known_end_gives_the_same_answer(log: LogWriter) -> None:
    opened = open_log(str(log.root))
    log.append(b"more")
    assert opened.since(opened.end).end == log.end == open_log(str(log.root)).end


def test_a_short_last_file_is_read_as_far_as_it_goes(log: LogWriter) -> None:
    """A copy that is still running, or was broken off."""
    path = log.path(log.end)
    with path.open("r+b") as file:
        file.truncate(log.offsets[-1] % log.file_size + 60)
    assert open_log(str(log.root)).end == log.offsets[-1]


@pytest.mark.parametrize("at", [88, 88 + 50, 88 + 99], ids=["first", "middle", "last"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_last_record_whose_body_is_damaged_is_not_read(log: LogWriter, at: int, is_known: bool) -> None:
    """All its bytes are there but one: it is told, and read once its body is what its CRC says."""
    before = open_log(str(log.root))
    start, known = log.append(b"x" * 100), before.end if is_known else None
    log.write(start + at, b"\xff")
    found, report = open_log(str(log.root), known_end=known), ReadReport()
    assert (found.end, before.end) == (start, start)
    assert "CRC" in found.unfinished
    list(iter_batches(str(log.root), report=report))
    assert (report.next, report.unfinished) == (start, found.unfinished)
    log.write(start + at, b"x")
    assert open_log(str(log.root), known_end=known).end == log.end


@pytest.mark.parametrize("prepare", ["directory", "zeros"])
def test_an_empty_log_has_no_messages(prepare: str, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    if prepare == "zeros":
        (tmp_path / "commitlog" / f"{65536:020d}").write_bytes(bytes(65536))
    report = ReadReport()
    assert list(iter_batches(str(tmp_path), report=report)) == []
    assert report.next == (65536 if prepare == "zeros" else 0)


def test_reading_goes_on_where_the_last_one_ended(log: LogWriter) -> None:
    """Two reads, with the log growing in between, give everything once."""
    first, second = ReadReport(), ReadReport()
    rows = [row for batch in iter_batches(str(log.root), report=first) for row in batch.to_pylist()]
    for index in range(100):
        log.append(b"later %d" % index)
    options = ReadOptions(starting_offset=first.next)
    rows += [row for batch in iter_batches(str(log.root), options, report=second) for row in batch.to_pylist()]
    assert [row["physicalOffset"] for row in rows] == log.offsets
    assert second.next == log.end


def test_a_last_record_that_may_be_torn_is_told(log: LogWriter, caplog: pytest.LogCaptureFixture) -> None:
    """One whose properties end in a zero byte is in a copy for good, and is not read: not silently, then."""
    caplog.set_level("INFO", "rmqha.spark")
    end, report = log.end, ReadReport()
    log.append(b"whole", properties=b"KEYS\x01k\0")
    list(iter_batches(str(log.root), report=report))
    told = "the last record may not be written to its end yet"
    assert (report.next, report.unfinished) == (end, told)
    found = open_log(str(log.root))
    plan_tasks(found, 0, found.end, options=ReadOptions(), split_bytes=1 << 20)
    assert f"is read up to {end}: {told}" in caplog.text
    caplog.clear()
    plan_tasks(found, 0, log.offsets[5], options=ReadOptions(), split_bytes=1 << 20)
    assert not caplog.text, "that is not what ends a read before it"
    list(iter_batches(str(log.root), ReadOptions(ending_offset=log.offsets[5]), report=report))
    assert report.unfinished == ""
    log.append(b"next")
    list(iter_batches(str(log.root), report=report))
    assert (report.next, report.unfinished) == (log.end, "")


def test_other_files_in_the_directory_are_not_the_log(log: LogWriter) -> None:
    shutil.copy(log.path(0), log.root / "commitlog" / "backup")
    assert open_log(str(log.root)).end == log.end


def end_of(log: LogWriter, *, is_remote: bool) -> int:
    """As a local file system tells it, or one that knows of no holes."""
    opened, root = open_log(str(log.root)), log.root.parent
    if not is_remote:
        return opened.end
    segments = tuple(replace(one, path=str(Path(one.path).relative_to(root))) for one in opened.segments)
    return find_log_end(fs.SubTreeFileSystem(str(root), opened.filesystem), segments).offset


@pytest.mark.parametrize("begins", [0, 30])
@pytest.mark.parametrize("is_remote", [False, True])
def test_what_lies_behind_a_large_hole_is_not_behind_the_end(begins: int, is_remote: bool, tmp_path: Path) -> None:
    """Of a copy that left out what a cache had not written, the last file ended there, or was none, without a word."""
    log = LogWriter(tmp_path / "store", file_size=64 << 20)
    for at in (0, log.file_size):
        with log.path(at).open("wb") as file:
            file.truncate(log.file_size)
    log.append(b"of the file before")
    log.roll()
    for _ in range(begins):
        log.append(b"before")
    hole, log.end = log.end, log.end + (17 << 20)
    for _ in range(900 if is_remote else 50):
        log.append(b"behind" * (3400 if is_remote else 170))
    assert end_of(log, is_remote=is_remote) == log.end
    report = ReadReport()
    with pytest.raises(CorruptLogError, match=f"offset {hole}"):
        list(iter_batches(str(log.root)))
    found = sum(batch.num_rows for batch in iter_batches(str(log.root), SKIP, report=report))
    assert found == len(log.offsets)


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_large_hole_that_begins_within_a_record_is_no_end(is_remote: bool, tmp_path: Path) -> None:
    """Holes begin where pages or parts do, which is within a record: that one was taken for half written."""
    log = LogWriter(tmp_path / "store", file_size=64 << 20)
    with log.path(0).open("wb") as file:
        file.truncate(log.file_size)
    for _ in range(1900):
        log.append(b"body" * 8000)
    log.write(20 << 20, bytes(20 << 20))
    hit = max(at for at in log.offsets if at < 20 << 20)
    assert end_of(log, is_remote=is_remote) == log.end
    with pytest.raises(CorruptLogError, match=f"offset {hit}"):
        list(iter_batches(str(log.root)))
    found = [at for batch in iter_batches(str(log.root), SKIP) for at in batch["physicalOffset"].to_pylist()]
    assert found == [at for at in log.offsets if at < hit or at >= 40 << 20]


def test_a_file_of_which_nothing_but_its_size_was_written_is_not_read(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "store", file_size=1 << 30)
    for at in (0, log.file_size):
        with log.path(at).open("wb") as file:
            file.truncate(log.file_size)
    log.append(b"of the file before")
    opened = open_log(str(log.root))
    assert opened.end == log.end
    parts = [_written(opened.filesystem, segment, segment.base + (16 << 20)) for segment in opened.segments]
    assert [list(each) for each in parts] == [[], []]
