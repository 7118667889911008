"""MappedFile: one segment of a log of bytes, with the position up to which it is written."""

from typing import Final

from rmqha.memory import BytesLike
from rmqha.store.disk import DataFile

NAME_DIGITS: Final = 20


def file_name(offset: int) -> str:
    """The name of the segment that starts at ``offset``: 20 ASCII digits (spec: commitlog §4.1)."""
    return f"{offset:020d}"


def parse_file_name(name: str) -> int | None:
    """The offset a segment's name stands for; None if it is no such name."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


class MappedFile:
    """A file that holds the log's bytes ``[file_from_offset, file_from_offset + size)``.

    Invariant: ``0 <= wrote_position <= size``; bytes below it belong to the log, bytes behind it are nobody's.
    """

    __slots__ = ("file", "file_from_offset", "size", "view", "wrote_position")

    def __init__(self, file: DataFile, file_from_offset: int, wrote_position: int = 0) -> None:
        self.file: Final = file
        self.file_from_offset: Final = file_from_offset
        self.size: Final = file.size
        self.view: Final = file.view()
        """The whole file, read-only; a slice stays valid even after the file was deleted."""
        self.wrote_position = wrote_position

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
        """
        assert size <= self.size - self.wrote_position, "the caller checks what fits"
        self.file.pwrite(buffers, self.wrote_position)
        self.wrote_position += size

    def cut(self, position: int) -> None:
        """Take back everything from ``position`` on and erase it durably, so that it cannot come back to life."""
        self.file.zero_tail(position)
        self.wrote_position = position
