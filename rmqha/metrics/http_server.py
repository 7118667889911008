"""HttpServer: GET and HEAD over HTTP/1.1, one request a connection, for peers that may turn out hostile.

The protocol is h11's; connections come from the same door to the network as all others, with or without TLS. Nothing
that a peer does lasts: it has so long to ask and so long to take its answer, and gives way to newer ones (decision 18).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import h11
import structlog
import trio

from rmqha.door import Door
from rmqha.errors import forget_origin
from rmqha.log_limit import LogLimit
from rmqha.transport import Listener, Stream, UntrustedPeerError

logger = structlog.get_logger()

PLACES: Final = 16
"""Connections at one time."""
UNSENT_BYTES_MAX: Final = 64 * 1024
"""The kernel keeps so much of an answer for a peer that does not take it, more or less."""
ASKS_WITHIN_S: Final = 5.0
TAKES_WITHIN_S: Final = 30.0
_IN_USE_S: Final = 2.0
"""For so long after its request a connection gives way to none."""
_LEAVES_WITHIN_S: Final = 1.0
_HEAD_SIZE_MAX: Final = 8 * 1024
_RECEIVE_SIZE: Final = 4 * 1024


class Asked(NamedTuple):
    """A request.

    Attributes:
        path: without what stands behind ``?``, which is the query.
        headers: by name, in lower case; of several with one name the last.
    """

    path: str
    query: str = ""
    headers: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    """What is sent back; ``headers`` go beside those that each answer has."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(eq=False, slots=True)
class _Guest:
    """A connection that holds a place."""

    stream: Stream
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    asked_at: float | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether it has asked a moment ago."""
        return self.asked_at is not None and trio.current_time() - self.asked_at < _IN_USE_S


class HttpServer:
    """Answers the peers that may connect.

    Invariant: at most :data:`PLACES` connections are open, each for some :data:`TAKES_WITHIN_S` at most.

    Attributes:
        refused: peers that were turned away, or sent no request, since the start, by reason.
    """

    def __init__(
        self, answer: Callable[[Asked], Awaitable[Answer]], *, allow: tuple[str, ...], name: str = "metrics"
    ) -> None:
        """Make it.

        Args:
            answer: what there is at a path.
            allow: networks whose peers may connect; empty: all.
            name: of the port, in the log.
        """
        self._answer: Final = answer
        self._refused_event: Final = f"{name}.refused"
        self._broken_event: Final = f"{name}.broken"
        self.refused: Final = Counter[str]()
        self._lines: Final = LogLimit(burst=3)
        self._door: Final = Door[_Guest](
            allow=allow,
            allow_key="metricsAllow",
            places_max=PLACES,
            places_per_host_max=PLACES,
            has_proven=lambda guest: guest.is_in_use,
            show_out=lambda guest: guest.scope.cancel(),
            hosts_share=True,
        )

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._door.guests)

    async def serve(self, listener: Listener) -> None:
        """Accept and answer until cancelled, or until the listener is closed, which this does when it ends."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        stream = await listener.accept()
                    except trio.ClosedResourceError:
                        return
                    closed = self._door.why_closed(stream.peer)
                    if closed is None:
                        guest = _Guest(stream)
                        self._door.admit(guest, stream.peer)
                        nursery.start_soon(self._serve_one, guest)
                    else:
                        stream.close()
                        self._refuse("limit" if closed.is_listed else "not_allowed", stream.peer, closed.reason)
        finally:
            listener.close()

    def _refuse(self, kind: str, peer: str, reason: str) -> None:
        self.refused[kind] += 1
        self._lines.log(logger.warning, self._refused_event, peer=peer, reason=reason)

    async def _serve_one(self, guest: _Guest) -> None:
        """Answer one request; what goes wrong over it stays with this connection."""
        peer = guest.stream.peer
        try:
            with guest.scope:
                await self._converse(guest)
        except UntrustedPeerError as error:
            self._refuse("untrusted", peer, str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it has left
        except Exception as bug:  # noqa: BLE001 - it ends this connection, not the port
            self._lines.log(logger.error, self._broken_event, peer=peer, reason=repr(bug), exc_info=bug)
        finally:
            guest.stream.close()
            self._door.leave(guest)

    async def _converse(self, guest: _Guest) -> None:
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_SIZE_MAX)
        with trio.move_on_after(ASKS_WITHIN_S):
            try:
                request = await _receive_request(protocol, guest.stream)
            except h11.RemoteProtocolError as error:
                forget_origin(error)
                self._refuse("protocol", guest.stream.peer, str(error))
                await _send(protocol, guest.stream, Answer(error.error_status_hint, b"this is no request\n"))
                return
            if request is not None:
                guest.asked_at = trio.current_time()
        if guest.asked_at is None or request is None:  # it has left, or said too little for too long
            return
        with trio.move_on_after(TAKES_WITHIN_S):
            await _send(protocol, guest.stream, await self._answer_to(request), has_body=request.method != b"HEAD")

    async def _answer_to(self, request: h11.Request) -> Answer:
        if request.method not in (b"GET", b"HEAD"):
            return Answer(405, b"only GET and HEAD\n")
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        return await self._answer(Asked(path, query, headers))


async def _receive_request(protocol: h11.Connection, stream: Stream) -> h11.Request | None:
    """What the peer asks; None if it leaves without a word. What comes behind the head is not looked at.

    Raises:
        h11.RemoteProtocolError: it does not speak HTTP.
    """
    buffer = memoryview(bytearray(_RECEIVE_SIZE))
    while (event := protocol.next_event()) is h11.NEED_DATA:
        count = await stream.receive_into(buffer)
        protocol.receive_data(bytes(buffer[:count]))
    return event if isinstance(event, h11.Request) else None


async def _send(protocol: h11.Connection, stream: Stream, answer: Answer, *, has_body: bool = True) -> None:
    """Send the whole answer, and let the peer leave first: what it has not read yet is lost if it is cut off."""
    if protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    status, body, content_type, more = answer
    headers = [
        *more,
        ("content-type", content_type),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
        ("connection", "close"),
    ]
    await stream.send_all(protocol.send(h11.Response(status_code=status, headers=headers)) or b"")
    if has_body:
        await stream.send_all(body)
    stream.send_eof()
    buffer = memoryview(bytearray(_RECEIVE_SIZE))
    with trio.move_on_after(_LEAVES_WITHIN_S):
        while await stream.receive_into(buffer):
            pass
