"""ResponseTable: which requests await an answer, by their opaque, each with its own deadline."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import trio

from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemotingError, RemotingSendRequestError, RemotingTimeoutError
from rmqha.remoting.outgoing import OutgoingQueue
from rmqha.replication.deadlines import Deadline, Deadlines
from rmqha.waiting import DeadlineService

Outcome = RemotingCommand | RemotingError
OnOutcome = Callable[[Outcome], None]


class _Pending(NamedTuple):
    on_outcome: OnOutcome
    deadline: Deadline


class ResponseTable:
    """Every entry is completed exactly once: by its answer, by its deadline, or by the end of the connection.

    Attributes:
        is_silent: the time of a request is over since which nothing at all has come from the peer.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._pending: dict[int, _Pending] = {}
        self._opaque = self._heard_after = 0
        self.is_silent = False
        self._deadlines = Deadlines()
        self._timer = DeadlineService(self._deadlines)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, deadline: float, on_outcome: OnOutcome) -> int:
        """Await an answer; returns the opaque to ask with. ``deadline`` is on trio's clock."""
        opaque = self.next_opaque()
        self._pending[opaque] = _Pending(on_outcome, self._deadlines.add(deadline, partial(self._expire, opaque)))
        return opaque

    def next_opaque(self) -> int:
        """The opaque of the next request, which nobody needs to await."""
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return self._opaque

    def _take(self, opaque: int) -> OnOutcome | None:
        pending = self._pending.pop(opaque, None)
        if pending is None:
            return None
        pending.deadline.cancel()
        return pending.on_outcome

    def note_heard(self) -> None:
        """Something has come from the peer, whatever it is."""
        self._heard_after, self.is_silent = self._opaque, False

    def _expire(self, opaque: int) -> None:
        if (on_outcome := self._take(opaque)) is not None:
            self.is_silent = self.is_silent or opaque > self._heard_after
            on_outcome(RemotingTimeoutError(self._address, "no answer in time"))

    def discard(self, opaque: int) -> None:
        """Stop awaiting; the caller has given up."""
        self._take(opaque)

    def complete(self, response: RemotingCommand) -> bool:
        """Hand an answer to its caller; False when nobody (any more) awaits it."""
        on_outcome = self._take(response.opaque)
        if on_outcome is not None:
            on_outcome(response)
        return on_outcome is not None

    def fail_all(self, reason: str) -> None:
        """The connection has ended: nobody will get an answer."""
        for opaque in list(self._pending):
            if (on_outcome := self._take(opaque)) is not None:
                on_outcome(RemotingSendRequestError(self._address, reason))

    async def expire(self) -> None:
        """Fail each request whose deadline passes, until cancelled."""
        await self._timer.run()


async def invoke(
    responses: ResponseTable, outgoing: OutgoingQueue, request: RemotingCommand, *, timeout_s: float
) -> RemotingCommand:
    """Send ``request`` and wait for its answer; as a client, or as a server asks its client.

    Raises:
        RemotingTimeoutError: no answer in time.
        RemotingSendRequestError: the connection ended first.
    """
    outcomes: list[Outcome] = []
    finished = trio.Event()

    def on_outcome(outcome: Outcome) -> None:
        outcomes.append(outcome)
        finished.set()

    request.opaque = responses.add(trio.current_time() + timeout_s, on_outcome)
    try:
        outgoing.put_nowait(request.encode())
        await finished.wait()
    finally:
        responses.discard(request.opaque)
    outcome = outcomes.pop()
    if isinstance(outcome, RemotingError):
        try:
            raise outcome
        finally:
            del outcome  # its traceback holds this frame
    return outcome
