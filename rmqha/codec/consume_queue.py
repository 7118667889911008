"""The 20-byte units of a consume queue: where the messages of one queue lie in the commitlog.

    at  size  field              type
     0     8  commitlog offset   int64
     8     4  TOTALSIZE          int32
    12     8  tagsCode           int64, the tag's hash or a delivery time (codec/record/dispatch.py)

Unit ``i`` lies at byte ``20 * i`` of the logical queue; there is no header and no checksum, and unused space is zero.
A queue that starts later than 0 begins with fillers up to its first unit.

Source: spec: commitlog §8; rocketmq-all-4.9.8 ConsumeQueue.java:34-43, 388-397.
"""

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmqha.memory import BytesLike

UNIT: Final = struct.Struct(">qiq")
UNIT_SIZE: Final = UNIT.size
assert UNIT_SIZE == 20
_WORDS: Final = UNIT_SIZE // 4
QUEUE_OFFSET_MAX: Final = (1 << 62) // UNIT_SIZE
"""No message has a larger number in its queue, nor a negative one."""
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)


class ConsumeQueueUnit(NamedTuple):
    """One message of the queue."""

    commit_log_offset: int
    msg_size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """True for a unit that only takes the place of messages this log never had."""
        return self.commit_log_offset == 0 and self.msg_size == FILLER_SIZE

    @property
    def is_written(self) -> bool:
        """False for the zeros of unused space, and for what cannot be a unit. Fillers are written, too."""
        return self.commit_log_offset >= 0 and self.msg_size > 0


def decode_units(buffer: BytesLike, start: int = 0, end: int | None = None) -> list[ConsumeQueueUnit]:
    """Every unit of ``buffer[start:end]``, used or not; a last part of a unit is left out."""
    view = memoryview(buffer)[start:end]
    return [ConsumeQueueUnit(*fields) for fields in UNIT.iter_unpack(view[: len(view) // UNIT_SIZE * UNIT_SIZE])]


def encode_units(units: Iterable[tuple[int, int, int]]) -> bytes:
    """The bytes of ``(commitlog offset, size, tagsCode)`` units."""
    return b"".join([UNIT.pack(*unit) for unit in units])


def count_valid(units: bytes) -> int:
    """How many units from the start on are written, fillers included, without a Python loop over those that are."""
    if units.count(FILLER) * UNIT_SIZE == len(units):  # a queue that begins late has millions of them
        return len(units) // UNIT_SIZE
    words = _words(units)
    offsets, sizes = words[0::_WORDS], words[2::_WORDS]
    if not sizes or (min(sizes) > 0 and min(offsets) >= 0):
        return len(sizes)
    return next(i for i, (size, offset) in enumerate(zip(sizes, offsets, strict=True)) if size <= 0 or offset < 0)


def sum_of_sizes(units: bytes | bytearray) -> int:
    """The sum of the records' sizes, without a Python loop over them."""
    return sum(_words(units)[2::_WORDS])


def _words(units: bytes | bytearray) -> "array[int]":
    words = array("i", units)
    if sys.byteorder == "little":
        words.byteswap()
    return words
