"""Java's string hash, on which tag filters and key lookups of existing stores depend, and the body's CRC.

Source: spec: commitlog §2.4, §2.7, §10.
"""

from functools import lru_cache
from typing import Final
from zlib import crc32

REMEMBERED_TAG_MAX: Final = 256
"""Characters, or bytes; 4096 tags of 32 KB would take 500 MB, and a broker with so many never sees one again."""


def java_string_hash(text: str) -> int:
    """``String.hashCode``: ``h = 31 * h + unit`` over the UTF-16 code units, as a signed 32-bit number."""
    code = 0
    units = text.encode() if text.isascii() else memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (code >> 31 << 32)


def tags_code(tag: str | None) -> int:
    """What the consume queue holds for a tag; 0 without one."""
    if not tag:
        return 0
    return _short_tags_code(tag) if len(tag) <= REMEMBERED_TAG_MAX else java_string_hash(tag)


_short_tags_code = lru_cache(maxsize=4096)(java_string_hash)


def key_hash(topic: str, key: str) -> int:
    """The index's hash of a key of a topic: never negative."""
    code = abs(java_string_hash(f"{topic}#{key}"))
    return code if code < 1 << 31 else 0


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """BODYCRC of a stored body."""
    return crc32(body) & 0x7FFFFFFF
