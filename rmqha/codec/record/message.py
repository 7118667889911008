"""One stored message as a value: for single messages and tools. Runs of records go through scan.py and dispatch.py.

The layout table is in codec/record/layout.py.
"""

from dataclasses import dataclass
from typing import Final

from rmqha.codec.host import decode_host
from rmqha.codec.message_id import encode_message_id
from rmqha.codec.properties import parse_properties
from rmqha.codec.record.dispatch import queue_tags_code
from rmqha.codec.record.layout import (
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    fixed_part,
    physical_offset_at,
    sys_flag_at,
    total_size_at,
)
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import CorruptLogError
from rmqha.memory import BytesLike

_CLAIM_SIZE: Final = PHYSICAL_OFFSET_AT + 8
"""What must be there to see which place a record claims."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A record of the commitlog, field by field. ``body`` is as stored, i.e. still compressed if it was."""

    physical_offset: int
    store_size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_raw: bytes
    store_timestamp_ms: int
    store_host_raw: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_raw: bytes

    def encode(self) -> bytes:
        """The record's bytes, exactly as they are stored."""
        fixed = fixed_part(self.sys_flag).pack(
            self.store_size,
            MESSAGE_MAGIC,
            self.body_crc,
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.physical_offset,
            self.sys_flag,
            self.born_timestamp_ms,
            self.born_host_raw,
            self.store_timestamp_ms,
            self.store_host_raw,
            self.reconsume_times,
            self.prepared_transaction_offset,
            len(self.body),
        )
        topic, properties = self.topic.encode(), self.properties_raw
        return b"".join((fixed, self.body, bytes([len(topic)]), topic, len(properties).to_bytes(2, "big"), properties))

    @property
    def properties(self) -> dict[str, str]:
        """Name to value, parsed anew at each call."""
        return parse_properties(self.properties_raw)

    @property
    def tags_code(self) -> int:
        """What the consume queue holds for it with the default delay levels."""
        return queue_tags_code(self.topic, self.properties_raw, store_timestamp_ms=self.store_timestamp_ms)

    @property
    def born_host(self) -> str:
        """The producer's address as ``ip:port``."""
        return decode_host(self.born_host_raw)

    @property
    def store_host(self) -> str:
        """The address of the master that stored it, as ``ip:port``."""
        return decode_host(self.store_host_raw)

    @property
    def offset_msg_id(self) -> str:
        """The id that the broker answered with."""
        return encode_message_id(self.store_host_raw, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The id that clients show: the producer's own if it gave one, else the broker's."""
        return self.properties.get("UNIQ_KEY") or self.offset_msg_id


def decode_message(
    buffer: BytesLike, at: int = 0, *, phy_offset: int | None = None, check_crc: bool = True
) -> StoredMessage:
    """Decode the record at position ``at``.

    Args:
        buffer: holds the whole record, and possibly more.
        at: position of its first byte.
        phy_offset: what it must claim as its physical offset; None believes the record.
        check_crc: compare the body with its CRC.

    Raises:
        CorruptLogError: there is no whole and good record.
    """
    view = memoryview(buffer)
    if len(view) - at < _CLAIM_SIZE:
        raise CorruptLogError(phy_offset or 0, f"{max(0, len(view) - at)} bytes are no whole record")
    if phy_offset is None:
        phy_offset = physical_offset_at(view, at)
    end = min(len(view), at + max(total_size_at(view, at), _CLAIM_SIZE))
    scan = scan_records(view, at, end, phy_offset_base=phy_offset - at, check_crc=check_crc)
    if scan.records != 1:
        raise CorruptLogError(phy_offset, scan.reason or f"no record, but {scan.stop.value}")
    assert scan.stop is Stop.END
    return decode_scanned(view, at)


def decode_scanned(view: memoryview, at: int) -> StoredMessage:
    """Decode a record that :func:`~rmqha.codec.record.scan.scan_records` has already found to be good."""
    fixed = fixed_part(sys_flag_at(view, at))
    values = fixed.unpack_from(view, at)
    total, _magic, crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born_timestamp_ms, born_host = values[:10]
    store_timestamp_ms, store_host, reconsume_times, prepared_transaction_offset, body_size = values[10:]
    body_at = at + fixed.size
    topic_at = body_at + body_size + 1
    properties_at = topic_at + view[topic_at - 1] + 2
    return StoredMessage(
        physical_offset=phy_offset,
        store_size=total,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host_raw=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host_raw=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=bytes(view[body_at : topic_at - 1]),
        topic=str(view[topic_at : properties_at - 2], "ascii"),
        properties_raw=bytes(view[properties_at : at + total]),
    )
