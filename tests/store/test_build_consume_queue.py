"""Which records become units of the consume queues, and where these begin anew."""

from dataclasses import dataclass
from typing import cast

import pytest

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.errors import CorruptLogError
from rmqha.store.build_consume_queue import CommitLogDispatcherBuildConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.log import Log
from tests.sim.sim_disk import SimDisk

KEY = ("t", 0)


@dataclass
class WholeLog:
    """It still holds everything."""

    min_offset: int = 0


class Store:
    def __init__(self) -> None:
        self.queues = ConsumeQueueTable(SimDisk(latency_s=(0, 0)).mount(), "/store/consumequeue", file_size=200)
        self.builder = CommitLogDispatcherBuildConsumeQueue(cast("Log", WholeLog()), self.queues)

    def dispatch(self, *positions: int, at_start: bool = False) -> None:
        requests = [DispatchRequest(*KEY, 100 * number, 100, 0, 1, number, 0) for number in positions]
        self.builder.plan(requests, at_start=at_start).write_here()


def test_what_was_deleted_before_it_was_dispatched_is_no_hole() -> None:
    """The queue ends before it until its files are gone: what came next stopped dispatch, and all sends, for good."""
    store = Store()
    store.dispatch(0, 1)
    store.queues.hide({KEY: 3})
    store.dispatch(2)
    store.dispatch(3, 4)
    assert store.queues.range_of(*KEY) == (3, 5)
    store.dispatch(5)
    assert store.queues.range_of(*KEY) == (3, 6)


def test_a_hole_behind_what_was_deleted_is_one() -> None:
    store = Store()
    store.dispatch(0, 1)
    store.queues.hide({KEY: 3})
    with pytest.raises(CorruptLogError, match="units before it are missing"):
        store.dispatch(4)
