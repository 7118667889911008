"""PullRequestHoldService: pulls that found nothing wait here for the next message or for their time to run out.

Every queue has a watermark, its end; a held pull waits for the end to pass its offset. A second watermark that never
moves holds nothing but deadlines, so one timer serves all queues. RocketMQ looks at its held pulls every 5 s instead
(spec: remoting §2.5, long polling).
"""

from collections.abc import Callable
from math import inf

from rmqha.replication.watermark import Watermark
from rmqha.waiting import DeadlineService

Retry = Callable[[bool], None]
"""``retry(arrived)``: called once; False when the holding time is over."""


class PullRequestHoldService:
    """Holds pulls. ``run`` must be running for deadlines to be kept."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], Watermark] = {}
        self._deadlines = Watermark()
        self._timer = DeadlineService(self._deadlines)

    @property
    def held(self) -> int:
        """How many pulls are waiting."""
        return self._deadlines.waiting

    def is_holding(self) -> bool:
        """Whether any pull is waiting."""
        return self._deadlines.next_deadline() != inf

    def suspend_pull_request(
        self, topic: str, queue_id: int, *, offset: int, queue_end: int, deadline: float, retry: Retry
    ) -> None:
        """Hold a pull at ``offset`` until the queue's end (now ``queue_end``) passes it, or until ``deadline``."""
        end = self._ends.get((topic, queue_id))
        if end is None:
            end = self._ends[topic, queue_id] = Watermark(queue_end)
        end.advance(queue_end)

        def on_deadline(_reached: bool, _value: int) -> None:
            arrival.cancel()
            retry(False)

        def on_arrival(_reached: bool, _value: int) -> None:
            expiry.cancel()
            retry(True)

        expiry = self._deadlines.add(1, deadline, on_deadline)
        arrival = end.add(offset + 1, inf, on_arrival)

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
