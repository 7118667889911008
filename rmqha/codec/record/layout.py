"""The bytes of one record in the commitlog, and of the blank that ends every full file.

``B`` and ``S`` are the lengths of BORNHOST and STOREHOSTADDRESS: 8 for IPv4, 20 for IPv6 (see :class:`SysFlag`).
Everything is big-endian; records follow each other without padding, and never cross a file.

    at            size  field              type    meaning
     0               4  TOTALSIZE          int32   length of the whole record: 75 + B + S + L + T + P
     4               4  MAGICCODE          int32   MESSAGE_MAGIC
     8               4  BODYCRC            int32   CRC-32 of the stored body & 0x7FFFFFFF; 0 when it is empty
    12               4  QUEUEID            int32   queue of the topic
    16               4  FLAG               int32   the application's own
    20               8  QUEUEOFFSET        int64   number of the unit in the consume queue
    28               8  PHYSICALOFFSET     int64   commitlog offset of this record's first byte
    36               4  SYSFLAG            int32   SysFlag
    40               8  BORNTIMESTAMP      int64   producer's clock, ms
    48               B  BORNHOST           bytes   IP, then port as int32
    48+B             8  STORETIMESTAMP     int64   clock of the master that stored it, ms
    56+B             S  STOREHOSTADDRESS   bytes   that master's IP, then port as int32
    56+B+S           4  RECONSUMETIMES     int32   how often it was delivered again
    60+B+S           8  PREPAREDTRANSACTIONOFFSET  int64  offset of the half message, or 0
    68+B+S         4+L  BODY               int32 length, bytes as stored (possibly compressed)
    72+B+S+L       1+T  TOPIC              int8 length 0..127, ASCII
    73+B+S+L+T     2+P  PROPERTIES         int16 length 0..32767, UTF-8 as a rule (codec/properties.py)

A blank fills what is left of a file:

    at  size  field      meaning
     0     4  size       int32, bytes from here to the end of the file
     4     4  MAGICCODE  BLANK_MAGIC
     8     -  rest       anything

Source: spec: commitlog §2, §4.2; rocketmq-all-4.9.8 CommitLog.java:1544-1632, MessageDecoder.java:262-330.
"""

import re
import struct
from typing import Final, NamedTuple

from rmqha.codec.properties import find_property
from rmqha.memory import BytesLike

MESSAGE_MAGIC: Final = 0xDAA320A7 - (1 << 32)
"""Marks a message record, as the signed int32 that ``struct`` reads."""
MESSAGE_MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
"""RocketMQ 5.x with 2-byte topic lengths: recognised, and refused."""
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
BLANK_SIZE_MIN: Final = 8
"""A record of ``n`` bytes fits into a file only if ``n + BLANK_SIZE_MIN`` bytes are free."""

RECORD_OVERHEAD_V4: Final = 91
"""TOTALSIZE of an IPv4 record without body, topic and properties."""
RECORD_SIZE_MIN: Final = RECORD_OVERHEAD_V4
FIXED_SIZE_V4: Final = 88
"""Where an IPv4 record's body starts."""

FIRST_BYTE_OF_A_LOG: Final = b"\0"
"""Byte 0 of the first record's TOTALSIZE, always zero as records are below 16 MiB (spec: ha §9)."""

RECORD_SIZE_EXTRA_MAX: Final = 64 * 1024
"""A record may be this much larger than maxMessageSize."""
TOPIC_SIZE_MAX: Final = 127
PROPERTIES_SIZE_MAX: Final = 32767

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Delayed messages wait here; its queue units carry delivery times instead of tag hashes."""
BARRIER_TOPIC: Final = "RMQHA_SYS_TERM_BEGAN"
"""Of the entries by which a DLedger leader commits what it inherited (spec: dledger §7.4)."""


class SysFlag:
    """Bits of SYSFLAG. Unknown bits are stored as they were sent."""

    COMPRESSED: Final = 0x001
    MULTI_TAGS: Final = 0x002
    TRANSACTION_TYPE: Final = 0x00C
    TRANSACTION_PREPARED: Final = 0x004
    TRANSACTION_COMMIT: Final = 0x008
    TRANSACTION_ROLLBACK: Final = 0x00C
    BORN_HOST_V6: Final = 0x010
    STORE_HOST_V6: Final = 0x020
    HOSTS_V6: Final = 0x030
    INNER_BATCH: Final = 0x080
    """Of RocketMQ 5.x; before it, a bit without a meaning. See :func:`is_inner_batch`."""
    SPECIAL: Final = HOSTS_V6 | INNER_BATCH
    """Of a record with one of these there is more to say than its first 88 bytes do."""
    COMPRESSION_TYPE: Final = 0x700
    COMPRESSION_TYPE_SHIFT: Final = 8


def enters_queue(sys_flag: int) -> bool:
    """Whether a record is seen by consumers: half messages (PREPARED) and ROLLBACK get no unit in a consume queue.

    Source: rocketmq-all-4.9.8 DefaultMessageStore.java, CommitLogDispatcherBuildConsumeQueue.
    """
    return not sys_flag & SysFlag.TRANSACTION_PREPARED  # ROLLBACK has this bit, too


class FixedField(NamedTuple):
    """A field in front of the body."""

    name: str
    code: str
    """struct's code of the big-endian integer, or empty for an address of 8 (IPv4) or 20 bytes (IPv6)."""


FIXED_FIELDS: Final = tuple(
    FixedField(*name_and_code)
    for name_and_code in (
        ("total_size", "i"),
        ("magic", "i"),
        ("body_crc", "i"),
        ("queue_id", "i"),
        ("flag", "i"),
        ("queue_offset", "q"),
        ("physical_offset", "q"),
        ("sys_flag", "i"),
        ("born_timestamp", "q"),
        ("born_host", ""),
        ("store_timestamp", "q"),
        ("store_host", ""),
        ("reconsume_times", "i"),
        ("prepared_transaction_offset", "q"),
        ("body_size", "i"),
    )
)
"""The table above as the program reads it: every struct, dtype and position of a record is derived from it."""

_IPV6_BITS: Final = {"born_host": SysFlag.BORN_HOST_V6, "store_host": SysFlag.STORE_HOST_V6}
HOST_KINDS: Final = (0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, SysFlag.HOSTS_V6)
"""The four values of ``sys_flag & HOSTS_V6``, in each of which the fields lie elsewhere."""


def host_size(name: str, sys_flag: int) -> int:
    """Bytes of ``born_host`` or ``store_host``: address and port."""
    return 20 if sys_flag & _IPV6_BITS[name] else 8


def format_of(field: FixedField, sys_flag: int = 0) -> str:
    """The field as struct reads it in a record with this SYSFLAG."""
    return field.code or f"{host_size(field.name, sys_flag)}s"


def fields_struct(*names: str, sys_flag: int = 0, begin: str = "total_size") -> struct.Struct:
    """What reads these fields, in the table's order, and skips the others; it reaches from ``begin`` to the body."""
    formats = []
    begun = False
    for field in FIXED_FIELDS:
        begun = begun or field.name == begin
        if begun:
            code = format_of(field, sys_flag)
            formats.append(code if field.name in names else f"{struct.calcsize('>' + code)}x")
    return struct.Struct(">" + "".join(formats))


def position_of(name: str, sys_flag: int = 0) -> int:
    """Where a field lies in a record with this SYSFLAG."""
    return fields_struct(sys_flag=sys_flag).size - fields_struct(sys_flag=sys_flag, begin=name).size


_FIXED: Final = {kind: fields_struct(*(field.name for field in FIXED_FIELDS), sys_flag=kind) for kind in HOST_KINDS}
assert _FIXED[0].size == FIXED_SIZE_V4

PHYSICAL_OFFSET_AT: Final = position_of("physical_offset")
BORN_HOST_AT: Final = position_of("born_host")
"""Up to here all records are alike; what follows depends on the IPv6 bits."""
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SYS_FLAG_AT: Final = position_of("sys_flag")
_STORE_TIMESTAMP_AT: Final = {kind: position_of("store_timestamp", kind) for kind in HOST_KINDS}


def total_size_at(record: BytesLike, at: int = 0) -> int:
    """TOTALSIZE of the record at ``at``."""
    return int(_INT32.unpack_from(record, at)[0])


def physical_offset_at(record: BytesLike, at: int = 0) -> int:
    """PHYSICALOFFSET of the record at ``at``."""
    return int(_INT64.unpack_from(record, at + PHYSICAL_OFFSET_AT)[0])


def sys_flag_at(record: BytesLike, at: int = 0) -> int:
    """SYSFLAG of the record at ``at``."""
    return int(_INT32.unpack_from(record, at + _SYS_FLAG_AT)[0])


def put_sys_flag(record: bytearray, sys_flag: int) -> None:
    """Change SYSFLAG of the record."""
    _INT32.pack_into(record, _SYS_FLAG_AT, sys_flag)


def store_timestamp_at(record: BytesLike, at: int = 0) -> int:
    """STORETIMESTAMP of the record at ``at``, in milliseconds."""
    kind = sys_flag_at(record, at) & SysFlag.HOSTS_V6
    return int(_INT64.unpack_from(record, at + _STORE_TIMESTAMP_AT[kind])[0])


_TOPIC: Final = re.compile(rb"[%|a-zA-Z0-9_-]{0,127}")


def fixed_part(sys_flag: int) -> struct.Struct:
    """The fields TOTALSIZE .. BODY LENGTH of a record with this SYSFLAG, in the order of the table above."""
    return _FIXED[sys_flag & SysFlag.HOSTS_V6]


def is_inner_batch(view: memoryview, at: int, end: int) -> bool:
    """Whether the record at ``at``, which has the bit INNER_BATCH, is one: recognised, and refused.

    RocketMQ 5.x writes them for topics with queue.type=BatchCQ: the body is several messages with places of their own,
    and INNER_NUM says how many. The fields up to BODY LENGTH are there before ``end``; its lengths may be wrong.
    """
    fixed = fixed_part(sys_flag_at(view, at))
    topic_at = max(at, at + fixed.size + fixed.unpack_from(view, at)[-1])
    tail = view[topic_at : min(end, at + total_size_at(view, at))].tobytes()
    return bool(tail) and find_property(tail[1 + tail[0] + 2 :], b"INNER_NUM") is not None


def record_size(body_size: int, topic_size: int, *, properties_size: int, sys_flag: int = 0) -> int:
    """TOTALSIZE of such a record. Sizes are bytes."""
    return fixed_part(sys_flag).size + 3 + body_size + topic_size + properties_size


def is_legal_topic(topic: bytes) -> bool:
    """True if the topic holds only ``% | a-z A-Z 0-9 _ -`` and at most 127 of them."""
    return _TOPIC.fullmatch(topic) is not None


_BLANK: Final = struct.Struct(">ii")


def encode_blank(size: int) -> bytes:
    """The 8-byte header of a blank that reaches ``size`` bytes to the end of its file."""
    return _BLANK.pack(size, BLANK_MAGIC)
