"""The one door to files. Everything of the store goes through :class:`Disk` and :class:`DataFile`.

The real one is :mod:`rmqha.store.os_disk`; a simulated disk stands behind the same protocols. The rules of this door:

* Writes are ``pwrite``, reads come from a read-only map. A device that fails writes, fills up or turns read-only is
  therefore a :class:`~rmqha.errors.StoreWriteError` of a call, never a SIGBUS (spec: commitlog §6.3). A page that the
  device cannot read is one, and ends the process; nothing acknowledged depends on it.
* What was created, replaced or unlinked is durable when the call returns: file and directory are synced.
* What blocks on the device has a twin that waits in a worker thread: ``sync_in_thread``, ``create_in_thread``,
  ``unlink_in_thread``, ``replace_bytes_in_thread``. A cancelled wait still lets the call finish.
* No file ever shrinks, so a map never loses its pages.
* New files are private to the user (0600, directories 0700); those that exist keep their modes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rmqha.memory import BytesLike

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """How full the file system below a path is; ``used_percent`` is rounded up (spec: commitlog §12)."""

    total: int
    available: int
    used_percent: int
    read_only: bool
    free_inodes: int | None = None
    """None: this file system does not count them."""


class Closable(Protocol):
    """Something held until it is closed."""

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


class DataFile(Protocol):
    """One open file of fixed size.

    A holder of the object may go on reading after the file was unlinked: the last reference closes it.
    """

    @property
    def path(self) -> str:
        """Where it was opened."""
        ...

    @property
    def size(self) -> int:
        """Length in bytes; constant."""
        ...

    def pwrite(self, buffers: Sequence[BytesLike], at: int) -> None:
        """Write all ``buffers`` one behind the other at ``at``. Raises StoreWriteError if not all was taken."""
        ...

    def pread(self, size: int, at: int) -> bytes:
        """Read up to ``size`` bytes at ``at``; fewer only at the end. Raises StoreReadError."""
        ...

    def view(self) -> memoryview:
        """A read-only window on the whole file that shows every later write. Raises StoreReadError."""
        ...

    def is_zero_tail(self, at: int) -> bool:
        """Whether every byte from ``at`` to the end reads as zero. Raises StoreReadError."""
        ...

    def zero_tail(self, at: int) -> None:
        """Make every byte from ``at`` to the end zero, durably. Raises StoreWriteError."""
        ...

    def sync(self) -> None:
        """Force to the device what was written so far. Raises StoreWriteError: believe no later success."""
        ...

    async def sync_in_thread(self) -> None:
        """As :meth:`sync`, without holding up the event loop."""
        ...

    def is_in_place(self) -> bool:
        """Whether its path still leads to it, and to no other. Raises StoreReadError."""
        ...

    def fileno(self) -> int | None:
        """A descriptor for sendfile; None: there is none, read from :meth:`view`."""
        ...

    def close(self) -> None:
        """Give the descriptor back. Windows handed out stay valid. Idempotent."""
        ...


class Disk(Protocol):
    """A place for files. Reading what is not there raises StoreReadError, failing to change it StoreWriteError."""

    def listdir(self, path: str) -> list[str]:
        """Sorted names in a directory; empty if there is no such directory."""
        ...

    def exists(self, path: str) -> bool:
        """Whether anything is at ``path``."""
        ...

    def file_size(self, path: str) -> int:
        """Length in bytes."""
        ...

    def mtime_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since the epoch."""
        ...

    def open(self, path: str, *, writable: bool) -> DataFile:
        """Open an existing file at its present length."""
        ...

    def create(self, path: str, size: int, *, sparse: bool = False) -> DataFile:
        """Make a file of ``size`` zeros that must not exist.

        Its blocks are allocated, unless it is ``sparse``: then its directory is made, too, if there is none.
        """
        ...

    async def create_in_thread(self, path: str, size: int, *, sparse: bool = False) -> DataFile:
        """As :meth:`create`, without holding up the event loop."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    async def unlink_in_thread(self, path: str) -> None:
        """As :meth:`unlink`, without holding up the event loop."""
        ...

    async def release_unlinked(self) -> None:
        """Give back the space of unlinked files to which nobody refers any more, if it was not given back at once."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a small file."""
        ...

    def unlinked_bytes(self, directory: str) -> int:
        """What files of ``directory`` that were unlinked still take, because somebody reads them."""
        ...

    def replace_bytes(self, path: str, data: bytes) -> None:
        """Make ``path`` hold exactly ``data``: after a crash it holds the old or the new content."""
        ...

    async def replace_bytes_in_thread(self, path: str, data: bytes) -> None:
        """As :meth:`replace_bytes`, without holding up the event loop."""
        ...

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do what takes many calls of this door, one after the other, without holding up the event loop."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """How full the file system of ``path`` is."""
        ...

    def lock(self, path: str) -> Closable:
        """Take the store's lock file for the life of the process. Raises StoreLockedError."""
        ...

    def lock_directory(self, path: str) -> Closable:
        """The same for a directory that may hold nothing but data. Raises StoreLockedError."""
        ...

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents unless they exist."""
        ...
