"""RemotingServer: accepts clients, up to a limit, and serves each of them until it leaves.

At a limit, whoever never asked anything gives way to whoever comes: strangers that only sit there keep nobody out.
"""

from typing import Final

import structlog
import trio

from rmqha.codec.host import Networks
from rmqha.codec.remoting import NoFrameError
from rmqha.codec.strangers import describe_on_remoting_port
from rmqha.errors import RemoteProtocolError, errors_in
from rmqha.remoting.connection import Connection, RequestHandler
from rmqha.remoting.fence import Fence
from rmqha.remoting.limits import Capacity, LogLimit, RemotingLimits
from rmqha.transport import Listener, Stream, UntrustedPeerError

logger = structlog.get_logger()

_ROOM_MADE = "room was needed, and this client had not asked anything yet"
_ENDINGS: Final = (RemoteProtocolError, UntrustedPeerError, trio.BrokenResourceError)
"""What ends a connection, and no more than that."""


class RemotingServer:
    """The 4.x framing over any listener. One server may serve several listeners, which then share its limits."""

    def __init__(
        self, handler: RequestHandler, *, limits: RemotingLimits | None = None, fence: Fence | None = None
    ) -> None:
        self._handler = handler
        self._fence = fence or Fence()
        self._limits = limits or RemotingLimits()
        self._allow = Networks(self._limits.allow)
        self._capacity = Capacity(self._limits)
        self._per_host: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._left = trio.lowlevel.ParkingLot()
        self._warnings = LogLimit()
        self._goodbyes = LogLimit(burst=20)
        self.connections: dict[Connection, None] = {}
        """Whoever is connected, in order of arrival."""

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of requests that are not answered yet."""
        return self._capacity.used_bytes

    async def serve(self, listener: Listener, *, handler: RequestHandler | None = None) -> None:
        """Accept and serve clients of ``listener`` until it is closed, which this does when it ends.

        Args:
            listener: where clients connect.
            handler: who answers them; None is the server's own.
        """
        self._listeners.append(listener)
        try:
            async with trio.open_nursery() as nursery:
                await self._accept(listener, nursery, handler or self._handler)
        finally:
            listener.close()

    async def _accept(self, listener: Listener, nursery: trio.Nursery, handler: RequestHandler) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            if self._is_welcome(stream):
                nursery.start_soon(self._serve_connection, self._admit(stream, handler))
            else:
                stream.close()

    async def close(self, *, grace_s: float) -> None:
        """Accept nobody, let everything in flight be answered for at most ``grace_s``, then end all connections."""
        for listener in self._listeners:
            listener.close()
        for connection in self.connections:
            connection.drain("the server is shutting down")
        with trio.move_on_after(grace_s):
            while self.connections:
                await self._left.park()
        for connection in self.connections:
            connection.close("the server is shutting down")

    def _is_welcome(self, stream: Stream) -> bool:
        limits = self._limits
        host = _host_of(stream.peer)
        if host.strip("[]") not in self._allow:
            reason = "its address is in none of the networks of clientAllow"
        elif self._per_host.get(host, 0) >= limits.connections_per_host_max and not self._make_room(host):
            reason = f"{limits.connections_per_host_max} clients of this host are connected"
        elif len(self.connections) >= limits.connections_max and not self._make_room():
            reason = f"{limits.connections_max} clients are connected"
        else:
            return True
        self._warnings.log(logger.warning, "remoting_connection.refused", peer=stream.peer, reason=reason)
        return False

    def _make_room(self, host: str = "") -> bool:
        """End the oldest connection (of ``host``, if given) that never asked anything; False if all have."""
        for connection in self.connections:
            if not connection.requests and (not host or _host_of(connection.peer) == host):
                connection.close(_ROOM_MADE)
                self._forget(connection)
                return True
        return False

    def _admit(self, stream: Stream, handler: RequestHandler) -> Connection:
        connection = Connection(
            stream, handler=handler, limits=self._limits, capacity=self._capacity, fence=self._fence
        )
        host = _host_of(stream.peer)
        self._per_host[host] = self._per_host.get(host, 0) + 1
        self.connections[connection] = None
        return connection

    async def _serve_connection(self, connection: Connection) -> None:
        opened_at = trio.current_time()
        try:
            with connection.fenced():
                await self._run(connection)
        finally:
            self._forget(connection)
            if connection.requests:
                self._goodbyes.log(
                    logger.debug,
                    "remoting_connection.closed",
                    peer=connection.peer,
                    reason=connection.close_reason,
                    requests=connection.requests,
                    open_s=round(trio.current_time() - opened_at, 3),
                )

    async def _run(self, connection: Connection) -> None:
        """Serve it until it ends, for one of the reasons that are none of ours."""
        try:
            await connection.run()
        except (*_ENDINGS, BaseExceptionGroup) as raised:
            error = errors_in(raised, *_ENDINGS)[0]
            connection.close_reason = _explain(error, is_stranger=not connection.requests)
            if isinstance(error, RemoteProtocolError):
                self._warn("remoting_connection.protocol_broken", connection)
            elif isinstance(error, UntrustedPeerError):
                self._warn("remoting_connection.untrusted", connection)

    def _warn(self, event: str, connection: Connection) -> None:
        self._warnings.log(logger.warning, event, peer=connection.peer, reason=connection.close_reason)

    def _forget(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        host = _host_of(connection.peer)
        del self.connections[connection]
        self._left.unpark_all()
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0]


def _explain(error: BaseException, *, is_stranger: bool) -> str:
    """What broke the protocol; of someone who never spoke it also who that may be."""
    if is_stranger and isinstance(error, NoFrameError) and (who := describe_on_remoting_port(error.first_bytes)):
        return f"this is {who} ({error})"
    return str(error)
