"""Watermarks at the trio edge: waiting for one in a task, and expiring its waiters in time."""

from math import inf

import trio

from rmqha.replication.watermark import Watermark


async def wait_reached(watermark: Watermark, offset: int, *, deadline: float = inf) -> bool:
    """Wait until the watermark is at ``offset``; False when ``deadline`` (trio's clock) or a failure came first."""
    outcome: list[bool] = []
    finished = trio.Event()

    def complete(reached: bool, _value: int) -> None:
        outcome.append(reached)
        finished.set()

    waiter = watermark.add(offset, inf, complete)
    with trio.move_on_at(deadline):
        await finished.wait()
    waiter.cancel()
    return bool(outcome) and outcome[0]


class DeadlineService:
    """Expires the waiters of a watermark, each at his own deadline.

    It sleeps until the earliest deadline it knows of and is woken only by an earlier one. With equal timeouts
    deadlines come in order, so a busy watermark costs one wake-up per timeout, not one per waiter.
    """

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._armed = inf
        self._earlier = trio.Event()
        watermark.deadline_added = self._on_deadline_added

    def _on_deadline_added(self, deadline: float) -> None:
        if deadline < self._armed:
            self._armed = deadline
            self._earlier.set()

    async def run(self) -> None:
        """Expire waiters until cancelled; those left then are answered by whoever stops the service."""
        while True:
            self._earlier = trio.Event()
            self._armed = self._watermark.next_deadline()
            with trio.move_on_at(self._armed):
                await self._earlier.wait()
            self._watermark.expire(trio.current_time())
