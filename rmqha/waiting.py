"""Waiting at the trio edge: for a watermark, for deadlines that move, and for one's turn."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from typing import Final

import trio

from rmqha.replication.deadlines import Deadlines
from rmqha.replication.watermark import Watermark

_EXPIRED_AT_ONCE: Final = 500
"""Some milliseconds' work."""
_HOSTS_KNOWN_MAX: Final = 1024
STOOD_STILL_S: Final = 1.0
"""Who is woken so much later than asked for was not merely busy: the process was stopped, or its machine."""


async def wait_reached(watermark: Watermark, offset: int, *, deadline: float = inf) -> bool:
    """Wait until the watermark is at ``offset``; False when ``deadline`` (trio's clock) or a failure came first."""
    outcome: list[bool] = []
    finished = trio.Event()

    def complete(reached: bool, _value: int) -> None:
        outcome.append(reached)
        finished.set()

    waiter = watermark.add(offset, inf, complete)
    try:
        with trio.move_on_at(deadline):
            await finished.wait()
    finally:
        waiter.cancel()
    return bool(outcome) and outcome[0]


async def wait_overdue(deadline: Callable[[], float], *, ahead_s: float = inf) -> None:
    """Return when ``deadline()`` (trio's clock) has passed; time in which this process stood still is nobody's silence.

    After that it is waited anew, for ``ahead_s``, or for as long as is known to be missing.

    It may move as often as it likes, which costs nothing: it is looked at only when the one seen last has come. A
    cancel scope around each read would cost more than the read.

    Args:
        deadline: ``inf`` while there is none.
        ahead_s: a deadline that is set anew lies at least so far ahead; left out if deadlines only move back.
    """
    not_before, is_overdue = -inf, False
    while not is_overdue:
        while (left_s := max(deadline(), not_before) - trio.current_time()) > 0:
            wakes_at = trio.current_time() + min(left_s, ahead_s)
            await trio.sleep_until(wakes_at)
            if (late_s := trio.current_time() - wakes_at) > STOOD_STILL_S:
                not_before = trio.current_time() + (ahead_s if ahead_s < inf else late_s)
        await trio.lowlevel.checkpoint()  # what came while the process stood still is read first
        is_overdue = max(deadline(), not_before) <= trio.current_time()


class DeadlineService:
    """Expires deadlines by trio's clock.

    It sleeps until the earliest one it knows of and is woken only by an earlier one. With equal timeouts deadlines
    come in order, so a busy watermark costs one wake-up per timeout, not one per waiter.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._armed = inf
        self._earlier = trio.Event()

    def _on_added(self, at: float) -> None:
        if at < self._armed:
            self._armed = at
            self._earlier.set()

    async def run(self) -> None:
        """Keep the deadlines until cancelled; what is left then is for the caller to end."""
        self._deadlines.added = self._on_added
        try:
            while True:
                await self._expire_next()
        finally:
            self._deadlines.added = None  # the two would hold one another: each connection has them

    async def _expire_next(self) -> None:
        self._earlier = trio.Event()
        self._armed = self._deadlines.next()
        with trio.move_on_at(self._armed):
            await self._earlier.wait()
        while self._deadlines.expire(trio.current_time(), at_most=_EXPIRED_AT_ONCE):
            await trio.lowlevel.checkpoint()


class FairLock:
    """Invariant: a host has a line while anybody of it waits, or has its turn."""

    def __init__(self) -> None:
        self._lines: dict[str, trio.Lock] = {}
        self._lock = trio.Lock()

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait behind those of the same host, then behind one of each other."""
        line = self._lines.setdefault(host, trio.Lock())
        try:
            async with line, self._lock:
                yield
        finally:
            if not line.locked():
                self._lines.pop(host, None)


class Handshakes:
    """Whose turn it is on a port where strangers come, and most of what they want is dear.

    Hundreds may come in a second, from a hundred hosts, and leave. Who has answered what a first turn told it has a
    line beside theirs, and so have all from a host one of which has been through with it: from there come those who
    stay. Of the last hosts many are remembered, not all.
    """

    def __init__(self) -> None:
        self._strangers: Final = FairLock()
        self._others: Final = FairLock()
        self._hosts: Final[dict[str, None]] = {}

    def turn(self, host: str, *, has_answered: bool = False) -> AbstractAsyncContextManager[None]:
        """See :meth:`FairLock.turn`."""
        line = self._others if has_answered or host in self._hosts else self._strangers
        return line.turn(host)

    def note_done(self, host: str) -> None:
        """One of this host is through."""
        self._hosts.pop(host, None)
        self._hosts[host] = None
        if len(self._hosts) > _HOSTS_KNOWN_MAX:
            del self._hosts[next(iter(self._hosts))]
