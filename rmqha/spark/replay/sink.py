"""An output file that counts and checksums what is written, and is on the device when it is closed."""

import io
import os
from typing import Any

from pyarrow import fs

from rmqha.spark.records import crc32


class ChecksumSink(io.RawIOBase):
    """Writes through to a new file of any ``pyarrow.fs`` file system."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        super().__init__()
        self.size = 0
        self.crc32 = 0
        self._stream = filesystem.open_output_stream(path)
        self._local_path = path if isinstance(filesystem, fs.LocalFileSystem) else None

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Take all of it."""
        view = memoryview(data)
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
        self._stream.close()
        super().close()
        if self._local_path is not None:
            sync(self._local_path)


def sync(path: str) -> None:
    """Force a local file or directory to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
