"""TLS for the commands that talk to a broker, from the environment: keys do not belong on a command line.

RMQHA_TLS_TRUST names the authorities of the broker's certificate, as PEM; RMQHA_TLS_CERT and RMQHA_TLS_KEY the
command's own certificate. None of them: no TLS.
"""

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.certificates import TlsOptions
    from rmqha.transport import Network


def _options() -> "TlsOptions | None":
    trust, cert, key = (os.environ.get(f"RMQHA_TLS_{name}", "") for name in ("TRUST", "CERT", "KEY"))
    if not trust and not cert:
        return None
    from rmqha.certificates import TlsOptions  # noqa: PLC0415 - brings the event loop with it

    return TlsOptions(trust=trust, cert=cert, key=key)


def client_network() -> "Network | None":
    """For the client library; None for plain TCP.

    Raises:
        ConfigError: a file cannot be used.
    """
    options = _options()
    if options is None:
        return None
    from rmqha.tls import tls_network  # noqa: PLC0415

    return tls_network(options)


def secured_socket(connection: socket.socket, host: str) -> socket.socket:
    """``connection`` itself, or TLS on it.

    Raises:
        ConfigError: a file cannot be used.
        OSError: the handshake failed.
    """
    options = _options()
    if options is None:
        return connection
    from rmqha.certificates import client_context  # noqa: PLC0415

    return client_context(options).wrap_socket(connection, server_hostname=host)
