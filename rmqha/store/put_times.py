"""PutTimes: how long messages took from their append to their answer, minute by minute.

Source: spec: remoting §2.7 (28); rocketmq-all-4.9.8 StoreStatsService.java.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, inf
from operator import add, sub
from typing import Final

_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
"""Milliseconds, and how many buckets of that width follow each other."""
_BOUNDS: Final = (*accumulate(width for width, count in _STEPS for _ in range(count)), inf)
_LIMITS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_NAMES: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
"""As RocketMQ writes them: its exporter takes them apart."""
_FINE_MS: Final = (2, 5, 10, 20)
"""Of what took less than this the fine buckets tell; whole milliseconds are counted, so a bucket ends at its bound."""
_RECENT: Final = 10
"""Samples."""


class PutTimes:
    """Counts puts by their time, a whole batch at once.

    Told are the last whole minute, as in RocketMQ, all since the start, and what is recent: since ten samples ago.
    """

    def __init__(self) -> None:
        self.longest_ms = 0
        """Since the start."""
        self.total_s = 0.0
        """Of all puts since the start."""
        self._now, self._last, self._before = ([0] * len(_BOUNDS) for _ in range(3))
        self._coarse_now, self._coarse_last, self._coarse_before = ([0] * len(_NAMES) for _ in range(3))
        """This minute, the last one, and all before this one."""
        self._samples: Final = deque[list[int]](maxlen=_RECENT)
        """All since the start, as it was at each of the last samples."""

    def add(self, elapsed_s: float, puts: int) -> None:
        """So many puts took so long."""
        elapsed_ms = int(elapsed_s * 1000)
        if elapsed_ms <= 0:  # most, where nobody waits for a disk or a slave
            self._now[0] += puts
            self._coarse_now[0] += puts
            self.total_s += elapsed_s * puts
            return
        self.total_s += elapsed_s * puts
        self.longest_ms = max(self.longest_ms, elapsed_ms)
        self._now[bisect_left(_BOUNDS, elapsed_ms)] += puts
        self._coarse_now[bisect_right(_LIMITS, elapsed_ms)] += puts

    def _all(self) -> list[int]:
        return list(map(add, self._before, self._now))

    def sample(self) -> None:
        """Remember this moment; called every second."""
        self._samples.append(self._all())

    def recent_latency_ms(self, share: float) -> float | None:
        """What such a share of the recent puts took at most, interpolated; None if there was none."""
        counts = list(map(sub, self._all(), self._samples[0])) if self._samples else self._all()
        return min(_latency_ms(counts, share), max(self.longest_ms, 1)) if any(counts) else None

    def end_minute(self) -> None:
        """What was counted since the last call is told from now on."""
        self._before = self._all()
        self._coarse_before = list(map(add, self._coarse_before, self._coarse_now))
        self._last, self._now = self._now, [0] * len(_BOUNDS)
        self._coarse_last, self._coarse_now = self._coarse_now, [0] * len(_NAMES)

    @property
    def count(self) -> int:
        """All puts since the start."""
        return sum(self._coarse_before) + sum(self._coarse_now)

    def histogram(self) -> list[tuple[float, int]]:
        """How many puts, since the start, took less than so many seconds: ascending, the last bound is infinite."""
        passed = list(accumulate(self._all()))
        coarse = list(accumulate(map(add, self._coarse_before, self._coarse_now)))
        told = dict(zip((*_LIMITS, inf), coarse, strict=True))
        told |= {limit: passed[bisect_left(_BOUNDS, limit - 1)] for limit in _FINE_MS}
        return [(limit / 1000, told[limit]) for limit in sorted(told)]

    def distribution(self) -> str:
        """How many of the last minute took how long, in RocketMQ's form."""
        return "".join(f"{name}:{count} " for name, count in zip(_NAMES, self._coarse_last, strict=True))

    def latency_ms(self, share: float) -> float:
        """What such a share of the last minute's puts took at most, interpolated; 0 if there was none."""
        return _latency_ms(self._last, share)


def _latency_ms(counts: Sequence[int], share: float) -> float:
    wanted, passed, before = ceil(sum(counts) * share), 0, 0.0
    for bound, count in zip(_BOUNDS, counts, strict=True):
        if wanted <= passed + count:
            width = bound - before if bound != inf else 0.0
            return before + (width * (wanted - passed) / count if count else 0.0)
        passed, before = passed + count, bound
    return before
