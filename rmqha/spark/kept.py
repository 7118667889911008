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
    """Messages that queues name: by topic and queue id their places in that queue, ascending."""

    queue_offsets: dict[str, dict[int, Positions]]

    @classmethod
    def of(cls, names: list[tuple[str, int]], queues: Positions, queue_offsets: Positions) -> "Named":
        """``queue_offsets`` of the queues whose topic and id have that number in ``names``."""
        order = np.lexsort((queue_offsets, queues))
        bounds = np.searchsorted(queues[order], np.arange(len(names) + 1)).tolist()
        found = dict[str, dict[int, Positions]]()
        for (topic, queue_id), begin, end in zip(names, bounds[:-1], bounds[1:], strict=True):
            if begin < end:
                found.setdefault(topic, {})[queue_id] = queue_offsets[order[begin:end]]
        return cls(found)

    def holds_any(self, rows: Rows) -> bool:
        """Whether one of these records is among them."""
        ids, offsets = rows.fields.column("queue_id"), rows.fields.column("queue_offset")
        codes = rows.topics.indices.to_numpy(zero_copy_only=False)
        for code, topic in enumerate(rows.topics.dictionary.to_pylist()):
            for queue_id, named in self.queue_offsets.get(topic.decode(errors="replace"), {}).items():
                of_queue = offsets[(codes == code) & (ids == queue_id)]
                nearest = np.minimum(np.searchsorted(named, of_queue), named.size - 1)
                if (named[nearest] == of_queue).any():
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
