"""The body of a batch send. Hot path: small messages one behind the other, each of which becomes an ordinary record.

    at      size  field              type
     0         4  TOTALSIZE          int32, written by producers, ignored here
     4         4  MAGICCODE          int32, 0, ignored
     8         4  BODYCRC            int32, 0, ignored
    12         4  FLAG               int32
    16       4+L  BODY               int32 length, bytes
    20+L     2+P  PROPERTIES         int16 length, bytes, copied unparsed

Source: spec: commitlog §3; rocketmq-all-4.9.8 MessageDecoder.java:526-601, CommitLog.java:1897-1990.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rmqha.errors import LocalProtocolError, RemoteProtocolError

BATCH_MESSAGES_MAX: Final = 32_768
"""Messages of a batch. Java's producers, whose messages carry an id, reach it with 4 MiB of bodies below 64 bytes."""

_HEAD: Final = struct.Struct(">iiiii")
_DECODED: Final = struct.Struct(">12xii")
_PROPERTIES_SIZE: Final = struct.Struct(">h")
assert _DECODED.size == _HEAD.size
_ALIKE_MIN: Final = 4
ENTRY_SIZE_MIN: Final = _HEAD.size + _PROPERTIES_SIZE.size


class BatchEntry(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties_raw: bytes


class BatchPortion(NamedTuple):
    """Some messages of a batch, one behind the other."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    left_bytes: int
    """What the batch's body has behind them."""


def cut_batch(body: bytes, *, messages_max: int, portion_bytes: int) -> Iterator[BatchPortion]:
    """Hot path: cut a batch's body into its messages, some at a time, so that the caller can stop at too many.

    A portion has at most ``messages_max``, and ends with the one that reaches ``portion_bytes``.

    Raises:
        RemoteProtocolError: an entry does not fit into what is left of the body; nothing of the batch may be stored.
    """
    unpack_head, unpack_size = _DECODED.unpack_from, _PROPERTIES_SIZE.unpack_from
    at, end, before = 0, len(body), 0
    while at < end:
        portion = _cut_alike(body, at, messages_max=messages_max, portion_bytes=portion_bytes)
        if portion is not None:
            before, at = before + len(portion.bodies), end - portion.left_bytes
            yield portion
            continue
        flags, bodies, properties = list[int](), list[bytes](), list[bytes]()
        stop = min(end, at + portion_bytes)
        while at < stop and len(flags) < messages_max:
            if end - at < ENTRY_SIZE_MIN:
                problem = f"{end - at} bytes left, too few for an entry"
                raise RemoteProtocolError(f"batch entry {before + len(flags)}: {problem}")
            flag, body_size = unpack_head(body, at)
            body_at = at + _HEAD.size
            body_end = body_at + body_size
            if body_size < 0 or body_end + 2 > end:
                problem = f"body length {body_size}, {end - at} bytes left"
                raise RemoteProtocolError(f"batch entry {before + len(flags)}: {problem}")
            (properties_size,) = unpack_size(body, body_end)
            at = body_end + 2 + properties_size
            if properties_size < 0 or at > end:
                problem = f"properties length {properties_size} does not fit"
                raise RemoteProtocolError(f"batch entry {before + len(flags)}: {problem}")
            flags.append(flag)
            bodies.append(body[body_at:body_end])
            properties.append(body[body_end + 2 : at])
        before += len(flags)
        yield BatchPortion(flags, bodies, properties, end - at)


def _cut_alike(body: bytes, at: int, *, messages_max: int, portion_bytes: int) -> BatchPortion | None:
    """The same for messages that have the same flag and sizes, as far as they fill a portion, or the rest of the body.

    None if there are not some, or if it is not plain to see: in any case of doubt.
    """
    left_bytes = len(body) - at
    if left_bytes < ENTRY_SIZE_MIN:
        return None
    flag, body_size = _DECODED.unpack_from(body, at)
    sizes_at = at + _HEAD.size + body_size
    if body_size < 0 or sizes_at + 2 > len(body):
        return None
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(body, sizes_at)
    if properties_size < 0:
        return None
    entry_size = ENTRY_SIZE_MIN + body_size + properties_size
    count = min(messages_max, left_bytes // entry_size, -(-portion_bytes // entry_size))
    second = at + entry_size
    if count < _ALIKE_MIN or body[at + 12 : at + 20] != body[second + 12 : second + 20]:
        return None
    shape = _shape_of(body_size, properties_size)
    entries = shape.iter_unpack(memoryview(body)[at : at + count * entry_size])
    heads, bodies, lengths, properties = zip(*entries, strict=True)
    if heads.count(heads[0]) != count or lengths.count(lengths[0]) != count:
        return None
    return BatchPortion([flag] * count, bodies, properties, left_bytes - count * entry_size)


@lru_cache(maxsize=256)
def _shape_of(body_size: int, properties_size: int) -> struct.Struct:
    return struct.Struct(f">12x8s{body_size}s2s{properties_size}s")


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    """The body of a batch send, as producers make it.

    Raises:
        LocalProtocolError: properties of an entry are too long for their field.
    """
    parts = []
    for flag, body, properties_raw in entries:
        if len(properties_raw) > 0x7FFF:
            raise LocalProtocolError(f"properties of {len(properties_raw)} bytes in a batch entry, at most 32767 fit")
        size = ENTRY_SIZE_MIN + len(body) + len(properties_raw)
        parts += [
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_SIZE.pack(len(properties_raw)),
            properties_raw,
        ]
    return b"".join(parts)


def merge_properties(own: bytes, shared: bytes) -> bytes:
    """A batch record's stored properties: its own, then those of the request, which therefore win on equal names."""
    if own and shared and not own.endswith(b"\x02"):
        return own + b"\x02" + shared
    return own + shared
