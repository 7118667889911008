"""LargeAnswers: what was made for clients that have yet to take it, and must not fill the memory meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol


class Client(Protocol):
    """A connection, as far as what is made for it goes."""

    closed: bool

    def close(self, reason: str) -> None:
        """End it now."""
        ...

    def start_soon(
        self, async_fn: Callable[["LargeAnswer", "Client"], Awaitable[object]], answer: "LargeAnswer", client: "Client"
    ) -> None:
        """Run a task that ends with it."""
        ...

    async def wait_taken(self) -> None:
        """Wait until less than its share of answers is left to be taken."""
        ...


class LargeAnswer:
    """One answer, whose bytes are there once however many clients get it.

    Attributes:
        size: in bytes.
        clients: who has yet to take it.
    """

    __slots__ = ("clients", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.clients: dict[Client, None] = {}


class LargeAnswers:
    """Of all clients of a server. Who reads soon takes its own; so the oldest give way to new ones.

    Invariant: without the newest they have at most ``bytes_max`` bytes.
    """

    def __init__(self, bytes_max: int, *, size_min: int) -> None:
        self._bytes_max: Final = bytes_max
        self._size_min: Final = size_min
        self._answers: Final[dict[LargeAnswer, None]] = {}

    def begin(self, size: int) -> LargeAnswer:
        """So many bytes were made; clients that take too long over older ones are ended to make room for them."""
        if size >= self._size_min:
            self._make_room()
        return LargeAnswer(size)

    def note_sent(self, answer: LargeAnswer, client: Client) -> None:
        """A client was just sent ``answer``."""
        if answer.size >= self._size_min and not client.closed:
            answer.clients[client] = None
            self._answers[answer] = None
            client.start_soon(self._wait_taken, answer, client)

    def _make_room(self) -> None:
        while sum(answer.size for answer in self._answers) > self._bytes_max:
            oldest = next(iter(self._answers))
            del self._answers[oldest]
            for client in oldest.clients:
                client.close(f"an answer was not taken while {self._bytes_max} bytes of newer ones were made")

    async def _wait_taken(self, answer: LargeAnswer, client: Client) -> None:
        try:
            await client.wait_taken()
        finally:
            del answer.clients[client]
            if not answer.clients:
                self._answers.pop(answer, None)
