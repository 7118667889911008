"""Hot path: flush services turn what is written into what is durable.

Rules (spec: commitlog §6.3): the flushed position moves only after a successful fdatasync, and only to what was
written before that call was issued; the first failure is final, and no flush is tried again after it. A call that could
not be issued, for want of a thread, is none.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

import structlog
import trio

from rmqha.errors import StoreError, StoreWriteError
from rmqha.store.log import RawLog
from rmqha.store.passing import is_lack
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_options import StoreOptions

logger = structlog.get_logger()

_PAGE_BYTES: Final = 4096
_TRY_AGAIN_S: Final = 1.0


class FlushedLog(RawLog, Protocol):
    """What flushing needs of a log beside its ends.

    Attributes:
        boundary_offset: a record ends here, at or before ``max_offset``.
        last_store_timestamp_ms: the store time of the last record before it.
    """

    boundary_offset: int
    last_store_timestamp_ms: int

    @property
    def file_size(self) -> int:
        """Of how many bytes one fdatasync makes durable at most."""
        ...

    async def flush_in_thread(self, end: int) -> None:
        """Make durable what is written before ``end``; raises ``flushed``.

        What is cut meanwhile is not made durable by it, nor is what is put in the place.

        Raises:
            StoreWriteError: of one file; what was flushed before counts.
        """
        ...


class FlushCommitLogService(ABC):
    """What both flush services share. One task runs it, so at most one fdatasync of the log is under way.

    Invariants: ``flushed_boundary <= flushed.value <= commit_log.max_offset``; a record ends at ``flushed_boundary``,
    and ``flushed_timestamp_ms`` is the store time of one below it.
    """

    def __init__(self, commit_log: FlushedLog, flags: RunningFlags, *, on_flushed: Callable[[], None]) -> None:
        self._commit_log = commit_log
        self._flags = flags
        self._on_flushed = on_flushed
        self._requested = trio.Event()
        self._is_held = False
        self.flushed: Final = commit_log.flushed
        self.flushed_boundary = 0
        self.flushed_timestamp_ms = 0
        flags.on_write_error.append(lambda _: self.flushed.fail_all())

    def request_flush(self) -> None:
        """Flush what is written now as soon as possible; requests made during a flush share the next one."""
        self._requested.set()

    async def wait_flushed(self, offset: int) -> None:
        """Return when everything below ``offset`` is durable; so much must have been written.

        Raises:
            StoreWriteError: it never will be in this process.
            StoreError: the log was cut below it, or closed.
        """
        assert offset <= self._commit_log.max_offset, "the flush that is asked for here would not reach it"
        outcome = [offset <= self.flushed.value]
        if self._flags.write_error is None:
            done = trio.Event()

            def complete(reached: bool, _value: int) -> None:
                outcome[0] = reached
                done.set()

            waiter = self.flushed.add(offset, inf, complete)
            self.request_flush()
            try:
                await done.wait()
            finally:
                waiter.cancel()
        if not outcome[0]:
            raise self._flags.write_error or StoreError(
                f"{offset} is not flushed, and will not be: the log was cut, or closed"
            )

    async def _flush_or_try_again(self) -> None:
        if not await self.flush():
            await trio.sleep(_TRY_AGAIN_S)
            self.request_flush()

    def note_recovered(self) -> None:
        """All that is in the log is durable, says recovery: the checkpoint may say so, too."""
        self.flushed_boundary = self._commit_log.boundary_offset
        self.flushed_timestamp_ms = self._commit_log.last_store_timestamp_ms

    @abstractmethod
    async def run(self) -> None:
        """Flush when this kind of service should, until cancelled or until a flush fails."""

    async def flush(self) -> bool:
        """Make durable what is written at the time of the call.

        Returns:
            Whether it is: False if this, or something before, failed, or there is no thread to do it in at present.
        """
        log = self._commit_log
        end, boundary, timestamp_ms = log.max_offset, log.boundary_offset, log.last_store_timestamp_ms
        if self._flags.write_error is not None:
            return False
        try:
            await log.flush_in_thread(end)
        except StoreWriteError as error:
            if not is_lack(error):
                self._flags.fail(error)
            elif not self._is_held:
                logger.warning("flush_service.held", reason=str(error))
            self._is_held = True
            return False
        if self._is_held:
            self._is_held = False
            logger.info("flush_service.goes_on")
        if boundary <= self.flushed.value:  # else the log was cut meanwhile: the next flush knows where it ends
            self.flushed_boundary, self.flushed_timestamp_ms = boundary, timestamp_ms
        self._on_flushed()
        return True


class GroupCommitService(FlushCommitLogService):
    """SYNC_FLUSH: flush at every request; all that were made during one flush are served by the next."""

    async def run(self) -> None:
        """See :meth:`FlushCommitLogService.run`."""
        while self._flags.write_error is None:
            await self._requested.wait()
            self._requested = trio.Event()
            await self._flush_or_try_again()


class FlushRealTimeService(FlushCommitLogService):
    """ASYNC_FLUSH: flush every ``interval_s`` if enough is dirty, every ``thorough_interval_s`` whatever there is.

    A request is served at once, as in :class:`GroupCommitService`: a slave acknowledges what is durable.
    """

    def __init__(
        self,
        commit_log: FlushedLog,
        flags: RunningFlags,
        *,
        on_flushed: Callable[[], None],
        interval_s: float,
        least_pages: int,
        thorough_interval_s: float,
    ) -> None:
        super().__init__(commit_log, flags, on_flushed=on_flushed)
        self._interval_s = interval_s
        self._least_pages = least_pages
        self._thorough_interval_s = thorough_interval_s

    async def run(self) -> None:
        """See :meth:`FlushCommitLogService.run`."""
        thorough_at = trio.current_time() + self._thorough_interval_s
        while self._flags.write_error is None:
            with trio.move_on_after(self._interval_s) as pause:
                await self._requested.wait()
                self._requested = trio.Event()
            if not pause.cancelled_caught or trio.current_time() >= thorough_at or self._is_much_dirty():
                await self._flush_or_try_again()
                thorough_at = trio.current_time() + self._thorough_interval_s

    def _is_much_dirty(self) -> bool:
        log = self._commit_log
        flushed, end = self.flushed.value, log.max_offset
        rolled = flushed < end and flushed // log.file_size != end // log.file_size
        return rolled or end // _PAGE_BYTES - flushed // _PAGE_BYTES >= self._least_pages


def make_flush_service(
    commit_log: FlushedLog,
    flags: RunningFlags,
    *,
    options: StoreOptions,
    on_flushed: Callable[[], None],
) -> FlushCommitLogService:
    """The service that keeps the flush type's promise: the log's ``flushed`` rises, and ``on_flushed`` is called."""
    if options.sync_flush:
        return GroupCommitService(commit_log, flags, on_flushed=on_flushed)
    return FlushRealTimeService(
        commit_log,
        flags,
        on_flushed=on_flushed,
        interval_s=options.flush_interval_commit_log_s,
        least_pages=options.flush_commit_log_least_pages,
        thorough_interval_s=options.flush_commit_log_thorough_interval_s,
    )
