"""AcceptSocketService: accepts slaves at the HA port, and runs a connection for each.

A place here is worth much: whatever holds one may be a replica that sends wait for. So strangers cannot keep a slave
out for ever (:mod:`rmqha.door`). A slave proves itself at once, by a first report that fits the log, and by
acknowledging what it is sent; and while it has yet to, as in a TLS handshake, it does not give way to those of hosts
that no slave ever came from, nor peer of haPeers is at.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
import trio

from rmqha.codec.host import host_of
from rmqha.door import Door
from rmqha.ha.refused_peers import RefusedPeers
from rmqha.replication.master_session import Refusal, RefusedSlaveError
from rmqha.transport import Listener, Stream

logger = structlog.get_logger()


@dataclass(eq=False, slots=True)
class _Guest:
    """A connection that holds a place."""

    stream: Stream
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
        knows: Callable[[str], bool],
        on_bug: Callable[[Exception, str], object],
    ) -> None:
        self._serve: Final = serve
        self._refused: Final = refused
        self._on_bug: Final = on_bug
        self._door: Final = Door[_Guest](
            allow=allow,
            allow_key="haAllow",
            places_max=connections_max,
            places_per_host_max=per_address_max,
            has_proven=lambda guest: is_proven(guest.stream),
            show_out=_show_out,
            hosts_share=False,
            knows=knows,
        )

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
        closed = self._door.why_closed(stream.peer)
        if closed is None:
            return True
        stream.close()
        refusal = RefusedSlaveError(Refusal.TOO_MANY if closed.is_listed else Refusal.NOT_ALLOWED, closed.reason)
        if self._refused.note(host_of(stream.peer), refusal, now=trio.current_time()):
            logger.warning("accept_socket_service.refused", peer=stream.peer, reason=str(refusal))
        return False

    def _admit(self, stream: Stream) -> _Guest:
        guest = _Guest(stream)
        self._door.admit(guest, stream.peer)
        return guest

    async def _serve_one(self, guest: _Guest) -> None:
        try:
            with guest.scope:
                await trio.sleep_until(self._refused.serve_at(host_of(guest.stream.peer)))
                await self._serve(guest.stream)
        except Exception as bug:  # noqa: BLE001 - it ends this connection, not the service
            self._on_bug(bug, guest.stream.peer)
        finally:
            guest.stream.close()
            self._door.leave(guest)


def _show_out(guest: _Guest) -> None:
    guest.stream.close()
    guest.scope.cancel()
