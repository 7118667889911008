"""Every store that RocketMQ wrote is decoded to what RocketMQ says it holds, field by field."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqha.spark import ReadOptions, ReadReport, iter_batches
from rmqha.spark.commit_log import open_log
from rmqha.spark.decoder import decode
from rmqha.spark.schema import KAFKA_COLUMNS
from tests import stores

ALL = ReadOptions(include_system_topics=True)
SAME = {
    "physicalOffset": "physicalOffset",
    "storeSize": "storeSize",
    "topic": "topic",
    "queueId": "queueId",
    "queueOffset": "queueOffset",
    "flag": "flag",
    "sysFlag": "sysFlag",
    "bornHost": "bornHost",
    "storeHost": "storeHost",
    "reconsumeTimes": "reconsumeTimes",
    "preparedTransactionOffset": "preparedTransactionOffset",
    "bodyCrc": "bodyCRC",
}


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def milliseconds(batches: list[pa.RecordBatch], column: str) -> list[int | None]:
    values = [value for batch in batches for value in batch.column(column).cast(pa.int64()).to_pylist()]
    return [None if value is None else value // 1000 for value in values]


@pytest.mark.parametrize("name", stores.SIDES)
def test_every_field_is_what_rocketmq_says(name: str, tmp_path: Path) -> None:
    """Offsets, hosts, times, properties, bodies: all of them, for every message of the store."""
    report = ReadReport()
    batches = list(iter_batches(str(stores.unpack(name, tmp_path)), ALL, report=report))
    expected = stores.expected_messages(name)
    rows = rows_of(batches)
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert {ours: row[ours] for ours in SAME} == {ours: wanted[theirs] for ours, theirs in SAME.items()}
        assert hashlib.sha256(row["body"]).hexdigest() == wanted["bodySha256"]
        properties = wanted["properties"] or {}
        assert dict(row["properties"]) == properties
        assert (row["keys"], row["tags"]) == (properties.get("KEYS"), properties.get("TAGS"))
    assert milliseconds(batches, "storeTimestamp") == [wanted["storeTimestamp"] for wanted in expected]
    born = [wanted["bornTimestamp"] for wanted in expected]
    assert milliseconds(batches, "bornTimestamp") == [time if time < 1 << 60 else None for time in born]
    assert report.next == stores.expected_log(name)["maxOffset"]
    assert report.messages == report.records == len(expected)


@pytest.mark.parametrize("name", stores.SIDES)
def test_kafka_s_columns_hold_the_same(name: str, tmp_path: Path) -> None:
    """Every message of the store, inflated, under both kinds of names."""
    columns = ("body", "queueId", "queueOffset", "storeTimestamp", "keys", "properties", *KAFKA_COLUMNS.names)
    options = ReadOptions(include_system_topics=True, decompress=True, columns=columns)
    rows = rows_of(list(iter_batches(str(stores.unpack(name, tmp_path)), options)))
    expected = stores.expected_messages(name)
    assert [row["topic"] for row in rows] == [wanted["topic"] for wanted in expected]
    for row in rows:
        assert row["key"] == (None if row["keys"] is None else row["keys"].encode())
        assert (row["value"], row["partition"]) == (row["body"], row["queueId"])
        assert (row["offset"], row["timestamp"]) == (row["queueOffset"], row["storeTimestamp"])
        assert row["timestampType"] == 1
        headers = [(header["key"], header["value"].decode()) for header in row["headers"] or ()]
        assert headers == row["properties"]
        assert (row["headers"] is None) == (row["properties"] == [])


@pytest.mark.parametrize("name", ["basic", "odd", "v6"])
def test_bodies_are_inflated_on_request(name: str, tmp_path: Path) -> None:
    """zlib, LZ4 and Zstd; what does not inflate stays as stored, keeps its flag, and is counted."""
    report = ReadReport()
    options = ReadOptions(include_system_topics=True, decompress=True)
    rows = rows_of(list(iter_batches(str(stores.unpack(name, tmp_path)), options, report=report)))
    expected = stores.expected_messages(name)
    for row, wanted in zip(rows, expected, strict=True):
        key = "bodySha256" if wanted["plainSha256"] is None else "plainSha256"
        assert hashlib.sha256(row["body"]).hexdigest() == wanted[key]
        assert row["sysFlag"] & 1 == (wanted["sysFlag"] & 1 if wanted["plainSha256"] is None else 0)
    assert report.not_inflated == sum(wanted["plainSha256"] is None for wanted in expected)


@pytest.mark.parametrize("name", ["basic", "v6", "burned", "trimmed", "slave/slave"])
@pytest.mark.parametrize("split_bytes", [997, 7919, 65_536])
def test_any_split_gives_the_same_messages(name: str, split_bytes: int, tmp_path: Path) -> None:
    """A split opens at its first record and reads its last one to the end: no gap, no duplicate."""
    log = open_log(str(stores.unpack(name, tmp_path)))
    splits = list(log.splits(log.min_offset, log.end, split_bytes=split_bytes))
    report = ReadReport()
    batches = list(decode(log.filesystem, splits, ALL, deleted={}, report=report))
    offsets = [row["physicalOffset"] for row in rows_of(batches)]
    assert offsets == [wanted["physicalOffset"] for wanted in stores.expected_messages(name)]
