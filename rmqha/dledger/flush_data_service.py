"""FlushDataService: makes durable what is written, and notes how far that is.

Source: spec: dledger §1.12; dledger-all-0.3.1.2 DLedgerMmapFileStore.java FlushDataService.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.errors import StoreWriteError

logger = structlog.get_logger()

_SLOW_S: Final = 0.5
_AFTER_A_LACK_S: Final = 0.2
"""The next file of the index cannot be made at present, or the log was cut meanwhile."""


class FlushDataService:
    """One task that flushes the data, then the index; all that is appended during a flush shares the next one.

    DLedger flushes every ``flushFileInterval``, and nobody waits for it. Where an entry counts once it is durable, it
    is flushed at once; else at that interval, too.
    """

    def __init__(
        self, store: DLedgerMmapFileStore, config: DLedgerConfig, *, on_flushed: Callable[[], None] = lambda: None
    ) -> None:
        """``on_flushed`` is called when more is durable, or nothing ever will be again."""
        self._store: Final = store
        self._config: Final = config
        self._on_flushed = on_flushed
        self._has_told = False
        """That the last checkpoint could not be written."""
        self._wakeup = trio.Event()
        self._wakeup.set()
        store.on_appended = self.wakeup

    def wakeup(self) -> None:
        """There is something to flush."""
        self._wakeup.set()

    async def run(self) -> None:
        """Flush until cancelled, or until a flush fails: that is final."""
        check_point_at = trio.current_time() + self._config.check_point_interval_s
        while self._store.write_error is None:
            with trio.move_on_at(check_point_at):
                await self._wakeup.wait()
            self._wakeup = trio.Event()
            if not self._store.is_flushed:
                await self._flush()
            if trio.current_time() >= check_point_at:
                await self._persist_check_point()
                check_point_at = trio.current_time() + self._config.check_point_interval_s
        self._on_flushed()

    async def _flush(self) -> None:
        start, before = trio.current_time(), self._store.flushed_index
        await self._store.flush_in_thread()
        if (took_s := trio.current_time() - start) > _SLOW_S:
            logger.info("flush_data_service.slow", took_s=round(took_s, 3))
        if self._store.flushed_index > before:
            self._on_flushed()
            if not self._config.acks_flushed:
                await trio.sleep(self._config.flush_file_interval_s)
        elif self._store.write_error is None:
            await trio.sleep(_AFTER_A_LACK_S)
        if not self._store.is_flushed:
            self.wakeup()

    async def _persist_check_point(self) -> None:
        """One that cannot be written is tried again: it only makes the next start's work less."""
        try:
            await self._store.persist_check_point_in_thread()
        except StoreWriteError as error:
            if not self._has_told:
                logger.warning("flush_data_service.check_point_failed", reason=str(error))
            self._has_told = True
        else:
            self._has_told = False
