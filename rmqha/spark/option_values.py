"""Values of a format's options: strings in, checked values out. What each option is, its own module says."""

import difflib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rmqha.errors import ConfigError


def parse_values(
    options: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]], elsewhere: Mapping[str, str]
) -> dict[str, Any]:
    """Options' values, by the names of the parsers.

    Args:
        options: as Spark gives them.
        parsers: by name; they raise ValueError.
        elsewhere: by lower-case name of an option that others have: what is here instead.

    Raises:
        ConfigError: an option is unknown, or its value cannot be parsed.
    """
    values: dict[str, Any] = {}
    names = {name.lower(): name for name in parsers}
    for given, text in options.items():
        if (instead := elsewhere.get(given.lower())) is not None:
            raise ConfigError(f"option {given!r} is not known here: {instead}")
        name = names.get(given.lower())
        if name is None:
            near = difflib.get_close_matches(given.lower(), names, n=1)
            hint = f"did you mean {names[near[0]]!r}?" if near else f"there are {', '.join(parsers)}"
            raise ConfigError(f"unknown option {given!r}; {hint}")
        try:
            values[name] = parsers[name](text)
        except ValueError as error:
            raise ConfigError(f"option {name}={text!r}: {error}") from None
    return values


def words(text: str) -> tuple[str, ...]:
    """What stands between commas.

    Raises:
        ValueError: nothing does.
    """
    found = tuple(word for word in (part.strip() for part in text.split(",")) if word)
    if not found:
        raise ValueError("it is empty, as that of an unset variable is; leave it out to read all")
    return found


def json_object(text: str, kind: type) -> Mapping[str, Any]:
    """A JSON object of broker names to values of one kind; not an empty one, nor one with a name that is there twice.

    Raises:
        ValueError: it is something else.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON object: {error}") from None
    if not isinstance(value, dict) or not value or not all(type(item) is kind for item in value.values()):
        raise ValueError(f"must map broker names to {kind.__name__}")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; by its letter the last value of a name would count, and what the others say would be missing."""
    found = dict[str, Any]()
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def count(text: str, least: int = 1) -> int:
    """A whole number, as text.

    Raises:
        ValueError: it is none, or less than ``least``.
    """
    value = int(text) if text.isdecimal() and text.isascii() else -1
    if value < least:
        raise ValueError(f"must be a whole number from {least} on")
    return value


def byte_count(text: str) -> int:
    """A whole number of bytes; ``k``, ``m`` or ``g`` behind it are its unit.

    Raises:
        ValueError: it is none.
    """
    units = {"k": 10, "m": 20, "g": 30}
    unit = units.get(text[-1:].lower())
    return count(text) if unit is None else count(text[:-1]) << unit


def time_ms(text: str) -> int:
    """A time, in milliseconds since 1970.

    Raises:
        ValueError: it is none.
    """
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be milliseconds since 1970, or like 2026-11-21T10:00:00Z (UTC without a zone)") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def boolean(text: str) -> bool:
    """True or false, as Spark writes them.

    Raises:
        ValueError: it is neither.
    """
    if text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text.lower() == "true"
