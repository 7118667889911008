"""Where reading ended, with what tells whether the log still goes on from there.

An offset alone does not: a log that was cut and grew again may have other records at the same places.
"""

import reprlib
from dataclasses import dataclass, replace
from socket import gethostname
from typing import Any, Final

from rmqha.codec.record.scan import Stop
from rmqha.errors import ConfigError, StoreError
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.records import crc32, find_next, judge, start_at
from rmqha.spark.segments import Segment, SegmentReader

_NEAR_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class Anchor:
    """The last record before an offset. If the log still holds it, reading can go on there."""

    offset: int
    size: int
    crc32: int

    def is_in(self, log: CommitLog) -> bool:
        """Whether the log has that record, or has deleted the file that it was in."""
        if self.offset < log.min_offset:
            return True
        return crc32(_read(log, self.offset, self.size)) == self.crc32


@dataclass(frozen=True)
class PlannedEnd:
    """The last record that is to be read, and its file. Travels to the worker.

    Tasks that read before and after a cut would together have records of two logs.
    """

    anchor: Anchor
    file: CommitLog

    @classmethod
    def of(cls, log: CommitLog, anchor: Anchor | None) -> "PlannedEnd | None":
        """None if nothing is to be read."""
        held = [each for each in log.segments if anchor and each.base <= anchor.offset < each.end]
        return cls(anchor, replace(log, segments=tuple(held))) if anchor and held else None

    def check(self) -> None:
        """To be called once all is read.

        Raises:
            StoreError: the log was cut meanwhile.
        """
        try:
            is_there = self.anchor.is_in(self.file)
        except FileNotFoundError:
            is_there = self.anchor.offset < open_log(self.file.uri).min_offset  # deleted, as old files are
        if not is_there:
            raise StoreError(
                f"{self.file.uri} was cut while it was read, as by a failover, or {gethostname()} sees an older copy "
                f"of it: the record at {self.anchor.offset} is another there, or gone; run the same again, or let "
                "every host see the same log"
            )


@dataclass(frozen=True)
class Position:
    """A physical offset at which a record begins, or will.

    Attributes:
        anchor: None where no record lay before it, or nobody noted which.
        blank_to: the end of the blank that lay there, with which a closed file ends; None if something else did, or
            nothing yet.
        was_empty: the log had no file yet. A slave's begins where the oldest file of its master does.
    """

    offset: int
    anchor: Anchor | None = None
    blank_to: int | None = None
    was_empty: bool = False

    def problem(self, log: CommitLog) -> str:
        """Why reading cannot go on here; empty if it can."""
        if log.end < self.offset and not self.is_ahead_of(log):
            return f"it ends at {log.end}: the log has been cut or replaced"
        if self.anchor is not None and not self.anchor.is_in(log):
            return f"another record is at {self.anchor.offset}: the log has been cut or replaced"
        if self.lacks_files(log):
            return f"it begins at {log.min_offset}: the files between were deleted"
        return ""

    def is_ahead_of(self, log: CommitLog) -> bool:
        """Whether it lies in what a DLedger member holds, and does not know yet to be committed: nothing was cut.

        So it is with what another member's store was read up to, which knew more.
        """
        if not log.is_committed or self.offset <= log.end:
            return False
        if self.anchor is not None:
            return log.min_offset <= self.anchor.offset and self.anchor.is_in(log)
        return _goes_on_to(log, self.offset)

    def lacks_files(self, log: CommitLog) -> bool:
        """Whether the log begins behind it, and more than a blank is missing."""
        return self.offset < log.min_offset != self.blank_to and not self.was_empty

    def as_json(self) -> Any:
        """For a checkpoint."""
        anchor = self.anchor and [self.anchor.offset, self.anchor.size, self.anchor.crc32]
        position = {"offset": self.offset, "record": anchor, "blankTo": self.blank_to}
        return position | {"wasEmpty": True} if self.was_empty else position


def from_json(value: Any) -> Position:
    """What :meth:`Position.as_json` gave; checkpoints of rmqha 0.1 have the offset alone.

    Raises:
        ConfigError: it is something else, as a checkpoint that was written by hand has it.
    """
    match value:
        case int() if _is_offset(value):
            return Position(value)
        case {"offset": offset, "record": record, "blankTo": blank_to} if _is_offset(offset):
            was_empty = value.get("wasEmpty", False) is True
            if (record is None or _is_record(record)) and (blank_to is None or _is_offset(blank_to)):
                return Position(offset, record and Anchor(*record), blank_to, was_empty)
    raise ConfigError(
        f"the checkpoint has {reprlib.repr(value)} where a position in a log is to be, as a number or as this wrote it "
        "(offset, record, blankTo): take the checkpoint's file from a copy, or begin anew with another "
        "checkpointLocation and startingOffsets"
    )


def first_as_json(begin: Position) -> Any:
    """Where a new query starts: no batch has ended there."""
    return begin.as_json() | {"first": True}


def range_as_json(log: CommitLog, begin: Position, end: Position) -> Any:
    """For a checkpoint: where a batch ends, and where it began. Spark keeps the end alone."""
    if not log.segments:
        begin = end
    elif begin.was_empty:
        begin = Position(log.min_offset)
    return end.as_json() | {"from": begin.as_json()}


def begin_of_first(start: Any, end: Any) -> Position | None:
    """Where the first batch of a broker began that ends there, whatever start is said now; None: it is no first one.

    Args:
        start: that of the batch in Spark's words; None: the checkpoint does not know the broker.
        end: likewise.

    Raises:
        ConfigError: as :func:`from_json`.
    """
    if not (start is None or _is_start(start)) or not isinstance(end, dict):
        return None
    if _is_start(end):  # nothing was new: what is said to be the start now may lie behind
        return from_json(end)
    return from_json(end["from"]) if "from" in end else None


def _is_start(value: Any) -> bool:
    return isinstance(value, dict) and value.get("first") is True


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_record(value: object) -> bool:
    """An offset, a size and a CRC."""
    return isinstance(value, list) and len(value) == 3 and all(map(_is_offset, value)) and value[1] < 1 << 31


def _goes_on_to(log: CommitLog, offset: int) -> bool:
    """Whether the records and blanks behind the log's end, which are not known to be committed, lead there."""
    at = log.end
    for segment in log.segments:
        if not segment.base <= at < min(offset, segment.end):
            continue
        with SegmentReader(log.filesystem, segment) as file:
            while at < min(offset, segment.end):
                verdict = judge(file, at, check_crc=False)
                if verdict.end <= at:
                    return False
                at = verdict.end
    return at == offset


def position_at(log: CommitLog, offset: int) -> Position:
    """An offset at which a record begins, with what is around it."""
    return Position(
        offset, last_record_before(log, offset), blank_behind(log, offset), was_empty=offset == 0 and not log.segments
    )


def blank_behind(log: CommitLog, offset: int) -> int | None:
    """The end of the blank at this offset; None if there is none."""
    for segment in log.segments:
        if segment.base <= offset < segment.end:
            with SegmentReader(log.filesystem, segment) as file:
                verdict = judge(file, offset)
            return verdict.end if verdict.stop is Stop.BLANK else None
    return None


def anchor_of(log: CommitLog, offset: int, size: int) -> Anchor:
    """Of a record of the log."""
    return Anchor(offset, size, crc32(_read(log, offset, size)))


def last_record_before(log: CommitLog, offset: int, *, is_sound: bool = False) -> Anchor | None:
    """What ends there, or nearest before; None if nothing does. Its body may be damaged, unless it ``is_sound``.

    What is damaged before that is passed over: a record in front of it would not tell that what is behind was cut.
    """
    for segment in reversed(log.segments):
        end = min(offset, segment.end)
        if segment.base < offset and (found := _last_record_in(log, segment, end, is_sound=is_sound)):
            return anchor_of(log, *found)
    return None


def _last_record_in(log: CommitLog, segment: Segment, end: int, *, is_sound: bool) -> tuple[int, int] | None:
    """Offset and size of the last whole record that ends at ``end`` or before it."""
    with SegmentReader(log.filesystem, segment) as file:
        back = _NEAR_BYTES
        while True:
            at, last = start_at(file, max(segment.base, end - back), end=end), None
            while at < end and (verdict := judge(file, at, check_crc=is_sound)).stop is not Stop.BLANK:
                if verdict.is_record and verdict.end <= end:
                    last = at, verdict.end - at
                at = verdict.end if verdict.is_record else find_next(file, at, end=end) or end
            if last is not None or end - back <= segment.base:
                return last
            back *= 8


def _read(log: CommitLog, offset: int, size: int) -> bytes:
    for segment in log.segments:
        if segment.base <= offset < segment.end:
            with SegmentReader(log.filesystem, segment) as file:
                return bytes(file.read(offset, size))
    return b""
