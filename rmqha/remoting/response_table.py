"""ResponseTable: which requests await an answer, by their opaque, each with its own deadline."""

from collections.abc import Callable
from math import inf

import trio

from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemotingError, RemotingSendRequestError, RemotingTimeoutError
from rmqha.remoting.outgoing import OutgoingQueue

Outcome = RemotingCommand | RemotingError
OnOutcome = Callable[[Outcome], None]


class ResponseTable:
    """Every entry is completed exactly once: by its answer, by its deadline, or by the end of the connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pending: dict[int, tuple[float, OnOutcome]] = {}
        self._opaque = 0
        self._timer = trio.CancelScope()
        self._armed = inf

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, deadline: float, on_outcome: OnOutcome) -> int:
        """Await an answer; returns the opaque to ask with. ``deadline`` is on trio's clock."""
        opaque = self._opaque = self._opaque + 1 & 0x7FFFFFFF
        self._pending[opaque] = (deadline, on_outcome)
        if deadline < self._armed:
            self._armed = deadline
            self._timer.deadline = deadline
        return opaque

    def discard(self, opaque: int) -> None:
        """Stop awaiting: the caller has given up."""
        self._pending.pop(opaque, None)

    def complete(self, response: RemotingCommand) -> bool:
        """Hand an answer to its caller; False when nobody awaits it, or not any more."""
        entry = self._pending.pop(response.opaque, None)
        if entry is None:
            return False
        entry[1](response)
        return True

    def fail_all(self, reason: str) -> None:
        """The connection has ended: nobody will get an answer."""
        pending, self._pending = self._pending, {}
        for _, on_outcome in pending.values():
            on_outcome(RemotingSendRequestError(self._address, reason))

    async def expire(self) -> None:
        """Fail callers at their deadlines, until cancelled. With equal timeouts: one wake-up per timeout."""
        while True:
            self._armed = min((deadline for deadline, _ in self._pending.values()), default=inf)
            with trio.CancelScope(deadline=self._armed) as self._timer:
                await trio.sleep_forever()
            now = trio.current_time()
            late = [opaque for opaque, (deadline, _) in self._pending.items() if deadline <= now]
            for opaque in late:
                _, on_outcome = self._pending.pop(opaque)
                on_outcome(RemotingTimeoutError(self._address, "no answer in time"))


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
    if isinstance(outcomes[0], RemotingError):
        raise outcomes[0]
    return outcomes[0]
