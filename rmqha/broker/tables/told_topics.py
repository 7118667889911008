"""What clients and name servers are told of a broker's topics: those that are saved, and what may be done there."""

from collections.abc import Iterator
from dataclasses import replace

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.route import PERM_READ, PERM_WRITE
from rmqha.config import BrokerConfig


def told_topics(topics: TopicConfigManager, config: BrokerConfig, *, follows_tables: bool) -> Iterator[TopicConfig]:
    """All that may be told of, as there are now: others may have their turn between any two."""
    for topic in list(topics):
        if _may_be_told(topics, topic.topic_name, follows_tables=follows_tables):
            yield as_told(topic, config)


def told_topic(
    topics: TopicConfigManager, name: str, config: BrokerConfig, *, follows_tables: bool
) -> TopicConfig | None:
    """One topic; None if there is none that may be told of."""
    topic = topics.select(name)
    return as_told(topic, config) if topic and _may_be_told(topics, name, follows_tables=follows_tables) else None


def _may_be_told(topics: TopicConfigManager, name: str, *, follows_tables: bool) -> bool:
    """Who knows a topic from its first messages alone waits for the master's table, if that is going to come.

    It would tell of too few queues, and some consumers ask only once: they would never read the others.
    """
    is_awaited = follows_tables and name in topics.learned and name not in topics.learned_before
    return name not in topics.unsaved and not is_awaited


def as_told(topic: TopicConfig, config: BrokerConfig) -> TopicConfig:
    """A topic, in which clients may do no more than on this broker."""
    forbidden = (PERM_READ | PERM_WRITE) & ~config.broker_permission
    return replace(topic, perm=topic.perm & ~forbidden) if topic.perm & forbidden else topic
