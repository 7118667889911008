"""What the status document tells of objects, as JSON can hold it."""

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any


@cache
def _field_names(kind: type) -> list[str]:
    """Of a dataclass; none of any other."""
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def plain(value: Any) -> Any:
    """Dataclasses as dictionaries, enums as their values, tuples as lists: what JSON holds."""
    if value is None or isinstance(value, int | float | str):
        return value
    if names := _field_names(type(value)):  # type: ignore[arg-type]  # a class is hashable, whatever mypy thinks
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value
