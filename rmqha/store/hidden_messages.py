"""HiddenMessages: messages in the log to which no consume queue leads any more, because their queue began anew.

They lie before their queue's 0th message (store/outlived.py). An operator sees how many there are, in `rmqha status`
and as a metric, until the log's files with them are deleted. A start counts them again, from the log.
"""

from typing import Any, Final

_NAMED_MAX: Final = 10

_Queue = tuple[str, int]


class HiddenMessages:
    """How many there are of each queue: as many as there were when that began anew."""

    def __init__(self) -> None:
        self._queues: Final[dict[_Queue, tuple[int, int, int]]] = {}
        """Their number, the offset of the log before which they lie, and the end of their positions."""

    def note(self, queue: _Queue, messages: int, *, before: int, end: int) -> None:
        """So many more messages of this queue, all before that offset of the log; what is known already is not added.

        Records may be dispatched twice, and the offset tells: one queue begins anew at one offset once.
        ``end``: behind the positions of all of them.
        """
        known, known_before, known_end = self._queues.get(queue, (0, 0, 0))
        if messages > 0 and before > known_before:
            self._queues[queue] = known + messages, before, max(end, known_end)

    def end_of(self, queue: _Queue) -> int:
        """Behind the positions that hidden messages of this queue had; 0 if there are none."""
        return self._queues[queue][2] if queue in self._queues else 0

    def clear(self) -> None:
        """All that is counted is dispatched again."""
        self._queues.clear()

    def forget(self, queue: _Queue) -> None:
        """They are deleted with their topic."""
        self._queues.pop(queue, None)

    def facts(self, *, log_begins_at: int, log_ends_at: int) -> dict[str, Any] | None:
        """``{"messages": 5, "queues": {"TopicTest/0": 5}}``, some ten queues with the most of them; None without any.

        What lay before a log's beginning is gone, and so is what lay behind the end of one that began elsewhere.
        """
        for queue in [key for key, (_, before, _) in self._queues.items() if not log_begins_at < before < log_ends_at]:
            del self._queues[queue]
        if not self._queues:
            return None
        most = sorted(self._queues.items(), key=lambda item: item[1], reverse=True)[:_NAMED_MAX]
        return {
            "messages": sum(messages for messages, _, _ in self._queues.values()),
            "queues": {f"{topic}/{queue_id}": messages for (topic, queue_id), (messages, _, _) in most},
        }
