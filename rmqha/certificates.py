"""What TLS shows and trusts: PEM files, and what is made of them; read again for the whole process (SIGHUP).

Connections that are there keep what they began with; the next ones go by the new files.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakSet

import trio

from rmqha.certificate_validity import valid_between
from rmqha.errors import ConfigError
from rmqha.threads import needing_a_thread


class Validity(NamedTuple):
    """When the certificate in the file ``path`` begins and ends to be trusted, in seconds since 1970."""

    path: str
    begins_s: float
    ends_s: float


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Certificates, as PEM files.

    Attributes:
        cert: this side's certificate with its chain; empty: a client without one.
        key: its private key, not encrypted.
        trust: certificates of the authorities that peers' certificates must come from; empty: the system's.
        peer_names: if not empty, a peer's certificate must carry one of these (DNS name, IP address or common name).
        require_peer_cert: on listeners: whether clients must present a certificate.
    """

    cert: str = ""
    key: str = ""
    trust: str = ""
    peer_names: tuple[str, ...] = ()
    require_peer_cert: bool = True


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """How to connect.

    Raises:
        ConfigError: a file cannot be read, or is no certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = not options.peer_names  # pinned names say more than an address
    _load(context, options)
    return context


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """How to be connected to.

    Raises:
        ConfigError: a file cannot be read, or is no certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, options)
    context.verify_mode = ssl.CERT_REQUIRED if options.require_peer_cert else ssl.CERT_NONE
    return context


def _load(context: ssl.SSLContext, options: TlsOptions) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    path = options.cert
    try:
        if options.cert:
            context.load_cert_chain(options.cert, options.key or None, password=_refuse_password)
        path = options.trust
        if options.trust:
            context.load_verify_locations(options.trust)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError, ValueError) as error:  # SSLError is an OSError; named for the reader
        _open_each(options)
        told = f"with the key {options.key}" if options.key else "without a key beside it (none is named)"
        of_key = f" {told}" if path == options.cert else ""
        raise ConfigError(f"TLS: {path} cannot be used{of_key}: {error}") from None


def _open_each(options: TlsOptions) -> None:
    """Raises ConfigError: a file is not there, or may not be read; OpenSSL's errors do not say which."""
    for path in filter(None, (options.cert, options.key, options.trust)):
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            raise ConfigError(f"TLS: {path} cannot be used: {error.strerror}") from None


def _refuse_password() -> str:
    raise ValueError("its key is encrypted; give one that is not, readable by this user alone")


@dataclass(frozen=True, slots=True)
class _Contexts:
    """Both sides, as the files had it at one time."""

    client: ssl.SSLContext
    server: ssl.SSLContext | None
    validity: Validity | None


def _read(options: TlsOptions) -> _Contexts:
    server = server_context(options) if options.cert else None
    return _Contexts(client_context(options), server, validity(options.cert))


def why_unusable(options: TlsOptions) -> str:
    """Why no server starts with these files; empty if one does."""
    try:
        _read(options)
    except ConfigError as error:
        return str(error)
    return ""


def validity(path: str) -> Validity | None:
    """Of the certificate in this file; None if there is none, or it cannot be told."""
    try:
        times = valid_between(Path(path).read_text("ascii", "replace")) if path else None
    except OSError:
        return None
    return None if times is None else Validity(path, *times)


def first_to_expire() -> Validity | None:
    """Of the certificates that this process shows, the one that ends first."""
    return min(_shown(), key=lambda one: one.ends_s, default=None)


def not_valid_yet(*, now_s: float) -> Validity | None:
    """Of the certificates that this process shows, the one that begins last, if it has yet to begin."""
    last = max(_shown(), key=lambda one: one.begins_s, default=None)
    return last if last is not None and last.begins_s > now_s else None


def _shown() -> list[Validity]:
    return [one.contexts.validity for one in _in_use if one.contexts.validity is not None]


class Certificates:
    """What a network's new connections go by.

    Attributes:
        options: where the files are.
    """

    def __init__(self, options: TlsOptions) -> None:
        """Read them. Raises ConfigError: a file cannot be read, or is no certificate or key."""
        self.options: Final = options
        self.contexts = _read(options)
        _in_use.add(self)

    @property
    def client(self) -> ssl.SSLContext:
        """How to connect."""
        return self.contexts.client

    @property
    def server(self) -> ssl.SSLContext | None:
        """How to be connected to; None without a certificate."""
        return self.contexts.server


_in_use: Final[WeakSet[Certificates]] = WeakSet()
"""Of this process, as the signal is that has them read again."""


class _LastReading:
    """``why_kept``: why the files were not taken when they were to be read again the last time; empty if they were."""

    why_kept = ""


_last_reading: Final = _LastReading()


def why_kept() -> str:
    """Why this process, which was to read its files again, goes by those of before; empty: it does not."""
    return _last_reading.why_kept


async def read_again() -> list[str]:
    """Have all new connections of this process go by the files as they are now; all of them, or none.

    What prevents it is :func:`why_kept` until another reading succeeds.

    Returns:
        The files that were read.

    Raises:
        ConfigError: one cannot be used; nothing has changed.
        OSError: no thread could be started to read them; nothing has changed.
    """
    in_use = list(_in_use)
    wanted = {one.options for one in in_use}
    try:
        with needing_a_thread():
            read = await trio.to_thread.run_sync(lambda: {one: _read(one) for one in wanted}, abandon_on_cancel=True)
    except (ConfigError, OSError) as error:
        _last_reading.why_kept = str(error)
        raise
    _last_reading.why_kept = ""
    for one in in_use:
        one.contexts = read[one.options]
    return sorted({path for one in wanted for path in (one.cert, one.key, one.trust) if path})
