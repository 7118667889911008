"""AllocateMappedFileService: makes the next segment ahead of its need, so that no append waits for the device."""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.errors import StoreWriteError
from rmqha.store.disk import DataFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.passing import is_lack
from rmqha.store.running_flags import RunningFlags

logger = structlog.get_logger()

_TRY_AGAIN_S: Final = 1.0


class _Attempt:
    """One creation. It is over once ``file`` or ``error`` is set; then every waiter is told.

    ``is_held``: it has failed for a reason that may pass, while somebody waited.
    """

    def __init__(self, offset: int) -> None:
        self.offset: Final = offset
        self.file: DataFile | None = None
        self.error: StoreWriteError | None = None
        self.is_held = False
        self.waiters: list[Callable[[], None]] = []


class AllocateMappedFileService:
    """Creates segments of ``queue`` in a worker thread, one at a time.

    Invariant: at most one file exists that is not in the queue yet, and it is the queue's next.
    A creation that fails ahead of its need is only a warning, tried again when the segment is needed. If one fails
    that is waited for, that is final, unless something is merely lacking: then who waits is told, so that nobody waits
    long, and it is tried again until it succeeds. Nor does anybody wait once the store has failed, such as by a flush.
    """

    def __init__(self, queue: MappedFileQueue, *, flags: RunningFlags) -> None:
        self._queue = queue
        self._flags = flags
        self._attempt: _Attempt | None = None
        self._requested = trio.Event()
        self._closed = False
        flags.on_write_error.append(self._on_write_error)

    def _on_write_error(self, _error: StoreWriteError) -> None:
        """Nothing will be written to the segment: nobody waits for it."""
        if self._attempt is not None:
            _tell_all(self._attempt)

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`take` will give the next segment."""
        return self._attempt is not None and self._attempt.file is not None

    def prepare(self) -> None:
        """Ask for the queue's next segment, unless that was done before."""
        if self._attempt is None:
            self._request()

    def _request(self) -> _Attempt:
        self._attempt = _Attempt(self._queue.next_file_offset)
        self._requested.set()
        return self._attempt

    def take(self) -> DataFile | None:
        """The next segment if it is ready; the caller adds it to the queue."""
        attempt = self._attempt
        if attempt is None or attempt.file is None:
            return None
        assert attempt.offset == self._queue.next_file_offset, "prepared for another place"
        self._attempt = None
        return attempt.file

    def when_allocated(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once: the next segment is ready, making it has failed, or the store has. Try again."""
        attempt = self._attempt
        if attempt is None or attempt.error is not None:
            attempt = self._request()
        if attempt.file is not None or self._closed or self._flags.write_error is not None:
            tell()
        else:
            attempt.waiters.append(tell)

    async def wait_allocated(self) -> None:
        """As :meth:`when_allocated`, for a task."""
        done = trio.Event()
        self.when_allocated(done.set)
        await done.wait()

    async def run(self) -> None:
        """Create what is asked for until cancelled; an unused file is then deleted, and the waiters are told."""
        try:
            while True:
                await self._requested.wait()
                self._requested = trio.Event()
                if self._attempt is not None:
                    await self._create(self._attempt)
        finally:
            self._closed = True
            self.discard()

    async def _create(self, attempt: _Attempt) -> None:
        while attempt is self._attempt:
            if await self._try(attempt):
                break
            await trio.sleep(_TRY_AGAIN_S)
        if attempt is not self._attempt:
            self._delete(attempt)
        _tell_all(attempt)

    async def _try(self, attempt: _Attempt) -> bool:
        """Whether the attempt is over: its file is there, its failure is final, or nobody wants it any more."""
        path = self._queue.segment_path(attempt.offset)
        try:
            attempt.file = await self._queue.make_in_thread(path)
        except StoreWriteError as error:
            if not attempt.is_held:
                logger.warning("allocate_mapped_file_service.failed", path=path, reason=str(error))
            return self._is_over(attempt, error)
        self._flags.hold_puts(None)
        return True

    def _is_over(self, attempt: _Attempt, error: StoreWriteError) -> bool:
        if not (attempt.waiters or attempt.is_held):
            attempt.error = error
        elif not is_lack(error):
            attempt.error = error
            self._flags.fail(error)
        else:
            attempt.is_held = True
            self._flags.hold_puts(error)
            _tell_all(attempt)
        return attempt.error is not None

    def discard(self) -> None:
        """Forget what was asked for: a file made for it is deleted, and the waiters are told."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._flags.hold_puts(None)
            self._delete(attempt)
            _tell_all(attempt)

    def _delete(self, attempt: _Attempt) -> None:
        """Delete an unused file, if it was made; one that cannot be deleted is all zeros and does no harm."""
        file, attempt.file = attempt.file, None
        if file is not None:
            file.close()
            try:
                self._queue.disk.unlink(file.path)
            except StoreWriteError as error:
                logger.warning("allocate_mapped_file_service.discard_failed", path=file.path, reason=str(error))


def _tell_all(attempt: _Attempt) -> None:
    waiters, attempt.waiters = attempt.waiters, []
    for tell in waiters:
        tell()
