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


class Room:
    """The bytes of a bounded table, each on the account of a host.

    Invariant: ``size`` is the sum of what was added, and at most ``size_max`` if nothing was added that had a problem.
    """

    def __init__(self, what: str, *, of_host: str, size_max: int) -> None:
        """``what`` fills it, in words; and ``of_host`` is that of one ``{host}`` alone."""
        self._what = what
        self._of_host = of_host
        self._size_max = size_max
        self._shares = Shares()
        self.size = 0

    def problem(self, host: str, growth: int) -> str:
        """Why nothing of ``host`` may grow by so many bytes; empty if it may."""
        free = self._size_max - self.size
        if growth <= 0 or self._shares.has_room(host, growth, free=free):
            return ""
        if growth > free:
            return f"{self._what} fills {self._size_max} bytes"
        what, taken = self._of_host.format(host=host), self._shares.of(host)
        return f"{what} fills {taken} bytes, and all others have room for {free}"

    def add(self, host: str, size: int) -> None:
        """So many bytes more of ``host``, or fewer by as many, are kept; of nobody if that is empty."""
        self.size += size
        if host:
            self._shares.add(host, size)
