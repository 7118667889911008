"""TakesTablesBack: a master that lost its store has its tables from the peer whose log it takes."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

import structlog
import trio

from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends_client import QueueEndsClient, address_behind
from rmqha.errors import RemoteProtocolError, StoreReadError, StoreWriteError
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress, ProbeMaster
from rmqha.replication.master_session import LogRange
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.store_note import StoreNote

logger = structlog.get_logger()

_SAVED_AGAIN_S: Final = 5.0
_ASKED_AGAIN_S: Final = 5.0
_WAITS_S: Final = 20.0
"""So long a peer that holds nothing more, and tells no tables, keeps a master from taking sends."""
_UNKNOWN_S: Final = 60.0
"""So long groups wait for a peer that is away, and slaves keep their tables."""
_AWAITED: Final = "the tables here are a new store's, and those of this group are yet to be taken back from a peer"
_GOES_ON: Final = "sends are taken meanwhile; it is asked again"
_WITHOUT_NEWER: Final = (
    "the log is taken all the same: delayed messages that it brings may be delivered again, and consumers' offsets, "
    "topics and groups are as this store has them"
)


class TakesTablesBack:
    """Topics, groups, consumers' offsets and deliveries, from before the first byte of the log until all is here.

    A note in the store says so meanwhile: a start in between goes on with it.
    """

    def __init__(
        self,
        note: StoreNote,
        lost_note: StoreNote,
        store: DefaultMessageStore,
        metadata: MetadataService,
        *,
        tables: SlaveSynchronize,
        queue_ends_client: Callable[[str], QueueEndsClient],
    ) -> None:
        """Nothing is looked at yet.

        Args:
            note: is there while the tables of a new store, or of a part of the log, are not those of the group.
            lost_note: is there while tables were lost beside a log, whatever was made since, and no peer has told any.
            store: whose log it is.
            metadata: the tables.
            tables: asks for all but where queues end.
            queue_ends_client: of an address: asks the broker there where queues end.
        """
        self._note: Final = note
        self._lost_note: Final = lost_note
        self._store: Final = store
        self._metadata: Final = metadata
        self._tables: Final = tables
        self._queue_ends_client: Final = queue_ends_client
        self._are_lost = False
        """At a start there was a log, and no table."""
        self._began_at = -inf
        self._told_why = ""
        self._has_taken_back = False
        self._told_to = -1
        """Where the log of the peer ends whose tables are these."""
        self.told_by = set[str]()
        """Peers, by their HA addresses, whose tables are taken, and not saved yet with all of the log."""

    @property
    def are_awaited(self) -> bool:
        """Whether the tables were lost beside a log, and no peer has told those of this group."""
        return self._are_lost and not self._has_taken_back

    @property
    def why_offsets_unknown(self) -> str:
        """Why a group without an offset here is not told so yet: it would begin at the end, and commit that."""
        is_early = trio.current_time() < self._began_at + _UNKNOWN_S
        return _AWAITED if self.are_awaited and is_early else ""

    def why_withheld(self, *, may_be_older: bool) -> str:
        """Why no slave may take over the tables here; empty: they are this group's.

        Those of a new store would replace the last ones that there are; those of a peer, while another one that is
        known to be longer has yet to tell its own (``may_be_older``), the newest.
        """
        is_empty = self._store.min_offset == self._store.max_offset
        are_lost = self._note.is_there or (is_empty and not self._metadata.had_topics)
        if (self._has_taken_back and not may_be_older) or not are_lost:
            return ""
        return _AWAITED

    async def take(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        """Before this log begins like a peer's, and until all is here: afterwards nobody asks, and sends come at once.

        Who lost the log has mostly lost the tables as well. What is deleted, forbidden or consumed only they tell, and
        slaves would take over what is left of them. Once all of the log is here tables may be newer than there. Who
        lost the end of the log, or is an older copy of it, has tables, and takes what is newer there.
        """
        is_begun = self._store.min_offset < self._store.max_offset
        takes_back = self._note.look()
        lacks_tables = takes_back or not self._metadata.had_topics or self.are_awaited
        is_empty_there = there is not None and there.max_offset == 0
        if is_empty_there:  # it has lost its store as well since; or nobody has sent anything yet
            self.told_by.discard(str(peer))
            if lacks_tables and not is_begun:
                await self._take_newer(peer, lacks_tables=True)
        elif self.are_awaited and not is_longer:
            await self._take_if_it_can(peer, there)
        elif (is_longer and (takes_back or self.are_awaited or not is_begun)) or (
            is_begun and not self._metadata.had_topics
        ):
            await self._take_all(peer, there, lacks_tables=lacks_tables, is_longer=is_longer)
        elif is_longer:
            self.told_by.add(str(peer))
            if not await self._take_newer(peer, lacks_tables=False):
                self.told_by.discard(str(peer))
            await self._metadata.save()

    async def _take_if_it_can(self, peer: MasterAddress, there: LogRange | None) -> None:
        """Of a peer without more of the log; it may have lost its own as well, and wait for those here."""
        try:
            await self._take_all(peer, there, lacks_tables=True, is_longer=False)
        except RemoteProtocolError as error:
            if trio.current_time() < self._began_at + _WAITS_S:
                raise
            if str(error) != self._told_why:
                logger.warning("master_link.tables_not_taken_back", peer=str(peer), reason=str(error), next=_GOES_ON)
            self._told_why = str(error)

    async def _take_all(
        self, peer: MasterAddress, there: LogRange | None, *, lacks_tables: bool, is_longer: bool
    ) -> None:
        address, metadata = address_behind(peer), self._metadata
        if lacks_tables and (is_longer or not self.are_awaited):
            await self._make_note()
        if there is None:
            raise RemoteProtocolError(
                f"its topics, groups and consumers' offsets could not be taken over: nothing answers at {address}, "
                "where its listenPort has to be, one below its HA port, or it lets this broker ask nothing"
            )
        if not await self._queue_ends_client(address).learn(before=there.min_offset):
            raise RemoteProtocolError("it does not say where its queues end (queue_ends.unknown in the log here)")
        is_all_there = self._told_to < there.max_offset >= self._store.max_offset
        if self.are_awaited and not is_longer:
            await self._take_back(peer, there)
        elif lacks_tables and is_all_there:
            await self._replace(peer, there)
        else:
            self.told_by.discard(str(peer))
            await self._take_newer(peer, lacks_tables=lacks_tables)
        await metadata.save()
        if metadata.queue_ends.dirty or metadata.trouble:
            raise RemoteProtocolError("its tables could not be saved (metadata.not_saved in the log here)")

    async def _replace(self, peer: MasterAddress, there: LogRange) -> None:
        """Who has the longest log of those that were asked tells last, and once: what changes here since counts."""
        self.told_by.add(str(peer))
        await self._tables.synchronize(address := address_behind(peer))
        if self._tables.failure and there.checks_reports:
            raise RemoteProtocolError(
                "its topics, groups and consumers' offsets could not be taken over "
                "(master_link.not_synchronized in the log here)"
            )
        self._has_taken_back, self._told_to = True, there.max_offset
        logger.info("master_link.tables_taken_back", address=address, missing=self._tables.failure or None)

    async def _take_newer(self, peer: MasterAddress, *, lacks_tables: bool) -> bool:
        """The log is what counts, and comes without it, too: then some things are as they were when it was here."""
        next_offset = None if lacks_tables else self._store.next_queue_offset
        if failure := await self._tables.merge(address := address_behind(peer), next_offset=next_offset):
            logger.warning("master_link.nothing_newer_taken", address=address, reason=failure, next=_WITHOUT_NEWER)
        return not failure

    async def _take_back(self, peer: MasterAddress, there: LogRange) -> None:
        """Of a peer without more of the log: what it knows is all there is, but for what this log tells, and is new."""
        self.told_by.discard(str(peer))
        failure = await self._tables.merge(address := address_behind(peer), next_offset=None)
        if failure and there.checks_reports:
            raise RemoteProtocolError(f"its topics, groups and consumers' offsets could not be taken over: {failure}")
        self._metadata.learn_queues(self._store.queues)
        self._metadata.offsets.cut(self._store.next_queue_offset)  # there the table may have come farther than the log
        self._has_taken_back, self._told_to = True, there.max_offset
        logger.info("master_link.tables_taken_back", address=address, missing=failure or None)

    async def ask_late(self, peers: Callable[[], Sequence[MasterAddress]], probe: ProbeMaster) -> None:
        """Have lost tables from the first of ``peers`` that is there, which have no more of the log, while sends come.

        A slave does not take over what this broker began with before a minute has passed.
        """
        while self.are_awaited:
            for peer in peers():
                with suppress(RemoteProtocolError, BrokerStartingError, StoreReadError):
                    if (there := await probe(peer)) is not None:
                        await self.take(peer, there, is_longer=False)
            await trio.sleep(_ASKED_AGAIN_S)

    async def _make_note(self) -> None:
        try:
            await self._note.make_in_thread()
        except StoreWriteError as error:
            raise RemoteProtocolError(f"that tables are taken back cannot be noted here: {error}") from error

    async def note_loss(self) -> None:
        """At a start that asks peers, before anything is saved: what this process makes is not what the store had.

        So it is, too, where the log is there, and the tables are gone: a topic is saved before anything is sent to it.
        """
        is_begun, had_topics = self._store.min_offset < self._store.max_offset, self._metadata.had_topics
        self._are_lost = is_begun and (self._lost_note.look() or not had_topics)
        self._began_at = trio.current_time()
        try:
            if self._are_lost:
                await self._lost_note.make_in_thread()
            if not had_topics and not self._note.look():
                await self._note.make_in_thread()
        except StoreWriteError as error:
            logger.warning("master_link.not_noted", reason=str(error))

    async def forget_loss(self) -> None:
        """At a start that asks nobody: its operator has decided."""
        with suppress(StoreWriteError, StoreReadError):
            if self._lost_note.look():
                await self._lost_note.remove_in_thread()

    async def finish(self, on_saved: Callable[[], Awaitable[None]], is_in_doubt: Callable[[], bool]) -> None:
        """What a peer told counts once this log has all of it, and is saved: a start before that asks again.

        Run it, without end, once sends are accepted.

        Args:
            on_saved: called before the note goes; StoreWriteError, StoreReadError: not yet.
            is_in_doubt: whether a peer that is away may hold all that was lost.
        """
        begun_at, metadata = self._store.max_offset, self._metadata
        while True:
            end = max(begun_at, self._store.taken_to)
            is_noted = self._note.is_there or (self._lost_note.is_there and self._has_taken_back)
            is_due = (is_noted or self.told_by) and not is_in_doubt()
            if is_due and metadata.delay_offsets.is_settled(end):
                await metadata.save()
                with suppress(StoreWriteError, StoreReadError):
                    if not metadata.trouble:
                        self.told_by.clear()
                        await on_saved()
                        await self._note.remove_in_thread()
                        if self._has_taken_back:
                            await self._lost_note.remove_in_thread()
            await trio.sleep(_SAVED_AGAIN_S)
