"""DLedgerMmapFileStore: a member's log of entries, in data files and an index.

Hot path: :meth:`DLedgerMmapFileStore.append_as_leader`, :meth:`DLedgerMmapFileStore.append_as_follower`. Neither waits,
so nothing comes between the checks and the write; DLedger takes a lock for that.

Source: spec: dledger §1.7 to §1.11, §2.4; dledger-all-0.3.1.2 DLedgerMmapFileStore.java.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.codec.dledger_entry import (
    CURRENT_MAGIC,
    INDEX_UNIT_SIZE,
    DLedgerEntry,
    decode_entry,
    encode_header,
    encode_index,
)
from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.dledger.append_checks import (
    check_continues,
    check_follower,
    check_index,
    check_leader,
    check_next,
    check_size,
    encode_foreign,
)
from rmqha.dledger.append_hooks import AppendHook, hooked
from rmqha.dledger.check_point_file import CheckPointFile
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.ledger_beginning import LedgerBeginning
from rmqha.dledger.ledger_cut import Cut, plan_cut
from rmqha.dledger.ledger_files import make_data_file_list, make_index_file_list
from rmqha.dledger.ledger_index import LedgerIndex
from rmqha.dledger.ledger_recovery import begin_index, recover_ledger
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.recent_entries import RecentEntries
from rmqha.dledger.room import Room
from rmqha.dledger.store_lock import lock_store
from rmqha.errors import CorruptLogError, StoreError, StoreReadError, StoreWriteError
from rmqha.store.disk import Closable, Disk
from rmqha.store.open_files import OpenFiles

logger = structlog.get_logger()
_Code = DLedgerResponseCode


class DLedgerMmapFileStore:
    """The entries ``[ledger_begin_index, ledger_end_index]``; both are -1 for an empty log.

    Invariants: ``committed_index <= ledger_end_index`` and ``flushed_index <= ledger_end_index``; the unit of index
    ``i`` names the place of entry ``i``; the first failed write or flush is final.
    """

    def __init__(self, config: DLedgerConfig, member_state: MemberState, disk: Disk) -> None:
        """Nothing is read here; :meth:`startup` does.

        Args:
            config: directories and sizes.
            member_state: whose role and term decide what may be appended.
            disk: where the directories are.
        """
        self._config: Final = config
        self.member_state: Final = member_state
        self._disk: Final = disk
        self.full_store_paths: frozenset[str] = frozenset()
        """Where no new data file is made, if another directory will do."""
        open_files = OpenFiles()
        self.data_file_list: Final = make_data_file_list(
            config, disk, open_files=open_files, full_store_paths=lambda: self.full_store_paths
        )
        self.index_file_list: Final = make_index_file_list(config, disk, open_files=open_files)
        self.index: Final = LedgerIndex(self.index_file_list)
        self.recent: Final = RecentEntries()
        self._checkpoint: Final = CheckPointFile(disk, config.default_path)
        self._lock: Closable | None = None
        self.append_hooks: Final[list[AppendHook]] = []
        self.beginning = LedgerBeginning()
        self.ledger_begin_index = self.ledger_end_index = self.ledger_end_term = -1
        self.committed_index = self.committed_pos = -1
        self.flushed_index = -1
        """Entries up to here, and their units, are durable."""
        self.room: Final = Room((self.data_file_list, self.index_file_list))
        self.write_error: StoreWriteError | None = None
        """Set by the first failure; nothing is stored any more by this process."""
        self.on_appended: Callable[[], None] = lambda: None
        """Called when there is something to flush."""
        self.on_cut: Callable[[int], None] = lambda _end: None
        """Called with the log's end when its tail was cut, at once; 0: all went."""
        self._cuts = 0
        """And failures, and ends: a flush that is under way then counts for nothing."""
        self._flushing: Final = trio.Lock()

    def startup(self) -> None:
        """Lock, load and recover: blocks for as long as that takes; run it in a thread.

        Raises:
            StoreLockedError: another process has this store, or a directory of its data.
            CorruptLogError: damage; nothing was changed.
            StoreWriteError, StoreReadError: a file cannot be used.
        """
        assert self._lock is None, "a store is started once"
        self._lock = lock_store(self._config, self._disk)
        try:
            self.data_file_list.load()
            self.index_file_list.load()
            self._recover()
        except BaseException:
            self.close()
            raise

    def _recover(self) -> None:
        checkpoint = self._checkpoint.load()
        self.member_state.vote_floor = checkpoint.vote_floor
        recovery = recover_ledger(self.data_file_list, self.index_file_list, check_point_file=self._checkpoint)
        self._set_end(recovery.ledger_end_index, recovery.ledger_end_term)
        self.flushed_index = self.ledger_end_index
        self.revise_ledger_begin_index()
        self.update_committed_index(self.member_state.curr_term, checkpoint.committed_index)
        self._checkpoint.persist(self._present_checkpoint(is_open=True))
        logger.info(
            "dledger_store.loaded",
            begin_index=self.ledger_begin_index,
            end_index=self.ledger_end_index,
            end_term=self.ledger_end_term,
            committed_index=self.committed_index,
            end_offset=recovery.process_offset,
            cut_because=recovery.reason or None,
            index_rewritten_from=None if recovery.rewritten_from < 0 else recovery.rewritten_from,
        )

    def _set_end(self, index: int, term: int) -> None:
        """The last entry is this one; elections ask the member state."""
        self.ledger_end_index, self.ledger_end_term = index, term
        self.member_state.update_ledger_index_and_term(index, term)

    def revise_ledger_begin_index(self) -> None:
        """The first data file has changed: units of entries that are gone may go, too. Raises StoreError."""
        if self.ledger_end_index >= 0:
            begin = begin_index(self.data_file_list, self.index.unit, end_index=self.ledger_end_index)
            self.ledger_begin_index = begin
            self.index_file_list.reset_offset(begin * INDEX_UNIT_SIZE)

    def append_as_leader(self, entry: DLedgerEntry) -> DLedgerEntry:
        """Store a client's body as the next entry of the present term; its other fields are set here.

        It is written when this returns; durable once :attr:`flushed_index` has reached it.

        Raises:
            DLedgerException: NOT_LEADER, LEADER_TRANSFERRING, DISK_FULL, UNEXPECTED_ARGUMENT (too large), DISK_ERROR:
                it is not in the log.
        """
        state = self.member_state
        if not state.is_leader:
            raise DLedgerException(_Code.NOT_LEADER, f"this member is {state.role.value}")
        self._check_writable()
        entry.size = entry.compute_size_in_bytes()
        check_size(entry.size, file_size=self.data_file_list.mapped_file_size)
        if state.transferee is not None:
            raise DLedgerException(_Code.LEADER_TRANSFERRING, f"leadership goes to {state.transferee}")
        entry.index, entry.term, entry.magic, entry.pos = self.ledger_end_index + 1, state.curr_term, CURRENT_MAGIC, -1
        try:
            self._make_room(entry)
            self._store(entry, hooked(self.append_hooks, entry, encode_header(entry) + entry.body))
        except (StoreWriteError, StoreReadError, CorruptLogError) as error:
            raise self._disk_error(error) from error
        if not self.append_hooks:
            self.recent.put(entry)
        return entry

    def _make_room(self, entry: DLedgerEntry) -> None:
        """In both lists, before anything of the entry is written: then it is in both, or in neither."""
        self.index.prepare()
        data = self.data_file_list
        at = data.next_position(entry.size) if entry.pos == -1 else entry.pos
        if at != data.max_wrote_position and data.mapped_files:
            self._flush_all_but_last()
        entry.pos = data.pre_append(entry.size, at=at)

    def _flush_all_but_last(self) -> None:
        """When a data file ends, those before it must be durable: a start that finds more than one to cut refuses to.

        With files of DLedger's size they are, and this does nothing.
        """
        data, begin = self.data_file_list, self.data_file_list.mapped_files[-1].file_from_offset
        unproven = data.max_wrote_position if self.is_flushed else self.index.place(self.flushed_index + 1)[0]
        if min(unproven, data.flushed_where) < begin:
            data.sync(data.flushed_where)
            self.index.write_waiting(self.ledger_end_index + 1)
            self.index_file_list.sync(self.index_file_list.flushed_where)
            self.flushed_index = self.ledger_end_index

    def _store(self, entry: DLedgerEntry, data: bytes) -> None:
        """Append an entry for which room was made."""
        pos = self.data_file_list.write(data)
        assert (pos, self.index.end) == (entry.pos, entry.index), "room was made there, and every entry has a unit"
        self.index.put(encode_index(pos=pos, size=entry.size, magic=entry.magic, index=entry.index, term=entry.term))
        self._set_end(entry.index, entry.term)
        if self.ledger_begin_index == -1:
            self.ledger_begin_index = entry.index
        self.on_appended()

    def append_as_follower(self, entry: DLedgerEntry, leader_term: int, leader_id: str) -> DLedgerEntry:
        """Store the leader's next entry, where the leader has it.

        Raises:
            DLedgerException: NOT_FOLLOWER, DISK_FULL, INCONSISTENT_INDEX, INCONSISTENT_TERM, INCONSISTENT_LEADER,
                UNEXPECTED_ARGUMENT (no entry that a leader can have), DISK_ERROR (it would lie elsewhere here, or the
                disk failed): it is not in the log.
        """
        check_follower(self.member_state)
        self._check_writable()
        check_next(entry.index, self.ledger_end_index)
        check_leader(self.member_state, leader_term, leader_id)
        data = encode_foreign(entry, leader_term=leader_term, file_size=self.data_file_list.mapped_file_size)
        check_continues(self, entry)
        try:
            self._make_room(entry)
            self._store(entry, data)
        except (StoreWriteError, StoreReadError, CorruptLogError) as error:
            raise self._disk_error(error) from error
        return entry

    def truncate(self, entry: DLedgerEntry, leader_term: int, leader_id: str) -> int:
        """Make the leader's ``entry`` the last one; what was behind it is erased, durably. Returns its index.

        If it is neither the one that this log has there, nor one that it could go on with, the log begins anew with it.

        Raises:
            DLedgerException: as :meth:`append_as_follower`, but for INCONSISTENT_INDEX.
            DivergedLogError: that would take away what is committed; nothing was changed.
        """
        check_follower(self.member_state)
        check_leader(self.member_state, leader_term, leader_id)
        self._check_no_error()
        data = encode_foreign(entry, leader_term=leader_term, file_size=self.data_file_list.mapped_file_size)
        try:
            plan = plan_cut(self, entry)
            self._cuts += 1
            self.recent.clear()
            self.flushed_index = min(self.flushed_index, entry.index if plan is Cut.BEHIND else entry.index - 1)
            if plan is Cut.BEHIND:
                self._cut(entry.index + 1, entry.pos + entry.size)
            elif plan is Cut.BEFORE:
                self._cut(entry.index, self.end_of(entry.index - 1))
            else:
                self._begin_anew(entry)
            if plan is not Cut.BEHIND:
                self._make_room(entry)
                self._store(entry, data)
            self.revise_ledger_begin_index()
        except (StoreWriteError, StoreReadError, CorruptLogError) as error:
            raise self._disk_error(error) from error
        return entry.index

    def _cut(self, index: int, offset: int) -> None:
        """``index`` is the next, to go to ``offset``. The units go last: without its unit an entry was never stored."""
        last = (index - 1, self.index.term(index - 1)) if index > self.ledger_begin_index >= 0 else (-1, -1)
        if self.data_file_list.loses_files(offset) or self.index.is_written(index):
            self._checkpoint.note_cut(index)
        self.data_file_list.truncate_offset(offset)
        self.index.truncate(index)
        self._set_end(*last)  # the leader's entry may find no room
        self.on_cut(offset)

    def _begin_anew(self, entry: DLedgerEntry) -> None:
        """Drop everything. The checkpoint goes first: what it vouches for will be missing; votes still count that."""
        state = self.member_state
        state.vote_floor = max(state.vote_floor, (self.ledger_end_term, self.ledger_end_index))
        self._checkpoint.forget_log(state.vote_floor, index_proves=self._config.acks_flushed)
        self.beginning.drop()
        self._set_end(-1, -1)
        self.ledger_begin_index = self.committed_index = self.committed_pos = self.flushed_index = -1
        self.data_file_list.rebuild_with_pos(entry.pos)
        self.index.rebuild(entry.index)
        self.flushed_index = entry.index - 1
        self.on_cut(0)

    def get(self, index: int) -> DLedgerEntry:
        """Read one entry.

        Raises:
            DLedgerException: INDEX_OUT_OF_RANGE, INDEX_LESS_THAN_LOCAL_BEGIN, or DISK_ERROR: it cannot be read.
        """
        check_index(index, self.ledger_begin_index, self.ledger_end_index)
        try:
            pos, size = self.index.place(index)
            data = self.data_file_list.get_data(pos, size)
        except (StoreReadError, CorruptLogError) as error:
            raise self._disk_error(error) from error
        entry = decode_entry(data) if data is not None else None
        if entry is None or (entry.index, entry.pos) != (index, pos):
            raise DLedgerException(_Code.DISK_ERROR, f"the index says that entry {index} is at {pos}: it is not there")
        return entry

    def end_of(self, index: int) -> int:
        """Where an entry ends; before the first, where that begins. Raises StoreReadError, CorruptLogError."""
        if index < self.ledger_begin_index or self.ledger_begin_index == -1:
            return self.data_file_list.min_offset
        pos, size = self.index.place(index)
        return pos + size

    def update_committed_index(self, term: int, new_committed_index: int) -> bool:
        """Take over how far a leader of ``term`` says the log is committed; whether that was anything new.

        Never falls, and never leaves the log (spec: dledger §3.8).
        """
        end, begin = self.ledger_end_index, self.ledger_begin_index
        index = min(new_committed_index, end)
        if end == -1 or term < self.member_state.curr_term or index <= self.committed_index or index < max(begin, 0):
            return False
        try:
            self.committed_pos = self.end_of(index)
        except (StoreReadError, CorruptLogError):
            return False  # the index cannot be read; the next entry, or commit, tries again
        self.committed_index = index
        return True

    def _check_writable(self) -> None:
        self._check_no_error()
        if self.room.refusal:
            raise DLedgerException(_Code.DISK_FULL, self.room.refusal)

    def _check_no_error(self) -> None:
        if self.write_error is not None:
            raise DLedgerException(_Code.DISK_ERROR, f"an earlier failure is final: {self.write_error}")

    def _disk_error(self, error: StoreError) -> DLedgerException:
        """The answer to who wanted to write; a next file that cannot be made for want of space is no final failure."""
        if isinstance(error, StoreWriteError) and not self.room.take_for_lacking(error):
            self.fail(error)
        return DLedgerException(_Code.DISK_ERROR, str(error))

    def fail(self, error: StoreWriteError) -> None:
        """From now on nothing is stored, and nothing that was not durable before ever will be. Said once."""
        if self.write_error is None:
            self.write_error = error
            self._cuts += 1  # of two fdatasyncs the kernel may tell only one what it has lost
            logger.error("dledger_store.write_failed", reason=str(error), errno=error.errno)
            self.on_appended()

    @property
    def is_flushed(self) -> bool:
        """Whether all entries are durable."""
        return self.flushed_index == self.ledger_end_index

    async def flush_in_thread(self) -> bool:
        """Make durable what is written before the call; who comes meanwhile waits. False: it has failed, or is closed.

        First the data, then its units, then it counts: see :mod:`rmqha.dledger.ledger_recovery`.
        """
        async with self._flushing:
            return await self._flush()

    async def _flush(self) -> bool:
        if self.write_error is not None or self._lock is None:
            return False
        end, cuts = self.ledger_end_index, self._cuts
        try:
            await self.data_file_list.flush_in_thread()
            if cuts == self._cuts:
                self.index.write_waiting(end + 1)
                await self.index_file_list.flush_in_thread()
            if cuts == self._cuts:
                self.flushed_index = max(self.flushed_index, end)
        except (StoreWriteError, StoreReadError) as error:
            self._disk_error(error)
        return self.write_error is None

    async def persist_check_point_in_thread(self) -> None:
        """Note how far the log goes, and how much of it is committed and durable. Raises StoreWriteError."""
        await self._checkpoint.persist_in_thread(self._present_checkpoint(is_open=True))

    def _present_checkpoint(self, *, is_open: bool) -> LedgerCheckpoint:
        committed = min(self.committed_index, self.flushed_index)
        is_proof = is_open and self._config.acks_flushed
        return LedgerCheckpoint(self.ledger_end_index, committed, is_proof, self.member_state.vote_floor)

    async def shutdown(self) -> None:
        """Flush, write the checkpoint, and close. Raises StoreWriteError: of the checkpoint."""
        try:
            if await self.flush_in_thread():
                await self._checkpoint.persist_in_thread(self._present_checkpoint(is_open=False))
        finally:
            self.close()

    def close(self) -> None:
        """Close every file, and give up the lock; units that wait for a flush are not written any more."""
        self.data_file_list.close()
        self.index_file_list.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            self._cuts += 1
