"""How many lines about peers are logged. Strangers cannot fill a disk, nor one peer that says the same for ever."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import trio

_REPEATED_AFTER_S: Final = 600.0
_KNOWN_MAX: Final = 256


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

    def log(self, say: Callable[..., object], event: str, **facts: Any) -> bool:
        """Log it, with how many were left out before it; or count it, and return False."""
        if not self.take(now=trio.current_time()):
            return False
        left_out, self._left_out = self._left_out, 0
        say(event, **facts, left_out=left_out)
        return True


@dataclass(slots=True)
class _Said:
    at: float
    repeated: int = 0


class RepeatLimit:
    """What was said is said again after ten minutes at the earliest, with how often it would have been meanwhile.

    Invariant: of what was said the last :data:`_KNOWN_MAX` are known.
    """

    def __init__(self, limit: LogLimit | None = None) -> None:
        self._limit: Final = limit or LogLimit()
        self._said: Final[dict[Hashable, _Said]] = {}

    def log(self, say: Callable[..., object], event: str, *, key: Hashable, **facts: Any) -> None:
        """Log it unless what has this ``key`` was said a short while ago; all together as :class:`LogLimit`."""
        now, known = trio.current_time(), self._said.get(key)
        if known is not None and now < known.at + _REPEATED_AFTER_S:
            known.repeated += 1
            return
        if not self._limit.log(say, event, **facts, repeated=0 if known is None else known.repeated):
            return
        self._said.pop(key, None)
        self._said[key] = _Said(now)
        if len(self._said) > _KNOWN_MAX:
            del self._said[next(iter(self._said))]
