"""LedgerLogFiles: what a store's cleaning sees of a ledger, and of the old commitlog below it."""

from collections.abc import Callable, Sequence
from typing import Final

from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.store.cleaner import LogFile
from rmqha.store.disk import Disk
from rmqha.store.mapped_file_queue import MappedFileQueue


class LedgerLogFiles:
    """See :class:`~rmqha.store.cleaner.LogFiles`: the old segments first, then the data files."""

    def __init__(self, data: MmapFileList, old: MappedFileQueue, disk: Disk, *, on_deleted: Callable[[], None]) -> None:
        self._data: Final = data
        self._old: Final = old
        self._disk: Final = disk
        self._on_deleted: Final = on_deleted

    @property
    def directory(self) -> str:
        """Where the oldest are: deleting them makes room there."""
        return self._old.directory if self._old.files else self._data.store_path

    @property
    def files(self) -> Sequence[LogFile]:
        """Oldest first; the last is the one that is written."""
        return [*self._old.files, *self._data.mapped_files]

    @property
    def min_offset(self) -> int:
        """Where the oldest one begins."""
        return self._old.min_offset if self._old.files else self._data.min_offset

    @property
    def max_offset(self) -> int:
        """Behind all that is written."""
        return self._data.max_wrote_position

    def forget_vanished(self) -> Sequence[LogFile]:
        """See :meth:`LogFiles.forget_vanished`; if the newest is gone, it is the directory that is missing."""
        if self._old.files:
            return self._old.forget_vanished()
        vanished: list[LogFile] = []
        files = self._data.mapped_files
        while len(files) > 1 and not self._disk.exists(files[0].path):
            if not vanished and not self._disk.exists(files[-1].path):
                break
            vanished.append(files[0])
            self._data.forget_first()
        if vanished:
            self._on_deleted()
        return vanished

    async def delete_first_in_thread(self) -> None:
        """See :meth:`LogFiles.delete_first_in_thread`."""
        if self._old.files:
            await self._old.delete_first_in_thread()
            return
        first = self._data.mapped_files[0]
        if self._disk.exists(first.path):
            await self._disk.unlink_in_thread(first.path)
        if first in self._data.mapped_files:  # else the whole log was dropped meanwhile
            self._data.forget_first()
        self._on_deleted()
