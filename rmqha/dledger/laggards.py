"""Laggards: which members take nothing of what a leader has committed, and since when. Knows no socket and no clock."""

from math import inf
from typing import Any, Final

from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore

_LOOK_INTERVAL_S: Final = 1.0


class Laggards:
    """Looks once a second while this member leads."""

    def __init__(self, store: DLedgerMmapFileStore, pusher: DLedgerEntryPusher[Any]) -> None:
        self._store: Final = store
        self._pusher: Final = pusher
        self._looks_at = 0.0
        self._marks: dict[str, int] = {}
        self._since: dict[str, float] = {}
        """When a member was last seen to have taken something, or to lack nothing."""

    @property
    def due_at(self) -> float:
        """See :class:`~rmqha.dledger.push_service.Waiting`."""
        return inf if self._pusher.checker is None else self._looks_at

    def step(self, *, now: float) -> None:
        """See what has changed."""
        checker = self._pusher.checker
        if checker is None:
            self._marks, self._since, self._looks_at = {}, {}, now
        elif now >= self._looks_at:
            self._looks_at = now + _LOOK_INTERVAL_S
            for peer in self._pusher.dispatchers:
                mark = checker.water_mark(peer)
                if mark != self._marks.get(peer) or mark >= self._store.committed_index:
                    self._since[peer] = now
                self._marks[peer] = mark

    def since(self, peer: str) -> float:
        """Since when a member has lacked something, and has taken nothing; ``inf``: it is no such member."""
        checker = self._pusher.checker
        if checker is None or checker.water_mark(peer) >= self._store.committed_index:
            return inf
        return self._since.get(peer, inf) if checker.water_mark(peer) == self._marks.get(peer) else inf
