"""RunningFlags: why a store refuses puts or gets, and the first error, which is final."""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.errors import NOT_WRITABLE, StoreError, StoreWriteError

logger = structlog.get_logger()

NOT_WRITEABLE: Final = 1 << 1
WRITE_LOGICS_QUEUE_ERROR: Final = 1 << 2
WRITE_INDEX_FILE_ERROR: Final = 1 << 3
DISK_FULL: Final = 1 << 4
PEER_LONGER: Final = 1 << 16
"""Like the next, not one of RocketMQ's bits."""
NO_SEGMENT: Final = 1 << 17

_REFUSES_PUTS: Final = (
    NOT_WRITEABLE | WRITE_LOGICS_QUEUE_ERROR | WRITE_INDEX_FILE_ERROR | DISK_FULL | PEER_LONGER | NO_SEGMENT
)


class RunningFlags:
    """The bits of RocketMQ's class of this name (spec: commitlog §13) with the reasons behind them.

    Invariants: ``NOT_WRITEABLE`` is set iff ``write_error`` is; neither is ever taken back by this process, nor is
    ``dispatch_error``. WRITE_LOGICS_QUEUE_ERROR is set iff that or ``dispatch_hold`` is, NO_SEGMENT iff ``put_hold``
    is. Both holds, DISK_FULL and PEER_LONGER come and go.
    """

    def __init__(self) -> None:
        self.bits = 0
        self.write_error: StoreWriteError | None = None
        self.dispatch_error: StoreError | None = None
        self.dispatch_hold: StoreError | None = None
        """Why dispatch waits at present; it tries again."""
        self.put_hold: StoreWriteError | None = None
        """Why the log's next segment cannot be made at present; it is tried again."""
        self.on_write_error: list[Callable[[StoreWriteError], None]] = []
        """Called once each, in order, by the first write error."""
        self._has_space = trio.Event()
        self._has_space.set()
        self._why_refused = ""

    def fail(self, error: StoreWriteError) -> None:
        """A write, allocation or flush failed: from now on nothing is acknowledged (spec: commitlog §6.3).

        Said once; whatever fails afterwards is a consequence.
        """
        if self.write_error is not None:
            return
        self.write_error = error
        self.bits |= NOT_WRITEABLE
        logger.error("store.write_failed", reason=str(error), errno=error.errno)
        for tell in self.on_write_error:
            tell(error)

    def fail_dispatch(self, error: StoreError) -> None:
        """The log cannot be dispatched any further; consumers see nothing new until a restart."""
        if self.dispatch_error is None:
            self.dispatch_error = error
            self.bits |= WRITE_LOGICS_QUEUE_ERROR
            logger.error("reput_message_service.failed", reason=str(error))

    def hold_dispatch(self, error: StoreError) -> None:
        """The log cannot be dispatched at present, for a reason that may pass: puts are refused meanwhile.

        What is not dispatched nobody sees, and on a disk that is full more of it would help nobody.
        """
        if self.dispatch_hold is None:
            logger.warning("reput_message_service.held", reason=str(error))
        self.dispatch_hold = error
        self.bits |= WRITE_LOGICS_QUEUE_ERROR

    def release_dispatch(self) -> None:
        """Dispatch goes on."""
        if self.dispatch_hold is not None:
            self.dispatch_hold = None
            if self.dispatch_error is None:
                self.bits &= ~WRITE_LOGICS_QUEUE_ERROR
            logger.info("reput_message_service.goes_on")

    def hold_puts(self, error: StoreWriteError | None) -> None:
        """The log's next segment cannot be made, for a reason that may pass; None: it is there."""
        if error is not None and self.put_hold is None:
            logger.warning("store.held", reason=str(error))
        elif error is None and self.put_hold is not None:
            logger.info("store.goes_on")
        self.put_hold = error
        self.bits = self.bits & ~NO_SEGMENT if error is None else self.bits | NO_SEGMENT

    @property
    def final_error(self) -> StoreError | None:
        """What ended this store's taking of puts for good, if anything did: the process's exit code tells of it."""
        return self.write_error or self.dispatch_error

    def refuse_puts(self, reason: str) -> None:
        """Refuse puts, in whose places a peer may hold messages; accept them again if ``reason`` is empty."""
        self._why_refused = reason
        self.bits = self.bits | PEER_LONGER if reason else self.bits & ~PEER_LONGER

    @property
    def is_peer_longer(self) -> bool:
        """Whether a peer may hold messages behind this log's end."""
        return bool(self.bits & PEER_LONGER)

    def set_disk_full(self, full: bool) -> None:
        """Puts are refused while the disk is too full."""
        if full != self.is_disk_full:
            self.bits ^= DISK_FULL
            if full:
                self._has_space = trio.Event()
            else:
                self._has_space.set()
            logger.warning("store.disk_full_changed", full=full)

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is above the ratio at which puts are refused."""
        return bool(self.bits & DISK_FULL)

    async def wait_disk_not_full(self) -> None:
        """Return when the disk is not too full any more."""
        await self._has_space.wait()

    @property
    def is_writeable(self) -> bool:
        """Whether puts are taken."""
        return not self.bits & _REFUSES_PUTS

    def refusal(self) -> str:
        """Why puts are refused, for the answer's remark; empty if they are not."""
        if self.write_error is not None:
            return f"{NOT_WRITABLE}: {self.write_error}"
        if self.dispatch_error is not None:
            return f"the store cannot dispatch to its consume queues: {self.dispatch_error}"
        if self.dispatch_hold is not None:
            return f"the store cannot dispatch to its consume queues at present, and tries again: {self.dispatch_hold}"
        if self.put_hold is None and self._why_refused:
            return self._why_refused
        return self.lack_of_room()

    def lack_of_room(self) -> str:
        """Why nothing more fits at present; empty if it does."""
        if self.put_hold is not None:
            return f"the log's next segment cannot be made at present, and is tried again: {self.put_hold}"
        return "the disk is too full" if self.is_disk_full else ""
