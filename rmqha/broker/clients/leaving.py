"""Leaving: whose connection has ended is taken out of its groups, in turns if they are many."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, KeysView
from typing import Final

from rmqha.remoting.connection import Connection

LEFT_AT_ONCE: Final = 64
"""Groups: less than a millisecond's work. A connection may be in some 60,000."""


class Leaving:
    """Who is to be taken out of which groups still, and counts as a member of none of them any more.

    Invariant: only who is among a group's members stands here with it. Who comes to a group while its connection stands
    here with it is taken out first.

    Attributes:
        groups_of: by connection.
    """

    def __init__(self, take_out: Callable[[str, list[Connection]], None]) -> None:
        """``take_out``, told a group and members of it, makes them none."""
        self.groups_of: Final = OrderedDict[Connection, dict[str, None]]()
        self._take_out: Final = take_out

    def leave(self, connection: Connection, groups: dict[str, None]) -> None:
        """Take it out of these groups: of a few now, of many in :meth:`steps`."""
        if len(groups) > LEFT_AT_ONCE:
            self.groups_of.setdefault(connection, {}).update(groups)
            return
        for group in groups:
            self._take_out(group, [connection])

    def look_at(self, group: str, members: KeysView[Connection]) -> None:
        """Somebody wants to know who is in a group, which has these members: take out of it who has left."""
        found = [one for one in self.groups_of.keys() & members if group in self.groups_of[one]]
        for connection in found:
            del self.groups_of[connection][group]
            self._forget_if_done(connection)
        if found:
            self._take_out(group, found)

    def steps(self) -> Iterator[None]:
        """Take out all who stand here, some between any two turns of everybody else."""
        count = 0
        while self.groups_of:
            connection = next(iter(self.groups_of))
            group, _ = self.groups_of[connection].popitem()
            self._forget_if_done(connection)
            self._take_out(group, [connection])
            count += 1
            if count % LEFT_AT_ONCE == 0:
                yield

    def _forget_if_done(self, connection: Connection) -> None:
        if not self.groups_of[connection]:
            del self.groups_of[connection]
