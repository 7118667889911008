"""MadeSince: what clients made while tables that were lost here are awaited, so that no word of before counts of it.

It is in the table's own file, as the last member, for a start in between. RocketMQ does not read it, and slaves are not
told it: a table of theirs has to fit a frame.
"""

from collections.abc import Callable
from typing import Any, Final


class MadeSince:
    """Names, which are forgotten once the tables are here."""

    def __init__(self, member: str) -> None:
        self._member: Final = member
        self._names = dict[str, None]()
        self.are_awaited: Callable[[], bool] = bool
        """Whether what was lost is yet to come from a peer."""

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def note(self, name: str) -> None:
        """A client made it now."""
        if self.are_awaited():
            self._names[name] = None

    def drop(self, name: str) -> None:
        """It is not there any more."""
        self._names.pop(name, None)

    def clear(self) -> bool:
        """All has come, or nothing is awaited; whether there was anything."""
        was_any = bool(self._names)
        self._names.clear()
        return was_any

    def to_json(self) -> dict[str, list[str]]:
        """The member of the file, where there is anything to tell."""
        return {self._member: [*self._names]} if self._names else {}

    def replace_from_json(self, value: dict[str, Any]) -> None:
        """Take over what an earlier process noted; what is no name is nobody's."""
        names = value.get(self._member)
        self._names = {name: None for name in names if type(name) is str} if isinstance(names, list) else {}
