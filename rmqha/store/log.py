"""Log: what derives from the messages, or shows them, knows of what keeps them.

The classic one is :class:`~rmqha.store.commit_log.CommitLog`: segments of bytes, written and flushed by one process.
Where a Raft log would do something else, it is said here (spec: dledger §1, §6).
"""

from collections.abc import Sequence
from typing import Protocol

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.replication.watermark import Watermark
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.status import AppendResult

PutRequest = PreparedRecord | PreparedBatch
"""One message; or a batch, which lies in one segment, or is not stored."""


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


class RawLog(Protocol):
    """Where a log begins and ends, how much of it is durable, and how it takes what another node wrote.

    Invariants: ``wrote.value == max_offset``, ``flushed.value <= wrote.value``. They fall where the tail is cut, and
    who waits for what was cut is then failed (:meth:`Watermark.cut`); in the classic log only where an empty one begins
    anew before its end.
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

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        """Put a piece of another node's log at the end, which is ``phy_offset``; returns how many bytes were taken.

        Fewer than all are taken while there is no room for the rest yet. The classic log takes any bytes of one
        file; a Raft follower takes a whole entry, which has to be the next by index and of no older term.

        Raises:
            StoreError: they do not continue this log, or it takes and acknowledges nothing any more.
            StoreWriteError: of what was not taken nothing counts.
        """
        ...

    def start_at(self, phy_offset: int) -> None:
        """Let the empty log begin at ``phy_offset``, as another node's does that has deleted what was before.

        Raises:
            StoreError: it is not empty, or no log can begin there: a classic one begins where a file does, a Raft log
                where an entry does.
        """
        ...


class Log(RawLog, Protocol):
    """The messages of all topics in one order. Each has an offset, and a later one a higher one.

    Nobody may assume more than that: not that records are adjacent, or add up to a file, nor that ``max_offset`` never
    falls. Only what is confirmed stays, until it is deleted at the beginning.
    """

    @property
    def confirmed(self) -> int:
        """Nothing before it is ever cut, by no start and in no term; it never falls.

        In the classic log all that is durable (what replicas hold may reach further: ``broker/replication.py``), in a
        Raft log what is committed.
        """
        ...

    @property
    def is_there(self) -> bool:
        """Whether its newest file is: if not, it is the whole store that is missing, perhaps for a moment."""
        ...

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """Append what can be appended now, and raise :attr:`wrote`; one result for each message, in order.

        Never waits, and raises nothing for a refusal: what no put could ever store (an empty batch, no
        topic, a queue below 0, too many bytes) is MESSAGE_ILLEGAL, what the disk did not take
        SERVICE_NOT_AVAILABLE, and then nothing of it is in the log, nor has it used up offsets. A list shorter than
        ``requests`` means: later the rest, before anything else. A Raft leader counts the offsets of queues here, too;
        a message's offset is where it begins, behind the header of its entry. A large batch it appends in turns; if
        the rest cannot follow, that is UNKNOWN_ERROR.
        """
        ...

    @property
    def put_message_times_total(self) -> int:
        """Messages that :meth:`put_messages` has appended since the start, each of a batch counted."""
        ...

    @property
    def put_message_size_total(self) -> int:
        """Bytes of their records."""
        ...

    def has_begun(self, request: PutRequest) -> bool:
        """Whether a part of this batch is in the log, and the rest is to be put yet: never so in the classic log."""
        ...

    def truncate(self, offset: int) -> None:
        """Take back all that lies at ``offset``, where a record ends, and behind; it does not come back by a restart.

        :attr:`wrote` falls, then :attr:`flushed`, and who waits for more is failed. Before the next put the queues'
        offsets are learned again. Waits for the device: a Raft follower does this once in a term, if at all, when the
        leader holds another entry in its place; the classic log does it only at a start, within :meth:`recover`.

        Raises:
            StoreError: it would take back what is confirmed, or the log does not reach so far; nothing was changed.
            StoreWriteError: the disk failed, which is final.
        """
        ...

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The place in its queue that the next message gets: behind all that were given out, visible or not."""
        ...

    def learn_queue_offsets(self, table: dict[tuple[str, int], int]) -> None:
        """From now on :meth:`next_queue_offset` goes on from ``table``, by topic and queue id."""
        ...

    def learn_queue_offset(self, topic: str, queue_id: int, end: int) -> None:
        """As :meth:`learn_queue_offsets`, of one queue."""
        ...

    def extents(self, start: int = 0) -> Sequence[Extent]:
        """All of it that is written behind ``start``, in order.

        Raises:
            CorruptLogError: what tells where they end is missing.
            StoreReadError: it cannot be read at present.
        """
        ...

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """The next records of ``[start, end)``, about a millisecond's work; what was put lately need not be read.

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

    def load(self) -> None:
        """Take in what is on the disk; nothing is changed, but for a file that was never begun.

        Raises:
            CorruptLogError: something else lies there, or something is missing.
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        ...

    def recover(self, known: DurableKnowledge, *, check_crc: bool, progress: RecoveryProgress) -> LogRecovery:
        """Find the end of the loaded log, and cut what a crash left behind it: what remains is durable. Blocks.

        Raises:
            CorruptLogError: it is damaged, ends or is missing where ``known`` says it was durable; nothing changed.
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        ...

    def note_records(self, end: int, store_timestamp_ms: int) -> None:
        """The records before ``end`` were read, the last of that store time."""
        ...
