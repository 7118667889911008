"""Offset message ids: where a message lies, as upper-case hexadecimal text.

    at       size     field
     0       4 or 16  IP of the master that stored it
     4 / 16  4        its port, int32
     8 / 20  8        physical offset, int64

A producer's own id (``UNIQ_KEY``) has the same lengths and alphabet, so neither tells the two apart.

Source: spec: commitlog §2.6; rocketmq-all-4.9.8 MessageDecoder.java:66-119.
"""

import struct

from rmqha.codec.host import decode_host
from rmqha.errors import RemoteProtocolError

_OFFSET = struct.Struct(">q")


def encode_message_id(store_host_raw: bytes, physical_offset: int) -> str:
    """The 32 (IPv4) or 56 (IPv6) characters of the id. Hot path: once per answer."""
    return (store_host_raw + _OFFSET.pack(physical_offset)).hex().upper()


def decode_message_id(text: str) -> tuple[str, int]:
    """The ``ip:port`` and the physical offset of an id.

    Raises:
        RemoteProtocolError: it is no such id.
    """
    if len(text) not in (32, 56):
        raise RemoteProtocolError(f"message id {text[:64]!r} has {len(text)} characters, not 32 or 56")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(text):
        raise RemoteProtocolError(f"message id {text!r} is not hexadecimal")
    return decode_host(raw[:-8]), _OFFSET.unpack(raw[-8:])[0]
