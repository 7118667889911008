"""PullRequestHoldService: pulls that found nothing wait here for the next message or for their time to run out.

Every queue has a watermark, its end; a held pull waits for the end to pass its offset. A second watermark that never
moves holds nothing but deadlines, so one timer serves all queues. RocketMQ looks at its held pulls every 5 s instead
(spec: remoting §2.5, long polling).
"""

from collections.abc import Callable
from math import inf
from typing import Final

from rmqha.replication.watermark import Watermark
from rmqha.waiting import DeadlineService

HELD_MAX: Final = 65_536
"""Some 2 KiB each."""
SUSPEND_S_MAX: Final = 60.0
"""RocketMQ's clients ask for 15 to 20 s. A client that left is forgotten when its time is over."""

Retry = Callable[[bool], None]
"""``retry(arrived)``: called once; False when the holding time is over."""


class PullRequestHoldService:
    """Holds pulls. ``run`` must be running for deadlines to be kept."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], Watermark] = {}
        self._deadlines = Watermark()
        self._timer = DeadlineService(self._deadlines)
        self.held = 0
        """How many pulls are waiting; at most :data:`HELD_MAX`."""

    def is_holding(self) -> bool:
        """Whether any pull is waiting."""
        return self._deadlines.next_deadline() != inf

    def suspend_pull_request(
        self, topic: str, queue_id: int, *, offset: int, queue_end: int, deadline: float, retry: Retry
    ) -> None:
        """Hold a pull that found nothing until the queue's end (now ``queue_end``) moves on, past ``offset``, too.

        It goes on then, or at ``deadline``, but never before this returns: who holds again whatever finds nothing
        would otherwise never come to an end. Where too many are held, those whose time is over next go on now.
        """
        if self.held >= HELD_MAX:
            self._deadlines.expire(self._deadlines.next_deadline())
        end = self._ends.get((topic, queue_id))
        if end is None:
            end = self._ends[topic, queue_id] = Watermark(queue_end)
        end.advance(queue_end)

        def on_deadline(_reached: bool, _value: int) -> None:
            arrival.cancel()
            self.held -= 1
            retry(False)

        def on_arrival(_reached: bool, _value: int) -> None:
            expiry.cancel()
            self.held -= 1
            retry(True)

        self.held += 1
        expiry = self._deadlines.add(1, deadline, on_deadline)
        arrival = end.add(max(offset, end.value) + 1, inf, on_arrival)

    def notify_message_arriving(self, topic: str, queue_id: int, queue_end: int) -> None:
        """The queue now ends at ``queue_end``: whoever waited for that goes on."""
        end = self._ends.get((topic, queue_id))
        if end is not None:
            end.advance(queue_end)

    def release_all(self) -> None:
        """Let every held pull go on now, as if its time were over: the broker is stopping."""
        self._deadlines.fail_all()

    async def run(self) -> None:
        """Keep the deadlines until cancelled."""
        await self._timer.run()
