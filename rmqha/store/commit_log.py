"""CommitLog. Hot path: encode a whole list of messages behind the log's end and write it at once.

There is one event loop and nothing here waits, so an append needs no lock, and queue offset, physical offset and
store time are known when a record is encoded: one ``struct.pack`` a record, one write a segment.

Source: spec: commitlog §4.2, §5; rocketmq-all-4.9.8 CommitLog.java:623-794, 1507-1690.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from rmqha.codec.delay_level import DELAY_LEVELS_MS
from rmqha.codec.limits import size_problem, topic_problem
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import BLANK_SIZE_MIN, encode_blank, enters_queue
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.errors import StoreError, StoreReadError, StoreWriteError
from rmqha.memory import BytesLike
from rmqha.replication.watermark import Watermark
from rmqha.store.allocate_service import AllocateMappedFileService
from rmqha.store.consume_queue_table import QueueKey
from rmqha.store.log import PutRequest
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery, recover_commit_log
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.recent_records import RecentRecords, requests_of_batch
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.segment_reader import SegmentReader
from rmqha.store.status import AppendResult, PutMessageStatus

_PUT_OK: Final = PutMessageStatus.PUT_OK


class CommitLog:
    """The log of all messages of all topics; see :class:`~rmqha.store.store_log.StoreLog`.

    Invariants: the write position moves only after a successful write; ``topic_queue_table[topic, queue_id]`` is the
    QUEUEOFFSET the next record of that queue gets; a record never crosses a segment, and every full segment ends with
    a blank.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        allocate: AllocateMappedFileService,
        *,
        now_ms: Callable[[], int],
        fail: Callable[[StoreWriteError], None],
        delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
    ) -> None:
        self.queue: Final = queue
        self.services: Final = (allocate,)
        self.wait_allocated: Final = allocate.wait_allocated
        reader = SegmentReader(queue, delay_levels_ms)
        self.extents: Final = reader.extents
        self.record_at: Final = reader.record_at
        self.segment_at: Final = reader.segment_at
        self.view_range: Final = reader.view_range
        self.wrote: Final = Watermark()
        """What is appended: moves with every append."""
        self.flushed: Final = Watermark()
        """What is durable. Its waiters are answered in time even if the disk never answers."""
        self.topic_queue_table: dict[QueueKey, int] = {}
        self.boundary_offset = 0
        """A record or blank is known to end here, at or before :attr:`max_offset`."""
        self.last_store_timestamp_ms = 0
        self.put_message_times_total = self.put_message_size_total = 0
        self._flushing_to = 0
        self._read_records: Final = reader.records
        self._recent: Final = RecentRecords()
        self._allocate = allocate
        self._now_ms = now_ms
        self._fail = fail

    @property
    def files(self) -> MappedFileQueue:
        """See :attr:`StoreLog.files`."""
        return self.queue

    @property
    def to_lock(self) -> tuple[str, ...]:
        """See :attr:`StoreLog.to_lock`."""
        return (self.queue.directory,)

    @property
    def file_size(self) -> int:
        """Bytes of a segment."""
        return self.queue.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is still there."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Offset behind the last byte written."""
        return self.queue.max_offset

    @property
    def confirmed(self) -> int:
        """See :attr:`Log.confirmed`: no recovery cuts what was known to be durable."""
        return self.flushed.value

    @property
    def is_there(self) -> bool:
        """See :attr:`Log.is_there`."""
        files = self.queue.files
        return bool(files) and self.queue.disk.exists(files[-1].path)

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """Append what can be appended now; one result for each message that was dealt with, in order.

        The list is shorter than ``requests`` if the next segment is not made yet: put the rest again after
        :meth:`AllocateMappedFileService.wait_allocated`.
        """
        results: list[AppendResult] = []
        now_ms = self._now_ms()
        while len(results) < len(requests):
            first = len(results)
            segment = self._segment_to_write()
            try:
                if segment is None or not self._fill(segment, requests, results=results, now_ms=now_ms):
                    break
            except (StoreWriteError, StoreReadError) as error:
                self._take_back(requests, results, first=first)
                if isinstance(error, StoreWriteError):
                    self._fail(error)
                refusal = AppendResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=str(error))
                results += [refusal] * (len(requests) - first)
            except BaseException:  # a bug: as if nothing had been asked, so that the next append finds things in order
                self._take_back(requests, results, first=first)
                raise
        self._prepare_ahead()
        self.wrote.advance(self.queue.max_offset)
        return results

    def has_begun(self, request: PutRequest) -> bool:  # noqa: ARG002 - another log needs to look
        """See :meth:`Log.has_begun`."""
        return False

    def _segment_to_write(self) -> MappedFile | None:
        files = self.queue.files
        if files and not files[-1].is_full:
            return files[-1]
        file = self._allocate.take()
        return None if file is None else self.queue.add(file)

    def _prepare_ahead(self) -> None:
        """Have the next segment made when the current one is half full: early enough, and no sooner."""
        files = self.queue.files
        if not files or files[-1].wrote_position * 2 >= files[-1].size:
            self._allocate.prepare()

    def _fill(
        self, segment: MappedFile, requests: Sequence[PutRequest], *, results: list[AppendResult], now_ms: int
    ) -> bool:
        """Encode messages into ``segment`` until it is full or all are in, and write them with one call.

        Returns:
            False if the next segment is needed and not ready.

        Raises:
            StoreWriteError: nothing of it counts as appended; the results added have to be taken back.
            StoreReadError: the same, but nothing is broken: a later put may succeed.
        """
        parts: list[BytesLike] = []
        appended: list[DispatchRequest | None] = []
        base, position, room = segment.file_from_offset, segment.wrote_position, segment.size - BLANK_SIZE_MIN
        size_max, table = self.queue.file_size - BLANK_SIZE_MIN, self.topic_queue_table
        goes_on, blank_size, new = True, 0, tuple.__new__  # a third of the time of AppendResult(...)
        for request in islice(requests, len(results), None):
            if not isinstance(request, PreparedRecord):
                size, problem = request.size, self._problem(request)
            else:
                topic, queue_id, size, _, _, _, _, sys_flag, _, _, _, _, _, tags_code, uniq_key, keys = request
                problem = "" if size <= size_max and queue_id >= 0 and topic else self._problem(request)
            if problem:
                results.append(AppendResult(PutMessageStatus.MESSAGE_ILLEGAL, remark=problem))
                continue
            if position + size > room:
                goes_on = self._allocate.is_ready
                if goes_on:
                    blank_size = segment.size - position
                    parts.append(encode_blank(blank_size))
                    position = segment.size
                break
            offset = base + position
            if not isinstance(request, PreparedRecord):
                result = self._encode_batch(request, parts, offset=offset, now_ms=now_ms)
                results.append(result)
                appended += requests_of_batch(request, result)
            else:
                enters, queue_offset = not sys_flag or enters_queue(sys_flag), 0
                if enters:
                    queue_offset = table.get((topic, queue_id), 0)
                request.append_to(parts, queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=now_ms)
                if enters:
                    table[topic, queue_id] = queue_offset + 1
                results.append(new(AppendResult, (_PUT_OK, offset, size, queue_offset, now_ms, (), "")))
                seen = (topic, queue_id, offset, size, tags_code, now_ms, queue_offset, sys_flag, uniq_key, keys)
                appended.append(None if tags_code is None else new(DispatchRequest, seen))
            position += size
        if parts:
            start = segment.wrote_offset
            segment.append([b"".join(parts)], position - segment.wrote_position)
            self._recent.note(start, segment.wrote_offset, appended)
            self.put_message_times_total += len(appended)
            self.put_message_size_total += segment.wrote_offset - start - blank_size
            self.boundary_offset = segment.wrote_offset
            self.last_store_timestamp_ms = now_ms
        return goes_on

    def _problem(self, request: PutRequest) -> str:
        """Why this cannot be stored in any segment, empty if it can (spec: commitlog §2.9)."""
        if not request.size:
            return "the batch is empty"
        if request.queue_id < 0:
            return f"there is no queue {request.queue_id}"
        return topic_problem(request.topic) or size_problem(request.size, file_size=self.queue.file_size)

    def _encode_batch(self, batch: PreparedBatch, parts: list[BytesLike], *, offset: int, now_ms: int) -> AppendResult:
        key = (batch.topic, batch.queue_id)
        first = self.topic_queue_table.get(key, 0)
        offsets = batch.append_to(parts, queue_offset=first, physical_offset=offset, store_timestamp_ms=now_ms)
        self.topic_queue_table[key] = first + len(batch)
        return AppendResult(_PUT_OK, offset, batch.size, first, now_ms, batch_offsets=tuple(offsets))

    def _take_back(self, requests: Sequence[PutRequest], results: list[AppendResult], *, first: int) -> None:
        """Forget the results from ``first`` on and give their queue offsets back."""
        for request, result in reversed([*zip(requests[first:], results[first:], strict=False)]):
            if result.status is not PutMessageStatus.PUT_OK:
                continue
            if enters_queue(request.sys_flag):
                self.topic_queue_table[request.topic, request.queue_id] = result.queue_offset
        del results[first:]

    def prepare_first(self) -> None:
        """See :meth:`StoreLog.prepare_first`."""
        if not self.queue.files:
            self._allocate.prepare()

    def load(self) -> None:
        """See :meth:`Log.load`."""
        self.queue.load()

    def recover(self, known: DurableKnowledge, *, check_crc: bool, progress: RecoveryProgress) -> LogRecovery:
        """See :meth:`Log.recover`."""
        recovery = recover_commit_log(self.queue, known=known, check_crc=check_crc, progress=progress)
        self._note_durable()
        return recovery

    def _note_durable(self) -> None:
        """All that is in it is."""
        self.flushed.advance(self.max_offset)
        self.wrote.advance(self.max_offset)

    async def flush_in_thread(self, end: int) -> None:
        """Make durable what is written before ``end``; raises ``flushed``.

        Raises:
            StoreWriteError, StoreReadError: of one segment; what was flushed before counts.
        """
        self._flushing_to = end
        for segment in self.queue.between(self.flushed.value, end):
            if segment.file_from_offset >= self._flushing_to:
                break
            await segment.sync_in_thread()
            self.flushed.advance(min(segment.end_offset, self._flushing_to))

    def close(self) -> None:
        """See :meth:`StoreLog.close`."""
        self.flushed.fail_all()
        self.wrote.fail_all()
        self.queue.close()

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """See :meth:`Log.records`. What was just put need not be read for that."""
        return self._recent.between(start, end) or self._read_records(start, end)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """See :meth:`Log.next_queue_offset`."""
        return self.topic_queue_table.get((topic, queue_id), 0)

    def learn_queue_offsets(self, table: dict[QueueKey, int]) -> None:
        """The QUEUEOFFSETs that come next, for all queues that the log and the consume queues know."""
        self.topic_queue_table = table

    def learn_queue_offset(self, topic: str, queue_id: int, end: int) -> None:
        """See :meth:`Log.learn_queue_offset`."""
        self.topic_queue_table[topic, queue_id] = end

    def truncate(self, offset: int) -> None:
        """See :meth:`Log.truncate`. A flush that is under way does not count for what is put in the place."""
        if not self.confirmed <= offset <= self.max_offset:
            ends = f"it is durable up to {self.confirmed}, and ends at {self.max_offset}"
            raise StoreError(f"the log cannot be cut at {offset}: {ends}")
        next_file_offset = self.queue.next_file_offset
        try:
            self.queue.truncate(offset)
        except StoreWriteError as error:
            self._fail(error)
            raise
        if self.queue.next_file_offset != next_file_offset:
            self._allocate.discard()
        self._flushing_to = min(self._flushing_to, offset)
        self.boundary_offset, self.last_store_timestamp_ms = min(self.boundary_offset, offset), 0
        self._recent.forget()
        self.wrote.cut(offset)
        self.flushed.cut(offset)

    def note_records(self, end: int, store_timestamp_ms: int) -> None:
        """The records before ``end`` were read, the last of that store time: how a slave learns of both."""
        self.boundary_offset = max(self.boundary_offset, end)
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, store_timestamp_ms)

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        """See :meth:`RawLog.append_raw`: bytes of a master's log, which may end anywhere.

        Raises:
            StoreReadError: as StoreWriteError, but nothing is broken: a later call may succeed.
        """
        if phy_offset != self.max_offset:
            raise StoreError(f"bytes of offset {phy_offset} do not continue a log that ends at {self.max_offset}")
        taken = 0
        while taken < len(data) and (segment := self._segment_to_write()) is not None:
            size = min(len(data) - taken, segment.size - segment.wrote_position)
            try:
                segment.append([data[taken : taken + size]], size)
            except StoreWriteError as error:
                self._fail(error)
                raise
            taken += size
        self._prepare_ahead()
        self.wrote.advance(self.queue.max_offset)
        return taken

    def start_at(self, phy_offset: int) -> None:
        """See :meth:`RawLog.start_at`: where a segment of the master's begins."""
        if self.max_offset != self.min_offset:
            raise StoreError(f"the log holds {self.min_offset}..{self.max_offset} and cannot begin at {phy_offset}")
        if phy_offset < 0 or phy_offset % self.queue.file_size:
            raise StoreError(
                f"no segment begins at {phy_offset}: is mappedFileSizeCommitLog ({self.queue.file_size}) the master's?"
            )
        if phy_offset != self.max_offset:
            self._allocate.discard()
            while self.queue.files:
                self.queue.delete(self.queue.files[-1])
            if phy_offset < self.wrote.value:
                self.flushed.cut(phy_offset)
                self.wrote.cut(phy_offset)
            self.queue.start_offset = phy_offset
            self.boundary_offset = self.last_store_timestamp_ms = 0
            self._recent.forget()
        self._note_durable()
