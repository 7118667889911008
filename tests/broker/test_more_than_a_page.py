"""What is gone through a page at a time comes to its end: large tables are the ones that cost most if they are lost."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.replication.role import Role
from rmqha.store.consume_queue_table import QueueKey
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.machines import Machine
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.store.helpers import Clock, make_store, options

MANY = 1200
MANY_ENDS = {("silent", number): 5 for number in range(MANY)}


def store_with_many_queues() -> DefaultMessageStore:
    """None holds a message any more, and each has had five."""
    store = make_store(options(), SimDisk().mount(), now_ms=Clock())
    for key in MANY_ENDS:
        queue = store.queues.find_or_create(*key)
        queue.start_at(5)
        queue.create_file()
    return store


@pytest.mark.parametrize("note", [QueueEnds.note_gone, lambda ends: ends.note_going(0)], ids=["gone", "going"])
async def test_the_end_of_each_queue_is_noted_when_its_messages_go(note: Callable[[QueueEnds], Any]) -> None:
    """Nothing else tells it: places would be given a second time."""
    store = store_with_many_queues()
    await note(QueueEnds(store))
    assert store.queues.known_ends == MANY_ENDS


async def test_each_end_that_was_told_of_a_longer_log_counts_once_that_is_here() -> None:
    store = make_store(options(), SimDisk().mount(), now_ms=Clock())
    ends = QueueEnds(store)
    await ends.learn_later({"queueEnds": {"silent": {str(number): 5 for number in range(MANY)}}}, log_end=1)
    assert (await ends.settle(), store.queues.known_ends) == (False, {})
    store.reput.begin_at(1)
    assert (await ends.settle(), store.queues.known_ends) == (True, MANY_ENDS)


async def test_each_queue_of_the_log_has_its_topic() -> None:
    """Of a master that lost its tables it is the log alone that tells of some."""

    def next_offsets(start: int, count: int) -> dict[QueueKey, int]:
        return {(f"topic{number}", 0): 1 for number in range(start, min(start + count, 2 * MANY))}

    queues: Any = SimpleNamespace(next_offsets=next_offsets, range_of=lambda *_: (0, 1), deleted_end=lambda *_: 0)
    broker = Machine(SimNet(), "10.0.0.1").controller()
    await broker.metadata.learn_queues(queues)
    assert [number for number in range(2 * MANY) if broker.topics.select(f"topic{number}") is None] == []


async def test_what_was_deleted_brings_no_topic_back() -> None:
    """A queue of which all is hidden shows consumers nothing, and what is sent to it makes its topic."""
    ends = {("gone", 0): 5, ("partly", 0): 5, ("empty", 0): 3}

    def next_offsets(start: int, _count: int) -> dict[QueueKey, int]:
        return {} if start else ends

    def deleted_end(topic: str, _queue_id: int) -> int:
        return {"gone": 5, "partly": 4}.get(topic, 0)

    queues: Any = SimpleNamespace(next_offsets=next_offsets, range_of=lambda *_: (3, 5), deleted_end=deleted_end)
    broker = Machine(SimNet(), "10.0.0.1").controller()
    await broker.metadata.learn_queues(queues)
    assert [topic for topic, _ in ends if broker.topics.select(topic) is not None] == ["partly"]


async def test_each_offset_that_the_elected_master_does_not_have_is_forgotten() -> None:
    """Groups that an operator had deleted went on where they had been, once this broker led."""
    offsets, role = ConsumerOffsetManager(), Role()
    for number in range(2 * MANY):
        offsets.commit_offset("group", f"topic{number}", 0, offset=3)
    offsets.elect(role)
    await offsets.merge_from_master({"kept@group": {0: 7}}, is_whole=True)
    assert offsets.to_json()["offsetTable"] == {"kept@group": {0: 7}}
