"""Check every byte of a commitlog that has a meaning, and name the bad ones.

Reads only, takes no lock: for any RocketMQ 4.x store, with or without its broker running. A running broker may be in
the middle of a write at the end; that shows as :attr:`LogVerification.tail`, not as a problem. What is found behind
such a place may have been written since: only what is no record when it is read once more is damage.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqha.codec.checkpoint import decode_checkpoint
from rmqha.codec.record.resync import find_record
from rmqha.codec.record.scan import Scan, Stop
from rmqha.store.disk import Disk
from rmqha.store.log_reader import LogReader, Segment
from rmqha.store.mapped_file import LOST_AND_FOUND, file_name, parse_file_name

PROBLEMS_MAX: Final = 100
"""More are not looked for."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One place that is not as it must be."""

    path: str
    position: int
    """In the file, in bytes: where the record, blank or unit begins that is bad."""
    offset: int
    """The same place as an offset in the log, or in the queue's messages."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, position {self.position} (offset {self.offset}): {self.reason}"


@dataclass(slots=True)
class LogVerification:
    """What :func:`verify_log` found."""

    min_offset: int = 0
    end_offset: int = 0
    """Behind the last good record or blank."""
    segments: int = 0
    records: int = 0
    blanks: int = 0
    last_store_timestamp_ms: int = 0
    problems: list[Problem] = field(default_factory=list)
    """In the order of the log: the first is the first bad byte."""
    tail: Problem | None = None
    """Bytes behind the end that are no record: left by a crash, or being written."""


def left_by_crash_from(disk: Disk, root: str) -> int | None:
    """From which offset on the log of the store ``root`` is what a crash left; None if the last stop was a clean one.

    Raises:
        StoreReadError: its checkpoint cannot be read.
    """
    path = f"{root}/checkpoint"
    if not disk.exists(f"{root}/abort"):
        return None
    return decode_checkpoint(disk.read_bytes(path)).master_flushed_offset if disk.exists(path) else 0


def verify_log(
    disk: Disk,
    directory: str,
    *,
    torn_from: int | None = None,
    on_segment: Callable[[LogVerification], None] = lambda _: None,
) -> LogVerification:
    """Verify names, sizes and contiguity of the segments, and every record and blank in them.

    After a bad record verification goes on with the next good one. What ends behind ``torn_from`` was left by a crash:
    a record that looks torn is bad there, as it is to a start. ``on_segment`` is told after each segment.

    Raises:
        StoreReadError: the directory or a file cannot be read.
    """
    found = LogVerification()
    empty = _check_names(disk, directory, found)
    with LogReader(disk, directory) as reader:
        found.min_offset = found.end_offset = reader.min_offset
        for number, at, scan in _runs(reader.segments, torn_from):
            segment = reader.segments[number]
            if number == found.segments:
                if number:
                    on_segment(found)
                _check_segment(reader.segments, number, found)
            _judge(scan, segment, at, found)
            if len(found.problems) >= PROBLEMS_MAX or scan.stop is Stop.FOREIGN:
                break
        else:
            if reader.segments:
                on_segment(found)
    found.problems[:0] = _still_empty(disk, empty)
    return found


def _check_names(disk: Disk, directory: str, found: LogVerification) -> list[str]:
    """A file that is no segment makes RocketMQ refuse to start; what is the file system's own only that one.

    Returns the paths of segments that are empty.
    """
    empty = []
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if name == LOST_AND_FOUND:
            continue
        if parse_file_name(name) is None:
            found.problems.append(Problem(path, 0, 0, "no segment's name: RocketMQ does not start with it here"))
        elif disk.file_size(path) == 0:
            empty.append(path)
    return empty


def _still_empty(disk: Disk, paths: Sequence[str]) -> Iterator[Problem]:
    """One that a broker makes is so for a moment only."""
    for path in paths:
        if disk.exists(path) and disk.file_size(path) == 0:
            offset = int(path.rpartition("/")[2])
            yield Problem(path, 0, offset, "an empty file: RocketMQ does not start with it here")


def _check_segment(segments: Sequence[Segment], number: int, found: LogVerification) -> None:
    """Whether it goes on from the one before, and is of the same size."""
    segment = segments[number]
    found.segments += 1
    if number and segment.offset != (missing := segments[number - 1].end_offset):
        reason = f"segment {file_name(missing)} is missing, or of a wrong length"
        found.problems.append(Problem(segment.path, 0, missing, reason))
    if segment.size != segments[0].size:
        reason = f"{segment.size} bytes, but the first segment has {segments[0].size}"
        found.problems.append(Problem(segment.path, 0, segment.offset, reason))


def _runs(segments: Sequence[Segment], torn_from: int | None) -> Iterator[tuple[int, int, Scan]]:
    """All runs of good records: the number of the segment, the position in it, and what a walk from there on found.

    Behind a bad place it goes on with the next good record, here or later. Once there is one, the bad place is read
    once more, as a writer writes in the order of the log: if it is good by then, the runs go on from there.
    """
    number = at = 0
    bad: tuple[int, int] | None = None
    while number < len(segments):
        segment = segments[number]
        scan = segment.scan(at, torn_from=torn_from)
        if bad is not None and _is_good(scan):
            (seen_number, seen_at), bad = bad, None
            if _is_good(segments[seen_number].scan(seen_at, torn_from=torn_from)):
                number, at = seen_number, seen_at
                continue
        yield number, at, scan
        following = None
        if scan.stop not in {Stop.BLANK, Stop.END}:
            bad = bad or (number, scan.end)
            following = find_record(segment.view(), scan.end + 1, segment.size, phy_offset_base=segment.offset)
        number, at = (number + 1, 0) if following is None else (number, following)


def _is_good(scan: Scan) -> bool:
    return scan.records > 0 or scan.stop is Stop.BLANK


def _judge(scan: Scan, segment: Segment, at: int, found: LogVerification) -> None:
    """Take one run into account; whether a bad place is damage or only the log's end shows if good ones follow."""
    if _is_good(scan):
        if found.tail is not None and found.tail.offset != segment.offset + at:  # else it was written since
            found.problems.append(found.tail)
        found.tail = None
        found.records += scan.records
        found.end_offset = segment.offset + scan.end if scan.end > at else found.end_offset
        found.last_store_timestamp_ms = scan.last_store_timestamp_ms or found.last_store_timestamp_ms
    if scan.stop in {Stop.BLANK, Stop.END}:
        found.blanks += scan.stop is Stop.BLANK
        found.end_offset = segment.end_offset
        return
    place = Problem(segment.path, scan.end, segment.offset + scan.end, scan.reason or "zeros, no record")
    if scan.stop is Stop.FOREIGN:
        found.problems.append(place)
    else:
        found.tail = found.tail or place
