"""What a member has found out of its own log, for its next start: that a majority goes on with another one.

dledger-ID/outvoted   a JSON object: reason, and the last entry that is committed in the log of which it says so, as
                      index, term, pos and bodyCrc. rmqha's own; DLedger does not look at it.
"""

import json
from typing import Any, Final

import structlog
import trio

from rmqha.codec.crc import crc32
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.entry_handler import EntryHandler
from rmqha.errors import DivergedLogError, StoreReadError, StoreWriteError
from rmqha.store.disk import Disk

logger = structlog.get_logger()

OUTVOTED_FILE: Final = "outvoted"
_LOOKS_AGAIN_S: Final = 1.0
_WHAT_NEXT: Final = "remove that file if this log is the group's after all"


class OutvotedNote:
    """Tells the handler what was noted of this log, and notes what the handler finds out while it runs.

    Without it a member with a longer, foreign log could be elected after a restart: nobody could take anything from it.
    """

    def __init__(self, disk: Disk, directory: str, store: DLedgerMmapFileStore, handler: EntryHandler[Any]) -> None:
        """Of a member that begins to run, with the directory in which its term is.

        A note of another log says nothing of this one, nor does a damaged one.
        """
        self._disk: Final = disk
        self._path: Final = f"{directory}/{OUTVOTED_FILE}"
        self._store: Final = store
        self._handler: Final = handler
        self._told = ""
        self._is_noted: bool | None = False
        """None: what is there says nothing of this log, and is to be removed, or replaced."""
        self._restore()

    def _restore(self) -> None:
        try:
            if not self._disk.exists(self._path):
                return
            self._is_noted = None
            noted = json.loads(self._disk.read_bytes(self._path))
        except (StoreReadError, ValueError, RecursionError) as error:
            self._tell(str(error))
            return
        if not isinstance(noted, dict) or type(index := noted.get("index")) is not int:
            return
        found = self._entry(index)
        if found is None or found != {key: noted.get(key) for key in found}:
            return
        reason = f"{noted.get('reason')} (noted before this start in {self._path}: {_WHAT_NEXT})"
        self._handler.note_outvoted(DivergedLogError(found["pos"], reason))
        self._is_noted = True

    def _entry(self, index: int) -> dict[str, int] | None:
        """What tells an entry from another log's with that index."""
        try:
            entry = self._store.get(index)
        except (DLedgerException, StoreReadError):
            return None
        return {"index": entry.index, "term": entry.term, "pos": entry.pos, "bodyCrc": crc32(entry.body)}

    async def run(self) -> None:
        """Until cancelled. That it cannot be noted is logged, and tried again."""
        while True:
            if self._handler.is_outvoted != self._is_noted:
                await self._note()
            await trio.sleep(_LOOKS_AGAIN_S)

    async def _note(self) -> None:
        error = self._handler.diverged if self._handler.is_outvoted else None
        entry = None if error is None else self._entry(self._store.committed_index)
        try:
            if error is None:
                await self._disk.unlink_in_thread(self._path)
            elif entry is None:
                self._tell("the last entry that is committed cannot be read")
                return
            else:
                noted = json.dumps(entry | {"reason": error.reason}).encode()
                await self._disk.replace_bytes_in_thread(self._path, noted)
        except StoreWriteError as failure:
            self._tell(str(failure))
            return
        self._is_noted = error is not None

    def _tell(self, reason: str) -> None:
        if reason != self._told:
            logger.warning("dledger_store.outvoted_not_noted", path=self._path, reason=reason)
        self._told = reason
