"""What ``rmqha doctor`` finds. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """``level``: ok; warn: it works, and may not be meant; fail: it does not work, or not safely.

    Attributes:
        area: one word.
        what: the facts.
        next: what to do about it.
    """

    level: Level
    area: str
    what: str
    next: str = ""
