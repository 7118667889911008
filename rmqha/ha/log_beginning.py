"""LogBeginning: whose log begins earlier than this one, which was empty and began like another one's."""

from collections.abc import Sequence
from typing import Final

import structlog

from rmqha.ha.catch_up_reasons import BEGINS_EARLIER
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.replication.peer_knowledge import PeerAnswer, PeerKnowledge

logger = structlog.get_logger()


class LogBeginning:
    """Tells of each peer that was not heard when the log here began, and holds what lies before that."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log: Final = log
        self._started_empty = False
        self._began_at = -1
        """Where, since it had been empty at the start; -1: it had not, or is."""
        self._heard_first: Final = set[str]()
        """Who had said where its log begins before this one began, and of whom it was told since."""

    @property
    def _is_empty(self) -> bool:
        return self._log.min_offset == self._log.max_offset

    def on_start(self) -> None:
        """No peer was asked yet."""
        self._started_empty = self._is_empty

    def on_answer(self, peer: PeerKnowledge, answer: PeerAnswer, peers: Sequence[PeerKnowledge]) -> None:
        """``peer``, one of ``peers``, has answered."""
        if self._started_empty and not self._is_empty:
            self._started_empty, self._began_at = False, self._log.min_offset
            self._heard_first.update(other.peer for other in peers if other.begin >= 0)
        begin, end = (-1, -1) if answer.begin is None or answer.end is None else (answer.begin, answer.end)
        if 0 <= begin < min(end, self._began_at) and peer.peer not in self._heard_first:
            self._heard_first.add(peer.peer)
            known = {"peer": peer.peer, "begin": begin, "this_began": self._began_at}
            logger.warning("catch_up.begins_earlier", **known, reason=BEGINS_EARLIER)
