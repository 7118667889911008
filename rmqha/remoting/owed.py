"""Owed: what a server keeps because clients owe it something: the rest of a request, or that they take an answer.

What waits for the server makes it read no further (:class:`~rmqha.remoting.in_flight.InFlight`), and it has to answer.
What waits for clients would stay for as long as they like. So it has one limit for all of them, whatever it is made of;
beyond it the host that owes most has its connections ended, until there is room.
"""

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, Protocol

import structlog

from rmqha.log_limit import LogLimit

logger = structlog.get_logger()

SHARE_BYTES: Final = 64 * 1024
"""Who owes less keeps nobody waiting."""
_ROOM_MADE: Final = 1 / 8
"""So much of the limit is free when there was no room: looking through thousands of connections takes milliseconds."""


class Debtor(Protocol):
    """A connection, as far as what it owes goes."""

    @property
    def peer(self) -> str:
        """The client as ``ip:port``."""
        ...

    @property
    def owed_bytes(self) -> int:
        """What is kept of requests it has begun, and of answers it has not taken."""
        ...

    @property
    def owed_since(self) -> float:
        """When it last completed a request, or took of its answers, on trio's clock; inf if it owes nothing."""
        ...

    def close(self, reason: str) -> None:
        """End it now."""
        ...


class Owed:
    """Of all connections of a server.

    Invariant: without what ended connections have yet to give back ``size`` is at most ``bytes_max`` after each
    :meth:`add` and :meth:`leave`; it is the sum of what connections owe.
    """

    __slots__ = ("_bytes_max", "_debtors", "_ended", "_limit", "_lines", "size")

    def __init__(self, bytes_max: float = inf) -> None:
        self.size = 0
        self._bytes_max: Final = bytes_max
        self._limit = bytes_max
        self._debtors: Final[dict[Debtor, str]] = {}
        self._ended: Final[dict[Debtor, int]] = {}
        self._lines: Final = LogLimit(burst=1)

    def join(self, debtor: Debtor, host: str) -> None:
        """A connection of a client of ``host`` begins, and may owe something from now on."""
        self._debtors[debtor] = host

    def leave(self, debtor: Debtor) -> None:
        """It has ended, and given back what it owed: others may have taken that room, as it was given back in parts."""
        del self._debtors[debtor]
        self._limit -= self._ended.pop(debtor, 0)
        self.add(0)

    def add(self, size: int) -> None:
        """Clients owe so much more, or less than nothing; connections end if that is too much."""
        self.size += size
        if self.size > self._limit:
            self._make_room()

    def _make_room(self) -> None:
        by_host = self._debtors_by_host()
        most = [(-sum(debtor.owed_bytes for debtor in debtors), host) for host, debtors in by_host.items()]
        heapify(most)
        free_bytes, ended = self._bytes_max * _ROOM_MADE, list[Debtor]()
        while most and self.size + free_bytes > self._limit:
            owed, host = heappop(most)
            ended.append(debtor := by_host[host].pop())
            if by_host[host]:
                heappush(most, (owed + debtor.owed_bytes, host))
            self._end(debtor)
        if ended:
            peer = ended[0].peer
            self._lines.log(
                logger.warning, "remoting.clients_owe_too_much", bytes=self.size, ended=len(ended), peer=peer
            )

    def _debtors_by_host(self) -> dict[str, list[Debtor]]:
        """Of each host the one to be ended next last: of those with a share the one that has owed it for longest."""
        by_host: dict[str, list[Debtor]] = {}
        for debtor, host in reversed(self._debtors.items()):
            if debtor.owed_bytes and debtor not in self._ended:
                by_host.setdefault(host, []).append(debtor)
        for debtors in by_host.values():
            debtors.sort(key=lambda debtor: (debtor.owed_bytes >= SHARE_BYTES, -debtor.owed_since))
        return by_host

    def _end(self, debtor: Debtor) -> None:
        owed = self._ended[debtor] = debtor.owed_bytes
        self._limit += owed
        debtor.close(
            f"{owed} bytes that it had begun to send, or had not taken, were in the way: clients owe {self.size}, "
            f"{self._bytes_max} are allowed"
        )
