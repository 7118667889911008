"""The journal of one simulated run: every event goes into a digest, so two runs can be compared bit for bit."""

import hashlib
import marshal
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import ClassVar, Final

_KIND: Final = itemgetter(1)
_WITHOUT_REFERENCES: Final = 2
"""The format of marshal in which equal values are equal bytes."""

Fact = str | float | None


class NodeDied(BaseException):
    """The process this code runs in does not exist any more. Nothing in the product may catch it."""


class Journal:
    """Takes every event of a run. ``digest`` depends on the events, their order and their virtual times alone."""

    def __init__(self, *, now: Callable[[], float] = lambda: 0.0) -> None:
        self.now = now
        self._events: list[tuple[float, str, tuple[Fact, ...]]] = []
        self._marks: list[str] = []

    def record(self, kind: str, *facts: Fact) -> None:
        """Note that something happened."""
        self._events.append((self.now(), kind, facts))

    def mark(self, state: str) -> None:
        """Count that a state worth reaching was reached (coverage of states, not part of the digest)."""
        self._marks.append(state)

    @property
    def counts(self) -> Counter[str]:
        """How often each kind of event, and each state marked by :meth:`mark`, was reached."""
        return Counter([*map(_KIND, self._events), *self._marks])

    @property
    def events(self) -> list[str]:
        """A line for each."""
        return [f"{at!r} {kind} {facts}" for at, kind, facts in self._events]

    @property
    def digest(self) -> str:
        """The fingerprint of everything recorded so far."""
        return hashlib.blake2b(marshal.dumps(self._events, _WITHOUT_REFERENCES), digest_size=16).hexdigest()


class CountingLogger:
    """What structlog hands to the brokers in a simulation: it counts events by name and writes nothing."""

    events: ClassVar[Counter[str]] = Counter()

    def __init__(self, *_: object, **__: object) -> None:
        """Takes whatever structlog gives a wrapper."""

    def _count(self, event: str, **_: object) -> None:
        self.events[event] += 1

    info = warning = error = _count

    def debug(self, _event: str, **_: object) -> None:
        """Not a line that an operator gets."""

    def bind(self, **_: object) -> "CountingLogger":
        """Itself: facts are not counted."""
        return self
