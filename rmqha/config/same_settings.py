"""The options of a part, of the settings that have the same names."""

from dataclasses import fields
from typing import Any, TypeVar

_Options = TypeVar("_Options")


def same_settings(kind: type[_Options], *sources: object, **others: Any) -> _Options:
    """Options with the settings that one of ``sources`` has under the same names, and ``others``.

    The defaults are those of the sources: what has one of its own is no setting, and tests/broker/test_options.py and
    tests/config/test_load_dledger.py see to that.
    """
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    found = {name: getattr(source, name) for source in sources for name in names if hasattr(source, name)}
    return kind(**found, **others)
