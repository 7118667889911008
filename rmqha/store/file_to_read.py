"""FileToRead: one file of a log that is looked at without being served."""

import errno
from typing import Final

from rmqha.errors import StoreReadError
from rmqha.store.disk import DataFile, Disk
from rmqha.store.open_files import OpenFiles


class FileToRead:
    """Opened when it is used: a log may have more files than a process may have open."""

    __slots__ = ("_disk", "_open_files", "held", "offset", "path", "size", "was_used")

    is_pinned: Final = False
    closes_by_name: Final = False

    def __init__(self, disk: Disk, path: str, offset: int, *, open_files: OpenFiles) -> None:
        """Nothing is opened here.

        Raises:
            StoreReadError: the file is not there any more.
        """
        self._disk = disk
        self._open_files = open_files
        self.path: Final = path
        self.offset: Final = offset
        """Of its first byte, in the log."""
        self.size: Final = disk.file_size(path)
        self.held: DataFile | None = None
        self.was_used = False

    @property
    def end_offset(self) -> int:
        """Where the next file begins."""
        return self.offset + self.size

    def view(self) -> memoryview:
        """The whole file, read-only. Raises StoreReadError."""
        self.was_used = True
        return self._open_files.view(self)

    def open_file(self) -> DataFile:
        """See :class:`~rmqha.store.open_files.Reopenable`."""
        file = self._disk.open(self.path, writable=False)
        if file.size != self.size:
            cause = OSError(errno.EIO, f"it has {file.size} bytes now, and had {self.size}")
            raise StoreReadError(cause, operation="open", path=self.path)
        return file
