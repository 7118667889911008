"""Check every byte of a DLedger store's data files that has a meaning, and name the bad ones.

As :mod:`rmqha.store.log_verify` does of a classic log: it only reads, takes no lock, goes on behind a bad place, and
reads that once more when good entries follow, as a running server may have written it meanwhile. No checksum covers an
entry; the message that is the body of a broker's has the CRC of its own body.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from rmqha.codec.dledger_entry import BODY_OFFSET, MAGIC_1, Blank, End, EntryHeader, read_record, start_position
from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.layout import BARRIER_TOPIC
from rmqha.codec.record.resync import claims_its_place
from rmqha.codec.record.scan import scan_records
from rmqha.dledger.ledger_reader import LedgerFile
from rmqha.store.log_verify import PROBLEMS_MAX, LogVerification, Problem
from rmqha.store.mapped_file import file_name

_MAGIC: Final = MAGIC_1.to_bytes(4, "big")
_CHUNK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_BYTES + len(_MAGIC) - 1)
_LOOKED_AT: Final = 100
"""Entries, to see whether a log's are messages."""
_BARRIER: Final = BARRIER_TOPIC.encode()


@dataclass(slots=True)
class LedgerVerification(LogVerification):
    """What :func:`verify_ledger` found; an entry is a record."""

    begin_index: int = -1
    end_index: int = -1
    """Of the first entry, and of the last; -1: there is none."""


class _Point(NamedTuple):
    """Where a walk is."""

    number: int
    """Of the file."""
    at: int
    last: EntryHeader | None
    """The last entry before it."""
    before: EntryHeader | None
    """The entry which one that lies here must continue, if any."""


class _Place(NamedTuple):
    """What lies at one position of a data file."""

    file: LedgerFile
    at: int
    what: EntryHeader | Blank | End
    problem: str
    """Why it is not good; empty if it is."""

    @property
    def offset(self) -> int:
        return self.file.offset + self.at


def verify_ledger(
    files: Sequence[LedgerFile], checkpoint: LedgerCheckpoint, *, on_file: Callable[[], None] = lambda: None
) -> LedgerVerification:
    """Verify that no file is missing, and every entry and blank: its place, sizes and magic, and that it goes on.

    Index and term go on from those of the entry before. Of a broker's log the message in each entry is verified, too.

    Args:
        files: of the store, oldest first.
        checkpoint: the store's, read before the files were listed; the last entry that it vouches for must be there.
        on_file: is told of each file before it is read.

    Raises:
        StoreReadError: a file cannot be read.
    """
    found = LedgerVerification(segments=len(files))
    found.min_offset = found.end_offset = files[0].offset if files else 0
    found.problems += _missing_files(files)
    holds_messages = _holds_messages(files)
    file: LedgerFile | None = None
    has_kept = checkpoint.kept_index < 0
    for place in _walk(files, holds_messages=holds_messages):
        if file is None or place.file.offset > file.offset:
            file = place.file
            on_file()
        _judge(place, found)
        has_kept = has_kept or found.end_index == checkpoint.kept_index
        if len(found.problems) >= PROBLEMS_MAX:
            return found
    is_expired = bool(files) and files[0].offset > 0 and found.begin_index > checkpoint.kept_index
    if not (has_kept or is_expired):
        _note_lacking(files, found, checkpoint.kept_index)
    return found


def dispatch_requests(files: Sequence[LedgerFile]) -> Iterator[DispatchRequest]:
    """Every readable message of a broker's entries; what is bad is :func:`verify_ledger`'s to tell.

    Raises:
        StoreReadError: a file cannot be read.
    """
    for file, at, entry, _ in _walk(files):
        if isinstance(entry, EntryHeader):
            end = at + entry.size
            yield from read_dispatch(file.view(), at + BODY_OFFSET, end, phy_offset_base=file.offset)[0]


def _walk(files: Sequence[LedgerFile], *, holds_messages: bool = False) -> Iterator[_Place]:
    """All entries, blanks, and places where neither lies; behind one of those it goes on with the next good entry.

    A place that is not good is read once more when something follows it: if it is good by then, the walk goes on from
    there. An entry's message is looked at with ``holds_messages``.
    """
    point = _file_begin(files, 0, None, None)
    bad: _Point | None = None
    while point.number < len(files):
        if point.at >= files[point.number].size:
            point = _file_begin(files, point.number + 1, point.last, point.before)
            continue
        place = _look(files, point, holds_messages=holds_messages)
        if bad is not None and not isinstance(place.what, End):
            seen, bad = bad, None
            if not _look(files, seen, holds_messages=holds_messages).problem:
                point = seen
                continue
        yield place
        if place.problem:
            bad = bad or point
        point = _next_point(files, point, place)


def _file_begin(
    files: Sequence[LedgerFile], number: int, last: EntryHeader | None, before: EntryHeader | None
) -> _Point:
    if not number:
        return _Point(0, start_position(files[0].view()) if files else 0, last, before)
    goes_on = number < len(files) and files[number].offset == files[number - 1].end_offset
    return _Point(number, 0, last, before if goes_on else None)


def _look(files: Sequence[LedgerFile], point: _Point, *, holds_messages: bool) -> _Place:
    file, at = files[point.number], point.at
    what = read_record(file.view(), at, base=file.offset, previous=point.before)
    problem = ""
    if isinstance(what, End):
        problem = what.reason or "zeros, no entry"
    elif isinstance(what, Blank) and at + what.size != file.size:
        problem = f"a blank of {what.size} bytes does not reach exactly to the end of its file"
    elif isinstance(what, EntryHeader) and holds_messages:
        problem = _bad_message(file, at, what)
    return _Place(file, at, what, problem)


def _next_point(files: Sequence[LedgerFile], point: _Point, place: _Place) -> _Point:
    found = place.what
    if isinstance(found, EntryHeader):
        return _Point(point.number, point.at + found.size, found, found)
    if isinstance(found, Blank):
        return _file_begin(files, point.number + 1, point.last, point.before)
    following = _find_entry(place.file, point.at + 1, point.last)
    if following is None:
        return _file_begin(files, point.number + 1, point.last, None)
    return _Point(point.number, following, point.last, None)


def _find_entry(file: LedgerFile, start: int, last: EntryHeader | None) -> int | None:
    """Position of the next entry that may come behind ``last``, which ended before ``start``."""
    view = file.view()
    for chunk_at in range(start, file.size, _CHUNK_BYTES):
        chunk = bytes(view[chunk_at : chunk_at + _CHUNK_BYTES + len(_MAGIC) - 1])
        at = -1 if chunk == _ZEROS[: len(chunk)] else chunk.find(_MAGIC)
        while at >= 0:
            found = read_record(view, chunk_at + at, base=file.offset, previous=None)
            if isinstance(found, EntryHeader) and (last is None or _may_follow(found, last)):
                return chunk_at + at
            at = chunk.find(_MAGIC, at + 1)
    return None


def _may_follow(entry: EntryHeader, last: EntryHeader) -> bool:
    """One that may not is what a TRUNCATE left: what was written over it does not reach so far."""
    between_max = (entry.pos - last.pos - last.size) // BODY_OFFSET
    return last.index < entry.index <= last.index + 1 + between_max and entry.term >= last.term


def _judge(place: _Place, found: LedgerVerification) -> None:
    """Take one place into account; whether a bad one is damage or only the log's end shows if good ones follow."""
    file, at, what, problem = place
    if not isinstance(what, End) and found.tail is not None:
        if found.tail.offset != place.offset:  # else it was written since
            found.problems.append(found.tail)
        found.tail = None
    if problem:
        found.tail = found.tail or Problem(file.path, at, place.offset, problem)
    if isinstance(what, EntryHeader):
        found.begin_index = what.index if found.begin_index < 0 else found.begin_index
        found.end_index = what.index
        found.end_offset = what.pos + what.size
        found.records += not problem
    elif isinstance(what, Blank):
        found.end_offset = file.end_offset
        found.blanks += not problem


def _bad_message(file: LedgerFile, at: int, entry: EntryHeader) -> str:
    """Why the body of an entry is no good message; empty if it is one."""
    end = at + entry.size
    scan = scan_records(file.view(), at + BODY_OFFSET, end, phy_offset_base=file.offset)
    if scan.records == 1 and scan.end == end:
        return ""
    return f"entry {entry.index}: {scan.reason or 'its body is not one message'}"


def _missing_files(files: Sequence[LedgerFile]) -> Iterator[Problem]:
    for number, file in enumerate(files):
        if number and file.offset != (missing := files[number - 1].end_offset):
            reason = f"data file {file_name(missing)} is missing, or of a wrong length"
            yield Problem(file.path, 0, missing, reason)
        if file.size != files[0].size:
            yield Problem(file.path, 0, file.offset, f"{file.size} bytes, but the first file has {files[0].size}")


def _note_lacking(files: Sequence[LedgerFile], found: LedgerVerification, kept_index: int) -> None:
    end = found.tail or Problem(files[-1].path if files else "", 0, found.end_offset, "the log ends here")
    promise = f"the checkpoint says that index {kept_index} was committed, the last one here is {found.end_index}"
    found.problems.append(Problem(end.path, end.position, end.offset, f"{end.reason}, but {promise}"))
    found.tail = None


def _holds_messages(files: Sequence[LedgerFile]) -> bool:
    """Whether these are a broker's: the body of a group's without brokers is anything, but for its barriers."""
    entries = ((file, at, what) for file, at, what, _ in _walk(files) if isinstance(what, EntryHeader))
    return any(_holds_message(file, at, entry) for file, at, entry in islice(entries, _LOOKED_AT))


def _holds_message(file: LedgerFile, at: int, entry: EntryHeader) -> bool:
    view, body_at = file.view(), at + BODY_OFFSET
    is_message = claims_its_place(view, body_at, phy_offset=file.offset + body_at)
    return is_message and _BARRIER not in bytes(view[body_at : at + entry.size])
