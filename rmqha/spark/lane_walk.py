"""Hot path: find the records of a block. Many hops at once, because one hop waits for one cache miss.

In each slot of the block a lane is opened at a record that claims its own position; then all lanes hop together,
one numpy gather a step. Every lane must land exactly on the next lane's start: the first lane starts at a record
known to be real, so by induction they all do, and a record image inside a body cannot fool the walk. If one does
not land, the block is walked again by the plain hop.
"""

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqha.codec.record.formats import CLASSIC, RecordFormat

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

SLOT_BYTES: Final = 64 << 10
_OPENING_BYTES: Final = 2 << 10
_LANES_MIN: Final = 8
_ROUND: Final = 8
_TWO: Final = struct.Struct(">II")
_HEADER: Final = 8


class Walk(NamedTuple):
    """``starts``: every record that is whole within the block; ``end``: where the last one ends."""

    starts: Positions
    end: int


def walk(block: Bytes, position: int, *, limit: int, record_format: RecordFormat = CLASSIC) -> Walk:
    """Records that start in ``block[:limit]`` and are whole in ``block``. ``block[0]`` must start a record.

    Sizes and magic codes are followed here; everything else about a record is checked by ``fields.read``.

    Args:
        block: log bytes from physical offset ``position`` on.
        position: the block's physical offset.
        limit: records starting at or after it belong to the next split.
        record_format: of these records.
    """
    limit = min(limit, block.size - _HEADER + 1)
    if limit <= 0:
        return Walk(np.empty(0, np.int64), 0)
    lanes = _open_lanes(block, position, limit, record_format)
    if lanes.size < _LANES_MIN:  # records are large or the block is small: nothing to gain
        return _hop(block, 0, limit=limit, record_format=record_format)
    starts = _walk_lanes(block, lanes, record_format)
    if starts is None:
        return _hop(block, 0, limit=limit, record_format=record_format)
    last = _hop(block, int(lanes[-1]), limit=limit, record_format=record_format)
    return Walk(np.concatenate([starts, last.starts]), last.end)


def _open_lanes(block: Bytes, position: int, limit: int, kind: RecordFormat) -> Positions:
    """The first position near the start of each slot that has the magic code and claims to be a record there.

    A false one is noticed when its neighbour does not land on it.
    """
    slots = np.arange(SLOT_BYTES, limit - _OPENING_BYTES - kind.position_at - 8, SLOT_BYTES)
    if not slots.size:
        return np.zeros(1, np.int64)
    openings = np.ndarray(
        (slots.size, _OPENING_BYTES), np.uint8, block[SLOT_BYTES + kind.rare_at :], strides=(SLOT_BYTES, 1)
    )
    slot, within = np.divmod(np.flatnonzero(openings == kind.rare_byte), _OPENING_BYTES)
    at = slots[slot] + within
    magics = np.ndarray((block.size - 7,), ">u4", block[kind.magic_at :], strides=(1,))[at]
    claims = np.ndarray((block.size - 7,), ">i8", block, strides=(1,))[at + kind.position_at]
    good = (magics == kind.magic) & (claims == at + position)
    _, first = np.unique(slot[good], return_index=True)
    return np.concatenate([np.zeros(1, np.int64), at[good][first]])


def _walk_lanes(block: Bytes, lanes: Positions, kind: RecordFormat) -> Positions | None:
    """All starts before the last lane's; None if a lane did not land on the next one.

    A lane that has arrived runs on into its neighbour's records until all have arrived; those are cut off below.
    """
    sizes = np.ndarray((block.size - 7,), ">u4", block[kind.size_at :], strides=(1,))
    at, ends, last = lanes[:-1].copy(), lanes[1:], block.size - _HEADER
    steps = [at]
    while (at < ends).any():
        before = at
        for _ in range(_ROUND):
            at = at + sizes[at]
            np.minimum(at, last, out=at)
            steps.append(at)
        if (at == before).any() and ((at == before) & (at < ends)).any():
            return None  # stands on a size of 0
    by_lane = np.stack(steps).T
    is_own = by_lane < ends[:, None]
    landed = by_lane[np.arange(ends.size), is_own.sum(axis=1)]
    starts: Positions = by_lane[is_own]
    magics = np.ndarray((block.size - 7,), ">u4", block[kind.magic_at :], strides=(1,))[starts]
    return starts if np.array_equal(landed, ends) and (magics == kind.magic).all() else None


def _hop(block: Bytes, at: int, *, limit: int, record_format: RecordFormat) -> Walk:
    """The plain walk from ``at``: for one lane, and for blocks with damage or with record images inside bodies."""
    view, unpack = block.data, _TWO.unpack_from
    size_first, wanted, size_min = record_format.size_at == 0, record_format.magic, record_format.size_min
    starts: list[int] = []
    while at < limit:
        one, two = unpack(view, at)
        size, magic = (one, two) if size_first else (two, one)
        if magic != wanted or size < size_min or at + size > block.size:
            break
        starts.append(at)
        at += size
    return Walk(np.array(starts, np.int64), at)
