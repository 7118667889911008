"""HeartbeatRoom: how much of what heartbeats say is kept, in all and of the clients of one host."""

from typing import Final

from rmqha.errors import RemoteProtocolError
from rmqha.shares import Shares

SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes, more or less."""
ENTRY_SIZE: Final = 256
"""What an object costs beside its text."""


class HeartbeatRoom:
    """Invariant: what was added is at most :data:`SIZE_MAX`, if each growth was checked: no client fills the memory."""

    def __init__(self, what: str) -> None:
        """``what`` fills it, in words."""
        self._what: Final = what
        self._size = 0
        self._shares: Final = Shares()

    def check(self, group: str, host: str, *, growth: int) -> None:
        """What is kept of ``group`` would grow by so many bytes, for a client of ``host``.

        Raises:
            RemoteProtocolError: there is no room for that, or clients of this host fill too much of it.
        """
        free = SIZE_MAX - self._size
        if growth <= 0 or self._shares.has_room(host, growth, free=free):
            return
        why = f"{self._what} fills {SIZE_MAX} bytes"
        if growth <= free:
            taken = self._shares.of(host)
            why = f"{self._what} of clients of {host} fills {taken} bytes, and all others have room for {free}"
        raise RemoteProtocolError(f"group {group[:80]} is not taken: {why}")

    def add(self, host: str, size: int) -> None:
        """A client of ``host`` has so many bytes kept, or fewer by as many."""
        self._size += size
        self._shares.add(host, size)


def text_size(text: str) -> int:
    """What a text takes, more or less, with the object that it belongs to."""
    return ENTRY_SIZE + 4 * len(text)
