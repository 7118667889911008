"""Walk a run of records and say exactly where, and why, it stops. Hot path of slaves, recovery and verification.

Every check of spec: commitlog §2.2 is made: magic, sizes, PHYSICALOFFSET against the place where the record was found,
the topic's characters, and the body's CRC.
"""

import struct
from enum import Enum
from typing import Final, NamedTuple

from rmqha.codec.crc import crc32
from rmqha.codec.record.layout import (
    BLANK_MAGIC,
    BLANK_SIZE_MIN,
    BORN_HOST_AT,
    FIXED_SIZE_V4,
    HOST_KINDS,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_SIZE_MAX,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_MAX,
    SysFlag,
    fields_struct,
    is_inner_batch,
    is_legal_topic,
    physical_offset_at,
    put_sys_flag,
    sys_flag_at,
)
from rmqha.errors import NOT_READ
from rmqha.memory import BytesLike


class Stop(Enum):
    """Why a walk ended."""

    END = "end"
    """At the last byte it was given, which is the last byte of a record."""
    INCOMPLETE = "incomplete"
    """Inside a record that is good as far as it can be seen: more bytes are needed."""
    ZERO = "zero"
    """Where nothing was ever written: size and magic are 0."""
    BLANK = "blank"
    """At a blank's header. The log goes on at the start of the next file."""
    CORRUPT = "corrupt"
    """At bytes that cannot be a record."""
    FOREIGN = "foreign"
    """At a record of a known format that rmqha does not read. It is no damage: never cut it away."""


class Scan(NamedTuple):
    """What :func:`scan_records` found."""

    end: int
    """Position after the last good record."""
    stop: Stop
    reason: str
    """A sentence for CORRUPT, FOREIGN and INCOMPLETE, else empty."""
    records: int
    last_store_timestamp_ms: int
    """Of the last good record; 0 if there was none."""


_SIZE_AND_MAGIC: Final = struct.Struct(">ii")
_SECTOR: Final = 512
_DLEDGER_POSITION: Final = struct.Struct(">q")
_FIELDS: Final = fields_struct(
    "total_size", "magic", "body_crc", "physical_offset", "sys_flag", "store_timestamp", "body_size"
)
assert _FIELDS.size == FIXED_SIZE_V4
_FIELDS_V6: Final = {
    kind: fields_struct("store_timestamp", "body_size", sys_flag=kind, begin="born_host") for kind in HOST_KINDS
}
"""The last two again, from BORN_HOST_AT on."""

# TOPIC with its length byte, then PROPERTIES LENGTH, for each length a topic can have: one call takes both
_TAILS: Final = [struct.Struct(f">{1 + topic_size}sH") for topic_size in range(TOPIC_SIZE_MAX + 1)]
_TAIL_SIZE_MIN: Final = 3


def scan_records(
    buffer: BytesLike,
    start: int,
    end: int,
    *,
    phy_offset_base: int,
    file_end: int | None = None,
    check_crc: bool = True,
    torn_from: int | None = None,
) -> Scan:
    """Walk the records in ``buffer[start:end]`` and stop at the first that is not whole and good.

    Args:
        buffer: holds the bytes; nothing of them is copied but the topics.
        start: position of the first record.
        end: position up to which bytes are there.
        phy_offset_base: a record at position ``i`` must claim physical offset ``phy_offset_base + i``.
        file_end: position (possibly beyond ``end``) of the log file's end, if known. A record that would cross it is
            corrupt instead of incomplete, and a blank must reach it exactly.
        check_crc: compare bodies with their CRC.
        torn_from: from this position on a record is corrupt if its properties look torn (:func:`_are_torn`): what a
            crash left may be, and no checksum covers them.
    """
    view = memoryview(buffer)
    suspect_from = end if torn_from is None else torn_from
    unpack, tails, special = _FIELDS.unpack_from, _TAILS, SysFlag.SPECIAL
    at, records, last_store_timestamp_ms = start, 0, 0
    known_topics: set[bytes] = set()
    whole_header_end = end - FIXED_SIZE_V4
    while at <= whole_header_end:
        total, magic, crc, phy_offset, sys_flag, store_timestamp_ms, body_size = unpack(view, at)
        body_at = at + FIXED_SIZE_V4
        if sys_flag & special:
            fields = _FIELDS_V6[sys_flag & SysFlag.HOSTS_V6]
            body_at = at + BORN_HOST_AT + fields.size
            if body_at > end or (sys_flag & SysFlag.INNER_BATCH and is_inner_batch(view, at, end)):
                break
            store_timestamp_ms, body_size = fields.unpack_from(view, at + BORN_HOST_AT)
        topic_at, next_at = body_at + body_size, at + total
        if (
            magic != MESSAGE_MAGIC
            or phy_offset != phy_offset_base + at
            or next_at > end
            or body_size < 0
            or topic_at + _TAIL_SIZE_MIN > next_at
        ):
            break
        topic_size = view[topic_at]
        properties_at = topic_at + _TAIL_SIZE_MIN + topic_size
        if properties_at > next_at or topic_size > TOPIC_SIZE_MAX:
            break
        sized_topic, properties_size = tails[topic_size].unpack_from(view, topic_at)
        if sized_topic not in known_topics:
            if not is_legal_topic(sized_topic[1:]):
                break
            known_topics.add(sized_topic)
        if properties_at + properties_size != next_at or properties_size > PROPERTIES_SIZE_MAX:
            break
        if check_crc and body_size and crc32(view[body_at:topic_at]) & 0x7FFFFFFF != crc:
            break
        if next_at > suspect_from and properties_size and _are_torn(view, properties_at, next_at):
            return Scan(at, Stop.CORRUPT, "its properties were torn", records, last_store_timestamp_ms)
        at, records, last_store_timestamp_ms = next_at, records + 1, store_timestamp_ms
    if at == end:
        return Scan(at, Stop.END, "", records, last_store_timestamp_ms)
    stop, reason = _why_here(
        view[at:end],
        phy_offset=phy_offset_base + at,
        to_file_end=None if file_end is None else file_end - at,
        check_crc=check_crc,
    )
    return Scan(at, stop, reason, records, last_store_timestamp_ms)


def _are_torn(view: memoryview, start: int, end: int) -> bool:
    """Whether properties have zeros where a device that lost power left some: at a sector's edge, or at their end.

    Positions are the file's. A NUL is refused in properties, so only a RocketMQ master's may hold one elsewhere.
    """
    properties_raw = bytes(view[start:end])
    at = properties_raw.find(0)
    while at >= 0:
        behind = at + len(properties_raw) - at - len(properties_raw[at:].lstrip(b"\0"))
        is_tail = start + behind == end and not any(view[end : end + -end % _SECTOR])
        if is_tail or not (start + at) % _SECTOR or not (start + behind) % _SECTOR:
            return True
        at = properties_raw.find(0, behind)
    return False


def _why_here(rest: memoryview, *, phy_offset: int, to_file_end: int | None, check_crc: bool) -> tuple[Stop, str]:
    """The verdict on the bytes that stopped the walk. Leisurely: it runs once a walk."""
    if to_file_end is not None and to_file_end < BLANK_SIZE_MIN:
        return Stop.CORRUPT, f"only {to_file_end} bytes left in this file: no room for a record or a blank"
    if len(rest) < _SIZE_AND_MAGIC.size:
        return Stop.INCOMPLETE, f"{len(rest)} bytes of a record's header"
    size, magic = _SIZE_AND_MAGIC.unpack_from(rest)
    if size == 0 and magic == 0:
        return Stop.ZERO, ""
    if magic != BLANK_MAGIC:
        return _why_this_record(rest, phy_offset=phy_offset, to_file_end=to_file_end, check_crc=check_crc)
    if size < BLANK_SIZE_MIN or (to_file_end is not None and size != to_file_end):
        return Stop.CORRUPT, (
            f"a blank of {size} bytes does not reach exactly to the end of its file: it is damaged, or was written for "
            "files of another size (mappedFileSizeCommitLog)"
        )
    return Stop.BLANK, ""


def _why_this_record(
    rest: memoryview, *, phy_offset: int, to_file_end: int | None, check_crc: bool
) -> tuple[Stop, str]:
    size, magic = _SIZE_AND_MAGIC.unpack_from(rest)
    if foreign := _foreign_format(rest, size, magic=magic, phy_offset=phy_offset):
        return Stop.FOREIGN, foreign
    problem = _header_problem(rest, size, magic=magic, phy_offset=phy_offset)
    if not problem and to_file_end is not None and size > to_file_end:
        problem = f"TOTALSIZE {size} reaches beyond the end of this file, {to_file_end} bytes away"
    if problem:
        return Stop.CORRUPT, problem
    if size > len(rest):
        return Stop.INCOMPLETE, f"{len(rest)} of the {size} bytes of a record"
    if _is_inner_batch(rest[:size], phy_offset=phy_offset, check_crc=check_crc):
        return Stop.FOREIGN, f"an inner batch of RocketMQ 5.x (queue.type=BatchCQ), {NOT_READ}"
    return Stop.CORRUPT, _body_problem(rest[:size], check_crc)


def _foreign_format(record: memoryview, size: int, *, magic: int, phy_offset: int) -> str:
    """Source: spec: commitlog §16."""
    if magic == MESSAGE_MAGIC_V2:
        return f"a record of RocketMQ 5.x, version 2 (magic 0xDAA320AB), {NOT_READ}"
    # A DLedger entry: magic 1, size, index, term, position (its own offset) ... 48 bytes before the body.
    if size == 1 and magic >= 48 and len(record) >= 32 and _DLEDGER_POSITION.unpack_from(record, 24)[0] == phy_offset:
        return "an entry of a DLedger log (enableDLegerCommitLog), no record of a classic one"
    return ""


def _is_inner_batch(record: memoryview, *, phy_offset: int, check_crc: bool) -> bool:
    """Whether the record that stopped the walk is good in all else."""
    sys_flag = sys_flag_at(record)
    if not sys_flag & SysFlag.INNER_BATCH:
        return False
    plain = bytearray(record)
    put_sys_flag(plain, sys_flag & ~SysFlag.INNER_BATCH)
    return scan_records(plain, 0, len(plain), phy_offset_base=phy_offset, check_crc=check_crc).records == 1


def _header_problem(record: memoryview, size: int, *, magic: int, phy_offset: int) -> str:
    """What is wrong with the fields up to PHYSICALOFFSET, as far as they are there."""
    if magic != MESSAGE_MAGIC:
        return f"MAGICCODE 0x{magic & 0xFFFFFFFF:08X} instead of 0x{MESSAGE_MAGIC & 0xFFFFFFFF:08X}"
    if size < RECORD_SIZE_MIN:
        return f"TOTALSIZE {size} is smaller than any record"
    if len(record) >= PHYSICAL_OFFSET_AT + 8:
        claimed = physical_offset_at(record)
        if claimed != phy_offset:
            return f"the record claims PHYSICALOFFSET {claimed}"
    return ""


def _body_problem(record: memoryview, check_crc: bool) -> str:
    """What is wrong with a record of which every byte is there."""
    _, _, crc, _, sys_flag, _, body_size = _FIELDS.unpack_from(record)
    body_at = FIXED_SIZE_V4
    if sys_flag & SysFlag.HOSTS_V6:
        fields = _FIELDS_V6[sys_flag & SysFlag.HOSTS_V6]
        body_at = BORN_HOST_AT + fields.size
        if body_at > len(record):
            return f"TOTALSIZE {len(record)} is too small for the IPv6 hosts that SYSFLAG promises"
        _, body_size = fields.unpack_from(record, BORN_HOST_AT)
    topic_at = body_at + body_size
    if body_size < 0 or topic_at + 3 > len(record):
        return f"BODY LENGTH {body_size} does not fit into TOTALSIZE {len(record)}"
    properties_at = topic_at + 1 + record[topic_at]
    if record[topic_at] > 127 or properties_at + 2 > len(record):
        return f"TOPIC LENGTH {record[topic_at]} does not fit into TOTALSIZE {len(record)}"
    topic = bytes(record[topic_at + 1 : properties_at])
    if not is_legal_topic(topic):
        return f"illegal characters in the topic {topic!r}"
    properties_size = record[properties_at] << 8 | record[properties_at + 1]
    if properties_size > PROPERTIES_SIZE_MAX or properties_at + 2 + properties_size != len(record):
        return f"PROPERTIES LENGTH {properties_size} does not add up to TOTALSIZE {len(record)}"
    found = crc32(record[body_at:topic_at]) & 0x7FFFFFFF
    if_wrong = f"BODYCRC 0x{crc & 0xFFFFFFFF:08X}, but the body's CRC is 0x{found:08X}"
    # One that is whole now was not when the walk came to it, which would have gone on.
    return if_wrong if check_crc and found != crc else "it was being written while it was read"
