"""DeletedTopic: which messages of a log are deleted, as ``deletedTopics`` in a table of topics says (decision 13)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX
from rmqha.codec.queue_table import decode_ends, decode_number, decode_topic

_OFFSET_MAX: Final = 2**63 - 1


class DeletedQueue(NamedTuple):
    """Which messages of one queue are deleted."""

    end: int
    """Only those before this one, in the queue."""
    before: int
    """Only those before this offset of the log: another broker may number messages from 0 again behind it."""

    def holds(self, queue_offset: int, phy_offset: int) -> bool:
        """Whether that message is one of them; a number that none can have is no other broker's, either."""
        return phy_offset < self.before and not self.end <= queue_offset <= QUEUE_OFFSET_MAX


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """One topic, which may have been made again since."""

    before: int
    """None of its messages that are deleted lies at or behind this offset of the log."""
    ends: Mapping[int, int]
    """By queue: no message before this one is there any more, of those that lie before that offset."""

    def queues(self, topic: str) -> dict[tuple[str, int], DeletedQueue]:
        """By topic and queue id, as a store has them."""
        return {(topic, queue_id): DeletedQueue(end, self.before) for queue_id, end in self.ends.items()}

    def to_json(self) -> dict[str, Any]:
        """An entry of ``deletedTopics``."""
        return {"before": self.before, "queues": dict(self.ends)}


def decode_deleted(value: object) -> dict[str, DeletedTopic]:
    """The member ``deletedTopics`` of a table of topics.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is none.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError("deletedTopics are no object")
    return {
        decode_topic(topic): DeletedTopic(
            decode_number(entry["before"], limit=_OFFSET_MAX), decode_ends(entry["queues"])
        )
        for topic, entry in value.items()
    }


def decode_before(value: object) -> int:
    """The member ``deletedBefore``. Raises ValueError: it is none."""
    return 0 if value is None else decode_number(value, limit=_OFFSET_MAX)
