"""DeletedTopic: which messages of a log are deleted, as ``deletedTopics`` in a table of topics says (decision 13)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqha.codec.queue_table import decode_ends, decode_number, decode_topic

_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """One topic, which may have been made again since."""

    before: int
    """None of its messages that are deleted lies at or behind this offset of the log."""
    ends: Mapping[int, int]
    """By queue: no message before this one is there any more."""

    def keys(self, topic: str) -> dict[tuple[str, int], int]:
        """The ends by queue of a store."""
        return {(topic, queue_id): end for queue_id, end in self.ends.items()}

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
