"""Deadlines: what is to happen when its time has come, unless it is cancelled before.

Waiters of a watermark, held pulls and requests that await their answer end in time by the same hundred lines. Times are
the caller's clock; this object never looks at one (:class:`rmqha.waiting.DeadlineService` does).
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

_COMPACT_MIN: Final = 64


class Deadline:
    """Invariant: ``expire`` is called at most once, and never after :meth:`cancel`."""

    __slots__ = ("expire",)

    def __init__(self, expire: Callable[[], None]) -> None:
        self.expire: Callable[[], None] | None = expire

    def cancel(self) -> None:
        """Nothing happens when the time comes."""
        self.expire = None


class Deadlines:
    """Ordered by time; with equal times, by when they were added. Callbacks may add others."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._sequence = 0
        self._compact_at = _COMPACT_MIN
        self.added: Callable[[float], None] | None = None
        """Called with each time as it is added; a timer at the edge uses it to wake earlier."""

    def add(self, at: float, expire: Callable[[], None]) -> Deadline:
        """Have ``expire`` called once :meth:`expire` is told of a time at or after ``at``, which may be ``inf``."""
        deadline = Deadline(expire)
        if at == inf:
            return deadline
        if len(self._heap) >= self._compact_at:
            self._compact()
        self._sequence += 1
        heappush(self._heap, (at, self._sequence, deadline))
        if self.added is not None:
            self.added(at)
        return deadline

    def expire(self, now: float, *, at_most: float = inf) -> bool:
        """Call what was due at ``now`` or earlier; with ``at_most`` so many. Returns whether more is due."""
        heap = self._heap
        while heap and heap[0][0] <= now and at_most > 0:
            deadline = heappop(heap)[2]
            expire, deadline.expire = deadline.expire, None
            if expire is not None:
                expire()
                at_most -= 1
        return self.next() <= now < inf

    def hasten(self) -> None:
        """Everything is due now, more or less in the order in which it would have been."""
        self._heap[:] = [(-inf, number, deadline) for number, (_, _, deadline) in enumerate(self._heap)]
        if self._heap and self.added is not None:
            self.added(-inf)

    def next(self) -> float:
        """The earliest time at which something is due; ``inf`` if nothing is."""
        heap = self._heap
        while heap and heap[0][2].expire is None:
            heappop(heap)
        return heap[0][0] if heap else inf

    def _compact(self) -> None:
        """Drop what was cancelled below the top; at most half of what is kept is ever dead (plus a constant)."""
        self._heap[:] = [entry for entry in self._heap if entry[2].expire is not None]
        heapify(self._heap)
        self._compact_at = 2 * len(self._heap) + _COMPACT_MIN
