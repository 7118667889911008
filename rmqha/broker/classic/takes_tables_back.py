"""TakesTablesBack: a master that lost its store has its tables from the peer whose log it takes."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final

import structlog
import trio

from rmqha.broker.classic.lacking_tellers import LackingTellers
from rmqha.broker.classic.take_back_notes import TakeBackNotes
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends_client import QueueEndsClient, address_behind
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.config import split_address
from rmqha.errors import RemoteProtocolError, StoreReadError, StoreWriteError
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress, ProbeMaster
from rmqha.replication.master_session import LogRange
from rmqha.store.consume_queue_table import QueueKey
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.store_note import StoreNote

logger = structlog.get_logger()

_SAVED_AGAIN_S: Final = 5.0
_ASKED_AGAIN_S: Final = 5.0
_WAITS_S: Final = 20.0
"""So long a peer that holds nothing more, and tells no tables, keeps a master from taking sends, once it is heard."""
_UNKNOWN_S: Final = 60.0
"""So long groups wait for a peer that is away, and slaves keep their tables."""
_AWAITED: Final = "the tables here are a new store's, and those of this group are yet to be taken back from a peer"
_GOES_ON: Final = "sends are taken meanwhile; it is asked again"
_FOR_A_MINUTE: Final = f"; without them it is refused until {_UNKNOWN_S:g} s after the start"
_QUEUES_AT_ONCE: Final = 100
_NOT_TAKEN_OVER: Final = "its topics, groups and consumers' offsets could not be taken over"
_WITHOUT_ENDS: Final = "it does not say where its queues end (queue_ends.unknown in the log here)"
_WITHOUT_NEWER: Final = (
    "the log is taken all the same: delayed messages that it brings may be delivered again, and consumers' offsets, "
    "topics and groups are as this store has them"
)


class TakesTablesBack:
    """Topics, groups, consumers' offsets and deliveries, from before the first byte of the log until all is here.

    What each peer knows is merged (:meth:`SlaveSynchronize.merge`), in whatever order they come. A note in the store
    says meanwhile that more is to come: a start in between goes on with it.
    """

    def __init__(
        self,
        notes: TakeBackNotes,
        store: DefaultMessageStore,
        metadata: MetadataService,
        *,
        peers: Collection[str],
        tables: SlaveSynchronize,
        queue_ends_client: Callable[[str], QueueEndsClient],
        why_untold: Callable[[MasterAddress], str],
        is_required: bool = False,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            notes: say, to the next start too, that more is to come.
            store: whose log it is.
            metadata: the tables.
            peers: the HA addresses of all that may know more.
            tables: asks for all but where queues end.
            queue_ends_client: of an address: asks the broker there where queues end.
            why_untold: of a peer that does not say what its log holds.
            is_required: whether a start waits, however long, for one that may tell where queues end.
        """
        self._note, self._lost_note, self._older_note = notes
        self._store: Final = store
        self._metadata: Final = metadata
        self._peers: Final = frozenset(peers)
        self._tables: Final = tables
        self._queue_ends_client: Final = queue_ends_client
        self._why_untold: Final = why_untold
        self._is_required: Final = is_required
        self._lacks_tables = False
        """Of a new store, or lost, and what peers told is not saved yet with all of the log."""
        self._are_lost = False
        """At a start there was a log, and some table was not."""
        self._are_older = False
        """Than the log: one was lost, all are a copy put back, or a peer with more of the log could not be asked."""
        self._began_at = -inf
        self._told_why = ""
        self._heard, self._has_own_offsets = HeardLogs(), True
        self._begun_to, self._follows_from = -1, inf
        """Where the log ended when this broker, or a process before, began to serve without tables; -1: it does not."""
        self._lacking: Final = LackingTellers(metadata.files.lost)
        self._has_taken_back = False
        self._heard_since: Final = dict[str, float]()
        self._have_told = set[str]()
        """Peers whose tables are merged, or that have none."""
        self.told_by = set[str]()
        """Peers, by their HA addresses, whose tables are taken, and not saved yet with all of the log."""
        if peers:
            metadata.queue_ends.why_unknown = self.why_awaited

    @property
    def are_awaited(self) -> bool:
        """Whether the tables were lost beside a log, or are older, and some peer has yet to tell its own."""
        return (self._are_lost or self._are_older) and not self._have_told >= self._peers

    @property
    def origin(self) -> TablesOrigin:
        """What those that ask this master are told of its tables."""
        if not self.are_awaited:
            return TablesOrigin()
        has_decided, has_offsets = self._metadata.has_decided, self._has_own_offsets
        return self._heard.origin(has_decided=has_decided, begun_to=self._begun_to, has_own_offsets=has_offsets)

    def why_awaited(self) -> str:
        """Why the tables here may lack what this group had; empty: they do not."""
        if not self.are_awaited:
            return ""
        peers = ", ".join(sorted(self._peers - self._have_told))
        return (
            f"tables here may not be all of this group, and {peers} of haPeers have yet to tell their own: start them"
        )

    @property
    def why_offsets_unknown(self) -> str:
        """Why a group without an offset here is not told so yet: it would begin at the end, and commit that."""
        is_early = trio.current_time() < self._began_at + _UNKNOWN_S
        return (
            f"{self.why_awaited()}{_FOR_A_MINUTE}" if self.are_awaited and not self._has_taken_back and is_early else ""
        )

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

    def why_withheld_from(self, host: str) -> str:
        """As long as tables are awaited: who replaces its own by these, on ``host``, may have what is awaited.

        Who has told them may take them: all that it knew is here.
        """
        waiting = {split_address(peer)[0] for peer in self._peers - self._have_told}
        told = {split_address(peer)[0] for peer in self._have_told}
        return "" if host in told - waiting else self.why_awaited()

    async def take(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        """Before this log begins like a peer's, and until all is here: afterwards nobody asks, and sends come at once.

        Who lost the log has mostly lost the tables as well. What is deleted, forbidden or consumed only they tell, and
        slaves would take over what is left of them. Once all of the log is here tables may be newer than there. Who
        lost the end of the log, or is an older copy of it, has tables, and takes what is newer there.
        """
        if there is not None and there.max_offset == 0:  # it has lost its store as well since; or nobody has sent yet
            self.told_by.discard(str(peer))
            await self._take_of_empty(peer)
        elif self._lacks_tables:
            await self._take_or_wait(peer, there, is_longer=is_longer)
        elif is_longer or self._are_older:
            await self._take_newer(peer, there, is_longer=is_longer)

    def _is_early(self, peer: MasterAddress) -> bool:
        """Whether it was heard first a short while ago, and may tell more soon."""
        now = trio.current_time()
        return now < self._heard_since.setdefault(str(peer), now) + _WAITS_S

    def _may_tell(self, there: LogRange | None) -> bool:
        """Not a RocketMQ slave, which may lack tables for good, nor who cannot come to this log. None: who knows."""
        return there is None or (there.checks_reports and there.max_offset >= self._store.min_offset)

    async def _take_of_empty(self, peer: MasterAddress) -> None:
        """It may have its tables still."""
        is_needed = self._lacks_tables or self._are_older
        is_empty = self._store.min_offset == self._store.max_offset
        ends = await self._ends_before(self._store.reput_from_offset) if is_needed and not is_empty else None
        failure = await self._merge(peer, ends) if is_needed else ""
        if failure and self._is_early(peer):
            raise RemoteProtocolError(f"its topics, groups and offsets could not be taken over: {failure}")
        if not failure:
            self._have_told.add(str(peer))

    async def _take_newer(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        """The log is what counts, and comes without it, too. Then any peer may know more, longer or not by then."""
        if is_longer:  # others that are as long may know what this one missed
            self._are_older = True
            with suppress(StoreWriteError):
                await self._older_note.make_in_thread()
        has_ends = there is not None and await self._learn_ends(peer, there)
        is_needed = not is_longer and self._is_required and self._may_tell(there)
        if not has_ends and (is_needed or self._is_early(peer)):  # who is busy for a moment says nothing
            raise RemoteProtocolError(self._why_untold(peer) if there is None else _WITHOUT_ENDS)
        ends = None if is_longer or there is None else await self._ends_before(there.max_offset)
        if failure := await self._merge(peer, ends) or ("" if has_ends else _WITHOUT_ENDS):
            self.told_by.discard(str(peer))
            self._have_told.discard(str(peer))
            if failure != self._told_why:
                known = {"address": address_behind(peer), "reason": failure}
                logger.warning("master_link.nothing_newer_taken", **known, next=_WITHOUT_NEWER)
            self._told_why = failure
            return
        if is_longer:
            self.told_by.add(str(peer))
        self._has_taken_back = True
        self._have_told.add(str(peer))
        await self._metadata.save()

    async def _take_or_wait(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        """Who has no more of the log may have lost its own tables as well, and wait for those here."""
        try:
            await self._take_all(peer, there, is_longer=is_longer)
        except RemoteProtocolError as error:
            is_needed = (is_longer or (self._is_required and self._are_lost)) and self._may_tell(there)
            if is_needed or self._is_early(peer):
                raise
            if str(error) != self._told_why:
                logger.warning("master_link.tables_not_taken_back", peer=str(peer), reason=str(error), next=_GOES_ON)
            self._told_why = str(error)

    async def _take_all(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        address, metadata = address_behind(peer), self._metadata
        if is_longer or not self._are_lost:
            await self._make_note(self._note)
        if is_longer and not self._are_lost:  # who was away, or is heard later, may know what this one does not
            await self._make_note(self._lost_note)
            self._are_lost = True
        if there is None:
            raise RemoteProtocolError(f"{_NOT_TAKEN_OVER}: {self._why_untold(peer)}")
        if not await self._learn_ends(peer, there):
            raise RemoteProtocolError(_WITHOUT_ENDS)
        if is_longer:
            self.told_by.add(str(peer))
        ends = None if is_longer else await self._ends_before(there.max_offset)
        if failure := await self._merge(peer, ends):
            raise RemoteProtocolError(f"{_NOT_TAKEN_OVER}: {failure}")
        await metadata.save()
        if metadata.queue_ends.dirty or metadata.trouble:
            raise RemoteProtocolError("its tables could not be saved (metadata.not_saved in the log here)")
        if str(peer) not in self._have_told:
            logger.info("master_link.tables_taken_back", address=address)
        self._has_taken_back = True
        self._have_told.add(str(peer))

    async def _learn_ends(self, peer: MasterAddress, there: LogRange) -> bool:
        """Where queues end whose messages lie before this log's begin: their places would be given again."""
        is_empty = self._store.min_offset == self._store.max_offset
        before = there.min_offset if is_empty else self._store.min_offset
        return await self._queue_ends_client(address_behind(peer)).learn(before=before)

    async def _merge(self, peer: MasterAddress, ends: Mapping[QueueKey, int] | None = None) -> str:
        """Why that failed; else empty. ``ends``: of queues in that peer's log."""
        lacks_offsets = not self._has_own_offsets and (self._lacks_tables or self._are_older)
        next_offset = None if lacks_offsets else self._store.next_queue_offset
        may_lack = ends is not None and trio.current_time() >= self._began_at + _WAITS_S
        failure, lacks_some = await self._tables.merge(
            address := address_behind(peer),
            is_lost=self._lacks_tables and not (self._has_taken_back or self._heard.was_told),
            next_offset=next_offset,
            ends=ends,
            first_stored_from=self._store.first_stored_from,
            takes_unknown=self._are_older,
            may_lack_deliveries=may_lack,  # who has more of the log never had its group's tables
            heard=self._heard,
            are_taken=self._lacks_tables,
            sets_back=lacks_offsets,
            follows_from=self._follows_from,
        )
        if not failure:  # a topic that was deleted there may have messages here since
            await self._metadata.learn_queues(self._store.queues)
            if self._are_lost or self._are_older:  # a new group has lost nothing
                self._lacking.note(address if lacks_some else "")
        return failure

    async def _ends_before(self, offset: int) -> dict[QueueKey, int]:
        """Where queues end in a log that is like this one, and ends there: its tables may have come farther."""
        if self._store.reput_from_offset < offset:
            raise RemoteProtocolError("not all of the log here is in the consume queues yet")
        ends: dict[QueueKey, int] = {}
        start = 0
        while page := self._store.queues.ends_before(offset, start=start, count=_QUEUES_AT_ONCE):
            ends |= page
            start += _QUEUES_AT_ONCE
            await trio.lowlevel.checkpoint()
        return ends

    async def ask_late(self, peers: Callable[[], Sequence[MasterAddress]], probe: ProbeMaster) -> None:
        """Have lost tables from each of ``peers`` that is there, which have no more of the log, while sends come.

        Run it, without end. A slave does not take over what this broker began with before a minute has passed.
        """
        while True:
            for peer in peers():
                if self.are_awaited and str(peer) not in self._have_told:
                    with suppress(RemoteProtocolError, BrokerStartingError, StoreReadError):
                        if (there := await probe(peer)) is not None:
                            await self.take(peer, there, is_longer=False)
            await trio.sleep(_ASKED_AGAIN_S)

    async def _make_note(self, note: StoreNote) -> None:
        try:
            await note.make_in_thread()
        except StoreWriteError as error:
            raise RemoteProtocolError(f"that tables are taken back cannot be noted here: {error}") from error

    def look(self) -> bool:
        """Whether a process before had yet to be told what was lost. Raises StoreReadError."""
        return any(note.look() for note in (self._note, self._lost_note, self._older_note))

    async def note_loss(self) -> None:
        """At a start that asks peers, before anything is saved: what this process makes is not what the store had.

        So it is, too, where the log is there, and the tables are gone: a topic is saved before anything is sent to it.
        """
        is_begun, had_topics = self._store.min_offset < self._store.max_offset, self._metadata.had_topics
        is_noted, are_noted_lost = self._note.look(), self._lost_note.look()
        self._are_lost = is_begun and (are_noted_lost or not had_topics)
        is_root_older = (as_of := self._store.root_as_of) is not None
        self._are_older = self._older_note.look() or (is_begun and (is_root_older or bool(self._metadata.files.lost)))
        self._lacks_tables = is_noted or self._are_lost or not had_topics
        had_offsets, found = self._metadata.had_offsets, self._metadata.found
        max_offset = self._store.max_offset if as_of is None else as_of
        had_own_offsets = had_offsets and (not self._are_older or found.offsets_to < 0)  # at the first of these starts
        self._has_own_offsets = had_own_offsets and not (is_noted or are_noted_lost)
        has_end = self._has_own_offsets or (had_topics and had_own_offsets)
        offsets_end = max_offset if has_end else max(found.offsets_to, 0)
        has_topics = had_topics and (found.are_told or not are_noted_lost)  # others are those that clients made since
        self._heard = HeardLogs(max_offset if has_topics else 0, offsets_end=offsets_end, found=found)
        before = HeardLogs.go_on(found, offsets_end=offsets_end)
        if (is_noted or are_noted_lost) and had_topics and before is not None:
            self._heard, self._begun_to = before, found.begun_to
            self._follows_from = found.begun_to if found.begun_to >= 0 else inf
        self._began_at = trio.current_time()
        if why := self.why_awaited():
            logger.warning("master_link.tables_awaited", reason=why)
        try:
            if self._are_lost:
                await self._lost_note.make_in_thread()
            if self._are_older:
                await self._older_note.make_in_thread()
            if not had_topics and not is_noted:
                await self._note.make_in_thread()
        except StoreWriteError as error:
            logger.warning("master_link.not_noted", reason=str(error))

    async def forget_loss(self) -> None:
        """At a start that asks nobody: its operator has decided, or it follows a master, whose tables count."""
        for note in (self._note, self._lost_note, self._older_note):
            with suppress(StoreWriteError, StoreReadError):
                if note.look():
                    await note.remove_in_thread()
        self._metadata.forget_made_since()

    async def _tell_saved(self, on_saved: Callable[[], Awaitable[None]]) -> None:
        """From now on nobody has to be asked again, but where that cannot be noted."""
        told_by = set(self.told_by)
        self.told_by.clear()
        try:
            await on_saved()
        except (StoreWriteError, StoreReadError):
            self.told_by |= told_by
            raise

    async def finish(self, on_saved: Callable[[], Awaitable[None]], is_in_doubt: Callable[[], bool]) -> None:
        """What a peer told counts once this log has all of it, and is saved: a start before that asks again.

        Run it, without end, once sends are accepted.

        Args:
            on_saved: called before the note goes; StoreWriteError, StoreReadError: not yet.
            is_in_doubt: whether a peer that is away may hold all that was lost.
        """
        begun_at, metadata = self._store.max_offset, self._metadata
        self._began_at, self._follows_from = trio.current_time(), -inf
        self._begun_to = begun_at if self._begun_to < 0 else self._begun_to
        while True:
            end = max(begun_at, self._store.taken_to)
            is_noted = self._note.is_there or (not self.are_awaited and (self._lost_note.is_there or self._are_older))
            is_due = (is_noted or self.told_by) and not is_in_doubt()
            if is_due and metadata.delay_offsets.is_settled(end):
                await metadata.save()
                with suppress(StoreWriteError, StoreReadError):
                    if not metadata.trouble:
                        await self._tell_saved(on_saved)
                        await self._note.remove_in_thread()
                        if not self.are_awaited:
                            await self._lost_note.remove_in_thread()
                            await self._older_note.remove_in_thread()
                            self._lacks_tables = self._are_lost = self._are_older = False
                            metadata.forget_made_since()
            await trio.sleep(_SAVED_AGAIN_S)
