"""Compressed bodies: made by producers, undone by consumers, never touched by a broker.

Source: rocketmq-all-4.9.8 CompressionType.java, MessageDecoder.java.
"""

import zlib
from typing import Final

from rmqha.codec.compression import inflate
from rmqha.codec.record.layout import SysFlag
from rmqha.errors import ProtocolError

ZLIB_SYS_FLAG: Final = SysFlag.COMPRESSED | 3 << SysFlag.COMPRESSION_TYPE_SHIFT
"""What RocketMQ 4.9.8's own producer sends with a zlib body."""

_LEVEL: Final = 5


def compress_body(body: bytes) -> bytes:
    """A zlib stream, to be sent with ``ZLIB_SYS_FLAG``."""
    return zlib.compress(body, _LEVEL)


def decompress_body(body: bytes, sys_flag: int, *, size_max: int) -> tuple[bytes, str]:
    """The plain body and an empty string, or the body as it is and the reason why it cannot be decompressed."""
    try:
        return inflate(body, sys_flag, size_max=size_max), ""
    except ProtocolError as error:
        return body, str(error)
