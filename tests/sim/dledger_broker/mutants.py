"""Planted bugs of the room in which a broker lives on a DLedger group."""

from typing import Any, Final

from rmqha.broker.dledger import dledger_replication, dledger_tables
from rmqha.broker.tables import tables_origin
from rmqha.dledger import dledger_commit_log
from rmqha.dledger.term_barrier import TermBarrier
from rmqha.replication.watermark import Watermark
from tests.sim.mutant import Mutant, always, nothing, nothing_async

Replication: Final = dledger_replication.DLedgerReplication
Tables: Final = dledger_tables.DLedgerTables
Origin: Final = tables_origin.TablesOrigin
Log: Final = dledger_commit_log.DLedgerCommitLog

PLANTED: Final[dict[str, Mutant]] = {}
_on_role: Final = Replication.on_role
_refresh: Final = Log.refresh
_records: Final = Log.records
_on_cut: Final = Log._on_cut


def _planted(name: str, *patches: tuple[Any, str, Any]) -> None:
    PLANTED[name] = Mutant(name, "broker/dledger", patches)


def _is_committed(self: Any, server: Any) -> bool:
    ledger, checker = self._ledger, server.pusher.checker
    if checker is not None and ledger.committed_index < ledger.ledger_end_index == checker.inherited_index:
        server.barrier.append()
    return checker is not None and bool(ledger.committed_index == ledger.ledger_end_index)


def _is_dispatched(self: Any, server: Any) -> bool:
    is_all = self._log.confirmed == self._store.reput_from_offset
    return server.pusher.checker is not None and bool(is_all)


async def _know_queue_ends(_self: Any) -> bool:
    return True


def _keep_waiting(self: Any) -> None:
    cut = Watermark.cut
    Watermark.cut = nothing  # type: ignore[method-assign]
    try:
        _on_role(self)
    finally:
        Watermark.cut = cut  # type: ignore[method-assign]


def _acknowledge_what_is_written(self: Any, *, now: float) -> None:
    del now
    is_more = self._log.refresh()
    self.acked.advance(self._ledger.flushed_index and self._log.flushed.value)
    if is_more:
        self._store.confirm()


def _stay_master(self: Any) -> None:
    if not self._store.role.is_master:
        _on_role(self)


def _confirm_what_is_written(self: Any) -> bool:
    before = self._confirmed
    _refresh(self)
    self._confirmed = max(before, self.max_offset)
    return bool(self._confirmed > before)


def _confirm_what_is_not_flushed(self: Any) -> bool:
    before = self._confirmed
    _refresh(self)
    self._confirmed = max(before, self.ledger.committed_pos)
    return bool(self._confirmed > before)


def _forget_the_last(self: Any, start: int, end: int) -> tuple[Any, int]:
    requests, at = _records(self, start, end)
    return (requests[:-1] if len(requests) > 2 else requests), at


async def _take_from_the_last_followed(self: Any) -> None:
    if self._followed and (address := await self._ask(self._followed)):
        origin = await self._link.ask_tables_origin(address)
        if origin is not None and origin.was_master and origin.term == self._followed_term:
            await self._slave_synchronize.synchronize(address)


def _keep_flushed(self: Any, end: int) -> None:
    flushed = self.flushed.value
    _on_cut(self, end)
    self.flushed.advance(flushed)


_planted(
    "a leader is master at once", (Replication, "_is_ready", lambda self, server: server.pusher.checker is not None)
)
_planted("a leader is master before it has dispatched", (Replication, "_is_ready", _is_committed))
_planted("a leader is master before all is committed", (Replication, "_is_ready", _is_dispatched))
_planted("a new master does not learn where queues end", (Replication, "_learn_queue_ends", _know_queue_ends))
_planted("a leader appends no barrier, and waits", (TermBarrier, "append", nothing))
_planted("puts that wait outlive the leadership", (Replication, "on_role", _keep_waiting))
_planted("what this disk has counts as a majority's", (Replication, "step", _acknowledge_what_is_written))
_planted("who leads no longer stays master", (Replication, "on_role", _stay_master))
_planted(
    "what is written is shown",
    (Log, "refresh", _confirm_what_is_written),
    (Replication, "confirmed_offset", lambda self: self._log.max_offset),
)
_planted("what is committed is shown before it is flushed", (Log, "refresh", _confirm_what_is_not_flushed))
_planted("a crash leaves queues as they are", (Log, "_dispatched_before_crash", lambda self, _known: self.max_offset))
_planted("of three messages one is not dispatched", (Log, "records", _forget_the_last))
_planted("followers take no tables over", (Tables, "follow", nothing_async))
_planted("a new leader asks nobody for tables", (Tables, "learn_as_leader", nothing_async))
_planted("who leads before it has followed anybody asks nobody for tables", (Tables, "_take_newest", nothing_async))
_planted(
    "a new leader asks whom it followed last for changes",
    (Tables, "_take_last_changes", _take_from_the_last_followed),
)
_planted("followers keep what is set back or deleted", (Origin, "is_of_a_master", property(always(False))))
_planted("a broker that cannot dispatch leads", (Replication, "may_lead", property(always(True))))
