"""Connections of TCP that have both their ends at one socket. Nobody wants them, and nobody else can use their port."""

import errno
import os
import socket
import struct
from typing import Any, Final

_BREAK_OFF: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closed at once, and forgotten by the kernel."""


def refuse_itself(connection: Any) -> None:
    """Break a new connection off that has both its ends here: nobody listens where it was to lead.

    Linux makes one where a port of this machine is asked for at which nobody listens, and gives that very port to who
    asks: one try in some ten thousand, if it is one of those that it gives (``ip_local_port_range``). As long as such a
    connection lasts, who is to listen there cannot. One that has ended meanwhile led to somebody.

    Args:
        connection: a socket, blocking or trio's.

    Raises:
        ConnectionRefusedError: it is one of these.
    """
    try:
        leads_to = connection.getpeername()
    except OSError:
        return
    if connection.getsockname() == leads_to:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _BREAK_OFF)
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
