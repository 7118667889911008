"""ExpiryClock: how old a file is, by a wall clock that may jump.

RocketMQ goes by the wall clock alone: one that jumps days ahead, as a wrong time server or hand makes it, has segments
of minutes deleted at the next hour of ``deleteWhen``. Beside it runs a clock that only counts, and what jumps have
added is not counted for what was written before them.
"""

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

import structlog
import trio

from rmqha.log_limit import LogLimit

logger = structlog.get_logger()

_JUMP_MS: Final = 60_000
"""Less than this is how clocks are kept right."""
_EPOCHS_MAX: Final = 256


class _Epoch(NamedTuple):
    """From one jump to the next: which times the wall clock showed, and by how many ms it jumped then."""

    begin_ms: float
    end_ms: int
    jump_ms: int


class ExpiryClock:
    """Ages by ``now_ms()``, in ms since 1970, less what jumps that :meth:`look` has seen have added since.

    A file's date may have been shown several times, by a clock that was set back: then the youngest of these counts.
    Nothing is ever older than by the wall clock. What happened before the first look, and so before the broker was
    started, nobody can tell: that clock is believed. Where a jump was right, as when a machine that began in 1970 hears
    the time, files of before the jump are counted by the time that passed, and those that are dated later as ever.
    """

    def __init__(self, now_ms: Callable[[], int], *, kept_ms: float = inf) -> None:
        """``kept_ms``: what is older need not be told apart."""
        self._now_ms: Final = now_ms
        self._kept_ms: Final = kept_ms
        self._seen: tuple[int, int] | None = None
        self._begun_ms = -inf
        self._epochs: list[_Epoch] = []
        """Those before this one, oldest first."""
        self._net_ms = 0
        self._lines: Final = LogLimit(burst=3)

    def look(self) -> None:
        """Compare the clocks; the more often, the fewer files that were written after a jump are taken for older."""
        wall_ms, steady_ms = self._now_ms(), round(trio.current_time() * 1000)
        if self._seen is not None:
            seen_ms, seen_steady_ms = self._seen
            passed_ms = steady_ms - seen_steady_ms
            jump_ms = wall_ms - seen_ms - passed_ms
            if abs(jump_ms) >= _JUMP_MS:
                self._note(_Epoch(self._begun_ms, seen_ms + passed_ms, jump_ms))
                self._begun_ms = wall_ms - passed_ms
        self._seen = wall_ms, steady_ms
        self._forget(wall_ms)

    @property
    def jumped_ms(self) -> int:
        """By how much it has jumped ahead since the first look, and not back; 0 if it is where it was, or behind."""
        return max(0, self._net_ms)

    def age_ms(self, written_ms: float) -> float:
        """How long ago something was written that is dated ``written_ms``; negative: the clock is behind that."""
        self.look()
        since_ms = added_ms = 0
        for epoch in reversed(self._epochs):
            since_ms += epoch.jump_ms
            if epoch.begin_ms <= written_ms <= epoch.end_ms:
                added_ms = max(added_ms, since_ms)
        return self._now_ms() - written_ms - added_ms

    def _note(self, epoch: _Epoch) -> None:
        self._epochs.append(epoch)
        self._net_ms += epoch.jump_ms
        if len(self._epochs) > _EPOCHS_MAX:
            self._join_two()
        self._lines.log(
            logger.warning,
            "clock.jumped",
            by_s=round(epoch.jump_ms / 1000),
            consequence="until the next start, what was written before expires by the time that really passes",
            next="have the clock right before that; see docs/operations.md, 'A clock that jumps'",
        )

    def _join_two(self) -> None:
        """Those with the least jump between them are one, at whose end both jumps are: that makes nothing older."""
        jumps = [abs(epoch.jump_ms) for epoch in self._epochs[:-1]]
        at = jumps.index(min(jumps))
        one, other = self._epochs[at : at + 2]
        begin_ms, end_ms = min(one.begin_ms, other.begin_ms), max(one.end_ms, other.end_ms)
        self._epochs[at : at + 2] = [_Epoch(begin_ms, end_ms, one.jump_ms + other.jump_ms)]

    def _forget(self, wall_ms: int) -> None:
        """What was written in these has expired, whatever its date in them."""
        since_ms = sum(epoch.jump_ms for epoch in self._epochs)
        while self._epochs and wall_ms - self._epochs[0].end_ms - since_ms > self._kept_ms:
            since_ms -= self._epochs.pop(0).jump_ms
