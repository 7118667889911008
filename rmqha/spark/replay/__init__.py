"""The replay job: a store's messages into Parquet or JSON lines by topic, each exactly once over all runs."""

from rmqha.spark.replay.job import replay
from rmqha.spark.replay.options import OutputFormat, ReplayOptions
from rmqha.spark.replay.report import Progress, ReplayDamageError, ReplayReport, UnplacedFilesError

__all__ = [
    "OutputFormat",
    "Progress",
    "ReplayDamageError",
    "ReplayOptions",
    "ReplayReport",
    "UnplacedFilesError",
    "replay",
]
