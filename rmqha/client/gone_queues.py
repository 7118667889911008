"""GoneQueues: queues that an operator took away, or made unreadable; they are left alone until the route has them."""

from collections.abc import Iterable
from typing import Final

from rmqha.client.environment import logger
from rmqha.client.message import MessageQueue
from rmqha.client.topic_routes import readable_queues
from rmqha.codec.route import TopicRouteData


class GoneQueues:
    """Of one topic. Of a broker that a route does not name, because it is away, it says nothing."""

    def __init__(self, topic: str) -> None:
        self._topic: Final = topic
        self._gone: frozenset[MessageQueue] = frozenset()

    def __contains__(self, queue: MessageQueue | None) -> bool:
        return queue in self._gone

    def note_route(self, known: Iterable[MessageQueue], route: TopicRouteData) -> None:
        """Of the queues that were ``known``, this route has some."""
        readable = frozenset(readable_queues(self._topic, route))
        brokers = {data.broker_name for data in route.queue_datas}
        gone = frozenset(queue for queue in known if queue.broker_name in brokers and queue not in readable)
        for queue in sorted(gone - self._gone):
            logger.warning("consumer.queue_gone: %s may not be read any more", queue)
        self._gone = gone
