"""What a store is read as, in one go and in splits."""

from pathlib import Path
from typing import Any

from rmqha.spark import ReadOptions, ReadReport, iter_batches
from rmqha.spark.commit_log import open_log
from rmqha.spark.decoder import decode


def read(root: Path, report: ReadReport | None = None, **options: Any) -> list[dict[str, Any]]:
    """All rows, read with these ReadOptions."""
    batches = iter_batches(str(root), ReadOptions(**options), report=report)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(root: Path, report: ReadReport | None = None, **options: Any) -> list[int]:
    """The physical offsets of all rows."""
    return [row["physicalOffset"] for row in read(root, report, **options)]


def split_offsets(root: Path, split_bytes: int, **options: Any) -> tuple[list[int], ReadReport]:
    """The same, read in splits of this size."""
    log, report = open_log(str(root)), ReadReport()
    splits = log.splits(log.min_offset, log.end, split_bytes=split_bytes)
    read_options = ReadOptions(**options)
    batches = decode(log.filesystem, splits, read_options, deleted=log.deleted(read_options), report=report)
    return [row["physicalOffset"] for batch in batches for row in batch.to_pylist()], report
