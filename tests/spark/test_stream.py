"""``spark.readStream.format("rmqha")``: the reader's contract, and real queries that are stopped and go on."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.1 has no limits")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from rmqha.errors import ConfigError, CorruptLogError, StoreError
from rmqha.spark.commit_log import CommitLog
from rmqha.spark.datasource import RmqhaReader
from rmqha.spark.limited_stream import RmqhaStreamReader
from rmqha.spark.position import from_json
from rmqha.spark.source_options import parse_options
from tests.spark.logs import LedgerWriter, LogWriter, record
from tests.spark.stream_readers import offsets_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


def reader(root: Path, **options: str) -> RmqhaStreamReader:
    return RmqhaStreamReader(parse_options({"path": str(root), **options}), ("physicalOffset",))


def places(offsets: dict[str, Any]) -> dict[str, int]:
    """The physical offsets in an offset of the stream."""
    return {broker: from_json(position).offset for broker, position in offsets.items()}


def test_limited_batches_join_without_gap_or_duplicate(log: LogWriter) -> None:
    """Every batch ends at a record's start, about as far as asked."""
    stream = reader(log.root, maxBytesPerTrigger="3000")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxBytes(3000)
    at, found = stream.initialOffset(), list[int]()
    while (end := stream.latestOffset(at, limit)) != at:
        assert places(end)["broker"] - places(at)["broker"] < 3000 + 1000 or places(end)["broker"] % log.file_size == 0
        found += offsets_between(stream, at, end)
        at = end
    assert found == log.offsets


@pytest.mark.parametrize("brokers", [2, 3])
def test_a_limit_is_for_all_brokers_together(brokers: int, log: LogWriter, tmp_path: Path) -> None:
    """One that has nothing new leaves its share; each log is read as a whole, in order."""
    logs = {"broker-0": log}
    for number in range(1, brokers):
        logs[f"broker-{number}"] = LogWriter(tmp_path / f"of-{number}")
        for size in (500, 30, 700) * 10 * number:
            logs[f"broker-{number}"].append(bytes(size))
    roots = json.dumps({broker: str(each.root) for broker, each in logs.items()})
    stream = RmqhaStreamReader(parse_options({"path": roots, "maxBytesPerTrigger": "9000"}), ("physicalOffset",))
    at = stream.initialOffset()
    assert set(places(at).values()) == {0}
    found = {broker: list[int]() for broker in logs}
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        parts = {broker: places(end)[broker] - places(at)[broker] for broker in logs}
        ends_file = any(one % log.file_size == 0 for one in places(end).values())
        assert sum(parts.values()) < 9000 + 1000 * brokers or ends_file
        for broker in logs:
            one = {**at, broker: end[broker]}
            found[broker] += offsets_between(stream, at, one)
        at = end
    assert found == {broker: each.offsets for broker, each in logs.items()}


def test_a_torn_tail_waits_for_its_end(log: LogWriter) -> None:
    stream = reader(log.root)
    tail = record(log.end, b"torn")
    log.write(log.end, tail[:100])
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert places(end) == {"broker": log.end}
    log.write(log.end, tail)
    assert places(stream.latestOffset(end, ReadAllAvailable())) == {"broker": log.end + len(tail)}


def test_a_file_may_roll_between_planning_and_reading(log: LogWriter) -> None:
    stream = reader(log.root)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for _ in range(200):
        log.append(b"later" * 100)
    assert offsets_between(stream, stream.initialOffset(), end) == [
        at for at in log.offsets if at < places(end)["broker"]
    ]
    later = stream.latestOffset(end, ReadAllAvailable())
    assert offsets_between(stream, end, later) == [at for at in log.offsets if at >= places(end)["broker"]]


def test_damage_where_the_last_batch_ended_is_met(log: LogWriter) -> None:
    stream = reader(log.root)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for _ in range(10):
        log.append(b"later")
    log.write(places(end)["broker"] + 4, b"\0")
    with pytest.raises(CorruptLogError):
        offsets_between(stream, end, stream.latestOffset(end, ReadAllAvailable()))


def test_available_now_ends_where_the_log_ended(log: LogWriter) -> None:
    stream = reader(log.root)
    stream.prepareForTriggerAvailableNow()
    before = log.end
    log.append(b"too late")
    assert places(stream.latestOffset(stream.initialOffset(), ReadAllAvailable())) == {"broker": before}


def test_available_now_ends_where_a_record_does_though_the_log_was_cut_meanwhile(log: LogWriter) -> None:
    """It ended where the log before had: within another record, from where no query could go on."""
    stream = reader(log.root)
    start = stream.latestOffset(stream.initialOffset(), ReadMaxBytes(3000))
    stream.prepareForTriggerAvailableNow()
    before, cut_at = log.end, log.offsets[-20]
    log.write(cut_at, bytes(log.end - cut_at))
    log.end, log.offsets = cut_at, log.offsets[:-20]
    for _ in range(40):
        log.append(b"of another size" * 11)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert before < places(end)["broker"] < log.end
    assert places(end)["broker"] in log.offsets
    found = offsets_between(stream, start, end)
    later = reader(log.root)
    found += offsets_between(later, end, later.latestOffset(end, ReadAllAvailable()))
    assert found == [at for at in log.offsets if at >= places(start)["broker"]]


def test_available_now_ends_though_what_it_was_to_end_at_has_been_deleted(log: LogWriter) -> None:
    """It followed a log that grew for as long as that went on."""
    stream = reader(log.root, failOnDataLoss="false")
    start = stream.latestOffset(stream.initialOffset(), ReadMaxBytes(3000))
    stream.prepareForTriggerAvailableNow()
    planned = log.end
    while log.end < 4 * log.file_size:
        log.append(b"written later" * 10)
    for base in range(0, planned + 1, log.file_size):
        log.path(base).unlink()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert places(end) == {"broker": planned - planned % log.file_size + log.file_size}
    log.append(b"and later")
    assert stream.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_stream_that_begins_before_a_slave_has_its_first_file_reads_all_that_comes(
    starting: str, log: LogWriter, tmp_path: Path
) -> None:
    """A slave's log begins at its master's oldest file: that was taken for files that are deleted, at each start."""
    log.path(0).unlink()
    slave = tmp_path / "slave"
    (slave / "commitlog").mkdir(parents=True)
    stream = reader(slave, startingOffsets=starting)
    start = json.loads(json.dumps(stream.initialOffset()))
    assert json.loads(json.dumps(stream.latestOffset(start, ReadAllAvailable()))) == start
    shutil.copytree(log.root, slave, dirs_exist_ok=True)
    for each in (stream, reader(slave, startingOffsets=starting)):
        end = each.latestOffset(start, ReadAllAvailable())
        assert offsets_between(each, start, end) == [at for at in log.offsets if at >= log.file_size]


@pytest.mark.parametrize("how", ["other records", "shorter", "no file"])
def test_a_log_that_is_cut_while_tasks_read_it_is_told(how: str, log: LogWriter) -> None:
    """They gave records of two logs as one batch."""
    stream = reader(log.root)
    batch = RmqhaReader(parse_options({"path": str(log.root)}), ("physicalOffset",), cores=1)
    start = stream.initialOffset()
    plans = [stream.partitions(start, stream.latestOffset(start, ReadAllAvailable())), batch.partitions()]
    last = log.offsets[-1]
    if how == "other records":
        log.write(last, record(last, b"o" * (log.end - last - len(record(last, b"")))))
    elif how == "shorter":
        log.write(last, bytes(log.end - last))
    else:
        log.path(last).unlink()
    for read, (partition,) in zip((stream.read, batch.read), plans, strict=True):
        with pytest.raises(StoreError, match="was cut while it was read" if how == "other records" else None):
            list(read(partition))


def test_it_is_a_warning_where_loss_is_accepted(log: LogWriter, caplog: pytest.LogCaptureFixture) -> None:
    stream = reader(log.root, failOnDataLoss="false")
    start = stream.initialOffset()
    (partition,) = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    assert not caplog.records
    last = log.offsets[-1]
    log.write(last, record(last, b"o" * (log.end - last - len(record(last, b"")))))
    assert sum(batch.num_rows for batch in stream.read(partition)) == len(log.offsets)
    assert "commit_log.data_lost: rows may be of two logs" in caplog.text


def test_files_that_are_deleted_once_they_are_read_were_not_cut(log: LogWriter) -> None:
    stream = reader(log.root)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxBytes(log.file_size // 2))
    (partition,) = stream.partitions(start, end)
    batches = stream.read(partition)
    found = next(batches).num_rows
    log.path(0).unlink()
    assert found + sum(batch.num_rows for batch in batches) == len(
        [at for at in log.offsets if at < places(end)["broker"]]
    )


def test_a_broker_that_is_added_is_read_from_its_start(log: LogWriter, tmp_path: Path) -> None:
    """Its oldest file may begin anywhere. One that the checkpoint knows and the path does not is an error."""
    other = LogWriter(tmp_path / "other", end=3 * log.file_size)
    other.append(b"there all along")
    both = RmqhaStreamReader(
        parse_options({"path": json.dumps({"a": str(log.root), "b": str(other.root)})}), ("physicalOffset",)
    )
    start = {"a": log.end}
    end = both.latestOffset(start, both.getDefaultReadLimit())
    assert places(end) == {"a": log.end, "b": other.end}
    assert offsets_between(both, start, end) == other.offsets
    with pytest.raises(ConfigError, match="has broker 'c'"):
        both.latestOffset({"c": 0}, both.getDefaultReadLimit())


def test_deleted_files_are_data_loss(
    log: LogWriter, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error by default; else the stream goes on with the oldest file there is, and warns."""
    stream = reader(log.root)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    log.path(0).unlink()
    with pytest.raises(StoreError, match="were deleted"):
        stream.partitions(start, end)
    with pytest.raises(StoreError, match="were deleted"):
        stream.latestOffset(start, ReadAllAvailable())
    lenient = reader(log.root, failOnDataLoss="false")
    assert offsets_between(lenient, start, end) == [at for at in log.offsets if at >= log.file_size]
    assert {(record.name, record.getMessage().partition(":")[0]) for record in caplog.records} == {
        ("rmqha.spark", "commit_log.data_lost")
    }
    assert capsys.readouterr().out == "", "what the caller prints is his"


def test_a_first_batch_that_is_repeated_is_missing_what_was_deleted_meanwhile(
    log: LogWriter, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark asks once more where to start: it went on with the oldest file that was left, and nobody was told."""
    first, limit = reader(log.root), ReadAllAvailable()
    end = json.loads(json.dumps(first.latestOffset(first.initialOffset(), limit)))
    log.path(0).unlink()
    again = reader(log.root)
    with pytest.raises(StoreError, match="were deleted"):
        again.partitions(again.initialOffset(), end)
    lenient = reader(log.root, failOnDataLoss="false")
    rest = [at for at in log.offsets if at >= log.file_size]
    assert offsets_between(lenient, lenient.initialOffset(), end) == rest
    assert [entry.getMessage().partition(":")[0] for entry in caplog.records] == ["commit_log.data_lost"]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_first_batch_that_is_repeated_has_the_same_range(starting: str, log: LogWriter) -> None:
    def more() -> None:
        for _ in range(50):
            log.append(b"more" * 30)

    first, limit = reader(log.root, startingOffsets=starting), ReadAllAvailable()
    start = first.initialOffset()
    more()
    end = first.latestOffset(start, limit)
    found = offsets_between(first, start, end)
    more()
    again = reader(log.root, startingOffsets=starting)
    assert (
        offsets_between(again, again.initialOffset(), end)
        == found
        == log.offsets[-100 if starting == "latest" else 0 : -50]
    )
    assert offsets_between(again, end, again.latestOffset(end, limit)) == log.offsets[-50:]


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "of before the mark"])
@pytest.mark.parametrize("brokers", ["ab", "b"])
@pytest.mark.parametrize("starting", ["latest", '{"a": -1, "b": -1}'])
def test_a_first_batch_that_had_nothing_of_a_broker_is_repeated_without_what_came_since(
    starting: str, brokers: str, marked: bool, tmp_path: Path
) -> None:
    """The query was killed before that batch was committed; where it would start now lies behind that batch's end."""
    logs = {name: LogWriter(tmp_path / name) for name in brokers}
    for log in logs.values():
        log.append(b"before")

    def stream() -> RmqhaStreamReader:
        path = json.dumps({name: str(log.root) for name, log in logs.items()})
        start = json.dumps(dict.fromkeys(brokers, -1)) if starting != "latest" else starting
        return RmqhaStreamReader(parse_options({"path": path, "startingOffsets": start}), ("physicalOffset",))

    first = stream()
    start = first.initialOffset()
    expected = [log.append(b"new") for name, log in logs.items() if name == "a"]
    end = json.loads(json.dumps(first.latestOffset(start, ReadMaxBytes(1 << 20))))
    if not marked:
        end = {name: {key: known for key, known in one.items() if key != "first"} for name, one in end.items()}
    since = [log.append(b"since") for log in logs.values()]
    again = stream()
    assert offsets_between(again, again.initialOffset(), end) == expected
    assert offsets_between(again, end, again.latestOffset(end, ReadMaxBytes(1 << 20))) == since


def test_a_first_batch_that_had_nothing_of_a_dledger_member_is_repeated_as_it_was(tmp_path: Path) -> None:
    """Where more is committed since; of a member that knows less that would be an error."""
    log = LedgerWriter(tmp_path)
    log.put(b"before")
    log.commit()
    first = reader(tmp_path, startingOffsets="latest")
    end = json.loads(json.dumps(first.latestOffset(first.initialOffset(), ReadMaxBytes(1 << 20))))
    since = [log.put(b"since")]
    log.commit()
    again = reader(tmp_path, startingOffsets="latest")
    assert offsets_between(again, again.initialOffset(), end) == []
    assert offsets_between(again, end, again.latestOffset(end, ReadMaxBytes(1 << 20))) == since


def test_a_first_batch_of_a_broker_that_was_added_is_missing_what_was_deleted_meanwhile(
    log: LogWriter, tmp_path: Path
) -> None:
    other = LogWriter(tmp_path / "other")
    other.append(b"there all along")
    path = json.dumps({"a": str(log.root), "b": str(other.root)})
    both = RmqhaStreamReader(parse_options({"path": path}), ("physicalOffset",))
    start = {"b": other.end}
    end = both.latestOffset(start, ReadAllAvailable())
    log.path(0).unlink()
    with pytest.raises(StoreError, match="were deleted"):
        both.partitions(start, end)


def test_a_broker_that_was_added_before_its_first_file_is_read_from_there(log: LogWriter, tmp_path: Path) -> None:
    """A slave's begins where its master's oldest does; the batch before that was killed, and is repeated."""

    def both() -> RmqhaStreamReader:
        path = json.dumps({"a": str(log.root), "b": str(tmp_path / "b")})
        return RmqhaStreamReader(parse_options({"path": path}), ("physicalOffset",))

    LogWriter(tmp_path / "b")
    start, limit = {"a": log.end}, ReadAllAvailable()
    log.append(b"one")
    end = json.loads(json.dumps(both().latestOffset(start, limit)))
    first = LogWriter(tmp_path / "b", end=3 * log.file_size).append(b"first")
    again = both()
    assert offsets_between(again, start, end) == log.offsets[-1:]
    assert offsets_between(again, end, again.latestOffset(end, limit)) == [first]


def test_what_was_empty_at_the_start_is_missed_once_a_batch_was_to_have_it(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    first, limit = reader(log.root), ReadAllAvailable()
    start = first.initialOffset()
    while log.end < 3 * log.file_size:
        log.append(bytes(900))
    end = first.latestOffset(start, limit)
    assert offsets_between(first, start, end) == log.offsets
    log.path(0).unlink()
    with pytest.raises(StoreError, match="were deleted"):
        reader(log.root).partitions(start, end)


def test_nothing_new_is_no_batch(log: LogWriter) -> None:
    """Spark compares all of an offset."""
    stream, limit = reader(log.root), ReadAllAvailable()
    start = stream.initialOffset()
    end = stream.latestOffset(start, limit)
    assert stream.latestOffset(end, limit) == end
    assert offsets_between(stream, end, end) == []


def test_files_deleted_after_planning_are_data_loss(log: LogWriter) -> None:
    """What is still there is read, also by the task that meets the gap."""
    strict, lenient = reader(log.root), reader(log.root, failOnDataLoss="false")
    start = strict.initialOffset()
    (partition,) = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    told = [parse_options({"path": str(log.root), "failOnDataLoss": said}) for said in ("true", "false")]
    strict_batch, lenient_batch = (RmqhaReader(one, ("physicalOffset",), cores=1) for one in told)
    (of_batch,) = strict_batch.partitions()
    log.path(0).unlink()
    for read, part in ((strict.read, partition), (strict_batch.read, of_batch)):
        with pytest.raises(StoreError, match="deleted before they were read"):
            list(read(part))
    for read, part in ((lenient.read, partition), (lenient_batch.read, of_batch)):
        found = [at for batch in read(part) for at in batch.column(0).to_pylist()]
        assert found == [at for at in log.offsets if at >= log.file_size]


def test_a_log_that_was_cut_is_data_loss(log: LogWriter) -> None:
    """Something else will be written at these offsets: a checkpoint beyond the end must not be taken for progress."""
    stream = reader(log.root)
    with pytest.raises(StoreError, match="cut or replaced"):
        stream.latestOffset({"broker": log.end + 4096}, ReadAllAvailable())


def test_a_batch_of_a_log_that_was_cut_then_goes_on_with_what_is_there_if_so_told(log: LogWriter) -> None:
    """Spark asks for the batch it had planned, again at every start: nothing may stand where its end was."""
    start, planned = {"broker": log.offsets[10]}, {"broker": log.end}
    end = log.offsets[290]
    log.write(end, bytes(log.file_size - end % log.file_size))
    for at in range(end + log.file_size, log.end + log.file_size, log.file_size):
        log.path(at).unlink(missing_ok=True)
    with pytest.raises(StoreError, match="failOnDataLoss=false"):
        offsets_between(reader(log.root), start, planned)
    assert offsets_between(reader(log.root, failOnDataLoss="false"), start, planned) == log.offsets[10:290]


def test_a_stream_that_runs_while_the_log_is_cut_goes_on_at_its_end_if_so_told(log: LogWriter) -> None:
    """It knows an end from before the cut: what is written up to there is not passed over."""
    stream = reader(log.root, failOnDataLoss="false")
    at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    cut = log.offsets[290]
    for base in range(cut - cut % log.file_size, log.end, log.file_size):
        log.write(max(cut, base), bytes(base + log.file_size - max(cut, base)))
    log.end = cut
    at = stream.latestOffset(at, ReadAllAvailable())
    assert places(at) == {"broker": cut}
    for _ in range(3):
        later = [log.append(b"later") for _ in range(5)]
        start, at = at, stream.latestOffset(at, ReadAllAvailable())
        assert offsets_between(stream, start, at) == later


def test_other_records_at_the_same_places_are_data_loss(log: LogWriter) -> None:
    """A log was cut, and grew again with records of the same sizes: before a batch's start, or within it."""
    stream = reader(log.root)
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for _ in range(20):
        log.append(b"first" * 20)
    planned = stream.latestOffset(start, ReadAllAvailable())
    for at in log.offsets[310:]:
        log.write(at, record(at, b"other" * 20))
    with pytest.raises(StoreError, match=r"another record is at .* cut or replaced"):
        stream.partitions(start, planned)
    assert len(offsets_between(stream, start, stream.latestOffset(start, ReadAllAvailable()))) == 20
    log.write(log.offsets[299], record(log.offsets[299], b"M" * 299))
    with pytest.raises(StoreError, match="another record is at"):
        stream.latestOffset(start, ReadAllAvailable())


def test_checkpoints_without_anchors_go_on(log: LogWriter) -> None:
    """As rmqha 0.1 wrote them; an idle stream makes no batch of the difference."""
    stream = reader(log.root)
    assert stream.latestOffset({"broker": log.end}, ReadAllAvailable()) == {"broker": log.end}
    end = stream.latestOffset({"broker": log.offsets[250]}, ReadAllAvailable())
    assert offsets_between(stream, {"broker": log.offsets[250]}, end) == log.offsets[250:]


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [([7], "for each broker"), ({"other": 7}, "broker 'other'"), ({"broker": "7"}, "where a position")],
)
def test_a_checkpoint_that_was_written_by_hand_is_told(log: LogWriter, offsets: Any, reason: str) -> None:
    """Whichever of its two ends it is."""
    stream, whole = reader(log.root), {"broker": log.offsets[3]}
    for start, end in ((offsets, whole), (whole, offsets)):
        with pytest.raises(ConfigError, match=f"the checkpoint has.*{reason}"):
            stream.partitions(start, end)
    with pytest.raises(ConfigError, match=f"the checkpoint has.*{reason}"):
        stream.latestOffset(offsets, ReadAllAvailable())


def test_a_replayed_file_that_was_deleted_is_not_missed(log: LogWriter, tmp_path: Path) -> None:
    """All of it was read but the blank at its end: only closed files were there to be read."""
    archive = tmp_path / "archive" / "commitlog"
    archive.mkdir(parents=True)
    shutil.copy(log.path(0), archive)
    stream = reader(archive)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert places(end)["broker"] < log.file_size
    (archive / log.path(0).name).unlink()
    shutil.copy(log.path(log.file_size), archive)
    later = stream.latestOffset(end, ReadAllAvailable())
    assert offsets_between(stream, end, later) == [at for at in log.offsets if at >= log.file_size]


@pytest.mark.parametrize(("options", "first"), [({"startingOffsets": "latest"}, 300), ({"startingOffsets": "1"}, 1)])
def test_a_query_starts_where_it_was_told(log: LogWriter, options: dict[str, str], first: int) -> None:
    expected = log.offsets[first] if first < 300 else log.end
    assert reader(log.root, **options).initialOffset()["broker"]["offset"] == expected


def test_a_query_goes_on_from_its_checkpoint(spark: "SparkSession", log: LogWriter, tmp_path: Path) -> None:
    """Run, append, run again: every message once."""

    def run() -> None:
        frame = spark.readStream.format("rmqha").option("maxBytesPerTrigger", "40k").load(str(log.root))
        writer = frame.select("physicalOffset").writeStream.format("parquet").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "ckpt")).start(str(tmp_path / "out")).awaitTermination()

    run()
    for index in range(100):
        log.append(b"again %d" % index)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["physicalOffset"] for row in rows) == log.offsets


def test_a_stream_of_a_dledger_log_goes_on_with_what_is_committed(spark: "SparkSession", tmp_path: Path) -> None:
    log = LedgerWriter(tmp_path / "store")
    messages = [log.put(bytes(500)) for _ in range(200)]

    def run() -> None:
        frame = spark.readStream.format("rmqha").option("maxBytesPerTrigger", "40k").load(str(log.root))
        writer = frame.select("physicalOffset").writeStream.format("parquet").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "ckpt")).start(str(tmp_path / "out")).awaitTermination()

    for committed in (120, 120, 199):
        log.commit(committed)
        run()
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(row["physicalOffset"] for row in rows) == messages[: committed + 1]


def test_a_file_that_expires_while_a_batch_is_planned_ends_no_stream(
    log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and gone when it was looked into: a bare FileNotFoundError, after which the query was over."""
    first, second, *_ = sorted((log.root / "commitlog").iterdir())
    start_at = CommitLog.start_at

    def expires(self: CommitLog, position: int) -> int:
        first.unlink(missing_ok=True)
        return start_at(self, position)

    monkeypatch.setattr(CommitLog, "start_at", expires)
    stream = reader(log.root)
    start = stream.initialOffset()
    assert places(start) == {"broker": int(second.name)}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert offsets_between(stream, start, end) == [at for at in log.offsets if at >= int(second.name)]
