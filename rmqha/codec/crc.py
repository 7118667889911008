"""CRC-32 as in zlib, PNG and java.util.zip: by isal where that is installed, which is several times as fast.

A slave in catch-up and a recovery spend most of their time on it; ``pip install rmqha[fast]`` brings isal.
"""

from collections.abc import Callable
from typing import Final

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32

crc32: Final[Callable[[bytes | bytearray | memoryview], int]] = _crc32
"""``crc32(data)``, unsigned."""
