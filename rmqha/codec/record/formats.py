"""What readers of whole logs have to know of a record to find it: of the classic log's, and of DLedger's entries.

An entry lies around its body (:mod:`rmqha.codec.dledger_entry`). In a broker's log that body is one message, which says
itself where it lies: behind the entry's header (spec: dledger §6.1).
"""

from dataclasses import dataclass
from typing import Final

from rmqha.codec.dledger_entry import BLANK_MAGIC_CODE, BODY_OFFSET, CURRENT_MAGIC, POS_OFFSET
from rmqha.codec.record.layout import BLANK_MAGIC, FIXED_SIZE_V4, MESSAGE_MAGIC, PHYSICAL_OFFSET_AT, RECORD_SIZE_MIN
from rmqha.memory import BytesLike

_UNSIGNED: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One kind of log. Positions are within a record, magic codes unsigned.

    Attributes:
        size_at: of the int32 that is the size of the whole record, or blank.
        magic_at: of the int32 that tells records from blanks.
        rare_at: of the byte of ``magic`` that is the rarest elsewhere.
        position_at: of the int64 by which a record says where it lies.
        size_min: of a record.
        fixed_size: so many bytes have to be there for a look at a record.
        message_at: of the message, or of an entry's body.
        holds_messages: whether each record is a message, or holds one.
    """

    size_at: int
    magic_at: int
    magic: int
    blank_magic: int
    rare_at: int
    position_at: int
    size_min: int
    fixed_size: int
    message_at: int
    holds_messages: bool = True

    @property
    def has_entries(self) -> bool:
        """Whether records are DLedger's."""
        return self.message_at > 0

    @property
    def rare_byte(self) -> int:
        """The byte at ``rare_at``."""
        return self.magic.to_bytes(4, "big")[self.rare_at - self.magic_at]

    def size_of(self, record: BytesLike) -> int:
        """What a record, or a blank, says of its size."""
        return int.from_bytes(memoryview(record)[self.size_at : self.size_at + 4], "big", signed=True)

    def claims(self, data: BytesLike, position: int) -> bool:
        """Whether these bytes say that they are a record, and that it lies there."""
        view = memoryview(data)
        magic = view[self.magic_at : self.magic_at + 4]
        claimed = view[self.position_at : self.position_at + 8]
        return magic == self.magic.to_bytes(4, "big") and claimed == position.to_bytes(8, "big")


CLASSIC: Final = RecordFormat(
    size_at=0,
    magic_at=4,
    magic=MESSAGE_MAGIC & _UNSIGNED,
    blank_magic=BLANK_MAGIC & _UNSIGNED,
    rare_at=4,
    position_at=PHYSICAL_OFFSET_AT,
    size_min=RECORD_SIZE_MIN,
    fixed_size=FIXED_SIZE_V4,
    message_at=0,
)
"""The log of a master and its slaves."""


def _entries(*, body_size_min: int, holds_messages: bool) -> RecordFormat:
    return RecordFormat(
        size_at=4,
        magic_at=0,
        magic=CURRENT_MAGIC,
        blank_magic=BLANK_MAGIC_CODE & _UNSIGNED,
        rare_at=3,
        position_at=POS_OFFSET,
        size_min=BODY_OFFSET + body_size_min,
        fixed_size=BODY_OFFSET,
        message_at=BODY_OFFSET,
        holds_messages=holds_messages,
    )


MESSAGE_ENTRIES: Final = _entries(body_size_min=RECORD_SIZE_MIN, holds_messages=True)
"""The log of brokers with enableDLegerCommitLog."""
BARE_ENTRIES: Final = _entries(body_size_min=0, holds_messages=False)
"""The log of a group without brokers: a body is whatever a client appended."""
