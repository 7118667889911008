"""The table of bugs that are planted into a group."""

from typing import Any, Final

from tests.sim.mutant import Mutant

PLANTED: Final[dict[str, Mutant]] = {}


def planted(name: str, source: str, *patches: tuple[Any, str, Any]) -> None:
    """Register a bug."""
    PLANTED[name] = Mutant(name, source, patches)
