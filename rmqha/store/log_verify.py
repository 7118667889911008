"""Check every byte of a commitlog that has a meaning, and name the bad ones.

Reads only, takes no lock: for any RocketMQ 4.x store, with or without its broker running. A running broker may be in
the middle of a write at the end; that shows as :attr:`LogVerification.tail`, not as a problem.
"""

from collections.abc import Callable
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
    _check_names(disk, directory, found)
    with LogReader(disk, directory) as reader:
        found.min_offset = found.end_offset = reader.min_offset
        expected_size = reader.segments[0].size if reader.segments else 0
        for number, segment in enumerate(reader.segments):
            if number and segment.offset != reader.segments[number - 1].end_offset:
                missing = reader.segments[number - 1].end_offset
                reason = f"segment {file_name(missing)} is missing, or of a wrong length"
                found.problems.append(Problem(segment.path, 0, missing, reason))
            if segment.size != expected_size:
                reason = f"{segment.size} bytes, but the first segment has {expected_size}"
                found.problems.append(Problem(segment.path, 0, segment.offset, reason))
            found.segments += 1
            if not _verify_segment(segment, found, torn_from):
                break
            on_segment(found)
    return found


def _check_names(disk: Disk, directory: str, found: LogVerification) -> None:
    """A file that is no segment makes RocketMQ refuse to start; what is the file system's own only that one."""
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if name == LOST_AND_FOUND:
            continue
        if parse_file_name(name) is None:
            found.problems.append(Problem(path, 0, 0, "no segment's name: RocketMQ does not start with it here"))
        elif disk.file_size(path) == 0:
            found.problems.append(Problem(path, 0, int(name), "an empty file: RocketMQ does not start with it here"))


def _verify_segment(segment: Segment, found: LogVerification, torn_from: int | None) -> bool:
    """Walk one segment; False if going on makes no sense."""
    at = 0
    while True:
        scan = segment.scan(at, torn_from=torn_from)
        _count(scan, segment, at, found)
        if scan.stop in {Stop.BLANK, Stop.END}:
            found.blanks += scan.stop is Stop.BLANK
            found.end_offset = segment.end_offset
            return True
        place = Problem(segment.path, scan.end, segment.offset + scan.end, scan.reason or "zeros, no record")
        if scan.stop is Stop.FOREIGN:
            found.problems.append(place)
            return False
        # Whether it is damage or only the end of the log shows if good records follow, here or later.
        found.tail = found.tail or place
        following = find_record(segment.view(), scan.end + 1, segment.size, phy_offset_base=segment.offset)
        if following is None or len(found.problems) >= PROBLEMS_MAX:
            return len(found.problems) < PROBLEMS_MAX
        at = following


def _count(scan: Scan, segment: Segment, at: int, found: LogVerification) -> None:
    """Add what one walk found; something good behind a bad place makes that place a problem."""
    if not scan.records and scan.stop is not Stop.BLANK:
        return
    if found.tail is not None:
        found.problems.append(found.tail)
        found.tail = None
    found.records += scan.records
    found.end_offset = segment.offset + scan.end if scan.end > at else found.end_offset
    found.last_store_timestamp_ms = scan.last_store_timestamp_ms or found.last_store_timestamp_ms
