"""DLedgerCommitLog. Hot path: a broker's log whose messages are the bodies of a ledger's entries.

A message's physical offset is where it begins, behind the 48 bytes of its entry's header. A leader's entries come from
puts (:meth:`DLedgerCommitLog.put_messages`); a follower's are stored by its member, without this class, which learns of
them in :meth:`DLedgerCommitLog.refresh`. Below the entries may lie the commitlog of the classic broker that this was
(:mod:`rmqha.dledger.old_commit_log`).

Source: spec: dledger §6.1 to §6.3; rocketmq-all-4.9.8 DLedgerCommitLog.java.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import trio

from rmqha.codec.dledger_entry import BODY_OFFSET, decode_entry
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import store_timestamp_at
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.ledger_log_files import LedgerLogFiles
from rmqha.dledger.ledger_puts import LedgerPuts
from rmqha.dledger.ledger_records import LedgerRecords
from rmqha.dledger.old_commit_log import OldCommitLog
from rmqha.errors import CorruptLogError, StoreError
from rmqha.replication.watermark import Watermark
from rmqha.store.log import Extent, PutRequest
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.status import AppendResult
from rmqha.store.store_log import Service, StoreGround

_FRESH_MS: Final = 10_000
"""What is stored since, a leader sends from memory. Later a disk may have changed it."""


class DLedgerCommitLog:
    """See :class:`~rmqha.store.store_log.StoreLog`.

    Invariant: what is :attr:`confirmed` is committed by the group, and durable here.

    Attributes:
        on_put: called when entries were appended: they are to be flushed and pushed.
        check_taken: called with older messages of a leader's as they are read here: nobody has compared their CRCs.
        beginnings: how often all of it went, and it began anew.
    """

    services: Final[Sequence[Service]] = ()
    """The member of the group runs elsewhere, and with it what flushes."""

    def __init__(
        self,
        ledger: DLedgerMmapFileStore,
        ground: StoreGround,
        *,
        startup: Callable[[], None],
        pending_max: int,
    ) -> None:
        """Nothing is opened yet.

        Args:
            ledger: of this member.
            ground: of the store that lives on this log.
            startup: opens ``ledger``, and takes over the term that its member had.
            pending_max: with more entries than this that are not committed yet, puts are refused.
        """
        self.ledger: Final = ledger
        self._data: Final = ledger.data_file_list
        self._ground: Final = ground
        self._startup: Final = startup
        self._puts: Final = LedgerPuts(ledger, pending_max=pending_max)
        self._old: Final = OldCommitLog(ground)
        self._entries: Final = LedgerRecords(ledger, ground.options.delay_levels_ms)
        self.files: Final = LedgerLogFiles(
            self._data, self._old.files, ground.disk, on_deleted=ledger.revise_ledger_begin_index
        )
        self.to_lock: Final = ()
        self.wrote: Final = Watermark()
        self.flushed: Final = Watermark()
        self.boundary_offset = 0
        self.last_store_timestamp_ms = 0
        self.on_put: Callable[[], None] = lambda: None
        self.check_taken: Callable[[Sequence[DispatchRequest]], None] = lambda _: None
        self.beginnings = 0
        self._confirmed = 0
        ledger.on_cut = self._on_cut
        ledger.beginning = self._old
        ground.running_flags.on_write_error.append(ledger.fail)

    # ---- where it ends

    @property
    def file_size(self) -> int:
        """Bytes of a data file."""
        return self._data.mapped_file_size

    @property
    def min_offset(self) -> int:
        """See :attr:`RawLog.min_offset`."""
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        """See :attr:`RawLog.max_offset`."""
        return self._data.max_wrote_position

    @property
    def lacks_first_entry(self) -> bool:
        """Whether there is an old commitlog, and no entry yet by which members see that they all have the same."""
        return self._old.is_there and self.ledger.ledger_end_index == -1

    @property
    def confirmed(self) -> int:
        """See :attr:`Log.confirmed`."""
        return self._confirmed

    @property
    def is_there(self) -> bool:
        """See :attr:`Log.is_there`."""
        files = self._data.mapped_files
        return bool(files) and self._ground.disk.exists(files[-1].path)

    def refresh(self) -> bool:
        """Take over how far the ledger has stored, flushed and committed; return whether more is confirmed."""
        ledger, before = self.ledger, self._confirmed
        if ledger.write_error is not None:
            self._ground.running_flags.fail(ledger.write_error)
        self.wrote.advance(self.max_offset)
        self.flushed.advance(self._flushed_offset())
        self._confirmed = max(before, min(ledger.committed_pos, self.flushed.value))
        return self._confirmed > before

    def _flushed_offset(self) -> int:
        if self.ledger.is_flushed:
            return self.max_offset
        try:
            return self.ledger.end_of(self.ledger.flushed_index)
        except StoreError:
            return 0  # the index cannot be read: the next call may know more

    def _on_cut(self, end: int) -> None:
        self.beginnings += end == 0
        self.boundary_offset = min(self.boundary_offset, end)
        self._puts.end = min(self._puts.end, end)
        self.wrote.cut(end)
        self.flushed.cut(end)

    # ---- read

    def extents(self, start: int = 0) -> list[Extent]:
        """See :meth:`Log.extents`."""
        return [*self._old.extents(start), *self._entries.extents(start)]

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        """See :meth:`Log.records`."""
        if start < self._old.end:
            return self._old.records(start, min(end, self._old.end))
        found, behind = self._entries.records(start, end)
        is_old = bool(found) and found[0].store_timestamp_ms < self._ground.now_ms() - _FRESH_MS
        if is_old and not self.ledger.member_state.is_leader:
            self.check_taken(found)
        return found, behind

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        """See :meth:`Log.record_at`."""
        return (self._old if offset < self._old.end else self._entries).record_at(offset, end=end)

    # ---- written

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """See :meth:`Log.put_messages`."""
        results = self._puts.put_messages(requests, now_ms=self._ground.now_ms())
        self.note_records(self._puts.end, self._puts.store_timestamp_ms)
        self.refresh()
        self.on_put()
        return results

    @property
    def put_message_times_total(self) -> int:
        """See :attr:`Log.put_message_times_total`."""
        return self._puts.put_message_times_total

    @property
    def put_message_size_total(self) -> int:
        """See :attr:`Log.put_message_size_total`."""
        return self._puts.put_message_size_total

    def has_begun(self, request: PutRequest) -> bool:
        """See :meth:`Log.has_begun`."""
        return self._puts.has_begun(request)

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        """See :meth:`RawLog.append_raw`: a whole entry of the leader that this member follows."""
        entry, state = decode_entry(data), self.ledger.member_state
        if entry is None or entry.pos != phy_offset:
            raise StoreError(f"the bytes of offset {phy_offset} are no entry that lies there")
        try:
            self.ledger.append_as_follower(entry, state.curr_term, state.leader_id or "")
        except DLedgerException as error:
            raise self.ledger.write_error or StoreError(str(error)) from error
        self.refresh()
        return len(data)

    def start_at(self, phy_offset: int) -> None:
        """See :meth:`RawLog.start_at`: this log begins with an entry, which its leader sends. Raises StoreError."""
        raise StoreError(f"a log of DLedger's begins with its leader's entry, and not at {phy_offset} without one")

    def truncate(self, offset: int) -> None:
        """See :meth:`Log.truncate`: back to where an entry ends. Only a follower's log is cut."""
        if not self._confirmed <= offset <= self.max_offset:
            ends = f"it is confirmed up to {self._confirmed}, and ends at {self.max_offset}"
            raise StoreError(f"the log cannot be cut at {offset}: {ends}")
        ledger, state = self.ledger, self.ledger.member_state
        index = ledger.ledger_end_index
        while index >= ledger.ledger_begin_index and ledger.end_of(index) > offset:
            index -= 1
        try:
            ledger.truncate(ledger.get(index), state.curr_term, state.leader_id or "")
        except DLedgerException as error:
            raise ledger.write_error or StoreError(str(error)) from error
        self.refresh()

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """See :meth:`Log.next_queue_offset`."""
        return self._puts.topic_queue_table.get((topic, queue_id), 0)

    def learn_queue_offsets(self, table: dict[tuple[str, int], int]) -> None:
        """See :meth:`Log.learn_queue_offsets`."""
        self._puts.topic_queue_table = table

    def learn_queue_offset(self, topic: str, queue_id: int, end: int) -> None:
        """See :meth:`Log.learn_queue_offset`."""
        self._puts.topic_queue_table[topic, queue_id] = end

    def note_records(self, end: int, store_timestamp_ms: int) -> None:
        """See :meth:`Log.note_records`."""
        self.boundary_offset = max(self.boundary_offset, end)
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, store_timestamp_ms)

    # ---- a start, a flush, the end

    def load(self) -> None:
        """See :meth:`Log.load`: the ledger does both in one."""
        self._old.load()
        self._startup()
        if not self.lacks_first_entry:
            self._old.check_continued(self._data.mapped_files[0].file_from_offset if self._data.mapped_files else 0)

    def recover(self, known: DurableKnowledge, *, check_crc: bool, progress: RecoveryProgress) -> LogRecovery:
        """See :meth:`Log.recover`. What the queues know was confirmed; a log that is empty is the group's to fill.

        An old commitlog is recovered as a classic broker does, until the first entry lies behind it.
        """
        closed_off: LogRecovery | None = None
        if self.lacks_first_entry:
            closed_off = self._old.close_off(known, check_crc=check_crc, progress=progress)
            if not self._data.mapped_files or self._data.min_offset != self._old.end:
                self._data.rebuild_with_pos(self._old.end)
        if self._old.is_there and self.ledger.committed_index == -1:
            self._old.identify(progress)
        self._confirmed = self._old.end
        end = self.max_offset
        if end and end < known.queues_end:
            raise CorruptLogError(
                end,
                f"the log ends here, but the consume queues know messages up to {known.queues_end} that the group had "
                "committed: move this member's whole store directory away, and let the group give it its log again",
            )
        self.refresh()
        if closed_off is not None:
            return replace(closed_off, end=end)
        return LogRecovery(end if known.clean else self._dispatched_before_crash(known), end)

    def _dispatched_before_crash(self, known: DurableKnowledge) -> int:
        """Where a file begins whose first message was in its queue, durably, by the time that it was stored."""
        dispatched_ms = known.checkpoint.consume_queue_timestamp_ms
        for extent in reversed(self.extents()):
            first = extent.begin + BODY_OFFSET * (extent.begin >= self._old.end)
            record = self.record_at(first, end=self.max_offset)
            if record is not None and store_timestamp_at(record) <= dispatched_ms:
                return extent.begin
        return self.min_offset

    def prepare_first(self) -> None:
        """See :meth:`StoreLog.prepare_first`: a data file is made when it is needed."""

    async def wait_allocated(self) -> None:
        """See :meth:`StoreLog.wait_allocated`: nothing is ever left over."""
        await trio.lowlevel.checkpoint()

    async def flush_in_thread(self, end: int) -> None:
        """See :meth:`FlushedLog.flush_in_thread`: the data and the index."""
        if self.flushed.value < end and not await self.ledger.flush_in_thread():
            raise self.ledger.write_error or StoreError("the log is closed: what was not flushed is not durable")
        self.refresh()

    def close(self) -> None:
        """See :meth:`StoreLog.close`."""
        self.wrote.fail_all()
        self.flushed.fail_all()
        self.ledger.close()
        self._old.close()
