"""KeyHashes: hot path: the index's hashes of many keys at once.

Java's hash of a text is that of its parts, each times 31 to the power of what follows. Unique keys have 32 characters,
of which the first 24 stay the same for a minute, and the last two groups of four are hexadecimal numbers: what each
part adds is looked up.
"""

import struct
from collections.abc import Callable, Sequence
from operator import mul
from typing import Final, TypeVar

from rmqha.codec.hashing import java_string_hash, key_hash
from rmqha.codec.properties import decode_utf8

Key = TypeVar("Key")
_UNIQ_KEY_SIZE: Final = 32
_PARTS: Final = struct.Struct(">24sII")
_MASK: Final = 0xFFFF_FFFF
_MIN_INT32: Final = 0x8000_0000
_MAX_INT32: Final = 0x7FFF_FFFF
_SHORT_KEY_MAX: Final = 64
_POWERS: Final[list[tuple[int, ...]]] = [
    tuple(pow(31, size - at, 1 << 32) for at in range(size + 1)) for size in range(_SHORT_KEY_MAX + 1)
]
"""By a key's size, what all that is before it counts, and then each of its characters."""
_POWER_OF_4: Final = 31**4
_POWER_OF_32: Final[int] = pow(31, 32, 1 << 32)
_TEXTS_MAX: Final = 4096
_GROUPS_MAX: Final = 1 << 17
"""Some 10 MB; of hexadecimal digits there are half as many."""


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
        self._topics: Final = _Known(_topic_code, count_max=_TEXTS_MAX)
        self._topics_of_usual: Final = _Known(_topic_code_of_usual, count_max=_TEXTS_MAX)
        self._beginnings: Final = _Known(_beginning_code, count_max=_TEXTS_MAX)
        self._groups: Final = _Known(_group_code, count_max=_GROUPS_MAX)

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
        of_topic, beginnings, groups, power = self._topics_of_usual, self._beginnings, self._groups, _POWER_OF_4
        return [
            code
            if (code := of_topic[topic] + beginnings[beginning] + groups[time] * power + groups[counter] & _MASK)
            < _MIN_INT32
            else -code & _MAX_INT32
            for topic, (beginning, time, counter) in zip(topics, _PARTS.iter_unpack(joined), strict=True)
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
    return _topic_code(topic) * _POWER_OF_32


def _beginning_code(beginning: bytes) -> int:
    """What the first 24 characters of a unique key add."""
    return java_string_hash(beginning.decode("ascii")) * 31**8


def _group_code(group: int) -> int:
    """Of four characters."""
    return (group >> 24) * 29791 + (group >> 16 & 255) * 961 + (group >> 8 & 255) * 31 + (group & 255)
