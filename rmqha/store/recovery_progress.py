"""How far a store has come on its way to being served: plain numbers, written by the thread that recovers it."""

from collections.abc import Callable


class RecoveryProgress:
    """What is being done to a store that is loaded, and how far. May be read at any time, from any thread.

    Attributes:
        what: the step, in words.
        total_bytes: of this step; 0 if nobody knows.
    """

    def __init__(self) -> None:
        self.what = "opening the store"
        self.total_bytes = 0
        self._done: Callable[[], int] = lambda: 0

    @property
    def done_bytes(self) -> int:
        """Of ``total_bytes``, if that is known."""
        done = self._done()
        return min(done, self.total_bytes) if self.total_bytes else done

    def describe(self) -> str:
        """The step and its figures, in words."""
        done_bytes, total_bytes = self.done_bytes, self.total_bytes
        of = f" of {total_bytes}" if total_bytes else ""
        counted = f", {done_bytes}{of} bytes" if done_bytes or total_bytes else ""
        return f"{self.what}{counted}"

    def begin(self, what: str, total_bytes: int = 0, *, done: Callable[[], int] = lambda: 0) -> None:
        """Begin a step; ``done`` tells how much of it is done whenever somebody asks."""
        self.what, self.total_bytes, self._done = what, total_bytes, done
