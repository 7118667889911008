"""Streams with Spark 4.1, which limits no batch and does not say where the last one ended."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from rmqha.errors import ConfigError, StoreError
from rmqha.spark import datasource
from rmqha.spark.datasource import RmqhaDataSource
from rmqha.spark.source_options import parse_options
from rmqha.spark.stream import UnlimitedStreamReader
from tests.spark.logs import LogWriter
from tests.spark.stream_readers import offsets_between


def reader(root: Path, **options: str) -> UnlimitedStreamReader:
    return UnlimitedStreamReader(parse_options({"path": str(root), **options}), ("physicalOffset",))


def test_batches_join_without_gap_or_duplicate_whoever_reads_them(log: LogWriter) -> None:
    at, found = reader(log.root).initialOffset(), list[int]()
    for _ in range(3):
        end = reader(log.root).latestOffset()
        found += offsets_between(reader(log.root), at, end)
        assert offsets_between(reader(log.root), end, reader(log.root).latestOffset()) == []
        at = end
        for _ in range(100):
            log.append(b"more" * 100)
    assert found == [at for at in log.offsets if at < log.offsets[-100]]


def test_a_first_batch_that_is_repeated_has_the_same_range(log: LogWriter) -> None:
    """Spark asks for its end before it asks where to start, and then once more where to start."""
    stream = reader(log.root, startingOffsets="latest")
    stream.latestOffset()
    log.append(b"one")
    end = stream.latestOffset()
    log.append(b"two")
    start = reader(log.root, startingOffsets="latest").initialOffset()
    assert offsets_between(stream, start, end) == log.offsets[-2:-1]
    again = reader(log.root, startingOffsets="latest")
    assert offsets_between(again, again.initialOffset(), end) == log.offsets[-2:-1]
    later = stream.latestOffset()
    assert "from" in end["broker"]
    assert "from" not in later["broker"], "where a first batch begins, and no other"
    assert offsets_between(stream, end, later) == log.offsets[-1:]
    assert stream.latestOffset() == later, "nothing new is no batch"


def test_nothing_new_behind_a_first_batch_is_no_batch(log: LogWriter) -> None:
    """Its end says where it began, and Spark compares that, too."""
    stream = reader(log.root)
    end = stream.latestOffset()
    assert offsets_between(stream, stream.initialOffset(), end) == log.offsets
    assert stream.latestOffset() == end
    log.append(b"one")
    assert stream.latestOffset() != end


@pytest.mark.parametrize("is_added", [False, True])
def test_a_first_batch_that_is_repeated_is_missing_what_was_deleted_meanwhile(is_added: bool, log: LogWriter) -> None:
    end = reader(log.root).latestOffset()
    log.path(0).unlink()
    again = reader(log.root)
    start = {} if is_added else again.initialOffset()
    with pytest.raises(StoreError, match="were deleted"):
        again.partitions(start, end)


def test_a_query_that_goes_on_has_a_batch_once_something_is_new(log: LogWriter) -> None:
    """Spark has it plan an empty one first, up to where it is; a first one's end says where that began."""
    end = reader(log.root).latestOffset()
    stream = reader(log.root)
    assert offsets_between(stream, end, end) == []
    assert stream.latestOffset() == end
    new = log.append(b"new")
    assert offsets_between(stream, end, stream.latestOffset()) == [new]


def test_a_first_batch_of_a_broker_that_was_added_says_where_it_began(log: LogWriter, tmp_path: Path) -> None:
    """Repeated once a file of it had expired it was shorter, silently. ``latest`` is for new queries."""

    def both() -> UnlimitedStreamReader:
        path = json.dumps({"a": str(log.root), "b": str(other.root)})
        return UnlimitedStreamReader(parse_options({"path": path, "startingOffsets": "latest"}), ("physicalOffset",))

    other = LogWriter(tmp_path / "b")
    while other.end < 2 * other.file_size:
        other.append(bytes(900))
    start = {"a": reader(log.root).latestOffset()["broker"]}
    stream = both()
    stream.partitions(start, start)
    end = json.loads(json.dumps(stream.latestOffset()))
    assert offsets_between(stream, start, end) == other.offsets
    assert stream.latestOffset() == end
    other.path(0).unlink()
    again = both()
    again.partitions(start, start)
    with pytest.raises(StoreError, match="were deleted"):
        again.partitions(start, end)


def test_a_query_that_goes_on_need_not_be_able_to_start(log: LogWriter) -> None:
    start = reader(log.root).latestOffset()
    log.path(0).unlink()
    log.append(b"one")
    stream = reader(log.root, startingOffsets='{"broker": 0}')
    assert offsets_between(stream, start, stream.latestOffset()) == log.offsets[-1:]


def test_a_file_that_expires_while_the_start_is_looked_for_ends_no_query(
    log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired() -> None:
        raise FileNotFoundError(log.path(0))

    stream = reader(log.root)
    monkeypatch.setattr(stream, "_starts", expired)
    end = stream.latestOffset()
    assert offsets_between(stream, {"broker": 0}, end) == log.offsets


def test_a_log_that_was_cut_is_no_new_one(log: LogWriter) -> None:
    at = reader(log.root).latestOffset()
    log.write(log.offsets[-5], bytes(log.end - log.offsets[-5]))
    with pytest.raises(StoreError):
        reader(log.root).partitions(at, reader(log.root).latestOffset())


def test_what_it_cannot_do_is_refused(log: LogWriter) -> None:
    """Rather than done otherwise: a batch of all there is, or of what a failover may cut."""
    with pytest.raises(ConfigError, match=r"maxBytesPerTrigger: .*pyspark>=4\.2"):
        reader(log.root, maxBytesPerTrigger="1m")
    with pytest.raises(ConfigError, match=r"until=confirmed: .*pyspark>=4\.2"):
        reader(log.root, until="confirmed", addresses="127.0.0.1:10911")


@pytest.mark.parametrize(
    ("name", "value"),
    [("endingOffsets", "100"), ("endingOffsets", '{"broker": 100}'), ("endingTimestamp", "2026-11-21T10:00:00Z")],
)
@pytest.mark.parametrize("is_limited", [False, True])
def test_an_end_is_refused(
    log: LogWriter, name: str, value: str, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than passed over, with what lies behind it in the sink; whichever Spark it is."""
    source = RmqhaDataSource({"path": str(log.root), name: value})
    if not is_limited:
        monkeypatch.setattr(datasource, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=rf"{name} is for a batch.*trigger\(availableNow=True\)"):
        source.streamReader(source.schema())
    latest = RmqhaDataSource({"path": str(log.root), "endingOffsets": "latest"})
    assert latest.streamReader(latest.schema())


@pytest.mark.parametrize("is_limited", [False, True])
def test_to_end_quietly_at_damage_is_refused(log: LogWriter, is_limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch went on behind it, and good messages of the one before were in none."""
    source = RmqhaDataSource({"path": str(log.root), "onCorrupt": "stop"})
    if not is_limited:
        monkeypatch.setattr(datasource, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"onCorrupt=stop is for a batch.*skip"):
        source.streamReader(source.schema())


def test_an_older_spark_gets_this_one(log: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    source = RmqhaDataSource({"path": str(log.root)})
    assert not isinstance(source.streamReader(source.schema()), UnlimitedStreamReader)
    monkeypatch.setattr(datasource, "find_spec", lambda _name: None)
    assert isinstance(source.streamReader(source.schema()), UnlimitedStreamReader)


def test_executors_with_other_packages_read_nothing(log: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch's and a stream's: the driver's own may plan splits that theirs take for something else."""
    monkeypatch.setattr(datasource, "packages", lambda: {"rmqha": "9.9"})
    source, stream = RmqhaDataSource({"path": str(log.root)}), reader(log.root)
    batch = source.reader(source.schema())
    with pytest.raises(StoreError, match=r"rmqha is .*, not 9\.9"):
        list(batch.read(batch.partitions()[0]))
    (partition,) = stream.partitions(stream.initialOffset(), stream.latestOffset())
    with pytest.raises(StoreError, match=r"rmqha is .*, not 9\.9"):
        list(stream.read(partition))
