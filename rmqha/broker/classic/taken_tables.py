"""TakenTables: whether a slave's store has had its master's tables, kept beside it: as a master it would lack them."""

from collections.abc import Callable
from math import inf
from typing import Final

import structlog
import trio

from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.store_note import StoreNote

logger = structlog.get_logger()

TABLES_NOT_TAKEN: Final = "tablesNotTaken"
"""The note's name, in ``storePathRootDir``: what this slave itself has not had."""
MASTERS_TABLES_LOST: Final = "mastersTablesLost"
"""Likewise: it has what its master had, which had yet to be told what it lost."""
_LOOKS_AGAIN_S: Final = 0.2
_LOOKS_S: Final = 2.0
"""Where nothing is missing; a slave takes tables over every ten seconds."""
_FAILS_S: Final = 60.0
"""So long tables may be those of before while the log goes on."""
_IN_STEP_S: Final = 20.0
"""RocketMQ's slaves are a round behind, too: of tables that differ by that the log says which are later."""
_LACKS: Final = (
    "this slave has not had all of its master's topics, groups and consumers' offsets since its store was made or lost "
    "them, or could not have them while the log went on, or its master had yet to be told by its peers what it lost: "
    "as a master it might begin with what its log tells, or with older ones, and consumers anew"
)
_NEVER_HAD: Final = (
    "this store was a slave's that had not taken over all of its group's topics, groups and consumers' offsets: they "
    "are those that the log tells of, or another broker of this group"
)


class TakenTables:
    """Of one store; without a note nothing is known to be missing, as of stores that RocketMQ made."""

    def __init__(
        self,
        root: str,
        store: DefaultMessageStore,
        metadata: MetadataService,
        taken: SlaveSynchronize,
        *,
        is_slave: bool,
    ) -> None:
        """Nothing is looked at yet; ``root`` is the store's ``storePathRootDir``, ``taken`` asks a slave's master."""
        self._own: Final = StoreNote(store.disk, f"{root}/{TABLES_NOT_TAKEN}")
        self._masters: Final = StoreNote(store.disk, f"{root}/{MASTERS_TABLES_LOST}")
        self._store: Final = store
        self._metadata: Final = metadata
        self._is_slave: Final = is_slave
        self._not_noted = ""
        self._taken: Final = taken
        self._taken_at = self._in_step_until = -inf
        self._as_late_as = -1
        """Of a slave: where the log ended when it had its master's tables last."""
        self._lost: tuple[str, ...] = ()

    @property
    def _is_noted(self) -> bool:
        return self._own.is_there or self._masters.is_there

    @property
    def lack(self) -> str:
        """What a slave has not had, in a sentence; empty if it has, or is none."""
        return _LACKS if self._is_slave and self._is_noted else ""

    @property
    def origin(self) -> TablesOrigin:
        """What those that ask this slave are told of its tables; a master that asks may be why some are awaited."""
        lack_some = self._is_slave and self._own.is_there
        is_in_step = self._look()
        return TablesOrigin(
            are_awaited=bool(self.lack),
            lack_some=lack_some,
            log_end=self._as_late_as,
            is_in_step=is_in_step,
            lost=self._lost,
        )

    def _look(self) -> bool:
        """Whether the last round was a while ago at most: then the tables are as late as the log here, still.

        A round is as old as its begin: where one takes long, so does the next.
        """
        taken, now = self._taken, trio.current_time()
        if taken.taken_at > self._taken_at:
            self._taken_at, self._as_late_as, self._lost = taken.taken_at, taken.taken_to, ()
            self._in_step_until = taken.taken_at + _IN_STEP_S + 2 * (now - taken.taken_at)
        is_in_step = now < self._in_step_until
        if is_in_step:
            self._as_late_as = max(self._as_late_as, self._store.max_offset)
        return is_in_step

    async def begin(self, *, were_lost: bool) -> bool:
        """Before anything is saved: note of a slave that it has no table yet; of a master see what a slave noted.

        Args:
            were_lost: whether it was a master that had yet to be told what it lost.

        Returns:
            Whether what says that may go: a slave notes it here, an operator who has a master ask nobody has decided.

        Raises:
            StoreReadError: whether it is noted cannot be seen.
        """
        looked = [note.look() for note in (self._own, self._masters)]  # at both
        if self._is_slave:
            found = self._metadata.found
            is_unknown = found.log_end < 0 and looked[0]  # it lacked some, and what said since when is gone
            is_of_log = found.is_in_step or (found.log_end < 0 and not is_unknown)
            self._lost = found.lost
            self._as_late_as = max(found.log_end, self._store.max_offset) if is_of_log else max(found.log_end, 0)
        metadata, is_noted = self._metadata, any(looked)
        if not self._is_slave and is_noted:
            metadata.had_topics = False  # those that are there a slave made of its log
            if self._store.min_offset < self._store.max_offset:
                metadata.files.lost[TABLES_NOT_TAKEN] = _NEVER_HAD
                logger.warning("tables.never_had", reason=_NEVER_HAD)
        elif self._is_slave and (were_lost or not metadata.had_topics or metadata.files.lost):
            await self._make(self._own)
        return not self._is_slave or not were_lost or self._own.is_there

    async def settle(self) -> None:
        """A master's tables count from now on: who could know more is noted by now, or the operator has decided."""
        if not self._is_slave:
            await self._forget()

    async def run(self, is_joined: Callable[[], bool]) -> None:
        """Keep the note of a slave until its master's tables are here, and saved, and are all that its group has.

        What a master tells whose peers have yet to tell it what it lost may not be all. What cannot be had of one
        whose log goes on here is noted, too, after a while.
        """
        taken, seen, failed_s, looked_at = self._taken, 0, 0.0, trio.current_time()
        while self._is_slave:
            self._look()
            now, is_failing = trio.current_time(), bool(taken.failure) and not taken.are_its_lost
            failed_s = failed_s + (now - looked_at if is_joined() else 0.0) if is_failing else 0.0
            looked_at = now
            if failed_s >= _FAILS_S:
                await self._make(self._own)
            if taken.rounds > seen and taken.origin.are_awaited:
                await self._make(self._masters)
            elif taken.rounds > seen and self._is_noted:
                await self._metadata.save()
                if not self._metadata.trouble:
                    await self._forget()
            seen = taken.rounds if not self._is_noted else seen
            await trio.sleep(_LOOKS_AGAIN_S if self._is_noted else _LOOKS_S)

    async def _make(self, note: StoreNote) -> None:
        try:
            await note.make_in_thread()
        except StoreWriteError as error:  # it is tried again and again
            if str(error) != self._not_noted:
                logger.warning("tables.not_noted", reason=str(error))
            self._not_noted = str(error)

    async def _forget(self) -> None:
        try:
            for note in (self._own, self._masters):
                await note.remove_in_thread()
        except (StoreWriteError, StoreReadError) as error:
            logger.warning("tables.not_noted", reason=str(error))
