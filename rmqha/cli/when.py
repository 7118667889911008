"""The grammar of places in a queue: ``start``, ``end``, ``-N``, ``@TIME``. Pure: the clock is an argument.

start            the oldest message still there
end              nothing yet, only what comes
-N               the last N messages
N                queue offset N (in each queue)
@2026-11-21T10:00[:30][+01:00]   a store time; local time without a zone; the date alone is its midnight
@1795174284839   milliseconds since the epoch
@-15m            so long ago: s, m, h, d
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Start:
    """The oldest message still there."""


@dataclass(frozen=True)
class End:
    """After the newest."""


@dataclass(frozen=True)
class Last:
    """The last ``count`` messages."""

    count: int


@dataclass(frozen=True)
class Offset:
    """Queue offset ``value``."""

    value: int


@dataclass(frozen=True)
class Time:
    """The first message stored at ``timestamp_ms`` or later."""

    timestamp_ms: int


Place = Start | End | Last | Offset | Time


def parse_place(text: str, *, now_ms: int) -> Place:
    """Read one place.

    Raises:
        ValueError: it is none of the grammar's forms.
    """
    if text == "start":
        return Start()
    if text == "end":
        return End()
    if text.startswith("@"):
        return Time(parse_time(text[1:], now_ms=now_ms))
    if re.fullmatch(r"-\d{1,9}", text, re.ASCII):
        return Last(int(text[1:]))
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return Offset(int(text))
    raise ValueError(f"{text!r} is none of: start, end, -N, N, @TIME (@2026-11-21T10:00, @1795174284839, @-15m)")


def parse_time(text: str, *, now_ms: int) -> int:
    """Return milliseconds since the epoch for a time of the grammar, without its ``@``.

    Raises:
        ValueError: it is no time.
    """
    if found := re.fullmatch(r"-(\d{1,9})([smhd])", text, re.ASCII):
        return now_ms - int(found[1]) * _UNITS_MS[found[2]]
    if re.fullmatch(r"\d{9,18}", text, re.ASCII):
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time: write 2026-11-21T10:00, milliseconds, or -15m") from None


def parse_span(text: str) -> float:
    """Return the seconds of ``500ms``, ``1.5s``, ``1m``, ``2h``, ``1d``.

    Raises:
        ValueError: it is none of these, or no time at all.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(ms|[smhd])", text, re.ASCII)
    if not found or not float(found[1]):
        raise ValueError(f"{text!r} is no span of time: write 500ms, 10s, 1m, 2h or 1d")
    return float(found[1]) * _UNITS_MS[found[2]] / 1000
