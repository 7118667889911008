"""Backoff: how long to wait before the next try: of a slave that connects, of a send that failed."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """``first_s``, doubling to ``max_s``, each shortened by up to a fifth so that not everybody returns in step.

    A connection that brought something starts the row anew and is followed at once by the next. RocketMQ 4.9
    reconnects without any pause, which is a storm when the master closes each connection (spec: ha §7, §15 row 15).
    """

    chance: Callable[[], float]
    """Gives numbers in ``[0, 1)``; the caller's, so that a simulation repeats."""
    first_s: float = 1.0
    max_s: float = 5.0
    _next_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._next_s = self.first_s

    def on_progress(self) -> None:
        """The last connection brought something."""
        self._next_s = 0.0

    def next_pause_s(self) -> float:
        """Seconds to wait now."""
        pause_s, self._next_s = self._next_s, min(max(2 * self._next_s, self.first_s), self.max_s)
        return pause_s * (1 - self.chance() / 5)
