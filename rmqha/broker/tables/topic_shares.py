"""TopicShares: how those who make topics by using them share what there may be of topics."""

from rmqha.errors import RemoteProtocolError
from rmqha.shares import Shares

Taken = tuple[int, int]
"""Queues, and bytes of the table of topics."""


class TopicShares:
    """What clients of each host have made since the broker started, and is there still.

    A host makes no more than it leaves to all others.
    """

    def __init__(self) -> None:
        self._queues, self._sizes = Shares(), Shares()
        self._made: dict[str, tuple[str, Taken]] = {}
        """Of each topic who made it, and what it took."""

    def take(self, topic: str, taken: Taken, free: Taken, *, host: str) -> None:
        """``host`` makes ``topic``; an empty one is no client's.

        Raises:
            RemoteProtocolError: it has made as much as is left.
        """
        queues, size = taken
        queues_free, size_free = free
        if not self._queues.has_room(host, queues, free=queues_free) or not self._sizes.has_room(
            host, size, free=size_free
        ):
            raise RemoteProtocolError(
                f"topic {topic} is not made: clients of one address get no more than they leave to all others, and "
                f"those of {host} have {self._queues.of(host)} queues since this broker started, where "
                f"{max(queues_free, 0)} are left of maxQueues"
            )
        if host:
            self._made[topic] = host, taken
            self._queues.add(host, queues)
            self._sizes.add(host, size)

    def give_back(self, topic: str) -> None:
        """It is deleted."""
        host, (queues, size) = self._made.pop(topic, ("", (0, 0)))
        if host:
            self._queues.add(host, -queues)
            self._sizes.add(host, -size)
