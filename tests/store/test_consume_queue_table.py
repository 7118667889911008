"""What a table of queues knows of those that ended before the log began, and the file that says it is erasing."""

from time import thread_time

import pytest

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.store import consume_queue_table
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.stopped_queues import StoppedQueue
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
            table.note_ends({KEY: known_end})
        assert table.range_of(*KEY) == (end, end)
        assert table.next_offsets() == {KEY: end}
        assert table.ends_before(10**9, start=0, count=9) == {KEY: end}
        assert table.ends_before(100, start=0, count=9) == {KEY: end}, "nothing before is left to tell"


def test_a_queue_that_begins_again_keeps_the_later_end(disk: SimMount) -> None:
    table = table_of(disk)
    queue = table.find_or_create(*KEY)
    fill(queue, 3)
    table.note_ends({KEY: 5})
    table.correct_min_offset(10**9)
    again = table.begin_again(queue)
    table.dropped.delete()
    assert table.range_of(*KEY) == (5, 5)
    fill(again, 2, first=10**8)
    assert table.range_of(*KEY) == (0, 2)


def test_a_lost_queue_that_had_stopped_goes_on_behind_all_that_the_log_has_of_it(disk: SimMount) -> None:
    """While it is built again only memory tells of the places that were passed over, which would be given again."""
    table = table_of(disk)
    queue = table.find_or_create(*KEY)
    fill(queue, 3)
    table.stopped.note(KEY, StoppedQueue(3, 5, phy_offset=315, goes_on_at=300, next=8, last=600))
    assert table.next_offsets() == {KEY: 8}
    disk.unlink(queue.queue.files[0].path)
    table.note_missing(queue.queue.directory)
    assert table.take_out_missing()
    assert (table.next_offsets(), table.lost[KEY].end) == ({KEY: 8}, 8)


def test_a_queue_that_is_built_again_without_what_is_deleted_ends_where_it_did(disk: SimMount) -> None:
    """What came after the deletion is in it: those places would be given again."""
    table = table_of(disk)
    fill(table.find_or_create(*KEY), 5)
    table.hide({KEY: DeletedQueue(3, 250)})
    table.drop_hidden([KEY], before=250)
    assert table.take_out_missing()
    assert (table.range_of(*KEY), table.next_offsets()) == ((3, 5), {KEY: 5})


def test_no_end_falls_because_a_broker_that_knew_of_less_has_deleted_the_topic(disk: SimMount) -> None:
    table = table_of(disk)
    table.note_ends({KEY: 9})
    table.hide({KEY: DeletedQueue(3, 250), OTHER: DeletedQueue(4, 250)})
    assert table.next_offsets() == {KEY: 9, OTHER: 4}


def test_what_is_deleted_before_it_is_dispatched_ends_the_queue(disk: SimMount) -> None:
    table = table_of(disk)
    fill(table.find_or_create(*KEY), 3)
    table.hide({KEY: DeletedQueue(5, 600)})
    assert (table.range_of(*KEY), table.next_offsets()) == ((5, 5), {KEY: 5})


def test_pages_of_ends_hold_queues_of_which_nothing_else_is_known(disk: SimMount) -> None:
    table = table_of(disk)
    fill(table.find_or_create(*KEY), 3)
    table.note_ends({OTHER: 7})
    table.note_ends({KEY: 1})
    pages = [table.ends_before(150, start=start, count=1) for start in range(3)]
    assert pages == [{KEY: 2}, {OTHER: 7}, {}]
    assert table.next_offsets() == {KEY: 3, OTHER: 7}


def test_pages_stay_what_they_are_when_a_queue_of_which_only_the_end_was_known_gets_a_message(disk: SimMount) -> None:
    table, keys = table_of(disk), [("t", number) for number in range(6)]
    table.note_ends(dict.fromkeys(keys, 1))
    first = table.ends_before(150, start=0, count=3)
    fill(table.find_or_create(*keys[4]), 3)
    second = table.ends_before(150, start=3, count=3)
    assert [*first, *second] == keys, "who asks for the pages learns of every queue"


async def test_a_topic_s_queues_are_found_among_many(disk: SimMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are looked at, then everybody else has a turn: it is deleted with all of them."""
    monkeypatch.setattr(consume_queue_table, "_LOOKED_AT_AT_ONCE", 3)
    table, keys = table_of(disk), [("Other", 5), *[(topic, number) for number in range(5) for topic in ("t", "T")]]
    table.note_ends(dict.fromkeys(keys, 1))
    assert await table.ids_of_in_turns("t") == set(range(5))
    assert await table.ids_of_in_turns("Other") == {5}
    assert await table.ids_of_in_turns("None") == set()


def test_the_last_page_of_ends_costs_what_the_first_does(disk: SimMount) -> None:
    """Looked at are the queues of the page, not all before it: to skip them made all pages together quadratic."""
    table, count = table_of(disk), 200_000
    table.note_ends({("t", number): 1 for number in range(count)})

    def seconds_of(start: int) -> float:
        begun_at = thread_time()
        assert len(table.ends_before(150, start=start, count=10)) == 10
        return thread_time() - begun_at

    assert min(seconds_of(count - 10) for _ in range(5)) < 20 * min(seconds_of(0) for _ in range(5))


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


@pytest.mark.parametrize("in_turns", [False, True])
async def test_the_erasing_is_over_when_what_was_taken_back_is_erased_too(disk: SimMount, in_turns: bool) -> None:
    fill(table_of(disk).find_or_create(*KEY), 3)
    table = table_of(disk)
    table.load()
    table.take_back(100)
    if in_turns:
        await table.finish_erasing_in_turns()
    else:
        table.finish_erasing()
    assert not disk.exists(ERASING)
    again = table_of(disk)
    again.load()
    assert again.next_offsets() == {KEY: 1}
