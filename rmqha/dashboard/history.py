"""The last hour of a broker as numbers, for charts. Pure: who samples tells when."""

from collections import deque
from typing import Final

from rmqha.cli.top_samples import Sample
from rmqha.dashboard.bounded import number

SPAN_S: Final = 3600.0
COLUMNS: Final = (
    "timeMs", "putTps", "getTps", "bytesPerSecond", "putP99Ms", "replicaLagSeconds", "consumerLag",
)  # fmt: skip
Point = tuple[float | None, ...]


class History:
    """Points of :data:`COLUMNS`, oldest first; those of the last hour, and no more than that many."""

    def __init__(self, *, interval_s: float) -> None:
        self._points: Final = deque[Point](maxlen=int(SPAN_S / interval_s) + 1)

    def add(self, sample: Sample, *, time_ms: int) -> None:
        """One more; of a broker that did not answer it says only when."""
        if sample.trouble:
            self._points.append((time_ms, *[None] * (len(COLUMNS) - 1)))
            return
        values = (
            sample.put_tps,
            sample.get_tps,
            sample.bytes_per_s,
            sample.put_p99_ms,
            sample.replica_lag_s,
            sample.consumer_lag,
        )
        self._points.append((time_ms, *(_rounded(number(value)) for value in values)))

    def since(self, time_ms: float) -> list[Point]:
        """Those after ``time_ms``."""
        return [point for point in self._points if (point[0] or 0) > time_ms]


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value
