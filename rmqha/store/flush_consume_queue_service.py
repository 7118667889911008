"""FlushConsumeQueueService: makes the queues durable now and then, and the checkpoint after them."""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.errors import StoreError, StoreReadError, StoreWriteError
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.flush_service import FlushCommitLogService
from rmqha.store.passing import may_pass
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_checkpoint import StoreCheckpoint

logger = structlog.get_logger()

_LOOKED_AT_AT_ONCE: Final = 1000


class FlushConsumeQueueService:
    """Every ``interval_s`` the queues with much to flush, every ``thorough_interval_s`` all and the checkpoint.

    The first time at once: what recovery made durable is noted before the next crash, or each recovery of a broker
    that is killed again and again would begin where the one before began.

    The queues can be built again from the log, so a failing flush stops dispatching and nothing else
    (spec: commitlog §6.3 rule 9, §8.3); the checkpoint then moves for the log alone: where dispatch met damage, the
    next start must not take it for a crash's. It stays where it is while there is no space for it, a queue cannot be
    opened, or one is being built again: the next recovery then begins earlier.
    """

    def __init__(
        self,
        queues: ConsumeQueueTable,
        checkpoint: StoreCheckpoint,
        *,
        flush_service: FlushCommitLogService,
        reput: ReputMessageService,
        index_timestamp_ms: Callable[[], int] = lambda: 0,
        flags: RunningFlags,
        interval_s: float,
        least_pages: int,
        thorough_interval_s: float,
    ) -> None:
        self._queues: Final = queues
        self._checkpoint: Final = checkpoint
        self._flush_service: Final = flush_service
        self._reput: Final = reput
        self._index_timestamp_ms: Final = index_timestamp_ms
        self._flags: Final = flags
        self._interval_s = interval_s
        self._least_pages = least_pages
        self._thorough_interval_s = thorough_interval_s
        self._postponed = False

    async def run(self) -> None:
        """Flush until cancelled, or until dispatch has ended for good."""
        await self.flush_all()
        thorough_at = trio.current_time() + self._thorough_interval_s
        while self._flags.dispatch_error is None:
            await trio.sleep(self._interval_s)
            if trio.current_time() >= thorough_at:
                await self.flush_all()
                thorough_at = trio.current_time() + self._thorough_interval_s
            else:
                await self._flush(least_pages=self._least_pages)
        await self._note_log()

    async def flush_all(self) -> bool:
        """Make every queue durable, then say so in the checkpoint; False if that failed, now or before."""
        if self._flags.dispatch_error is not None:
            await self._note_log()
            return False
        log = self._flush_service
        boundary, log_timestamp_ms = log.flushed_boundary, log.flushed_timestamp_ms
        queues_timestamp_ms = self._reput.dispatched_timestamp_ms
        index_timestamp_ms = self._index_timestamp_ms()
        if not await self._flush(least_pages=0) or boundary > log.flushed_boundary:
            return False  # in the second case the log has begun anew meanwhile
        return await self._note(
            boundary, log_ms=log_timestamp_ms, queues_ms=queues_timestamp_ms, index_ms=index_timestamp_ms
        )

    async def flush_all_within(self, limit_s: float) -> bool:
        """As :meth:`flush_all`, for a stop: what takes longer is left to the next start, and False."""
        with trio.move_on_after(limit_s):
            return await self.flush_all()
        await self._note_log()
        return False

    async def _note_log(self) -> None:
        log = self._flush_service
        await self._note(log.flushed_boundary, log_ms=log.flushed_timestamp_ms)

    async def _note(self, boundary: int, *, log_ms: int, queues_ms: int = 0, index_ms: int = 0) -> bool:
        """So far the log is durable; and its queues and index, if they are named. False if it could not be written."""
        try:
            await self._checkpoint.update_in_thread(
                commit_log_timestamp_ms=log_ms,
                consume_queue_timestamp_ms=queues_ms,
                index_timestamp_ms=index_ms,
                flushed_offset=boundary,
            )
        except StoreWriteError as error:
            if may_pass(error):
                self._postpone(error)
            else:
                self._flags.fail(error)
            return False
        self._postponed = False
        return True

    def _postpone(self, error: StoreError) -> None:
        if not self._postponed:
            logger.warning("flush_consume_queue_service.postponed", reason=str(error))
        self._postponed = True

    async def _flush(self, *, least_pages: int) -> bool:
        if self._flags.dispatch_error is not None:
            return False
        dirty, all_flushed = self._queues.dirty, not self._queues.lost
        for number, queue in enumerate(list(dirty)):
            if number % _LOOKED_AT_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if queue.dirty_pages < least_pages:
                continue
            try:
                await queue.flush_in_thread()
            except StoreReadError as error:
                self._postpone(error)
                all_flushed = False
                continue
            except StoreWriteError as error:
                self._flags.fail_dispatch(error)
                return False
            if queue.flushed_offset == queue.queue.max_offset:
                dirty.pop(queue, None)
        return all_flushed
