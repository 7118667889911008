"""MappedFile: one segment of a log of bytes, with the position up to which it is written."""

import errno
import os
from collections.abc import Callable
from typing import Final, Protocol

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.memory import BytesLike
from rmqha.store.disk import DataFile, Disk
from rmqha.store.open_files import OpenFiles
from rmqha.store.passing import is_lack

NAME_DIGITS: Final = 20
LOST_AND_FOUND: Final = "lost+found"
"""The file system's own, in a directory that is a disk's root; nobody but root may look into it."""


def file_name(offset: int) -> str:
    """The name of the segment that starts at ``offset``: 20 ASCII digits (spec: commitlog §4.1)."""
    return f"{offset:020d}"


def parse_file_name(name: str) -> int | None:
    """The offset a segment's name stands for; None if it is no such name."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


class Home(Protocol):
    """What the segments of one directory have in common."""

    disk: Disk
    directory: str
    file_size: int
    open_files: OpenFiles
    is_derived: bool
    writable: bool
    on_missing: Callable[[str], None]


class MappedFile:
    """A file that holds the log's bytes ``[file_from_offset, file_from_offset + size)``.

    Invariant: ``0 <= wrote_position <= size``; bytes below it belong to the log, bytes behind it are nobody's.
    """

    __slots__ = ("_flushed_position", "_home", "file_from_offset", "held", "was_used", "wrote_position")

    def __init__(self, home: Home, file_from_offset: int, wrote_position: int = 0) -> None:
        self._home: Final = home
        self.file_from_offset: Final = file_from_offset
        self.wrote_position = wrote_position
        self._flushed_position = wrote_position
        self.held: DataFile | None = None
        self.was_used = False

    @property
    def path(self) -> str:
        """Where it lies."""
        return f"{self._home.directory}/{file_name(self.file_from_offset)}"

    @property
    def size(self) -> int:
        """Length in bytes; constant."""
        return self._home.file_size

    @property
    def file(self) -> DataFile:
        """The file, opened if it was not: use it, or hold it, but do not store it. Raises StoreReadError."""
        self.was_used = True
        return self.held or self._home.open_files.open(self)

    def open_file(self) -> DataFile:
        """See :class:`~rmqha.store.open_files.Reopenable`."""
        try:
            file = self._home.disk.open(self.path, writable=self._home.writable)
        except StoreReadError as error:
            if error.errno == errno.ENOENT:
                self._home.on_missing(self._home.directory)
            raise
        if file.size != self.size:
            raise self._resized(file.size, operation="open")
        return file

    def _resized(self, size: int, *, operation: str) -> StoreReadError:
        self._home.on_missing(self._home.directory)
        cause = OSError(errno.EIO, f"it has {size} bytes now, and had {self.size}")
        return StoreReadError(cause, operation=operation, path=self.path)

    def read(self, at: int, size: int) -> bytes:
        """Exactly so many bytes from position ``at`` on. Raises StoreReadError, also if the file has become shorter."""
        data = self.file.pread(size, at)
        if len(data) < size:
            raise self._resized(at + len(data), operation="pread")
        return data

    @property
    def is_pinned(self) -> bool:
        """Whether it has to stay open, as a segment does that is written, or not durable.

        Its next write needs no descriptor, and the kernel may tell of a page that it could not write only processes
        that had the file open. What is derived needs neither: what is lost there shows at the next start.
        """
        if self._home.is_derived:
            return False
        return self.wrote_position < self.size or self._flushed_position < self.wrote_position

    @property
    def closes_by_name(self) -> bool:
        """See :class:`~rmqha.store.open_files.Reopenable`: slaves are sent files of the log, not of queues."""
        return self._home.is_derived

    @property
    def view(self) -> memoryview:
        """The whole file, read-only; a slice stays valid even after the file was closed or deleted.

        Raises:
            StoreReadError: it cannot be opened or mapped at present.
        """
        self.was_used = True
        return self._home.open_files.view(self)

    @property
    def end_offset(self) -> int:
        """Where the next segment starts."""
        return self.file_from_offset + self.size

    @property
    def wrote_offset(self) -> int:
        """Offset behind the last written byte."""
        return self.file_from_offset + self.wrote_position

    @property
    def is_full(self) -> bool:
        """Whether the log goes on in the next segment."""
        return self.wrote_position == self.size

    def append(self, buffers: list[BytesLike], size: int) -> None:
        """Put ``buffers`` at the write position and move it by ``size``, which is more if a blank ends them.

        Raises:
            StoreWriteError: the position has not moved; what is behind it on disk is unknown.
            StoreReadError: nothing is written: the file cannot be opened at present, for want of a descriptor.
        """
        assert size <= self.size - self.wrote_position, "the caller checks what fits"
        try:
            file = self.file
        except StoreReadError as error:
            if is_lack(error):
                raise
            cause = OSError(error.errno, os.strerror(error.errno))
            raise StoreWriteError(cause, operation="open", path=self.path) from error
        file.pwrite(buffers, self.wrote_position)
        self.wrote_position += size

    def cut(self, position: int) -> None:
        """Take back everything from ``position`` on and erase it durably, so that it cannot come back to life."""
        self.file.zero_tail(position)
        self.set_end(position)

    def set_end(self, position: int) -> None:
        """Take ``position`` for the end, in memory only."""
        self.wrote_position = position
        self._flushed_position = min(self._flushed_position, position)

    async def sync_in_thread(self) -> None:
        """Make durable what was written before the call. Raises StoreWriteError, StoreReadError."""
        end = self.wrote_position
        await self.file.sync_in_thread()
        self._flushed_position = max(self._flushed_position, end)
