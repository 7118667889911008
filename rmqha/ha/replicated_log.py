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

    def segment_at(self, offset: int) -> tuple[DataFile, int, int]:
        """The file that holds ``offset``, the position in it, and how many written bytes follow there."""
        ...

    def view_range(self, offset: int, size: int) -> memoryview:
        """``size`` written bytes from ``offset``; they lie in one file."""
        ...

    def append_raw(self, data: memoryview, phy_offset: int) -> None:
        """Put bytes of one file at the end, which is ``phy_offset``; in an empty log that is a file's start.

        Raises:
            StoreWriteError: the store takes and acknowledges nothing any more.
        """
        ...

    async def wait_flushed(self, offset: int) -> None:
        """Flush, and return when everything before ``offset`` is durable; calls during one flush share the next.

        Raises:
            StoreWriteError: it never will be.
        """
        ...

    async def wait_writable(self) -> None:
        """Return when an append would not run into a full disk or a file that is still being created."""
        ...
