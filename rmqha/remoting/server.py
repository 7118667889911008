"""RemotingServer: accepts clients, up to a limit, and serves each of them until it leaves.

A client proves that it is one by asking something (:mod:`rmqha.door`).
"""

from collections import Counter
from collections.abc import Collection
from math import inf
from typing import Final

import structlog
import trio

from rmqha.codec.remoting import NoFrameError
from rmqha.codec.strangers import describe_on_remoting_port
from rmqha.door import Door
from rmqha.ending import ENDINGS
from rmqha.errors import RemoteProtocolError, errors_in
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.fence import Fence
from rmqha.remoting.limits import Capacity, RemotingLimits
from rmqha.remoting.request_handler import RequestHandler
from rmqha.transport import Listener, Stream, UntrustedPeerError

logger = structlog.get_logger()

_ROOM_MADE = "room was needed: this client had not asked anything yet, or most of all clients are of its host"
_TOLD_FOR_S: Final = 600.0


class RemotingServer:
    """The 4.x framing over any listener. One server may serve several listeners, which then share its limits."""

    def __init__(self, handler: RequestHandler, *, limits: RemotingLimits, fence: Fence | None = None) -> None:
        self._handler = handler
        self._fence = fence or Fence()
        self._limits = limits
        self.capacity: Final = Capacity(self._limits)
        """What all clients together take."""
        self._door = Door[Connection](
            allow=self._limits.client_allow,
            allow_key="clientAllow",
            places_max=self._limits.max_connections,
            places_per_host_max=self._limits.max_connections_per_address,
            has_proven=lambda connection: connection.requests > 0,
            show_out=self._show_out,
            hosts_share=True,
        )
        self.refused: Final = Counter[str]()
        """Peers that were turned away, or did not speak the protocol, since the start, by reason."""
        self._turned_away = -inf, ""
        """When a limit last turned a client away, and which."""
        self._listeners: list[Listener] = []
        self._left = trio.lowlevel.ParkingLot()
        self._warnings = LogLimit(burst=1)
        self._goodbyes = LogLimit()

    @property
    def connections(self) -> Collection[Connection]:
        """The clients that are connected, in order of arrival."""
        return self._door.guests.keys()

    def crowded(self, *, now: float) -> str:
        """Why clients were turned away lately, in a sentence; empty: none was."""
        at, reason = self._turned_away
        if now > at + _TOLD_FOR_S:
            return ""
        count = self.refused["limit"]
        were = "1 connection was" if count == 1 else f"{count:,} connections were"
        return (
            f"{were} turned away since the start, the last {now - at:.0f} s ago: {reason} (remoting_connection.refused "
            "in the log). Find who keeps so many, or raise maxConnections, maxConnectionsPerAddress and LimitNOFILE"
        )

    async def serve(self, listener: Listener, *, handler: RequestHandler | None = None) -> None:
        """Accept and serve clients of ``listener`` until it is closed, which this does when it ends.

        Args:
            listener: where clients connect.
            handler: answers them; None is the server's own.
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
        closed = self._door.why_closed(stream.peer)
        if closed is not None and closed.is_listed:
            self._turned_away = trio.current_time(), closed.reason
        if closed is not None:
            self.refused["limit" if closed.is_listed else "not_allowed"] += 1
            self._warnings.log(logger.warning, "remoting_connection.refused", peer=stream.peer, reason=closed.reason)
        return closed is None

    def _show_out(self, connection: Connection) -> None:
        connection.close(_ROOM_MADE)
        self._left.unpark_all()

    def _admit(self, stream: Stream, handler: RequestHandler) -> Connection:
        connection = Connection(stream, handler=handler, limits=self._limits, capacity=self.capacity, fence=self._fence)
        self._door.admit(connection, stream.peer)
        return connection

    async def _serve_connection(self, connection: Connection) -> None:
        opened_at = trio.current_time()
        try:
            with connection.fenced():
                await self._run(connection)
        finally:
            if self._door.leave(connection):
                self._left.unpark_all()
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
        except (*ENDINGS, BaseExceptionGroup) as raised:
            self._note_end(connection, errors_in(raised, *ENDINGS)[0])

    def _note_end(self, connection: Connection, error: BaseException) -> None:
        connection.close_reason = _explain(error, is_stranger=not connection.requests)
        if isinstance(error, RemoteProtocolError):
            self.refused["protocol"] += 1
            self._warn("remoting_connection.protocol_broken", connection)
        elif isinstance(error, UntrustedPeerError):
            self.refused["untrusted"] += 1
            self._warn("remoting_connection.untrusted", connection)

    def _warn(self, event: str, connection: Connection) -> None:
        self._warnings.log(logger.warning, event, peer=connection.peer, reason=connection.close_reason)


def _explain(error: BaseException, *, is_stranger: bool) -> str:
    """What broke the protocol; of a peer that never spoke it, also what it may be."""
    if is_stranger and isinstance(error, NoFrameError) and (who := describe_on_remoting_port(error.first_bytes)):
        return f"this is {who} ({error})"
    return str(error)
