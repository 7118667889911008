"""PullRequestHoldService: pulls that found nothing wait here for the next message or for their time to run out.

Every queue has a watermark, its end; a held pull waits for the end to pass its offset. One timer serves the
deadlines of all queues. RocketMQ looks at its held pulls every 5 s instead
(spec: remoting §2.5, long polling).

One message, or one deadline, may end thousands of holds: a few go on at once, the others in turns of the event loop.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

import trio

from rmqha.codec.host import host_of
from rmqha.replication.deadlines import Deadlines
from rmqha.replication.watermark import Watermark
from rmqha.shares import Shares
from rmqha.waiting import DeadlineService

HELD_MAX: Final = 65_536
"""Places, of some 2 KiB each: a pull takes one, or more if it is for many tags."""
_TAGS_A_PLACE: Final = 25
ENDS_MIN: Final = 4096
"""The ends of so many queues are kept, whether anybody waits there or not."""
SUSPEND_S_MAX: Final = 60.0
"""RocketMQ's clients ask for 15 to 20 s. A client that left is forgotten when its time is over."""

AT_ONCE_MAX: Final = 64
"""So many go on in one turn of the event loop: some milliseconds' work."""
_TURN_S: Final = 0.001
_BEYOND_ALL: Final = 1 << 64
"""No queue ends there."""

Retry = Callable[[bool], None]
"""``retry(arrived)``: called once; False when the holding time is over."""


class _Hold(NamedTuple):
    retry: Retry
    places: int
    host: str


class PullRequestHoldService:
    """Holds pulls. ``run`` must be running for deadlines to be kept, and for those that go on later.

    Invariant: ``held`` counts the places of each pull until it goes on, and is at most :data:`HELD_MAX`.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], Watermark] = {}
        self._forget_at = ENDS_MIN
        self._deadlines = Deadlines()
        self._timer = DeadlineService(self._deadlines)
        self._later: deque[tuple[_Hold, bool]] = deque()
        self._later_grew = trio.Event()
        self._passing: dict[Watermark, None] = {}
        """Ends that have passed more pulls than one turn lets go on."""
        self._at_once_left = 0
        self._turn_ends_at = -inf
        self._ends_at = inf
        """Nothing is held beyond it; past from the stop on."""
        self.held = 0
        """Places of the pulls that are waiting."""
        self._shares = Shares()

    def is_holding(self) -> bool:
        """Whether any pull is waiting."""
        return self._deadlines.next() != inf

    def suspend_pull_request(
        self,
        topic: str,
        queue_id: int,
        *,
        offset: int,
        queue_end: int,
        deadline: float,
        retry: Retry,
        tags: int = 0,
        peer: str = "",
    ) -> None:
        """Hold a pull that found nothing until the queue's end (now ``queue_end``) moves on, and past ``offset``.

        It goes on then, or at ``deadline``, but never before this returns: a caller that holds again what finds
        nothing would otherwise never come to an end. Where too many are held, in all or for clients of the host of
        ``peer``, its time is over now. ``retry`` keeps the codes of so many ``tags``.
        """
        hold = _Hold(retry, 1 + tags // _TAGS_A_PLACE, host_of(peer))
        if not self._shares.has_room(hold.host, hold.places, free=HELD_MAX - self.held):
            retry(False)
            return
        end = self._ends.get((topic, queue_id))
        if end is None:
            self._forget_idle()
            end = self._ends[topic, queue_id] = Watermark(queue_end)
        self._advance(end, queue_end)

        def on_deadline() -> None:
            arrival.cancel()
            self._go_on(hold, arrived=False)

        def on_arrival(_reached: bool, _value: int) -> None:
            expiry.cancel()
            self._go_on(hold, arrived=True)

        self._take_places(hold, hold.places)
        expiry = self._deadlines.add(min(deadline, self._ends_at), on_deadline)
        arrival = end.add(max(offset, end.value) + 1, inf, on_arrival)

    def _forget_idle(self) -> None:
        """Topics come and go: beyond some thousand queues, those are kept that somebody waits at."""
        if len(self._ends) >= self._forget_at:
            self._ends = {queue: end for queue, end in self._ends.items() if end.waiting}
            self._forget_at = max(ENDS_MIN, 2 * len(self._ends))

    def _take_places(self, hold: _Hold, places: int) -> None:
        self.held += places
        self._shares.add(hold.host, places)

    def _end(self, hold: _Hold, *, arrived: bool) -> None:
        self._take_places(hold, -hold.places)
        hold.retry(arrived)

    def _go_on(self, hold: _Hold, *, arrived: bool) -> None:
        now = trio.current_time()
        if now >= self._turn_ends_at:
            self._turn_ends_at = now + _TURN_S
            self._at_once_left = AT_ONCE_MAX
        if self._at_once_left and not self._later:
            self._at_once_left -= 1
            self._end(hold, arrived=arrived)
        else:
            self._later.append((hold, arrived))
            self._later_grew.set()

    def _go_on_later(self) -> None:
        hold, arrived = self._later.popleft()
        self._end(hold, arrived=arrived)

    def notify_message_arriving(self, topic: str, queue_id: int, queue_end: int) -> None:
        """The queue now ends at ``queue_end``: pulls that waited for that go on, or all if it has begun anew."""
        end = self._ends.get((topic, queue_id))
        if end is None:
            return
        if queue_end < end.value:  # all who wait have seen more than it has now
            self._ends[topic, queue_id] = Watermark(queue_end)
            queue_end = _BEYOND_ALL
        self._advance(end, queue_end)

    def _advance(self, end: Watermark, queue_end: int) -> None:
        end.advance(queue_end, at_most=AT_ONCE_MAX)
        if end.answer(0):
            self._passing[end] = None
            self._later_grew.set()

    def end_all(self) -> None:
        """Let every held pull go on soon, as if its time were over; those that come now are held."""
        self._deadlines.hasten()

    def release_all(self) -> None:
        """Let every held pull go on now, as if its time were over, and any that still comes: the broker is stopping."""
        self._ends_at = -inf
        self._deadlines.hasten()

    async def run(self) -> None:
        """Keep the deadlines, and let go on in turns what could not at once, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timer.run)
            while True:
                await self._later_grew.wait()
                self._later_grew = trio.Event()
                while self._later or self._passing:
                    for _ in range(min(AT_ONCE_MAX, len(self._later))):
                        self._go_on_later()
                    if not self._later:
                        self._pass_more()
                    await trio.lowlevel.checkpoint()

    def _pass_more(self) -> None:
        end = next(iter(self._passing), None)
        if end is not None and not end.answer(AT_ONCE_MAX):
            del self._passing[end]
