"""OwnQueue: marks behind the record that stopped their queue."""

from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC, QUEUE_ID, Mark
from rmqha.broker.transaction.own_queue import OwnQueue
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.store import passed_over
from rmqha.store.passed_over import PassedOver
from rmqha.store.stopped_queues import StoppedQueue
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import running

END = 5


def marks_behind(count: int) -> OwnQueue:
    """A queue that ended at 5, and so many marks at 1000, 1100... in the log, the first of which stopped it."""
    passed = PassedOver(END)
    for number in range(count):
        passed.note(END + 1 + number, 1000 + 100 * number)
    stopped = StoppedQueue(END, END + 1, 1000, 900, next=passed.next, last=0, passed=passed)
    queues = SimpleNamespace(stopped={(OP_TOPIC, QUEUE_ID): stopped}, find=lambda *_key: None)
    store: Any = SimpleNamespace(queues=queues)
    return OwnQueue(store, OP_TOPIC)


@pytest.mark.parametrize(("kept_max", "expected"), [(100, [5, 6, 9, 12, 15]), (4, [5, 5, 5, 12, 15])])
def test_where_marks_are_not_kept_a_search_begins_where_their_queue_stopped(
    kept_max: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first that is kept it would pass over one that may tell of the half message: that is committed twice."""
    monkeypatch.setattr(passed_over, "_KEPT_MAX", kept_max)
    marks = marks_behind(10)
    assert [marks.first_behind(position) for position in (1000, 1001, 1350, 1650, 2000)] == expected


@pytest.mark.parametrize(("topic", "expected"), [(HALF_TOPIC, [6, 6, 7, 8]), (OP_TOPIC, [5, 6, 7, 8])])
def test_the_first_half_message_behind_a_stop_is_where_the_log_proves_it_to_be(topic: str, expected: list[int]) -> None:
    """Marks are counted on from there: what stopped their queue is one of them."""
    passed = PassedOver(END)
    for number, offset in ((1 << 20, 1000), (6, 1100), (7, 1200)):
        passed.note(number, offset)
    stopped = StoppedQueue(END, 1 << 20, 1000, 900, next=passed.next, last=0, passed=passed)
    queues = SimpleNamespace(stopped={(topic, QUEUE_ID): stopped}, find=lambda *_key: None)
    store: Any = SimpleNamespace(queues=queues)
    assert [OwnQueue(store, topic).first_behind(position) for position in (1000, 1001, 1101, 1201)] == expected


async def test_marks_that_their_queue_leads_to_no_more_count_once_as_a_damaged_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """It lies before all others: of half messages behind the first that can be read they tell nothing."""
    monkeypatch.setattr(OwnQueue, "has_begun_anew", True)
    async with running(SimDisk().mount()) as store:
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        assert [bridge.read_marks(offset) for offset in (0, 1)] == [([Mark(0, [], None)], 0), ([], 1)]
