"""ConsumerOffsetManager: how far each group has consumed each queue."""

from typing import Any, Final

TOPIC_GROUP_SEPARATOR: Final = "@"


class ConsumerOffsetManager:
    """``topic@group -> queue -> next offset to consume``. A commit may go backwards: that is how a reset works."""

    def __init__(self) -> None:
        self._table: dict[str, dict[int, int]] = {}
        self.dirty = False
        """The table has changed since it was saved."""

    def commit_offset(self, group: str, topic: str, queue_id: int, *, offset: int) -> None:
        """Remember that ``group`` goes on at ``offset``."""
        self._table.setdefault(topic + TOPIC_GROUP_SEPARATOR + group, {})[queue_id] = offset
        self.dirty = True

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where ``group`` goes on, or None if it never committed."""
        return self._table.get(topic + TOPIC_GROUP_SEPARATOR + group, {}).get(queue_id)

    def to_json(self) -> dict[str, Any]:
        """The table as ``consumerOffset.json`` and the answer to request 43 hold it: queue ids are integer keys."""
        return {"offsetTable": {key: dict(sorted(self._table[key].items())) for key in sorted(self._table)}}

    def replace_from_json(self, value: dict[str, Any]) -> None:
        """Take over a saved table."""
        self._table = {key: _queue_offsets(queues) for key, queues in (value.get("offsetTable") or {}).items()}

    def merge_from_master(self, value: dict[str, Any]) -> None:
        """Take over the master's offsets, keeping a larger one of our own.

        RocketMQ's slave takes the master's value even backwards, so what consumers committed to the slave while
        the master was away is consumed again (spec: ha §12).
        """
        for key, queues in (value.get("offsetTable") or {}).items():
            known = self._table.setdefault(key, {})
            for queue_id, offset in _queue_offsets(queues).items():
                if offset > known.get(queue_id, -1):
                    known[queue_id] = offset
                    self.dirty = True


def _queue_offsets(queues: dict[Any, Any]) -> dict[int, int]:
    return {int(queue_id): int(offset) for queue_id, offset in queues.items()}
