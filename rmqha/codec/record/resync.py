"""Find the next record in bytes that do not begin with one.

A record knows its own place: PHYSICALOFFSET. Bytes that carry the magic, claim exactly the position where they lie, and
pass every check of :func:`~rmqha.codec.record.scan.scan_records` are a record, whatever lies before them.
"""

from collections.abc import Iterator
from typing import Final

from rmqha.codec.record.layout import MESSAGE_MAGIC, PHYSICAL_OFFSET_AT, physical_offset_at, total_size_at
from rmqha.codec.record.scan import scan_records
from rmqha.memory import BytesLike

_MAGIC: Final = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)
_CHUNK_SIZE: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_SIZE + len(_MAGIC) - 1)


def claims_its_place(view: memoryview, at: int, *, phy_offset: int) -> bool:
    """Whether the bytes at ``at`` have a record's magic and the right PHYSICALOFFSET, good or not."""
    if view[at + 4 : at + 8] != _MAGIC or len(view) < at + PHYSICAL_OFFSET_AT + 8:
        return False
    return physical_offset_at(view, at) == phy_offset


def find_record(buffer: BytesLike, start: int, end: int, *, phy_offset_base: int) -> int | None:
    """Position of the first whole and good record in ``buffer[start:end]``; None if there is none."""
    view = memoryview(buffer)
    for magic_at in _magic_positions(view, start + 4, end):
        at = magic_at - 4
        if not claims_its_place(view, at, phy_offset=phy_offset_base + at):
            continue
        if scan_records(
            view, at, min(end, at + max(total_size_at(view, at), 0)), phy_offset_base=phy_offset_base
        ).records:
            return at
    return None


def _magic_positions(view: memoryview, start: int, end: int) -> Iterator[int]:
    """Wherever the magic is. In chunks, because ``bytes.find`` is several times as fast as a regular expression."""
    for chunk_at in range(start, end, _CHUNK_SIZE):
        chunk = bytes(view[chunk_at : min(end, chunk_at + _CHUNK_SIZE + len(_MAGIC) - 1)])
        found = -1 if chunk == _ZEROS[: len(chunk)] else chunk.find(_MAGIC)  # most of what is searched is unused
        while found >= 0:
            yield chunk_at + found
            found = chunk.find(_MAGIC, found + 1)
