"""ClientHousekeepingService: whose heartbeats no longer come is no member of any group any more.

Source: spec: remoting §1.8; rocketmq-all-4.9.8 ClientHousekeepingService.java, ConsumerManager.java.
"""

from collections import OrderedDict
from typing import Final

import trio

from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.remoting.connection import Connection

CHANNEL_EXPIRED_S: Final = 120.0
SCAN_EVERY_S: Final = 10.0
_AT_ONCE: Final = 4
"""With the groups that they leave at once some milliseconds' work."""


class ClientHousekeepingService:
    """Invariant: connections are in the order of their last heartbeats, so those overdue are the first."""

    def __init__(self, consumers: ConsumerManager, producers: ProducerManager) -> None:
        self._managers: Final = (consumers, producers)
        self._heard: Final[OrderedDict[Connection, float]] = OrderedDict()
        self._some_leave = trio.Event()

    def note_heartbeat(self, connection: Connection) -> None:
        """One has just come."""
        self._heard[connection] = trio.current_time()
        self._heard.move_to_end(connection)

    def forget(self, connection: Connection) -> None:
        """A connection closed."""
        self._heard.pop(connection, None)
        for manager in self._managers:
            manager.forget_member(connection)
            if manager.leaving.groups_of:
                self._some_leave.set()

    async def run(self) -> None:
        """End the connections of members that have been silent for too long, and let members go, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._let_go)
            while True:
                await trio.sleep(SCAN_EVERY_S)
                while self._end_overdue():
                    await trio.lowlevel.checkpoint()

    async def _let_go(self) -> None:
        """Take those who were in many groups out of these; everybody else goes on meanwhile."""
        while True:
            await self._some_leave.wait()
            self._some_leave = trio.Event()
            for manager in self._managers:
                for _ in manager.leaving.steps():
                    await trio.lowlevel.checkpoint()

    def _end_overdue(self) -> bool:
        """End some; returns whether there may be more. Who has left its groups may stay connected."""
        due = trio.current_time() - CHANNEL_EXPIRED_S
        for _ in range(_AT_ONCE):
            connection, heard_at = next(iter(self._heard.items()), (None, due))
            if connection is None or heard_at >= due:
                return False
            if any(manager.is_member(connection) for manager in self._managers):
                connection.close(f"no heartbeat for {CHANNEL_EXPIRED_S:g} s")
            self.forget(connection)
        return True
