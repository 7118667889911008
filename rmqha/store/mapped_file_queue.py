"""MappedFileQueue: consecutive segments of equal size that together are one log of bytes."""

import errno
from collections.abc import Callable

from rmqha.errors import CorruptLogError, StoreWriteError
from rmqha.store.disk import DataFile, Disk
from rmqha.store.mapped_file import LOST_AND_FOUND, MappedFile, file_name, parse_file_name
from rmqha.store.open_files import OpenFiles


class MappedFileQueue:
    """The segments of one directory, oldest first.

    Invariants: ``files[i + 1].file_from_offset == files[i].end_offset``; every file but the last is full;
    ``start_offset`` is where an empty log will begin, a multiple of ``file_size``.
    """

    __slots__ = (
        "directory",
        "disk",
        "file_size",
        "files",
        "is_derived",
        "on_missing",
        "open_files",
        "start_offset",
        "writable",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        file_size: int,
        open_files: OpenFiles | None = None,
        is_derived: bool = False,
        on_missing: Callable[[str], None] = lambda _directory: None,
    ) -> None:
        """The files are opened when they are used; nothing is read here.

        Args:
            disk: where the directory is.
            directory: holds segments and nothing else; need not exist.
            file_size: bytes of each segment.
            open_files: shared by all that compete for descriptors.
            is_derived: can be built again from another log. Such files are many: they are sparse, and any of them may
                be closed at any time.
            on_missing: told ``directory`` when a file turns out to be missing from it, or to have another size.
        """
        self.disk = disk
        self.directory = directory
        self.file_size = file_size
        self.open_files = open_files or OpenFiles()
        self.is_derived = is_derived
        self.on_missing = on_missing
        self.writable = True
        self.files: list[MappedFile] = []
        self.start_offset = 0

    def load(self, *, writable: bool = True) -> None:
        """Take in every segment as if it were full; recovery then finds the real end and calls :meth:`truncate`.

        A last file that is too short holds nothing that was ever used (a crash inside its creation): it is
        deleted. Anything else of a wrong name or length stops the start, as it does in Java, and so does a hole.

        Raises:
            CorruptLogError: a foreign file, a wrong length, or a missing segment.
            StoreReadError, StoreWriteError: a file cannot be opened, or a short last one not deleted.
        """
        assert not self.files, "a queue is loaded once"
        self.writable = writable
        names = [name for name in self.open_files.listdir(self.disk, self.directory) if name != LOST_AND_FOUND]
        for name in names:
            path = f"{self.directory}/{name}"
            offset = parse_file_name(name)
            if offset is None:
                raise CorruptLogError(self.max_offset, f"{path} is no segment: move it out of this directory")
            size = self.disk.file_size(path)
            if size != self.file_size and name == names[-1] and self._is_unborn(path, size):
                if writable:
                    self.disk.unlink(path)
                continue
            self._check(path, offset, size)
            self.files.append(MappedFile(self, offset, size))

    def _is_unborn(self, path: str, size: int) -> bool:
        """Whether a last file was left behind half-made: shorter than a segment and nothing in it."""
        return size < self.file_size and self.disk.read_bytes(path).count(0) == size

    def _check(self, path: str, offset: int, size: int) -> None:
        if size != self.file_size:
            short = "this file was cut short (docs/recovery.md, 'A file that is too short')"
            what = short if size < self.file_size else "this file is damaged"
            raise CorruptLogError(
                offset + min(size, self.file_size),
                f"{path} has {size} bytes, but {self.file_size} are configured for each file (mappedFileSizeCommitLog, "
                f"for queues mappedFileSizeConsumeQueue): the store was made with another size, or {what}",
            )
        if self.files and offset != self.files[-1].end_offset:
            expected = file_name(self.files[-1].end_offset)
            raise CorruptLogError(self.files[-1].end_offset, f"segment {expected} is missing before {path}")

    def segment_path(self, offset: int) -> str:
        """Path of the segment that starts at ``offset``."""
        return f"{self.directory}/{file_name(offset)}"

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; ``start_offset`` without files."""
        return self.files[0].file_from_offset if self.files else self.start_offset

    @property
    def max_offset(self) -> int:
        """Offset behind the last written byte; ``start_offset`` without files."""
        return self.files[-1].wrote_offset if self.files else self.start_offset

    @property
    def next_file_offset(self) -> int:
        """Where the next segment has to start."""
        return self.files[-1].end_offset if self.files else self.start_offset

    def find(self, offset: int) -> MappedFile | None:
        """The segment that holds ``offset``, written or not; None if there is none."""
        index = (offset - self.min_offset) // self.file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    def add(self, file: DataFile) -> MappedFile:
        """Let a created file be the next segment; everything before it must be full."""
        assert not self.files or self.files[-1].is_full, "segments are filled one after the other"
        mapped = MappedFile(self, self.next_file_offset)
        self.open_files.keep(mapped, file)
        self.files.append(mapped)
        return mapped

    def create_next(self) -> MappedFile:
        """Create the next segment here and now. Raises StoreWriteError."""
        path = self.segment_path(self.next_file_offset)
        try:
            file = self.disk.create(path, self.file_size, sparse=self.is_derived)
        except StoreWriteError as error:
            if not self.open_files.make_room(error.errno):
                raise
            file = self.disk.create(path, self.file_size, sparse=self.is_derived)
        return self.add(file)

    async def create_next_in_thread(self) -> MappedFile:
        """As :meth:`create_next`, without holding up the event loop. Only one task may do so at a time."""
        return self.add(await self.make_in_thread(self.segment_path(self.next_file_offset)))

    async def make_in_thread(self, path: str) -> DataFile:
        """Make a file that is to be :meth:`add`-ed; others are closed for it if need be. Raises StoreWriteError."""
        try:
            return await self.disk.create_in_thread(path, self.file_size, sparse=self.is_derived)
        except StoreWriteError as error:
            if not self.open_files.make_room(error.errno):
                raise
        return await self.disk.create_in_thread(path, self.file_size, sparse=self.is_derived)

    def set_end(self, offset: int) -> None:
        """Take ``offset`` for the end of the log, in memory only."""
        while self.files and self.files[-1].file_from_offset > offset:
            self.open_files.forget(self.files.pop())
        if self.files:
            self.files[-1].set_end(offset - self.files[-1].file_from_offset)

    def truncate(self, offset: int) -> None:
        """Make ``offset``, at most :attr:`max_offset`, the end: delete the segments behind, zero the rest of its own.

        Durable when this returns.
        Idempotent. The last segment goes from the end backwards, so that a crash in between leaves no hole.
        A segment that starts exactly at ``offset`` stays, empty.

        Raises:
            StoreWriteError: the cut is not done; do not write behind it.
        """
        while self.files and self.files[-1].file_from_offset > offset:
            self.delete(self.files[-1])
        if self.files:
            self.files[-1].cut(offset - self.files[-1].file_from_offset)

    def delete(self, mapped: MappedFile) -> None:
        """Delete the first or the last segment. Raises StoreWriteError; then it is still there."""
        assert mapped in {self.files[0], self.files[-1]}, "no holes"
        try:
            self.disk.unlink(mapped.path)
        except StoreWriteError as error:
            if error.errno != errno.ENOENT:  # else it is being deleted in a thread at this moment
                raise
        self._drop(mapped)

    async def delete_first_in_thread(self) -> None:
        """Delete the oldest segment without holding up the event loop; readers that hold it go on reading.

        One that is not there any more is only forgotten. Raises StoreWriteError, StoreReadError.
        """
        first = self.files[0]
        if self.disk.exists(first.path):
            await self.disk.unlink_in_thread(first.path)
        self._drop(first)

    def forget_vanished(self) -> list[MappedFile]:
        """Forget the oldest segments that somebody else has taken away, as long as the last one is there.

        If that is gone as well, it is the directory that is missing, perhaps for a moment. Raises StoreReadError.
        """
        vanished: list[MappedFile] = []
        while len(self.files) > 1 and not self.disk.exists(self.files[0].path):
            if not vanished and not self.disk.exists(self.files[-1].path):
                break
            vanished.append(self.files[0])
            self._drop(self.files[0])
        return vanished

    def find_missing(self) -> MappedFile | None:
        """A file that somebody has taken away, or made longer or shorter. Raises StoreReadError."""
        for mapped in self.files:
            if not self.disk.exists(mapped.path) or self.disk.file_size(mapped.path) != mapped.size:
                return mapped
        return None

    def abandon(self) -> None:
        """Forget every file: somebody else writes this directory now."""
        for mapped in self.files:
            self.open_files.forget(mapped)
        self.files.clear()

    def _drop(self, mapped: MappedFile) -> None:
        if mapped in self.files:
            self.files.remove(mapped)
        self.open_files.forget(mapped)

    def between(self, start: int, end: int) -> list[MappedFile]:
        """The segments that hold any byte of ``[start, end)``."""
        if start >= end:
            return []
        return [file for file in self.files if file.file_from_offset < end and start < file.end_offset]

    def close(self) -> None:
        """Close every file."""
        for mapped in self.files:
            file = self.open_files.forget(mapped)
            if file is not None:
                file.close()
        self.files.clear()
