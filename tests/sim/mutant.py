"""A planted bug, and the table of all of them (mutants.py, outsiders.py)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass
class Mutant:
    """A bug. ``patches`` are ``(owner, attribute, replacement)``."""

    name: str
    source: str
    """Where this happened, or which decision of reliability.md it undoes."""
    patches: tuple[tuple[Any, str, Any], ...]
    _saved: list[tuple[Any, str, Any]] = field(default_factory=list)

    def __enter__(self) -> None:
        for owner, attribute, replacement in self.patches:
            self._saved.append((owner, attribute, owner.__dict__[attribute]))
            setattr(owner, attribute, replacement)

    def __exit__(self, *_: object) -> None:
        while self._saved:
            setattr(*self._saved.pop())

    def fits(self) -> bool:
        """Whether it is there while it is entered, and gone afterwards."""
        with self:
            is_there = all(owner.__dict__[attribute] is wrong for owner, attribute, wrong in self.patches)
        return is_there and all(owner.__dict__[attribute] is not wrong for owner, attribute, wrong in self.patches)


MUTANTS: Final[dict[str, Mutant]] = {}


def mutant(name: str, source: str, *patches: tuple[Any, str, Any]) -> None:
    """Register a bug."""
    MUTANTS[name] = Mutant(name, source, patches)


def nothing(*_: object, **__: object) -> None:
    """Does nothing."""


async def nothing_async(*_: object, **__: object) -> None:
    """Does nothing, later."""


def always(value: object) -> Callable[..., Any]:
    """Whatever it is asked, the answer is the same."""
    return lambda *_, **__: value


def fixed(value: object) -> property:
    """A property that always says the same."""
    return property(lambda _self: value)
