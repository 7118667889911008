"""ExpiryClock: how old a file is, by a wall clock that may jump.

RocketMQ goes by the wall clock alone: one that jumps days ahead, as a wrong time server or hand makes it, has segments
of minutes deleted at the next hour of ``deleteWhen``. Beside it runs a clock that only counts, and what a jump added is
not counted for what was written before it.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

logger = structlog.get_logger()

_JUMP_MS: Final = 60_000
"""Less than this is how clocks are kept right."""
_JUMPS_MAX: Final = 16


class ExpiryClock:
    """Ages by ``now_ms()``, in ms since 1970, less the jumps ahead that :meth:`look` has seen.

    A clock that is set back takes back the jumps before it, the latest first, and nothing grows older by it. What
    happened before the first look, and so before the broker was started, nobody can tell: that clock is believed. Where
    a jump was right, as when a machine that began in 1970 hears the time, files of before the jump are counted by the
    time that passed, and those that are dated later than it as ever.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms: Final = now_ms
        self._seen: tuple[int, int] | None = None
        self._jumps: list[tuple[int, int]] = []
        """Of each, oldest first, the last time that may be from before it, and by how many ms it went ahead."""

    def look(self) -> None:
        """Compare the clocks; the more often, the fewer files that were written after a jump are taken for older."""
        wall_ms, steady_ms = self._now_ms(), round(trio.current_time() * 1000)
        if self._seen is not None:
            seen_ms, seen_steady_ms = self._seen
            believed_ms = seen_ms + steady_ms - seen_steady_ms
            ahead_ms = wall_ms - believed_ms
            if abs(ahead_ms) >= _JUMP_MS:
                self._note(believed_ms, ahead_ms)
        self._seen = wall_ms, steady_ms

    @property
    def jumped_ms(self) -> int:
        """By how much it has jumped ahead and not back; 0 without a jump."""
        return sum(by_ms for _, by_ms in self._jumps)

    def age_ms(self, written_ms: float) -> float:
        """How long ago something was written that is dated ``written_ms``; negative: the clock is behind that."""
        self.look()
        return self._now_ms() - written_ms - sum(by_ms for until_ms, by_ms in self._jumps if written_ms <= until_ms)

    def _note(self, until_ms: int, ahead_ms: int) -> None:
        left_ms = -ahead_ms
        while left_ms > 0 and self._jumps:
            last_until_ms, by_ms = self._jumps.pop()
            if by_ms > left_ms:
                self._jumps.append((last_until_ms, by_ms - left_ms))
            left_ms -= by_ms
        if ahead_ms > 0:
            self._jumps.append((until_ms, ahead_ms))
            if len(self._jumps) > _JUMPS_MAX:
                (_, first_ms), (second_until_ms, second_ms), *rest = self._jumps
                self._jumps = [(second_until_ms, first_ms + second_ms), *rest]
        logger.warning(
            "clock.jumped",
            by_s=round(ahead_ms / 1000),
            consequence="what was written before expires by the time that really passes, until the next start",
            next="have the clock set right before that; see docs/operations.md, 'A clock that jumps'",
        )
