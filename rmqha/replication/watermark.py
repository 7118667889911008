"""Watermark: a number that grows, and the waiters for the offsets it will pass.

The one idea shared by flushing, replication, long-polling pulls and ``--wait``: an offset is appended, flushed,
acknowledged; a waiter is woken when the watermark passes its offset, or at its own deadline.

Hot path: :meth:`Watermark.advance` answers every satisfied waiter in one pass, so none waits behind
another (RocketMQ's GroupTransferService answers strictly one after the other; spec: ha §6, §15 row 17).

Only where a log's tail is cut (a Raft follower's, in another term) a watermark falls: :meth:`Watermark.cut`.
"""

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from rmqha.replication.deadlines import Deadline, Deadlines

Complete = Callable[[bool, int], None]
"""``complete(reached, value)``: called exactly once, with the watermark's value at that moment."""

_COMPACT_MIN: Final = 64


class Waiter:
    """A wait for one offset. Invariant: ``complete`` is called at most once, and never after :meth:`cancel`."""

    __slots__ = ("complete", "deadline", "offset")

    def __init__(self, offset: int, complete: Complete) -> None:
        self.offset: Final = offset
        self.deadline: Deadline | None = None
        self.complete: Complete | None = complete

    def cancel(self) -> None:
        """Stop waiting; nobody is told."""
        self._take()

    def finish(self, *, reached: bool, value: int) -> None:
        """Answer this waiter, unless it was answered or cancelled before."""
        complete = self._take()
        if complete is not None:
            complete(reached, value)

    def _take(self) -> Complete | None:
        complete, self.complete = self.complete, None
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
        return complete


class Watermark:
    """A value that falls only by :meth:`cut`, with waiters ordered by offset; each may have a deadline.

    Times are whatever clock the caller uses (trio's seconds); this object never looks at one.
    Callbacks run inside :meth:`advance`, :meth:`cut`, :meth:`fail_all`, :meth:`add` or ``deadlines.expire``; they may
    add waiters.

    Attributes:
        deadlines: of the waiters; the owner of a clock expires them.
    """

    def __init__(self, value: int = 0) -> None:
        self.deadlines: Final = Deadlines()
        self._value = value
        self._by_offset: list[tuple[int, int, Waiter]] = []
        self._sequence = 0
        self._compact_at = _COMPACT_MIN
        self._subscribers: list[Callable[[], None]] = []
        self._cut_listeners: list[Callable[[int], None]] = []

    @property
    def value(self) -> int:
        """Everything below this offset has passed."""
        return self._value

    @property
    def waiting(self) -> int:
        """How many are still waiting (a look at every entry: for status and tests, not for the hot path)."""
        return sum(1 for _, _, waiter in self._by_offset if waiter.complete is not None)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every advance or cut, when those whom it concerns have been answered."""
        self._subscribers.append(callback)

    def on_cut(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(end)`` at every cut, when the value has fallen and before anybody is answered."""
        self._cut_listeners.append(callback)

    def add(self, offset: int, deadline: float, complete: Complete) -> Waiter:
        """Wait until ``value >= offset``, or until ``deadlines.expire`` is called at or after ``deadline``.

        If the value is already there, ``complete`` is called before this returns.
        """
        waiter = Waiter(offset, complete)
        if offset <= self._value:
            waiter.finish(reached=True, value=self._value)
            return waiter
        if len(self._by_offset) >= self._compact_at:
            self._compact()
        self._sequence += 1
        heappush(self._by_offset, (offset, self._sequence, waiter))
        if deadline != inf:
            waiter.deadline = self.deadlines.add(deadline, partial(self._expire, waiter))
        return waiter

    def _expire(self, waiter: Waiter) -> None:
        waiter.finish(reached=False, value=self._value)

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
        while by_offset and by_offset[0][2].complete is None:
            heappop(by_offset)
        return bool(by_offset) and by_offset[0][0] <= self._value

    def cut(self, end: int) -> None:
        """What lay beyond ``end`` is gone: the value falls to it, and all who wait for more are failed.

        Other bytes may come to lie there, and must not be taken for those that were waited for. Who still wants to
        know of more than ``end`` waits anew; the others go on waiting.
        """
        by_offset, self._value = self._by_offset, min(self._value, end)
        gone = sorted(entry for entry in by_offset if entry[0] > end)
        by_offset[:] = [entry for entry in by_offset if entry[0] <= end]
        heapify(by_offset)
        for listener in self._cut_listeners:
            listener(end)
        for _, _, waiter in gone:
            waiter.finish(reached=False, value=self._value)
        for callback in self._subscribers:
            callback()

    def fail_all(self) -> None:
        """Answer everyone with ``reached=False`` now: the value will not grow any more, or nobody may wait."""
        by_offset, self._by_offset = self._by_offset, []
        for _, _, waiter in sorted(by_offset, key=lambda entry: entry[:2]):
            waiter.finish(reached=False, value=self._value)

    def _compact(self) -> None:
        """Drop the finished waiters below the top; at most half of what is kept is ever dead (plus a constant)."""
        self._by_offset[:] = [entry for entry in self._by_offset if entry[2].complete is not None]
        heapify(self._by_offset)
        self._compact_at = 2 * len(self._by_offset) + _COMPACT_MIN
