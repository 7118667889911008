"""The tables that brokers have beside the log: as they are in memory, and as their files say after a power cut."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqha.broker.schedule.delay_offsets import decode_delay_offsets
from rmqha.broker.tables.offset_table import decode_offsets
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC, OP_TOPIC
from rmqha.codec import java_json
from rmqha.errors import RemoteProtocolError
from rmqha.store.config_files import CONSUMER_OFFSET, DELAY_OFFSET, SUBSCRIPTION_GROUP, TOPICS
from tests.sim import workload
from tests.sim.node import STORE, Process
from tests.sim.takeover.admin import KEEPER

if TYPE_CHECKING:
    from tests.sim.sim_disk import SimDisk

_CONFIG: Final = f"{STORE}/config/"
FILES: Final = (TOPICS, CONSUMER_OFFSET, SUBSCRIPTION_GROUP, DELAY_OFFSET)


@dataclass(frozen=True)
class Tables:
    """Those of one broker, as plain values that can be compared."""

    topics: dict[str, Any]
    """Without those that transactions make."""
    deleted: dict[str, Any]
    groups: dict[str, Any]
    offsets: dict[str, dict[int, int]]
    """Of the group that only ever goes on."""
    halves: dict[str, dict[int, int]]
    """How far half messages, and marks, are dealt with."""
    delay: dict[int, int]

    def differs(self, other: "Tables", *, but: tuple[str, ...] = ()) -> str:
        """The first table that is another there, and how; empty: they are the same."""
        for name in Tables.__dataclass_fields__:
            here, there = getattr(self, name), getattr(other, name)
            if name not in but and here != there:
                keys = [key for key in here.keys() | there.keys() if here.get(key) != there.get(key)]
                key = min(keys)
                return f"{name}: {key} is {here.get(key)}, not {there.get(key)}"
        return ""


def tables_of(process: Process) -> Tables:
    """What a broker has in memory."""
    metadata = process.broker.metadata
    topics = metadata.topics.to_json()
    return _tables(
        topics["topicConfigTable"],
        topics.get("deletedTopics", {}),
        metadata.groups._table,
        metadata.offsets.to_json()["offsetTable"],
        dict(metadata.delay_offsets),
    )


def saved_tables(disk: "SimDisk") -> Tables | str:
    """What a power cut would leave of them; or which of the files cannot be read."""
    values, name = dict[str, dict[str, Any]](), ""
    try:
        for name in FILES:
            inode = disk.files.get(_CONFIG + name)
            values[name] = java_json.loads(bytes(inode.durable)) if inode is not None else {}
        topics = TopicTable.from_json(values[TOPICS])
        return _tables(
            topics.topics,
            topics.deleted,
            SubscriptionGroupTable.from_json(values[SUBSCRIPTION_GROUP]).groups,
            decode_offsets(values[CONSUMER_OFFSET]),
            decode_delay_offsets(values[DELAY_OFFSET]),
        )
    except (RemoteProtocolError, AttributeError, TypeError, ValueError) as error:
        return f"{name or 'a table'} cannot be read: {error}"


def _tables(
    topics: dict[str, Any],
    deleted: dict[str, Any],
    groups: dict[str, Any],
    offsets: dict[str, dict[int, int]],
    delay: dict[int, int],
) -> Tables:
    return Tables(
        {name: topic for name, topic in topics.items() if name not in (HALF_TOPIC, OP_TOPIC)},
        dict(deleted),
        dict(groups),
        offsets={topic: dict(offsets.get(f"{topic}@{KEEPER}", {})) for topic in workload.TOPICS},
        halves={topic: dict(offsets.get(f"{topic}@{CONSUMER_GROUP}", {})) for topic in (HALF_TOPIC, OP_TOPIC)},
        delay={level: offset for level, offset in delay.items() if offset},
    )
