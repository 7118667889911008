"""DLedger's records: entries of the data files, units of the index files, and the blank that ends a data file.

An entry (DLedgerEntry):

    at  size  field       type   meaning
     0     4  magic       int32  1
     4     4  size        int32  48 + bodyLength
     8     8  index       int64  place in the Raft log, from 0
    16     8  term        int64  of the leader that made it
    24     8  pos         int64  offset of this entry in the concatenation of all data files
    32     4  channel     int32  0
    36     4  chainCrc    int32  0, never computed
    40     4  bodyCrc     int32  0, never computed
    44     4  bodyLength  int32
    48     n  body

A unit of the index; that of entry ``i`` lies at byte ``32 * i``:

    at  size  field  type
     0     4  magic  int32
     4     8  pos    int64
    12     4  size   int32
    16     8  index  int64
    24     8  term   int64

A blank is magic -1 and an int32 length; a data file always keeps room for one, and the log goes on in the next file.

Source: spec: dledger §1.2 to §1.4; dledger-all-0.3.1.2 DLedgerEntryCoder.java, DLedgerEntry.java, MmapFileList.java.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from rmqha.memory import BytesLike

MAGIC_1: Final = 1
CURRENT_MAGIC: Final = MAGIC_1
BLANK_MAGIC_CODE: Final = -1
MIN_BLANK_LEN: Final = 8
BODY_OFFSET: Final = 48
POS_OFFSET: Final = 24
INDEX_UNIT_SIZE: Final = 32
ENTRY_SIZE_MAX: Final = 4 << 20
"""DLedger encodes in a buffer of this size, and fails if an entry does not fit."""

HEADER_FIELDS: Final = (
    ("magic", "i"),
    ("size", "i"),
    ("index", "q"),
    ("term", "q"),
    ("pos", "q"),
    ("channel", "i"),
    ("chain_crc", "i"),
    ("body_crc", "i"),
    ("body_length", "i"),
)
"""The fields before the body, and struct's codes of these big-endian integers."""

_HEADER: Final = struct.Struct(">" + "".join(code for _name, code in HEADER_FIELDS))
_BLANK: Final = struct.Struct(">ii")
_INDEX_UNIT: Final = struct.Struct(">iqiqq")
assert (_HEADER.size, _BLANK.size, _INDEX_UNIT.size) == (BODY_OFFSET, MIN_BLANK_LEN, INDEX_UNIT_SIZE)


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The fields of an entry before its body."""

    magic: int
    size: int
    index: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_length: int


@dataclass(slots=True)
class DLedgerEntry:
    """One entry. Two are equal where DLedger takes them for equal: it does not look at the CRCs.

    Attributes:
        json: as it travels, once it has been written so; an entry that was pushed is not changed any more.
    """

    body: bytes
    index: int = -1
    term: int = -1
    pos: int = -1
    magic: int = CURRENT_MAGIC
    size: int = -1
    channel: int = 0
    chain_crc: int = field(default=0, compare=False)
    body_crc: int = field(default=0, compare=False)
    json: bytes = field(default=b"", init=False, compare=False, repr=False)

    def compute_size_in_bytes(self) -> int:
        """What :attr:`size` has to be."""
        return BODY_OFFSET + len(self.body)


@dataclass(frozen=True, slots=True)
class Blank:
    """The rest of a data file, or what lies before the first entry of the first one."""

    pos: int
    size: int


@dataclass(frozen=True, slots=True)
class End:
    """No entry lies here: ``reason`` says why what does is none; it is empty if nothing was written here."""

    reason: str = ""


def read_record(data: BytesLike, at: int, *, base: int, previous: EntryHeader | None) -> EntryHeader | Blank | End:
    """What lies at ``at`` of a data file, by the rules with which DLedger recovers.

    Args:
        data: the whole file.
        at: where the record before ended.
        base: offset of the file's first byte.
        previous: the entry before, which this one must continue; None: any may come.
    """
    room = len(data) - at
    if room < MIN_BLANK_LEN:
        return End(f"{room} bytes are left, fewer than a blank has")
    magic, size = _BLANK.unpack_from(data, at)
    if magic == BLANK_MAGIC_CODE:
        return Blank(base + at, size)
    if size == 0:
        return End()
    if room < BODY_OFFSET:
        return End(f"{room} bytes are left, fewer than an entry's header has")
    header = EntryHeader(*_HEADER.unpack_from(data, at))
    problem = _problem(header, base + at, room) or _broken_chain(header, previous)
    return End(problem) if problem else header


def _problem(header: EntryHeader, offset: int, room: int) -> str:
    """Why this is no entry that could stand at ``offset``; empty if it is one."""
    if header.pos != offset:
        return f"an entry's pos would be {header.pos}"
    if header.body_length < 0 or header.body_length + BODY_OFFSET != header.size:
        return f"an entry's size {header.size} is not {BODY_OFFSET} + bodyLength {header.body_length}"
    if header.size > room:
        return f"an entry of {header.size} bytes does not fit into the {room} that are left of the file"
    if header.index < 0 or header.term < 0:
        return f"an entry's index would be {header.index}, and its term {header.term}"
    if header.magic != CURRENT_MAGIC:
        return f"an entry's magic would be {header.magic}, not {CURRENT_MAGIC}"
    return ""


def _broken_chain(header: EntryHeader, previous: EntryHeader | None) -> str:
    if previous is None:
        return ""
    if header.index != previous.index + 1:
        return f"an entry's index is {header.index}, behind one of index {previous.index}"
    if header.term < previous.term:
        return f"an entry's term is {header.term}, behind one of term {previous.term}"
    return ""


def start_position(data: BytesLike) -> int:
    """Where the first entry of a log's first data file may lie: behind a blank that ends before the file does.

    DLedger 0.4 begins a file so whose first bytes nobody sent it, and so does rmqha.
    """
    if len(data) < MIN_BLANK_LEN:
        return 0
    magic, size = _BLANK.unpack_from(data)
    return size if magic == BLANK_MAGIC_CODE and MIN_BLANK_LEN <= size < len(data) - MIN_BLANK_LEN else 0


def encode_header(entry: DLedgerEntry) -> bytes:
    """The bytes before an entry's body.

    Raises:
        ValueError: a field does not fit.
    """
    try:
        return _HEADER.pack(
            entry.magic,
            entry.size,
            entry.index,
            entry.term,
            entry.pos,
            entry.channel,
            entry.chain_crc,
            entry.body_crc,
            len(entry.body),
        )
    except struct.error as error:
        raise ValueError(f"no entry has such fields: {error}") from None


def decode_entry(data: BytesLike) -> DLedgerEntry | None:
    """The entry whose bytes these are; None if its sizes say something else."""
    if len(data) < BODY_OFFSET:
        return None
    magic, size, index, term, pos, channel, chain_crc, body_crc, body_length = _HEADER.unpack_from(data)
    if not size == BODY_OFFSET + body_length == len(data):
        return None
    return DLedgerEntry(bytes(data[BODY_OFFSET:]), index, term, pos, magic, size, channel, chain_crc, body_crc)


def index_of(header: BytesLike) -> int:
    """The index of the entry that begins with these bytes."""
    return int(_HEADER.unpack_from(header)[2])


def encode_blank(size: int) -> bytes:
    """The part of a blank that is not zeros."""
    return _BLANK.pack(BLANK_MAGIC_CODE, size)


def encode_index(*, pos: int, size: int, magic: int, index: int, term: int) -> bytes:
    """An entry's unit in the index."""
    return _INDEX_UNIT.pack(magic, pos, size, index, term)


def decode_index(unit: BytesLike) -> tuple[int, int]:
    """``pos`` and ``size`` of a unit's entry."""
    _magic, pos, size, _index, _term = _INDEX_UNIT.unpack(unit)
    return pos, size


def term_of_unit(unit: BytesLike) -> int:
    """``term`` of a unit's entry."""
    return int(_INDEX_UNIT.unpack(unit)[4])
