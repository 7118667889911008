"""Read a DLedger store without being its server.

Takes no lock and writes nothing, so it works on the store of a running server, Java's too, after a crash, or on a copy.
The end is where DLedger would find it at its next start. Entries that a TRUNCATE cut may therefore show again: Java
cuts in memory only, and its own next start has them back (spec: dledger §1.8).
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rmqha.codec.dledger_entry import Blank, End, EntryHeader, read_record, start_position
from rmqha.codec.dledger_properties import LedgerCheckpoint, decode_check_point
from rmqha.errors import CorruptLogError
from rmqha.store.disk import Disk
from rmqha.store.file_to_read import FileToRead
from rmqha.store.mapped_file import file_name, parse_file_name
from rmqha.store.open_files import OpenFiles

_OPEN_FILES_MAX: Final = 16
"""They are read one after the other."""
_CHECK_POINT_SIZE_MAX: Final = 64 * 1024
"""Bytes; it has two lines."""
_WHAT_NEXT: Final = (
    "This is damage, and a start of DLedger would cut the log here without a word. Take a copy of the store; let the "
    "group give this member its log again, or restore it from another member's"
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry as it lies in the file."""

    header: EntryHeader
    body: bytes


class LedgerFile(FileToRead):
    """One data file."""

    __slots__ = ()

    def first(self) -> EntryHeader | Blank | End:
        """What the file begins with. Raises StoreReadError."""
        return read_record(self.view(), 0, base=self.offset, previous=None)


def ledger_files(disk: Disk, directories: Sequence[str], *, open_files: OpenFiles | None = None) -> list[LedgerFile]:
    """The data files in ``directories``, oldest first; a file of another name is passed over.

    For ``open_files`` see :class:`~rmqha.store.log_reader.LogReader`.

    Raises:
        StoreReadError: a directory cannot be read.
        CorruptLogError: two directories have the same file.
    """
    open_files = OpenFiles(_OPEN_FILES_MAX) if open_files is None else open_files
    found: dict[int, LedgerFile] = {}
    for directory in directories:
        for name in open_files.listdir(disk, directory):
            path = f"{directory}/{name}"
            if (offset := parse_file_name(name)) is None:
                continue
            if offset in found:
                raise CorruptLogError(offset, f"the file is there twice: {found[offset].path} and {path}")
            found[offset] = LedgerFile(disk, path, offset, open_files=open_files)
    files = [found[offset] for offset in sorted(found)]
    if len(files) > 1 and files[-1].size < files[0].size:
        files.pop()  # its making was interrupted, or is not done yet
    return files


def read_checkpoint(disk: Disk, path: str) -> LedgerCheckpoint:
    """A store's checkpoint, which says nothing if there is none. Raises StoreReadError."""
    if not disk.exists(path):
        return LedgerCheckpoint()
    file = disk.open(path, writable=False)
    try:
        return decode_check_point(file.pread(_CHECK_POINT_SIZE_MAX, 0))
    finally:
        file.close()


class LedgerReader:
    """The data files of a store, oldest first, and their records."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        checkpoint: LedgerCheckpoint,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        """List the directories.

        Args:
            disk: where they are.
            directories: of the data files; more than one if ``dataStorePath`` names more.
            checkpoint: the store's; the last entry that it vouches for must be found.
            wait: called at the log's end, which a running server may be writing, before its last entry is read.

        Raises:
            StoreReadError: a directory cannot be read.
            CorruptLogError: two directories have the same file.
        """
        self._files: Final = ledger_files(disk, directories)
        self._kept_index: Final = checkpoint.kept_index
        self._wait = wait
        self._last: EntryHeader | None = None
        self.leftover = ""
        """Once all is read: what lies behind the end and is no entry; empty if nothing does."""

    @property
    def end_index(self) -> int:
        """Of the last entry that was passed; -1 before."""
        return -1 if self._last is None else self._last.index

    def records(self, start_index: int = 0) -> Iterator[LedgerEntry | Blank]:
        """The entries from ``start_index`` on, and the blanks behind any of them.

        Raises:
            CorruptLogError: something else lies where an entry must be. What came before was good.
            StoreReadError: a file cannot be read.
        """
        at = self._files[0].offset if self._files else 0
        for number in range(self._first_file(start_index), len(self._files)):
            file = self._files[number]
            if self._last is not None and file.offset != at:
                raise CorruptLogError(at, f"{file_name(at)} is missing before {file.path}. {_WHAT_NEXT}")
            at, end = yield from self._records_of(number, start_index)
            if end.reason or at < file.end_offset:
                self._check_end(number, at, end)
                return
        if self.end_index < self._kept_index:
            raise CorruptLogError(at, f"the log ends here, but {self._promise()}. {_WHAT_NEXT}")

    def _first_file(self, start_index: int) -> int:
        """The last file that begins with an entry not behind ``start_index``; else the first."""
        for number in range(len(self._files) - 1, 0, -1):
            first = self._files[number].first()
            if isinstance(first, EntryHeader) and first.index <= start_index:
                return number
        return 0

    def _records_of(self, number: int, start_index: int) -> Generator[LedgerEntry | Blank, None, tuple[int, End]]:
        """The records of one file; returns the offset where they end, and why.

        An entry is read only when it is known that something follows it, so that a server has surely written all of it.
        """
        file, is_last, held = self._files[number], number == len(self._files) - 1, None
        view = file.view()
        at = start_position(view) if not number else 0
        while True:
            found = read_record(view, at, base=file.offset, previous=self._last)
            if isinstance(found, End) and is_last:
                found = self._look_again(file, at, found)
            if held is not None and held.index >= start_index:
                body = bytes(view[at - held.body_length : at])
                yield LedgerEntry(held, body)
            if isinstance(found, End):
                return file.offset + at, found
            if isinstance(found, Blank):
                if self.end_index >= start_index:
                    yield found
                return file.end_offset, End()
            self._last = held = found
            at += found.size

    def _look_again(self, file: LedgerFile, at: int, end: End) -> End:
        """What was no entry may be one by now: then it is behind the end that was seen."""
        self._wait()
        again = read_record(file.view(), at, base=file.offset, previous=self._last)
        return end if isinstance(again, End) else End()

    def _check_end(self, number: int, at: int, end: End) -> None:
        """Where entries end for another reason than the end of the files.

        Raises:
            CorruptLogError: the log cannot have ended here.
        """
        file = self._files[number]
        place = f"{end.reason or 'nothing was written here'} ({file.path}, position {at - file.offset})"
        if self.end_index < self._kept_index:
            raise CorruptLogError(at, f"{place}, but {self._promise()}. {_WHAT_NEXT}")
        for later in self._files[number + 1 :]:
            if isinstance(first := later.first(), EntryHeader):
                again = read_record(file.view(), at - file.offset, base=file.offset, previous=self._last)
                if not isinstance(again, End):
                    return  # the file was ended, and the next one begun, since its end was seen
                raise CorruptLogError(at, f"{place}, but {later.path} goes on with index {first.index}. {_WHAT_NEXT}")
        if end.reason:
            self.leftover = place

    def _promise(self) -> str:
        return f"the checkpoint says that index {self._kept_index} was committed, the last one here is {self.end_index}"
