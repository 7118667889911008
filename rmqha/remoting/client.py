"""RemotingClient: one connection to a broker, on which many requests are in flight at once."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from rmqha.codec.acl import Signer
from rmqha.codec.codes import ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, FRAME_SIZE_MAX, RemotingCommand
from rmqha.codec.strangers import describe_answer
from rmqha.ending import ENDINGS, Ending
from rmqha.errors import RemotingConnectError, errors_in
from rmqha.memory import BytesLike, new_buffer
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.outgoing import OutgoingQueue
from rmqha.remoting.response_table import OnOutcome, ResponseTable, invoke
from rmqha.transport import Network, Stream

logger: Final = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
_PORT_MAX = 65535
_WRITE_TIMEOUT_S = 30.0
_LAST_ANSWERS_S: Final = 1.0
"""For so long at most is read what a peer sent before it stopped taking requests."""
_LOOKS_AGAIN_S: Final = 1.0
_RECEIVE_SIZE = 256 * 1024
_REASON_SIZE_MAX = 300
_TAKEN_AT_ONCE: Final = 256
"""Commands, before everybody else has a turn."""
_UNASKED_FREE: Final = 16
"""At a time: late answers come, and what a broker tells its clients."""
_UNASKED_S: Final = 0.001
"""Of more, so long nothing is read for each: a peer may send them without end."""
_UNASKED_MAX_S: Final = 0.1
_FIRST_BYTES: Final = 16
REFUSED_BEHIND_MAX: Final = 16 * 1024 * 1024
"""Bytes queued, behind which no more answers to a broker's questions are."""
_CLOSED: Final = "the peer closed the connection"
_CLOSED_SILENTLY: Final = f"{_CLOSED} without an answer, as one does that requires TLS, or has no room for a client"


class RemotingClient:
    """Requests go out in the order they are made; each is completed once, by its answer, deadline or the end.

    Attributes:
        address: the peer as it was named to us.
        closed: nothing can be asked any more; connect anew.
    """

    def __init__(
        self,
        stream: Stream,
        address: str,
        *,
        receive_size: int = _RECEIVE_SIZE,
        header_size_max: int = FRAME_SIZE_MAX,
        credentials: Signer | None = None,
    ) -> None:
        """Nothing is received before :meth:`run`; with ``credentials`` all that is asked is signed."""
        self.address = address
        self._credentials = credentials
        self.closed = False
        self.used_at = trio.current_time()
        """When something was last received (trio's clock); the peer drops idle connections after 120 s."""
        self._stream = stream
        self._receive_size = receive_size
        self._header_size_max = header_size_max
        self._first_bytes = b""
        """Of what was received; they may show that this is no remoting port."""
        self._outgoing = OutgoingQueue(stream, write_timeout_s=_WRITE_TIMEOUT_S)
        self._responses = ResponseTable(address)
        self._scope = trio.CancelScope()

    @property
    def in_flight(self) -> int:
        """Requests that await their answer."""
        return len(self._responses)

    @property
    def is_silent(self) -> bool:
        """Whether a request had no answer in time, and nothing else came meanwhile: the way there may be gone."""
        return self._responses.is_silent

    async def run(self) -> None:
        """Receive until the connection ends, for whatever reason; everything pending fails then."""
        reason, ending = "the connection was closed here", Ending(*ENDINGS)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ending.keep, self._send, nursery)
                    nursery.start_soon(self._responses.expire)
                    await ending.keep(self._read, nursery)
                    if ending.error is None:
                        reason = describe_answer(self._first_bytes) or (
                            _CLOSED if self._first_bytes else _CLOSED_SILENTLY
                        )
                    nursery.cancel_scope.cancel()
            ending.tell()
        except (*ENDINGS, BaseExceptionGroup) as raised:
            reason = self._reason_of(raised)
        finally:
            self.closed = True
            self._stream.close()
            self._outgoing.close()
            self._responses.fail_all(reason)

    async def _send(self) -> None:
        """Send until the peer takes no more; reading then goes on for a moment, as it may have answered much before."""
        try:
            await self._outgoing.run()
        except trio.BrokenResourceError:
            self.closed = True
            await trio.sleep(_LAST_ANSWERS_S)
            raise

    def _reason_of(self, raised: BaseException) -> str:
        """Why the connection ended; a bug is told of here. Raises what is no mere error, such as a cancellation."""
        try:
            error = errors_in(raised, *ENDINGS)[0]
            told = describe_answer(self._first_bytes)
            return f"{told} ({error})" if told else str(error)
        except BaseExceptionGroup as others:
            if not isinstance(others, Exception):
                raise
            logger.error("a bug, met in what %s sent: the connection is closed", self.address, exc_info=others)
            return f"what it sent met a bug here: {others.exceptions[0]!r}"[:_REASON_SIZE_MAX]

    def close(self) -> None:
        """End the connection now; everything pending fails."""
        self.closed = True
        self._scope.cancel()

    async def close_when_idle(self) -> None:
        """End the connection when nothing is in flight any more, as it is not asked any more: deadlines see to that."""
        while self.in_flight:  # noqa: ASYNC110 - who waits for answers is told of them, and not this task
            await trio.sleep(_LOOKS_AGAIN_S)
        self.close()

    async def invoke(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        """Ask, and wait for the answer, whatever its code.

        Raises:
            RemotingTimeoutError: no answer in time; the connection stays up and a late answer is dropped.
            RemotingSendRequestError: the connection ended first.
        """
        if self.closed:
            raise RemotingConnectError(self.address, "the connection has ended")
        if self._credentials is not None:
            self._credentials.sign(request)
        return await invoke(self._responses, self._outgoing, request, timeout_s=timeout_s)

    def invoke_nowait(self, request: RemotingCommand, *, deadline: float, on_outcome: OnOutcome) -> None:
        """Ask without waiting; ``on_outcome`` is called once, later, with the answer or a RemotingError."""
        request.opaque = self.expect(deadline, on_outcome)
        self.put_nowait(request.encode())

    def expect(self, deadline: float, on_outcome: OnOutcome) -> int:
        """The first half of :meth:`invoke_nowait`, for callers that encode themselves; returns the opaque to use.

        Raises:
            RemotingConnectError: the connection has ended; nothing was sent.
        """
        if self.closed:
            raise RemotingConnectError(self.address, "the connection has ended")
        return self._responses.add(deadline, on_outcome)

    def forget(self, opaque: int) -> None:
        """Nobody awaits this answer any more."""
        self._responses.discard(opaque)

    def put_nowait(self, frames: BytesLike) -> None:
        """The second half: send whole frames, at once if nothing is queued."""
        self._outgoing.put_nowait(self._signed(frames))

    def _signed(self, frames: BytesLike) -> BytesLike:
        return frames if self._credentials is None else self._credentials.sign_frames(bytes(frames))

    def put(self, frames: BytesLike) -> None:
        """As :meth:`put_nowait`, but together with what is put until this task waits for anything."""
        self._outgoing.put(self._signed(frames))

    async def wait_writable(self, size: int) -> None:
        """Wait until fewer than ``size`` bytes are queued here, or the connection has ended."""
        await self._outgoing.wait_below(size)

    async def _read(self) -> None:
        decoder = FrameDecoder(header_size_max=self._header_size_max, commands_max=_TAKEN_AT_ONCE)
        buffer = new_buffer(self._receive_size)
        while count := await self._stream.receive_into(decoder.space(buffer)):
            self._first_bytes = self._first_bytes or bytes(buffer[: min(count, _FIRST_BYTES)])
            self.used_at = trio.current_time()
            self._responses.note_heard()
            unasked = self._take(decoder.on_received(buffer, count))
            while decoder.more:
                await trio.lowlevel.checkpoint()
                unasked += self._take(decoder.decode_more())
            if unasked > _UNASKED_FREE:
                await trio.sleep(min(unasked * _UNASKED_S, _UNASKED_MAX_S))

    def _take(self, commands: list[RemotingCommand]) -> int:
        """How many of them nobody here has asked for, or awaits any more."""
        unasked = 0
        for command in commands:
            if not command.flag & FLAG_RESPONSE:
                unasked += 1
                if not command.flag & FLAG_ONEWAY:
                    self._refuse(command)
            elif not self._responses.complete(command):
                unasked += 1
        return unasked

    def _refuse(self, request: RemotingCommand) -> None:
        """We serve nothing: a broker that asks is told so, unless it takes too little of what it is told."""
        if self._outgoing.size >= REFUSED_BEHIND_MAX:
            return
        remark = f" request type {request.code} not supported"
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        response = RemotingCommand(code, request.opaque, FLAG_RESPONSE, remark=remark, serialize=request.serialize)
        self._outgoing.put(response.encode())


async def connect_remoting_client(
    network: Network,
    address: str,
    *,
    timeout_s: float = CONNECT_TIMEOUT_S,
    header_size_max: int = FRAME_SIZE_MAX,
    credentials: Signer | None = None,
) -> RemotingClient:
    """Connect to ``host:port``; the caller runs :meth:`RemotingClient.run`.

    Args:
        network: the door to the peer.
        address: its ``host:port``.
        timeout_s: for connecting.
        header_size_max: of an answer; that to a batch names all its messages, and has a megabyte.
        credentials: by which all that is asked is signed; None: it is not.

    Raises:
        RemotingConnectError: refused, unreachable, unresolvable, or not done in time.
    """
    if problem := address_problem(address):
        raise RemotingConnectError(address, problem)
    host, _, port = address.rpartition(":")
    try:
        stream = await network.connect(host.strip("[]"), int(port), timeout_s=timeout_s)
    except OSError as error:
        raise RemotingConnectError(address, error.strerror or str(error)) from error
    return RemotingClient(stream, address, header_size_max=header_size_max, credentials=credentials)


def address_problem(address: str) -> str:
    """Why this can be nobody's address; empty if it can."""
    host, _, port = address.rpartition(":")
    if not host or len(port) > len(str(_PORT_MAX)) or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        return f"is not of the form host:port, with a port in 1..{_PORT_MAX}"
    return ""


@asynccontextmanager
async def open_remoting_client(
    network: Network,
    address: str,
    *,
    timeout_s: float = CONNECT_TIMEOUT_S,
    header_size_max: int = FRAME_SIZE_MAX,
    credentials: Signer | None = None,
) -> AsyncIterator[RemotingClient]:
    """A connected client for as long as the block runs; see :func:`connect_remoting_client`."""
    client = await connect_remoting_client(
        network, address, timeout_s=timeout_s, header_size_max=header_size_max, credentials=credentials
    )
    async with open_background_nursery() as nursery:
        nursery.start_soon(client.run)
        yield client
