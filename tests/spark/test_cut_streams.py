"""Streams whose log went on in another way than where they had seen it end; and limits that are less than a record."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.1 has no limits")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqha.errors import CorruptLogError, StoreError
from rmqha.spark.limited_stream import RmqhaStreamReader
from rmqha.spark.position import from_json
from rmqha.spark.source_options import parse_options
from tests.spark.logs import LogWriter
from tests.spark.stream_readers import offsets_between

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


def test_an_end_of_before_a_cut_is_no_end_within_what_was_written_since(log: LogWriter) -> None:
    """A query that is far behind has seen it; a new record lies over it, and is the last one, or is not."""
    stream = RmqhaStreamReader(parse_options({"path": str(log.root)}), ("physicalOffset",))
    start, before = stream.initialOffset(), log.end
    assert from_json(stream.latestOffset(start, ReadAllAvailable())["broker"]).offset == before
    cut = log.offsets[290]
    assert cut // log.file_size == before // log.file_size
    log.write(cut, bytes(before - cut))
    del log.offsets[290:]
    log.end = cut
    log.append(b"l" * (before - cut))
    assert cut < before < log.end
    at, found = start, list[int]()
    for _ in range(2):
        end = stream.latestOffset(at, ReadAllAvailable())
        assert from_json(end["broker"]).offset == log.end
        found += offsets_between(stream, at, end)
        at = end
        log.append(b"later")
    assert found == log.offsets[:-1]


@pytest.mark.parametrize("limit", ["1", "2", "3"])
def test_a_limit_of_less_than_a_byte_for_each_broker_lets_a_stream_go_on(
    limit: str, log: LogWriter, tmp_path: Path
) -> None:
    """By a record of each log at a time."""
    logs = {"a": log, "b": LogWriter(tmp_path / "b"), "c": LogWriter(tmp_path / "c")}
    for each in (logs["b"], logs["c"]):
        for _ in range(5):
            each.append(b"m")
    roots = json.dumps({broker: str(each.root) for broker, each in logs.items()})
    stream = RmqhaStreamReader(parse_options({"path": roots, "maxBytesPerTrigger": limit}), ("physicalOffset",))
    at, found = stream.initialOffset(), list[int]()
    for _ in range(5):
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        found += offsets_between(stream, at, end)
        at = end
    assert sorted(found) == sorted(offset for each in logs.values() for offset in each.offsets[:5])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_end_that_is_within_another_record_since_is_gone_on_behind_it_if_so_told(
    is_restarted: bool, log: LogWriter
) -> None:
    """No record begins there any more: read on from there, all would be damage, at every start."""

    def reader() -> RmqhaStreamReader:
        return RmqhaStreamReader(parse_options({"path": str(log.root), "failOnDataLoss": "false"}), ("physicalOffset",))

    stream = reader()
    at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    before, cut = log.end, log.offsets[290]
    assert cut // log.file_size == before // log.file_size
    log.write(cut, bytes(before - cut))
    log.end = cut
    over = log.append(b"l" * (before - cut))
    assert over < before < log.end
    later = [log.append(b"later") for _ in range(5)]
    found = list[int]()
    for _ in range(2):
        stream = reader() if is_restarted else stream
        end = stream.latestOffset(at, ReadAllAvailable())
        assert from_json(end["broker"]).offset == log.end
        found += offsets_between(stream, at, end)
        at = end
        later.append(log.append(b"later"))
    assert found == later[:-1]


def test_a_log_that_is_cut_behind_the_plan_of_a_batch_is_not_told_as_damage(log: LogWriter) -> None:
    """Other records lie there since, and none begins where the batch does: an operator would look for a bad disk."""
    stream = RmqhaStreamReader(parse_options({"path": str(log.root)}), ("physicalOffset",))
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for _ in range(20):
        log.append(b"m" * 300)
    parts = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    cut, before = log.offsets[290], log.end
    assert cut // log.file_size == before // log.file_size
    log.write(cut, bytes(before - cut))
    log.end = cut
    while log.end < before + 1000:
        log.append(b"y" * 411)
    with pytest.raises(StoreError, match="was cut while it was read"):
        list(stream.read(parts[0]))


def test_damage_is_damage_though_the_log_was_cut_behind_it(log: LogWriter) -> None:
    """Nothing would have named it, nor the rows of its split behind it."""
    stream = RmqhaStreamReader(parse_options({"path": str(log.root), "failOnDataLoss": "false"}), ("physicalOffset",))
    start = stream.initialOffset()
    parts = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    log.write(log.offsets[3] + 88, b"\x7f")
    cut = log.offsets[-1]
    log.write(cut, bytes(log.end - cut))
    with pytest.raises(CorruptLogError, match=f"at physical offset {log.offsets[3]}"):
        list(stream.read(parts[0]))
