"""Commitlog files of a store, on any file system that pyarrow.fs reaches, and positioned reads from them.

Source: spec: commitlog §1, §4.1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from pyarrow import fs

from rmqha.codec.record.formats import CLASSIC, RecordFormat
from rmqha.errors import ConfigError, StoreError
from rmqha.spark.lane_walk import Bytes
from rmqha.spark.layout import RECORD_SIZE_LIKELY_MAX
from rmqha.spark.options import is_utf8

WINDOW_BYTES: Final = 64 << 10
_INNER: Final = ("commitlog", "data")
_OF_A_ROOT: Final = ("commitlog", "config", "consumequeue")


@dataclass(frozen=True, slots=True)
class Segment:
    """One file: log bytes ``[base, end)``. ``path`` is within the store's file system. Travels to Spark tasks.

    Attributes:
        reach: no record or blank of it is longer, but the blank by which a classic log is closed off for DLedger where
            its tail is damaged.
    """

    path: str
    base: int
    size: int
    record_format: RecordFormat = CLASSIC
    reach: int = RECORD_SIZE_LIKELY_MAX

    @property
    def end(self) -> int:
        """Physical offset behind the file's last byte."""
        return self.base + self.size


class SegmentReader:
    """An open file, addressed by physical offsets. Owns the handle: use it as a context manager.

    Attributes:
        bytes_read: so far, whatever of them was read before.
    """

    def __init__(self, filesystem: fs.FileSystem, segment: Segment) -> None:
        self.segment = segment
        self._file = filesystem.open_input_file(segment.path)
        self._window = pa.py_buffer(b"")
        self._window_at = 0
        self._block = np.empty(0, np.uint8)
        self.bytes_read = 0

    def read(self, position: int, size: int) -> pa.Buffer:
        """At most ``size`` bytes from physical offset ``position`` on; fewer only at the file's end."""
        self._file.seek(position - self.segment.base)
        found = self._file.read_buffer(max(0, min(size, self.segment.end - position)))
        self.bytes_read += found.size
        return found

    def read_block(self, position: int, size: int) -> pa.Buffer:
        """As :meth:`read`, into memory that the next call overwrites: fresh pages would cost more than decoding."""
        size = max(0, min(size, self.segment.end - position))
        if self._block.size < size:
            self._block = np.empty(size, np.uint8)
        self._file.seek(position - self.segment.base)
        count = self._file.readinto(self._block[:size])
        self.bytes_read += count
        return pa.py_buffer(self._block[:count])

    def peek(self, position: int, size: int) -> memoryview:
        """As :meth:`read`, for small neighbouring reads: fetches a window ahead, which an object store rewards.

        What was fetched is not fetched again: a reader of a growing log opens the file anew to see the growth.
        """
        size = max(0, min(size, self.segment.end - position))
        at = position - self._window_at
        if at < 0 or at + size > self._window.size:
            self._window, self._window_at, at = self.read(position, max(size, WINDOW_BYTES)), position, 0
        return memoryview(self._window).cast("B")[at : at + size]

    def look_again(self) -> None:
        """See what has been written since it was peeked at."""
        self._window = pa.py_buffer(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def as_array(buffer: pa.Buffer) -> Bytes:
    """The buffer's bytes, uncopied."""
    return np.frombuffer(buffer, np.uint8)


def open_filesystem(path_or_uri: str) -> tuple[fs.FileSystem, str]:
    """The file system behind a URI or a local path, and the path within it.

    Raises:
        ConfigError: the path is empty.
        StoreError: no file system is known for the URI's scheme, or the path is not UTF-8.
    """
    if not path_or_uri:
        raise ConfigError("the path is empty: name a store's directory or URI")
    if not is_utf8(path_or_uri):
        raise StoreError(f"{path_or_uri!r} is not UTF-8, as pyarrow needs a path to be: name it by a link")
    if "://" not in path_or_uri:
        return fs.LocalFileSystem(), path_or_uri.rstrip("/") or "/"
    try:
        filesystem, path = fs.FileSystem.from_uri(path_or_uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        scheme = urlsplit(path_or_uri).scheme
        raise StoreError(f"cannot open {scheme}:// store {path_or_uri}: {error}") from error
    return filesystem, path.rstrip("/")


def list_segments(filesystem: fs.FileSystem, path: str) -> tuple[Segment, ...]:
    """The files of a classic log in order, from a store's root or its commitlog directory.

    Entries whose name is not 20 digits are no part of the log, nor is a file that is just being made and still empty.
    The last file may be shorter (an unfinished copy). A new store's log is empty: no files at all.

    Raises:
        StoreError: there is no such directory, no log in it, a file is missing between two others, or cut short.
    """
    inner = f"{path}/commitlog"
    is_root = is_directory(filesystem, inner)
    root = inner if is_root else path
    segments = segments_in(filesystem, root)
    if not segments and not is_root and not root.endswith("/commitlog"):
        raise StoreError(
            f"no commitlog in {path}: give a store's root, its commitlog directory, or a DLedger member's directory"
        )
    return joined(segments)


def is_directory(filesystem: fs.FileSystem, path: str) -> bool:
    """Whether there is one."""
    return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)


def store_root(filesystem: fs.FileSystem, path: str) -> str:
    """The root of the store that ``path`` is, or lies in: as its log, a DLedger member's directory, or that one's data.

    A root may have such a name itself: what is beside the log tells.
    """
    root = path
    while (name := root.rpartition("/")[2]) in _INNER or name.startswith("dledger-"):
        if any(is_directory(filesystem, f"{root}/{part}") for part in _OF_A_ROOT):
            break
        root = root.rpartition("/")[0]
    return root


def segments_in(filesystem: fs.FileSystem, directory: str) -> tuple[Segment, ...]:
    """The files of a log that are in a directory. Raises StoreError: there is none."""
    if not is_directory(filesystem, directory):
        raise StoreError(f"no such directory: {directory}")
    found = filesystem.get_file_info(fs.FileSelector(directory))
    logs = [i for i in found if i.is_file and i.size and len(i.base_name) == 20 and i.base_name.isdecimal()]
    return tuple(Segment(i.path, int(i.base_name), i.size) for i in sorted(logs, key=lambda info: info.base_name))


def joined(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Files that make one log. Raises StoreError: one is missing between two others, or is cut short."""
    for one, following in pairwise(segments):
        if one.end != following.base:
            raise StoreError(
                f"the log has a gap: {one.path} holds [{one.base}, {one.end}), the next file begins at "
                f"{following.base}; bring back what is missing between them"
            )
    return tuple(segments)
