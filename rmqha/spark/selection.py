"""Which records of a block are wanted, decided on dictionaries of their topics and tags, not row by row."""

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.codec.record.layout import is_legal_topic
from rmqha.spark.fields import Fields, Mask
from rmqha.spark.options import SYSTEM_PREFIXES, SYSTEM_TOPICS, ReadOptions
from rmqha.spark.properties import PropertyPairs


@lru_cache(maxsize=4096)
def is_wanted_topic(topic: str, options: ReadOptions) -> bool:
    """Whether the options' topic filters let it through; system topics pass only when named or asked for."""
    if options.topics is not None:
        return topic in options.topics
    if options.topic_pattern is not None and not re.fullmatch(options.topic_pattern, topic):
        return False
    return options.include_system_topics or not is_system_topic(topic)


def is_system_topic(topic: str) -> bool:
    """Whether it is one in which brokers keep their own books, or second copies of messages."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)


def count_system_rows(topics: pa.DictionaryArray, options: ReadOptions) -> int:
    """How many rows are left out for their topic alone: none where topics are chosen by name or pattern."""
    if options.include_system_topics or options.topics is not None or options.topic_pattern is not None:
        return 0
    names = topics.dictionary.to_pylist()
    return int(np.count_nonzero(_by_value(topics, [is_system_topic(name.decode(errors="replace")) for name in names])))


def illegal_topics(topics: pa.DictionaryArray) -> Mask:
    """Records whose topic has characters that no topic may have: damage."""
    return _by_value(topics, [not is_legal_topic(topic) for topic in topics.dictionary.to_pylist()])


def select_rows(fields: Fields, topics: pa.DictionaryArray, options: ReadOptions) -> Mask:
    """Rows that pass the filters on topic and queue."""
    wanted = [is_wanted_topic(topic.decode(errors="replace"), options) for topic in topics.dictionary.to_pylist()]
    rows = _by_value(topics, wanted)
    if options.queues is not None:
        rows &= np.isin(fields.column("queue_id"), options.queues)
    return rows


def select_by_properties(pairs: PropertyPairs, options: ReadOptions) -> Mask:
    """Rows that pass the filters on key and tag."""
    rows = np.ones(pairs.counts.size, np.bool_)
    if options.tags is not None:
        rows &= pc.is_in(pairs.values_of("TAGS"), pa.array(options.tags, pa.string())).to_numpy(zero_copy_only=False)
    if options.keys is not None:
        wanted = set(options.keys)
        keys, unique = pairs.values_of("KEYS").to_pylist(), pairs.values_of("UNIQ_KEY").to_pylist()
        both = zip(keys, unique, strict=True)
        found = [one in wanted or not wanted.isdisjoint((many or "").split(" ")) for many, one in both]
        rows &= np.array(found, np.bool_)
    return rows


def _by_value(coded: pa.DictionaryArray, of_value: list[bool]) -> Mask:
    return np.array(of_value, np.bool_)[coded.indices.to_numpy()] if len(coded) else np.ones(0, np.bool_)
