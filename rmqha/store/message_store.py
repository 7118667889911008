"""DefaultMessageStore: log, queues and their services as one store with one life.

``load()`` makes it consistent, ``run()`` serves until ``stop()``, and then a clean shutdown leaves nothing to repair.
One object, one life: what was stopped, or cancelled, is opened again with a new object.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import structlog
import trio

from rmqha.errors import StoreError, StoreWriteError
from rmqha.memory import BytesLike
from rmqha.store.confirm_offset import NO_LIMIT
from rmqha.store.consume_queue_table import Listener, QueueKey
from rmqha.store.disk import Closable
from rmqha.store.log import PutRequest
from rmqha.store.log_recovery import LogRecovery
from rmqha.store.parts import StoreParts
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.start import (
    describe_dropped,
    load_and_recover,
    lock_store,
    mark_unused,
    next_queue_offsets_in_turns,
)
from rmqha.store.status import AppendResult, PutMessageStatus

logger = structlog.get_logger()

_DISPATCH_S: Final = 5.0
_QUEUES_FLUSHED_S: Final = 20.0
"""A stop takes no longer for these: after it the next start has more to do, and nothing is lost."""


class DefaultMessageStore:
    """A store of messages on one disk.

    Invariant: ``min_offset <= flushed.value <= wrote.value == max_offset`` from :meth:`load` on, and consumers see
    nothing at or beyond ``confirm_offset``.
    """

    def __init__(self, parts: StoreParts) -> None:
        self.parts: Final = parts
        self.options: Final = parts.options
        self.role: Final = parts.role
        self.disk: Final = parts.disk
        self.running_flags: Final = parts.running_flags
        self.commit_log: Final = parts.commit_log
        self.queues: Final = parts.queues
        self.cleaner: Final = parts.cleaner
        self.stats: Final = parts.stats
        self.wrote: Final = parts.commit_log.wrote
        self.flush_service: Final = parts.flush_service
        self.flushed: Final = parts.commit_log.flushed
        self.confirm_offset: Final = parts.confirm_offset.value
        """Consumers may see what lies before it; see :class:`ConfirmOffset`."""
        self.next_queue_offset: Final = parts.commit_log.next_queue_offset
        self.wait_allocated: Final = parts.commit_log.wait_allocated
        """Until the rest of a put, or of what another node wrote, is worth another try."""
        self.dropped = ""
        """Which whole records the start cut from the log, in a sentence; empty if none."""
        self.reput: Final = parts.reput
        self.queue_rebuild: Final = parts.queue_rebuild
        self.damaged_records: Final = parts.damaged_records
        self.index: Final = parts.index
        self.query_message: Final = parts.index_query.query_message
        self.get_message: Final = parts.reader.get_message
        self.physical_offset_of: Final = parts.reader.physical_offset_of
        self.earliest_message_time_ms: Final = parts.reader.earliest_message_time_ms
        self.earliest_message_time_in_queue_ms: Final = parts.reader.earliest_message_time_in_queue_ms
        self.look_message_by_offset: Final = parts.reader.look_message_by_offset
        self.stored_message_at: Final = parts.reader.stored_message_at
        self.store_time_in_queue: Final = parts.reader.store_time_in_queue
        self.get_max_offset_in_queue: Final = parts.reader.get_max_offset_in_queue
        self.get_min_offset_in_queue: Final = parts.reader.get_min_offset_in_queue
        self.get_offset_in_queue_by_time: Final = parts.reader.get_offset_in_queue_by_time
        self.first_stored_from: Final = parts.reader.first_stored_from
        self.root_as_of: int | None = None
        """See :attr:`LogRecovery.root_as_of`."""
        self.on_older_root: Callable[[], None] = lambda: None
        """Called by :meth:`load` if that finds it, before anything that tells of it is changed."""
        self.recovery: Final = RecoveryProgress()
        """How far :meth:`load` is."""
        self.taken_to = 0
        """Behind the last byte that came from another node's log in this life."""
        self._lock: Closable | None = None
        self._serving = False
        self._stopping = trio.Event()

    def connect_replication(
        self,
        *,
        confirmed: Callable[[], int] = lambda: NO_LIMIT,
        kept_from: Callable[[], int] = lambda: NO_LIMIT,
        is_far_behind: Callable[[], bool] = lambda: False,
    ) -> None:
        """Obey what copies this log to other nodes; see ``broker/replication.py``.

        Args:
            confirmed: nothing at or beyond it may be seen; call :meth:`confirm` when it moves.
            kept_from: the smallest offset that another node still has to be sent.
            is_far_behind: whether this log is catching up with another's.
        """
        self.parts.confirm_offset.limit_to(confirmed)
        self.cleaner.keep_from(kept_from)
        self.reput.give_way_while(is_far_behind)

    def connect_consumers(self, on_arrival: Listener, *, is_awaited: Callable[[], bool] = lambda: False) -> None:
        """Tell ``on_arrival`` where queues end now, promptly while ``is_awaited()``."""
        self.queues.on_arrival.append(on_arrival)
        self.reput.hurry_while(is_awaited)

    # ---- life

    def load(self) -> LogRecovery:
        """Lock the store, find and repair its end, and dispatch what the queues lack. Blocks; nothing is served yet.

        Raises:
            StoreLockedError: another process uses it.
            CorruptLogError: it needs a human: nothing was cut.
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        self._lock = lock_store(self.disk, self.options.store_path_root_dir, *self.commit_log.to_lock)
        try:
            report = load_and_recover(
                self.disk,
                self.options,
                log=self.commit_log,
                queues=self.queues,
                checkpoint=self.parts.checkpoint,
                reput=self.reput,
                progress=self.recovery,
                on_older_root=self.on_older_root,
            )
        except StoreError:
            self.close()
            raise
        self.dropped, self.root_as_of = describe_dropped(report), report.root_as_of
        if self.root_as_of is not None and self.role.is_master:  # a slave has that from its master
            root = self.options.store_path_root_dir
            logger.warning("store.root_older", root=root, as_of=self.root_as_of, max_offset=self.max_offset)
        self.flush_service.note_recovered()
        self.index.begin(self.max_offset, dispatched=self.reput.reput_from_offset)
        return report

    async def load_in_thread(self) -> None:
        """As :meth:`load`, without holding up the event loop; nothing but ``recovery`` may be looked at meanwhile."""
        await self.disk.in_thread(lambda: self.load())  # noqa: PLW0108 - as it is when the thread begins

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until :meth:`stop`, then shut down cleanly. Cancelled instead, it leaves what a crash would leave."""
        try:
            async with trio.open_nursery() as services:
                for service in self.parts.services:
                    services.start_soon(service.run)
                self._serving = True
                self.reput.wakeup()
                if self.role.is_master:
                    self.commit_log.prepare_first()
                task_status.started()
                await self._stopping.wait()
                self._serving = False
                services.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await self._shut_down()
        finally:
            self._serving = False
            self.close()

    def stop(self) -> None:
        """Begin the shutdown: puts are refused from now on, and :meth:`run` returns when all is safe on disk."""
        self._serving = False
        self._stopping.set()

    async def _shut_down(self) -> None:
        """Flush and dispatch everything; ``abort`` goes only if there is nothing left to repair.

        The log takes its time. Thousands of new queues are left to the next start: a service manager's kill would be.
        """
        is_flushed = await self.flush_service.flush()
        try:
            await self.reput.finish_within(_DISPATCH_S)
        except StoreError as error:
            self.running_flags.fail_dispatch(error)
        if is_flushed:  # where records end a slave has just learned
            self.flush_service.note_recovered()
        await self.index.finish()
        are_queues_flushed = await self.parts.flush_queues.flush_all_within(_QUEUES_FLUSHED_S)
        clean = are_queues_flushed and is_flushed and self.write_error is None
        clean = clean and self.reput.reput_from_offset == self.max_offset
        if clean:
            mark_unused(self.disk, self.options)
        logger.info("store.stopped", clean=clean, flushed=self.flushed.value, max_offset=self.max_offset)

    def close(self) -> None:
        """Answer the waiters, close every file and release the lock. Idempotent; not a clean shutdown."""
        self.commit_log.close()
        self.queues.close()
        self.index.close()
        if self._lock is not None:
            self._lock.close()

    # ---- writing

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """Hot path: append a list of messages at once; see :meth:`Log.put_messages`.

        Never waits and raises nothing for a refusal. A list of results shorter than ``requests`` means that there is
        no room for the rest yet: ``await wait_allocated()`` and put the rest, or use
        :meth:`put_messages_when_allocated`. PUT_OK here means appended: what else SEND_OK promises is waited for by
        ``flushed`` and the replicas' watermark.
        """
        if not self._serving or not self.role.is_master or not self.running_flags.is_writeable:
            return self._refuse(requests)
        put = self._put_around_stopped if self.queues.stopped else self.commit_log.put_messages
        results = put(requests)
        self._appended()
        return results

    def _put_around_stopped(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """As :meth:`put_messages`, but for messages for queues that have stopped: nobody would see them."""
        results: list[AppendResult] = []
        for is_stopped, group in groupby(requests, self._is_for_a_stopped_queue):
            together = [*group]
            if is_stopped:
                results += [self._refused_for_its_queue(request) for request in together]
                continue
            results += (put := self.commit_log.put_messages(together))
            if len(put) < len(together):
                break
        return results

    def _is_for_a_stopped_queue(self, request: PutRequest) -> bool:
        is_taken = self.queues.stopped.takes(request.topic, request.queue_id)
        return not is_taken and not self.commit_log.has_begun(request)

    def _refused_for_its_queue(self, request: PutRequest) -> AppendResult:
        remark = self.queues.stopped.refusal(request.topic, request.queue_id)
        return AppendResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=remark)

    def queue_for(self, topic: str, queue_id: int) -> int:
        """The queue for a message that was taken earlier to go to this one; see :meth:`StoppedQueues.instead_of`."""
        return self.queues.stopped.instead_of(topic, queue_id, lost=self.queues.lost)

    def refusal(self) -> str:
        """Why puts are refused at present; empty if they are not."""
        if not self._serving:
            return "the store is not running, or shutting down"
        return self.role.refusal() or self.running_flags.refusal()

    def _refuse(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        results = [self._refused()] * len(requests)
        if requests and self.commit_log.has_begun(requests[0]):
            remark = f"a part of the batch is stored: {self.refusal()}"
            results[0] = AppendResult(PutMessageStatus.UNKNOWN_ERROR, remark=remark)
        return results

    def _refused(self) -> AppendResult:
        error = self.write_error or self.running_flags.put_hold
        if error is not None and error.operation == "create":
            return AppendResult(PutMessageStatus.CREATE_MAPEDFILE_FAILED, remark=self.refusal())
        return AppendResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=self.refusal())

    async def put_messages_when_allocated(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        """As :meth:`put_messages`, but with a result for every request: waits for room as long as it takes."""
        results = self.put_messages(requests)
        while len(results) < len(requests):
            await self.wait_allocated()
            results += self.put_messages(requests[len(results) :])
        return results

    def append_raw(self, data: BytesLike, phy_offset: int) -> int:
        """See :meth:`RawLog.append_raw`. ``await wait_allocated()`` before the rest is appended."""
        if self.write_error is not None:
            raise self.write_error
        if not self._serving:
            raise StoreError("the store is not running, or shutting down")
        taken = self.commit_log.append_raw(memoryview(data), phy_offset)
        self.taken_to = phy_offset + taken
        self._appended()
        return taken

    def start_at(self, phy_offset: int) -> None:
        """See :meth:`RawLog.start_at`. Nothing vouches any more for what was there before it.

        Raises:
            StoreWriteError: the disk does not let it.
        """
        if phy_offset < self.max_offset:
            self.parts.checkpoint.forget()
            self.queues.stopped.clear()
        self.commit_log.start_at(phy_offset)
        self.flush_service.note_recovered()
        self.reput.begin_at(phy_offset)
        self.index.begin_anew()

    async def recover_topic_queue_table(self) -> None:
        """Learn the queues' next offsets from the log; needed before puts if bytes came by :meth:`append_raw`."""
        self.commit_log.learn_queue_offsets(await self.next_queue_offsets())

    def end_of_queue(self, topic: str, queue_id: int) -> int:
        """Behind its last message; on a slave as far as the log is dispatched."""
        return max(self.next_queue_offset(topic, queue_id), self.queues.range_of(topic, queue_id)[1])

    async def next_queue_offsets(self) -> dict[QueueKey, int]:
        """Those that the log and the consume queues tell, in turns; what is appended meanwhile may be missing."""
        dispatched = self.reput.reput_from_offset
        return await next_queue_offsets_in_turns(self.commit_log, self.queues, dispatched=dispatched)

    def _appended(self) -> None:
        if self.options.sync_flush:
            self.flush_service.request_flush()
        if self.confirm_offset() > self.reput.reput_from_offset:
            self.reput.wakeup()

    async def flush_now(self, offset: int) -> None:
        """Return when everything below ``offset`` is durable, whatever the flush type. Raises StoreWriteError."""
        await self.flush_service.wait_flushed(offset)

    def request_flush(self) -> None:
        """Have flushed soon what is written now; ``flushed`` tells when."""
        self.flush_service.request_flush()

    @property
    def write_error(self) -> StoreWriteError | None:
        """The first write, allocation or flush that failed: final, nothing is acknowledged any more."""
        return self.running_flags.write_error

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is too full for puts."""
        return self.running_flags.is_disk_full

    @property
    def disk_used_percent(self) -> int | None:
        """How full the disk of the log is at the last look; None if that cannot be told."""
        return self.cleaner.disk_used_percent

    async def wait_writable(self) -> None:
        """Return when the disk is not too full to take more of a master's log."""
        await self.running_flags.wait_disk_not_full()

    # ---- positions

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is still there."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """Offset behind the last byte written."""
        return self.commit_log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Offset behind the last durable byte."""
        return self.flushed.value

    @property
    def reput_from_offset(self) -> int:
        """Everything before is dispatched, and can be seen by consumers."""
        return self.reput.reput_from_offset

    def hidden_messages(self) -> dict[str, Any] | None:
        """See :meth:`HiddenMessages.facts`."""
        return self.queues.hidden.facts(log_begins_at=self.min_offset, log_ends_at=self.max_offset)

    def confirm(self) -> None:
        """``confirm_offset`` may have moved: dispatch goes on."""
        self.reput.wakeup()
