"""Bodies that producers have compressed. The store keeps them as they are; readers inflate them here.

    SYSFLAG bits 8-10   body
    0                   zlib stream, by writers before 4.9.4
    1                   LZ4 frame
    2                   Zstandard frame
    3                   zlib stream

A body is one whole stream or frame: less, or anything behind it, is damage.

Source: spec: commitlog §2.3, §2.8; rocketmq-all-4.9.8 CompressionType.java, MessageDecoder.java.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final

from rmqha.codec.record.layout import SysFlag
from rmqha.errors import LocalProtocolError, RemoteProtocolError

PLAIN_SIZE_MAX: Final = 64 * 1024 * 1024
"""Against bodies that are small but inflate without end."""
_ZSTD_WINDOW_MAX: Final = 128 * 1024 * 1024
_ZSTD_STEP_SIZE: Final = 128
"""Its decompressor has no output limit; 128 bytes of input make at most 4 MiB (a 4-byte block stands for 128 KiB)."""


def inflate(body: bytes, sys_flag: int, *, size_max: int = PLAIN_SIZE_MAX) -> bytes:
    """The body as the producer's application gave it; ``body`` itself if it is not flagged as compressed.

    Raises:
        RemoteProtocolError: it cannot be inflated, or is larger than ``size_max``. The record may still be a good one.
        LocalProtocolError: the library for its format is not installed.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    kind = (sys_flag & SysFlag.COMPRESSION_TYPE) >> SysFlag.COMPRESSION_TYPE_SHIFT
    inflater = _INFLATERS.get(kind)
    if inflater is None:
        raise RemoteProtocolError(f"compression type {kind} is unknown")
    try:
        return inflater(body, size_max)
    except ImportError as error:
        what = f"the body is {_NAMES[kind]}, and {error.name} is not installed: pip install 'rmqha[compression]'"
        raise LocalProtocolError(what) from error
    except (zlib.error, RuntimeError, EOFError) as error:
        raise RemoteProtocolError(f"the body is damaged, not {_NAMES[kind]}: {error}") from error


def _zlib(body: bytes, size_max: int) -> bytes:
    return _all_of(zlib.decompressobj(), body, size_max)


def _lz4(body: bytes, size_max: int) -> bytes:
    import lz4.frame  # noqa: PLC0415 - an extra, loaded when such a body comes

    return _all_of(lz4.frame.LZ4FrameDecompressor(), body, size_max)


def _all_of(stream: Any, body: bytes, size_max: int) -> bytes:
    plain = bytes(stream.decompress(body, size_max + 1))
    _check_size(plain, size_max)
    _check_end(stream, behind=len(stream.unused_data or b""))
    return plain


def _zstd(body: bytes, size_max: int) -> bytes:
    import zstandard  # noqa: PLC0415 - an extra, loaded when such a body comes

    stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompressobj()
    plain, end = bytearray(), 0
    try:
        while end < len(body) and not stream.eof:
            plain += stream.decompress(body[end : end + _ZSTD_STEP_SIZE])
            end = min(end + _ZSTD_STEP_SIZE, len(body))
            _check_size(plain, size_max)
    except zstandard.ZstdError as error:
        raise RuntimeError(str(error)) from error
    _check_end(stream, behind=len(body) - end + len(stream.unused_data))
    return bytes(plain)


def _check_size(plain: bytes | bytearray, size_max: int) -> None:
    if len(plain) > size_max:
        raise RemoteProtocolError(f"the body inflates to more than {size_max} bytes")


def _check_end(stream: Any, *, behind: int) -> None:
    if not stream.eof:
        raise RemoteProtocolError("the body is damaged: what is compressed ends too early")
    if behind:
        raise RemoteProtocolError(f"the body is damaged: {behind} bytes stand behind what is compressed")


_INFLATERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}
_NAMES: Final = {0: "a zlib stream", 1: "an LZ4 frame", 2: "a Zstandard frame", 3: "a zlib stream"}
