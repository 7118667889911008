"""Fills in the options of a part from the settings of the same names."""

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

_Options = TypeVar("_Options")


def same_settings(kind: type[_Options], *sources: object, **others: Any) -> _Options:
    """Options with the settings that one of ``sources`` has under the same names, and ``others``.

    Defaults are those of the sources; that no option with a source has one of its own is checked in
    tests/broker/test_options.py and tests/config/test_load_dledger.py.
    """
    found = {
        name: getattr(source, name)
        for source in sources
        for name in _shared(kind, type(source))  # type: ignore[arg-type]  # a class is hashable, whatever mypy thinks
    }
    return kind(**found | others)


@cache
def _shared(kind: Any, source: Any) -> list[str]:
    """The names of the options of a class that a class of settings has, as fields or as properties."""
    settings = {field.name for field in fields(source)}.union(dir(source))
    return [field.name for field in fields(kind) if field.name in settings]
