"""StatsItem: a count that only grows, and how much of it was of the last minute, hour and day.

Source: rocketmq-all-4.9.8 StatsItem.java.
"""

from array import array
from typing import Final, NamedTuple

MINUTE, HOUR, DAY = 0, 1, 2
"""The spans."""
SAMPLES: Final = (7, 7, 25)
"""Most of each span: every ten seconds, every ten minutes, every hour."""
INTERVALS_S: Final = (10.0, 600.0, 3600.0)


class StatsSnapshot(NamedTuple):
    """What was added within a span."""

    sum: int
    tps: float
    avgpt: float
    """What was added at one time, on the average."""


class StatsItem:
    """One count. Some hundred bytes: there is one for each topic and group, of several kinds."""

    __slots__ = ("_samples", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        """How often something was added."""
        self._samples = tuple(array("d", (0.0, 0.0, 0.0)) for _ in SAMPLES)
        """Of each span: when, ``value`` and ``times``, one behind the other."""

    def add(self, value: int, times: int = 1) -> None:
        """So much more, at so many times."""
        self.value += value
        self.times += times

    def begin(self, now_s: float) -> None:
        """Nothing was counted a sample ago, as RocketMQ has it."""
        for span, interval_s in enumerate(INTERVALS_S):
            self._samples[span][0] = now_s - interval_s

    def sample(self, span: int, now_s: float) -> None:
        """Remember this moment."""
        samples = self._samples[span]
        samples.extend((now_s, self.value, self.times))
        if len(samples) > 3 * SAMPLES[span]:
            del samples[:3]

    def snapshot(self, span: int) -> StatsSnapshot:
        """Between the first and the last sample of the span."""
        samples = self._samples[span]
        added, times = int(samples[-2] - samples[1]), int(samples[-1] - samples[2])
        took_s = samples[-3] - samples[0]
        return StatsSnapshot(added, added / took_s if took_s else 0.0, added / times if times else 0.0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was added for a day."""
        samples = self._samples[DAY]
        return len(samples) == 3 * SAMPLES[DAY] and samples[1] == self.value
