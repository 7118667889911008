"""An output file that counts and checksums what is written, and is on the device when it is closed."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow import fs

from rmqha.errors import StoreError
from rmqha.spark.records import crc32


class ChecksumSink(io.RawIOBase):
    """Writes through to a new file of any ``pyarrow.fs`` file system."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        super().__init__()
        self.size = 0
        self.crc32 = 0
        self._path = path
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        with writing(path):
            self._stream = filesystem.open_output_stream(path)

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Take all of it."""
        view = memoryview(data)
        with writing(self._path):
            self._stream.write(view)
        self.crc32 = crc32(view, self.crc32)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def close(self) -> None:
        """Finish the file; a manifest may name it afterwards, so a local one is forced to the device."""
        if self.closed:
            return
        with writing(self._path):
            self._stream.close()
            super().close()
            if self._is_local:
                sync(self._path)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """What fails within names the path: of what a task says, Spark passes on a line.

    Raises:
        StoreError: the system does not let it be written.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise StoreError(f"{path} cannot be written: {reason}; repair that and run the same again") from error


def sync(path: str) -> None:
    """Force a local file or directory to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
