"""What a table of queues knows of those that ended before the log began, and the file that says it is erasing."""

import pytest

from rmqha.store.consume_queue_table import ConsumeQueueTable
from tests.sim.sim_disk import SimDisk, SimMount
from tests.store.test_consume_queue import fill

KEY = ("TopicTest", 0)
OTHER = ("Other", 3)
ERASING = "/store/consumequeue.erasing"


@pytest.fixture
def disk() -> SimMount:
    return SimDisk(latency_s=(0, 0)).mount()


def table_of(disk: SimMount) -> ConsumeQueueTable:
    return ConsumeQueueTable(disk, "/store/consumequeue", file_size=200)


def test_a_known_end_and_an_own_one_give_the_later(disk: SimMount) -> None:
    table = table_of(disk)
    fill(table.find_or_create(*KEY), 3)
    table.correct_min_offset(10**9)
    for known_end, end in ((None, 3), (2, 3), (5, 5)):
        if known_end is not None:
            table.known_ends[KEY] = known_end
        assert table.range_of(*KEY) == (end, end)
        assert table.next_offsets() == {KEY: end}
        assert table.ends_before(10**9, start=0, count=9) == {KEY: end}
        assert table.ends_before(100, start=0, count=9) == {KEY: end}, "nothing before is left to tell"


def test_a_queue_that_begins_again_keeps_the_later_end(disk: SimMount) -> None:
    table = table_of(disk)
    queue = table.find_or_create(*KEY)
    fill(queue, 3)
    table.known_ends[KEY] = 5
    table.correct_min_offset(10**9)
    again = table.begin_again(queue)
    assert table.range_of(*KEY) == (5, 5)
    fill(again, 2, first=10**8)
    assert table.range_of(*KEY) == (0, 2)


def test_pages_of_ends_hold_queues_of_which_nothing_else_is_known(disk: SimMount) -> None:
    table = table_of(disk)
    fill(table.find_or_create(*KEY), 3)
    table.known_ends[OTHER] = 7
    table.known_ends[KEY] = 1
    pages = [table.ends_before(150, start=start, count=1) for start in range(3)]
    assert pages == [{KEY: 2}, {OTHER: 7}, {}]
    assert table.next_offsets() == {KEY: 3, OTHER: 7}


def test_each_erasing_is_noted_until_it_is_finished(disk: SimMount) -> None:
    table = table_of(disk)
    queue = table.find_or_create(*KEY)
    for _ in range(2):
        fill(queue, 3)
        table.cut(100)
        assert disk.exists(ERASING)
        table.finish_erasing()
        assert not disk.exists(ERASING)
        table.cut(0)
        table.finish_erasing()
