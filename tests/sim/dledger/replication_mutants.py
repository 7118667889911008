"""Planted bugs of replication and of the log: see ``mutants.py``."""

from dataclasses import replace
from typing import Any, Final

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE, DLedgerEntry
from rmqha.dledger import (
    dledger_entry_pusher,
    dledger_mmap_file_store,
    entry_dispatcher,
    entry_handler,
    ledger_index,
    ledger_recovery,
    mmap_file,
    quorum_ack_checker,
)
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.ledger_cut import Cut
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.errors import StoreWriteError
from tests.sim.dledger.planted import planted
from tests.sim.mutant import always, nothing

Handler = entry_handler.EntryHandler
Dispatcher = entry_dispatcher.EntryDispatcher
Checker = quorum_ack_checker.QuorumAckChecker
Pusher = dledger_entry_pusher.DLedgerEntryPusher
Store = dledger_mmap_file_store.DLedgerMmapFileStore
File = mmap_file.MmapFile
Index = ledger_index.LedgerIndex
_Code = DLedgerResponseCode

# ---- who counts what


def _what_is_written_counts(self: Any, *, now: float) -> bool:
    options, self._options = self._options, replace(self._options, acks_flushed=False)
    try:
        return bool(_advance(self, now=now))
    finally:
        self._options = options


def _counts_what_it_sends(self: Any, *, now: float) -> list[PushEntryRequest]:
    requests = _poll(self, now=now)
    for request in requests:
        if request.type is PushType.APPEND:
            self._checker.update_peer_water_mark(self.peer, request.last_entry_index)
    return requests


def _a_mark(self: Any) -> list[int]:
    return sorted(self._peer_water_marks.values(), reverse=True)


def _counts_replicas_of_any_term(self: Any) -> int:
    marks = _a_mark(self)
    return marks[len(marks) // 2]


def _one_too_few(self: Any) -> int:
    marks = _a_mark(self)
    index = marks[len(marks) // 2 - 1]
    return index if index > self.inherited_index else marks[-1]


def _acknowledges_at_once(self: Any, future: Any) -> None:
    future.tell(_Code.SUCCESS)


def _counts_a_batch_from_its_end(self: Any, request: Any, response: PushEntryResponse, *, now: float) -> None:
    _on_append(self, request, response, now=now)
    if response.code == _Code.SUCCESS and len(request.entries) > 1:
        self._checker.update_peer_water_mark(self.peer, request.last_entry_index + response.count - 1)


def _a_compare_counts_to_the_end(self: Any, response: PushEntryResponse) -> None:
    if response.code == _Code.SUCCESS:
        self._append_from(min(response.end_index, self._store.ledger_end_index))
    else:
        _on_compare(self, response)


def _never_compares(self: Any, *, now: float) -> list[PushEntryRequest]:
    if self.type is not PushType.APPEND:
        self._append_from(self._store.ledger_end_index)
    return _poll(self, now=now)


# ---- followers


def _follows_anybody(self: Any, request: PushEntryRequest) -> bool:
    return bool(self._store.member_state.is_follower)


def _release_at_once(self: Any, answers: list[Any]) -> None:
    for _index, held in self._unflushed:
        answers.append((held.token, self._response(held.request, _Code.SUCCESS)))
    self._unflushed.clear()


def _has_that_index(self: Any, entries: tuple[DLedgerEntry, ...]) -> bool:
    return all(0 <= entry.index <= self._store.ledger_end_index for entry in entries)


def _ignores_a_failed_append(self: Any, held: Any, answers: list[Any]) -> None:
    before = len(answers)
    _append(self, held, answers)
    if len(answers) > before:
        token, _refusal = answers.pop()
        answers.append((token, self._response(held.request, _Code.SUCCESS)))


def _commits_unclamped(self: Any, term: int, new_committed_index: int) -> bool:
    is_new = _update_committed_index(self, term, new_committed_index)
    if new_committed_index > self.committed_index >= 0:
        self.committed_index = new_committed_index
    return bool(is_new)


def _cuts_before_it(store: Any, entry: Any) -> Cut:
    """Every TRUNCATE begins the log anew, or cuts what is committed."""
    try:
        has = store.get(entry.index) == entry
    except DLedgerException:
        has = False
    return Cut.BEHIND if has else Cut.BEFORE if 0 < entry.index <= store.ledger_end_index + 1 else Cut.ANEW


# ---- the log


async def _flush_forgives(self: Any) -> bool:
    end, cuts = self.ledger_end_index, self._cuts
    try:
        await self.data_file_list.flush_in_thread()
    except StoreWriteError:
        self.data_file_list.mapped_files[-1].note_flushed()
    if cuts == self._cuts:
        self.index.write_waiting(end + 1)
        await self.index_file_list.flush_in_thread()
        self.flushed_index = max(self.flushed_index, end)
    return True


async def _flush_that_counts_what_came_meanwhile(self: Any) -> bool:
    is_good = await _flush_in_thread(self)
    if is_good and self.write_error is None:
        self.index.write_waiting(self.ledger_end_index + 1)
        self.flushed_index = self.ledger_end_index
    return bool(is_good)


def _fail_alone(self: Any, error: StoreWriteError) -> None:
    self.write_error = self.write_error or error
    self.on_appended()


def _cut_in_memory(self: Any, position: int) -> None:
    self._cuts += 1
    self.wrote_position = position
    self.flushed_position = min(self.flushed_position, position)


def _unit_with_its_entry(self: Any, unit: bytes) -> None:
    self.files.append(unit, use_blank=False)


def _takes_what_has_no_unit(self: Any, entry: Any) -> None:
    del self, entry


def _leaves_what_is_behind(index: Any, data: Any, scan: Any) -> None:
    if scan.last is None:
        index.destroy()
        return
    for file in index.mapped_files:
        file.wrote_position = min(
            max((scan.last.index + 1) * INDEX_UNIT_SIZE - file.file_from_offset, 0), file.file_size
        )
    _repair_index(index, data, scan)


_advance: Final = Pusher.advance
_poll: Final = Dispatcher.poll
_on_append: Final = Dispatcher._on_append
_on_compare: Final = Dispatcher._on_compare
_append: Final = Handler._append
_update_committed_index: Final = Store.update_committed_index
_flush_in_thread: Final = Store.flush_in_thread
_repair_index: Final = ledger_recovery._repair_index


def plant() -> None:
    """Add them to the table."""
    planted("an older term's entries are counted", "#4", (Checker, "committed", property(_counts_replicas_of_any_term)))
    planted("one member less is a majority", "Raft §5.3", (Checker, "committed", property(_one_too_few)))
    planted("an append is acknowledged when it is written", "Raft §5.3", (Checker, "wait_ack", _acknowledges_at_once))
    planted("what was sent counts as stored", "Raft §5.3", (Dispatcher, "poll", _counts_what_it_sends))
    planted("a leader counts what it has not flushed", "W2", (Pusher, "advance", _what_is_written_counts))
    planted("a follower acknowledges what it has not flushed", "W2", (Handler, "_release", _release_at_once))
    planted(
        "a batch's answer is counted from its end", "#134", (Dispatcher, "_on_append", _counts_a_batch_from_its_end)
    )
    planted(
        "all behind an equal entry counts as equal", "W2", (Dispatcher, "_on_compare", _a_compare_counts_to_the_end)
    )
    planted("a new leader compares nothing", "§3.2", (Dispatcher, "poll", _never_compares))
    planted("an entry of that index is that entry", "§3.6", (Handler, "_has", _has_that_index))
    planted(
        "a follower takes what a deposed leader sends", "W1",
        (Handler, "_is_of_the_leader", _follows_anybody), (dledger_mmap_file_store, "check_leader", nothing),
    )  # fmt: skip
    planted(
        "what an old leader pushed stays", "W7",
        (Handler, "_drop", lambda _self: []), (Handler, "_is_of_the_leader", _follows_anybody),
        (dledger_mmap_file_store, "check_leader", nothing),
    )  # fmt: skip
    planted("a follower ignores a failed append", "#142", (Handler, "_append", _ignores_a_failed_append))
    planted("a late TRUNCATE cuts what counts", "§7.3 row 2", (Handler, "_equal_index", always(-1)))
    planted("what is committed is cut", "#316", (dledger_mmap_file_store, "plan_cut", _cuts_before_it),
            (Handler, "_equal_index", always(-1)))  # fmt: skip
    planted("committed beyond the end", "#278", (Store, "update_committed_index", _commits_unclamped))
    planted("who waits is told nothing when its leader goes", "#309", (Checker, "end", nothing))
    planted("a failed flush counts as flushed", "#2706", (Store, "flush_in_thread", _flush_forgives))
    planted(
        "a flush counts for what came meanwhile",
        "#2706",
        (Store, "flush_in_thread", _flush_that_counts_what_came_meanwhile),
    )
    planted("a flush counts beside one that failed", "seed 11229", (Store, "fail", _fail_alone))
    planted("the tail is cut in memory only", "W6", (File, "cut", _cut_in_memory))
    planted("a unit is written with its entry", "W8", (Index, "put", _unit_with_its_entry))
    planted(
        "recovery takes what was never durable", "W8", (ledger_recovery._Scan, "_end_before", _takes_what_has_no_unit)
    )
