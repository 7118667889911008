"""KeyHashes: hot path: the index's hashes of many keys at once.

Java's hash of a text is that of its parts, each times 31 to the power of what follows. Unique keys have 32 characters,
of which the first 24 stay the same for a minute: what they add is looked up, and what each two of the others add.
"""

import struct
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from operator import mul
from typing import Final, TypeVar

from rmqha.codec.hashing import java_string_hash, key_hash
from rmqha.codec.properties import decode_utf8

Key = TypeVar("Key")
_UNIQ_KEY_SIZE: Final = 32
_PARTS: Final = struct.Struct(">24sHHHH")
_MASK: Final = 0xFFFF_FFFF
_MIN_INT32: Final = 0x8000_0000
_MAX_INT32: Final = 0x7FFF_FFFF
_SHORT_KEY_MAX: Final = 64
_POWERS: Final[list[tuple[int, ...]]] = [
    tuple(pow(31, size - at, 1 << 32) for at in range(size + 1)) for size in range(_SHORT_KEY_MAX + 1)
]
"""By a key's size, what all that is before it counts, and then each of its characters."""
_POWERS_OF_BEGINNING: Final = _POWERS[32][1:25]
_POWER_OF_32: Final[int] = pow(31, 32, 1 << 32)
TEXTS_MAX: Final = 4096


class _Known(dict[Key, int]):
    """What is looked up: made when it is missing, all forgotten when there are too many."""

    def __init__(self, make: Callable[[Key], int], *, count_max: int) -> None:
        super().__init__()
        self._make: Final = make
        self._count_max: Final = count_max

    def __missing__(self, key: Key) -> int:
        if len(self) >= self._count_max:
            self.clear()
        found = self[key] = self._make(key)
        return found


class KeyHashes:
    """What is known of parts of keys; bounded."""

    def __init__(self) -> None:
        self._topics: Final = _Known(_topic_code, count_max=TEXTS_MAX)
        self._topics_of_usual: Final = _Known(_topic_code_of_usual, count_max=TEXTS_MAX)
        self._beginnings: Final = _Known(_beginning_code, count_max=TEXTS_MAX)

    @property
    def remembered(self) -> tuple[int, ...]:
        """How many of each kind."""
        return len(self._topics), len(self._topics_of_usual), len(self._beginnings)

    def of(self, topics: Sequence[str], keys: Sequence[bytes]) -> list[int]:
        """The hash of each key of its topic, as :func:`~rmqha.codec.hashing.key_hash` gives it."""
        usual = [key for key in keys if len(key) == _UNIQ_KEY_SIZE]
        joined = b"".join(usual)
        if not joined.isascii():
            return [key_hash(topic, decode_utf8(key)) for topic, key in zip(topics, keys, strict=True)]
        if len(usual) == len(keys):
            return self._of_usual(topics, joined)
        pairs = [*zip(topics, keys, strict=True)]
        of_usual = iter(self._of_usual([topic for topic, key in pairs if len(key) == _UNIQ_KEY_SIZE], joined))
        return [next(of_usual) if len(key) == _UNIQ_KEY_SIZE else self._of_other(topic, key) for topic, key in pairs]

    def _of_usual(self, topics: Sequence[str], joined: bytes) -> list[int]:
        of_topic, beginnings = self._topics_of_usual, self._beginnings
        first, second, third, last = _pair_tables()
        return [
            code
            if (code := of_topic[topic] + beginnings[begin] + first[a] + second[b] + third[c] + last[d] & _MASK)
            < _MIN_INT32
            else -code & _MAX_INT32
            for topic, (begin, a, b, c, d) in zip(topics, _PARTS.iter_unpack(joined), strict=True)
        ]

    def _of_other(self, topic: str, key: bytes) -> int:
        if len(key) > _SHORT_KEY_MAX or not key.isascii():
            return key_hash(topic, decode_utf8(key))
        before, *powers = _POWERS[len(key)]
        code: int = self._topics[topic] * before + sum(map(mul, key, powers)) & _MASK
        return code if code < _MIN_INT32 else -code & _MAX_INT32


def _topic_code(topic: str) -> int:
    """Of a topic and what parts it from a key."""
    return java_string_hash(f"{topic}#")


def _topic_code_of_usual(topic: str) -> int:
    """The same, before 32 characters."""
    return _topic_code(topic) * _POWER_OF_32 & _MASK


def _beginning_code(beginning: bytes) -> int:
    """What the first 24 characters of a unique key add."""
    code: int = sum(map(mul, beginning, _POWERS_OF_BEGINNING)) & _MASK
    return code


@cache
def _pair_tables() -> tuple[Sequence[int], ...]:
    """What two characters add, by their bytes as one number: the first two of the last eight, and so on.

    A table of pairs stays in the processor's cache between rounds; one of all groups of four would not.
    """
    codes = [31 * first + second for first in range(128) for second in range(256)]
    return tuple(array("I", [code * power & _MASK for code in codes]) for power in (31**6, 31**4, 31**2, 1))
