"""Rows for eyes, in columns. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rmqha.logs import escaped


def render_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lines of aligned columns below their names: numbers to the right, with thousands' commas; None is ``-``.

    What others wrote, such as names of topics, moves no cursor.
    """
    shown = list(rows)
    cells = [list(map(_text, row)) for row in shown]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    right = [any(type(row[at]) in (int, float) for row in shown) for at in range(len(names))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(names), *cells]
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    if type(value) is float:
        return f"{value:,.1f}"
    return f"{value:,}" if type(value) is int else escaped(str(value))


def time_text(timestamp_ms: int) -> str | None:
    """A time as ``2026-11-21 10:00:00``, local; None for none."""
    if timestamp_ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return None
