"""LongerPeers: which peers said to hold more than a master's log, durably, so that its next start knows, too.

The file ``longerPeers`` of ``storePathRootDir``, a JSON object from a peer's HA address to where its log ends, is there
while some peer is known to be longer, and after that while the tables that it told are not saved. Without it a master
that is ended meanwhile would begin with what it has, if that peer is away at its next start.
"""

import json
from collections.abc import Mapping
from typing import Final

import structlog
import trio

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import Disk

logger = structlog.get_logger()


class LongerPeers:
    """That file of one store."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk: Final = disk
        self._path: Final = path
        self._noted: dict[str, int] = {}
        self._lock: Final = trio.Lock()

    def look(self) -> dict[str, int]:
        """What a process before has noted. A file that cannot be understood stands for any peer, as "".

        Raises:
            StoreReadError: it cannot be read.
        """
        if not self._disk.exists(self._path):
            return {}
        try:
            noted = json.loads(self._disk.read_bytes(self._path))
            self._noted = {str(peer): int(end) for peer, end in noted.items()}
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            logger.warning("longer_peers.unreadable", path=self._path, reason=str(error))
            self._noted = {"": -1}
        return dict(self._noted)

    async def note(self, ends: Mapping[str, int]) -> None:
        """These are longer, and no others. Durable when it returns. Raises StoreWriteError, StoreReadError."""
        async with self._lock:
            if ends == self._noted:
                return
            if ends:
                data = json.dumps(ends, indent=2, sort_keys=True).encode()
                await self._disk.replace_bytes_in_thread(self._path, data)
            else:
                await self._disk.unlink_in_thread(self._path)
            self._noted = dict(ends)

    async def try_to_note(self, ends: Mapping[str, int]) -> None:
        """As :meth:`note`, where a failure is logged: the next call tries again."""
        try:
            await self.note(ends)
        except (StoreWriteError, StoreReadError) as error:
            logger.warning("longer_peers.not_noted", reason=str(error))
