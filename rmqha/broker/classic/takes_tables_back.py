"""TakesTablesBack: a master that lost its store has its tables from the peer whose log it takes."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
import trio

from rmqha.broker.master_link import MasterLink
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends_client import QueueEndsClient, address_behind
from rmqha.errors import RemoteProtocolError, StoreReadError, StoreWriteError
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.store_note import StoreNote

logger = structlog.get_logger()

_SAVED_AGAIN_S: Final = 5.0


class TakesTablesBack:
    """Topics, groups, consumers' offsets and deliveries, from before the first byte of the log until all is here.

    A note in the store says so meanwhile: a start in between goes on with it.
    """

    def __init__(
        self,
        note: StoreNote,
        store: DefaultMessageStore,
        metadata: MetadataService,
        link: MasterLink,
        *,
        queue_ends_client: Callable[[str], QueueEndsClient],
    ) -> None:
        """``queue_ends_client(address)`` asks the broker there where queues end."""
        self._note: Final = note
        self._store: Final = store
        self._metadata: Final = metadata
        self._link: Final = link
        self._queue_ends_client: Final = queue_ends_client
        self._has_taken_back = False

    async def take(self, peer: MasterAddress, there: LogRange, *, is_longer: bool) -> None:
        """Before this log begins like a peer's, and until all is here: afterwards nobody asks, and sends come at once.

        Who lost the log has mostly lost the tables as well. What is deleted, forbidden or consumed only they tell, and
        slaves would take over what is left of them. Once all of the log is here tables may be newer than there.
        """
        is_begun = self._store.min_offset < self._store.max_offset
        takes_back = self._note.look()
        if (is_begun or not is_longer) and not takes_back:
            return
        if not is_longer and self._has_taken_back:  # what the longest told is newer
            return
        address, metadata = address_behind(peer), self._metadata
        if not await self._queue_ends_client(address).learn(before=there.min_offset):
            raise RemoteProtocolError("it does not say where its queues end (queue_ends.unknown in the log here)")
        if takes_back or not metadata.had_topics:
            await self._make_note()
            await self._link.synchronize(address, only_deliveries=not is_longer)
            if self._link.failure and there.checks_reports:
                raise RemoteProtocolError(
                    "its topics, groups and consumers' offsets could not be taken over "
                    "(master_link.not_synchronized in the log here)"
                )
            self._has_taken_back = True
            logger.info("master_link.tables_taken_back", address=address, missing=self._link.failure or None)
        await metadata.save()
        if metadata.queue_ends.dirty or metadata.trouble:
            raise RemoteProtocolError("its tables could not be saved (metadata.not_saved in the log here)")

    async def _make_note(self) -> None:
        try:
            await self._note.make_in_thread()
        except StoreWriteError as error:
            raise RemoteProtocolError(f"that tables are taken back cannot be noted here: {error}") from error

    async def finish(self, opened: trio.Event) -> None:
        """What a peer told counts once this log has all of it, and is saved: a start before that asks again.

        Args:
            opened: set when the catch-up is over.
        """
        await opened.wait()
        end, metadata = self._store.max_offset, self._metadata
        with suppress(StoreReadError):
            while self._note.look():
                if metadata.delay_offsets.is_settled(end):
                    await metadata.save()
                    with suppress(StoreWriteError):
                        if not metadata.trouble:
                            await self._note.remove_in_thread()
                            return
                await trio.sleep(_SAVED_AGAIN_S)
