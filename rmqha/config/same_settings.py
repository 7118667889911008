"""Fills in the options of a part from the settings of the same names."""

from dataclasses import fields
from typing import Any, TypeVar

_Options = TypeVar("_Options")


def same_settings(kind: type[_Options], *sources: object, **others: Any) -> _Options:
    """Options with the settings that one of ``sources`` has under the same names, and ``others``.

    Defaults are those of the sources; that no option with a source has one of its own is checked in
    tests/broker/test_options.py and tests/config/test_load_dledger.py.
    """
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    found = {name: getattr(source, name) for source in sources for name in names if hasattr(source, name)}
    return kind(**found, **others)
