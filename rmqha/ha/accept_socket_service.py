"""AcceptSocketService: the door of the HA port."""

from collections import Counter
from collections.abc import Awaitable, Callable
from ipaddress import ip_address, ip_network
from typing import Final

import structlog
import trio

from rmqha.ha.refused_peers import RefusedPeers
from rmqha.replication.in_sync import address_of
from rmqha.replication.master_session import Refusal, RefusedSlaveError
from rmqha.transport import Listener, Stream

logger = structlog.get_logger()


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
    ) -> None:
        self._serve: Final = serve
        self._allow: Final = [ip_network(network) for network in allow]
        self._connections_max: Final = connections_max
        self._per_address_max: Final = per_address_max
        self._refused: Final = refused
        self._open: Counter[str] = Counter()

    async def run(self, listener: Listener) -> None:
        """Accept until cancelled. Owns the listener, and closes it; connections end with it."""
        try:
            async with trio.open_nursery() as slaves:
                while True:
                    stream = await listener.accept()
                    if self._may_enter(stream):
                        slaves.start_soon(self._serve_one, stream)
        finally:
            listener.close()

    def _may_enter(self, stream: Stream) -> bool:
        address = address_of(stream.peer)
        refusal = self._why_not(address)
        if refusal is None:
            self._open[address] += 1
            return True
        stream.close()
        if self._refused.note(address, refusal, now=trio.current_time()):
            logger.warning("accept_socket_service.refused", peer=stream.peer, reason=str(refusal))
        return False

    def _why_not(self, address: str) -> RefusedSlaveError | None:
        if self._allow and not self._is_allowed(address):
            return RefusedSlaveError(Refusal.NOT_ALLOWED, f"{address} is in none of the networks of haAllow")
        if self._open.total() >= self._connections_max:
            return RefusedSlaveError(Refusal.TOO_MANY, f"{self._connections_max} connections are open, the limit")
        if self._open[address] >= self._per_address_max:
            return RefusedSlaveError(
                Refusal.TOO_MANY, f"{self._per_address_max} connections from {address} are open, the limit"
            )
        return None

    def _is_allowed(self, address: str) -> bool:
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self._allow)

    async def _serve_one(self, stream: Stream) -> None:
        address = address_of(stream.peer)
        try:
            await trio.sleep_until(self._refused.serve_at(address))
            await self._serve(stream)
        finally:
            stream.close()
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
