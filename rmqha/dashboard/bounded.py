"""Values out of brokers' answers, made small and plain before anything is kept of them. Pure.

A broker may be hostile, or newer than this dashboard: where a number is expected may be a book.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

TEXT_SIZE_MAX: Final = 500
_NUMBER_MAX: Final = 1 << 63


def number(value: object) -> float | None:
    """An integer of 64 bits, or a float of that size; None for anything else, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_NUMBER_MAX <= value < _NUMBER_MAX else None


def text(value: object, size_max: int = TEXT_SIZE_MAX) -> str:
    """A text of ``size_max`` characters at most, which UTF-8 can hold; empty for what is none."""
    if not isinstance(value, str):
        return ""
    cut = value if len(value) <= size_max else f"{value[: size_max - 1]}…"
    return cut.encode("utf-8", "backslashreplace").decode()


def texts(values: object, count_max: int) -> list[str]:
    """The first texts of a list."""
    return [text(value) for value in islice(values, count_max)] if isinstance(values, list | tuple) else []


def items(values: object, count_max: int) -> Iterator[dict[str, Any]]:
    """The first objects of a list."""
    listed: Iterable[Any] = values if isinstance(values, list | tuple) else ()
    return (value for value in islice(listed, count_max) if isinstance(value, dict))


def last_items(values: object, count_max: int) -> Iterator[dict[str, Any]]:
    """The last objects of a list."""
    return items(values[-count_max:] if isinstance(values, list | tuple) else (), count_max)


def table(value: object) -> dict[str, Any]:
    """An object, empty for what is none."""
    return value if isinstance(value, dict) else {}
