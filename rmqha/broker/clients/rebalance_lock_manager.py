"""RebalanceLockManager: which client of a group alone consumes a queue, in order; by the clientId, for 60 s at a time.

A client whose connection breaks keeps its queues till then: it may go on by another connection, and what it has
pulled is still being consumed.

Source: spec: remoting §2.5 (41, 42), §5.6 I11; rocketmq-all-4.9.8 RebalanceLockManager.java.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmqha.codec.lock_batch import MessageQueue
from rmqha.shares import Shares

LOCK_MAX_LIVE_TIME_S: Final = 60.0
LOCKS_MAX: Final = 65_536
"""Of all groups together; a queue that is one more is not locked, and its client asks again."""
_EXPIRED_AT_ONCE: Final = 1000
"""Less than a millisecond's work."""

_Key = tuple[str, MessageQueue]


class _Lock(NamedTuple):
    client_id: str
    host: str
    ends_at: float


class RebalanceLockManager:
    """Invariant: the locks are in the order in which they end, so those that have ended are the first."""

    def __init__(self) -> None:
        self._locks: Final[OrderedDict[_Key, _Lock]] = OrderedDict()
        self._shares: Final = Shares()

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], *, client_id: str, host: str, now: float
    ) -> list[MessageQueue]:
        """Give a client the queues that nobody else has, and have it keep those it has; returns both."""
        self._expire(now)
        return [queue for queue in queues if self._try_lock((group, queue), client_id, host=host, now=now)]

    def _try_lock(self, key: _Key, client_id: str, *, host: str, now: float) -> bool:
        known = self._locks.get(key)
        if known is None and not self._shares.has_room(host, 1, free=LOCKS_MAX - len(self._locks)):
            return False
        if known is not None:
            if known.client_id != client_id and known.ends_at > now:
                return False
            self._remove(key)
        self._locks[key] = _Lock(client_id, host, now + LOCK_MAX_LIVE_TIME_S)
        self._shares.add(host, 1)
        return True

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], *, client_id: str) -> None:
        """A client gives these up; what others have stays theirs."""
        for queue in queues:
            known = self._locks.get((group, queue))
            if known is not None and known.client_id == client_id:
                self._remove((group, queue))

    def _remove(self, key: _Key) -> None:
        self._shares.add(self._locks.pop(key).host, -1)

    def _expire(self, now: float) -> None:
        for _ in range(_EXPIRED_AT_ONCE):
            first = next(iter(self._locks), None)
            if first is None or self._locks[first].ends_at > now:
                return
            self._remove(first)
