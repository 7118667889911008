"""UnsafeAnswers: says in the log that sends are not answered SEND_OK, which their producers alone were told."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from rmqha.store.status import PutMessageStatus

logger = structlog.get_logger()

LINE_EVERY_S: Final = 60.0


class UnsafeAnswers:
    """Of one broker: the first is told at once, the others with how many there were, a line a minute."""

    def __init__(self, count: Callable[[Sequence[PutMessageStatus]], None], *, clock: Callable[[], float]) -> None:
        """``count`` is told all that :meth:`note` is; ``clock`` tells seconds."""
        self._count: Final = count
        self._clock: Final = clock
        self._untold: Final = Counter[str]()
        self._told_at: float | None = None

    def note(self, statuses: Sequence[PutMessageStatus]) -> None:
        """Puts were answered so, not all of them with PUT_OK."""
        self._count(statuses)
        self._untold.update(status.value for status in statuses if status is not PutMessageStatus.PUT_OK)
        now = self._clock()
        if self._told_at is not None and now - self._told_at < LINE_EVERY_S:
            return
        self._told_at = now
        logger.warning(
            "puts.not_send_ok",
            answers=dict(self._untold),
            consequence="they are in this broker's log, and not as safe as SEND_OK promises",
            next="rmqha status says why; docs/operations.md, 'Sends are not answered SEND_OK'",
        )
        self._untold.clear()
