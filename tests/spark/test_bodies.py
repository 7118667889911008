"""Inflated bodies need memory for one batch of them, however many a block holds compressed."""

import tracemalloc
import zlib

import pyarrow as pa
import pytest

from rmqha.spark import bodies
from rmqha.spark.bodies import inflate_batch

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
