"""What came of a series of sends: counts by status, and how long they took. Pure."""

from array import array
from collections import Counter
from typing import Any, Final

from rmqha.cli.pages import Page

SEND_OK = "SEND_OK"
_STORED: Final = {
    "SLAVE_NOT_AVAILABLE": "too few slaves follow",
    "FLUSH_SLAVE_TIMEOUT": "no slave acknowledged in time",
    "FLUSH_DISK_TIMEOUT": "the disk did not confirm in time",
}
"""What else a broker answers of a message that its log holds, and why that is less than SEND_OK."""


class SendReport:
    """Counts every answer; times are from the send to its answer."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.bytes_sent = 0
        self.sent_again = 0
        """Messages that were tried more than once: consumers may see them twice."""
        self._latencies_s = array("d")
        self._less_safe_at = dict[str, None]()
        """The brokers whose answer was neither SEND_OK nor a refusal."""

    def add(self, status: str, *, latency_s: float, body_size: int, broker: str = "") -> None:
        """Count one message's answer; ``broker`` is the address of who gave it, if that is known."""
        self.counts[status] += 1
        self.bytes_sent += body_size
        self._latencies_s.append(latency_s)
        if broker and status in _STORED:
            self._less_safe_at[broker] = None

    @property
    def total(self) -> int:
        """How many were answered, whatever the answer."""
        return self.counts.total()

    @property
    def all_ok(self) -> bool:
        """Whether every message was answered SEND_OK."""
        return self.total == self.counts[SEND_OK]

    def advice(self, addresses: tuple[str, ...]) -> str:
        """What the answers mean that are neither SEND_OK nor a refusal, and what next; empty if there was none.

        Args:
            addresses: that the command was given, perhaps a name server's: asked is who answered, if that is known.
        """
        less = [why for status, why in _STORED.items() if self.counts[status]]
        if not less:
            return ""
        count = sum(self.counts[status] for status in _STORED)
        asked = " ".join(f"-b {address}" for address in self._less_safe_at or addresses)
        return (
            f"{count:,} are stored, and not as safe as SEND_OK promises: {', '.join(less)}. "
            f"Next: 'rmqha status {asked}' says why; {Page.NOT_SEND_OK}"
        )

    def as_dict(self, *, elapsed_s: float) -> dict[str, Any]:
        """Return the figures; times in milliseconds, None without messages."""
        ordered = sorted(self._latencies_s)
        return {
            "messages": self.total,
            "statuses": dict(self.counts.most_common()),
            "sentAgain": self.sent_again,
            "elapsedSeconds": round(elapsed_s, 3),
            "messagesPerSecond": round(self.total / elapsed_s, 1) if elapsed_s > 0 else None,
            "bytesPerSecond": round(self.bytes_sent / elapsed_s) if elapsed_s > 0 else None,
            "p50Ms": _percentile_ms(ordered, 0.5),
            "p99Ms": _percentile_ms(ordered, 0.99),
            "maxMs": _percentile_ms(ordered, 1.0),
        }

    def as_text(self, *, elapsed_s: float) -> str:
        """Return one line for each status, and one with the times."""
        figures = self.as_dict(elapsed_s=elapsed_s)
        lines = [f"{status:<24}{count:>12,}" for status, count in self.counts.most_common()]
        if self.total:
            lines.append(
                f"p50 {figures['p50Ms']:.2f} ms   p99 {figures['p99Ms']:.2f} ms   max {figures['maxMs']:.2f} ms   "
                f"{self.total / max(elapsed_s, 1e-9):,.0f} msg/s"
            )
        if self.sent_again:
            lines.append(f"{self.sent_again:,} were sent again after an error, and may be stored twice")
        return "\n".join(lines) or "nothing was sent"


def _percentile_ms(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 3)
