"""Log: what derives from the messages, or shows them, knows of what keeps them.

The classic one is :class:`~rmqha.store.commit_log.CommitLog`: segments of bytes, written and flushed by one process.
"""

from collections.abc import Sequence
from typing import Protocol

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.replication.watermark import Watermark
from rmqha.store.status import AppendResult

PutRequest = PreparedRecord | Sequence[PreparedRecord]
"""One message; or a batch for one queue, which gets consecutive offsets and lies in one segment, or is not stored."""


class Extent(Protocol):
    """A stretch of a log that is checked at one go, so that damage costs no more: in the classic log a segment."""

    @property
    def begin(self) -> int:
        """Where its first record begins."""
        ...

    @property
    def end(self) -> int:
        """Behind all that is written of it."""
        ...

    def holds_just(self, size_bytes: int) -> bool:
        """Whether records of so many bytes are all it has. False, too, if that cannot be told without reading them.

        Raises:
            StoreReadError: it cannot be read at present.
        """
        ...


class Log(Protocol):
    """The messages of all topics in one order. Each has an offset, and a later one a higher one.

    Nobody may assume more than that: not that records are adjacent, or add up to a file, nor that ``max_offset`` never
    falls. Only what is confirmed stays, until it is deleted at the beginning.
    """

    @property
    def min_offset(self) -> int:
        """No record that is still there lies before it."""
        ...

    @property
    def max_offset(self) -> int:
        """Behind all that is written."""
        ...

    @property
    def wrote(self) -> Watermark:
        """:attr:`max_offset`, for those who wait for more."""
        ...

    @property
    def flushed(self) -> Watermark:
        """All before it is durable here."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether its newest file is: if not, it is the whole store that is missing, perhaps for a moment."""
        ...

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """Append what can be appended now, and raise :attr:`wrote`; one result for each message, in order.

        Never waits. A list shorter than ``requests`` means: later the rest.
        """
        ...

    def extents(self, start: int = 0) -> Sequence[Extent]:
        """All of it that is written behind ``start``, in order."""
        ...

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """Read the next records of ``[start, end)``, about a millisecond's work.

        Args:
            start: an offset at which this function told somebody to go on, a record's, or :attr:`min_offset`.
            end: no record is read that ends behind it.

        Returns:
            The records, and the offset where to go on: ``start`` if there is no whole record yet.

        Raises:
            CorruptLogError: no record lies where one should be.
            StoreReadError: it cannot be read at present.
        """
        ...

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        """The record at ``offset``, undecoded and uncopied, if one lies there and ends before ``end``.

        Raises:
            StoreReadError: it cannot be read at present.
        """
        ...

    def note_records(self, end: int, store_timestamp_ms: int) -> None:
        """The records before ``end`` were read, the last of that store time."""
        ...
