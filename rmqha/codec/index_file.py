"""The index: where in the log messages with a key lie. Several files, each a hash table of chains.

    at             size  field
    0                 8  begin timestamp: store time in ms of the first entry's message
    8                 8  end timestamp: of the last one's
    16                8  begin offset: where in the log the first entry's message lies
    24                8  end offset: the last one's
    32                4  slots in use
    36                4  number of the next entry; the first has number 1
    40             4 * S slots: number of the newest entry of each chain, 0 if it is empty
    40 + 4 * S    20 * E entries; there is none of number 0

An entry:

    at  size  field
     0     4  hash of TOPIC#KEY (codec/hashing.py: key_hash); its slot is the hash modulo S
     4     8  where in the log the message lies
    12     4  seconds from the begin timestamp to the message's store time, at least 0
    16     4  number of the entry before it in its chain, 0 if there is none

S is maxHashSlotNum, E maxIndexNum, of which one fewer are used. A file is named by the local time when it was made. A
new one begins with the end of the one before as its own begin and end, and its first entry counts seconds from there.

Source: spec: commitlog §10; rocketmq-all-4.9.8 IndexFile.java, IndexHeader.java.
"""

import struct
from typing import Final, NamedTuple

from rmqha.memory import BytesLike

_HEADER: Final = struct.Struct(">qqqqii")
HEADER_SIZE: Final = _HEADER.size
SLOT: Final = struct.Struct(">i")
SLOT_SIZE: Final = SLOT.size
ENTRY: Final = struct.Struct(">iqii")
ENTRY_SIZE: Final = ENTRY.size
NAME_DIGITS: Final = 17
FIRST_ENTRY: Final = 1
_SECONDS_MAX: Final = (1 << 31) - 1
_BLOCK: Final = 64
_pack_block: Final = struct.Struct(">" + "iqii" * _BLOCK).pack


class IndexHeader(NamedTuple):
    """The first 40 bytes."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    slot_count: int = 0
    """Slots in use. While rmqha writes a file: 0, as the slots on the disk are not what the entries say."""
    index_count: int = FIRST_ENTRY

    def encode(self) -> bytes:
        """As in the file."""
        return _HEADER.pack(*self)

    @property
    def has_entries(self) -> bool:
        """Whether there is any."""
        return self.index_count > FIRST_ENTRY


def decode_index_header(raw: BytesLike) -> IndexHeader:
    """Read it; RocketMQ takes a file of zeros for one without entries."""
    header = IndexHeader(*_HEADER.unpack_from(raw))
    return header if header.index_count > 0 else header._replace(index_count=FIRST_ENTRY)


class IndexLayout(NamedTuple):
    """Where things lie in files of so many slots and entries."""

    slots: int
    entries: int

    @property
    def file_size(self) -> int:
        """Bytes."""
        return self.entry_at(self.entries)

    def entry_at(self, number: int) -> int:
        """Position of an entry."""
        return HEADER_SIZE + self.slots * SLOT_SIZE + number * ENTRY_SIZE


def seconds_since(begin_timestamp_ms: int, store_timestamp_ms: int) -> int:
    """The third field of an entry."""
    if begin_timestamp_ms <= 0:
        return 0
    return min(max((store_timestamp_ms - begin_timestamp_ms) // 1000, 0), _SECONDS_MAX)


def pack_entries(fields: list[int]) -> bytes:
    """Entries of their fields, one behind the other. Hot path."""
    end = len(fields)
    whole = end - end % (4 * _BLOCK)
    blocks = [_pack_block(*fields[at : at + 4 * _BLOCK]) for at in range(0, whole, 4 * _BLOCK)]
    return b"".join(blocks + [ENTRY.pack(*fields[at : at + 4]) for at in range(whole, end, 4)])
