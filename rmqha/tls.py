"""TLS for any Network: the same doors, with certificates behind them.

:class:`TlsNetwork` wraps a network. What it connects is TLS; what it listens on is TLS, or both kinds on one port
(:attr:`TlsMode.PERMISSIVE`): the first byte tells, as 0x16 begins a ClientHello and neither a request (0x00 or 0x01)
nor the report of any log that exists (spec: remoting §4.2). TLS 1.2 is the oldest version spoken.

The first task that receives does the handshake, so that accepting never waits for a stranger; nothing can be sent
before it. Our protocols let the connecting side speak first, so nobody needs to.
"""

import ssl
from typing import TYPE_CHECKING, Final, cast

import trio

from rmqha.certificates import Certificates, TlsOptions
from rmqha.choices import TlsMode
from rmqha.codec.certificate import names_of
from rmqha.codec.host import host_of
from rmqha.codec.tls_records import TlsRecords
from rmqha.errors import ConfigError
from rmqha.memory import BytesLike
from rmqha.transport import Listener, Network, Stream, TcpNetwork, UntrustedPeerError
from rmqha.waiting import Handshakes

if TYPE_CHECKING:
    from rmqha.store.disk import DataFile

_CLIENT_HELLO: Final = 0x16
_NOT_TLS_ALERT: Final = bytes.fromhex("15 0303 0002 02 46")
"""A fatal alert, protocol_version (RFC 8446 §6): clients that did not begin with TLS learn from it what they met."""
_HANDSHAKE_S: Final = 10.0
_ENCRYPTED_AT_ONCE: Final = 256 * 1024
_UNSENT_BYTES_MAX: Final = _ENCRYPTED_AT_ONCE + 64 * 1024
"""Besides what a sender has encrypted TLS has some bytes to say, unless a peer has it say more and takes nothing."""


class TlsStream:
    """A stream through TLS, or (on a permissive listener) not, as the peer decides.

    Invariant: what TLS has encrypted leaves in order, by one task at a time (``_sending``). Of the streams that share
    ``handshakes`` one or two take a step of theirs, or of what else brings no data, in each pass of the loop.
    """

    def __init__(
        self,
        stream: Stream,
        context: ssl.SSLContext,
        *,
        server_host: str | None,
        options: TlsOptions,
        mode: TlsMode,
        handshakes: Handshakes | None = None,
    ) -> None:
        self._handshakes: Final = handshakes or Handshakes()
        self._stream: Final = stream
        self._options: Final = options
        self._mode: Final = mode
        self._is_server: Final = server_host is None
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(
            self._incoming, self._outgoing, server_side=self._is_server, server_hostname=server_host or None
        )
        self._received: Final = TlsRecords()
        self._is_tls, self._is_plain, self._has_greeted = not self._is_server, False, False
        self._first = b""
        """On a plain connection: what was received to find that out, and not given out yet."""
        self._ready = trio.Event()
        self._sending: Final = trio.Lock()

    @property
    def peer(self) -> str:
        """See :class:`~rmqha.transport.Stream`."""
        return self._stream.peer

    @property
    def local_port(self) -> int:
        """See :class:`~rmqha.transport.Stream`."""
        return self._stream.local_port

    async def receive_into(self, buffer: memoryview) -> int:
        """See :class:`~rmqha.transport.Stream`."""
        if not self._ready.is_set():
            await self.start()
        if self._is_plain:
            return await self._receive_plain(buffer)
        await trio.lowlevel.checkpoint()
        is_in_vain = False
        while True:
            try:
                return cast("int", self._tls.read(len(buffer), cast("bytearray", buffer)))  # any buffer will do
            except ssl.SSLWantReadError:
                await self._flush()
            except ssl.SSLZeroReturnError:
                return 0
            except ssl.SSLError as error:
                raise trio.BrokenResourceError(self._reason(error)) from error
            if is_in_vain and self._received.more:  # TLS's own affairs, such as new keys
                async with self._handshakes.turn(host_of(self.peer), has_answered=True):
                    await trio.lowlevel.checkpoint()
            if not await self._feed():
                return 0
            is_in_vain = True

    async def _receive_plain(self, buffer: memoryview) -> int:
        if not self._first:
            return await self._stream.receive_into(buffer)
        await trio.lowlevel.checkpoint()
        size = min(len(buffer), len(self._first))
        buffer[:size], self._first = self._first[:size], self._first[size:]
        return size

    async def start(self) -> None:
        """Find out what the peer speaks, and shake hands; may be cancelled and done again.

        Raises:
            UntrustedPeerError: it does not speak TLS, or its certificate is not accepted, or ours is not.
        """
        if self._is_tls or await self._is_hello():
            with trio.move_on_after(_HANDSHAKE_S) as deadline:
                await self._shake_hands()
            if deadline.cancelled_caught:
                raise UntrustedPeerError(f"no TLS handshake with {self.peer} within {_HANDSHAKE_S:g} s")
            self._check_names()
            self._handshakes.note_done(host_of(self.peer))
        self._ready.set()

    async def _is_hello(self) -> bool:
        count = await self._stream.receive_into(space := self._received.space())
        if count and space[0] == _CLIENT_HELLO:
            self._received.on_received(count)
            self._incoming.write(self._received.take())
            self._is_tls = True
            return True
        self._first = bytes(space[:count])
        if count and self._mode is TlsMode.ENFORCING:
            self._stream.send_nowait(_NOT_TLS_ALERT)
            raise UntrustedPeerError(f"{self.peer} does not speak TLS, which is required here")
        self._is_plain = True
        return False

    async def _shake_hands(self) -> None:
        while True:
            try:
                await self._do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
            except ssl.SSLError as error:
                await self._flush()  # the alert that tells the peer why
                raise UntrustedPeerError(self._reason(error)) from error
            else:
                await self._flush()
                return
            if not await self._feed():
                raise UntrustedPeerError(f"{self.peer} ended the connection during the TLS handshake")

    async def _do_handshake(self) -> None:
        """A step. To sign takes milliseconds, with a large key, and a thousand strangers may come at one moment."""
        async with self._handshakes.turn(host_of(self.peer), has_answered=self._has_greeted):
            try:
                self._tls.do_handshake()
            finally:
                self._has_greeted = self._has_greeted or self._outgoing.pending > 0
                await trio.lowlevel.cancel_shielded_checkpoint()

    def _check_names(self) -> None:
        wanted = self._options.peer_names
        if not wanted:
            return
        names = names_of(self._tls.getpeercert() or {})
        if not names & set(wanted):
            found = ", ".join(sorted(names)) or "no name"
            raise UntrustedPeerError(f"the certificate of {self.peer} is for {found}; accepted are {', '.join(wanted)}")

    async def _feed(self) -> bool:
        """Give TLS the next few records, received if there are none; False at the end of the stream."""
        records = self._received
        while not records.more:
            if not (count := await self._stream.receive_into(records.space())):
                return False
            records.on_received(count)
        self._incoming.write(records.take())
        return True

    async def _flush(self) -> None:
        """The receiver's part: send what TLS itself had to say, unless a sender is at work, which sends that as well.

        The receiver never waits for a sender, nor sends for one. If it did, two peers that both send much would wait
        for each other for ever.
        """
        pending = self._outgoing.pending
        if self._sending.locked():
            if pending > _UNSENT_BYTES_MAX:
                raise trio.BrokenResourceError(f"{self.peer} asks for new keys, and takes nothing")
        elif pending:
            self._sending.acquire_nowait()
            try:
                await self._stream.send_all(self._outgoing.read())
            finally:
                self._sending.release()

    async def _flush_all(self) -> None:
        """A sender's part: send everything that TLS has encrypted."""
        async with self._sending:
            while self._outgoing.pending:
                await self._stream.send_all(self._outgoing.read())

    async def send_all(self, data: BytesLike) -> None:
        """See :class:`~rmqha.transport.Stream`."""
        await self._ready.wait()
        if self._is_plain:
            await self._stream.send_all(data)
            return
        with memoryview(data).cast("B") as view:
            for at in range(0, len(view), _ENCRYPTED_AT_ONCE):
                try:
                    self._tls.write(view[at : at + _ENCRYPTED_AT_ONCE])
                except ssl.SSLError as error:
                    raise trio.BrokenResourceError(self._reason(error)) from error
                await self._flush_all()

    def send_nowait(self, data: BytesLike) -> int:
        """See :class:`~rmqha.transport.Stream`. What is encrypted cannot be taken back, so TLS always waits."""
        return self._stream.send_nowait(data) if self._is_plain else 0

    async def send_file(self, header: bytes, file: "DataFile", at: int, size: int) -> None:
        """See :class:`~rmqha.transport.Stream`. The kernel does not encrypt: bytes go through Python after all."""
        await self._ready.wait()
        if self._is_plain:
            await self._stream.send_file(header, file, at, size)
            return
        first = min(size, _ENCRYPTED_AT_ONCE)
        view = file.view()
        await self.send_all(b"".join((header, view[at : at + first])))
        if first < size:
            await self.send_all(view[at + first : at + size])

    def send_eof(self) -> None:
        """See :class:`~rmqha.transport.Stream`."""
        self._stream.send_eof()

    def close(self) -> None:
        """See :class:`~rmqha.transport.Stream`."""
        self._stream.close()
        self._ready.set()  # a sender that waits meets the closed stream

    def _reason(self, error: ssl.SSLError) -> str:
        return f"TLS with {self.peer}: {getattr(error, 'verify_message', '') or error.reason or error}"


class TlsListener:
    """Hands out streams whose peer has yet to show what it speaks."""

    def __init__(self, listener: Listener, certificates: Certificates, *, mode: TlsMode) -> None:
        self._listener: Final = listener
        self._certificates: Final = certificates
        self._mode: Final = mode
        self._handshakes: Final = Handshakes()

    @property
    def port(self) -> int:
        """See :class:`~rmqha.transport.Listener`."""
        return self._listener.port

    async def accept(self) -> TlsStream:
        """See :class:`~rmqha.transport.Listener`."""
        stream = await self._listener.accept()
        context, options = self._certificates.server, self._certificates.options
        assert context is not None, "a listener has a certificate"
        mode, handshakes = self._mode, self._handshakes
        return TlsStream(stream, context, server_host=None, options=options, mode=mode, handshakes=handshakes)

    def close(self) -> None:
        """See :class:`~rmqha.transport.Listener`."""
        self._listener.close()


class TlsNetwork:
    """A network whose connections are TLS. With :attr:`TlsMode.PERMISSIVE` it listens for both, and connects plainly.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """

    def __init__(self, network: Network, options: TlsOptions, *, mode: TlsMode = TlsMode.ENFORCING) -> None:
        assert mode is not TlsMode.DISABLED, "without TLS there is nothing to wrap"
        self._network: Final = network
        self._mode: Final = mode
        self._certificates: Final = Certificates(options)

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Stream:
        """See :class:`~rmqha.transport.Network`. The handshake is done on return, within the same time."""
        begun_at = trio.current_time()
        stream = await self._network.connect(host, port, timeout_s=timeout_s)
        if self._mode is TlsMode.PERMISSIVE:
            return stream
        certificates = self._certificates
        options, mode = certificates.options, self._mode
        tls = TlsStream(stream, certificates.client, server_host=host, options=options, mode=mode)
        try:
            with trio.fail_after(max(0.0, begun_at + timeout_s - trio.current_time())):
                await tls.start()
        except trio.TooSlowError:
            stream.close()
            raise TimeoutError(f"no TLS handshake with {host}:{port} within {timeout_s:g} s") from None
        except trio.BrokenResourceError as error:
            stream.close()
            raise ConnectionError(str(error)) from error
        except BaseException:
            stream.close()
            raise
        return tls

    async def listen(self, host: str, port: int, *, unsent_bytes_max: int | None = None) -> TlsListener:
        """See :class:`~rmqha.transport.Network`."""
        if self._certificates.server is None:
            raise ConfigError("TLS: a listener needs a certificate and its key")
        listener = await self._network.listen(host, port, unsent_bytes_max=unsent_bytes_max)
        return TlsListener(listener, self._certificates, mode=self._mode)


def secured(network: Network, options: TlsOptions, mode: TlsMode) -> Network:
    """``network`` itself, or wrapped.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    return network if mode is TlsMode.DISABLED else TlsNetwork(network, options, mode=mode)


def tls_network(options: TlsOptions) -> Network:
    """TLS over TCP, for clients: ``open_producer(addresses, network=tls_network(TlsOptions(trust="ca.pem")))``.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    return TlsNetwork(TcpNetwork(), options)
