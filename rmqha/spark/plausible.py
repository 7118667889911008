"""Which of many places that claim to hold a record may hold one: a body may be full of them.

One look at each, with all that it says is its own, took half a minute for a body of 4 MiB; here all are asked at once.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqha.codec.record.formats import RecordFormat
from rmqha.codec.record.layout import SysFlag, is_inner_batch, is_legal_topic
from rmqha.spark.fields import Mask, fixed_sizes, values_at
from rmqha.spark.lane_walk import Bytes, Positions
from rmqha.spark.layout import RECORD_DTYPES, RECORD_SIZE_LIKELY_MAX
from rmqha.spark.segments import SegmentReader, as_array

_PADDING: Final = 512
"""Zeros behind the file's end, more than a head, or a topic and the properties' length, may lack."""
_LAST_BYTES: Final = np.arange(9)
"""The last byte of a record, and those behind it: all zeros where it is not written to its end."""


def plausible(file: SegmentReader, claims: Positions, *, beyond: int | None = None) -> Positions:
    """Those that may be a record, or a blank; what is left out is none. Each that is left is still to be judged.

    Args:
        file: of the log.
        claims: physical offsets with the magic code of a record, which says to lie there, or of a blank; ascending.
        beyond: where given, what may be a record that is not written to its end, and reaches beyond here, is kept too.
    """
    kind, begin = file.segment.record_format, int(claims[0])
    held = as_array(file.read(begin, int(claims[-1]) + RECORD_SIZE_LIKELY_MAX - begin))
    block, at, to_end = np.concatenate([held, np.zeros(_PADDING, np.uint8)]), claims - begin, file.segment.end - begin
    sizes = values_at(block, at + kind.size_at, ">i4").astype(np.int64)
    is_blank = values_at(block, at + kind.magic_at, ">u4") == kind.blank_magic
    lengths = _lengths(block, at, held=held.size, kind=kind)
    ends = at + sizes
    is_whole = (ends <= held.size) & lengths.are_known & (lengths.total == sizes)
    kept = is_whole.copy()
    if kind.holds_messages:
        kept[is_whole] = _has_sound_message(block, lengths.take(is_whole))
    if beyond is not None:
        least = np.where(lengths.are_known, np.minimum(lengths.total, sizes), sizes)
        are_told = lengths.are_known | (lengths.topic_at < lengths.body_at) | (lengths.topic_at >= to_end)
        reaches = are_told & (least >= kind.fixed_size) & (at + least > beyond - begin)
        kept |= reaches & _may_be_unfinished(held, ends, to_end=to_end)
    possible: Positions = claims[np.where(is_blank, (ends == to_end) | kind.has_entries, kept)]
    return possible


class _Lengths(NamedTuple):
    """What the lengths of each record say; positions are in the block.

    Attributes:
        message_at: where the message begins.
        body_at: where its body begins; or, of an entry that need not be one, that of the entry.
        topic_at: behind that body.
        total: what they add up to, that of the whole record; arbitrary where they are not known.
        are_known: whether they lie in the block.
        are_messages: whether it is, or has to hold, a message, whose lengths add up.
    """

    message_at: Positions
    body_at: Positions
    topic_at: Positions
    total: Positions
    are_known: Mask
    are_messages: Mask

    def take(self, rows: Mask) -> "_Lengths":
        """Only these rows."""
        return _Lengths(
            self.message_at[rows],
            self.body_at[rows],
            self.topic_at[rows],
            self.total[rows],
            self.are_known[rows],
            self.are_messages[rows],
        )


def _lengths(block: Bytes, at: Positions, *, held: int, kind: RecordFormat) -> _Lengths:
    message_at = at + kind.message_at
    sys_flag = values_at(block, message_at, RECORD_DTYPES[0])["sys_flag"].astype(np.int32)
    body_at = message_at + fixed_sizes(sys_flag)
    topic_at = body_at + _int32_at(block, body_at - 4)
    are_known = (topic_at >= body_at) & (topic_at < held)
    topic_end = topic_at + 1 + block[np.where(are_known, topic_at, 0)]
    properties = values_at(block, np.where(are_known, topic_end, 0), ">u2").astype(np.int64)
    message_end = topic_end + 2 + properties
    if not kind.has_entries:
        return _Lengths(message_at, body_at, topic_at, message_end - at, are_known, np.ones(at.size, np.bool_))
    entry_end = message_at + _int32_at(block, message_at - 4)
    has_message = are_known & (message_end == entry_end) if kind.holds_messages else np.ones(at.size, np.bool_)
    are_known = np.ones(at.size, np.bool_)  # an entry has but one, in its head
    return _Lengths(message_at, message_at, topic_at, entry_end - at, are_known, has_message)


def _int32_at(block: Bytes, positions: Positions) -> npt.NDArray[np.int64]:
    return values_at(block, positions, ">i4").astype(np.int64)


def _has_sound_message(block: Bytes, lengths: _Lengths) -> Mask:
    """Whether its topic is one, and it is no inner batch. Each topic is looked at once, however many share it."""
    if not lengths.are_messages.any():
        return lengths.are_messages
    places, shared = np.unique(np.where(lengths.are_messages, lengths.topic_at, 0), return_inverse=True)
    legal = [is_legal_topic(block[place + 1 : place + 1 + int(block[place])].tobytes()) for place in places.tolist()]
    kept: Mask = lengths.are_messages & np.array(legal)[shared]
    flags = values_at(block, lengths.message_at, RECORD_DTYPES[0])["sys_flag"].astype(np.int32)
    for row in np.flatnonzero(kept & (flags & SysFlag.INNER_BATCH != 0)).tolist():
        kept[row] = not is_inner_batch(block.data, int(lengths.message_at[row]), block.size)
    return kept


def _may_be_unfinished(held: Bytes, ends: Positions, *, to_end: int) -> Mask:
    places = np.clip((ends - 1)[:, None] + _LAST_BYTES, 0, held.size - 1)
    may_be: Mask = (ends > to_end) | ((ends <= held.size) & ~held[places].any(axis=1))
    return may_be
