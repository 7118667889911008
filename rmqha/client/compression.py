"""Compressed bodies: made by producers, undone by consumers, never touched by a broker.

sys_flag bit 0 says compressed; bits 8-10 how: 0 or 3 a zlib stream, 1 an LZ4 frame, 2 a Zstandard frame.

Source: spec: commitlog §2.8; rocketmq-all-4.9.8 CompressionType.java, MessageDecoder.java.
"""

import zlib
from typing import Any, Final

from rmqha.codec.layout import SysFlag

ZLIB_SYS_FLAG: Final = SysFlag.COMPRESSED | 3 << SysFlag.COMPRESSION_TYPE_SHIFT
"""What RocketMQ 4.9.8's own producer sends with a zlib body."""

_LEVEL: Final = 5
_ZSTD_WINDOW_MAX: Final = 128 * 1024 * 1024
_ZSTD_STEP_SIZE: Final = 128
"""Its decompressor has no output limit; 128 bytes of input make at most 4 MiB (a 4-byte block stands for 128 KiB)."""


def compress_body(body: bytes) -> bytes:
    """A zlib stream, to be sent with ``ZLIB_SYS_FLAG``."""
    return zlib.compress(body, _LEVEL)


def decompress_body(body: bytes, sys_flag: int, *, size_max: int) -> tuple[bytes, str]:
    """The plain body and an empty string, or the body as it is and the reason why it cannot be decompressed."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body, ""
    kind = (sys_flag & SysFlag.COMPRESSION_TYPE) >> SysFlag.COMPRESSION_TYPE_SHIFT
    decompress = _DECOMPRESS.get(kind)
    if decompress is None:
        return body, f"compression type {kind} is unknown"
    try:
        return decompress(body, size_max)
    except (zlib.error, RuntimeError, EOFError) as error:
        return body, f"the compressed body is damaged: {error}"
    except ImportError as error:
        return body, f"{error.name} is not installed: pip install 'rmqha[compression]'"


def _unzlib(body: bytes, size_max: int) -> tuple[bytes, str]:
    return _inflate(body, zlib.decompressobj(), size_max)


def _unlz4(body: bytes, size_max: int) -> tuple[bytes, str]:
    import lz4.frame  # noqa: PLC0415 - an optional library, loaded when such a body arrives

    return _inflate(body, lz4.frame.LZ4FrameDecompressor(), size_max)


def _inflate(body: bytes, decompressor: Any, size_max: int) -> tuple[bytes, str]:
    plain: bytes = decompressor.decompress(body, size_max + 1)
    if len(plain) > size_max:
        return body, f"the body has more than {size_max} bytes when decompressed"
    if not decompressor.eof:
        return body, "the compressed body is damaged: it ends too early"
    return plain, ""


def _unzstd(body: bytes, size_max: int) -> tuple[bytes, str]:
    import zstandard  # noqa: PLC0415 - an optional library, loaded when such a body arrives

    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompressobj()
        plain = bytearray()
        for at in range(0, len(body), _ZSTD_STEP_SIZE):
            plain += decompressor.decompress(body[at : at + _ZSTD_STEP_SIZE])
            if len(plain) > size_max:
                return body, f"the body has more than {size_max} bytes when decompressed"
            if decompressor.eof:
                break
    except zstandard.ZstdError as error:
        return body, f"the compressed body is damaged: {error}"
    if not decompressor.eof:
        return body, "the compressed body is damaged: it ends too early"
    return bytes(plain), ""


_DECOMPRESS: Final = {0: _unzlib, 1: _unlz4, 2: _unzstd, 3: _unzlib}
