"""What replication needs of a store, and nothing else. The message store fits; so does a small fake in the tests."""

from typing import Protocol

from rmqha.replication.watermark import Watermark
from rmqha.store.disk import DataFile


class ReplicatedLog(Protocol):
    """A log of bytes ``[min_offset, max_offset)`` in files of equal size.

    Invariants: ``wrote.value == max_offset``, ``flushed.value <= wrote.value``.
    """

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        ...

    @property
    def min_offset(self) -> int:
        """Where the first file starts."""
        ...

    @property
    def max_offset(self) -> int:
        """End of what is written."""
        ...

    @property
    def wrote(self) -> Watermark:
        """End of what is written; passes on with each append."""
        ...

    @property
    def flushed(self) -> Watermark:
        """End of what is durable."""
        ...

    @property
    def is_disk_full(self) -> bool:
        """Whether :meth:`wait_writable` waits for space."""
        ...

    def segment_at(self, offset: int) -> tuple[DataFile, int, int] | None:
        """The file that holds ``offset``, the position in it, and how many written bytes follow there.

        None if nothing is written there. The file stays usable while it is held, even if it gets deleted.
        """
        ...

    def view_range(self, offset: int, size: int) -> memoryview:
        """Up to ``size`` written bytes from ``offset``, of one file."""
        ...

    def start_at(self, phy_offset: int) -> None:
        """Let the empty log begin at ``phy_offset``, the start of a file."""
        ...

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        """Put bytes of one file at the end, which is ``phy_offset``; returns how many were taken.

        Fewer than all are taken while the next file is being created: ``await wait_allocated()``, append the rest.

        Raises:
            StoreError: the store takes and acknowledges nothing any more.
        """
        ...

    async def wait_allocated(self) -> None:
        """Return when the next file is there. Raises StoreWriteError if it cannot be made; that is final."""
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
