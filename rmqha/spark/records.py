"""Single records, found and judged one at a time: at a split's start, at the log's end, and around damage."""

import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from rmqha.codec.record.entry_scan import scan_entry
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.record.scan import Scan, Stop, scan_records
from rmqha.errors import StoreError
from rmqha.spark import fields
from rmqha.spark.lane_walk import walk
from rmqha.spark.layout import RECORD_DTYPES
from rmqha.spark.plausible import plausible
from rmqha.spark.segments import SegmentReader, as_array

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    _crc32 = zlib.crc32

crc32: Final[Callable[..., int]] = _crc32
"""CRC-32 as in zlib, by isal where it is installed (3 times as fast on 1 KiB bodies)."""

_HEAD_SIZE: Final = RECORD_DTYPES[SysFlag.HOSTS_V6].itemsize
_TAIL_SIZE: Final = 1 + 255 + 2
_HOP_BYTES: Final = 4 << 20
_ZEROS_BEHIND: Final = 8
_SCAN_BYTES_MIN: Final = 64 << 10
_SCAN_BYTES_MAX: Final = 4 << 20
_MANY: Final = 16
"""So many places that claim to hold a record are looked at one by one."""


class Verdict(NamedTuple):
    """What lies at one position: ``END`` a whole good record, otherwise why there is none.

    ``end``: end of the record or blank; else the position itself.
    """

    stop: Stop
    end: int
    reason: str

    @property
    def is_record(self) -> bool:
        """Whether a whole, good record begins here."""
        return self.stop is Stop.END


def judge(file: SegmentReader, position: int, *, check_crc: bool = True) -> Verdict:
    """Look at one position of the log, with every check there is. Never raises for what the bytes say."""
    room = file.segment.end - position
    if not room:  # by the letter a blank of 8 bytes or more ends every file; a missing one loses nothing
        return Verdict(Stop.BLANK, position, "")
    kind = file.segment.record_format
    view = file.peek(position, kind.fixed_size)
    if kind.claims(view, position):
        view = file.peek(position, max(kind.fixed_size, min(room, kind.size_of(view))))
    scan = _scan(file, position, view, check_crc=check_crc)
    return Verdict(scan.stop, position + scan.end, scan.reason)


def _scan(file: SegmentReader, position: int, view: memoryview, *, check_crc: bool) -> Scan:
    room, kind = file.segment.end - position, file.segment.record_format
    if kind.has_entries:
        return scan_entry(
            view,
            position=position,
            file_end=room,
            begins_file=position == file.segment.base,
            holds_message=kind.holds_messages,
            check_crc=check_crc,
        )
    scan = scan_records(view, 0, len(view), phy_offset_base=position, file_end=room, check_crc=check_crc)
    return scan._replace(end=room) if scan.stop is Stop.BLANK else scan


class _Message(NamedTuple):
    """What a record says at a place, true or not, but its body; ``size`` is what its lengths add up to."""

    physical_offset: int
    topic: bytes
    queue_id: int
    queue_offset: int
    size: int


def _message_at(file: SegmentReader, at: int) -> _Message | None:
    """By short reads; None: the file ends before its topic."""
    head = bytes(file.read(at, _HEAD_SIZE)).ljust(_HEAD_SIZE, b"\0")
    kind = RECORD_DTYPES[int(np.frombuffer(head, RECORD_DTYPES[0], 1)["sys_flag"][0]) & SysFlag.HOSTS_V6]
    fields = np.frombuffer(head, kind, 1)[0]
    topic_at = at + kind.itemsize + int(fields["body_size"])
    if fields["body_size"] < 0 or topic_at >= file.segment.end:
        return None
    tail = bytes(file.read(topic_at, _TAIL_SIZE)).ljust(_TAIL_SIZE, b"\0")
    topic_end = 1 + tail[0]
    properties = int.from_bytes(tail[topic_end : topic_end + 2], "big")
    size = topic_at - at + topic_end + 2 + properties
    return _Message(
        int(fields["physical_offset"]), tail[1:topic_end], int(fields["queue_id"]), int(fields["queue_offset"]), size
    )


def message_of(file: SegmentReader, position: int) -> tuple[str, int, int, int] | None:
    """Topic, queue id, queue offset and size of the record at a position; None: it does not say that it lies there."""
    at = position + file.segment.record_format.message_at
    found = _message_at(file, at)
    if found is None or found.physical_offset != at:
        return None
    return found.topic.decode(errors="replace"), found.queue_id, found.queue_offset, at - position + found.size


def foreign_record(file: SegmentReader, position: int, verdict: Verdict) -> StoreError:
    """The error for a record of another format."""
    return StoreError(f"{file.segment.path} holds {verdict.reason} (physical offset {position})")


def find_record(file: SegmentReader, position: int, *, end: int, or_blank: bool = False) -> int | None:
    """The first position in ``[position, end)`` that holds a well-formed record claiming it; None: there is none.

    Its body's CRC is not checked: a split must open at a record with a damaged body too, or nobody reports it.
    """
    wanted = {Stop.END, Stop.BLANK} if or_blank else {Stop.END}
    for claim in _claims(file, position, end=end, blanks=or_blank):
        if judge(file, claim, check_crc=False).stop in wanted:
            return claim
    return None


def find_next(file: SegmentReader, position: int, *, end: int) -> int | None:
    """Where a record or a blank goes on behind the damage at ``position``; None: none begins before ``end``.

    What is found first may be a part of the damaged record's body. If that one's lengths, or else its size, lead to
    where the log goes on, or ends, they are right: whatever lies before that is its own. Of one that is not written to
    its end the body is passed over.
    """
    found = find_record(file, max(position + 1, unfinished_body_end(file, position)), end=end, or_blank=True)
    if found is None:
        return None
    for size in _sizes_at(file, position):
        behind = position + size
        if behind == found:
            return found
        if found < behind < file.segment.end and judge(file, behind, check_crc=False).stop in {Stop.END, Stop.BLANK}:
            return behind
        if behind == end:
            return None
    return found


def unfinished_body_end(file: SegmentReader, position: int) -> int:
    """Where the body ends of a record that is not written to its end; 0 if none, or a whole one, lies there.

    Bytes become visible in ascending order: such a one has a zero as its last byte, and nothing but zeros behind it; or
    the file, a copy, ends before. Whatever its body holds meanwhile, images of records among it, is no part of the log.
    So it is with one whose end was never written back, and behind which the log goes on later.
    """
    kind = file.segment.record_format
    head = file.peek(position, kind.fixed_size)
    if not kind.claims(head, position):
        return 0
    sizes = [*_sizes_at(file, position)]
    if min(sizes) < kind.fixed_size:  # what no record has
        return 0
    end = position + kind.size_of(head)
    is_whole = end <= file.segment.end and any(bytes(file.peek(end - 1, 1 + _ZEROS_BEHIND)))
    return 0 if is_whole else position + min(sizes)


def _sizes_at(file: SegmentReader, position: int) -> Iterator[int]:
    """Of a damaged record: what its lengths add up to, and what it says itself, one of which may be the damage."""
    kind = file.segment.record_format
    head = file.peek(position, kind.fixed_size)
    if kind.has_entries:
        yield kind.message_at + int.from_bytes(head[kind.message_at - 4 : kind.message_at], "big", signed=True)
    elif (message := _message_at(file, position)) is not None:
        yield message.size
    yield kind.size_of(head)


def open_at(file: SegmentReader, position: int, *, end: int) -> int | None:
    """The first real record starting in ``[position, end)``, whatever bodies contain; None: there is none.

    The file's first byte is always a start, good or bad: a reader that begins there reports what is wrong with it.
    Elsewhere, a record image found first could lie inside the body of a record that began earlier, or in the stale
    bytes of a blank. Then that record or blank is itself found when looking back, and the file is walked from its
    start, which decides. When nothing found looking back reaches over the image, it is real.
    """
    base = file.segment.base
    if position <= base:
        return base
    found = find_record(file, position, end=end)
    if found is None or covering(file, position, found) is None:
        return found
    at = _walk_to(file, position)
    verdict = judge(file, at, check_crc=False)
    if at >= end or verdict.stop is Stop.BLANK:
        return None
    return at if verdict.is_record else find_record(file, at + 1, end=end)


def start_at(file: SegmentReader, position: int, *, end: int) -> int:
    """As :func:`open_at`, but damage counts as a start, too, and ``end`` if there is none.

    For where a range begins: what is wrong there would be reported by nobody else.
    """
    base = file.segment.base
    if position <= base:
        return base
    over = covering(file, position, position)
    if over is None and judge(file, position, check_crc=False).is_record:
        return position
    if over is not None and open_at(file, over, end=over + 1) == over:
        found = open_at(file, position, end=end)
        return end if found is None else found
    return min(end, _walk_to(file, position))


def covering(file: SegmentReader, position: int, found: int) -> int | None:
    """A record or blank before ``found`` that reaches beyond it; records from ``position`` on do not."""
    base = file.segment.base
    if judge(file, base, check_crc=False).end > found:
        return base
    back = max(base, position - file.segment.reach)
    claims = _claims(file, back, end=found, blanks=True, beyond=found)
    return next((start for start in claims if _reach(file, start) > found), None)


def _reach(file: SegmentReader, position: int) -> int:
    """Where the record ends that is there, or will be; it may be written to its end between two looks."""
    return unfinished_body_end(file, position) or judge(file, position, check_crc=False).end


def _walk_to(file: SegmentReader, position: int) -> int:
    """Where a record, blank or damage begins at or after ``position``, on the chain from the file's first byte."""
    at = file.segment.base
    while (at := _hop_to(file, at, position)) < position:
        verdict = judge(file, at, check_crc=False)
        if verdict.is_record or verdict.stop is Stop.BLANK:
            at = verdict.end
        else:
            reach = _reach(file, at)
            end = position if reach <= position else file.segment.end
            at = max(reach, find_next(file, at, end=end) or end)
    return at


def _hop_to(file: SegmentReader, at: int, position: int) -> int:
    """How far :func:`_walk_to` comes from a start by well-formed records alone, block by block.

    Some body may have it walk all of a file for each look at the log's end: record by record that takes seconds.
    """
    kind = file.segment.record_format
    while at < position and not kind.has_entries:
        block = as_array(file.read(at, _HOP_BYTES))
        found = walk(block, at, limit=position - at, record_format=kind)
        if not found.starts.size:
            break
        _, good = fields.read(block, found.starts, np.diff(found.starts, append=found.end), position=at)
        at += int(found.starts[good]) if good < found.starts.size else found.end
        if good < found.starts.size:
            break
    return at


def _claims(file: SegmentReader, begin: int, *, end: int, blanks: bool, beyond: int = 0) -> Iterator[int]:
    """Each position in ``[begin, end)`` with a record's magic code that says to lie there; nothing more is sure.

    Also blanks that end with their file, or begin it, if asked; only what says to end behind ``beyond``. Of many only
    those that may be what they claim, or, with ``beyond``, are not written to their end.
    """
    kind = file.segment.record_format
    size = _SCAN_BYTES_MIN  # what is looked for is near as a rule
    while begin < end:
        block = as_array(file.read(begin, min(size, end - begin) + kind.fixed_size))
        count = min(size, end - begin, block.size - kind.fixed_size + 1)
        if count <= 0:  # so few bytes before the file's end are no record
            return
        magics = np.ndarray((count,), ">u4", block[kind.magic_at :], strides=(1,))
        first_bytes = block[kind.magic_at : kind.magic_at + count]  # faster, and few of them are another word's
        is_first = first_bytes == kind.magic >> 24
        maybe = np.flatnonzero(is_first | (first_bytes == kind.blank_magic >> 24) if blanks else is_first)
        at = maybe[magics[maybe] == kind.magic]
        claimed = np.ndarray((count,), ">i8", block[kind.position_at :], strides=(1,))[at]
        starts = at[claimed == begin + at]
        if blanks:
            marked = maybe[magics[maybe] == kind.blank_magic]
            told = np.ndarray((count,), ">u4", block[kind.size_at :], strides=(1,))[marked].astype(np.int64)
            fits = (begin + marked + told == file.segment.end) | (begin + marked == file.segment.base)
            starts = np.union1d(starts, marked[fits])
        ends = starts + np.ndarray((count,), ">u4", block[kind.size_at :], strides=(1,))[starts]
        claims = begin + starts[begin + ends > beyond]
        if claims.size > _MANY:
            claims = plausible(file, claims, beyond=beyond or None)
        yield from claims.tolist()
        begin, size = begin + count, min(2 * size, _SCAN_BYTES_MAX)
