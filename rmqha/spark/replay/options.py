"""What one run of the replay job is told."""

from dataclasses import dataclass, field
from enum import StrEnum

from rmqha.spark.confirmed import Masters
from rmqha.spark.options import ReadOptions


class OutputFormat(StrEnum):
    """How messages are written."""

    PARQUET = "parquet"
    JSON = "json"


@dataclass(frozen=True)
class ReplayOptions:
    """One run.

    Attributes:
        store: a store's root or commitlog directory; a path or a ``pyarrow.fs`` URI.
        out: the output's root, likewise. A later run goes on in the same place.
        read: filters and choices. Start bounds count for the first run only; later ones go on where it ended.
        format: Parquet (zstd) or JSON lines.
        master: Spark's master; None: spark-submit's, else all cores of this machine.
        masters: who says what replicas hold, if no more than that is to be replayed.
        allow_gap: go on although files between the last run's end and the log's start have been deleted.
    """

    store: str
    out: str
    read: ReadOptions = field(default_factory=ReadOptions)
    format: OutputFormat = OutputFormat.PARQUET
    master: str | None = None
    masters: Masters | None = None
    allow_gap: bool = False
