"""Inflated bodies need memory for one batch of them, however many a block holds compressed."""

import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from rmqha.spark import ReadReport, bodies
from rmqha.spark.bodies import inflate_batch
from rmqha.spark.schema import COLUMNS
from tests.spark.logs import LogWriter
from tests.spark.readers import read

SIZE = 1 << 20


def test_what_was_delivered_is_held_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small messages that grow a thousand times, a block of 8 MiB would fill any machine."""
    monkeypatch.setattr(bodies, "_BATCH_BYTES_MAX", 2 * SIZE)
    rows = pa.record_batch({"body": pa.array([zlib.compress(bytes(SIZE))] * 40, pa.binary())})
    flags, count = pa.array([1] * 40, pa.int32()), 0
    tracemalloc.start()
    try:
        for part, failed in inflate_batch(rows, flags, size_max=2 * SIZE):
            assert failed == 0
            assert part.column("body")[0].as_buffer().size == SIZE
            count += part.num_rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 40
    assert peak < 10 * SIZE


@pytest.mark.parametrize(
    "columns", [("sysFlag",), ("topic", "sysFlag", "queueId"), ("sysFlag", "body"), ("value", "sysFlag"), None]
)
def test_what_a_flag_says_does_not_depend_on_the_columns(
    columns: tuple[str, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a body which was inflated is gone, whether or not somebody wants that body."""
    monkeypatch.setattr(bodies, "_BATCH_BYTES_MAX", 3000)
    log, report = LogWriter(tmp_path), ReadReport()
    for body, flag in (
        (b"plain", 0),
        (zlib.compress(bytes(900)), 1),
        (zlib.compress(bytes(9000)), 1),
        (b"no zlib", 1),
    ) * 9:
        log.append(body, sys_flag=flag)
    rows = read(tmp_path, report, decompress=True, inflated_bytes_max=1000, columns=columns)
    assert [row["sysFlag"] for row in rows] == [0, 0, 1, 1] * 9
    assert {tuple(row) for row in rows} == {columns or tuple(COLUMNS.names)}
    assert report.not_inflated == 18
    assert [row["sysFlag"] & 1 for row in read(tmp_path, columns=columns)] == [0, 1, 1, 1] * 9
