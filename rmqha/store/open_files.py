"""OpenFiles: which files of a store are open at the moment, however many it has.

Each queue has a file, a long log thousands, and a process may have some hundreds open. So a file is opened when it is
used, and of more than ``files_max`` one that was not used lately gives its descriptor back. A queue's file is closed by
name. Closing a file of the log is dropping the reference: a task that still reads or sends it goes on, and the last one
closes it, on PyPy at a garbage collection.
"""

import errno
import gc
from collections import OrderedDict
from typing import Final, Protocol

from rmqha.errors import StoreReadError
from rmqha.store.disk import DataFile, Disk

FILES_MAX: Final = 1024
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the machine, has no descriptor left."""


class Reopenable(Protocol):
    """A file that can be opened again."""

    held: DataFile | None
    """The file while it is open; kept by :class:`OpenFiles` alone."""
    was_used: bool
    """Since OpenFiles last looked."""

    @property
    def is_pinned(self) -> bool:
        """Whether it has to stay open."""
        ...

    @property
    def closes_by_name(self) -> bool:
        """Whether nobody but its owner uses the open file, so that it need not wait for the last reference to go."""
        ...

    def open_file(self) -> DataFile:
        """Open it. Raises StoreReadError."""
        ...


class OpenFiles:
    """Opens on demand, and closes what was not used since it came here last: a clock, the cheap kin of an LRU.

    Invariant: no more than ``files_max`` are open, and those that are pinned.
    """

    def __init__(self, files_max: int = FILES_MAX) -> None:
        self._files_max = files_max
        self._open: OrderedDict[Reopenable, None] = OrderedDict()

    def open(self, owner: Reopenable) -> DataFile:
        """Open a file that is not; if the process has no descriptor left, half of the others are closed for it.

        Raises:
            StoreReadError: it cannot be opened; later it may.
        """
        try:
            file = owner.open_file()
        except StoreReadError as error:
            if not self.make_room(error.errno):
                raise
            file = owner.open_file()
        self.keep(owner, file)
        return file

    def view(self, owner: Reopenable) -> memoryview:
        """The whole of a file, mapped, for which others are closed as well: a map has a descriptor beside the file's.

        Raises:
            StoreReadError: it can be neither opened nor mapped; later it may.
        """
        try:
            return (owner.held or self.open(owner)).view()
        except StoreReadError as error:
            if not self.make_room(error.errno):
                raise
            return (owner.held or self.open(owner)).view()  # it may be among those that were closed

    def listdir(self, disk: Disk, directory: str) -> list[str]:
        """See :meth:`~rmqha.store.disk.Disk.listdir`: it needs a descriptor, too, for which others are closed as well.

        Raises:
            StoreReadError: as Disk.listdir.
        """
        try:
            return disk.listdir(directory)
        except StoreReadError as error:
            if not self.make_room(error.errno):
                raise
            return disk.listdir(directory)

    def make_room(self, error: int) -> bool:
        """After this errno of an open, a map or a creation: close half of the files if it helps; try again?"""
        if error not in _NONE_LEFT or not self._close_down_to(len(self._open) // 2):
            return False
        gc.collect()  # PyPy closes what nobody refers to when it looks
        return True

    def keep(self, owner: Reopenable, file: DataFile) -> None:
        """Take in a file that is open; it is not among those that are closed for it."""
        self._close_down_to(self._files_max - 1)
        owner.held = file
        self._open[owner] = None

    def forget(self, owner: Reopenable) -> DataFile | None:
        """Let go of a file; returns it if it was open."""
        file, owner.held = owner.held, None
        self._open.pop(owner, None)
        if file is not None and owner.closes_by_name:
            file.close()
        return file

    def close(self) -> None:
        """Let go of all files."""
        for owner in list(self._open):
            self.forget(owner)

    def _close_down_to(self, count: int) -> bool:
        """Close until so many are left; False if none could be closed."""
        before = len(self._open)
        for _ in range(2 * before):
            if len(self._open) <= count:
                break
            owner = next(iter(self._open))
            if owner.is_pinned or owner.was_used:
                owner.was_used = False
                self._open.move_to_end(owner)
            else:
                self.forget(owner)
        return len(self._open) < before
