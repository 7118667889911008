"""One key of broker.conf, declared where the attribute is that it fills."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from rmqha.config.kinds import Kind

METADATA: Final = "rmqha.key"

MASTER: Final = "master"
SLAVE: Final = "slave"
BOTH: Final = "master and slave"


@dataclass(frozen=True)
class Key:
    """A row of the table.

    Attributes:
        default: as it would be written in the file; empty where ``derived`` says how it comes about.
        low: smallest number accepted, in the file's unit (``high`` likewise).
        ours: True for a key that RocketMQ does not know (its brokers ignore it).
    """

    name: str
    kind: Kind
    default: str
    meaning: str
    section: str = ""
    attribute: str = ""
    low: int | None = None
    high: int | None = None
    derived: str = ""
    roles: str = BOTH
    ours: bool = False

    def parse(self, text: str) -> Any:
        """Return the program's value for ``text``.

        Raises:
            ValueError: the text is no such value, or is out of range; the message says which.
        """
        value = self.kind.parse(text)
        if self.kind.scale is not None and not self._in_range(int(text)):
            raise ValueError(f"{text} is outside {self.range}")
        return value

    def _in_range(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    @property
    def range(self) -> str:
        """The accepted values in words: ``1..65535``, ``at least 1``, ``true, false`` or nothing."""
        if self.kind.choices:
            return ", ".join(self.kind.choices)
        if self.kind.name == "boolean":
            return "true, false"
        if self.low is not None and self.high is not None:
            return f"{self.low}..{self.high}"
        return f"at least {self.low}" if self.low is not None else ""


def key(name: str, kind: Kind, default: str, **facts: Any) -> Any:
    """Declare the dataclass field of the key ``name``; ``facts`` are further fields of :class:`Key`."""
    declared = Key(name, kind, default, **facts)
    derived_only = not default and bool(declared.derived)
    value = kind.empty if derived_only else kind.parse(default)
    return field(default=value, metadata={METADATA: declared})


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known key that is most like ``name``; None if none is much like it."""
    candidates = {key.lower(): key for key in known}
    found = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
    return candidates[found[0]] if found else None
