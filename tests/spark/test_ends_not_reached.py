"""Logs that end before where reading is to go on, or to end: cut ones, and DLedger members that know less."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.1 has no limits")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqha.errors import ConfigError, StoreError
from rmqha.spark import ReadOptions, ReadReport, iter_batches
from rmqha.spark.commit_log import open_log
from rmqha.spark.datasource import LogPartition, RmqhaReader
from rmqha.spark.limited_stream import RmqhaStreamReader
from rmqha.spark.position import Anchor, Position, position_at
from rmqha.spark.replay import ReplayOptions, replay
from rmqha.spark.source_options import parse_options
from rmqha.spark.stream import UnlimitedStreamReader
from tests.spark.in_process import in_process
from tests.spark.logs import LedgerWriter, LogWriter, record
from tests.spark.readers import offsets
from tests.spark.stream_readers import offsets_between

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]

KNOWN = 90
"""Entries of 100 that the second member knows to be committed."""


@pytest.fixture
def member(tmp_path: Path) -> LedgerWriter:
    """A member that knows all of its 100 entries to be committed."""
    writer = LedgerWriter(tmp_path / "n0", file_size=4096)
    for number in range(100):
        writer.put(b"m%d" % number)
    writer.commit()
    return writer


@pytest.fixture
def other(member: LedgerWriter, tmp_path: Path) -> LedgerWriter:
    """Holds the same entries, and knows fewer of them to be committed."""
    shutil.copytree(member.root, tmp_path / "n1")
    writer = LedgerWriter(tmp_path / "n1", member.file_size, member.end, [*member.offsets])
    writer.commit(KNOWN - 1)
    return writer


def messages(log: LedgerWriter) -> list[int]:
    return [at + 48 for at in log.offsets]


def stream_over(log: LedgerWriter | LogWriter, **options: str) -> RmqhaStreamReader:
    return RmqhaStreamReader(parse_options({"path": str(log.root), **options}), ("physicalOffset",))


def read_on(stream: RmqhaStreamReader, at: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Where the next batch ends, as a checkpoint has it, and what is in it."""
    end = json.loads(json.dumps(stream.latestOffset(at, ReadAllAvailable())))
    return end, offsets_between(stream, at, end) if end != at else []


def rows(log: LedgerWriter | LogWriter, **options: str) -> list[int]:
    return read_parts(planned(log, **options), log, **options)


def batch_of(log: LedgerWriter | LogWriter, **options: str) -> RmqhaReader:
    return RmqhaReader(parse_options({"path": str(log.root), **options}), ("physicalOffset",), cores=1)


def planned(log: LedgerWriter | LogWriter, **options: str) -> list[LogPartition]:
    return [*batch_of(log, **options).partitions()]


def read_parts(parts: list[LogPartition], log: LedgerWriter | LogWriter, **options: str) -> list[int]:
    reader = batch_of(log, **options)
    return [o for part in parts for batch in reader.read(part) for o in batch.column(0).to_pylist()]


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_stream_over_a_member_that_knows_less_has_nothing_new(
    fail_on_data_loss: str, member: LedgerWriter, other: LedgerWriter, caplog: pytest.LogCaptureFixture
) -> None:
    first = stream_over(member)
    at, found = read_on(first, first.initialOffset())
    stream = stream_over(other, failOnDataLoss=fail_on_data_loss)
    stream.prepareForTriggerAvailableNow()
    with caplog.at_level(logging.WARNING, "rmqha.spark"):
        for _ in range(5):
            assert read_on(stream, at) == (at, [])
    assert caplog.text.count("knows only what lies before") == 1, "once, not at each trigger"
    stream = stream_over(other, failOnDataLoss=fail_on_data_loss)
    assert read_on(stream, at) == (at, [])
    other.put(b"new")
    other.commit()
    _, later = read_on(stream, at)
    assert found + later == messages(other)


def test_a_batch_that_was_planned_of_another_member_is_read_again(member: LedgerWriter, other: LedgerWriter) -> None:
    """What it was to read is committed, and there."""
    first = stream_over(member)
    start = first.initialOffset()
    end, found = read_on(first, start)
    assert offsets_between(stream_over(other), start, end) == found == messages(member)


def test_damage_in_what_is_read_again_of_another_member_is_passed_over(
    member: LedgerWriter, other: LedgerWriter
) -> None:
    """It lies behind what that member knows to be committed, and the log goes on behind it."""
    first = stream_over(member)
    start = first.initialOffset()
    end, found = read_on(first, start)
    damaged = 95
    other.write(other.offsets[damaged], bytes(48))
    again = stream_over(other, onCorrupt="skip")
    assert {split.log_end for part in again.partitions(start, end) for split in part.task.splits} == {member.end}
    assert offsets_between(again, start, end) == found[:damaged] + found[damaged + 1 :]


def test_what_is_another_entry_in_that_member_is_told_all_the_same(member: LedgerWriter, other: LedgerWriter) -> None:
    first = stream_over(member)
    at, _ = read_on(first, first.initialOffset())
    last = other.offsets[-1]
    other.write(last + 48, record(last + 48, b"m?!"))
    with pytest.raises(StoreError, match="the log has been cut or replaced"):
        stream_over(other).latestOffset(at, ReadAllAvailable())
    other.write(last, bytes(other.end - last))
    with pytest.raises(StoreError, match="the log has been cut or replaced"):
        stream_over(other).latestOffset(at, ReadAllAvailable())


def test_nor_does_a_file_that_expired_show_it(member: LedgerWriter) -> None:
    """What lay there may have been anything."""
    member.path(0).unlink()
    member.commit(KNOWN - 1)
    log = open_log(str(member.root))
    assert not Position(member.end, Anchor(0, 100, 7)).is_ahead_of(log)


def test_files_before_its_end_are_not_opened_to_see_what_it_holds(member: LedgerWriter, other: LedgerWriter) -> None:
    """They may have expired since they were listed."""
    log = open_log(str(other.root))
    other.path(0).unlink()
    assert Position(member.end).is_ahead_of(log)


def test_a_stream_of_spark_4_1_does_not_go_back(member: LedgerWriter, other: LedgerWriter) -> None:
    """It is not told where the last batch ended."""
    at = {"broker": position_at(open_log(str(member.root)), member.end).as_json()}
    stream = UnlimitedStreamReader(parse_options({"path": str(other.root)}), ("physicalOffset",))
    end = stream.latestOffset()
    with pytest.raises(StoreError, match="Remove the newest file in the directory offsets"):
        stream.partitions(at, end)
    lenient = parse_options({"path": str(other.root), "failOnDataLoss": "false"})
    assert UnlimitedStreamReader(lenient, ("physicalOffset",)).partitions(at, end) == []
    other.commit()
    with pytest.raises(StoreError, match="Remove the newest file in the directory offsets"):
        stream.partitions(at, end)


def test_a_replay_of_a_member_that_knows_less_has_nothing_new(
    member: LedgerWriter, other: LedgerWriter, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    assert replay(ReplayOptions(str(member.root), out), start=in_process).messages == 100
    report = replay(ReplayOptions(str(other.root), out), start=in_process)
    assert (report.messages, report.manifest, report.end) == (0, None, member.end)
    assert "not known to be committed" in report.unfinished
    other.put(b"new")
    other.commit()
    assert replay(ReplayOptions(str(other.root), out), start=in_process).messages == 1


def test_so_it_is_with_a_start_that_is_an_offset_alone(member: LedgerWriter, other: LedgerWriter) -> None:
    """Where an entry begins, or will; elsewhere in what is held it is behind the end."""
    assert offsets(other.root, starting_offset=member.end) == []
    assert rows(other, startingOffsets=str(member.end)) == []
    for known_less in (KNOWN, 95):
        first = messages(member)[known_less]
        assert offsets(other.root, starting_offset=first) == [], "a message's own offset is its entry's"
        assert rows(other, startingOffsets=str(first)) == []
    for wrong in (member.offsets[-1] + 7, member.end + 100):
        with pytest.raises(StoreError, match="it was cut, or is another log"):
            offsets(other.root, starting_offset=wrong)
        with pytest.raises(StoreError, match="cut or replaced"):
            rows(other, startingOffsets=str(wrong))


def test_an_end_behind_the_log_s_end_is_data_loss(
    log: LogWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end, cut = log.end, log.offsets[290]
    for ending in (str(end), json.dumps({"broker": end})):
        assert rows(log, endingOffsets=ending) == log.offsets
    log.write(cut, bytes(end - cut))
    kept = offsets(log.root)
    told = rf"holds \[0, {open_log(str(log.root)).end}\), reading was to end at {end}, but it ends at .*; leave "
    for ending in (str(end), json.dumps({"broker": end})):
        with pytest.raises(StoreError, match=told + "endingOffsets out, or give failOnDataLoss=false"):
            rows(log, endingOffsets=ending)
        with caplog.at_level(logging.WARNING, "rmqha.spark"):
            assert rows(log, endingOffsets=ending, failOnDataLoss="false") == kept
        assert f"reading was to end at {end}" in caplog.text
        caplog.clear()
    with pytest.raises(StoreError, match=told + "ending_offset out"):
        list(iter_batches(str(log.root), ReadOptions(ending_offset=end)))
    with pytest.raises(StoreError, match=told + "--to-offset out"):
        replay(ReplayOptions(str(log.root), str(tmp_path / "out"), ReadOptions(ending_offset=end)), start=in_process)
    for option in ({}, {"endingOffsets": "latest"}, {"endingOffsets": '{"broker": -1}'}):
        assert rows(log, **option) == kept
    assert rows(log, endingTimestamp="2100-01-01") == kept, "a time is no place"


ON_CORRUPT = ["fail", "skip", "stop"]


@pytest.mark.parametrize("on_corrupt", ON_CORRUPT)
@pytest.mark.parametrize("grows", [False, True])
def test_a_start_behind_the_log_s_end_reads_nothing_where_loss_is_accepted(
    on_corrupt: str, *, grows: bool, log: LogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    """A nightly batch goes on where the last one ended; a failover has cut the log meanwhile."""
    options = {"failOnDataLoss": "false", "onCorrupt": on_corrupt}
    for starting in (str(log.end + 5000), json.dumps({"broker": log.end + 5000})):
        for ending in ({}, {"endingOffsets": str(log.end + 9000)}):
            parts = planned(log, startingOffsets=starting, **ending, **options)
            assert [part.task.splits for part in parts] == [()]
            assert f"reading was to go on at {log.end + 5000}, but it ends at {log.end}" in caplog.text
            caplog.clear()
    if grows:
        parts = planned(log, startingOffsets=str(log.end + 2000), **options)
        for _ in range(9):
            log.append(bytes(900))
        assert read_parts(parts, log, **options) == [], "they are no part of the log that was planned"


@pytest.mark.parametrize("on_corrupt", ON_CORRUPT)
@pytest.mark.parametrize("away", [-48, 7, 1000])
def test_nor_is_anything_read_that_is_not_known_to_be_committed(
    on_corrupt: str, away: int, member: LedgerWriter, other: LedgerWriter
) -> None:
    """Another leader may still replace it; an entry begins elsewhere there."""
    for start in (other.offsets[95] + away, other.end + 1000):
        options = {"startingOffsets": str(start), "failOnDataLoss": "false", "onCorrupt": on_corrupt}
        assert [part.task.splits for part in planned(other, **options)] == [()]
    assert rows(member, startingOffsets=str(member.offsets[95]), onCorrupt=on_corrupt) == messages(member)[95:]


def test_of_several_logs_the_others_are_read_all_the_same(log: LogWriter, tmp_path: Path) -> None:
    """The one that was cut has nothing, and takes nothing from the parts that the others are cut into."""
    cut, end = LogWriter(tmp_path / "cut"), 1 << 40
    cut.append(b"one")
    both = json.dumps({"cut": str(cut.root), "whole": str(log.root)})
    options = {"startingOffsets": json.dumps({"cut": end, "whole": 0}), "failOnDataLoss": "false"}
    parts = planned(log, path=both, **options)
    assert {part.task.uri for part in parts} == {str(log.root)}
    assert read_parts(parts, log, path=both, **options) == log.offsets


def test_of_a_log_no_more_is_cut_into_splits_than_it_holds(log: LogWriter) -> None:
    held = open_log(str(log.root))
    splits = [*held.splits(0, held.end + 5000, split_bytes=10_000)]
    assert {(split.range_end, split.log_end) for split in splits} == {(held.end, held.end)}
    assert splits[-1].end == held.end
    assert [*held.splits(held.end, held.end + 5000)] == []


@pytest.mark.parametrize("starting", [{}, {"startingOffsets": "0"}, {"startingOffsets": '{"broker": -2}'}])
def test_a_range_whose_files_were_deleted_is_data_loss(
    starting: dict[str, str], log: LogWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where nothing but its end is said: it is not the start that was wrong."""
    log.path(0).unlink()
    begin = log.path(log.end)
    told = rf"reading was to end at 100, but it begins at {int(begin.name)}: the files before were deleted; leave "
    with pytest.raises(StoreError, match=told + "endingOffsets out|reading was to go on at 0, but it begins"):
        rows(log, endingOffsets="100", **starting)
    assert rows(log, endingOffsets="100", failOnDataLoss="false", **starting) == []
    assert "reading was to end at 100, but it begins at" in caplog.text
    for start in (None, 0):
        with pytest.raises(StoreError, match=told + "ending_offset out"):
            offsets(log.root, starting_offset=start, ending_offset=100)
        options = ReplayOptions(
            str(log.root), str(tmp_path / "out"), ReadOptions(starting_offset=start, ending_offset=100)
        )
        with pytest.raises(StoreError, match=told + "--to-offset out"):
            replay(options, start=in_process)
    with pytest.raises(ConfigError, match="the start lies after the end"):
        rows(log, startingOffsets="latest", endingOffsets="100")


def test_the_blank_behind_the_last_record_is_held(tmp_path: Path) -> None:
    """The next file is not begun yet."""
    log = LogWriter(tmp_path, file_size=4096)
    log.append(b"one")
    log.roll()
    assert log.end == 4096
    report = ReadReport()
    assert offsets(tmp_path, report, ending_offset=4096) == [0]
    assert offsets(tmp_path, starting_offset=report.next) == [], "the next read goes on there"
    assert rows(log, endingOffsets="4096") == [0]
    with pytest.raises(StoreError, match="reading was to end at 4097"):
        rows(log, endingOffsets="4097")


def test_an_end_that_a_member_does_not_know_to_be_committed_yet_is_waited_for(
    member: LedgerWriter, other: LedgerWriter, tmp_path: Path
) -> None:
    for end in (other.end, other.offsets[95], other.offsets[95] + 48, other.offsets[KNOWN + 1]):
        with pytest.raises(StoreError, match=r"knows only what lies before .* try again then"):
            rows(other, endingOffsets=str(end))
        with pytest.raises(StoreError, match="try again then"):
            offsets(other.root, ending_offset=end)
    assert rows(other, endingOffsets=str(other.end), failOnDataLoss="false") == messages(other)[:KNOWN]
    other.commit()
    assert rows(other, endingOffsets=str(other.end)) == messages(member)
