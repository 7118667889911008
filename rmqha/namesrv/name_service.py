"""NameService: all that a name server answers, on whatever routes."""

from collections.abc import Callable
from typing import Final

import trio

from rmqha.namesrv.broker_registration_processor import BrokerRegistrationProcessor
from rmqha.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from rmqha.namesrv.kv_config_processor import KVConfigProcessor
from rmqha.namesrv.route_processor import RouteProcessor
from rmqha.namesrv.routes import Routes
from rmqha.remoting.dispatcher import RequestDispatcher

_SCAN_EVERY_S: Final = 10.0


class NameService:
    """Its processors, the scan for brokers that are silent, and the saving of what operators keep here."""

    def __init__(
        self,
        routes: Routes,
        kv_config: KVConfigManager,
        *,
        order_message_enable: bool,
        properties: Callable[[], str],
    ) -> None:
        """Answer nothing yet.

        Args:
            routes: the brokers and their topics.
            kv_config: what operators keep here.
            order_message_enable: whether routes hold what operators keep there for ordered messages.
            properties: the configuration, as Java properties.
        """
        self._routes: Final = routes
        self._kv_config: Final = kv_config
        self._order_message_enable: Final = order_message_enable
        self._properties: Final = properties

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take all codes of a name server."""
        BrokerRegistrationProcessor(self._routes, ordered_topics=self._ordered_topics).register(dispatcher)
        RouteProcessor(self._routes, order_topic_conf=self._order_topic_conf).register(dispatcher)
        KVConfigProcessor(self._kv_config, properties=self._properties).register(dispatcher)

    def _ordered_topics(self) -> dict[str, str]:
        return self._kv_config.get_kv_list_by_namespace(NAMESPACE_ORDER_TOPIC_CONFIG)

    def _order_topic_conf(self, topic: str) -> str | None:
        return self._ordered_topics().get(topic) if self._order_message_enable else None

    async def run(self) -> None:
        """Forget brokers that are silent for too long, and save what operators keep here, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kv_config.run)
            while True:
                await trio.sleep(_SCAN_EVERY_S)
                for _ in self._routes.scan_not_active_broker(now=trio.current_time()):
                    await trio.lowlevel.checkpoint()
