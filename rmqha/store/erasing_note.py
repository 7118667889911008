"""ErasingNote: the file that is there while units of consume queues are being erased.

A flush that fails leaves zeros that only the page cache has. A start that finds the file erases again.
"""

from typing import Final

from rmqha.store.disk import Disk


class ErasingNote:
    """One for all consume queues of a store."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk: Final = disk
        self._path: Final = path
        self.is_there = False
        """As far as this process has looked, or made it."""

    def look(self) -> bool:
        """Whether the process before did not finish."""
        self.is_there = self._disk.exists(self._path)
        return self.is_there

    def make(self) -> None:
        """Call this before units that can be seen are erased. Raises StoreWriteError."""
        if not self.is_there:
            self._disk.create(self._path, 0, sparse=True)
            self.is_there = True

    def remove(self) -> None:
        """Call this when all that was erased is durable. Raises StoreWriteError."""
        if self.is_there:
            self._disk.unlink(self._path)
            self.is_there = False
