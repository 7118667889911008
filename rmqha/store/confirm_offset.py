"""ConfirmOffset: how far the log may be dispatched, and so be seen by consumers."""

from collections.abc import Callable
from typing import Final

from rmqha.store.log import Log

NO_LIMIT: Final = 1 << 63


class ConfirmOffset:
    """What the log confirms under SYNC_FLUSH, else what is written; and within what replication confirms."""

    def __init__(self, log: Log, *, sync_flush: bool) -> None:
        self._log: Final = log
        self._sync_flush: Final = sync_flush
        self._confirmed: Callable[[], int] = lambda: NO_LIMIT

    def limit_to(self, confirmed: Callable[[], int]) -> None:
        """From now on nothing at or beyond ``confirmed()`` may be seen either."""
        self._confirmed = confirmed

    def value(self) -> int:
        """Everything before may be seen."""
        return min(self._log.confirmed if self._sync_flush else self._log.max_offset, self._confirmed())
