"""DroppedFiles: files of consume queues that have begun anew, until they are deleted.

A queue may have hundreds: the device is waited for in a thread. A write to the new queue comes after that.
"""

import errno
from typing import Final

import trio

from rmqha.errors import StoreWriteError
from rmqha.store.disk import Disk
from rmqha.store.mapped_file_queue import MappedFileQueue


class DroppedFiles:
    """In the order in which they are deleted: the newest first, so that a crash in between leaves no hole."""

    def __init__(self, disk: Disk) -> None:
        self._disk: Final = disk
        self._paths: list[str] = []

    def take(self, files: MappedFileQueue) -> None:
        """The files of this queue are to go; it does not have them any more."""
        self._paths += [mapped.path for mapped in reversed(files.files)]
        files.abandon()

    def leave(self, directory: str) -> None:
        """Those in this directory are somebody else's to delete."""
        self._paths = [path for path in self._paths if path.rpartition("/")[0] != directory]

    def delete(self) -> None:
        """Delete them, here and now. Raises StoreWriteError: some are still there."""
        while self._paths:
            try:
                self._disk.unlink(self._paths[0])
            except StoreWriteError as error:
                _check_gone(error)
            del self._paths[0]

    async def delete_in_thread(self) -> None:
        """As :meth:`delete`, without holding up the event loop.

        Not to be cancelled: a call that is left alone would find the new queue's file, which has the same name.
        """
        while self._paths:
            path = self._paths[0]
            try:
                with trio.CancelScope(shield=True):
                    await self._disk.unlink_in_thread(path)
            except StoreWriteError as error:
                _check_gone(error)
            self._paths = [other for other in self._paths if other != path]


def _check_gone(error: StoreWriteError) -> None:
    if error.errno != errno.ENOENT:
        raise error
