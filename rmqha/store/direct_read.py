"""Reading what a device holds, past the page cache."""

import errno
import mmap
import os
from io import FileIO
from types import TracebackType
from typing import Final, Self

_ALIGNMENT: Final = 4096
READ_SIZE_MAX: Final = 1 << 20
_ZEROS: Final = bytes(READ_SIZE_MAX)


class DirectReader:
    """A file as its device has it.

    After a failed fdatasync the kernel takes for clean what the device never got, and shows it to readers of the
    usual way. A file system without direct reads is one in memory: there is no device to differ from.
    """

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._file: FileIO | None = None
        self._buffer: Final = mmap.mmap(-1, READ_SIZE_MAX + 2 * _ALIGNMENT)  # page-aligned, as direct reads want it

    def __enter__(self) -> Self:
        try:
            self._file = FileIO(self._path, opener=lambda path, flags: os.open(path, flags | os.O_DIRECT))
            self._read(_ALIGNMENT, 0)
        except OSError as error:
            self._close()
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def is_direct(self) -> bool:
        """Whether there is a device to read from."""
        return self._file is not None

    def is_zero(self, start: int, end: int) -> bool:
        """Whether the device has only zeros in ``[start, end)``, at most READ_SIZE_MAX bytes. Raises OSError."""
        if self._file is None:
            return True
        first = start - start % _ALIGNMENT
        size = end - first + -(end - first) % _ALIGNMENT
        count = self._read(size, first)
        if first + count < end:
            raise OSError(errno.EIO, f"only {count} bytes came from the device")
        return self._buffer[start - first : end - first] == _ZEROS[: end - start]

    def _read(self, size: int, at: int) -> int:
        """Into the buffer itself: a direct read into memory that is not aligned would be refused."""
        assert self._file is not None, "asked only where is_direct"
        self._file.seek(at)
        with memoryview(self._buffer)[:size] as window:
            return self._file.readinto(window)
