"""Shares: how a bounded table is shared by those who fill it, each known by its host."""


class Shares:
    """How much each host has added.

    A host that adds something may have no more than it leaves to all others: alone it comes to half of what was free,
    and n of them to n parts of n + 1. So there is always some left for one that has little.
    """

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def of(self, host: str) -> int:
        """What ``host`` has added."""
        return self._taken.get(host, 0)

    def has_room(self, host: str, size: int, *, free: int) -> bool:
        """Whether ``host`` may add so much, where so much is free; an empty name is no client's, and may take all."""
        return size <= free and (not host or self.of(host) + size <= free - size)

    def add(self, host: str, size: int) -> None:
        """``host`` has added so much, or less than nothing."""
        self._taken[host] = self.of(host) + size
        if not self._taken[host]:
            del self._taken[host]
