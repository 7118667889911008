"""Cut a log by hand: the way out where recovery refuses to decide (docs/recovery.md).

Only for a store that no broker uses. The next start is one after a crash: it cuts the queues to the new end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rmqha.codec.checkpoint import decode_checkpoint, encode_checkpoint
from rmqha.codec.record.layout import encode_blank
from rmqha.codec.record.resync import find_record
from rmqha.codec.record.scan import scan_records
from rmqha.errors import StoreError
from rmqha.store.disk import DataFile, Disk
from rmqha.store.known_end import known_end
from rmqha.store.log_reader import LogReader, Segment
from rmqha.store.start import lock_store

_ZEROS: Final = bytes(1 << 20)
_HEAD: Final = 8
"""Of a record or a blank: its size and its magic number."""
_BLANK_MAX: Final = (1 << 31) - 1
"""A file may be longer, by a wrong command; no blank is."""


@dataclass(frozen=True, slots=True)
class LogCut:
    """What a cut takes away."""

    offset: int
    records: int
    """Good records behind ``offset``."""
    segments: int
    """Files that are deleted as a whole."""


def plan_cut(disk: Disk, root: str, commit_log_directory: str, offset: int, *, file_size: int | None = None) -> LogCut:
    """Say what :func:`cut_log` would do; changes nothing.

    Args:
        disk: with the store.
        root: its ``storePathRootDir``.
        commit_log_directory: with the log.
        offset: the first to go.
        file_size: of a segment; None: as the segments that are there tell.

    Raises:
        StoreError: no record, blank or bad place begins at ``offset``, so that a cut would halve a record; or its
            segment is too long, or shorter than it was, and none tells how long it should be.
        StoreReadError: the directory cannot be read.
    """
    with LogReader(disk, commit_log_directory) as reader:
        holding = [segment for segment in reader.segments if segment.offset <= offset <= segment.end_offset]
        if not holding:
            raise StoreError(f"offset {offset} is in no segment of {commit_log_directory}, nor at the end of one")
        if file_size is not None and len(reader.segments) > 1 and file_size != _file_size(reader.segments):
            told = f"the names and sizes of the files there say {_file_size(reader.segments)}"
            raise StoreError(f"a file of {commit_log_directory} cannot be made {file_size} bytes long: {told}")
        _check_size(holding[-1], file_size or _file_size(reader.segments))
        if file_size is None and len(reader.segments) == 1:
            _check_alone(disk, root, holding[-1])
        _check_boundary(holding[-1], offset)
        behind = [segment for segment in reader.segments if segment.offset > offset]
        records = _count(holding[-1], offset - holding[-1].offset) + sum(_count(segment, 0) for segment in behind)
        return LogCut(offset, records, len(behind))


def _file_size(segments: Sequence[Segment]) -> int:
    """What a segment should have: one may be too short, or too long, and others missing."""
    distances = [following.offset - segment.offset for segment, following in pairwise(segments)]
    return min([max(segment.size for segment in segments), *distances])


def _check_size(segment: Segment, file_size: int) -> None:
    if segment.size > file_size:
        raise StoreError(
            f"{segment.path} has {segment.size} bytes, but a segment here has {file_size}: what is behind them is none "
            f"of the log's. Take it away ('truncate -s {file_size} {segment.path}'); perhaps nothing is to be cut then"
        )


def _check_alone(disk: Disk, root: str, segment: Segment) -> None:
    """None behind it tells how long it was, but the blank that a full one ends with; what is not used yet is zero."""
    if _ends_with_its_blank(segment):
        return
    known = known_end(disk, root)
    if known.offset > segment.end_offset or _ends_within_a_record(segment):
        raise StoreError(
            f"{segment.path} ends at {segment.end_offset}, in the midst of what was written: the file was longer. Say "
            "how long each file is to be (mappedFileSizeCommitLog of the broker's file), by --file-size"
        )


def _last_end(segment: Segment) -> int:
    """Where the last good record ends."""
    end, at = 0, find_record(segment.view(), 0, segment.size, phy_offset_base=segment.offset)
    while at is not None:
        end = segment.scan(at, segment.size).end
        at = find_record(segment.view(), end, segment.size, phy_offset_base=segment.offset)
    return end


def _ends_within_a_record(segment: Segment) -> bool:
    """Whether the last good record is followed by one that leads beyond the file's end, or by a part of its head."""
    end = _last_end(segment)
    size = int.from_bytes(bytes(segment.view()[end : end + 4]).ljust(4, b"\0"), "big", signed=True)
    return end + size > segment.size or (end + _HEAD > segment.size and any(segment.view()[end:]))


def _ends_with_its_blank(segment: Segment) -> bool:
    end = _last_end(segment)
    left = segment.size - end
    return left <= _BLANK_MAX and bytes(segment.view()[end : end + _HEAD]) == encode_blank(left)


def _check_boundary(segment: Segment, offset: int) -> None:
    """Good records lead from some record before exactly to ``offset``, or nothing good lies across it."""
    at, position = 0, offset - segment.offset
    while at < position:
        scan = segment.scan(at, position)
        following = find_record(segment.view(), scan.end, segment.size, phy_offset_base=segment.offset)
        if scan.end == position or following is None or following >= position:
            return
        size = int.from_bytes(segment.view()[following : following + 4], "big")
        if following + size > position:
            raise StoreError(
                f"offset {offset} is inside the record of {segment.offset + following}: cut there or at its end, "
                f"{segment.offset + following + size}"
            )
        at = following


def _count(segment: Segment, at: int | None) -> int:
    records = 0
    while at is not None:
        at = find_record(segment.view(), at, segment.size, phy_offset_base=segment.offset)
        if at is not None:
            scan = scan_records(segment.view(), at, segment.size, phy_offset_base=segment.offset)
            records, at = records + scan.records, scan.end
    return records


def cut_log(disk: Disk, root: str, commit_log_directory: str, *, offset: int, file_size: int | None = None) -> LogCut:
    """Take away everything of the log from ``offset`` on, durably.

    Raises:
        StoreError: as :func:`plan_cut`; nothing was changed.
        StoreLockedError: a broker uses the store.
        StoreWriteError: the cut is not done; do it again.
    """
    lock = lock_store(disk, root, commit_log_directory)
    try:
        cut = plan_cut(disk, root, commit_log_directory, offset, file_size=file_size)
        if not disk.exists(f"{root}/abort"):
            disk.create(f"{root}/abort", 0, sparse=True)
        path = f"{root}/checkpoint"
        if disk.exists(path):
            known = decode_checkpoint(disk.read_bytes(path))
            durable_offset = min(known.master_flushed_offset, offset)
            disk.replace_bytes(path, encode_checkpoint(replace(known, master_flushed_offset=durable_offset)))
        segments = LogReader(disk, commit_log_directory).segments
        file_size = file_size or _file_size(segments)
        while segments[-1].offset > offset:
            disk.unlink(segments.pop().path)
        if offset < segments[-1].offset + file_size:
            _end_at(disk.open(segments[-1].path, writable=True), offset - segments[-1].offset, file_size=file_size)
        return cut
    finally:
        lock.close()


def _end_at(file: DataFile, position: int, *, file_size: int) -> None:
    """Make all behind ``position`` zero, and a file that is too short as long as the others. Raises StoreWriteError."""
    for at in range(file.size, file_size, len(_ZEROS)):
        file.pwrite([_ZEROS[: file_size - at]], at)
    file.zero_tail(position)
