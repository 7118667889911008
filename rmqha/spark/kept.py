"""What of a split is read, and what has to be true of the log, or all of it is; see ``queue_pruning``."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqha.spark.columns import Rows
from rmqha.spark.lane_walk import Positions


class Unit(NamedTuple):
    """A record's start, and which message of how many bytes the queue that names it says to lie there."""

    start: int
    topic: str
    queue_id: int
    queue_offset: int
    size: int


@dataclass(frozen=True)
class Named:
    """Messages that queues name: ``queue_offsets`` of the queue whose topic and id have that number in ``names``."""

    names: list[tuple[str, int]]
    queues: Positions
    queue_offsets: Positions

    def holds_any(self, rows: Rows) -> bool:
        """Whether one of these records is among them."""
        ids, offsets = rows.fields.column("queue_id"), rows.fields.column("queue_offset")
        codes = rows.topics.indices.to_numpy(zero_copy_only=False)
        topics = {topic.decode(errors="replace"): code for code, topic in enumerate(rows.topics.dictionary.to_pylist())}
        for number, (topic, queue_id) in enumerate(self.names):
            if (code := topics.get(topic)) is not None:
                of_queue = offsets[(codes == code) & (ids == queue_id)]
                if np.isin(of_queue, self.queue_offsets[self.queues == number]).any():
                    return True
        return False


class Kept(NamedTuple):
    """What of a split is to be read.

    Attributes:
        start: where the first record of the split begins; None: the queues do not tell.
        ranges: bytes ``[begin, end)``, ascending, none touching the next; each begins at a record or a blank.
        stop: where the first record behind the split begins, if what is passed over reaches to its end; else its end.
        lasts: the last record of each stretch that is passed over, by that one's end.
        witnesses: records that have to be where they are named, or nothing of this is true.
        gaps: bytes ``[begin, end)`` between records that queues name; none of those may lie here.
        named: the messages that queues name in the split.
        cost: of looking at witnesses and gaps, in bytes that could be read meanwhile.
    """

    start: int | None
    ranges: list[tuple[int, int]]
    stop: int
    lasts: dict[int, Unit]
    witnesses: list[Unit]
    gaps: list[tuple[int, int]]
    named: Named
    cost: int
