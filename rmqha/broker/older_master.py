"""OlderMaster: a slave's master that lacks what operators told it before, as this slave still knows."""

from math import inf
from typing import Final

import structlog

from rmqha.broker.tables.known_words import STAMPED_TABLES, Words, lacking
from rmqha.broker.tables.metadata import MetadataService
from rmqha.errors import RemoteProtocolError

logger = structlog.get_logger()

_ASKS_WITHIN_S: Final = 22.0
"""A master asks its peers every ten seconds. Shorter than a slave may be without its master's tables."""
_OLDER_TAKEN: Final = "mastersOlderTables"
"""As one of the files that are lost is told until the next start."""
_LACKS: Final = (
    "its tables ({0}) are older than those here: it lacks operators' last words, as one whose storePathRootDir is an "
    f"older copy, and is given {_ASKS_WITHIN_S:g} s to ask this slave for them (haPeers there)"
)
_TAKEN: Final = (
    "the master at {1} lacked what operators had told it last ({0}), as one whose storePathRootDir is an older copy, "
    "and did not ask this slave, which had it: the older tables were taken over here, too. Decide again what was "
    "changed, deleted or set back since that copy; with this slave in its haPeers the master asks"
)


class OlderMaster:
    """The present master's word counts in the end, but not silently, nor before it could ask for what it lacks."""

    def __init__(self, metadata: MetadataService) -> None:
        """``metadata`` are the tables of this slave."""
        self._metadata: Final = metadata
        self._since = inf
        self._given_up = (0,) * len(STAMPED_TABLES)
        """The latest stamps here when the master's tables were taken all the same: offsets keep theirs."""

    def check(self, address: str, words: Words, *, now: float) -> None:
        """Before the tables of the master at ``address``, which knows ``words``, are taken over.

        Raises:
            RemoteProtocolError: not yet.
        """
        here = self._metadata.told_to
        told = tuple(stamp if stamp > before else 0 for stamp, before in zip(here, self._given_up, strict=True))
        older = lacking(words, told)
        if not older:
            self._since = inf
            return
        self._since = min(self._since, now)
        if now < self._since + _ASKS_WITHIN_S:
            raise RemoteProtocolError(_LACKS.format(", ".join(older)))
        self._since, self._given_up = inf, here
        reason = self._metadata.files.lost[_OLDER_TAKEN] = _TAKEN.format(", ".join(older), address)
        logger.warning("master_link.older_tables_taken", address=address, reason=reason)
