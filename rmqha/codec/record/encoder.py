"""Make records for the commitlog in two steps. Hot path.

:func:`prepare` does everything that needs no position: checks, CRC, topic and properties bytes, size. Under the append,
:meth:`PreparedRecord.append_to` packs the fixed part with the three values only the append knows, and hands out body
and tail untouched, so that a whole batch is joined with one copy.
"""

import struct
from typing import Final, NamedTuple

from rmqha.codec.crc import crc32
from rmqha.codec.record.ends import facts_in
from rmqha.codec.record.layout import (
    MESSAGE_MAGIC,
    PROPERTIES_SIZE_MAX,
    RECORD_OVERHEAD_V4,
    SCHEDULE_TOPIC,
    TOPIC_SIZE_MAX,
    SysFlag,
    fixed_part,
    is_legal_topic,
)
from rmqha.errors import LocalProtocolError
from rmqha.memory import BytesLike

_HOSTS_V6: Final = SysFlag.HOSTS_V6
_HOST_V4_SIZE: Final = 8
_HOST_V6_SIZE: Final = 20
_HOST_SIZES: Final = (_HOST_V4_SIZE, _HOST_V6_SIZE)
_TOPICS_REMEMBERED_MAX: Final = 10_000
pack_properties_size: Final = struct.Struct(">H").pack
_pack_v4 = fixed_part(0).pack


class PreparedRecord(NamedTuple):
    """A record that lacks only its place and time in the log."""

    topic: str
    queue_id: int
    size: int
    """TOTALSIZE."""
    body: BytesLike
    tail: bytes
    """Everything behind the body: topic and properties with their lengths."""
    crc: int
    flag: int
    sys_flag: int
    """The IPv6 bits are those of the real addresses, whatever the sender set."""
    born_timestamp_ms: int
    born_host_raw: bytes
    store_host_raw: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    tags_code: int | None
    """What its unit in the queue says of its tag.

    None if dispatch has to read it from the log: because that depends on when it is stored, as with delayed ones, or
    because its keys are long.
    """
    uniq_key: bytes
    """See :class:`~rmqha.codec.record.dispatch.DispatchRequest`."""
    keys: bytes

    def append_to(
        self, parts: list[BytesLike], *, queue_offset: int, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Add the record's bytes to ``parts``: fixed part, body, tail."""
        _, queue_id, size, body, tail, crc, flag, sys_flag, born_ms, born_host, store_host, times, prepared, *_ = self
        pack = fixed_part(sys_flag).pack if sys_flag & _HOSTS_V6 else _pack_v4
        parts += (
            pack(
                size,
                MESSAGE_MAGIC,
                crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_ms,
                born_host,
                store_timestamp_ms,
                store_host,
                times,
                prepared,
                len(body),
            ),
            body,
            tail,
        )

    def pack(self, *, queue_offset: int, physical_offset: int, store_timestamp_ms: int) -> bytes:
        """The whole record."""
        parts: list[BytesLike] = []
        self.append_to(
            parts, queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp_ms=store_timestamp_ms
        )
        return b"".join(parts)


def prepare(
    topic: str,
    body: BytesLike,
    *,
    queue_id: int,
    born_timestamp_ms: int,
    born_host_raw: bytes,
    store_host_raw: bytes,
    properties_raw: bytes = b"",
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> PreparedRecord:
    """Check what the layout can carry, and do all the work that does not need the record's position.

    ``sys_flag``'s IPv6 bits are ignored and set from the addresses: a sender's false bit would make a record whose
    sizes do not add up, at which the next recovery would cut the log (spec: commitlog §2.3). Limits that the operator
    sets (maxMessageSize, the file's size) are :func:`rmqha.codec.limits.size_problem`.

    Raises:
        LocalProtocolError: topic, properties or an address do not fit their fields.
    """
    topic_field = _topic_fields.get(topic) or _new_topic_field(topic)
    check_properties(properties_raw)
    sys_flag &= ~_HOSTS_V6
    extra = 0
    if len(born_host_raw) != _HOST_V4_SIZE or len(store_host_raw) != _HOST_V4_SIZE:
        sys_flag |= _host_bits(born_host_raw, store_host_raw)
        extra = len(born_host_raw) + len(store_host_raw) - 2 * _HOST_V4_SIZE
    tail = topic_field + pack_properties_size(len(properties_raw)) + properties_raw
    tags_code, uniq_key, keys = facts_in(tail, len(topic_field) + 2)
    return tuple.__new__(  # a third of the time of PreparedRecord(...)
        PreparedRecord,
        (
            topic,
            queue_id,
            _OVERHEAD_BEFORE_TOPIC + extra + len(body) + len(topic_field) + len(properties_raw),
            body,
            tail,
            crc32(body) & 0x7FFFFFFF,
            flag,
            sys_flag,
            born_timestamp_ms,
            born_host_raw,
            store_host_raw,
            reconsume_times,
            prepared_transaction_offset,
            None if topic == SCHEDULE_TOPIC else tags_code,
            uniq_key,
            keys,
        ),
    )


def check_properties(properties_raw: bytes) -> None:
    """Raises LocalProtocolError: no record can have them."""
    if len(properties_raw) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"properties of {len(properties_raw)} bytes, at most {PROPERTIES_SIZE_MAX} can be stored"
        )
    if b"\0" in properties_raw:  # after a crash that is how torn properties look, and no checksum covers them
        raise LocalProtocolError("properties hold a NUL character: remove it")


def without_nul(properties_raw: bytes) -> bytes:
    """Properties of a record in the log as another record can have them: RocketMQ stores NUL characters as well."""
    return properties_raw.replace(b"\0", b" ")


_OVERHEAD_BEFORE_TOPIC: Final = RECORD_OVERHEAD_V4 - 1
_topic_fields: Final[dict[str, bytes]] = {}


def _new_topic_field(topic: str) -> bytes:
    """Topic length and topic as they stand in a record; remembered, since topics repeat."""
    raw = topic.encode("ascii", "replace")
    if not is_legal_topic(raw):
        raise LocalProtocolError(
            f"topic {topic[:200]!r}: only % | a-z A-Z 0-9 _ - are allowed, at most {TOPIC_SIZE_MAX} of them"
        )
    if len(_topic_fields) >= _TOPICS_REMEMBERED_MAX:
        _topic_fields.clear()
    field = _topic_fields[topic] = bytes((len(raw),)) + raw
    return field


def _host_bits(born_host_raw: bytes, store_host_raw: bytes) -> int:
    born_size, store_size = len(born_host_raw), len(store_host_raw)
    if born_size not in _HOST_SIZES or store_size not in _HOST_SIZES:
        raise LocalProtocolError(f"host addresses of {born_size} and {store_size} bytes, not 8 or 20")
    born = SysFlag.BORN_HOST_V6 if born_size == _HOST_V6_SIZE else 0
    return born | (SysFlag.STORE_HOST_V6 if store_size == _HOST_V6_SIZE else 0)
