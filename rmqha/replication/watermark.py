"""Watermark: a number that only grows, and the waiters for the offsets it will pass.

The one idea shared by flushing, replication, long-polling pulls and ``--wait``: an offset is appended, flushed,
acknowledged; a waiter is woken when the watermark passes its offset, or at its own deadline.

Hot path: :meth:`Watermark.advance` answers every satisfied waiter in one pass, so none waits behind
another (RocketMQ's GroupTransferService answers strictly one after the other; spec: ha §6, §15 row 17).
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

Complete = Callable[[bool, int], None]
"""``complete(reached, value)``: called exactly once, with the watermark's value at that moment."""

DeadlineAdded = Callable[[float], None]

_COMPACT_MIN: Final = 64


class Waiter:
    """A wait for one offset. Invariant: ``complete`` is called at most once, and never after :meth:`cancel`."""

    __slots__ = ("complete", "deadline", "offset")

    def __init__(self, offset: int, deadline: float, complete: Complete) -> None:
        self.offset: Final = offset
        self.deadline: Final = deadline
        self.complete: Complete | None = complete

    def cancel(self) -> None:
        """Stop waiting; nobody is told."""
        self.complete = None

    def finish(self, *, reached: bool, value: int) -> None:
        """Answer this waiter, unless it was answered or cancelled before."""
        complete, self.complete = self.complete, None
        if complete is not None:
            complete(reached, value)


class Watermark:
    """A value that never falls, with waiters ordered by offset and, separately, by deadline.

    Times are whatever clock the caller uses (trio's seconds); this object never looks at one.
    Callbacks run inside :meth:`advance`, :meth:`expire`, :meth:`fail_all` or :meth:`add`; they may add waiters.
    """

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._by_offset: list[tuple[int, int, Waiter]] = []
        self._by_deadline: list[tuple[float, int, Waiter]] = []
        self._sequence = 0
        self._compact_at = _COMPACT_MIN
        self._subscribers: list[Callable[[], None]] = []
        self.deadline_added: DeadlineAdded | None = None
        """Called with each finite deadline as it is added; a timer at the edge uses it to wake earlier."""

    @property
    def value(self) -> int:
        """Everything below this offset has passed."""
        return self._value

    @property
    def waiting(self) -> int:
        """How many are still waiting (a look at every entry: for status and tests, not for the hot path)."""
        return sum(1 for _, _, waiter in self._by_offset if waiter.complete is not None)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every advance, when those it passed have been answered."""
        self._subscribers.append(callback)

    def add(self, offset: int, deadline: float, complete: Complete) -> Waiter:
        """Wait until ``value >= offset`` or until :meth:`expire` is called at or after ``deadline``.

        If the value is already there, ``complete`` is called before this returns.
        """
        waiter = Waiter(offset, deadline, complete)
        if offset <= self._value:
            waiter.finish(reached=True, value=self._value)
            return waiter
        if len(self._by_offset) + len(self._by_deadline) >= self._compact_at:
            self._compact()
        self._sequence += 1
        heappush(self._by_offset, (offset, self._sequence, waiter))
        if deadline != inf:
            heappush(self._by_deadline, (deadline, self._sequence, waiter))
            if self.deadline_added is not None:
                self.deadline_added(deadline)
        return waiter

    def advance(self, value: int, *, at_most: float = inf) -> None:
        """Raise the value and answer everyone at or below it; a lower value changes nothing.

        With ``at_most`` no more than so many: the others wait for :meth:`answer`.
        """
        if value <= self._value:
            return
        self._value = value
        self.answer(at_most)
        for callback in self._subscribers:
            callback()

    def answer(self, at_most: float) -> bool:
        """Answer so many of those whom the value has passed; returns whether there are more."""
        by_offset = self._by_offset
        while by_offset and by_offset[0][0] <= self._value and at_most > 0:
            heappop(by_offset)[2].finish(reached=True, value=self._value)
            at_most -= 1
        self._forget_finished()
        return bool(by_offset) and by_offset[0][0] <= self._value

    def expire(self, now: float, *, at_most: float = inf) -> bool:
        """Answer everyone whose deadline is ``now`` or earlier with ``reached=False``.

        With ``at_most`` so many of them; returns whether there are more.
        """
        by_deadline = self._by_deadline
        while by_deadline and by_deadline[0][0] <= now and at_most > 0:
            heappop(by_deadline)[2].finish(reached=False, value=self._value)
            at_most -= 1
        self._forget_finished()
        return bool(by_deadline) and by_deadline[0][0] <= now

    def next_deadline(self) -> float:
        """The earliest deadline of the waiters that are left; ``inf`` if there is none."""
        self._forget_finished()
        return self._by_deadline[0][0] if self._by_deadline else inf

    def fail_all(self) -> None:
        """Answer everyone with ``reached=False`` now: the value will not grow any more, or nobody may wait."""
        by_offset, self._by_offset, self._by_deadline = self._by_offset, [], []
        for _, _, waiter in sorted(by_offset, key=lambda entry: entry[:2]):
            waiter.finish(reached=False, value=self._value)

    def _compact(self) -> None:
        """Drop the finished waiters below the tops; at most half of what is kept is ever dead (plus a constant)."""
        self._by_offset = [entry for entry in self._by_offset if entry[2].complete is not None]
        self._by_deadline = [entry for entry in self._by_deadline if entry[2].complete is not None]
        heapify(self._by_offset)
        heapify(self._by_deadline)
        self._compact_at = 2 * (len(self._by_offset) + len(self._by_deadline)) + _COMPACT_MIN

    def _forget_finished(self) -> None:
        """Drop finished waiters from the tops: with equal timeouts that is all of them."""
        by_offset, by_deadline = self._by_offset, self._by_deadline
        while by_offset and by_offset[0][2].complete is None:
            heappop(by_offset)
        while by_deadline and by_deadline[0][2].complete is None:
            heappop(by_deadline)
