"""LogLimit: how many lines about peers are logged. Strangers cannot fill a disk."""

from collections.abc import Callable
from typing import Any

import trio


class LogLimit:
    """Some lines at once, then one a second, whatever peers do."""

    def __init__(self, *, burst: int = 20) -> None:
        self._burst = burst
        self._left = float(burst)
        self._as_of = 0.0
        self._left_out = 0

    def take(self, *, now: float) -> bool:
        """Whether one more may be logged. ``now`` is any clock in seconds that does not go back."""
        self._left = min(self._burst, self._left + now - self._as_of)
        self._as_of = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        return True

    def log(self, say: Callable[..., object], event: str, **facts: Any) -> None:
        """Log it, with how many were left out before it; or count it."""
        if self.take(now=trio.current_time()):
            left_out, self._left_out = self._left_out, 0
            say(event, **facts, left_out=left_out)
