"""What brokers answer to an operator's questions about topics and groups, as values.

Each function asks one broker, and raises UnreachableError, RefusedError, or what comes of an answer that is none:
they are for :func:`~rmqha.cli.named_brokers.ask_each`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.codec.admin_headers import GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader, TopicRequestHeader
from rmqha.codec.codes import NOT_COMMITTED_FIELD, READS_ORIGIN_FIELD, RequestCode, ResponseCode
from rmqha.codec.group_headers import ConsumerGroupRequestHeader
from rmqha.codec.java_json import loads


@dataclass(frozen=True)
class QueueStats:
    """A queue of a topic: the offsets [first, end) are there; when its last message was stored (0: none was)."""

    queue_id: int
    first: int
    end: int
    last_stored_ms: int


@dataclass(frozen=True)
class ConsumedQueue:
    """How far a group is in a queue."""

    topic: str
    queue_id: int
    end: int
    consumed: int
    consumed_stored_ms: int
    """When the last message that it consumed was stored; 0: none, or it is gone."""
    is_committed: bool = True
    """False: it consumes the topic and has committed nothing of it; ``consumed`` is the first message that is there.

    Brokers of RocketMQ's do not tell of such topics.
    """

    @property
    def lag(self) -> int:
        """Messages that it has not consumed; none if it is ahead, as after a loss."""
        return max(self.end - self.consumed, 0)


def topic_configs(connection: BrokerConnection) -> dict[str, TopicConfig]:
    """All topics."""
    return TopicTable.from_json(_document(connection, RequestCode.GET_ALL_TOPIC_CONFIG)).topics


def system_topics(connection: BrokerConnection) -> set[str]:
    """Topics of RocketMQ's own parts."""
    return set(map(str, _document(connection, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]))


def topic_stats(connection: BrokerConnection, topic: str) -> list[QueueStats]:
    """The queues of a topic that are written; none if the broker does not have it."""
    try:
        document = _document(connection, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic))
    except RefusedError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        raise
    queues = [
        QueueStats(int(queue["queueId"]), int(one["minOffset"]), int(one["maxOffset"]), int(one["lastUpdateTimestamp"]))
        for queue, one in _by_queue(document["offsetTable"])
    ]
    return sorted(queues, key=lambda queue: queue.queue_id)


def groups_of_topic(connection: BrokerConnection, topic: str) -> list[str]:
    """The groups that subscribe to it, or have consumed it."""
    document = _document(connection, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic))
    return sorted(map(str, document["groupList"]))


def group_configs(connection: BrokerConnection) -> dict[str, dict[str, Any]]:
    """All groups, with what each is allowed."""
    document = _document(connection, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return {str(name): dict(config) for name, config in document["subscriptionGroupTable"].items()}


def all_consumed(connection: BrokerConnection) -> dict[str, list[ConsumedQueue]]:
    """How far each group is that has consumed anything, or does now."""
    document = _document(connection, RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader())
    groups: dict[str, list[ConsumedQueue]] = {}
    for by_group in document["consumeStatsList"]:
        for group, stats in by_group.items():
            groups.setdefault(str(group), []).extend(queue for one in stats for queue in _consumed_queues(one))
    return groups


def consumed(connection: BrokerConnection, group: str, topic: str | None = None) -> list[ConsumedQueue]:
    """How far a group is; none if it consumes nothing, and never did."""
    header = GetConsumeStatsRequestHeader(group, topic)
    queues = _consumed_queues(_document(connection, RequestCode.GET_CONSUME_STATS, header))
    return sorted(queues, key=lambda queue: (queue.topic, queue.queue_id))


def group_connections(connection: BrokerConnection, group: str) -> dict[str, Any] | None:
    """The members of a group and what they subscribe to; None if nobody is connected."""
    try:
        return _document(connection, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader(group))
    except RefusedError as error:
        if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR) and "online" in error.remark:
            return None
        raise


def _document(connection: BrokerConnection, code: RequestCode, header: object | None = None) -> dict[str, Any]:
    more = {READS_ORIGIN_FIELD: "true", NOT_COMMITTED_FIELD: "true"}
    document = loads(bytes(connection.ask_for(code, header, more=more).body))
    if not isinstance(document, dict):
        raise TypeError("it is no JSON object")
    return document


def _by_queue(table: dict[Any, Any]) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    """Entries whose keys are queues."""
    return [(loads(key), entry) for key, entry in table.items()]


def _consumed_queues(stats: dict[str, Any]) -> list[ConsumedQueue]:
    return [
        ConsumedQueue(
            str(queue["topic"]),
            int(queue["queueId"]),
            end=int(one["brokerOffset"]),
            consumed=int(one["consumerOffset"]),
            consumed_stored_ms=int(one["lastTimestamp"]),
            is_committed=not one.get(NOT_COMMITTED_FIELD),
        )
        for queue, one in _by_queue(stats["offsetTable"])
    ]
