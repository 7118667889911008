"""LongerPeers: which peers said to hold more than a master's log, durably, so that its next start knows, too.

The file ``longerPeers`` of ``storePathRootDir``, a JSON object from a peer's HA address to where its log begins and
ends (``{"10.0.0.2:10912": {"begin": 0, "end": 4096}}``; -1: it has not said so), is there while some peer is known to
be longer, and after that while the tables that it told are not saved. Without it a master that is ended meanwhile would
begin with what it has, if that peer is away at its next start; or, with an empty log, like another one.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import structlog
import trio

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.replication.catch_up_plan import UNKNOWN_RANGE
from rmqha.replication.master_session import LogRange
from rmqha.store.disk import Disk

logger = structlog.get_logger()


class LongerPeers:
    """That file of one store."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk: Final = disk
        self._path: Final = path
        self._noted: dict[str, LogRange] = {}
        self._lock: Final = trio.Lock()

    def look(self) -> dict[str, LogRange]:
        """What a process before has noted. A file that cannot be understood stands for any peer, as "".

        Raises:
            StoreReadError: it cannot be read.
        """
        if not self._disk.exists(self._path):
            return {}
        try:
            noted = json.loads(self._disk.read_bytes(self._path))
            self._noted = {str(peer): _range(known) for peer, known in noted.items()}
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            logger.warning("longer_peers.unreadable", path=self._path, reason=str(error))
            self._noted = {"": UNKNOWN_RANGE}
        return dict(self._noted)

    async def note(self, logs: Mapping[str, LogRange]) -> None:
        """These are longer, and no others. Durable when it returns. Raises StoreWriteError, StoreReadError."""
        async with self._lock:
            if logs == self._noted:
                return
            if logs:
                known = {peer: {"begin": there.min_offset, "end": there.max_offset} for peer, there in logs.items()}
                data = json.dumps(known, indent=2, sort_keys=True).encode()
                await self._disk.replace_bytes_in_thread(self._path, data)
            else:
                await self._disk.unlink_in_thread(self._path)
            self._noted = dict(logs)

    async def try_to_note(self, logs: Mapping[str, LogRange]) -> None:
        """As :meth:`note`, where a failure is logged: the next call tries again."""
        try:
            await self.note(logs)
        except (StoreWriteError, StoreReadError) as error:
            logger.warning("longer_peers.not_noted", reason=str(error))


def _range(known: Any) -> LogRange:
    """Of a peer, as it was noted; before, the end alone was."""
    if isinstance(known, dict):
        return LogRange(int(known["begin"]), int(known["end"]))
    return LogRange(-1, int(known))
