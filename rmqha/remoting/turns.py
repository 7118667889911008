"""Turns: how the connections of a server share the event loop. Hot path.

A connection that finds the loop free is served at once. When requests have taken :data:`PASS_S` of it, connections with
more to do wait in a line; the first few go on in each pass of the loop. The longer the line, the shorter the turns:
each connection in it has one within :data:`ROUND_S`, as long as a turn is longer than a request. Where requests are
dearer than that, fewer connections go on in each pass, and what has sent little does not stand behind what has sent
much: of the two kinds one goes on after the other.
"""

from typing import Final

import trio

TURN_S: Final = 0.005
"""Longest turn of one connection."""
REQUESTS_A_TURN: Final = 256
"""So many requests are decoded and handled at once, if they do not take longer than a turn."""
ROUND_S: Final = 0.05
"""After so long every waiting connection has had a turn."""
PASS_S: Final = 0.01
"""After so much work on requests the loop goes round: replication, flushes and answers have their go."""
_LITTLE_BYTES: Final = 4096
"""To decode that takes no time."""


class Turns:
    """Invariant: while anybody waits, a task lets some of them go on in each pass of the event loop.

    Attributes:
        turn_s: how long a turn is now, and ``requests`` how many may be handled in it.
        taken_s: what turns have taken of this pass of the event loop, or of several in which nobody waited; each adds
            its own. From :data:`PASS_S` on a connection has to :meth:`wait`.
    """

    def __init__(self) -> None:
        self.turn_s = TURN_S
        self.requests = REQUESTS_A_TURN
        self.taken_s = 0.0
        self._line = trio.lowlevel.ParkingLot()
        self._line_of_little = trio.lowlevel.ParkingLot()
        self._is_little_next = True
        self._is_kept = False

    async def wait(self, undecoded_bytes: int = 0) -> None:
        """Wait in line for the next turn, to decode so much, or, with 0, to go on with what has begun."""
        if not self._is_kept:
            self._is_kept = True
            trio.lowlevel.spawn_system_task(self._keep)
        await (self._line_of_little if 0 < undecoded_bytes <= _LITTLE_BYTES else self._line).park()

    async def _keep(self) -> None:
        at_once = 1
        while waiting := len(self._line) + len(self._line_of_little):
            at_once = min(self._next_at_once(at_once), max(1, int(waiting * PASS_S / ROUND_S)))
            self._begin_pass(min(TURN_S, ROUND_S / waiting))
            self._let_go_on(at_once)
            for _ in range(2):  # after the second each of them has had its turn, also if it ran after this task
                await trio.lowlevel.checkpoint()
        self._begin_pass(TURN_S)
        self._is_kept = False

    def _next_at_once(self, at_once: int) -> int:
        """How many may go on, by what the last ones have taken: a turn is no shorter than a request."""
        if self.taken_s < PASS_S:
            return 2 * at_once
        return max(1, at_once // 2) if self.taken_s > 2 * PASS_S else at_once

    def _let_go_on(self, count: int) -> None:
        for _ in range(count):
            lines = (self._line_of_little, self._line) if self._is_little_next else (self._line, self._line_of_little)
            (lines[0] or lines[1]).unpark()
            self._is_little_next = not self._is_little_next

    def _begin_pass(self, turn_s: float) -> None:
        self.taken_s = 0.0
        self.turn_s = turn_s
        self.requests = max(1, int(REQUESTS_A_TURN * turn_s / TURN_S))
