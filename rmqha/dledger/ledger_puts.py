"""LedgerPuts. Hot path: a leader's messages become entries, each in its place in its queue.

However large a batch is, so many entries are appended before everybody else has a turn; the rest comes when the batch
is put again, and nobody else's message in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rmqha.codec.dledger_entry import BODY_OFFSET, ENTRY_SIZE_MAX, MIN_BLANK_LEN, DLedgerEntry
from rmqha.codec.limits import topic_problem
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import enters_queue
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.store.log import PutRequest
from rmqha.store.status import AppendResult, PutMessageStatus

_Code = DLedgerResponseCode
_REFUSED: Final = {
    _Code.UNEXPECTED_ARGUMENT: PutMessageStatus.MESSAGE_ILLEGAL,
    _Code.LEADER_PENDING_FULL: PutMessageStatus.OS_PAGECACHE_BUSY,
    _Code.LEADER_TRANSFERRING: PutMessageStatus.OS_PAGECACHE_BUSY,
}
"""The status of a put that was not stored (spec: dledger §6.6); SERVICE_NOT_AVAILABLE for all other codes."""
_ENTRIES_A_TURN: Final = 2048
"""Some 15 ms' work."""


@dataclass(frozen=True, slots=True)
class _BegunBatch:
    """A batch of which a part is in the log."""

    records: Sequence[PreparedRecord]
    term: int
    now_ms: int
    """Store time of all its messages."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Offset and queue offset of each message that is in the log."""


class LedgerPuts:
    """Appends to ``ledger``.

    Attributes:
        topic_queue_table: the place of the next message, by topic and queue id.
        put_message_times_total: messages that were put, each of a batch counted.
        put_message_size_total: bytes of their records.
        end: behind the last message that was put.
        store_timestamp_ms: of that message.
    """

    def __init__(self, ledger: DLedgerMmapFileStore, *, pending_max: int) -> None:
        """Nothing is put yet.

        Args:
            ledger: of the member that leads.
            pending_max: with more entries than this that are not committed yet, puts are refused.
        """
        self._ledger: Final = ledger
        self._data: Final = ledger.data_file_list
        self._pending_max: Final = pending_max
        self._record_size_max: Final = min(ENTRY_SIZE_MAX, self._data.mapped_file_size - MIN_BLANK_LEN) - BODY_OFFSET
        self.topic_queue_table: dict[tuple[str, int], int] = {}
        self.put_message_times_total = self.put_message_size_total = 0
        self.end = self.store_timestamp_ms = 0
        self._begun: _BegunBatch | None = None

    def put_messages(self, requests: Sequence[PutRequest], *, now_ms: int) -> list[AppendResult]:
        """See :meth:`Log.put_messages`: each message, of a batch too, becomes an entry."""
        ledger, results = self._ledger, list[AppendResult]()
        turn_ends = ledger.ledger_end_index + _ENTRIES_A_TURN
        if requests and not self.has_begun(requests[0]):
            self._begun = None
        for request in requests:
            if ledger.ledger_end_index >= turn_ends:
                break
            if isinstance(request, PreparedRecord):
                results.append(self._put(request, now_ms))
            elif (result := self._put_batch(request, now_ms, turn_ends=turn_ends)) is not None:
                results.append(result)
            else:
                break
        return results

    def has_begun(self, request: PutRequest) -> bool:
        """See :meth:`Log.has_begun`."""
        return self._begun is not None and self._begun.records is request

    def _put(self, record: PreparedRecord, now_ms: int) -> AppendResult:
        if problem := self._size_problem(record) or _queue_problem(record):
            return AppendResult(PutMessageStatus.MESSAGE_ILLEGAL, remark=problem)
        try:
            self._check_pending(1)
            offset, queue_offset = self._append(record, now_ms)
        except DLedgerException as error:
            return _refused(error)
        return AppendResult(PutMessageStatus.PUT_OK, offset, record.size, queue_offset, now_ms)

    def _put_batch(self, records: Sequence[PreparedRecord], now_ms: int, *, turn_ends: int) -> AppendResult | None:
        """Append a batch, or what this turn has room for; None: the rest is to be put yet.

        Once its first messages are in the log the rest can fail only together with the disk, or the leadership.
        """
        begun, self._begun = self._begun, None
        try:
            if begun is None:
                if problem := self._batch_problem(records):
                    return AppendResult(PutMessageStatus.MESSAGE_ILLEGAL, remark=problem)
                self._check_pending(len(records))
                begun = _BegunBatch(records, self._ledger.member_state.curr_term, now_ms)
            self._append_more(begun, turn_ends)
        except DLedgerException as error:
            if begun is not None and begun.places:
                return AppendResult(PutMessageStatus.UNKNOWN_ERROR, remark=f"a part of the batch is stored: {error}")
            return _refused(error)
        if len(begun.places) < len(records):
            self._begun = begun
            return None
        first, queue_offset = begun.places[0]
        offsets = tuple([offset for offset, _ in begun.places])
        size = offsets[-1] + records[-1].size - first
        return AppendResult(PutMessageStatus.PUT_OK, first, size, queue_offset, begun.now_ms, batch_offsets=offsets)

    def _append_more(self, batch: _BegunBatch, turn_ends: int) -> None:
        if batch.term != self._ledger.member_state.curr_term:
            raise DLedgerException(_Code.NOT_LEADER, f"the leadership of term {batch.term} has ended")
        done = len(batch.places)
        for record in batch.records[done : done + turn_ends - self._ledger.ledger_end_index]:
            batch.places.append(self._append(record, batch.now_ms))

    def _check_pending(self, count: int) -> None:
        ledger = self._ledger
        if ledger.ledger_end_index - ledger.committed_index > self._pending_max:
            text = f"{ledger.ledger_end_index - ledger.committed_index} messages wait for a majority, and {count} more"
            raise DLedgerException(_Code.LEADER_PENDING_FULL, text)

    def _append(self, record: PreparedRecord, now_ms: int) -> tuple[int, int]:
        """Append one entry; where its message begins, and its place in the queue."""
        key, enters, table = (record.topic, record.queue_id), enters_queue(record.sys_flag), self.topic_queue_table
        queue_offset = table.get(key, 0) if enters else 0
        offset = self._data.next_position(BODY_OFFSET + record.size) + BODY_OFFSET
        body = record.pack(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=now_ms)
        entry = self._ledger.append_as_leader(DLedgerEntry(body))
        assert entry.pos + BODY_OFFSET == offset, "nothing came in between"
        if enters:
            table[key] = queue_offset + 1
        self.put_message_times_total += 1
        self.put_message_size_total += record.size
        self.end, self.store_timestamp_ms = offset + record.size, now_ms
        return offset, queue_offset

    def _size_problem(self, record: PreparedRecord) -> str:
        """Why no entry can have this message; empty if one can."""
        if record.size > self._record_size_max:
            return f"a message of {record.size} bytes, at most {self._record_size_max} fit an entry of DLedger's"
        return ""

    def _batch_problem(self, records: Sequence[PreparedRecord]) -> str:
        if not records:
            return "the batch is empty"
        if isinstance(records, PreparedBatch) and self._all_fit(records):
            return _queue_problem(records[0])
        return _queue_problem(records[0]) or next(filter(None, map(self._size_problem, records)), "")

    def _all_fit(self, batch: PreparedBatch) -> bool:
        """Whether :meth:`_size_problem` has nothing to say: thousands of records are not made for the question."""
        return max(batch.sizes) <= self._record_size_max


def _queue_problem(record: PreparedRecord) -> str:
    return f"there is no queue {record.queue_id}" if record.queue_id < 0 else topic_problem(record.topic)


def _refused(error: DLedgerException) -> AppendResult:
    return AppendResult(_REFUSED.get(error.code, PutMessageStatus.SERVICE_NOT_AVAILABLE), remark=str(error))
