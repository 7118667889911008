"""RefusedTopics: topics for which there was no room, so that an operator hears of it and not their senders alone."""

from typing import Any, Final

import structlog

logger = structlog.get_logger()

_LINE_EVERY_MS: Final = 60_000


class RefusedTopics:
    """How many there were since the start, of a name perhaps many.

    Attributes:
        count: their number.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last_at_ms = 0
        self._told_at_ms: int | None = None
        self._reason = ""

    def note(self, topic: str, reason: str, *, now_ms: int) -> None:
        """One more; a line in the log for the first of a minute."""
        self.count += 1
        self._last_at_ms, self._reason = now_ms, reason
        if self._told_at_ms is None or not 0 <= now_ms - self._told_at_ms < _LINE_EVERY_MS:
            self._told_at_ms = now_ms
            told = "raise maxQueues" if "maxQueues" in reason else "delete topics that nobody needs"
            logger.warning("topic.not_made", topic=topic, reason=reason, refused=self.count, next=told)

    def facts(self, *, now_ms: int) -> dict[str, Any] | None:
        """``{"count": 2, "last_s_ago": 12, "reason": "topic t is not made: ..."}``; None without any."""
        if not self.count:
            return None
        return {"count": self.count, "last_s_ago": (now_ms - self._last_at_ms) // 1000, "reason": self._reason}
