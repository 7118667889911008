"""Check every byte of a DLedger store's data files that has a meaning, and name the bad ones.

As :mod:`rmqha.store.log_verify` does of a classic log: it only reads, takes no lock, and goes on behind a bad place. No
checksum covers an entry; the message that is the body of a broker's has the CRC of its own body.
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


class _Place(NamedTuple):
    """What lies at one position of a data file."""

    file: LedgerFile
    at: int
    what: EntryHeader | Blank | End

    def problem(self, reason: str) -> Problem:
        return Problem(self.file.path, self.at, self.file.offset + self.at, reason)


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
    for place in _walk(files):
        if place.file is not file:
            file = place.file
            on_file()
        _judge(place, found, holds_messages=holds_messages)
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
    for file, at, entry in _walk(files):
        if isinstance(entry, EntryHeader):
            end = at + entry.size
            yield from read_dispatch(file.view(), at + BODY_OFFSET, end, phy_offset_base=file.offset)[0]


def _walk(files: Sequence[LedgerFile]) -> Iterator[_Place]:
    """All entries, blanks, and places where neither lies; behind one of those it goes on with the next good entry."""
    last: EntryHeader | None = None
    before: EntryHeader | None = None
    for number, file in enumerate(files):
        at = 0 if number else start_position(file.view())
        if number and file.offset != files[number - 1].end_offset:
            before = None
        while at < file.size:
            found = read_record(file.view(), at, base=file.offset, previous=before)
            yield _Place(file, at, found)
            if isinstance(found, EntryHeader):
                last = before = found
                at += found.size
                continue
            if isinstance(found, Blank):
                break
            before = None
            following = _find_entry(file, at + 1, last)
            if following is None:
                break
            at = following


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


def _judge(place: _Place, found: LedgerVerification, *, holds_messages: bool) -> None:
    """Take one place into account; whether a bad one is damage or only the log's end shows if good ones follow."""
    file, at, what = place
    problem = ""
    if isinstance(what, End):
        problem = what.reason or "zeros, no entry"
    elif isinstance(what, Blank) and at + what.size != file.size:
        problem = f"a blank of {what.size} bytes does not reach exactly to the end of its file"
    elif isinstance(what, EntryHeader) and holds_messages:
        problem = _bad_message(file, at, what)
    if not isinstance(what, End) and found.tail is not None:
        found.problems.append(found.tail)
        found.tail = None
    if problem:
        found.tail = found.tail or place.problem(problem)
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
    entries = ((file, at, what) for file, at, what in _walk(files) if isinstance(what, EntryHeader))
    return any(_holds_message(file, at, entry) for file, at, entry in islice(entries, _LOOKED_AT))


def _holds_message(file: LedgerFile, at: int, entry: EntryHeader) -> bool:
    view, body_at = file.view(), at + BODY_OFFSET
    is_message = claims_its_place(view, body_at, phy_offset=file.offset + body_at)
    return is_message and _BARRIER not in bytes(view[body_at : at + entry.size])
