"""Which keys of a message the index has: UNIQ_KEY, then each word of KEYS; of a ROLLBACK message none. Hot path.

Source: spec: commitlog §10; rocketmq-all-4.9.8 IndexService.java, buildIndex.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rmqha.codec.hashing import key_hash
from rmqha.codec.properties import decode_utf8
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import SysFlag

_ROLLBACK: Final = SysFlag.TRANSACTION_ROLLBACK
_AT_ONCE: Final = 1024
_BYTES_AT_ONCE: Final = 16 << 10
"""A key may have 32 KB, and the hash of a long one takes 70 ns a character."""
_SHORT_MAX: Final = 64


class Keys(NamedTuple):
    """Some keys, in the order in which they are indexed."""

    topics: Sequence[str]
    keys: Sequence[bytes]
    offsets: Sequence[int]
    times_ms: Sequence[int]


def keys_of(request: DispatchRequest) -> list[bytes]:
    """The keys of one message."""
    if request.sys_flag & _ROLLBACK == _ROLLBACK:
        return []
    first = [request.uniq_key] if request.uniq_key else []
    return first + [word for word in request.keys.split(b" ") if word] if request.keys else first


def is_indexed(request: DispatchRequest) -> bool:
    """Whether the index has an entry for it."""
    return bool(keys_of(request))


def has_key(request: DispatchRequest, key: str) -> bool:
    """Whether a message has this key. It may have 16,000."""
    if decode_utf8(request.uniq_key) == key:
        return bool(key)
    return bool(key) and " " not in key and f" {key} " in f" {decode_utf8(request.keys)} "


def hashes_of(request: DispatchRequest) -> list[int]:
    """The hashes of its keys."""
    return [key_hash(request.topic, decode_utf8(key)) for key in keys_of(request)]


def gather_keys(requests: Sequence[DispatchRequest], *, after: int, skip: int) -> Iterator[Keys]:
    """The keys of ``requests``, as many at a time as are hashed and written in about a millisecond.

    Args:
        requests: consecutive records.
        after: messages before this offset are in the index,
        skip: and of the one at it so many keys.
    """
    if not requests:
        return
    topics, _, offsets, _, _, times_ms, _, flags, uniq_keys, keys = zip(*requests, strict=True)
    is_plain = not any(keys) and all(uniq_keys) and not any(flags) and max(map(len, uniq_keys)) <= _SHORT_MAX
    if is_plain and (offsets[0] > after or (offsets[0] == after and not skip)):
        yield Keys(topics, uniq_keys, offsets, times_ms)
        return
    found = _Gathered()
    for request in requests:
        offset = request.commit_log_offset
        if offset < after:
            continue
        for key in keys_of(request)[skip if offset == after else 0 :]:
            if found.add(request, key):
                yield found.take()
    yield found.take()


class _Gathered:
    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._requests: list[DispatchRequest] = []
        """Of each key."""
        self._size = 0

    def add(self, request: DispatchRequest, key: bytes) -> bool:
        """Whether these are enough."""
        self._keys.append(key)
        self._requests.append(request)
        self._size += len(key)
        return len(self._keys) >= _AT_ONCE or self._size >= _BYTES_AT_ONCE

    def take(self) -> Keys:
        requests, keys = self._requests, self._keys
        self._requests, self._keys, self._size = [], [], 0
        return Keys(
            [request.topic for request in requests],
            keys,
            [request.commit_log_offset for request in requests],
            [request.store_timestamp_ms for request in requests],
        )
