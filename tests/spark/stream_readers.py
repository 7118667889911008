"""What a batch of a stream is read as."""

from typing import Any

from rmqha.spark.stream import LogStreamReader


def offsets_between(stream: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The physical offsets of its rows; the first column."""
    return [
        offset
        for partition in stream.partitions(start, end)
        for batch in stream.read(partition)
        for offset in batch.column(0).to_pylist()
    ]
