"""The one door to the network: streams, listeners, connecting. A simulator can stand behind it.

Everything above speaks to the :class:`Network`, :class:`Listener` and :class:`Stream` protocols; :class:`TcpNetwork`
is the real one. A stream is bound once per connection, so the door costs nothing per message.

Errors: ``trio.BrokenResourceError`` (they, or the network, ended it) and ``trio.ClosedResourceError`` (we closed it).
"""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from rmqha.codec.host import join_address
from rmqha.errors import errors_in
from rmqha.memory import BytesLike
from rmqha.self_connection import refuse_itself
from rmqha.threads import needing_a_thread

if TYPE_CHECKING:
    from rmqha.store.disk import DataFile


SENDFILE_BYTES_MIN: Final = 64 * 1024
"""From this size on a body goes out by sendfile; below, one gathered send of header and mapped bytes is cheaper."""

_TAKEN_IN_A_ROW_MAX: Final = 512 * 1024
"""So much is received from one peer before the other tasks get a turn."""

ACCEPTED_IN_A_ROW_MAX: Final = 16
"""So many connections are accepted before the other tasks get a turn: some milliseconds, with what each costs then."""

_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC})
_GONE_BEFORE_ACCEPT: Final = frozenset(
    {
        *(errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EAGAIN),
        # Linux passes on what befell the new connection, and a firewall's refusal (accept(2)).
        *(errno.EPERM, errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH),
        *(errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT),
    }
)
_ACCEPT_PAUSE_S: Final = 0.1
_TOLD_AGAIN_S: Final = 60.0

TellLacking = Callable[[int, OSError], None]
"""``tell(port, error)``: nobody is accepted at ``port``, as the machine or this process lacks something."""


class UntrustedPeerError(trio.BrokenResourceError):
    """The peer did not show that it may be here; the connection is of no use. An operator wants to know."""


class Stream(Protocol):
    """One connection. One task may receive while another sends; not two of the same kind."""

    @property
    def peer(self) -> str:
        """The other side as ``ip:port`` (``[ip]:port`` for IPv6). For eyes: two streams may have the same one."""
        ...

    @property
    def local_port(self) -> int:
        """The port at this side; 0 if the connection is gone. With this host's address it names the connection."""
        ...

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes and put them into ``buffer``; returns how many, 0 at the end of the stream.

        No other task runs between the two: connections may share a buffer.
        """
        ...

    async def send_all(self, data: BytesLike) -> None:
        """Send all of ``data``. If cancelled, an unknown part was sent: the stream must then be closed."""
        ...

    def send_nowait(self, data: BytesLike) -> int:
        """Send what fits without waiting; returns how many bytes were taken, 0 if none."""
        ...

    async def send_file(self, header: bytes, file: "DataFile", at: int, size: int) -> None:
        """Send ``header`` and then ``size`` bytes of ``file`` from ``at``, without copying them through Python."""
        ...

    def send_eof(self) -> None:
        """Have the peer see the end of the stream behind what was sent; it may still be received from. Idempotent."""
        ...

    def close(self) -> None:
        """End the connection now, in both directions. Idempotent; tasks inside get ClosedResourceError."""
        ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port really bound (of use when 0 was asked for)."""
        ...

    async def accept(self) -> Stream:
        """Wait for the next connection. Running out of descriptors is waited out, not raised."""
        ...

    def close(self) -> None:
        """Stop listening. Idempotent."""
        ...


class Network(Protocol):
    """Where connections come from."""

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Stream:
        """Connect. Raises ``OSError`` when refused, unreachable, unresolvable, or not done within ``timeout_s``."""
        ...

    async def listen(self, host: str, port: int, *, unsent_bytes_max: int | None = None) -> Listener:
        """Listen on ``host:port``. Raises ``OSError`` when the address cannot be bound.

        Args:
            host: an address of this machine.
            port: 0 is any that is free.
            unsent_bytes_max: the kernel keeps so many bytes for a connection, more or less, beside those on their way;
                None: megabytes.
        """
        ...


class TcpStream:
    """A TCP socket, driven directly: one try, and a wait only if the kernel would block."""

    def __init__(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = sock
        self._peer = _format_address(address)
        self._may_hold_more = False
        self._taken_in_a_row = 0

    @property
    def peer(self) -> str:
        """See :class:`Stream`."""
        return self._peer

    @property
    def local_port(self) -> int:
        """See :class:`Stream`."""
        try:
            port: int = self._socket.getsockname()[1]
        except OSError:
            return 0
        return port

    async def receive_into(self, buffer: memoryview) -> int:
        """See :class:`Stream`."""
        sock = self._socket
        if not self._may_hold_more or self._taken_in_a_row >= _TAKEN_IN_A_ROW_MAX:
            await self._wait_readable()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()  # before, never after: what was received must not be lost
        while True:
            try:
                count = sock.recv_into(buffer)
            except BlockingIOError:
                await self._wait_readable()
                continue
            except OSError as error:
                raise self._broken(error) from error
            self._may_hold_more = count == len(buffer)
            self._taken_in_a_row += count
            return count

    async def _wait_readable(self) -> None:
        """Let the other tasks run, also when there is something to read: a busy peer must not starve them."""
        if self._socket.fileno() == -1:
            raise trio.ClosedResourceError("this connection was closed here")
        try:
            await trio.lowlevel.wait_readable(self._socket)
        except OSError as error:
            raise self._broken(error) from error
        self._taken_in_a_row = 0

    async def _wait_writable(self) -> None:
        """As :meth:`_wait_readable`: if the kernel cannot watch a connection (memory, max_user_watches), it is lost."""
        try:
            await trio.lowlevel.wait_writable(self._socket)
        except OSError as error:
            raise self._broken(error) from error

    async def send_all(self, data: BytesLike) -> None:
        """See :class:`Stream`."""
        with memoryview(data).cast("B") as view:
            sent = self.send_nowait(view)
            if sent == len(view):
                await trio.lowlevel.checkpoint()
            while sent < len(view):
                await self._wait_writable()
                sent += self.send_nowait(view[sent:])

    def send_nowait(self, data: BytesLike) -> int:
        """See :class:`Stream`."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._broken(error) from error

    async def send_file(self, header: bytes, file: "DataFile", at: int, size: int) -> None:
        """See :class:`Stream`."""
        descriptor = file.fileno()
        if descriptor is None or size < SENDFILE_BYTES_MIN:
            await self._send_gathered(header, file.view()[at : at + size])
            return
        await self.send_all(header)
        end = at + size
        while at < end:
            try:
                sent = os.sendfile(self._socket.fileno(), descriptor, at, end - at)
            except BlockingIOError:
                await self._wait_writable()
                continue
            except OSError as error:
                raise self._broken(error) from error
            if sent == 0:
                raise trio.BrokenResourceError(f"{file.path} ends before {end}: it was cut while being sent")
            at += sent

    async def _send_gathered(self, header: bytes, body: memoryview) -> None:
        try:
            sent = self._socket.sendmsg((header, body))
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._broken(error) from error
        if sent < len(header):
            await self.send_all(header[sent:])
            sent = len(header)
        if sent < len(header) + len(body):
            await self.send_all(body[sent - len(header) :])
        else:
            await trio.lowlevel.checkpoint()

    def send_eof(self) -> None:
        """See :class:`Stream`."""
        with suppress(OSError):  # it has left already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """See :class:`Stream`."""
        if self._socket.fileno() != -1:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def _broken(self, error: OSError) -> Exception:
        if self._socket.fileno() == -1:
            return trio.ClosedResourceError("this connection was closed here")
        return trio.BrokenResourceError(f"connection to {self._peer}: {error.strerror or error}")


class TcpListener:
    """A listening TCP socket."""

    def __init__(self, sock: socket.socket, *, tell_lacking: TellLacking = lambda _port, _error: None) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._port: int = sock.getsockname()[1]
        self._accepted_in_a_row = 0
        self._tell_lacking = tell_lacking
        self._told_at = -inf

    @property
    def port(self) -> int:
        """See :class:`Listener`."""
        return self._port

    async def accept(self) -> TcpStream:
        """See :class:`Listener`. Who connects does not wait for a turn of all others for each that came before."""
        while True:
            sock: socket.socket | None = None
            try:
                if 0 < self._accepted_in_a_row < ACCEPTED_IN_A_ROW_MAX:
                    await trio.lowlevel.checkpoint_if_cancelled()
                else:
                    self._accepted_in_a_row = 0
                    await trio.lowlevel.wait_readable(self._socket)
                sock, address = self._socket.accept()  # asked later, a socket that was reset knows no peer any more
                self._accepted_in_a_row += 1
                return TcpStream(sock, address)
            except OSError as error:
                self._accepted_in_a_row = 0
                if sock is not None:
                    sock.close()  # it cannot be set up: nobody else's matter
                    continue
                if self._socket.fileno() == -1:
                    raise trio.ClosedResourceError("this listener was closed") from error
                if error.errno in _OUT_OF_RESOURCES:
                    self._tell(error)
                    await trio.sleep(_ACCEPT_PAUSE_S)  # descriptors come back when connections end
                elif error.errno not in _GONE_BEFORE_ACCEPT and not isinstance(error, ConnectionError):
                    raise

    def _tell(self, error: OSError) -> None:
        if trio.current_time() >= self._told_at + _TOLD_AGAIN_S:
            self._told_at = trio.current_time()
            self._tell_lacking(self._port, error)

    def close(self) -> None:
        """See :class:`Listener`."""
        if self._socket.fileno() != -1:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class TcpNetwork:
    """The kernel's TCP. What listens here tells ``tell_lacking``, at most once a minute, why it accepts nobody."""

    def __init__(self, *, backlog: int = 1024, tell_lacking: TellLacking = lambda _port, _error: None) -> None:
        self._backlog = backlog
        self._tell_lacking = tell_lacking

    async def connect(self, host: str, port: int, *, timeout_s: float) -> TcpStream:
        """See :class:`Network`."""
        with trio.move_on_after(timeout_s):
            try:
                with needing_a_thread():  # unless the host is an address already
                    stream = await trio.open_tcp_stream(host, port)
            except OSError as error:
                raise _why_not_connected(error) from None
            except ValueError as error:  # a peer may have made the name up
                raise OSError(errno.EINVAL, f"{host:.80} is no host's name: {error}") from None
            with stream.socket as sock:
                refuse_itself(sock)
                peer = sock.getpeername()
                return TcpStream(_detach(sock), peer)
        raise TimeoutError(errno.ETIMEDOUT, f"no connection to {host}:{port} within {timeout_s:g} s")

    async def listen(self, host: str, port: int, *, unsent_bytes_max: int | None = None) -> TcpListener:
        """See :class:`Network`."""
        with needing_a_thread():
            flags = socket.AI_PASSIVE
            addresses = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
        family, kind, protocol, _, address = addresses[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if unsent_bytes_max is not None:  # connections have it from their listener
                with suppress(OSError):  # an emulated kernel may not know it, and only keeps more
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes_max)
            sock.bind(address)
            sock.listen(self._backlog)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
        return TcpListener(sock, tell_lacking=self._tell_lacking)


def _why_not_connected(error: OSError) -> OSError:
    """What the kernel said, rather than that all attempts failed: of several addresses, about the last one tried."""
    if not isinstance(error.__cause__, OSError | BaseExceptionGroup):
        return error
    causes = errors_in(error.__cause__, OSError)
    for cause in causes:
        cause.__traceback__ = None  # it holds trio's list of them
    cause = causes[-1]
    assert isinstance(cause, OSError)
    # trio puts the address before it, as Python writes one; who asked knows it
    return OSError(cause.errno, os.strerror(cause.errno)) if cause.errno else cause


def _detach(sock: trio.socket.SocketType) -> socket.socket:
    """Take the descriptor out of trio's wrapper."""
    return socket.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())


def _format_address(address: tuple[Any, ...]) -> str:
    """Of what the kernel says: host and port, and with IPv6 flow and scope.

    An IPv4 peer has one name, whether the listener is for both families (``::``) or for its own.
    """
    host, port, *_ = address
    if "." in host:
        host = host.removeprefix("::ffff:")
    return join_address(host, port)
