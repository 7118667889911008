"""AcceptSocketService: the door of the HA port.

A place here is worth much: whoever holds one may be a replica that sends wait for. So strangers cannot keep a slave
out for ever. Addresses can be listed (haAllow); and where the places are taken, the connection that has proven nothing
for the longest time gives way. A slave proves itself at once, by a first report that fits the log, and by
acknowledging what it is sent.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
import trio

from rmqha.codec.host import Networks
from rmqha.ha.refused_peers import RefusedPeers
from rmqha.replication.in_sync import address_of
from rmqha.replication.master_session import Refusal, RefusedSlaveError
from rmqha.transport import Listener, Stream

logger = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Guest:
    """A connection that holds a place."""

    stream: Stream
    address: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class AcceptSocketService:
    """Runs ``serve(stream)`` for each slave that may connect, and closes the others at once.

    Invariant: at most ``connections_max`` streams are open, at most ``per_address_max`` of one address.
    Source: rocketmq-all-4.9.8 HAService.java:160-249, which accepts everybody.
    """

    def __init__(
        self,
        serve: Callable[[Stream], Awaitable[None]],
        *,
        allow: tuple[str, ...],
        connections_max: int,
        per_address_max: int,
        refused: RefusedPeers,
        is_proven: Callable[[Stream], bool],
        on_bug: Callable[[Exception, str], object],
    ) -> None:
        self._serve: Final = serve
        self._allow: Final = Networks(allow)
        self._connections_max: Final = connections_max
        self._per_address_max: Final = per_address_max
        self._refused: Final = refused
        self._is_proven: Final = is_proven
        """Whether the peer at this stream's end has shown that it follows the log."""
        self._on_bug: Final = on_bug
        self._guests: Final[dict[_Guest, None]] = {}
        """In order of arrival."""

    async def run(self, listener: Listener) -> None:
        """Accept until cancelled. Owns the listener, and closes it; connections end with it."""
        try:
            async with trio.open_nursery() as slaves:
                while True:
                    stream = await listener.accept()
                    if self._may_enter(stream):
                        slaves.start_soon(self._serve_one, self._admit(stream))
        finally:
            listener.close()

    def _may_enter(self, stream: Stream) -> bool:
        address = address_of(stream.peer)
        refusal = self._why_not(address)
        if refusal is None:
            return True
        stream.close()
        if self._refused.note(address, refusal, now=trio.current_time()):
            logger.warning("accept_socket_service.refused", peer=stream.peer, reason=str(refusal))
        return False

    def _why_not(self, address: str) -> RefusedSlaveError | None:
        if address not in self._allow:
            return RefusedSlaveError(Refusal.NOT_ALLOWED, f"{address} is in none of the networks of haAllow")
        neighbours = [guest for guest in self._guests if guest.address == address]
        if len(neighbours) >= self._per_address_max and not self._make_room(neighbours):
            return RefusedSlaveError(
                Refusal.TOO_MANY, f"{self._per_address_max} connections from {address} are open, the limit"
            )
        if len(self._guests) >= self._connections_max and not self._make_room(list(self._guests)):
            return RefusedSlaveError(Refusal.TOO_MANY, f"{self._connections_max} connections are open, the limit")
        return None

    def _make_room(self, guests: list[_Guest]) -> bool:
        """End the oldest of them that has proven nothing; False if all have."""
        for guest in guests:
            if not self._is_proven(guest.stream):
                del self._guests[guest]
                guest.stream.close()
                guest.scope.cancel()
                return True
        return False

    def _admit(self, stream: Stream) -> _Guest:
        guest = _Guest(stream, address_of(stream.peer))
        self._guests[guest] = None
        return guest

    async def _serve_one(self, guest: _Guest) -> None:
        try:
            with guest.scope:
                await trio.sleep_until(self._refused.serve_at(guest.address))
                await self._serve(guest.stream)
        except Exception as bug:  # noqa: BLE001 - it ends this connection, not the service
            self._on_bug(bug, guest.stream.peer)
        finally:
            guest.stream.close()
            self._guests.pop(guest, None)
