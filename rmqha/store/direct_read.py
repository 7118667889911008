"""Reading what a device holds, past the page cache."""

import errno
import mmap
import os
from types import TracebackType
from typing import Final, Self

_ALIGNMENT: Final = 4096
READ_SIZE_MAX: Final = 1 << 20
_ZEROS: Final = bytes(READ_SIZE_MAX)


class DirectReader:
    """A file as its device has it.

    After a failed fdatasync the kernel takes for clean what the device never got, and shows it to whoever reads the
    usual way. A file system without direct reads is one in memory: there is no device to differ from.
    """

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._fd = -1
        self._buffer: Final = mmap.mmap(-1, READ_SIZE_MAX + 2 * _ALIGNMENT)  # page-aligned, as direct reads want it

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            os.preadv(self._fd, [memoryview(self._buffer)[:_ALIGNMENT]], 0)
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
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def is_zero(self, start: int, end: int) -> bool:
        """Whether the device has only zeros in ``[start, end)``, at most READ_SIZE_MAX bytes. Raises OSError."""
        if self._fd < 0:
            return True
        first = start - start % _ALIGNMENT
        size = end - first + -(end - first) % _ALIGNMENT
        with memoryview(self._buffer)[:size] as window:
            count = os.preadv(self._fd, [window], first)
            if first + count < end:
                raise OSError(errno.EIO, f"only {count} bytes came from the device")
            return window[start - first : end - first].tobytes() == _ZEROS[: end - start]
