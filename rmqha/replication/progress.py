"""How far behind, in seconds, and how fast: figures for an operator, never for a decision about an acknowledgement."""

from bisect import bisect_right
from math import inf
from typing import Final

_PARTS: Final = 128
"""Steps are kept apart by this part of the time since then: some 2,000 of a year."""


class EndHistory:
    """When the log's end passed which offset: at a resolution of ``resolution_s``, and the coarser the longer ago.

    However long the log grows without a pause, it is known how long ago it was anywhere, to some hundredths of that.
    """

    def __init__(self, *, resolution_s: float = 0.1, size: int = 4096) -> None:
        self._resolution_s = resolution_s
        self._size = size
        self._noted_at: list[float] = []
        self._ends: list[int] = []

    def note(self, end: int, *, now: float) -> None:
        """The log ends at ``end`` now; if it was cut, what was noted of the rest is forgotten."""
        if not self._ends:
            self._noted_at.append(-inf)
            self._ends.append(end)
        elif end > self._ends[-1]:
            if now - self._noted_at[-1] < self._resolution_s:
                self._ends[-1] = end
            else:
                if len(self._ends) >= self._size:
                    self._thin(now)
                self._noted_at.append(now)
                self._ends.append(end)
        elif end < self._ends[-1]:
            while len(self._ends) > 1 and self._ends[-1] > end:
                self._noted_at.pop()
                self._ends.pop()
            self._ends[-1] = min(self._ends[-1], end)

    def _thin(self, now: float) -> None:
        """Have steps that are closer to the one before than their part of the time since then be one with that."""
        noted_at, ends = self._noted_at[:1], self._ends[:1]
        for at, end in zip(self._noted_at[1:], self._ends[1:], strict=True):
            if at - noted_at[-1] >= (now - at) / _PARTS:
                noted_at.append(at)
                ends.append(end)
            else:
                ends[-1] = end
        self._noted_at, self._ends = noted_at, ends

    def lag_s(self, offset: int, *, now: float) -> float:
        """How long the log has gone beyond ``offset``: 0 if it does not, ``inf`` if longer than anything noted."""
        at = bisect_right(self._ends, offset)
        return max(now - self._noted_at[at], 0.0) if at < len(self._ends) else 0.0


class RateMeter:
    """Bytes a second over the last ``window_s`` to twice that; 0 once nothing has come for ``window_s``."""

    def __init__(self, value: int, *, now: float, window_s: float = 5.0) -> None:
        self._window_s = window_s
        self._older = self._newer = self._grew = (now, value)

    def note(self, value: int, *, now: float) -> None:
        """The counter stands at ``value`` now."""
        if value > self._grew[1]:
            self._grew = (now, value)
        if now - self._newer[0] >= self._window_s:
            self._older, self._newer = self._newer, (now, value)

    def rate(self, value: int, *, now: float) -> float:
        """Growth per second up to ``value`` now; 0 if no time has passed."""
        grew_at, grown_to = self._grew
        if value <= grown_to and now - grew_at >= self._window_s:
            return 0.0
        started_at, started = self._older
        return (value - started) / (now - started_at) if now > started_at else 0.0
