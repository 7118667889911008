"""MmapFile: one data or index file, and how far it is written and durable."""

import errno
from typing import Final

from rmqha.errors import StoreReadError
from rmqha.memory import BytesLike
from rmqha.store.disk import DataFile, Disk
from rmqha.store.open_files import OpenFiles

_BEGINNING_BYTES: Final = 8
"""Magic and size of an entry; magic and half of the place of a unit."""


class MmapFile:
    """The bytes ``[file_from_offset, file_from_offset + file_size)`` of a list of files.

    Invariants: ``0 <= start_position <= wrote_position <= file_size``; ``flushed_position <= wrote_position``; bytes
    behind ``wrote_position`` are zero, on the device too (DLedger's own files: once they are recovered).
    """

    __slots__ = (
        "_cuts",
        "_disk",
        "_open_files",
        "file_from_offset",
        "file_size",
        "flushed_position",
        "held",
        "path",
        "start_position",
        "was_used",
        "wrote_position",
    )

    closes_by_name: Final = False

    def __init__(self, disk: Disk, path: str, *, file_from_offset: int, file_size: int, open_files: OpenFiles) -> None:
        self._disk: Final = disk
        self._open_files: Final = open_files
        self.path: Final = path
        self.file_from_offset: Final = file_from_offset
        self.file_size: Final = file_size
        self.start_position = 0
        self.wrote_position = 0
        self.flushed_position = 0
        self._cuts = 0
        self.held: DataFile | None = None
        self.was_used = False

    @property
    def end_offset(self) -> int:
        """Where the next file begins."""
        return self.file_from_offset + self.file_size

    @property
    def wrote_offset(self) -> int:
        """Behind the last byte that is written."""
        return self.file_from_offset + self.wrote_position

    @property
    def is_full(self) -> bool:
        """Whether the list goes on in the next file."""
        return self.wrote_position == self.file_size

    @property
    def is_pinned(self) -> bool:
        """See :class:`~rmqha.store.open_files.Reopenable`: as long as it is written, or not durable."""
        return not self.is_full or self.flushed_position < self.wrote_position

    def file(self) -> DataFile:
        """The file, opened if it was not: use it, but do not store it. Raises StoreReadError."""
        self.was_used = True
        return self.held or self._open_files.open(self)

    def open_file(self) -> DataFile:
        """See :class:`~rmqha.store.open_files.Reopenable`."""
        file = self._disk.open(self.path, writable=True)
        if file.size != self.file_size:
            cause = OSError(errno.EIO, f"it has {file.size} bytes now, and had {self.file_size}")
            raise StoreReadError(cause, operation="open", path=self.path)
        return file

    def view(self) -> memoryview:
        """The whole file, read-only; a slice stays valid when the file is deleted. Raises StoreReadError."""
        self.was_used = True
        return self._open_files.view(self)

    def append_message(self, data: BytesLike) -> None:
        """Put ``data`` at the write position.

        Raises:
            StoreWriteError, StoreReadError: the position has not moved; what is behind it is unknown.
        """
        assert len(data) <= self.file_size - self.wrote_position, "the list looks what fits"
        self.file().pwrite([data], self.wrote_position)
        self.wrote_position += len(data)

    def fill_up(self) -> None:
        """Take all that is left, which is zeros, for written."""
        self.wrote_position = self.file_size

    def select_mapped_buffer(self, position: int, size: int) -> memoryview | None:
        """``size`` bytes that are written; None if not so many are. Raises StoreReadError."""
        if not self.start_position <= position <= position + size <= self.wrote_position:
            return None
        return self.view()[position : position + size]

    def take_as_written(self, position: int) -> None:
        """Let ``position`` be the end, in memory only; nothing is known to be durable."""
        self.wrote_position = position
        self.flushed_position = 0

    def cut(self, position: int) -> None:
        """Take back what is behind ``position`` and erase it durably, so that no start finds it again.

        What a record begins with goes first: a power cut in between must not leave one that lacks only the rest.

        Raises:
            StoreWriteError, StoreReadError: it is not erased; do not write behind it.
        """
        file = self.file()
        beginning = file.view()[position : position + _BEGINNING_BYTES]
        if any(beginning):
            file.pwrite([bytes(len(beginning))], position)
            file.sync()
        file.zero_tail(position)
        self._cuts += 1
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def note_flushed(self) -> None:
        """All that is written is durable."""
        self.flushed_position = self.wrote_position

    async def flush_in_thread(self) -> None:
        """Make durable what was written before the call, unless it is cut meanwhile.

        Raises:
            StoreWriteError, StoreReadError: believe no later success.
        """
        end, cuts = self.wrote_position, self._cuts
        await self.file().sync_in_thread()
        if cuts == self._cuts:
            self.flushed_position = max(self.flushed_position, end)
