"""Bodies that producers have compressed. The store keeps them as they are; only who wants to read one inflates it.

    SYSFLAG bits 8-10   body
    0                   zlib stream, by writers before 4.9.4
    1                   LZ4 frame
    2                   Zstandard frame
    3                   zlib stream

Source: spec: commitlog §2.3, §2.8.
"""

import zlib
from collections.abc import Callable
from typing import Final

from rmqha.codec.layout import SysFlag
from rmqha.errors import LocalProtocolError, RemoteProtocolError

PLAIN_SIZE_MAX: Final = 64 * 1024 * 1024
"""Against bodies that are small but inflate without end."""


def inflate(body: bytes, sys_flag: int, *, size_max: int = PLAIN_SIZE_MAX) -> bytes:
    """The body as the producer's application gave it; ``body`` itself if it is not flagged as compressed.

    Raises:
        RemoteProtocolError: it cannot be inflated, or is larger than ``size_max``. The record may still be a good one.
        LocalProtocolError: the library for its format is not installed.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    number = (sys_flag & SysFlag.COMPRESSION_TYPE) >> SysFlag.COMPRESSION_TYPE_SHIFT
    inflater = _INFLATERS.get(number)
    if inflater is None:
        raise RemoteProtocolError(f"compression type {number} is not known")
    plain = inflater(body, size_max)
    if len(plain) > size_max:
        raise RemoteProtocolError(f"the body inflates to more than {size_max} bytes")
    return plain


def _zlib(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, size_max + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"the body is no zlib stream: {error}") from error
    if not stream.eof and len(plain) <= size_max:
        raise RemoteProtocolError("the body's zlib stream is cut off")
    return plain


def _lz4(body: bytes, size_max: int) -> bytes:
    try:
        import lz4.frame  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise LocalProtocolError("the body is an LZ4 frame: install rmqha[compression]") from error
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        plain = bytes(stream.decompress(body, size_max + 1))
    except (RuntimeError, EOFError) as error:
        raise RemoteProtocolError(f"the body is no LZ4 frame: {error}") from error
    if not stream.eof and len(plain) <= size_max:
        raise RemoteProtocolError("the body's LZ4 frame is cut off")
    return plain


def _zstd(body: bytes, size_max: int) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise LocalProtocolError("the body is a Zstandard frame: install rmqha[compression]") from error
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            return reader.read(size_max + 1)
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"the body is no Zstandard frame: {error}") from error


_INFLATERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}
