"""The body of a batch send: small messages one behind the other, each of which becomes an ordinary record.

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
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rmqha.errors import LocalProtocolError, RemoteProtocolError

BATCH_MESSAGES_MAX: Final = 32_768
"""Messages of a batch. Java's producers, whose messages carry an id, reach it with 4 MiB of bodies below 64 bytes."""

_HEAD: Final = struct.Struct(">iiiii")
_DECODED: Final = struct.Struct(">12xii")
_PROPERTIES_SIZE: Final = struct.Struct(">h")
assert _DECODED.size == _HEAD.size
ENTRY_SIZE_MIN: Final = _HEAD.size + _PROPERTIES_SIZE.size


class BatchEntry(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties_raw: bytes


def decode_batch(body: bytes) -> Iterator[BatchEntry]:
    """Cut a batch's body into its messages, one by one, so that the caller can stop when there are too many.

    Raises:
        RemoteProtocolError: an entry does not fit into what is left of the body; nothing of the batch may be stored.
    """
    unpack_head, unpack_size = _DECODED.unpack_from, _PROPERTIES_SIZE.unpack_from
    new_entry = tuple.__new__  # a third of the time of BatchEntry(...)
    at, end = 0, len(body)
    number = 0
    while at < end:
        if end - at < ENTRY_SIZE_MIN:
            raise RemoteProtocolError(f"batch entry {number}: {end - at} bytes left, too few for an entry")
        flag, body_size = unpack_head(body, at)
        body_at = at + _HEAD.size
        body_end = body_at + body_size
        if body_size < 0 or body_end + 2 > end:
            raise RemoteProtocolError(f"batch entry {number}: body length {body_size}, {end - at} bytes left")
        (properties_size,) = unpack_size(body, body_end)
        at = body_end + 2 + properties_size
        if properties_size < 0 or at > end:
            raise RemoteProtocolError(f"batch entry {number}: properties length {properties_size} does not fit")
        number += 1
        yield new_entry(BatchEntry, (flag, body[body_at:body_end], body[body_end + 2 : at]))


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
