"""One question after the other to a broker, in plain blocking code: a few are not worth an event loop."""

import socket
import time
from collections.abc import Callable
from typing import Final, Self

from rmqha.codec.acl import SessionCredentials
from rmqha.codec.codes import ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_RESPONSE, FRAME_SIZE_MAX, RemotingCommand
from rmqha.codec.strangers import describe_answer
from rmqha.errors import RemoteProtocolError
from rmqha.self_connection import refuse_itself

_FIRST_BYTES: Final = 16
_SILENT_S: Final = 1.0
"""Then another one is asked, as the first may not be known there."""
_NO_ANSWER: Final = (
    "it closed the connection without an answer: it requires TLS, its clientAllow leaves this host out, or this is no "
    "listenPort (the HA port is one above it)"
)

Secure = Callable[[socket.socket, str], socket.socket]
"""Makes TLS of a connection to a host, or leaves it as it is."""


def plain(connection: socket.socket, _host: str) -> socket.socket:
    """No TLS."""
    return connection


class BlockingConnection:
    """A connection to a broker, made with the first question. Use it as a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        credentials: SessionCredentials | None = None,
        secure: Secure = plain,
        answer_size_max: int = FRAME_SIZE_MAX,
    ) -> None:
        self._address: Final = (host, port)
        self._timeout_s: Final = timeout_s
        self._credentials: Final = credentials
        self._secure: Final = secure
        self._socket: socket.socket | None = None
        self._decoder: Final = FrameDecoder(frame_size_max=answer_size_max)
        self._first_bytes = b""
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._socket is not None:
            self._socket.close()

    def ask(self, request: RemotingCommand, *, known_instead: RemotingCommand | None = None) -> RemotingCommand:
        """The broker's answer, whatever its code. ``request`` gets a number of this connection, and is signed.

        Args:
            request: what is asked.
            known_instead: asked as well when there is no answer for a moment: where this succeeds and the other one
                stays unanswered, that is not supported there. RocketMQ's name servers do not say so (spec: remoting
                §2.3).

        Raises:
            OSError: nobody answers; TimeoutError: not in time.
            UnicodeError: the host's name is none.
            RemoteProtocolError: what answers is no broker.
        """
        deadline = time.monotonic() + self._timeout_s
        try:
            self._send(request, deadline=deadline)
            if known_instead is not None:
                try:
                    return self._answer_to(request, deadline=min(deadline, time.monotonic() + _SILENT_S))
                except TimeoutError:
                    self._send(known_instead, deadline=deadline)
            return self._answer_to(request, known_instead, deadline=deadline)
        except RemoteProtocolError as error:
            told = describe_answer(self._first_bytes) or f"what listens there is no broker: {error}"
            raise RemoteProtocolError(told) from None

    def _send(self, request: RemotingCommand, *, deadline: float) -> None:
        self._opaque += 1
        request.opaque = self._opaque
        if self._credentials is not None:
            self._credentials.sign(request)
        connection = self._connect()
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        connection.sendall(request.encode())

    def _answer_to(
        self, request: RemotingCommand, known_instead: RemotingCommand | None = None, *, deadline: float
    ) -> RemotingCommand:
        connection = self._connect()
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:  # though something else comes all the time
                raise TimeoutError("timed out")
            connection.settimeout(left_s)
            data = connection.recv(65536)
            if not data:
                raise ConnectionError(describe_answer(self._first_bytes) or _NO_ANSWER)
            self._first_bytes = self._first_bytes or data[:_FIRST_BYTES]
            for answer in self._decoder.receive_data(data):
                if answer.is_response and answer.opaque == request.opaque:
                    return answer
                is_other = known_instead is not None and answer.opaque == known_instead.opaque
                if is_other and answer.is_response and answer.code == ResponseCode.SUCCESS:
                    return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, request.opaque, FLAG_RESPONSE)

    def _connect(self) -> socket.socket:
        if self._socket is None:
            raw = socket.create_connection(self._address, self._timeout_s)
            try:
                refuse_itself(raw)
                self._socket = self._secure(raw, self._address[0])
            except BaseException:
                raw.close()
                raise
        return self._socket
