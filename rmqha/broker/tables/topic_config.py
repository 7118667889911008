"""TopicConfig, and the table of all: how RocketMQ writes topics down, in ``topics.json`` and in answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rmqha.broker.tables.change_stamps import decode_stamps
from rmqha.codec.deleted_topic import DeletedTopic, decode_before, decode_deleted
from rmqha.codec.queue_table import decode_topic
from rmqha.codec.route import PERM_READ, PERM_WRITE, QUEUE_NUMS_MAX
from rmqha.errors import RemoteProtocolError

CHANGED_TOPICS: Final = "changedTopics"
"""A member that every table has which rmqha wrote."""
_INT32_MAX: Final = 2**31 - 1
_ENTRY_SIZE: Final = 180
"""An entry without its names, with the longest numbers."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. ``perm`` is a sum of 8 priority, 4 read, 2 write, 1 inherit.

    Attributes:
        attributes: names and values that RocketMQ 5 gives a topic. They have no effect here, and are kept: its brokers
            do not start without them on what they were made for.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def json_size(self) -> int:
        """The bytes that an entry of a table of topics has at most."""
        size = 2 * len(self.topic_name) + len(self.topic_filter_type) + _ENTRY_SIZE
        return size + len(json.dumps(self._attributes)) if self.attributes else size

    @property
    def queue_nums(self) -> int:
        """How many queues there are, for reading or writing."""
        return max(self.read_queue_nums, self.write_queue_nums, 1)

    @property
    def all_queues(self) -> range:
        """The numbers of those that are read or written: one that is not written any more may hold messages still."""
        return range(max(self.read_queue_nums, self.write_queue_nums))

    def to_json(self) -> dict[str, Any]:
        """The members as RocketMQ writes them (spec: commitlog §11)."""
        return self._attributes | {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @property
    def _attributes(self) -> dict[str, Any]:
        return {"attributes": dict(self.attributes)} if self.attributes else {}

    @classmethod
    def from_json(cls, name: str, value: dict[str, Any]) -> "TopicConfig":
        """Read one entry of ``topicConfigTable``; members that are missing keep their defaults.

        Of more queues than clients make room for, which RocketMQ lets an operator say, these many are taken.

        Raises:
            AttributeError, TypeError, ValueError: the entry, or its name, is none.
        """
        if type(name) is not str:
            raise TypeError(f"{name!r:.40} is no topic's name")
        return cls(
            topic_name=name,
            read_queue_nums=min(_int32(value.get("readQueueNums", 16)), QUEUE_NUMS_MAX),
            write_queue_nums=min(_int32(value.get("writeQueueNums", 16)), QUEUE_NUMS_MAX),
            perm=_int32(value.get("perm", PERM_READ | PERM_WRITE)),
            topic_filter_type=str(value.get("topicFilterType", "SINGLE_TAG")),
            topic_sys_flag=_int32(value.get("topicSysFlag", 0)),
            order=bool(value.get("order", False)),
            attributes=decode_attributes(value.get("attributes")),
        )


def decode_attributes(value: Any) -> tuple[tuple[str, str], ...]:
    """The member ``attributes`` of an entry, sorted; what is no name with a text is left out."""
    told = value.items() if isinstance(value, dict) else ()
    return tuple(sorted((name, text) for name, text in told if type(name) is type(text) is str))


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The topics of a broker; ``data_version`` (timestamp ms, counter) tells it from its earlier ones."""

    data_version: tuple[int, int]
    topics: dict[str, TopicConfig]
    deleted: dict[str, DeletedTopic] = field(default_factory=dict)
    deleted_before: int = 0
    changed: Mapping[str, int] | None = None
    """When operators changed, or deleted, which topic last; None: it does not say, as RocketMQ's."""
    learned: frozenset[str] = frozenset()
    """Those of which nothing but its log has told that broker."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "TopicTable":
        """Read ``topics.json``, or the answer to request 21. Raises RemoteProtocolError if it is no such table."""
        try:
            version = value.get("dataVersion") or {}
            data_version = (int(version.get("timestamp", 0)), int(version.get("counter", 0)))
            deleted = decode_deleted(value.get("deletedTopics"))
            deleted_before = decode_before(value.get("deletedBefore"))
            changed = decode_stamps(value.get(CHANGED_TOPICS))
            learned = frozenset(map(decode_topic, value.get("learnedTopics") or ()))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"topics do not parse: {error!r:.200}") from None
        return cls(data_version, decode_topics(value), deleted, deleted_before, changed, learned)


def _int32(value: Any) -> int:
    number = int(value)
    if not ~_INT32_MAX <= number <= _INT32_MAX:
        raise ValueError("a number is no int32")
    return number


def decode_topics(value: dict[str, Any]) -> dict[str, TopicConfig]:
    """The member ``topicConfigTable`` of a table of topics. Raises RemoteProtocolError if it is none."""
    try:
        return {name: TopicConfig.from_json(name, entry) for name, entry in value["topicConfigTable"].items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"topics do not parse: {error!r:.200}") from None
