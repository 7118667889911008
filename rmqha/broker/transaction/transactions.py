"""Transactions: the parts that transactional messages need, made and run together."""

from collections.abc import Callable
from typing import Final

import trio

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.processors.end_transaction_processor import EndTransactionProcessor
from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.transaction.check_listener import DefaultTransactionalMessageCheckListener
from rmqha.broker.transaction.check_service import TransactionalMessageCheckService
from rmqha.broker.transaction.rules import TransactionRules
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.broker.transaction.transactional_message_service import TransactionalMessageService
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.message_store import DefaultMessageStore


class Transactions:
    """What a broker has of them: the processor of 37, and the service that asks producers."""

    def __init__(  # noqa: PLR0917 - the parts it brings together
        self,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        puts: PutMessageService,
        internal_puts: InternalPuts,
        producers: ProducerManager,
        access: ClientAccess,
        *,
        rules: TransactionRules,
        now_ms: Callable[[], int],
    ) -> None:
        """Make them for one life.

        Args:
            store: with the queues of half messages and marks.
            topics: to one that was deleted nothing is committed.
            offsets: where they are saved up to which all is done.
            puts: for what clients ask for.
            internal_puts: for what the broker itself writes.
            producers: who is asked.
            access: who may be, and who may end a transaction.
            rules: the operator's.
            now_ms: the door to wall-clock time.
        """
        self._bridge: Final = TransactionalMessageBridge(store, offsets)
        service = TransactionalMessageService(
            self._bridge,
            DefaultTransactionalMessageCheckListener(producers, access, store.stats.discarded_halves),
            puts=internal_puts,
            role=store.role,
            rules=rules,
            now_ms=now_ms,
        )
        self._service: Final = service
        self._checks: Final = TransactionalMessageCheckService(
            service, store.stats, interval_s=rules.transaction_check_interval_s
        )
        self._processor: Final = EndTransactionProcessor(
            service, self._bridge, topics, puts, access, role=store.role, store_host=rules.store_host, now_ms=now_ms
        )

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of transactions."""
        self._processor.register(dispatcher)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._bridge.run)
            nursery.start_soon(self._service.run)
            nursery.start_soon(self._checks.run)
