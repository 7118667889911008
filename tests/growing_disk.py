"""A disk with files to which a writer writes between two looks of a reader."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from rmqha.store.os_disk import OsDataFile, OsDisk

Write = tuple[Path, int, bytes]
"""The file, the position in it, and what is written there."""


class _GrowingFile(OsDataFile):
    def __init__(self, path: str, on_look: Callable[[], None]) -> None:
        super().__init__(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path, Path(path).stat().st_size)
        self._on_look = on_look

    def view(self) -> memoryview:
        self._on_look()
        return super().view()


class GrowingDisk(OsDisk):
    """Before each look at a file, but the first ``looks`` ones, the next ``at_once`` of ``writes`` are done."""

    def __init__(self, writes: Iterable[Write], *, looks: int, at_once: int = 1) -> None:
        super().__init__()
        self._writes: Iterator[Write] = iter(writes)
        self._looks = looks
        self._at_once = at_once

    def open(self, path: str, *, writable: bool) -> OsDataFile:
        assert not writable
        return _GrowingFile(path, self._look)

    def _look(self) -> None:
        self._looks -= 1
        if self._looks < 0:
            for write in islice(self._writes, self._at_once):
                put(*write)


def put(path: Path, position: int, data: bytes) -> None:
    """Write into a file that is there."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
