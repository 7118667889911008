"""What classic replication needs of a store, and nothing else: files of bytes.

A :class:`~rmqha.ha.replicated_store.ReplicatedStore` fits; so does a small fake in the tests.
"""

from typing import Protocol

from rmqha.store.disk import DataFile
from rmqha.store.log import RawLog


class ReplicatedLog(RawLog, Protocol):
    """A log of bytes ``[min_offset, max_offset)`` in files of equal size; the first begins at ``min_offset``."""

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        ...

    @property
    def lack_of_room(self) -> str:
        """Why nothing is taken at present: the disk is too full, or the next file cannot be made. Empty: it is."""
        ...

    def segment_at(self, offset: int) -> tuple[DataFile, int, int] | None:
        """The file that holds ``offset``, the position in it, and how many written bytes follow there.

        None if nothing is written there. The file stays usable while it is held, even if it gets deleted.
        """
        ...

    def view_range(self, offset: int, size: int) -> memoryview:
        """Up to ``size`` written bytes from ``offset``, of one file."""
        ...

    async def wait_allocated(self) -> None:
        """Return when the next file is there, for the rest of what :meth:`append_raw` did not take.

        Raises:
            StoreWriteError: it cannot be made; that is final.
        """
        ...

    async def flush_now(self, offset: int) -> None:
        """Flush, and return when everything before ``offset`` is durable; calls during one flush share the next.

        Args:
            offset: at most :attr:`max_offset`; a flush covers only what is written when it begins.

        Raises:
            StoreWriteError: it never will be.
        """
        ...

    async def wait_writable(self) -> None:
        """Return when the disk is not too full to take more."""
        ...
