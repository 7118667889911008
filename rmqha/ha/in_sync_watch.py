"""InSyncWatch: one line in the log when too few slaves are left, and one when they are back."""

from collections.abc import Callable
from typing import Final

import structlog

from rmqha.log_limit import LogLimit

logger = structlog.get_logger()


class InSyncWatch:
    """Told how many distinct slaves there are whenever that may have changed.

    Args:
        slaves_needed: with fewer than so many a warning is due; at least the last slave is missed.
    """

    def __init__(self, slaves_needed: int) -> None:
        self._needed: Final = max(slaves_needed, 1)
        self._log_limit: Final = LogLimit()
        self._below_since: float | None = 0.0
        self._unsafe_before = 0
        self.count_unsafe: Callable[[], int] = lambda: 0
        """How many sends were answered, since the start, without the replicas that were promised."""

    def begin(self, *, now: float) -> None:
        """Slaves may come from now on; there is none yet."""
        self._below_since = now

    def below_s(self, *, now: float) -> float | None:
        """For how long there have been fewer slaves than needed; None: there are enough."""
        return None if self._below_since is None else now - self._below_since

    def on_joined(self, live: int, *, now: float) -> None:
        """A slave has reported for the first time."""
        if self._below_since is None or live < self._needed:
            return
        if self._log_limit.take(now=now):
            logger.info(
                "ha_service.in_sync",
                slaves=live,
                slaves_needed=self._needed,
                lasted_s=round(now - self._below_since, 3),
                answers_not_send_ok=self.count_unsafe() - self._unsafe_before,
            )
        self._below_since = None

    def on_left(self, live: int, *, peer: str, name: str, slave_ack_offset: int, reason: str, now: float) -> None:
        """A slave is gone."""
        if self._below_since is not None or live >= self._needed:
            return
        self._below_since, self._unsafe_before = now, self.count_unsafe()
        if self._log_limit.take(now=now):
            logger.warning(
                "ha_service.not_in_sync",
                slaves=live,
                slaves_needed=self._needed,
                lost=peer,
                name=name,
                slave_ack_offset=slave_ack_offset,
                reason=reason,
            )
