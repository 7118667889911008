"""DiscardedHalves: half messages that nobody committed or rolled back, and about which nobody is asked any more.

RocketMQ puts them aside in silence, too. Here an operator sees it, in `rmqha status`, as a metric and as an alert.
"""

from typing import Any


class DiscardedHalves:
    """How many there were since the start.

    Attributes:
        count: their number.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last_at = 0.0

    def note(self, *, now: float) -> None:
        """One more is discarded. ``now`` is any clock in seconds, the same for :meth:`facts`."""
        self.count += 1
        self._last_at = now

    def facts(self, *, now: float) -> dict[str, Any] | None:
        """``{"count": 2, "last_s_ago": 12.5}``; None without any."""
        return {"count": self.count, "last_s_ago": round(now - self._last_at, 3)} if self.count else None
