"""The replay job: every message exactly once over all runs, whatever interrupts them; its manifest is true."""

import json
import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from rmqha.errors import ConfigError, StoreError, StoreLockedError
from rmqha.spark import OnCorrupt, ReadOptions, decoder, iter_batches
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.partitions import plan_tasks
from rmqha.spark.queue_pruning import count_topics
from rmqha.spark.replay import (
    OutputFormat,
    Progress,
    ReplayDamageError,
    ReplayOptions,
    ReplayReport,
    UnplacedFilesError,
    job,
    output,
    replay,
    task,
)
from rmqha.spark.replay.kept_rows import KeptRows
from rmqha.spark.replay.output import Output
from rmqha.spark.replay.paths import partition_directory
from rmqha.spark.replay.report import OutputFile
from rmqha.spark.replay.sink import ChecksumSink, sync
from rmqha.spark.report import CorruptRange, ReadReport
from rmqha.spark.schema import KAFKA_COLUMNS
from rmqha.spark.segments import open_filesystem
from tests import stores
from tests.spark.in_process import InProcess, Tasks, in_process
from tests.spark.logs import LedgerWriter, LogWriter


def run(
    store: Path,
    out: Path,
    *,
    read: dict[str, Any] | None = None,
    around: Callable[[Tasks], Iterator[task.TaskResult]] | None = None,
    **options: Any,
) -> ReplayReport:
    read_options = ReadOptions(**(read or {}))
    return replay(ReplayOptions(str(store), str(out), read_options, **options), start=lambda _: InProcess(around))


def written(out: Path) -> list[dict[str, Any]]:
    """All committed rows, in log order."""
    files = [str(path) for path in out.glob("topic=*/*.parquet")]
    table = ds.dataset(files, partitioning="hive", partition_base_dir=str(out)).to_table()
    return sorted(table.to_pylist(), key=lambda row: int(row["physicalOffset"]))


def offsets(out: Path) -> list[int]:
    return [row["physicalOffset"] for row in written(out)]


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    writer, chance = LogWriter(tmp_path / "store"), random.Random(5)
    for index in range(400):
        topic = [b"orders", b"audit", b"a|b"][index % 3]
        writer.append(chance.randbytes(chance.randint(1, 600)), topic=topic, stored_ms=1_700_000_000_000 + index)
    return writer


@pytest.mark.parametrize("name", ["basic", "v6", "rolled", "trimmed"])
def test_parquet_holds_what_rocketmq_says(name: str, tmp_path: Path) -> None:
    report = run(stores.unpack(name, tmp_path), tmp_path / "out", read={"include_system_topics": True})
    expected = stores.expected_messages(name)
    rows = written(tmp_path / "out")
    assert [(row["physicalOffset"], row["topic"]) for row in rows] == [
        (message["physicalOffset"], message["topic"]) for message in expected
    ]
    assert all(zlib.crc32(row["body"]) & 0x7FFFFFFF == row["bodyCrc"] for row in rows)
    assert (report.begin, report.end) == (
        stores.expected_log(name)["minOffset"],
        stores.expected_log(name)["maxOffset"],
    )


def test_the_manifest_is_true(log: LogWriter, tmp_path: Path) -> None:
    """Range, counts, sums and file checksums can all be recomputed from the output."""
    out = tmp_path / "out"
    report = run(log.root, out)
    assert report.manifest is not None
    manifest = json.loads(Path(report.manifest).read_text())
    rows = written(out)
    assert manifest["range"] == {"begin": 0, "end": log.end}
    assert manifest["messages"] == manifest["records"] == len(rows) == 400
    for topic, totals in manifest["topics"].items():
        mine = [row for row in rows if row["topic"] == topic]
        assert totals == {
            "messages": len(mine),
            "bodyBytes": sum(len(row["body"]) for row in mine),
            "bodyCrcSum": sum(row["bodyCrc"] for row in mine),
            "physicalOffsetSum": sum(row["physicalOffset"] for row in mine),
            "firstOffset": mine[0]["physicalOffset"],
            "lastOffset": mine[-1]["physicalOffset"],
        }
    assert {file["path"] for file in manifest["files"]} == {str(p.relative_to(out)) for p in out.glob("topic=*/*")}
    for file in manifest["files"]:
        data = (out / file["path"]).read_bytes()
        assert (file["bytes"], file["crc32"]) == (len(data), zlib.crc32(data))


def test_a_long_log_s_offsets_add_up(tmp_path: Path) -> None:
    """Halves of them are added up apart, and what goes over belongs to the other one."""
    log, out = LogWriter(tmp_path / "store", end=(1 << 32) - 65536), tmp_path / "out"
    while log.end < (1 << 32) + 65536:
        log.append(b"x" * 5000)
    assert run(log.root, out).topics["orders"].physical_offset_sum == sum(log.offsets)
    assert offsets(out) == log.offsets


def test_runs_join_without_gap_or_duplicate(tmp_path: Path) -> None:
    """The log grows by any number of messages between runs, with files rolling."""
    log, out, chance = LogWriter(tmp_path / "store", file_size=4096), tmp_path / "out", random.Random(6)
    for _ in range(12):
        for _ in range(chance.choice([0, 1, 2, 17])):
            log.append(chance.randbytes(chance.randint(1, 900)))
        report = run(log.root, out)
        assert report.end == log.end or not report.messages
    assert offsets(out) == log.offsets
    manifests = sorted((out / "_rmqha").glob("manifest-*"))
    ranges = [json.loads(path.read_text())["range"] for path in manifests]
    assert all(one["end"] == following["begin"] for one, following in pairwise(ranges))


def test_an_ending_offset_ends_at_a_record(log: LogWriter, tmp_path: Path) -> None:
    """The range is rounded up to a record's end, and the next run takes the rest."""
    middle = log.offsets[100] + 1
    report = run(log.root, tmp_path / "out", read={"ending_offset": middle})
    assert report.end == log.offsets[101]
    run(log.root, tmp_path / "out")
    assert offsets(tmp_path / "out") == log.offsets


def test_a_run_that_dies_before_its_manifest_leaves_nothing(log: LogWriter, tmp_path: Path) -> None:
    """Its staged files are not seen by readers, and the next run removes them."""

    class Killed(BaseException):
        pass

    def die(progress: Progress) -> None:
        if progress.done_bytes:
            raise Killed

    with pytest.raises(Killed):
        replay(ReplayOptions(str(log.root), str(tmp_path / "out")), die, start=in_process)
    assert list((tmp_path / "out" / "_rmqha").glob("staging-*"))
    assert not list((tmp_path / "out").glob("topic=*"))
    run(log.root, tmp_path / "out")
    assert offsets(tmp_path / "out") == log.offsets
    assert not list((tmp_path / "out" / "_rmqha").glob("staging-*"))


def test_a_manifest_that_was_being_written_is_removed(log: LogWriter, tmp_path: Path) -> None:
    """Once the log has grown no run would have written it again."""
    out = tmp_path / "out"
    run(log.root, out)
    unfinished = out / "_rmqha" / f".manifest-{log.end:020d}-{log.end + 100:020d}.json"
    unfinished.write_text("{")
    (out / "_rmqha" / ".manifest-mine.json").write_text("{}")
    for _ in range(5):
        log.append(b"more")
    run(log.root, out)
    assert [path.name for path in (out / "_rmqha").glob(".*")] == [".manifest-mine.json"]
    assert offsets(out) == log.offsets


@pytest.mark.parametrize("beyond", [1, 1 << 70])
def test_a_begin_that_the_log_does_not_reach_is_refused(beyond: int, log: LogWriter, tmp_path: Path) -> None:
    """It was "nothing new", of a log that somebody took for another one."""
    with pytest.raises(StoreError, match=f"ends at {log.end}, before offset {log.end + beyond}: it was cut"):
        run(log.root, tmp_path / "out", read={"starting_offset": log.end + beyond})
    assert run(log.root, tmp_path / "out", read={"starting_offset": log.end}).messages == 0


def test_more_tasks_than_anybody_could_plan_are_refused(log: LogWriter) -> None:
    found = open_log(str(log.root))
    with pytest.raises(ConfigError, match=r"1 log bytes a task \(splitBytes, minPartitions\) make 5000000 tasks"):
        plan_tasks(found, 0, 5_000_000, options=ReadOptions(), split_bytes=1)
    with pytest.raises(ConfigError, match="give larger parts"):
        plan_tasks(found, 0, 50_000_000, options=ReadOptions(), split_bytes=1 << 20, tasks_min=5_000_000)
    assert len(plan_tasks(found, 0, found.end, options=ReadOptions(), split_bytes=1000)) > 100


def test_to_stop_at_damage_is_one_task(log: LogWriter) -> None:
    """Of several, those behind would go on behind it."""
    found, stop = open_log(str(log.root)), ReadOptions(on_corrupt=OnCorrupt.STOP)
    for end in (found.end, log.offsets[300]):
        (whole,) = plan_tasks(found, 0, end, options=stop, split_bytes=1000)
        assert (whole.splits[0].begin, whole.splits[-1].end, whole.size) == (0, end, end)
    assert plan_tasks(found, found.end, found.end, options=stop, split_bytes=1000) == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_run_that_dies_after_its_manifest_is_finished_by_the_next(
    log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """Whatever number of files had been moved already."""
    out = tmp_path / "out"
    real = Output._move_files

    def some(self: Output, files: Sequence[OutputFile]) -> None:
        real(self, files[:moved])
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(Output, "_move_files", some)
        with pytest.raises(InterruptedError):
            run(log.root, out)
    assert len(list(out.glob("topic=*/*"))) == moved
    with pytest.raises(StoreError):
        run(tmp_path / "gone", out)
    assert offsets(out) == log.offsets
    assert run(log.root, out).manifest is None


def test_a_directory_that_takes_no_files_holds_back_no_other(
    log: LogWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is committed, and that is said; the next one finishes it, and says so, as nobody had its totals."""
    out = tmp_path / "out"

    def get_in_the_way(tasks: Tasks) -> Iterator[task.TaskResult]:
        (out / "topic=audit").touch()
        return map(task.run_task, tasks)

    with pytest.raises(
        UnplacedFilesError, match=r"the run is committed, but .*topic=audit.* run the same again"
    ) as told:
        run(log.root, out, around=get_in_the_way)
    report = told.value.report
    assert report is not None
    assert (report.messages, report.end) == (400, log.end)
    assert Path(report.manifest or "").exists()
    (out / "topic=audit").rename(tmp_path / "aside")
    assert len(offsets(out)) == 267
    (tmp_path / "aside").rename(out / "topic=audit")
    with pytest.raises(UnplacedFilesError) as told:
        run(log.root, out)
    assert told.value.report is None
    (out / "topic=audit").unlink()
    assert run(log.root, out).manifest is None
    assert offsets(out) == log.offsets
    assert f"the run up to {log.end} was interrupted after its commit: 1 of its 3 files" in caplog.text


def test_files_of_the_newest_run_that_are_gone_are_told(
    log: LogWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a copy that ended early the manifests were there, and the next run went on behind them without a word."""
    out = tmp_path / "out"
    run(log.root, out)
    run(log.root, out)
    assert "replay.files_gone" not in caplog.text
    (gone,) = (out / "topic=audit").iterdir()
    gone.unlink()
    log.append(b"later")
    run(log.root, out)
    assert "1 of its 3 files with 133 messages are not in" in caplog.text
    assert f"topic=audit/{gone.name} for one" in caplog.text


def test_what_a_manifest_names_is_durable_before_it(
    log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave a committed run whose files have no names."""
    out = tmp_path / "out"
    synced_before: set[str] = set()

    def note(path: str) -> None:
        if not list((out / "_rmqha").glob("manifest-*")):
            synced_before.add(path)
        sync(path)

    monkeypatch.setattr(output, "sync", note)
    report = run(log.root, out)
    assert report.files
    for file in report.files:
        assert str((out / "_rmqha" / file.staged / file.path).parent) in synced_before
        assert str(out / "_rmqha" / file.staged) in synced_before


def test_each_step_of_a_commit_is_durable_before_the_next(
    log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged, the manifest, its name, the files' places; only then is what was staged not there any more."""
    out = tmp_path / "out"
    meta, synced = out / "_rmqha", list[tuple[Path, bool, int]]()
    with Output(str(out)).locked():
        pass

    def note(path: str) -> None:
        assert list(meta.glob("staging-*"))
        is_committed, places = bool(list(meta.glob("manifest-*"))), [*out.glob("topic=*/*")]
        synced.append((Path(path), is_committed, len(places)))
        sync(path)

    for place in ("output", "sink"):
        monkeypatch.setattr(f"rmqha.spark.replay.{place}.sync", note)
    report = run(log.root, out)
    for file in report.files:
        assert (meta / file.staged / file.path, False, 0) in synced
    assert (meta / f".{Path(report.manifest or '').name}", False, 0) in synced
    assert (meta, True, 0) in synced
    for number, topic in enumerate(sorted({Path(file.path).parent for file in report.files}), 1):
        assert (out / topic, True, number) in synced, "there is a file of each topic"
    assert synced[-1] == (out, True, len(report.files))


def test_damage_fails_the_job_and_all_of_it_is_named(log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for victim in (50, 300):
        log.write(log.offsets[victim] + 88, b"\xff\xfe\xfd")
    with pytest.raises(ReplayDamageError) as caught:
        run(log.root, out)
    assert [damage.start for damage in caught.value.corrupt] == [log.offsets[50], log.offsets[300]]
    assert not list(out.glob("topic=*"))
    assert not list((out / "_rmqha").glob("staging-*"))
    report = run(log.root, out, read={"on_corrupt": OnCorrupt.SKIP})
    assert [damage.start for damage in report.corrupt] == [log.offsets[50], log.offsets[300]]
    assert offsets(out) == [at for index, at in enumerate(log.offsets) if index not in (50, 300)]
    assert report.manifest is not None
    assert len(json.loads(Path(report.manifest).read_text())["corrupt"]) == 2


def test_stop_ends_before_the_damage_and_the_next_run_meets_it_again(log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    log.write(log.offsets[200] + 4, b"\0")
    report = run(log.root, out, read={"on_corrupt": OnCorrupt.STOP})
    assert report.end == log.offsets[200]
    with pytest.raises(ReplayDamageError):
        run(log.root, out)
    report = run(log.root, out, read={"on_corrupt": OnCorrupt.SKIP})
    assert [damage.start for damage in report.corrupt] == [log.offsets[200]]
    assert offsets(out) == [at for index, at in enumerate(log.offsets) if index != 200]


def test_who_stopped_at_a_damaged_body_goes_on_when_the_log_was_cut_there(log: LogWriter, tmp_path: Path) -> None:
    out, end = tmp_path / "out", log.offsets[200]
    log.write(end + 88, b"\xff\xfe")
    assert run(log.root, out, read={"on_corrupt": OnCorrupt.STOP}).end == end
    os.truncate(log.path(end), end % log.file_size)
    os.truncate(log.path(end), log.file_size)
    for at in range(end + log.file_size, log.end + log.file_size, log.file_size):
        log.path(at).unlink(missing_ok=True)
    log.end = end
    later = [log.append(b"written after the cut") for _ in range(50)]
    assert run(log.root, out).begin == end
    assert offsets(out) == log.offsets[:200] + later


def test_damage_where_the_last_run_ended_is_met(log: LogWriter, tmp_path: Path) -> None:
    run(log.root, tmp_path / "out")
    end = log.end
    for _ in range(50):
        log.append(b"later")
    log.write(end + 4, b"\0")
    with pytest.raises(ReplayDamageError, match=rf"\[{end}, "):
        run(log.root, tmp_path / "out")


def test_deleted_files_are_a_gap(log: LogWriter, tmp_path: Path) -> None:
    """An error, unless it is accepted; then the manifest says what is missing."""
    out, first = tmp_path / "out", log.offsets[10]
    run(log.root, out, read={"ending_offset": first})
    log.path(0).unlink()
    with pytest.raises(StoreError, match="--allow-gap"):
        run(log.root, out)
    report = run(log.root, out, allow_gap=True)
    assert report.corrupt[0][:2] == (first, log.file_size)
    assert offsets(out) == log.offsets[:10] + [at for at in log.offsets if at >= log.file_size]
    assert run(log.root, out).manifest is None


def test_another_log_is_recognised(log: LogWriter, tmp_path: Path) -> None:
    """After a failover the log may hold something else where the last run ended."""
    out = tmp_path / "out"
    run(log.root, out)
    other = LogWriter(tmp_path / "other")
    for _ in range(600):
        other.append(b"other" * 50)
    with pytest.raises(StoreError, match="another record is at"):
        run(other.root, out)
    short = LogWriter(tmp_path / "short")
    short.append(b"x")
    with pytest.raises(StoreError, match="it ends at"):
        run(short.root, out)


@pytest.mark.parametrize("on_corrupt", list(OnCorrupt))
def test_a_log_that_is_cut_while_it_is_read_is_not_committed(
    on_corrupt: OnCorrupt, log: LogWriter, tmp_path: Path
) -> None:
    """Else what was cut is there, and what was written in its place never comes: the next run goes on behind it."""
    out, cut = tmp_path / "out", log.offsets[200]

    def failover(tasks: Tasks) -> Iterator[task.TaskResult]:
        results = [task.run_task(one) for one in tasks]
        for base in range(cut - cut % log.file_size, log.end, log.file_size):
            log.write(max(cut, base), bytes(base + log.file_size - max(cut, base)))
        log.end = cut
        del log.offsets[200:]
        for _ in range(300):
            log.append(b"new" * 100)
        yield from results

    with pytest.raises(StoreError, match="was cut while it was read"):
        run(log.root, out, around=failover, read={"on_corrupt": on_corrupt})
    assert not list(out.glob("topic=*"))
    run(log.root, out)
    assert offsets(out) == log.offsets


@pytest.fixture
def _some_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_TASK_BYTES_MIN", 1 << 14)


@pytest.mark.usefixtures("_some_tasks")
def test_a_host_that_sees_an_older_copy_of_the_log_loses_nothing(log: LogWriter, tmp_path: Path) -> None:
    """Of what came since it has zeros, which are no damage to a task that begins there."""
    store, older, newer = log.root, tmp_path / "older", tmp_path / "newer"
    while log.end % log.file_size < 1000:
        log.append(b"before" * 50)
    shutil.copytree(store, older)
    for _ in range(50):
        log.append(b"since" * 50)

    def elsewhere(tasks: Tasks) -> Iterator[task.TaskResult]:
        assert len(tasks) > 1
        yield from [task.run_task(one) for one in tasks[:-1]]
        store.rename(newer)
        older.rename(store)
        try:
            yield task.run_task(tasks[-1])
        finally:
            store.rename(older)
            newer.rename(store)

    out = tmp_path / "out"
    with pytest.raises(StoreError, match="sees an older copy of it"):
        run(store, out, around=elsewhere)
    assert not list(out.glob("topic=*"))
    run(store, out)
    assert offsets(out) == log.offsets


@pytest.mark.usefixtures("_some_tasks")
@pytest.mark.parametrize("on_corrupt", [OnCorrupt.FAIL, OnCorrupt.SKIP])
def test_an_end_in_which_a_task_found_nothing_is_damage(on_corrupt: OnCorrupt, log: LogWriter, tmp_path: Path) -> None:
    """As through stale pages of a network's file system; the next run would begin behind it."""

    def stale(tasks: Tasks) -> Iterator[task.TaskResult]:
        results = [task.run_task(one) for one in tasks]
        last = [result for result in results if result.read.first is not None][-1]
        assert last is not results[0]
        last.read = ReadReport(begin=last.read.begin, next=last.read.next)
        last.files, last.topics = [], {}
        yield from results

    if on_corrupt is OnCorrupt.FAIL:
        with pytest.raises(ReplayDamageError, match="no record begins here"):
            run(log.root, tmp_path / "out", around=stale)
        return
    report = run(log.root, tmp_path / "out", around=stale, read={"on_corrupt": on_corrupt})
    assert [(one.end, one.reason) for one in report.corrupt] == [(log.end, "no record begins here")]


@pytest.mark.usefixtures("_some_tasks")
def test_a_part_in_which_a_task_found_nothing_is_damage_beside_other_damage(log: LogWriter, tmp_path: Path) -> None:
    damaged = log.offsets[2]
    log.write(damaged + 88 + 10, b"\xff")

    def stale(tasks: Tasks) -> Iterator[task.TaskResult]:
        results = [task.run_task(one) for one in tasks]
        middle = [result for result in results if result.read.first is not None][2]
        expected.append(CorruptRange(middle.read.first or 0, middle.read.next, "no record begins here"))
        middle.read = ReadReport(begin=middle.read.begin, next=middle.read.next)
        middle.files, middle.topics = [], {}
        yield from results

    expected = list[CorruptRange]()
    report = run(log.root, tmp_path / "out", around=stale, read={"on_corrupt": OnCorrupt.SKIP})
    assert [one.start for one in report.corrupt] == [damaged, expected[0].start]
    assert report.corrupt[1:] == expected


@pytest.mark.usefixtures("_some_tasks")
def test_results_may_come_in_any_order(log: LogWriter, tmp_path: Path) -> None:
    def shuffled(tasks: Tasks) -> Iterator[task.TaskResult]:
        assert len(tasks) > 3
        return map(task.run_task, random.Random(1).sample(tasks, len(tasks)))

    report = run(log.root, tmp_path / "out", around=shuffled)
    assert (report.end, report.corrupt) == (log.end, [])
    assert offsets(tmp_path / "out") == log.offsets


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_gap_behind_which_nothing_is_to_be_read_is_gone_over(is_empty: bool, tmp_path: Path) -> None:
    """All that was not replayed has expired, and nothing has come since; or only what is before the next file."""
    log, out = LogWriter(tmp_path / "store", file_size=4096), tmp_path / "out"
    log.append(b"x" * 100)
    run(log.root, out)
    log.end = 3 * log.file_size
    log.append(b"y" * 100)
    log.path(0).unlink()
    read = {} if is_empty else {"ending_offset": 3 * log.file_size}
    if is_empty:
        log.path(log.end).write_bytes(bytes(log.file_size))
    report = run(log.root, out, read=read, allow_gap=True)
    assert (report.end, report.messages, len(report.corrupt)) == (3 * log.file_size, 0, 1)
    anchor = json.loads(Path(report.manifest or "").read_text())["anchor"]
    assert anchor["offset"] == 0, "the last record that was replayed"
    log.end = 3 * log.file_size
    log.append(b"z" * 100)
    assert run(log.root, out).messages == 1


def test_runs_into_one_output_share_their_options(log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(log.root, out, read={"topics": ("orders",)})
    with pytest.raises(ConfigError, match=r'\(--topic: \["orders"\] before, \["audit"\] now\)'):
        run(log.root, out, read={"topics": ("audit",)})
    system = r"\(--system-topics: false before, true now, --topic: .* before, not given now\)"
    with pytest.raises(ConfigError, match=system):
        run(log.root, out, read={"include_system_topics": True})
    with pytest.raises(ConfigError, match="first run only"):
        run(log.root, out, read={"topics": ("orders",), "starting_offset": 0})


def test_an_output_without_manifests_is_refused(log: LogWriter, tmp_path: Path) -> None:
    """Who lost them, or names another job's directory, would have messages twice."""
    out = tmp_path / "out"
    report = run(log.root, out)
    Path(report.manifest or "").unlink()
    with pytest.raises(StoreError, match=r"topic=\S+ is there, but no manifest"):
        run(log.root, out)


@pytest.mark.parametrize("lost", [1, 2])
def test_an_output_that_lacks_its_newest_manifests_is_refused(lost: int, log: LogWriter, tmp_path: Path) -> None:
    """As a copy that was made while a run moved its files: what that run wrote would be there twice."""
    out, manifests = tmp_path / "out", list[Path]()
    for _ in range(3):
        manifests.append(Path(run(log.root, out).manifest or ""))
        for _ in range(50):
            log.append(b"later", topic=b"orders")
    kept = manifests[-lost - 1]
    for path in manifests[-lost:]:
        path.unlink()
    missing = rf"manifest-{kept.stem.split('-')[2]}-\*\.json is missing"
    with pytest.raises(StoreError, match=rf"{kept.name}, but {lost} files .*topic=orders/part-.*{missing}"):
        run(log.root, out)
    for path in out.glob("topic=*/*"):
        if path.name > f"part-{kept.stem.split('-')[2]}":
            path.unlink()
    run(log.root, out)
    assert offsets(out) == log.offsets


def test_an_output_that_lacks_its_oldest_manifest_is_refused(log: LogWriter, tmp_path: Path) -> None:
    """Who goes by the manifests would not know of those files."""
    out, manifests = tmp_path / "out", list[Path]()
    for _ in range(2):
        manifests.append(Path(run(log.root, out).manifest or ""))
        for _ in range(50):
            log.append(b"later", topic=b"orders")
    manifests[0].unlink()
    missing = (
        rf"{manifests[1].name}, but \d files .*/part-.* manifest-\*-{manifests[1].stem.split('-')[1]}.json is missing"
    )
    with pytest.raises(StoreError, match=missing):
        run(log.root, out)
    for path in out.glob("topic=*/*"):
        if path.name < f"part-{manifests[1].stem.split('-')[1]}":
            path.unlink()
    assert run(log.root, out).messages == 50


def test_an_output_and_all_that_leads_to_it_is_durable_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[str]()
    monkeypatch.setattr(output, "sync", synced.append)
    with Output(str(tmp_path / "lake" / "orders")).locked():
        assert synced == [str(tmp_path), str(tmp_path / "lake"), str(tmp_path / "lake" / "orders")]
    with Output(str(tmp_path / "lake" / "orders")).locked():
        assert len(synced) == 3


def test_a_directory_that_may_be_written_to_and_not_read_may_hold_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(output, "sync", refuse)
    with Output(str(tmp_path / "out")).locked():
        assert (tmp_path / "out" / "_rmqha" / "lock").exists()


def test_a_full_disk_names_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Output(str(tmp_path / "out"))
    with out.locked():
        (tmp_path / "out" / "_rmqha" / ".manifest-00000000000000000000-00000000000000000009.json").symlink_to(
            "/dev/full"
        )
        with pytest.raises(StoreError, match=r"\.manifest-.*\.json cannot be written: No space left"):
            out.commit(0, 9, files=[], manifest=b"{}")


def test_a_run_that_failed_at_once_has_made_no_output(log: LogWriter, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such directory"):
        run(tmp_path / "typo", tmp_path / "lake")
    assert run(log.root, tmp_path / "lake" / "orders").messages


def test_a_file_that_cannot_be_written_is_named(log: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a task says, a line is left: OUT may be full, or where rows wait."""
    sink = ChecksumSink(LocalFileSystem(), "/dev/full")
    with pytest.raises(StoreError, match="/dev/full cannot be written: No space left on device; repair that"):
        sink.write(b"x" * (1 << 20))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/dev/null/none")
    (batch, *_) = iter_batches(str(log.root))
    with pytest.raises(
        StoreError, match=r"in /dev/null/none \(SPARK_LOCAL_DIRS, TMPDIR\), cannot be written: Not a dir"
    ):
        KeptRows().keep(batch)


def test_one_run_at_a_time(log: LogWriter, tmp_path: Path) -> None:
    with Output(str(tmp_path / "out")).locked(), pytest.raises(StoreLockedError, match="another replay"):
        run(log.root, tmp_path / "out")


def test_a_process_started_meanwhile_does_not_keep_the_next_run_out(tmp_path: Path) -> None:
    """It has a copy of each descriptor until it becomes another program; here the copy is a duplicate."""
    output = Output(str(tmp_path / "out"))
    with output.locked():
        descriptors = Path("/proc/self/fd")
        lock = next(one for one in descriptors.iterdir() if str(one.resolve()).endswith("/lock"))
        copy = os.dup(int(lock.name))
    with output.locked():
        pass
    os.close(copy)


def test_nothing_new_starts_no_spark(log: LogWriter, tmp_path: Path) -> None:
    """Nor is it started before the bar is there."""
    told: list[Progress | str] = []

    def start(master: str | None) -> InProcess:
        told.append(f"start {master}")
        return InProcess()

    options = ReplayOptions(str(log.root), str(tmp_path / "out"), master="local[3]")
    assert replay(options, told.append, start=start).master == "in-process"
    assert told[:2] == [Progress(0, log.end, 0, "starting Spark"), "start local[3]"]
    assert told[2:] == [Progress(0, log.end, 0, "replaying"), Progress(log.end, log.end, 400, "replaying")]
    told.clear()
    assert replay(options, told.append, start=start).master == ""
    assert told == []


def test_progress_never_goes_back(log: LogWriter, tmp_path: Path) -> None:
    """Spark counts tasks that are done before their results are here."""

    class Counting(InProcess):
        def run(self, tasks: Tasks) -> Iterator[task.TaskResult | int]:
            yield from (*range(len(tasks) + 1), *super().run(tasks))

    seen: list[Progress] = []
    replay(ReplayOptions(str(log.root), str(tmp_path / "out")), seen.append, start=lambda _: Counting())
    assert [now.done_bytes for now in seen] == sorted(now.done_bytes for now in seen)


@pytest.mark.parametrize(("parallelism", "tasks"), [(1, 4), (4, 7), (64, 7)])
def test_split_size_follows_the_parallelism(
    parallelism: int, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tasks for each core, none so small that its start costs more than its work."""
    log = LogWriter(tmp_path / "store", file_size=1 << 20)
    for _ in range(400):
        log.append(b"x" * 400)
    monkeypatch.setattr(job, "_TASK_BYTES_MIN", log.end // 7 + 1)
    planned: list[int] = []

    class Wide(InProcess):
        def run(self, tasks: Tasks) -> Iterator[task.TaskResult | int]:
            planned.append(len(tasks))
            return super().run(tasks)

    runner = Wide()
    runner.parallelism = parallelism
    replay(ReplayOptions(str(log.root), str(tmp_path / "out")), start=lambda _: runner)
    assert planned == [tasks]
    assert offsets(tmp_path / "out") == log.offsets


@pytest.mark.parametrize("place", ["store", "out"])
def test_a_path_that_is_not_utf_8_is_refused(place: str, log: LogWriter, tmp_path: Path) -> None:
    paths = {"store": log.root, "out": tmp_path / "out"}
    paths[place] = tmp_path / "\udcff"
    with pytest.raises(StoreError, match="UTF-8"):
        run(paths["store"], paths["out"])
    with pytest.raises(ConfigError, match="UTF-8"):
        ReadOptions(topics=("\udcff",))


def one_task(log: LogWriter, staging: str) -> task.ReplayTask:
    (part,) = plan_tasks(open_log(str(log.root)), 0, log.end, options=ReadOptions(), split_bytes=log.end)
    return task.ReplayTask(part, staging, OutputFormat.PARQUET, ("physicalOffset",))


def test_an_attempt_that_outlives_its_run_harms_nobody(
    log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may write while the run's directory is removed, and begin new files when it is gone."""
    out = tmp_path / "out"
    zombies: list[task.ReplayTask] = []

    def twice(tasks: Tasks) -> Iterator[task.TaskResult]:
        zombies.extend(tasks)
        return map(task.run_task, tasks)

    class Busy(LocalFileSystem):  # type: ignore[misc]
        def delete_dir(self, path: str) -> None:
            raise OSError(39, "Directory not empty")

    with monkeypatch.context() as patch:
        patch.setattr(output, "open_filesystem", lambda uri: (Busy(), uri))
        assert run(log.root, out, around=twice).manifest is not None
    assert len(list((out / "_rmqha").glob("staging-*"))) == 1
    assert run(log.root, out).manifest is None
    assert not list((out / "_rmqha").glob("staging-*")), "the next run removes what is left"
    with pytest.raises(StoreError, match="that run has ended"):
        task.run_task(zombies[0])
    assert not list((out / "_rmqha").glob("staging-*"))
    assert offsets(out) == log.offsets


def test_an_output_that_workers_do_not_share_is_refused(log: LogWriter, tmp_path: Path) -> None:
    """Some tasks wrote to another machine's disk under the same name."""
    out = tmp_path / "out"

    def elsewhere(tasks: Tasks) -> Iterator[task.TaskResult]:
        for one in tasks:
            result = task.run_task(one)
            for file in result.files[1:]:
                (out / "_rmqha" / file.staged / file.path).unlink()
            yield replace(result, host="worker7")

    with pytest.raises(StoreError, match=r"2 of 3 files that tasks wrote are not in .* written on worker7"):
        run(log.root, out, around=elsewhere)
    assert not list(out.glob("topic=*"))
    assert not list((out / "_rmqha").glob("manifest-*"))
    run(log.root, out)
    assert offsets(out) == log.offsets


def test_a_file_that_is_cut_short_is_not_committed(log: LogWriter, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def cut(tasks: Tasks) -> Iterator[task.TaskResult]:
        for one in tasks:
            result = task.run_task(one)
            os.truncate(out / "_rmqha" / result.files[0].staged / result.files[0].path, 100)
            yield result

    with pytest.raises(StoreError, match=r"1 of 3 files that tasks wrote"):
        run(log.root, out, around=cut)


def test_a_committed_file_that_is_in_neither_place_is_missed(
    log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was ended behind its manifest, and a file has gone before the next one."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Output, "_move_files", lambda _self, _files: None)
        patch.setattr(Output, "_remove_staging", lambda _self: None)
        lost = run(log.root, out).files[1]
    (out / "_rmqha" / lost.staged / lost.path).unlink()
    with pytest.raises(StoreError, match=r"belongs to a committed run, but is neither in"):
        run(log.root, out)


@pytest.mark.parametrize("named", ["", "commitlog"])
@pytest.mark.parametrize("below", ["", "commitlog", "consumequeue", "lake/orders"])
def test_an_output_in_the_store_is_refused(named: str, below: str, log: LogWriter) -> None:
    """A broker takes no other files in its log's directory: it would not start again."""
    (log.root / "checkpoint").touch()
    before = sorted(log.root.rglob("*"))
    with pytest.raises(ConfigError, match="is in the store"):
        run(log.root / named, log.root / below)
    assert sorted(log.root.rglob("*")) == before


def test_an_output_in_the_store_is_refused_under_any_name_of_both(log: LogWriter, tmp_path: Path) -> None:
    ledger = LedgerWriter(tmp_path / "broker")
    ledger.put(b"x")
    ledger.commit()
    (ledger.root / "config").mkdir()
    for store, out in (
        (f"file://{log.root}", str(log.root / "lake")),
        (str(log.root), f"file://{log.root}/lake"),
        (str(ledger.member), str(ledger.root / "lake")),
    ):
        with pytest.raises(ConfigError, match="is in the store"):
            replay(ReplayOptions(store, out), start=in_process)


def test_an_output_s_name_is_no_uri_unless_it_says_so(log: LogWriter, tmp_path: Path) -> None:
    run(log.root, tmp_path / "what?a=b")
    assert offsets(tmp_path / "what?a=b") == log.offsets


def test_a_copy_of_a_manifest_is_none(log: LogWriter, tmp_path: Path) -> None:
    manifest = run(log.root, tmp_path / "out").manifest
    shutil.copy(manifest or "", f"{manifest}.bak")
    log.append(b"later")
    assert run(log.root, tmp_path / "out").messages == 1


def test_an_output_beside_a_copied_commitlog_is_none_in_a_store(log: LogWriter) -> None:
    run(log.root / "commitlog", log.root / "lake")
    assert offsets(log.root / "lake") == log.offsets


def test_an_output_in_another_is_refused(log: LogWriter, tmp_path: Path) -> None:
    run(log.root, tmp_path / "lake")
    with pytest.raises(ConfigError, match=r"is in the output .*/lake, which would"):
        run(log.root, tmp_path / "lake" / "topic=orders")


def test_an_output_with_the_name_of_an_output_s_notes_is_refused(log: LogWriter, tmp_path: Path) -> None:
    """It was written once, and refused ever after as one in itself."""
    with pytest.raises(ConfigError, match="named as the notes of an output are"):
        run(log.root, tmp_path / "_rmqha")
    assert not (tmp_path / "_rmqha").exists()


def test_a_file_that_expires_while_a_run_is_planned_ends_no_run(
    log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and gone when it was looked into: a bare FileNotFoundError."""
    first, second, *_ = sorted((log.root / "commitlog").iterdir())
    start_at = CommitLog.start_at

    def expires(self: CommitLog, position: int) -> int:
        first.unlink(missing_ok=True)
        return start_at(self, position)

    monkeypatch.setattr(CommitLog, "start_at", expires)
    assert run(log.root, tmp_path / "out").begin == int(second.name)


def test_closed_files_are_archived_one_after_the_other(log: LogWriter, tmp_path: Path) -> None:
    """Each run sees only what is new; the blank at the end of a file is nothing that was missed."""
    out, archive = tmp_path / "out", tmp_path / "archive"
    bases = range(0, log.end, log.file_size)
    for base in bases:
        shutil.rmtree(archive, ignore_errors=True)
        (archive / "commitlog").mkdir(parents=True)
        shutil.copy(log.path(base), archive / "commitlog")
        assert run(archive, out).corrupt == []
    assert offsets(out) == log.offsets
    assert len(bases) > 1


def test_attempts_at_a_task_do_not_share_files(log: LogWriter, tmp_path: Path) -> None:
    """Spark repeats tasks, and may not know that the first attempt is still writing."""
    output = Output(str(tmp_path / "out"))
    with output.locked(), output.staging() as staging:
        one, other = (task.run_task(one_task(log, staging)) for _ in range(2))
    assert [file.path for file in one.files] == [file.path for file in other.files]
    assert {file.staged for file in one.files}.isdisjoint(file.staged for file in other.files)


def test_columns_and_json(tmp_path: Path) -> None:
    """A line a message; the topic is the directory's name, a body that is no text is base64."""
    log, out = LogWriter(tmp_path / "store"), tmp_path / "out"
    log.append("größer".encode(), topic=b"%RETRY%g")
    log.append(b"\xff\x00", topic=b"%RETRY%g")
    read = {"columns": ("topic", "body", "properties", "storeTimestamp"), "include_system_topics": True}
    run(log.root, out, read=read, format=OutputFormat.JSON)
    (path,) = out.glob("topic=%25RETRY%25g/*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    same = {"properties": {"TAGS": "TagA", "KEYS": "k1 k2"}, "storeTimestamp": "2023-11-14T22:13:20.000Z"}
    assert lines == [{"body": "größer", **same}, {"bodyBase64": "/wA=", **same}]


@pytest.mark.parametrize("output_format", OutputFormat)
def test_kafka_s_columns_are_written_as_well(output_format: OutputFormat, tmp_path: Path) -> None:
    log, out = LogWriter(tmp_path / "store"), tmp_path / "out"
    log.append(b"hello", queue_id=3, queue_offset=7)
    columns = tuple(name for name in KAFKA_COLUMNS.names if name != "timestamp")
    run(log.root, out, read={"columns": columns}, format=output_format)
    (path,) = out.glob("topic=orders/part-*")
    if output_format is OutputFormat.JSON:
        row = json.loads(path.read_text())
    else:
        row = pq.ParquetFile(path).read().to_pylist()[0]
        row = json.loads(json.dumps(row, default=bytes.decode))
    headers = [{"key": "TAGS", "value": "TagA"}, {"key": "KEYS", "value": "k1 k2"}]
    same = {"key": "k1 k2", "value": "hello", "partition": 3, "offset": 7, "timestampType": 1, "headers": headers}
    assert row == same


def test_more_topics_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic's file is closed for another's and goes on in a further one."""
    monkeypatch.setattr(task, "_OPEN_FILES_MAX", 5)
    monkeypatch.setattr(task, "_BUFFERED_BYTES", 100)
    monkeypatch.setattr(task, "_GROUP_BYTES", 100)
    monkeypatch.setattr(decoder, "BLOCK_BYTES", 4096)
    log, out = LogWriter(tmp_path / "store", file_size=1 << 20), tmp_path / "out"
    for index in range(150):
        log.append(b"x" * 100, topic=b"topic-%d" % (index % 9))
    report = run(log.root, out)
    assert report.messages == 150
    assert len(report.files) > 9
    assert offsets(out) == log.offsets


def test_a_topic_of_many_has_one_run_of_rows_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often what is buffered is too much, and whichever topics have enough of their own meanwhile."""
    monkeypatch.setattr(task, "_BUFFERED_BYTES", 20_000)
    monkeypatch.setattr(task, "_GROUP_BYTES", 40_000)
    monkeypatch.setattr(decoder, "BLOCK_BYTES", 4096)
    log, out = LogWriter(tmp_path / "store", file_size=1 << 20), tmp_path / "out"
    for index in range(1500):
        log.append(b"x" * (200 + index % 150), topic=b"rare-%d" % (index % 50) if index % 3 else b"common")
    report = run(log.root, out)
    assert offsets(out) == log.offsets
    assert [file.topic for file in report.files] == [*dict.fromkeys(file.topic for file in report.files)]
    for file in report.files:
        table = pq.ParquetFile(out / file.path)
        found = table.read(["physicalOffset"]).column(0).to_pylist()
        assert found == sorted(found)
        assert (table.num_row_groups > 1) == (file.topic == "common")
    totals = report.topics["common"]
    assert (totals.messages, totals.first_offset) == (500, log.offsets[0])


@pytest.mark.parametrize(
    ("total", "parallelism", "topics", "size"),
    [(1024, 2, 8, 128), (1024, 2, 1000, 512), (1024, 16, 1000, 64), (10240, 2, 1000, 512), (10240, 2, 5000, 1024)],
)
def test_many_topics_make_fewer_tasks(total: int, parallelism: int, topics: int, size: int) -> None:
    """Of MiB. But not fewer than there are cores."""
    assert job._task_bytes(total << 20, parallelism, topics=topics) == size << 20


def test_topics_are_counted_by_their_queues(log: LogWriter, tmp_path: Path) -> None:
    for name in ("a", "b", "SCHEDULE_TOPIC_XXXX"):
        (log.root / "consumequeue" / name).mkdir(parents=True)
    assert count_topics(*open_filesystem(str(log.root)), ReadOptions()) == 2
    assert count_topics(*open_filesystem(str(log.root / "commitlog")), ReadOptions(topics=("a",))) == 1
    assert count_topics(*open_filesystem(str(tmp_path / "copy" / "commitlog")), ReadOptions()) == 0


def test_directory_names_are_safe() -> None:
    assert partition_directory("%RETRY%a|b") == "topic=%25RETRY%25a%7Cb"
    assert partition_directory("plain-Topic_1") == "topic=plain-Topic_1"


def test_a_topic_that_has_hive_s_name_for_none_is_found_again(tmp_path: Path) -> None:
    """Spark compares what is escaped; pyarrow what is not, and has to be told another name."""
    log, out = LogWriter(tmp_path / "store"), tmp_path / "out"
    topic = "__HIVE_DEFAULT_PARTITION__"
    log.append(b"x", topic=topic.encode())
    run(log.root, out)
    assert [path.name for path in out.glob("topic=*")] == ["topic=%5F_HIVE_DEFAULT_PARTITION__"]
    hive = ds.HivePartitioning.discover(null_fallback="none")
    files = [str(path) for path in out.glob("topic=*/*.parquet")]
    table = ds.dataset(files, partitioning=hive, partition_base_dir=str(out)).to_table()
    assert table.column("topic").to_pylist() == [topic]


@pytest.mark.parametrize("topic", ["%" * 127, "%2A" * 42, "%%41|" * 25])
def test_a_topic_s_name_of_any_length_is_a_directory_s(topic: str, tmp_path: Path) -> None:
    """Else one message of such a topic would stop all replays of its log."""
    log = LogWriter(tmp_path / "store")
    log.append(b"x", topic=topic.encode())
    run(log.root, tmp_path / "out")
    assert [row["topic"] for row in written(tmp_path / "out")] == [topic]


def test_an_empty_store_writes_nothing(tmp_path: Path) -> None:
    report = run(stores.unpack("empty", tmp_path), tmp_path / "out")
    assert (report.manifest, report.messages) == (None, 0)


def test_row_groups_are_compressed_and_body_has_no_dictionary(log: LogWriter, tmp_path: Path) -> None:
    run(log.root, tmp_path / "out")
    path = next((tmp_path / "out" / "topic=orders").glob("*.parquet"))
    metadata = pq.ParquetFile(path).metadata
    columns = {metadata.row_group(0).column(i).path_in_schema: metadata.row_group(0).column(i) for i in range(19)}
    assert columns["body"].compression == "ZSTD"
    assert "RLE_DICTIONARY" not in columns["body"].encodings
    assert "RLE_DICTIONARY" in columns["storeHost"].encodings
