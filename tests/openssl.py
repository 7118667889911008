"""A TLS client that asks for new keys, which Python's ssl does not offer: by the library that it uses itself."""

import ctypes
from ctypes import c_int, c_void_p

import pytest

_ssl = pytest.importorskip("_ssl")
_FUNCTIONS = {
    "TLS_client_method": (c_void_p,),
    "SSL_CTX_new": (c_void_p, c_void_p),
    "SSL_new": (c_void_p, c_void_p),
    "BIO_s_mem": (c_void_p,),
    "BIO_new": (c_void_p, c_void_p),
    "BIO_read": (c_int, c_void_p, c_void_p, c_int),
    "BIO_write": (c_int, c_void_p, ctypes.c_char_p, c_int),
    "SSL_set_bio": (None, c_void_p, c_void_p, c_void_p),
    "SSL_set_connect_state": (None, c_void_p),
    "SSL_do_handshake": (c_int, c_void_p),
    "SSL_key_update": (c_int, c_void_p, c_int),
    "SSL_write": (c_int, c_void_p, ctypes.c_char_p, c_int),
}
_KEY_UPDATE_REQUESTED = 1


class OpensslClient:
    """Bytes in, bytes out; trusts everybody."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(_ssl.__file__)
            for name, (result, *arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (AttributeError, OSError) as error:
            pytest.skip(f"Python's OpenSSL cannot be called: {error}")
        self._library = library
        self._tls = library.SSL_new(library.SSL_CTX_new(library.TLS_client_method()))
        self._incoming, self._outgoing = (library.BIO_new(library.BIO_s_mem()) for _ in range(2))
        library.SSL_set_bio(self._tls, self._incoming, self._outgoing)
        library.SSL_set_connect_state(self._tls)

    def shake_hands(self, received: bytes = b"") -> bool:
        """Take in what was received; returns whether all is done."""
        self._library.BIO_write(self._incoming, received, len(received))
        return bool(self._library.SSL_do_handshake(self._tls) == 1)

    def to_send(self) -> bytes:
        """What there is to send."""
        buffer, data = ctypes.create_string_buffer(65_536), b""
        while (count := self._library.BIO_read(self._outgoing, buffer, len(buffer))) > 0:
            data += buffer.raw[:count]
        return data

    def ask_for_new_keys(self, times: int) -> None:
        """A record of 27 bytes each time."""
        for _ in range(times):
            assert self._library.SSL_key_update(self._tls, _KEY_UPDATE_REQUESTED) == 1
            assert self.shake_hands()

    def write(self, data: bytes) -> None:
        """A record."""
        assert self._library.SSL_write(self._tls, data, len(data)) == len(data)
