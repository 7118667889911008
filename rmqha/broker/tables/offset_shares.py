"""OffsetShares: how clients' hosts share what there may be of consumer offsets."""

from typing import Final

from rmqha.shares import Shares


class OffsetShares:
    """What clients of each host have added since the broker started, and is there still: offsets, and their bytes.

    A host adds no more than it leaves to all others.
    """

    def __init__(self) -> None:
        self._entries: Final = Shares()
        self._sizes: Final = Shares()
        self._added: Final[dict[str, dict[int, tuple[str, int]]]] = {}
        """By key and queue, the host and the bytes. What nobody is known to have added is not there."""

    def of(self, host: str) -> int:
        """How many offsets ``host`` has added."""
        return self._entries.of(host)

    def has_room(self, host: str, size: int, *, entries_free: int, bytes_free: int) -> bool:
        """Whether ``host`` may add one of so many bytes."""
        return self._entries.has_room(host, 1, free=entries_free) and self._sizes.has_room(host, size, free=bytes_free)

    def add(self, host: str, key: str, queue_id: int, size: int) -> None:
        """It has."""
        if host:
            self._added.setdefault(key, {})[queue_id] = host, size
            self._entries.add(host, 1)
            self._sizes.add(host, size)

    def give_back(self, key: str, queue_id: int) -> None:
        """The offset is forgotten."""
        queues = self._added.get(key, {})
        host, size = queues.pop(queue_id, ("", 0))
        if host:
            self._entries.add(host, -1)
            self._sizes.add(host, -size)
            if not queues:
                del self._added[key]
