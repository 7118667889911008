"""Find the end of a DLedger store at a start, by DLedger's rules; cut away only what nobody was told is stored.

Where this differs from DLedger 0.3.1.2 (spec: dledger §1.8, §7.3):

* What lies behind the end is erased, on the device, before anything is written: DLedger lets it come back to life.
* A log that lacks what its checkpoint says was committed, or what its index has, or its first entry, is damaged:
  nothing is changed, DLedger cuts it.
* No checksum covers a body, so that the bytes of one that a power cut tore cannot be told. A member that counts as
  stored only what is durable writes an entry's unit of the index after its data is; where no later entry has one
  either, an entry without was never acknowledged, and its body is anybody's guess. It is cut, if the checkpoint says
  that such a member was here last. Before an entry that has its unit all data was durable: a unit that is missing or
  damaged there is made again.
* What was read may be in the kernel's memory alone: behind the committed index it is written once more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rmqha.codec.dledger_entry import (
    BODY_OFFSET,
    CURRENT_MAGIC,
    INDEX_UNIT_SIZE,
    Blank,
    End,
    EntryHeader,
    decode_index,
    encode_index,
    read_record,
    start_position,
    term_of_unit,
)
from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.dledger.check_point_file import CheckPointFile
from rmqha.dledger.mmap_file import MmapFile
from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.errors import CorruptLogError
from rmqha.memory import BytesLike
from rmqha.store.mapped_file import file_name

_FILES_SCANNED_MIN: Final = 3
_WRITE_BYTES: Final = 1 << 20
_UNITS_AT_ONCE: Final = 8192


@dataclass(frozen=True, slots=True)
class LedgerRecovery:
    """What recovery found: -1 and 0 for an empty log."""

    ledger_end_index: int = -1
    ledger_end_term: int = -1
    process_offset: int = 0
    """Behind the last entry. A blank there is taken back: the file was ended for an entry that never came."""
    reason: str = ""
    """Why what lies there is no entry; empty if nothing does."""
    rewritten_from: int = -1
    """First index whose unit was not what the data says; -1: none."""


def recover_ledger(data: MmapFileList, index: MmapFileList, *, check_point_file: CheckPointFile) -> LedgerRecovery:
    """Set the ends of both loaded lists; all that is left is durable.

    Args:
        data: the entries.
        index: their units.
        check_point_file: the store's, loaded; if it says so, what is behind its committed index and has no unit is
            cut. It says so no more before an index that was missing, or damaged, is made again, but only once what is
            cut is gone.

    Raises:
        CorruptLogError: the log is damaged; nothing was changed.
        StoreWriteError, StoreReadError: not done; the next start may do it.
    """
    checkpoint = check_point_file.durable
    data.check_self()
    index.check_self()
    if not data.mapped_files:
        if checkpoint.kept_index >= 0:
            raise CorruptLogError(0, f"there is no data file in {', '.join(data.directories)}, {_but(checkpoint, -1)}")
        index.destroy()
        return LedgerRecovery()
    scan = _Scan(data, index, checkpoint=checkpoint)
    scan.run()
    _check(scan, data, checkpoint)
    scan.check_first_file(data)
    scan.check_end()
    if data.loses_files(scan.process_offset):
        check_point_file.persist(replace(checkpoint, cut_from=scan.last.index + 1 if scan.last else 0))
    data.truncate_offset(scan.process_offset)
    _write_data_again(data, scan.unproven_offset, scan.process_offset)
    if scan.rewrite_from >= 0:  # a start that finds a part of what is made again must not take it for all
        check_point_file.persist(replace(checkpoint, index_proves=False))
    _repair_index(index, data, scan)
    last = scan.last
    return LedgerRecovery(
        ledger_end_index=last.index if last else -1,
        ledger_end_term=last.term if last else -1,
        process_offset=scan.process_offset,
        reason=scan.reason,
        rewritten_from=scan.rewrite_from,
    )


def begin_index(data: MmapFileList, unit: Callable[[int], BytesLike | None], *, end_index: int) -> int:
    """Index of the first entry of a log that ends with ``end_index``; ``unit`` finds an entry's unit.

    Raises:
        CorruptLogError: what the first data file begins with is not what the index has there. A leader that took its
            log to begin elsewhere would have the others drop what they have.
        StoreReadError: it cannot be read.
    """
    header, problem = _first_entry(data)
    if header is not None:
        known = unit(header.index)  # one that is missing is told of when it is read
        if header.index <= end_index and (known is None or known == _unit(header)):
            return header.index
        problem = f"the index has another entry than {header.index}, of term {header.term}, there"
    file = data.mapped_files[0]
    raise CorruptLogError(
        file.file_from_offset, f"{problem} ({file.path}), but the log goes on up to index {end_index}. {_WHAT_NEXT}"
    )


def _first_entry(data: MmapFileList) -> tuple[EntryHeader | None, str]:
    """Of all files; or why there is none."""
    for number, file in enumerate(data.mapped_files):
        found = read_record(file.view(), _start(file, number), base=file.file_from_offset, previous=None)
        if isinstance(found, EntryHeader):
            return found, ""
        if isinstance(found, End):
            return None, found.reason or "nothing was written here"
    return None, "there is no entry"


def _start(file: MmapFile, number: int) -> int:
    return 0 if number else start_position(file.view())


def _unit(header: EntryHeader) -> bytes:
    return encode_index(pos=header.pos, size=header.size, magic=header.magic, index=header.index, term=header.term)


def _is_unit_of(index: int, unit: BytesLike) -> bool:
    """Whether it is a unit of that entry, whole; one that a power cut tore proves nothing."""
    pos, size = decode_index(unit)
    whole = encode_index(pos=pos, size=size, magic=CURRENT_MAGIC, index=index, term=term_of_unit(unit))
    return unit == whole and size >= BODY_OFFSET


def _is_torn(unit: BytesLike, whole: bytes) -> bool:
    """Whether it is the first bytes of that one, and nothing behind: its writer failed half-way, and told nobody."""
    return whole.startswith(bytes(unit).rstrip(b"\0"))


class _Doubtful(NamedTuple):
    """An entry without its unit, and what the scan knew before it."""

    header: EntryHeader
    last: EntryHeader | None
    rewrite_from: int
    first_unproven: EntryHeader | None


class _Scan:
    """Goes over the entries of the last files, up to the first bytes that do not go on with the log."""

    def __init__(self, data: MmapFileList, index: MmapFileList, *, checkpoint: LedgerCheckpoint) -> None:
        self._files: Final = data.mapped_files
        self._index: Final = index
        self._kept_index: Final = checkpoint.kept_index
        self._cut_from: Final = checkpoint.cut_from
        self._index_proves: Final = checkpoint.index_proves and self._is_index_there()
        self.last: EntryHeader | None = None
        self.first_unproven: EntryHeader | None = None
        """From it on units are written again: its own is wrong, or nothing says that it is durable."""
        self.process_offset = self.stopped_at = 0
        """Behind the last entry; and where the scan ended, which is behind the blank if one follows."""
        self._begins_at = 0
        """The file with which the scan began."""
        self.unproven_offset = 0
        """Before it all is durable."""
        self.rewrite_from = -1
        self.reason = ""
        self._doubtful: _Doubtful | None = None
        """The first entry whose data nothing proves, of those at the end."""

    def _is_index_there(self) -> bool:
        """Whether it is an index in which a unit may be missing, and not one that is missing, or damaged."""
        if self._kept_index < 0:
            return bool(self._index.mapped_files)
        unit = self._index.get_data(self._kept_index * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE)
        return unit is not None and bytes(unit).count(0) < INDEX_UNIT_SIZE

    def run(self) -> None:
        """Scan, and change nothing."""
        number = self._begins_at = self._first_file()
        begin = self._files[number].file_from_offset + _start(self._files[number], number)
        self.stopped_at = self.unproven_offset = begin
        while number < len(self._files) and self._scan_file(self._files[number], number):
            number += 1
        if self._doubtful is not None:
            self._end_before(self._doubtful)
        self.process_offset = self.last.pos + self.last.size if self.last else begin

    def check_first_file(self, data: MmapFileList) -> None:
        """Where the log begins, which :func:`begin_index` is asked later, is good; what was scanned is.

        Raises:
            CorruptLogError: it is not.
        """
        if self._begins_at and self.last is not None:
            begin_index(data, self._unit_in_file, end_index=self.last.index)

    def _unit_in_file(self, index: int) -> memoryview | None:
        return self._index.get_data(index * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE)

    def check_end(self) -> None:
        """The index knows no next entry: its units were written behind the data's flush, and others counted on it.

        Raises:
            CorruptLogError: it does. The entry is damaged; or a directory is missing, as of a disk that is not mounted.
        """
        next_index, end = self.last.index + 1 if self.last else 0, self._files[-1].end_offset
        unit = self._unit_in_file(next_index) if self._index_proves else None
        if unit is None or not _is_unit_of(next_index, unit) or 0 <= self._cut_from <= next_index:
            return
        if self._doubtful is not None and _is_torn(unit, _unit(self._doubtful.header)):
            return
        if decode_index(unit)[0] >= end:
            raise CorruptLogError(
                end,
                f"{file_name(end)} is missing behind {self._files[-1].path}, and the index says that entry "
                f"{next_index} is there: nothing was changed. If a directory of dataStorePath is not mounted, mount "
                "it; else move the whole directory of this member away, and let the group give it its log again",
            )
        raise CorruptLogError(
            self.stopped_at,
            f"{self.place}, but the index says that entry {next_index} is there, and was durable. {_WHAT_NEXT}",
        )

    @property
    def place(self) -> str:
        """Why the log ends there, and where that is."""
        offset, files = self.stopped_at, self._files
        file = next((file for file in files if file.file_from_offset <= offset < file.end_offset), files[-1])
        reason = self.reason or "nothing was written here"
        return f"{reason} ({file.path}, position {offset - file.file_from_offset})"

    def _first_file(self) -> int:
        """The third from the end, or the first before it that begins with an entry that the index knows."""
        for number in range(max(0, len(self._files) - _FILES_SCANNED_MIN), 0, -1):
            file = self._files[number]
            found = read_record(file.view(), 0, base=file.file_from_offset, previous=None)
            if isinstance(found, EntryHeader) and self._is_known(found):
                return number
        return 0

    def _is_known(self, header: EntryHeader) -> bool:
        found = self._index.get_data(header.index * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE)
        return found is not None and found == _unit(header)

    def _scan_file(self, file: MmapFile, number: int) -> bool:
        """Whether the log goes on in the next file."""
        view, base, at = file.view(), file.file_from_offset, _start(file, number)
        while True:
            self.stopped_at = base + at
            found = read_record(view, at, base=base, previous=self.last)
            if isinstance(found, Blank):
                self.stopped_at = file.end_offset
                return True
            if isinstance(found, End):
                self.reason = found.reason
                return False
            self._judge(found)
            at += found.size
            self.last = found
            if found.index <= self._kept_index:
                self.unproven_offset = base + at
            elif self.first_unproven is None:
                self.first_unproven = found

    def _judge(self, header: EntryHeader) -> None:
        """Whether its data was durable, and whether its unit is to be written again."""
        if self._is_known(header):
            self._doubtful = None
            return
        if self._doubtful is None and self._index_proves and header.index > self._kept_index:
            self._doubtful = _Doubtful(header, self.last, self.rewrite_from, self.first_unproven)
        if self.rewrite_from < 0:
            self.rewrite_from = header.index
            self.first_unproven = self.first_unproven or header

    def _end_before(self, entry: "_Doubtful") -> None:
        self.reason = f"the entry of index {entry.header.index} has no unit in the index: it was never durable"
        self.stopped_at, self.last = entry.header.pos, entry.last
        self.rewrite_from, self.first_unproven = entry.rewrite_from, entry.first_unproven


def _check(scan: _Scan, data: MmapFileList, checkpoint: LedgerCheckpoint) -> None:
    end, last_file, place = scan.stopped_at, data.mapped_files[-1], scan.place
    end_index = scan.last.index if scan.last else -1
    if end_index < checkpoint.kept_index:
        raise CorruptLogError(end, f"{place}, {_but(checkpoint, end_index)}")
    if last_file.file_from_offset - end > last_file.file_size:
        raise CorruptLogError(end, f"{place}, but more than a whole file follows, up to {last_file.path}. {_WHAT_NEXT}")


_WHAT_NEXT: Final = (
    "This is damage, not a crash's leftover: nothing was changed. See 'rmqha dledger dump' for what can be read; move "
    "the whole directory of this member away, and let the group give it its log again"
)


def _but(checkpoint: LedgerCheckpoint, end_index: int) -> str:
    return (
        f"but the checkpoint says that index {checkpoint.kept_index} was committed, the last one here is {end_index}. "
        f"{_WHAT_NEXT}"
    )


def _write_data_again(data: MmapFileList, start: int, end: int) -> None:
    """What a process before wrote and never flushed, or could not, the kernel may show and the device not have."""
    for file in data.mapped_files:
        first, behind = max(start - file.file_from_offset, 0), min(end - file.file_from_offset, file.wrote_position)
        for at in range(first, behind, _WRITE_BYTES):
            file.file().pwrite([file.view()[at : min(at + _WRITE_BYTES, behind)]], at)
    data.sync(start)


def _repair_index(index: MmapFileList, data: MmapFileList, scan: _Scan) -> None:
    """Give every entry its unit that has none, or may have lost it, and erase what is behind.

    Only once the data is durable, and over what is there: a unit that proves an entry is never gone for a moment.
    """
    if scan.last is None:
        index.destroy()
        return
    index.truncate_offset((scan.last.index + 1) * INDEX_UNIT_SIZE)
    if scan.first_unproven is None:
        index.sync(index.max_wrote_position)
        return
    start = scan.first_unproven.index * INDEX_UNIT_SIZE
    if not index.mapped_files or not index.min_offset <= start <= index.max_wrote_position:
        index.rebuild_with_pos(start, use_blank=False)
    units = bytearray()
    for header in _entries(data, scan.first_unproven, scan.last.index):
        units += _unit(header)
        if len(units) == _UNITS_AT_ONCE * INDEX_UNIT_SIZE or header.index == scan.last.index:
            index.write_again(bytes(units), (header.index + 1) * INDEX_UNIT_SIZE - len(units))
            units.clear()
    index.sync(start)


def _entries(data: MmapFileList, first: EntryHeader, last_index: int) -> Iterator[EntryHeader]:
    """The entries from ``first`` to ``last_index``, which are good."""
    at = first.pos
    while (file := data.find(at)) is not None:
        found = read_record(file.view(), at - file.file_from_offset, base=file.file_from_offset, previous=None)
        if isinstance(found, EntryHeader):
            yield found
            at += found.size
            if found.index == last_index:
                return
        else:
            at = file.end_offset
