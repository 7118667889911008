"""The request headers of mqadmin's commands; see :mod:`rmqha.codec.headers`.

Source: spec: remoting §2.7.
"""

from dataclasses import dataclass

from rmqha.codec.headers import Int32, Int64


@dataclass(frozen=True, slots=True)
class CreateTopicRequestHeader:
    """17 UPDATE_AND_CREATE_TOPIC; ``order`` is not kept, as in RocketMQ.

    ``attributes`` are RocketMQ 5's: ``+name=value`` sets one and ``-name`` takes it away, several with commas.
    """

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    attributes: str | None = None


@dataclass(frozen=True, slots=True)
class TopicRequestHeader:
    """202 GET_TOPIC_STATS_INFO, 215 DELETE_TOPIC_IN_BROKER, 300 QUERY_TOPIC_CONSUME_BY_WHO, 351 GET_TOPIC_CONFIG."""

    topic: str


@dataclass(frozen=True, slots=True)
class GetConsumeStatsRequestHeader:
    """208 GET_CONSUME_STATS; without a topic all that the group has consumed."""

    consumer_group: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class ResetOffsetRequestHeader:
    """222 INVOKE_BROKER_TO_RESET_OFFSET, and 220 to clients; ``timestamp`` in milliseconds, -1 for the end.

    RocketMQ 5's mqadmin can name one queue, and the offset in it; -1 or none: all queues, by the time.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 | None = None
    offset: Int64 | None = None


@dataclass(frozen=True, slots=True)
class QueryConsumeTimeSpanRequestHeader:
    """303 QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class CloneGroupOffsetRequestHeader:
    """314 CLONE_GROUP_OFFSET; without a topic all that the group has consumed."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True)
class ViewBrokerStatsDataRequestHeader:
    """315 VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True)
class GetConsumeStatsInBrokerHeader:
    """317 GET_BROKER_CONSUME_STATS; with ``is_order`` of topics whose messages are in order alone."""

    is_order: bool = False


@dataclass(frozen=True, slots=True)
class QueryConsumeQueueRequestHeader:
    """321 QUERY_CONSUME_QUEUE."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
