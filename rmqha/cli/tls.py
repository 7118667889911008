"""TLS for the commands that talk to a broker, from the environment: keys do not belong on a command line.

RMQHA_TLS_TRUST names the authorities of the broker's certificate, as PEM; RMQHA_TLS_CERT and RMQHA_TLS_KEY the
command's own certificate. None of them: no TLS.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqha.cli.errors import CliError
from rmqha.cli.pages import Page
from rmqha.errors import ConfigError
from rmqha.exit_codes import EXIT_USAGE

if TYPE_CHECKING:
    from rmqha.certificates import TlsOptions
    from rmqha.transport import Network


class UnusableFileError(CliError):
    """One that the environment names; no broker was asked."""

    exit_code = EXIT_USAGE


@contextmanager
def _telling_names() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        named = [name for name in ("TRUST", "CERT", "KEY") if os.environ.get(f"RMQHA_TLS_{name}")]
        hint = " and ".join(f"RMQHA_TLS_{name}" for name in named)
        raise UnusableFileError(str(error), hint=f"{hint} of the environment: {Page.CERTIFICATES}") from None


def _options() -> "TlsOptions | None":
    trust, cert, key = (os.environ.get(f"RMQHA_TLS_{name}", "") for name in ("TRUST", "CERT", "KEY"))
    if not trust and not cert:
        return None
    from rmqha.certificates import TlsOptions  # noqa: PLC0415 - brings the event loop with it

    return TlsOptions(trust=trust, cert=cert, key=key)


def client_network() -> "Network | None":
    """For the client library; None for plain TCP.

    Raises:
        UnusableFileError: a file cannot be used.
    """
    options = _options()
    if options is None:
        return None
    from rmqha.tls import tls_network  # noqa: PLC0415

    with _telling_names():
        return tls_network(options)


def secured_socket(connection: socket.socket, host: str) -> socket.socket:
    """``connection`` itself, or TLS on it.

    Raises:
        UnusableFileError: a file cannot be used.
        OSError: the handshake failed.
    """
    options = _options()
    if options is None:
        return connection
    from rmqha.certificates import client_context  # noqa: PLC0415

    with _telling_names():
        context = client_context(options)
    return context.wrap_socket(connection, server_hostname=host)
