"""What a reader met on its way: counts, and every corrupt range by its offsets."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

TOPICS_MET_MAX: Final = 10_000


class CorruptRange(NamedTuple):
    """Bytes ``[start, end)`` of the log that are no good record, and why."""

    start: int
    end: int
    reason: str


@dataclass
class ReadReport:
    """Grows while batches are read; complete when the iterator is exhausted.

    Attributes:
        begin: where reading began; not always a record's start.
        first: physical offset of the first record that was walked over; None: none yet.
        last: offset and size of the last one.
        next: where the next run continues; ``[first, next)`` holds records and blanks only, save ``corrupt``.
        records: records walked over, before any filter; damaged ones are not counted.
        messages: records delivered.
        not_inflated: delivered bodies that are flagged compressed but could not be decompressed.
        corrupt: damaged ranges that were skipped or stopped at.
        deleted: records of wanted topics that are left out since their topic was deleted.
        system: records that are left out since their topic is a broker's own, where topics are not chosen.
        bytes_asked_for: of the log, by the splits.
        bytes_read: of them, and of consume queues.
        unfinished: why reading ended before what lies last in the log; empty: nothing does, or less was asked for.
        topics_met: where topics are chosen by name, those of all records; at most 10,000 of a task.
    """

    begin: int = 0
    first: int | None = None
    last: tuple[int, int] | None = None
    next: int = 0
    records: int = 0
    messages: int = 0
    not_inflated: int = 0
    corrupt: list[CorruptRange] = field(default_factory=list)
    deleted: int = 0
    system: int = 0
    bytes_asked_for: int = 0
    bytes_read: int = 0
    unfinished: str = ""
    topics_met: set[str] = field(default_factory=set)
