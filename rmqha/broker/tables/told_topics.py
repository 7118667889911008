"""What clients and name servers are told of a broker's topics: those that are saved, and what may be done there."""

from collections.abc import Iterator
from dataclasses import replace

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.route import PERM_READ, PERM_WRITE
from rmqha.config import BrokerConfig


def told_topics(topics: TopicConfigManager, config: BrokerConfig) -> Iterator[TopicConfig]:
    """All that may be told of, as there are now: others may have their turn between any two."""
    for topic in list(topics):
        if topic.topic_name not in topics.unsaved:
            yield as_told(topic, config)


def told_topic(topics: TopicConfigManager, name: str, config: BrokerConfig) -> TopicConfig | None:
    """One topic; None if there is none that may be told of."""
    topic = topics.select(name)
    return None if topic is None or name in topics.unsaved else as_told(topic, config)


def as_told(topic: TopicConfig, config: BrokerConfig) -> TopicConfig:
    """A topic, in which clients may do no more than on this broker."""
    forbidden = (PERM_READ | PERM_WRITE) & ~config.broker_permission
    return replace(topic, perm=topic.perm & ~forbidden) if topic.perm & forbidden else topic
