"""HeartbeatRoom: how much of what heartbeats say is kept, in all and of the clients of one host."""

from typing import Final

from rmqha.errors import RemoteProtocolError
from rmqha.shares import Room

SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes, more or less."""
ENTRY_SIZE: Final = 256
"""What an object costs beside its text."""


class HeartbeatRoom(Room):
    """Of one kind of group: no client fills the memory."""

    def __init__(self, what: str) -> None:
        """``what`` fills it, in words."""
        super().__init__(what, of_host=what + " of clients of {host}", size_max=SIZE_MAX)

    def check(self, group: str, host: str, *, growth: int) -> None:
        """What is kept of ``group`` would grow by so many bytes, for a client of ``host``.

        Raises:
            RemoteProtocolError: there is no room for that, or clients of this host fill too much of it.
        """
        if problem := self.problem(host, growth):
            raise RemoteProtocolError(f"group {group[:80]} is not taken: {problem}")


def text_size(text: str) -> int:
    """What a text takes, more or less, with the object that it belongs to."""
    return ENTRY_SIZE + 4 * len(text)
