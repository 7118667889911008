"""LaterPeers: whether a peer knows later words of operators than a master does, whose tables are an older copy then."""

from math import inf
from typing import Final

import structlog
import trio

from rmqha.broker.tables.known_words import lacking
from rmqha.broker.tables.metadata import MetadataService
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange

logger = structlog.get_logger()

_LOOK_AGAIN_S: Final = 10.0
_OLDER: Final = (
    "it knows later words of operators about {0} than this master, whose storePathRootDir is an older copy, it seems: "
    "what its tables say later is taken; what was decided here later stays"
)


class LaterPeers:
    """Each peer is looked at once: what it knows later than this process it has from one before."""

    def __init__(self, metadata: MetadataService) -> None:
        """Nobody is looked at yet; ``metadata`` are the tables of this master."""
        self._metadata: Final = metadata
        self._look_at: Final = dict[str, float]()
        self._told: Final = set[str]()

    def is_due(self, peer: MasterAddress) -> bool:
        """Whether it has yet to say what it knows."""
        return trio.current_time() >= self._look_at.get(str(peer), -inf)

    def look(self, peer: MasterAddress, there: LogRange | None) -> bool:
        """Whether it knows later words, as it says with where its log begins and ends; that is logged."""
        self._look_at[str(peer)] = trio.current_time() + _LOOK_AGAIN_S if there is None else inf
        if there is None or not there.tables_heard_to:
            return False
        older = lacking(self._metadata.words, there.tables_heard_to)
        if older and str(peer) not in self._told:
            self._told.add(str(peer))
            logger.warning("master_link.tables_older", peer=str(peer), reason=_OLDER.format(", ".join(older)))
        return bool(older)
