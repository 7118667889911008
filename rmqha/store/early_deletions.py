"""EarlyDeletions: segments that a crowded disk cost before they had expired, with messages that nobody may have read.

RocketMQ does so, too (cleanFileForciblyEnable), in silence. Here an operator sees it, in `rmqha status`, as a metric
and as an alert.
"""

from typing import Any


class EarlyDeletions:
    """How many there were since the start.

    Attributes:
        segments: their number.
    """

    def __init__(self) -> None:
        self.segments = 0
        self._last_at = 0.0

    def note(self, *, now: float) -> None:
        """One more is gone. ``now`` is any clock in seconds, the same for :meth:`facts`."""
        self.segments += 1
        self._last_at = now

    def last_s_ago(self, *, now: float) -> int | None:
        """For how many seconds none was deleted; None: there was none."""
        return int(now - self._last_at) if self.segments else None

    def facts(self, *, now: float) -> dict[str, Any] | None:
        """``{"segments": 2, "last_s_ago": 12.5}``; None without any."""
        return {"segments": self.segments, "last_s_ago": round(now - self._last_at, 3)} if self.segments else None
