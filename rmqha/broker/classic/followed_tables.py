"""FollowedTables: what a slave has from its master beside the log, and where it goes on when the log does not."""

from collections.abc import Callable
from functools import cache, partial
from typing import Final

import trio

from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends_client import NOT_ASKED, QueueEndsClient, not_learned
from rmqha.ha.ha_client import HAClient
from rmqha.store.message_store import DefaultMessageStore

_UNKNOWN_S: Final = 60.0
"""So long groups wait for a master that is away."""
_OFFSETS_AWAITED: Final = "this slave has none, and has yet to be told them by its master"
_DELIVERIES_AWAITED: Final = "how far delayed messages are delivered counts once the log here goes as far as there"


class FollowedTables:
    """Topics, groups, consumers' offsets and deliveries, and where queues end, from one master after another."""

    def __init__(
        self,
        synchronize: SlaveSynchronize,
        store: DefaultMessageStore,
        metadata: MetadataService,
        *,
        master_address: Callable[[], str],
        queue_ends_client: Callable[[str], QueueEndsClient],
    ) -> None:
        """Nothing is taken over yet.

        Args:
            synchronize: takes tables over.
            store: with the log that follows the master's.
            metadata: the tables.
            master_address: where the master serves clients; empty while that is not known.
            queue_ends_client: asks a master at such an address where queues end.
        """
        self._synchronize: Final = synchronize
        self._store: Final = store
        self._metadata: Final = metadata
        self._master_address: Final = master_address
        self._queue_ends_client: Final = queue_ends_client
        self._master_changed = trio.Event()
        self._began_at: float | None = None
        self._ends: QueueEndsClient | None = None
        metadata.queue_ends.why_unknown = self._why_ends_unknown

    def on_master(self) -> None:
        """Another one is named."""
        self._master_changed.set()

    def on_link(self, client: HAClient) -> None:
        """The log goes on like the master's, or it does not any more: the master may have lost its end."""
        if not client.is_joined:
            self.doubt()
        self._synchronize.look()

    def doubt(self) -> None:
        """What was committed beyond this log may still come, or be of messages that the master has lost."""
        self._metadata.offsets.doubt(cache(self._store.end_of_queue))  # many groups read one queue
        self._metadata.save_soon()

    def why_offsets_unknown(self) -> str:
        """As :attr:`ConsumerOffsetManager.why_unknown`: a group that is told it has none may begin at the end."""
        if self._synchronize.rounds > 0 or self._metadata.had_offsets:
            return ""
        is_late = self._began_at is not None and trio.current_time() >= self._began_at + _UNKNOWN_S
        return "" if is_late else _OFFSETS_AWAITED

    async def run(self, client: HAClient) -> None:
        """Take over the master's tables, and those of another one as soon as it is named; until cancelled."""
        self._began_at = trio.current_time()
        run = partial(self._synchronize.run, is_joined=lambda: client.is_joined, is_apart=lambda: client.is_apart)
        while True:
            self._master_changed = changed = trio.Event()
            async with trio.open_nursery() as nursery:
                if address := self._master_address():
                    self._ends = self._queue_ends_client(address)
                    nursery.start_soon(self._ends.run)
                    nursery.start_soon(run, address)
                await changed.wait()
                nursery.cancel_scope.cancel()

    def not_learned(self) -> list[str]:
        """As :func:`not_learned`, of what there is from the master."""
        return not_learned(self._why_incomplete, self._ends, had_tables=self._synchronize.rounds > 0)

    @property
    def _why_incomplete(self) -> str:
        """Why the master's tables are missing here, or some are; empty: this slave could give all of them back."""
        tables = self._synchronize
        if tables.failure or tables.has_taken:
            awaited = self._metadata.delay_offsets.are_awaited
            return tables.failure or (_DELIVERIES_AWAITED if awaited else "")
        return NOT_ASKED

    def _why_ends_unknown(self) -> str:
        """Nobody learns from this slave what it does not know itself, and takes it for all there is."""
        return NOT_ASKED if self._ends is None else self._ends.why_unknown
