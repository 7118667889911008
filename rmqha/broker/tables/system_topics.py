"""Topics that every broker has, and those that no client may send to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.limits import FORBIDDEN_SEND_TOPICS
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.route import AUTO_CREATE_TOPIC_KEY_TOPIC, PERM_INHERIT, PERM_READ, PERM_WRITE

_SCHEDULE_QUEUE_NUMS: Final = 18
_CLUSTER_TOPIC_QUEUE_NUMS: Final = 16
_BENCHMARK_QUEUE_NUMS: Final = 1024

SYSTEM_TOPICS: Final = FORBIDDEN_SEND_TOPICS | {AUTO_CREATE_TOPIC_KEY_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC"}
_SYSTEM_PREFIX: Final = "rmq_sys_"
"""Source: TopicValidator.java."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the broker's configuration says about topics."""

    broker_cluster_name: str
    broker_name: str
    auto_create_topic_enable: bool
    default_topic_queue_nums: int
    max_queues: int
    """Of all topics but the built-in ones, at least one each; no send makes a topic beyond it."""
    trace_topic_enable: bool
    msg_trace_topic_name: str

    def is_system_topic(self, topic: str) -> bool:
        """Whether no operator may make, change or delete it."""
        return topic in SYSTEM_TOPICS or topic in self._own or topic.startswith(_SYSTEM_PREFIX)

    def system_topics(self) -> list[str]:
        """Those of them that every broker of the cluster knows, and this broker's own."""
        return sorted(SYSTEM_TOPICS | self._own)

    @property
    def _own(self) -> set[str]:
        own = {self.broker_cluster_name, self.broker_name, f"{self.broker_cluster_name}_REPLY_TOPIC"}
        return own | {self.msg_trace_topic_name} if self.trace_topic_enable else own


def built_in_topics(rules: TopicRules) -> Iterator[TopicConfig]:
    """Topics every broker has (TopicConfigManager.java:61-170; spec: remoting §2.3); of two with a name the last."""
    if rules.trace_topic_enable:
        yield TopicConfig(rules.msg_trace_topic_name, 1, 1)
    everything = PERM_READ | PERM_WRITE | PERM_INHERIT
    yield TopicConfig("SELF_TEST_TOPIC", 1, 1)
    if rules.auto_create_topic_enable:
        nums = rules.default_topic_queue_nums
        yield TopicConfig(AUTO_CREATE_TOPIC_KEY_TOPIC, nums, nums, everything)
    yield TopicConfig("BenchmarkTest", _BENCHMARK_QUEUE_NUMS, _BENCHMARK_QUEUE_NUMS)
    yield TopicConfig(rules.broker_cluster_name, _CLUSTER_TOPIC_QUEUE_NUMS, _CLUSTER_TOPIC_QUEUE_NUMS, everything)
    yield TopicConfig(rules.broker_name, 1, 1, everything)
    yield TopicConfig("OFFSET_MOVED_EVENT", 1, 1)
    yield TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_QUEUE_NUMS, _SCHEDULE_QUEUE_NUMS)
    yield TopicConfig(f"{rules.broker_cluster_name}_REPLY_TOPIC", 1, 1)
