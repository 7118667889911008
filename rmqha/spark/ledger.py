"""A DLedger member's store as readers see it: its data files, what they hold, and where what is committed ends.

No file says up to where a group agrees. The checkpoint says what this member knew to be committed, up to 3 s before:
that is read, and nothing behind it, which a new leader may still replace.

Source: spec: dledger §1.1, §1.12
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from pyarrow import fs

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE, decode_index, index_of
from rmqha.codec.dledger_properties import CHECK_POINT_FILE, LedgerCheckpoint, decode_check_point
from rmqha.codec.record.entry_scan import scan_entry
from rmqha.codec.record.formats import BARE_ENTRIES, MESSAGE_ENTRIES, RecordFormat
from rmqha.codec.record.layout import BARRIER_TOPIC
from rmqha.codec.record.scan import Stop
from rmqha.errors import StoreError
from rmqha.spark.log_end import LogEnd
from rmqha.spark.records import find_next, find_record, judge
from rmqha.spark.segments import Segment, SegmentReader, is_directory, joined, segments_in

_PREFIX: Final = "dledger-"
_CHECK_POINT_SIZE_MAX: Final = 64 * 1024
_LOOKED_AT: Final = 100
"""Entries, to see whether a log's are messages."""
_DAMAGE_MAX: Final = 16 << 20
"""Where more bytes than this hold no entry, the file is not searched further."""


def find_ledger(filesystem: fs.FileSystem, path: str) -> str | None:
    """The directory of the member whose store this is: ``path``, the one above its ``data``, or the one in it.

    Raises:
        StoreError: there are several.
    """
    parent, _, name = path.rpartition("/")
    if _is_member(filesystem, path):
        return path
    if name == "data" and _is_member(filesystem, parent):
        return parent
    if not is_directory(filesystem, path):
        return None
    found = filesystem.get_file_info(fs.FileSelector(path))
    members: list[str] = sorted(info.path for info in found if info.base_name.startswith(_PREFIX) and not info.is_file)
    if len(members) > 1:
        raise StoreError(f"{path} holds the stores of several members: name one of {', '.join(members)}")
    if members:
        return members[0]
    return path if name.startswith(_PREFIX) and not is_directory(filesystem, f"{path}/commitlog") else None


def ledger_beside(filesystem: fs.FileSystem, path: str) -> str | None:
    """The directory of the member in whose entries a store goes on whose old ``commitlog`` is ``path``; None: none.

    Only a look: what cannot be listed shows none.
    """
    parent, _, name = path.rpartition("/")
    if name != "commitlog":
        return None
    with suppress(OSError, StoreError):
        for found in filesystem.get_file_info(fs.FileSelector(parent or ".")):
            is_member = found.base_name.startswith(_PREFIX) and is_directory(filesystem, f"{found.path}/data")
            if is_member and segments_in(filesystem, f"{found.path}/data"):
                return str(found.path)
    return None


def _is_member(filesystem: fs.FileSystem, path: str) -> bool:
    checkpoint, data = filesystem.get_file_info([f"{path}/{CHECK_POINT_FILE}", f"{path}/data"])
    return bool(checkpoint.is_file and data.type == fs.FileType.Directory)


def open_ledger(filesystem: fs.FileSystem, member: str) -> tuple[tuple[Segment, ...], LogEnd]:
    """The data files of a member, and where what is committed ends in them.

    Raises:
        StoreError: there is no directory of them, or a file is missing.
    """
    index = _checkpoint(filesystem, member).kept_index  # first: what it names is in a file before it is named
    segments = _list_files(filesystem, member)
    return segments, _find_end(filesystem, segments, member, index) if segments else LogEnd(0, "")


def _list_files(filesystem: fs.FileSystem, member: str) -> tuple[Segment, ...]:
    if not is_directory(filesystem, f"{member}/data"):
        raise StoreError(
            f"no directory {member}/data: with dataStorePath the data files lie elsewhere; copy them there"
        )
    segments = segments_in(filesystem, f"{member}/data")
    if len(segments) > 1 and segments[-1].size < segments[0].size:
        segments = segments[:-1]  # its making was interrupted, or is not done yet
    kind = _format_of(filesystem, segments)
    return joined([replace(segment, record_format=kind) for segment in segments])


def _format_of(filesystem: fs.FileSystem, segments: tuple[Segment, ...]) -> RecordFormat:
    """Messages, if any of the first entries is one that no member made for itself."""
    for segment in segments:
        with SegmentReader(filesystem, replace(segment, record_format=BARE_ENTRIES)) as file:
            kinds = [_holds_message(file, *entry) for entry in islice(_entries(file), _LOOKED_AT)]
        if True in kinds:
            return MESSAGE_ENTRIES
        if False in kinds:
            return BARE_ENTRIES
    return MESSAGE_ENTRIES


def _entries(file: SegmentReader) -> Iterator[tuple[int, int]]:
    """Where the entries of a file begin and end; damage is passed over."""
    at: int | None = file.segment.base
    while at is not None and at < file.segment.end:
        verdict = judge(file, at, check_crc=False)
        if verdict.is_record:
            yield at, verdict.end
        end = min(file.segment.end, at + _DAMAGE_MAX)
        at = verdict.end if verdict.end > at else find_next(file, at, end=end)


def _holds_message(file: SegmentReader, at: int, end: int) -> bool | None:
    """None: one that says nothing about the others."""
    view = file.peek(at, end - at)
    scan = scan_entry(view, position=at, file_end=end - at, begins_file=False, holds_message=True, check_crc=False)
    if scan.stop is not Stop.END:
        return False
    return None if BARRIER_TOPIC.encode() in bytes(view) else True


def _find_end(filesystem: fs.FileSystem, segments: tuple[Segment, ...], member: str, index: int) -> LogEnd:
    """Behind the entry of that index, the last that is known to be committed.

    The index leads there; without it a walk through the file in which the entry has to be.
    """
    if index < 0:
        return LogEnd(segments[0].base, f"{member}/{CHECK_POINT_FILE} names no committed entry")
    said = _end_by_unit(filesystem, segments, index, f"{member}/index")
    if said is not None and said.is_entry:
        return said.end
    last = -1
    for segment in reversed(segments):
        with SegmentReader(filesystem, segment) as file:
            first = find_record(file, segment.base, end=segment.end)
            if first is None or _index_at(file, first) > index:
                continue
            last, behind = _last_within(file, index)
            if last == index:
                return LogEnd(behind, _behind(file, behind, index))
            break
    if said is not None:
        return said.end  # what is wrong with that entry is told by who reads it
    raise StoreError(
        f"{member} lacks entries: its checkpoint says that index {index} was committed, the last one here up to it is "
        f"{last}. The data files are damaged, or were copied before the checkpoint was: copy them again, or take "
        "another member's"
    )


def _checkpoint(filesystem: fs.FileSystem, member: str) -> LedgerCheckpoint:
    """DLedger removes it, each 3 s, before it gives its name to the new one, which lies beside it, whole, by then.

    Source: spec: dledger §1.7; dledger-all-0.3.1.2 IOUtils.java string2File.
    """
    path = f"{member}/{CHECK_POINT_FILE}"
    for name in (path, f"{path}.tmp", path, f"{path}.bak"):
        with suppress(FileNotFoundError), filesystem.open_input_file(name) as file:
            return decode_check_point(file.read(_CHECK_POINT_SIZE_MAX))
    return LedgerCheckpoint()


class _Said(NamedTuple):
    """What a unit of the index says: where its entry ends, and whether that is an entry."""

    end: LogEnd
    is_entry: bool


def _end_by_unit(filesystem: fs.FileSystem, segments: tuple[Segment, ...], index: int, directory: str) -> _Said | None:
    """None: there is no unit of that entry, or it leads out of the data files."""
    pos, size = _unit(filesystem, directory, index)
    for segment in segments:
        if segment.base <= pos < pos + size <= segment.end:
            with SegmentReader(filesystem, segment) as file:
                verdict = judge(file, pos, check_crc=False)
                is_entry = verdict.end == pos + size and _index_at(file, pos) == index
                return _Said(LogEnd(pos + size, _behind(file, pos + size, index)), is_entry)
    return None


def _unit(filesystem: fs.FileSystem, directory: str, index: int) -> tuple[int, int]:
    """Position and size of an entry, as the index has them; zeros if it has not."""
    at = index * INDEX_UNIT_SIZE
    for units in segments_in(filesystem, directory) if is_directory(filesystem, directory) else ():
        if units.base <= at <= units.end - INDEX_UNIT_SIZE:
            with SegmentReader(filesystem, units) as file:
                return decode_index(file.peek(at, INDEX_UNIT_SIZE))
    return 0, 0


def _last_within(file: SegmentReader, index: int) -> tuple[int, int]:
    """The last entry of the file up to ``index``, and where it ends."""
    last, end = -1, file.segment.base
    for at, behind in _entries(file):
        found = _index_at(file, at)
        if found > index:
            break
        last, end = found, behind
        if found == index:
            break
    return last, end


def _behind(file: SegmentReader, end: int, index: int) -> str:
    is_more = end < file.segment.end and judge(file, end, check_crc=False).is_record
    return f"entries behind index {index}, which are not known to be committed" if is_more else ""


def _index_at(file: SegmentReader, at: int) -> int:
    return index_of(file.peek(at, file.segment.record_format.fixed_size))
