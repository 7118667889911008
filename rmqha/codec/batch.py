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
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmqha.errors import LocalProtocolError, RemoteProtocolError
from rmqha.memory import BytesLike

_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_SIZE: Final = struct.Struct(">h")
ENTRY_SIZE_MIN: Final = _HEAD.size + _PROPERTIES_SIZE.size


class BatchEntry(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties_raw: bytes


def decode_batch(body: BytesLike) -> list[BatchEntry]:
    """Cut a batch's body into its messages.

    Raises:
        RemoteProtocolError: an entry does not fit into what is left of the body; nothing of the batch may be stored.
    """
    view = memoryview(body)
    entries: list[BatchEntry] = []
    at, end = 0, len(view)
    while at < end:
        if end - at < ENTRY_SIZE_MIN:
            raise RemoteProtocolError(f"batch entry {len(entries)}: {end - at} bytes left, too few for an entry")
        _total, _magic, _crc, flag, body_size = _HEAD.unpack_from(view, at)
        body_end = at + _HEAD.size + body_size
        if body_size < 0 or body_end + _PROPERTIES_SIZE.size > end:
            raise RemoteProtocolError(f"batch entry {len(entries)}: body length {body_size}, {end - at} bytes left")
        (properties_size,) = _PROPERTIES_SIZE.unpack_from(view, body_end)
        properties_at = body_end + _PROPERTIES_SIZE.size
        next_at = properties_at + properties_size
        if properties_size < 0 or next_at > end:
            raise RemoteProtocolError(f"batch entry {len(entries)}: properties length {properties_size} does not fit")
        entries.append(BatchEntry(flag, bytes(view[at + _HEAD.size : body_end]), bytes(view[properties_at:next_at])))
        at = next_at
    return entries


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
