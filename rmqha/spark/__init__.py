"""Replay: commitlog files to Arrow, Spark and Parquet. Never imports trio, never touches a running broker.

:func:`iter_batches` needs numpy and pyarrow only; Spark is imported by ``datasource``, ``session`` and the job
when they are used, so that a notebook with duckdb or polars never starts a JVM.
"""

from rmqha.spark.batches import iter_batches
from rmqha.spark.options import OnCorrupt, ReadOptions
from rmqha.spark.report import CorruptRange, ReadReport

__all__ = ["CorruptRange", "OnCorrupt", "ReadOptions", "ReadReport", "iter_batches"]
