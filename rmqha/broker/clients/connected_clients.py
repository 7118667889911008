"""ConnectedClients: the processors of what clients say of themselves, and the tasks behind them."""

from collections.abc import Callable

import trio

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.clients.consumer_ids_change_listener import ConsumerIdsChangeListener
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.processors.call_consumer_processor import CallConsumerProcessor
from rmqha.broker.processors.client_list_processor import ClientListProcessor
from rmqha.broker.processors.client_manage_processor import ClientManageProcessor
from rmqha.broker.processors.consumer_manage_processor import ConsumerManageProcessor
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.config import BrokerConfig
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.message_store import DefaultMessageStore


class ConnectedClients:
    """Who is connected, in which groups; who is told of it, and who may ask."""

    def __init__(  # noqa: PLR0917 - the parts it brings together
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        producers: ProducerManager,
        access: ClientAccess,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._producers = producers
        self._access = access
        is_told = config.notify_consumer_ids_changed_enable
        self._listener = ConsumerIdsChangeListener(consumers, groups, topics.untold, is_enabled=is_told)
        self._manage = ClientManageProcessor(
            consumers, producers, groups, topics, access, role=store.role, now_ms=now_ms
        )

    def register(self, dispatcher: RequestDispatcher, *, broker_name: str) -> None:
        """Take the codes of clients."""
        self._manage.register(dispatcher)
        ConsumerManageProcessor(self._consumers, self._access).register(dispatcher)
        ClientListProcessor(self._consumers, self._producers).register(dispatcher)
        CallConsumerProcessor(self._store, self._consumers, broker_name=broker_name).register(dispatcher)

    async def run(self) -> None:
        """Tell members of each other, and end those that are silent, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listener.run)
            nursery.start_soon(self._manage.housekeeping.run)
