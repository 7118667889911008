"""TransactionalMessageCheckService: a round over the half messages now and then, while this broker is master.

Source: rocketmq-all-4.9.8 TransactionalMessageCheckService.java.
"""

from typing import Final

import trio

from rmqha.broker.transaction.transactional_message_service import TransactionalMessageService
from rmqha.store.store_stats_service import StoreStatsService


class TransactionalMessageCheckService:
    """Has rounds made; a round that takes longer than the interval delays the next."""

    def __init__(self, service: TransactionalMessageService, stats: StoreStatsService, *, interval_s: float) -> None:
        self._service: Final = service
        self._stats: Final = stats
        self._interval_s: Final = interval_s

    async def run(self) -> None:
        """Until cancelled. The first round comes after one interval: producers have to connect first."""
        while True:
            await trio.sleep(self._interval_s)
            self._stats.undecided_half_messages = await self._service.check()
