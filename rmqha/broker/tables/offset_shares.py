"""OffsetShares: how those who commit offsets share what there may be of them."""

from typing import Final

from rmqha.shares import Shares


class OffsetShares:
    """What clients of each host have added since the broker started, and is there still.

    An offset is on the account of the host that committed it first, and the name ``topic@group`` on that of its first
    offset. What is no client's is on nobody's.
    """

    def __init__(self) -> None:
        self._entries, self._sizes = Shares(), Shares()
        self._added: Final[dict[str, dict[int | None, tuple[str, int]]]] = {}
        """By name and queue, None being the name itself: the host, and the bytes that it takes."""

    def of(self, host: str) -> int:
        """How many offsets of this host are there."""
        return self._entries.of(host)

    def has_room(self, host: str, size: int, *, entries_free: int, size_free: int) -> bool:
        """Whether ``host`` may add an offset that takes so many bytes."""
        return self._entries.has_room(host, 1, free=entries_free) and self._sizes.has_room(host, size, free=size_free)

    def take(self, key: str, queue_id: int, *, host: str, size: int, key_size: int) -> None:
        """``host`` adds an offset; ``key_size`` is 0 if the name was there."""
        if not host:
            return
        self._entries.add(host, 1)
        self._add(key, queue_id, host, size)
        if key_size:
            self._add(key, None, host, key_size)

    def _add(self, key: str, what: int | None, host: str, size: int) -> None:
        self._sizes.add(host, size)
        self._added.setdefault(key, {})[what] = host, size

    def give_back(self, key: str, queue_id: int) -> None:
        """This offset is forgotten, its name is not."""
        added = self._added.get(key, {})
        if (taken := added.pop(queue_id, None)) is not None:
            self._entries.add(taken[0], -1)
            self._sizes.add(taken[0], -taken[1])
            if not added:
                del self._added[key]

    def give_back_all(self, key: str) -> None:
        """The name is forgotten, with all its offsets."""
        for what, (host, size) in self._added.pop(key, {}).items():
            self._sizes.add(host, -size)
            if what is not None:
                self._entries.add(host, -1)
