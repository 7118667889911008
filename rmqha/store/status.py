"""How puts and gets end: RocketMQ's closed lists of outcomes. Expected endings are values here, not exceptions."""

from enum import Enum
from typing import NamedTuple


class PutMessageStatus(Enum):
    """What became of one put message (spec: commitlog §5)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


class AppendResult(NamedTuple):
    """What the log did with one put message or batch.

    With PUT_OK the bytes are in the log at ``[wrote_offset, wrote_offset + wrote_bytes)``; nothing is said about
    the disk or the replicas yet. With any other status nothing of it is in the log, and ``remark`` says why.
    """

    status: PutMessageStatus
    wrote_offset: int = 0
    wrote_bytes: int = 0
    queue_offset: int = 0
    """Position in its queue (of a batch's first message); 0 for the types that enter no queue."""
    store_timestamp_ms: int = 0
    batch_offsets: tuple[int, ...] = ()
    """Physical offset of each record of a batch; empty for a single message."""
    remark: str = ""

    @property
    def end_offset(self) -> int:
        """What a watermark has to pass so that this message is flushed, or replicated."""
        return self.wrote_offset + self.wrote_bytes

    @property
    def offsets(self) -> tuple[int, ...]:
        """Physical offset of each record written, from which the message ids are made."""
        return self.batch_offsets or (self.wrote_offset,)


class GetMessageStatus(Enum):
    """What a pull found (spec: remoting §2.5; the names are remarks on the wire)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(NamedTuple):
    """The answer to a pull: windows on the mapped log, undecoded, and where to go on."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    views: tuple[memoryview, ...] = ()
    """One stored record each, in queue order; valid for as long as they are held."""
    size_bytes: int = 0
    """Sum of the records' sizes."""
