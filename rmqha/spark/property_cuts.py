"""Where names and values lie in the stored properties of many records: the separators, found all at once.

Source: spec: commitlog §2.5
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqha.spark import gather
from rmqha.spark.fields import Mask
from rmqha.spark.lane_walk import Positions


class Cuts(NamedTuple):
    """Where each pair lies in the raw bytes, and the record it belongs to; all ascending."""

    record: Positions
    name_begin: Positions
    name_end: Positions
    value_begin: Positions
    value_end: Positions

    def of(self, wanted: Mask) -> "Cuts":
        """Only the pairs of the wanted records."""
        keep = wanted[self.record]
        return self if keep.all() else Cuts(*(column[keep] for column in self))


def cut_all_alike(raw: pa.Array) -> tuple[Cuts, Mask] | None:
    """The pairs if every record is as today's producers write it: ``name 1 value (2 name 1 value)*``; else None.

    With a cut at every separator and every record's end, names and values end in turns.
    """
    offsets = gather.offsets_of(raw)
    ends = offsets[1:].astype(np.int64)
    data = gather.bytes_of(raw)[: offsets[-1]]
    at = np.flatnonzero(data < 3)
    before = np.searchsorted(at, ends)
    cuts = np.insert(at, before, ends)
    end_rows = before + np.arange(ends.size)  # where in ``cuts`` the records' ends are
    if not (end_rows & 1).all():
        return None
    name_end, value_end = cuts[0::2], cuts[1::2]
    is_last = np.zeros(value_end.size, np.bool_)
    is_last[end_rows >> 1] = True
    name_begin = np.zeros(name_end.size, np.int64)
    name_begin[1:] = value_end[:-1] + ~is_last[:-1]
    alternate = (data[name_end] == 1).all() and (data[value_end[~is_last]] == 2).all()
    if not alternate or (name_begin >= name_end).any() or (name_end + 1 >= value_end).any():
        return None
    record = np.repeat(np.arange(ends.size), np.diff(end_rows, prepend=-1) >> 1)
    return Cuts(record, name_begin, name_end, name_end + 1, value_end), np.ones(ends.size, np.bool_)


def cut_each(raw: pa.Array) -> tuple[Cuts, Mask]:
    """The pairs of all regular records, and which records are: separators alternate and nothing is empty."""
    offsets = gather.offsets_of(raw).astype(np.int64)
    begins, ends = offsets[:-1], offsets[1:]
    data = gather.bytes_of(raw)[: ends[-1] if ends.size else 0]
    at = np.flatnonzero(data < 3)
    first = np.searchsorted(at, begins)
    count = np.searchsorted(at, ends) - first
    record = np.repeat(np.arange(begins.size), count)
    nth = np.arange(at.size) - first[record]
    regular = (count > 0) | (begins == ends)
    regular[record[data[at] != 1 + (nth & 1)]] = False
    cuts = _pairs(at, record, is_name_end=(nth & 1) == 0, begins=begins, ends=ends)
    is_empty = (cuts.name_begin == cuts.name_end) | (cuts.value_begin == cuts.value_end)
    regular[cuts.record[is_empty]] = False
    is_trailing = (count > 0) & (count % 2 == 0)
    last = at[np.minimum(first + count - 1, at.size - 1)] if at.size else first
    regular &= ~is_trailing | (last == ends - 1)
    return cuts.of(regular), regular


def _pairs(at: Positions, record: Positions, *, is_name_end: Mask, begins: Positions, ends: Positions) -> Cuts:
    """The pairs around each separator that should end a name."""
    which = np.flatnonzero(is_name_end)
    owner, name_end = record[which], at[which]
    is_first = np.ones(which.size, np.bool_)
    is_first[1:] = owner[1:] != owner[:-1]
    name_begin = np.where(is_first, begins[owner], at[np.maximum(which - 1, 0)] + 1)
    following = np.minimum(which + 1, at.size - 1)
    has_next = (which + 1 < at.size) & (record[following] == owner)
    value_end = np.where(has_next, at[following], ends[owner])
    return Cuts(owner, name_begin, name_end, name_end + 1, value_end)
