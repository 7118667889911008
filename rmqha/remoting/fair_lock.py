"""FairLock: a lock for which each host stands in line once, however many connections it has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class FairLock:
    """Invariant: a host has a line while anybody of it waits."""

    def __init__(self) -> None:
        self._lines: dict[str, trio.Lock] = {}
        self._lock = trio.Lock()

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait behind those of the same host, then behind one of each other."""
        line = self._lines.setdefault(host, trio.Lock())
        async with line:
            try:
                async with self._lock:
                    yield
            finally:
                if not line.statistics().tasks_waiting:
                    self._lines.pop(host, None)
