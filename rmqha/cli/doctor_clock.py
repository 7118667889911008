"""``rmqha doctor``: whether another broker's clock shows the time that this machine's does."""

import time
from collections.abc import Iterator
from typing import Any, Final

from rmqha.cli.finding import WARN, Finding

_TIME_MS_MAX: Final = 1 << 53
_APART_S: Final = 60
"""Less than this is how clocks and answers differ."""


def check_other_clock(
    key: str, address: str, facts: dict[str, Any], *, now_s: float | None = None
) -> Iterator[Finding]:
    """``facts`` are what the broker at ``address`` says, which ``key`` names; ``now_s`` is this machine's time."""
    said_ms = facts.get("clock_ms")
    if not isinstance(said_ms, int) or not 0 <= said_ms < _TIME_MS_MAX:
        return  # RocketMQ's, or of an earlier version; or no time
    ahead_s = round(said_ms / 1000 - (time.time() if now_s is None else now_s))
    if abs(ahead_s) >= _APART_S:
        what = f"{address}: its clock is {abs(ahead_s):,} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
        told = "set the wrong one right, by slewing: docs/operations.md, 'A clock that jumps'"
        yield Finding(WARN, key, what, told)
