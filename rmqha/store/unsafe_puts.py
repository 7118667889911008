"""UnsafePuts: since when puts are answered otherwise than SEND_OK, and how: what their producers alone were told."""

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from rmqha.store.status import PutMessageStatus

_OVER_AFTER_S: Final = 60.0


class UnsafePuts:
    """The last while of them: it is over after a minute without one, and the next one begins another."""

    def __init__(self) -> None:
        self._answers = Counter[PutMessageStatus]()
        self._first_at = self._last_at = 0.0

    def note(self, unsafe: Collection[PutMessageStatus], *, now: float) -> None:
        """Puts were answered so. ``now`` is any clock in seconds, the same for :meth:`facts`."""
        if not unsafe:
            return
        if now > self._last_at + _OVER_AFTER_S:
            self._answers.clear()
        if not self._answers:
            self._first_at = now
        self._last_at = now
        self._answers.update(unsafe)

    def facts(self, *, now: float) -> dict[str, Any] | None:
        """``{"for_s": 35.0, "last_s_ago": 0.5, "answers": {"SLAVE_NOT_AVAILABLE": 12}}``; None: there was none."""
        if not self._answers:
            return None
        return {
            "for_s": round(self._last_at - self._first_at, 3),
            "last_s_ago": round(now - self._last_at, 3),
            "answers": {status.value: count for status, count in self._answers.items()},
        }
