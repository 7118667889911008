"""StatsItem: messages and bytes that only grow, and how much of them was of the last minute, hour and day.

Source: rocketmq-all-4.9.8 StatsItem.java.
"""

from array import array
from typing import Final, NamedTuple

MINUTE, HOUR, DAY = 0, 1, 2
"""The spans."""
SAMPLES: Final = (7, 7, 25)
"""Most of each span: every ten seconds, every ten minutes, every hour."""
INTERVALS_S: Final = (10.0, 600.0, 3600.0)
NUMS, SIZE = 1, 2
"""What is counted, by its place in a sample."""
_AT, _TIMES, _WIDTH = 0, 3, 4


class StatsSnapshot(NamedTuple):
    """What was added within a span."""

    sum: int
    tps: float
    avgpt: float
    """What was added at one time, on the average."""


class StatsItem:
    """The counts of one topic, or of one group and topic. Some hundred bytes.

    Attributes:
        nums: messages.
        size: their bytes.
        times: how often something was added.
    """

    __slots__ = ("_samples", "nums", "size", "times")

    def __init__(self) -> None:
        self.nums = self.size = self.times = 0
        self._samples = tuple(array("d", [0.0] * _WIDTH) for _ in SAMPLES)
        """Of each span: when, and the counts of then, one behind the other."""

    def add(self, nums: int, size: int) -> None:
        """So much more, at one time."""
        self.nums += nums
        self.size += size
        self.times += 1

    def begin(self, now_s: float) -> None:
        """Nothing was counted a sample ago, as RocketMQ has it."""
        for span, interval_s in enumerate(INTERVALS_S):
            self._samples[span][_AT] = now_s - interval_s

    def sample(self, span: int, now_s: float) -> None:
        """Remember this moment."""
        samples = self._samples[span]
        samples.extend((now_s, self.nums, self.size, self.times))
        if len(samples) > _WIDTH * SAMPLES[span]:
            del samples[:_WIDTH]

    def snapshot(self, span: int, what: int = NUMS, *, now_s: float) -> StatsSnapshot:
        """From the first sample of the span to now. RocketMQ's ends with the last sample, up to an hour ago."""
        samples, present = self._samples[span], self.size if what == SIZE else self.nums
        added, times = present - int(samples[what]), self.times - int(samples[_TIMES])
        took_s = now_s - samples[_AT]
        return StatsSnapshot(added, added / took_s if took_s > 0 else 0.0, added / times if times else 0.0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was added for a day."""
        samples = self._samples[DAY]
        return len(samples) == _WIDTH * SAMPLES[DAY] and samples[_TIMES] == self.times
