"""Turns: how the connections of a server share the event loop. Hot path.

A connection that finds the loop free is served at once. When requests have taken :data:`PASS_S` of it, connections with
more to do wait in a line; the first few go on in each pass of the loop. The longer the line, the shorter the turns:
each connection in it has one within :data:`ROUND_S`, as long as a turn is longer than a request.
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
        self._is_kept = False

    async def wait(self) -> None:
        """Wait in line for the next turn."""
        if not self._is_kept:
            self._is_kept = True
            trio.lowlevel.spawn_system_task(self._keep)
        await self._line.park()

    async def _keep(self) -> None:
        while waiting := len(self._line):
            self._begin_pass(min(TURN_S, ROUND_S / waiting))
            self._line.unpark(count=max(1, int(waiting * PASS_S / ROUND_S)))
            await trio.lowlevel.checkpoint()
        self._begin_pass(TURN_S)
        self._is_kept = False

    def _begin_pass(self, turn_s: float) -> None:
        self.taken_s = 0.0
        self.turn_s = turn_s
        self.requests = max(1, int(REQUESTS_A_TURN * turn_s / TURN_S))
