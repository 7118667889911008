"""Planted bugs: the holes of RocketMQ and of its users (and ours), each of which the simulator has to find.

A mutant replaces attributes of real classes for as long as it is entered. One that survives is a state that the
workload never reaches, or an invariant that nobody checks.
"""

from contextlib import suppress
from math import inf
from typing import Any

import trio

from rmqha.broker import options
from rmqha.broker.processors import pull_message_processor
from rmqha.broker.puts import durability, put_service
from rmqha.broker.tables import metadata
from rmqha.codec.codes import ResponseCode
from rmqha.errors import StoreError, StoreWriteError
from rmqha.ha import ha_client, ha_service, log_receiver, report_sender, slave_connection
from rmqha.replication import in_sync, master_session
from rmqha.replication.master_session import LogRange
from rmqha.store import (
    flush_service,
    mapped_file,
    message_store,
    running_flags,
)
from rmqha.store.status import PutMessageStatus
from rmqha.waiting import DeadlineService
from tests.sim import outsiders, store_mutants, takeover_mutants
from tests.sim.mutant import MUTANTS, Mutant, always, fixed, mutant, nothing

__all__ = ["MUTANTS", "Mutant"]

Store = message_store.DefaultMessageStore
Session = master_session.MasterSession
FlushService = flush_service.FlushCommitLogService


# ---- the flush


async def _flush(self: Any, on_error: str) -> bool:
    log = self._commit_log
    end, boundary, timestamp_ms = log.max_offset, log.boundary_offset, log.last_store_timestamp_ms
    if self._flags.write_error is not None:
        return False
    for segment in log.queue.between(self.flushed.value, end):
        try:
            await segment.file.sync_in_thread()
        except StoreWriteError as error:
            if on_error == "retry":
                await segment.file.sync_in_thread()
            elif on_error == "later":
                self._flags.fail(error)
                return False
        self.flushed.advance(min(segment.end_offset, end) if on_error != "later" else log.max_offset)
    self.flushed_boundary, self.flushed_timestamp_ms = boundary, timestamp_ms
    self._on_flushed()
    return True


async def _flush_the_last_segment_only(self: Any) -> bool:
    log = self._commit_log
    end = log.max_offset
    if self._flags.write_error is not None:
        return False
    try:
        for segment in log.queue.between(self.flushed.value, end)[-1:]:
            await segment.file.sync_in_thread()
    except StoreWriteError as error:
        self._flags.fail(error)
        return False
    self.flushed.advance(end)
    self._on_flushed()
    return True


def _without_flush_promise(self: Any, *args: Any, **kwargs: Any) -> None:
    _durability_init(self, *args, **kwargs | {"flush": None})


def _without_replica_promise(self: Any, *args: Any, **kwargs: Any) -> None:
    _durability_init(self, *args, **kwargs | {"replica": None})


def _append_ignoring_errors(self: Any, buffers: Any, size: int) -> None:
    with suppress(StoreWriteError):
        self.file.pwrite(buffers, self.wrote_position)
    self.wrote_position += size


_durability_init = durability.Durability.__init__

mutant(
    "failed flush counts as flushed",
    "#2706, #9713",
    (FlushService, "flush", lambda self: _flush(self, "ignore")),
)
mutant(
    "fdatasync retried and believed", "#4588 (fsyncgate)", (FlushService, "flush", lambda self: _flush(self, "retry"))
)
mutant(
    "flushed up to what is written when fdatasync returns", "§6.3.1",
    (FlushService, "flush", lambda self: _flush(self, "later")),
)  # fmt: skip
mutant("only the newest segment is flushed", "#405, #1434", (FlushService, "flush", _flush_the_last_segment_only))
mutant("SEND_OK without waiting for the flush", "§5.2", (durability.Durability, "__init__", _without_flush_promise))
mutant(
    "a write error is not final",
    "D1",
    (running_flags.RunningFlags, "fail", nothing),
)
mutant(
    "sends are taken after a write error", "D1",
    (running_flags.RunningFlags, "is_writeable", fixed(value=True)),
    (durability._PendingPuts, "_finish",
     lambda self: self.answer(
         [PutMessageStatus.PUT_OK if self._reached_all() and not self.replica_failure
          else self._status(end) for end in self.ends])),
)  # fmt: skip
mutant("a short write is taken for whole", "§6.2", (mapped_file.MappedFile, "append", _append_ignoring_errors))

# ---- a disk that hangs


def _without_flush_deadlines(self: Any, *args: Any, **kwargs: Any) -> None:
    _store_init(self, *args, **kwargs)
    self.parts.flush_deadlines.run = _sleep_forever


async def _wait_for_the_segment(self: Any) -> bool:
    await self._store.wait_allocated()
    return True


_store_init = Store.__init__

mutant("nobody expires who waits for the flush", "found by hand", (Store, "__init__", _without_flush_deadlines))
mutant(
    "a send waits for its segment as long as it takes", "found here",
    (put_service.PutMessageService, "_is_segment_made", _wait_for_the_segment),
)  # fmt: skip
mutant("tables are not saved for as long again as the disk hung", "found here", (metadata, "_PAUSE_MAX_S", inf))

# ---- the master's side of replication


def _first_report_unchecked(self: Any, offset: int, log: LogRange) -> None:
    self.first_report = self.slave_ack_offset = offset
    self.next_transfer_from_where = offset or self._start_of_history(log)


def _later_report_unchecked(self: Any, offset: int) -> None:
    self.slave_ack_offset = offset


def _sent_counts(self: Any, connection: Any) -> None:
    session = connection.session
    self._in_sync.acknowledge(connection.replica, session.next_transfer_from_where, begins_at=session.proves_from)
    self.group_transfer.notify_transfer_some()


def _everything_sendable(self: Any, log: Any, network: Any, options: Any) -> None:
    _ha_service_init(self, log, network, options)
    self.sendable = log.wrote


def _answer_at_once(self: Any) -> None:
    self.outstanding = 0
    self._finish()


def _on_replicated_by_timeout(self: Any, reached: bool, value: int) -> None:
    self._one_done()


def _acknowledge_at_once(_self: Any, replica: in_sync.Replica, offset: int, *, begins_at: int) -> None:
    replica.begins_at, replica.reported = min(begins_at, 0) - 1, offset


_ha_service_init = ha_service.HAService.__init__
_FIRST_REPORT_COUNTS = (in_sync.InSyncReplicas, "acknowledge", _acknowledge_at_once)

mutant(
    "the first report is not checked, and counts", "#3016, #1155",
    (Session, "_on_first_report", _first_report_unchecked), _FIRST_REPORT_COUNTS,
)  # fmt: skip
mutant("later reports are not checked", "#3015", (Session, "_on_later_report", _later_report_unchecked))
mutant(
    "no report is checked", "#3015, §2",
    (Session, "_on_first_report", _first_report_unchecked), (Session, "_on_later_report", _later_report_unchecked),
    (master_session.MasterSession, "next_action", lambda self, **kwargs: _safe_action(self, kwargs)),
)  # fmt: skip
mutant("what was sent counts as acknowledged", "§2", (ha_service.HAService, "notify_transfer_some", _sent_counts))
mutant(
    "a forged report outlives its connection", "§2 (executed on 4.9.7)",
    (Session, "_on_first_report", _first_report_unchecked), (in_sync.InSyncReplicas, "remove", nothing),
)  # fmt: skip
mutant("connections are counted, not slaves", "5.x", (in_sync, "_distinct", list))
mutant("one slave is enough, whatever was asked for", "§15.11", (in_sync.InSyncReplicas, "slaves_needed", fixed(1)))
mutant("unflushed bytes are shipped", "#3388, #3161", (ha_service.HAService, "__init__", _everything_sendable))
mutant("SEND_OK without waiting for slaves", "§5.2", (durability.Durability, "__init__", _without_replica_promise))
mutant(
    "a timeout of the slave is a success",
    "#1535",
    (durability._PendingPuts, "on_replicated", _on_replicated_by_timeout),
)
mutant("a timeout of the slave never comes", "#3484, #153", (DeadlineService, "run", lambda _self: _sleep_forever()))
mutant(
    "an answer is given for each wait", "I8",
    (durability._PendingPuts, "_one_done", _answer_at_once),
)  # fmt: skip


def _safe_action(self: Any, kwargs: dict[str, Any]) -> Any:
    self.next_transfer_from_where = max(self.next_transfer_from_where, kwargs["min_offset"])
    return _next_action(self, **kwargs)


async def _sleep_forever() -> None:
    await trio.sleep_forever()


_next_action = Session.next_action

# ---- the slave's side


def _ack_when_written(self: Any) -> None:
    self._appended.set()
    self._reports.report(self.session.boundary_offset)


def _ack_when_received(self: Any) -> None:
    self._appended.set()
    self._reports.report(self.session.position)


def _append_raw_ignoring_errors(self: Any, data: Any, phy_offset: int) -> int:
    try:
        return _append_raw(self, data, phy_offset)
    except StoreError:
        return len(data)


async def _flush_up_to_the_session(self: Any) -> None:
    """Ask for a flush of bytes that are not in the log yet: it never covers them."""
    while True:
        await self._appended.wait()
        self._appended = trio.Event()
        offset = self.session.boundary_offset
        await self._log.flush_now(offset)
        self._reports.report(offset)


async def _wait_flushed_unchecked(self: Any, offset: int) -> None:
    done = trio.Event()
    waiter = self.flushed.add(offset, inf, lambda _reached, _value: done.set())
    self.request_flush()
    try:
        await done.wait()
    finally:
        waiter.cancel()
    if self.flushed.value < offset:
        raise self._flags.write_error


def _report_by_heartbeat(self: Any, offset: int) -> None:
    self.reported_offset = max(self.reported_offset, offset)


async def _gives_up(self: Any) -> None:
    await self._address_known.wait()
    await self._attempt_once()


async def _flushes_never(self: Any, offset: int) -> None:
    if self.role.is_master:
        await self.flush_service.wait_flushed(offset)


_append_raw = Store.append_raw

mutant(
    "a slave acknowledges what is in memory",
    "§2, D3",
    (slave_connection.SlaveConnection, "_acknowledge", _ack_when_written),
)
mutant(
    "a slave acknowledges what it received",
    "§2",
    (slave_connection.SlaveConnection, "_acknowledge", _ack_when_received),
)
mutant("a slave acknowledges without a flush", "D3", (Store, "flush_now", _flushes_never))
mutant("a slave ignores a failed append", "§2", (Store, "append_raw", _append_raw_ignoring_errors))
mutant(
    "the first report acknowledges what is not durable", "found here",
    (slave_connection.SlaveConnection, "_send_first_report", lambda self: self._reports.send_first()),
    _FIRST_REPORT_COUNTS,
)  # fmt: skip
mutant("a slave does not compare the overlap", "D12", (log_receiver.LogReceiver, "_compare", nothing))
mutant(
    "a slave waits for the flush of what it holds back",
    "found here",
    (slave_connection.SlaveConnection, "_make_durable", _flush_up_to_the_session),
    (FlushService, "wait_flushed", _wait_flushed_unchecked),
)
mutant("a slave acknowledges by heartbeat only", "#5657", (report_sender.ReportSender, "report", _report_by_heartbeat))
mutant(
    "a new topic is saved after the answer", "topics",
    (put_service.PutMessageService, "_hold_back", lambda _self, puts, _caller: puts),
)  # fmt: skip
mutant("a flush is not asked for", "prompt", (FlushService, "request_flush", nothing))
mutant("a slave connects once", "liveness", (ha_client.HAClient, "run", _gives_up))

# ---- consumers

mutant(
    "a consumer is sent back to the end of what is dispatched", "found here",
    (pull_message_processor.PullMessageProcessor, "_beyond_the_end",
     lambda _self, _header, result: (ResponseCode.PULL_OFFSET_MOVED, result)),
)  # fmt: skip

# ---- the operator's promises

mutant(
    "a master does not ask its peers at its start",
    "#3388",
    (options, "peers_to_ask", always(())),
)

outsiders.plant()
store_mutants.plant()
takeover_mutants.plant()
