"""GoneQueues: queues that an operator took away, or made unreadable; they are left alone until the route has them."""

from collections.abc import Iterable
from typing import Final

from rmqha.client.environment import logger
from rmqha.client.message import MessageQueue
from rmqha.client.topic_routes import readable_queues
from rmqha.codec.route import TopicRouteData


class GoneQueues:
    """Of one topic: their broker refused them, and the route does not have them.

    A route alone proves nothing: a slave may tell one that is older. Of a broker that it does not name it says nothing.
    """

    def __init__(self, topic: str) -> None:
        self._topic: Final = topic
        self._gone: frozenset[MessageQueue] = frozenset()

    def __contains__(self, queue: MessageQueue | None) -> bool:
        return queue in self._gone

    def note_route(self, refused: Iterable[MessageQueue | None], route: TopicRouteData) -> None:
        """The route, looked up after these queues were refused."""
        readable = frozenset(readable_queues(self._topic, route))
        brokers = {data.broker_name for data in route.queue_datas}
        doubtful = {queue for queue in refused if queue is not None} | self._gone
        gone = frozenset(queue for queue in doubtful if queue.broker_name in brokers and queue not in readable)
        for queue in sorted(gone - self._gone):
            logger.warning("consumer.queue_gone: %s may not be read any more", queue)
        self._gone = gone
