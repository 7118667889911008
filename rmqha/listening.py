"""What a configuration says of a port on which nothing can be listened: which key it is of, and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening_by(port_key: str, host_key: str | None = None, *, what: str | None = None) -> Iterator[None]:
    """Have an ``OSError`` of a block that listens name the keys of its port and of its address.

    Args:
        port_key: as ``haListenPort``.
        host_key: as ``haBindAddress``; None: the same key says both.
        what: what the port is, if it is not that of the key itself.
    """
    try:
        yield
    except OSError as error:
        advice = _advice(error.errno, port_key, host_key or port_key)
        raise OSError(error.errno, f"{what or port_key}: {error.strerror}{advice}") from error


def _advice(code: int | None, port_key: str, host_key: str) -> str:
    match code:
        case errno.EADDRINUSE:
            return f". Stop what listens there ('ss -tanp' says what), or change {port_key}"
        case errno.EADDRNOTAVAIL:
            return f". That is no address of this machine: correct {host_key}"
        case errno.EACCES:
            return f". This user may not listen there, as below port 1024: change {port_key}"
        case _:
            return ""
