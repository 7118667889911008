"""LackingTellers: whether all of a group's tables are taken back, or only what a broker had that lacks some."""

from typing import Final

import structlog

logger = structlog.get_logger()

_KEY: Final = "tablesOfOneThatLacksSome"
"""As one of the files that are lost is told until the next start."""
_MAY_BE_OLDER: Final = (
    "{0} has not had all of its master's topics, groups and consumers' offsets, and the tables here were taken back "
    "from it: what operators and consumers decided last may be missing, unless a peer that has it is started"
)


class LackingTellers:
    """Among those that have told their tables; one that lacks none makes up for all of them."""

    def __init__(self, lost: dict[str, str]) -> None:
        """Nobody has told any; ``lost`` are the sentences of the broker's status about tables that are lost."""
        self._lost: Final = lost
        self._is_told_all = False

    def note(self, lacks_some: str) -> None:
        """A broker has told its tables; the address of one that lacks some, empty for any other."""
        self._is_told_all = self._is_told_all or not lacks_some
        if self._is_told_all:
            self._lost.pop(_KEY, None)
        elif _KEY not in self._lost:
            self._lost[_KEY] = _MAY_BE_OLDER.format(lacks_some)
            logger.warning("tables.may_be_older", address=lacks_some, reason=self._lost[_KEY])
