"""Topics, and groups that consume them: so many have metrics of their own, and the others are summed.

To look at all queues of a large broker takes a while: it is done in turns, and every ten seconds at most.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

import trio
from prometheus_client.metrics_core import Metric

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.clients.not_committed import not_committed
from rmqha.broker.stats_item import MINUTE, NUMS, SIZE, StatsItem
from rmqha.broker.tables.retry_topics import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.transaction.half_message import CONSUMER_GROUP
from rmqha.metrics.families import counter, counters, gauge, gauges

OTHER: Final = "(other)"
"""The topic, or group and topic, of those beyond ``metricsTopicsMax``: no name of RocketMQ's has parentheses."""
_FRESH_S: Final = 10.0
_QUEUES_AT_ONCE: Final = 200

_TOPIC: Final = (
    ("rocketmq_producer_offset", "Sum of the ends of its queues."),
    ("rocketmq_producer_tps", "Messages a second, last minute."),
    ("rocketmq_producer_message_size", "Bytes a second, last minute."),
)
_TOPIC_TOTALS: Final = (
    ("rmqha_topic_messages", "Messages that came to be seen."),
    ("rmqha_topic_bytes", "Bytes of their records."),
)
_GROUP: Final = (
    ("rocketmq_consumer_offset", "Sum of the ends of the queues that it consumes."),
    ("rocketmq_group_consume_total_offset", "Sum of its offsets."),
    ("rocketmq_group_diff", "Messages that it has not consumed."),
    ("rocketmq_consumer_tps", "Messages a second, last minute."),
    ("rocketmq_consumer_message_size", "Bytes a second, last minute."),
    ("rmqha_group_members", "Consumers connected."),
)
_LAG: Final = 2
"""The column of rocketmq_group_diff."""
_Row = tuple[float, ...]
_Rows = dict[tuple[str, ...], _Row]


class TopicFamilies:
    """What was found when somebody last asked, and it was not fresh any more."""

    def __init__(self, broker: BrokerController) -> None:
        self._broker: Final = broker
        self._topics: _Rows = {}
        self._groups: _Rows = {}
        self._dead_letters: _Rows = {}
        self._counts = (0, 0, 0)
        self._made_at = -inf
        self._looked_at = 0

    async def refresh(self) -> None:
        """Look at all topics and groups, unless that was done a moment ago."""
        if trio.current_time() < self._made_at + _FRESH_S:
            return
        topics = await self._ranked()
        self._topics, queues = await self._look_at_topics(topics)
        self._dead_letters = await self._look_at_dead_letters(topics)
        self._groups, pairs = await self._look_at_groups()
        self._counts = len(topics), queues, pairs
        self._made_at = trio.current_time()

    async def _ranked(self) -> list[TopicConfig]:
        """Clients' own topics come first; then those for retries and dead letters, and last the built-in ones."""
        ranks: tuple[list[TopicConfig], ...] = ([], [], [])
        for topic in list(self._broker.topics):
            await self._pause()
            name = topic.topic_name
            ranks[2 if self._broker.topics.is_system_topic(name) else int(name.startswith("%"))].append(topic)
        return [topic for rank in ranks for topic in rank]

    async def _look_at_topics(self, topics: list[TopicConfig]) -> tuple[_Rows, int]:
        """What is told of them, and how many queues they have."""
        rows: _Rows = {}
        queues = 0
        for topic in topics:
            name = topic.topic_name
            await self._pause()
            end, queues = 0, queues + topic.queue_nums
            for queue_id in range(topic.queue_nums):
                await self._pause()
                end += self._broker.store.get_max_offset_in_queue(name, queue_id)
            found = self._broker.stats.find("TOPIC_PUT_NUMS", name)
            if found is None:
                row: _Row = (end, 0.0, 0.0, 0.0, 0.0)
            else:
                item = found[0]
                row = (end, *self._tps(item), item.nums, item.size)
            self._add(rows, (name,), row)
        return rows, queues

    async def _look_at_dead_letters(self, topics: list[TopicConfig]) -> _Rows:
        """By group the messages that are there."""
        rows: _Rows = {}
        for topic in topics:
            await self._pause()
            if topic.topic_name.startswith(DLQ_GROUP_TOPIC_PREFIX):
                stored = 0
                for queue_id in range(topic.queue_nums):
                    await self._pause()
                    first, end = self._broker.store.queues.readable_range_of(topic.topic_name, queue_id)
                    stored += end - first
                self._add(rows, (topic.topic_name.removeprefix(DLQ_GROUP_TOPIC_PREFIX),), (stored,))
        return rows

    async def _look_at_groups(self) -> tuple[_Rows, int]:
        rows: _Rows = {}
        pairs = 0
        committed = await self._broker.offsets.topics_by_group_in_turns()
        for group, topics in committed.items():
            online = self._broker.consumers.find_group(group)
            for name in topics if group != CONSUMER_GROUP else ():
                topic = self._broker.topics.select(name)
                if topic is None or (online is not None and name not in online.subscriptions):
                    continue  # nobody consumes it any more
                pairs += 1
                members = 0 if online is None else len(online.members)
                self._add(
                    rows, (name, group), (*await self._offsets_of(group, topic), *self._rates(group, name), members)
                )
        return rows, pairs + await self._look_at_uncommitted(rows, committed)

    async def _look_at_uncommitted(self, rows: _Rows, committed: dict[str, list[str]]) -> int:
        """Topics that members subscribe to and have committed nothing of, while there is room for a line of each.

        Heartbeats may name so many that to look at all would take minutes.
        """
        pairs = 0
        for group in self._broker.consumers.names():
            await self._pause()
            if (online := self._broker.consumers.find_group(group)) is None:
                continue
            for name in not_committed(group, online, committed=committed.get(group, ()), got={}):
                if len(rows) >= self._broker.config.metrics_topics_max:
                    return pairs
                await self._pause()
                if (topic := self._broker.topics.select(name)) is None:
                    continue
                pairs += 1
                of_queues = await self._offsets_of(group, topic)
                self._add(rows, (name, group), (*of_queues, *self._rates(group, name), len(online.members)))
        return pairs

    async def _offsets_of(self, group: str, topic: TopicConfig) -> tuple[int, int, int]:
        """Where the queues end, where the group is, and what of them it lacks, all queues together.

        Of a queue in which it has committed nothing it lacks what is there.
        """
        offsets = self._broker.offsets.query_offsets(group, topic.topic_name)
        ends = consumed = lag = 0
        for queue_id in range(topic.read_queue_nums):
            await self._pause()
            first, end = self._broker.store.queues.readable_range_of(topic.topic_name, queue_id)
            lag += max(0, end - offsets.get(queue_id, first))
            ends, consumed = ends + end, consumed + offsets.get(queue_id, 0)
        return ends, consumed, lag

    def _rates(self, group: str, topic: str) -> tuple[float, float]:
        found = self._broker.stats.find("GROUP_GET_NUMS", f"{topic}@{group}")
        if found is None:
            return 0.0, 0.0
        return self._tps(found[0])

    def _tps(self, item: StatsItem) -> tuple[float, float]:
        """Messages and bytes a second, of the last minute."""
        stats = self._broker.stats
        return stats.snapshot(item, MINUTE, NUMS).tps, stats.snapshot(item, MINUTE, SIZE).tps

    def _add(self, rows: _Rows, key: tuple[str, ...], row: _Row) -> None:
        if len(rows) >= self._broker.config.metrics_topics_max:
            key = (OTHER,) * len(key)
        former = rows.get(key)
        rows[key] = row if former is None else tuple(a + b for a, b in zip(former, row, strict=True))

    async def _pause(self) -> None:
        self._looked_at += 1
        if self._looked_at % _QUEUES_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()

    def families(self) -> Iterator[Metric]:
        """Of what was found."""
        topics, queues, pairs = self._counts
        yield gauge("rmqha_topics", "Topics, the built-in ones among them.", topics)
        yield gauge("rmqha_queues", "Queues of all topics.", queues)
        yield gauge("rmqha_queues_max", "maxQueues, and the built-in topics' besides.", self._broker.topics.queues_max)
        yield counter("rmqha_topics_refused", "Made by no send, for want of room.", self._broker.topics.refused.count)
        yield gauge("rmqha_subscriptions", "Pairs of a group and a topic that it consumes.", pairs)
        who = (self._broker.config.broker_cluster_name, self._broker.config.broker_name)
        labels = ["cluster", "broker", "topic"]
        for column, (name, meaning) in enumerate(_TOPIC):
            yield gauges(name, meaning, labels, {(*who, *key): row[column] for key, row in self._topics.items()})
        for column, (name, meaning) in enumerate(_TOPIC_TOTALS, len(_TOPIC)):
            values = {key: row[column] for key, row in self._topics.items()}
            yield counters(name, f"{meaning[:-1]} since the start.", ["topic"], values)
        for column, (name, meaning) in enumerate(_GROUP):
            values = {(*who, *key): row[column] for key, row in self._groups.items()}
            yield gauges(name, meaning, [*labels, "group"], values)
        retries = {(*who, *key): row[_LAG] for key, row in self._groups.items() if _is_retry_topic(key[0])}
        meaning = "Messages to be tried again that it has not consumed."
        yield gauges("rocketmq_group_retrydiff", meaning, [*labels, "group"], retries)
        dead = {key: row[0] for key, row in self._dead_letters.items()}
        yield gauges("rmqha_dead_letters", "Messages that a group gave up, and that are there.", ["group"], dead)


def _is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
