"""Which records become units of the consume queues, and where these begin anew."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.errors import CorruptLogError
from rmqha.store.build_consume_queue import CommitLogDispatcherBuildConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.log import Log
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import message

KEY = ("t", 0)
SIZE = 105


@dataclass
class WholeLog:
    """It still holds everything."""

    records: dict[int, bytes] = field(default_factory=dict)
    min_offset: int = 0
    max_offset: int = 1 << 40
    is_there: bool = True

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        """Of those that are whole records."""
        return memoryview(record) if (record := self.records.get(offset)) is not None else None


class Store:
    def __init__(self) -> None:
        self.queues = ConsumeQueueTable(SimDisk(latency_s=(0, 0)).mount(), "/store/consumequeue", file_size=200)
        self.log = WholeLog()
        self.builder = CommitLogDispatcherBuildConsumeQueue(cast("Log", self.log), self.queues)

    def dispatch(self, *positions: int, at_start: bool = False, begins_at: int = 0) -> None:
        """Messages with these numbers, each of 100 bytes; the 0th lies at ``begins_at``."""
        requests = [DispatchRequest(*KEY, begins_at + 100 * number, 100, 0, 1, number, 0) for number in positions]
        self.builder.plan(requests, at_start=at_start).write_here()


def test_what_was_deleted_before_it_was_dispatched_is_no_hole() -> None:
    """The queue ends before it until its files are gone: what came next stopped dispatch, and all sends, for good."""
    store = Store()
    store.dispatch(0, 1)
    store.queues.hide({KEY: DeletedQueue(3, 300)})
    store.dispatch(2)
    store.dispatch(3, 4)
    assert store.queues.range_of(*KEY) == (3, 5)
    store.dispatch(5)
    assert store.queues.range_of(*KEY) == (3, 6)


def test_a_hole_behind_what_was_deleted_is_one() -> None:
    store = Store()
    store.dispatch(0, 1)
    store.queues.hide({KEY: DeletedQueue(3, 300)})
    with pytest.raises(CorruptLogError, match="does not prove that the queue is right"):
        store.dispatch(4)


def test_what_a_master_that_knows_of_no_deletion_numbers_from_0_is_seen_at_once() -> None:
    """One of RocketMQ's took over. All its messages with numbers below those deleted were passed over."""
    store = Store()
    begun = list[tuple[str, int]]()
    store.queues.on_begun_again = lambda topic, queue_id: begun.append((topic, queue_id))
    store.queues.hide({KEY: DeletedQueue(3, 1000)})
    store.dispatch(0, 1, 2)
    assert store.queues.range_of(*KEY) == (3, 3)
    store.dispatch(0, 1, begins_at=1000)
    assert (store.queues.range_of(*KEY), store.queues.deleted_end(*KEY)) == ((0, 2), 0)
    assert begun == [KEY], "groups had gone on behind what is deleted"
    store.dispatch(2, 3, begins_at=1000)
    assert (store.queues.range_of(*KEY), begun) == ((0, 4), [KEY])


def test_so_it_is_while_the_files_of_what_was_deleted_are_still_there() -> None:
    store = Store()
    store.dispatch(0, 1, 2)
    store.queues.hide({KEY: DeletedQueue(3, 1000)})
    store.dispatch(0, begins_at=1000)
    assert store.queues.range_of(*KEY) == (0, 1)
    assert store.queues.hidden.facts(log_begins_at=0, log_ends_at=9999) is None, "they are deleted"
    store.queues.drop_hidden([KEY], before=1000)
    assert not store.queues.take_out_missing(), "nothing that is deleted is in its files"


def test_a_lost_queue_of_a_deleted_topic_may_begin_at_0() -> None:
    store = Store()
    store.dispatch(0, 1, 2)
    store.queues.hide({KEY: DeletedQueue(3, 1000)})
    store.queues.drop_hidden([KEY], before=1000)
    assert store.queues.take_out_missing()
    store.dispatch(0, 1, begins_at=1000)
    assert store.queues.range_of(*KEY) == (0, 2)


class Records:
    """A log of one queue's records, dispatched in portions: each 105 bytes long."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.end = 0
        self.requests: list[DispatchRequest] = []

    def add(self, *positions: int) -> list[DispatchRequest]:
        first = len(self.requests)
        for number in positions:
            self.requests.append(DispatchRequest(*KEY, self.end, SIZE, 0, 1, number, 0))
            record = message(topic=KEY[0], size=SIZE)
            self.store.log.records[self.end] = record.pack(
                queue_offset=number, physical_offset=self.end, store_timestamp_ms=1
            )
            self.end += SIZE
        return self.requests[first:]

    def dispatch(self, *positions: int, at_start: bool = False) -> None:
        self.store.builder.plan(self.add(*positions), at_start=at_start).write_here()

    def units(self) -> list[int]:
        """Where the messages of the queue lie."""
        queue = self.store.queues.find(*KEY)
        assert queue is not None
        units = [queue.unit(index) for index in range(*self.store.queues.range_of(*KEY))]
        return [unit[0] for unit in units if unit is not None]


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize(
    "portions", [[(0, 1, 2), (0, 1)], [(0, 1, 2, 0, 1)], [(0, 1), (2, 0), (1,)], [(0, 1, 2), (0,), (1,)]]
)
def test_number_0_begins_a_queue_anew(portions: list[tuple[int, ...]], *, at_start: bool) -> None:
    """On a RocketMQ master the topic was deleted and made again: one topic would have stopped all."""
    store = Store()
    records = Records(store)
    for portion in portions:
        records.dispatch(*portion, at_start=at_start)
    assert store.queues.range_of(*KEY) == (0, 2)
    assert records.units() == [3 * SIZE, 4 * SIZE]
    records.dispatch(2, 0, at_start=at_start)
    assert records.units() == [6 * SIZE], "and again"


def test_what_was_dispatched_comes_again_without_harm() -> None:
    """A round that another builder could not finish, or a start that begins before the new messages."""
    store = Store()
    records = Records(store)
    records.dispatch(*range(25))
    records.dispatch(0, 1)
    for requests in (records.requests[20:], records.requests[:3], records.requests[24:26]):
        store.builder.plan(requests, at_start=True).write_here()
        assert records.units() == [25 * SIZE, 26 * SIZE]


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("portions", [[(0, 1, 2), (), (3, 4)], [(0, 1, 2), (3,), (4,)], [(0, 1), (2,), (3,)]])
@pytest.mark.parametrize("number", [-1, 1, 2, 5, 1 << 61])
def test_any_other_number_out_of_turn_stops_the_queue(
    number: int, portions: list[tuple[int, ...]], *, at_start: bool
) -> None:
    """It has no place there, nor has what comes behind it, until the queue begins anew."""
    store = Store()
    records = Records(store)
    before, between, behind = portions
    records.dispatch(*before, at_start=at_start)
    records.dispatch(*between, number, *behind, at_start=at_start)
    expected = [record * SIZE for record in range(len(before) + len(between))]
    assert records.units() == expected
    assert store.queues.stopped[KEY].phy_offset == len(expected) * SIZE
    assert store.queues.stopped[KEY].messages == 1 + len(behind)
    records.dispatch(len(expected), at_start=at_start)
    assert records.units() == expected, "not even what would fit"
    everything = len(records.requests)
    store.builder.plan(records.requests[len(before) :], at_start=at_start).write_here()
    assert (records.units(), store.queues.stopped[KEY].messages) == (expected, everything - len(expected))
    records.dispatch(0, 1, at_start=at_start)
    assert records.units() == [everything * SIZE, (everything + 1) * SIZE]
    assert KEY not in store.queues.stopped
    facts = store.queues.hidden.facts(log_begins_at=0, log_ends_at=1 << 40)
    assert facts == {"messages": everything, "queues": {"t/0": everything}}


def test_a_new_queue_in_a_round_of_repeated_records_makes_none_of_them_new() -> None:
    """The number of one that came before its queue began anew is the queue's next again: it was given twice."""
    store = Store()
    records = Records(store)
    records.dispatch(0, 1, 2, 0, 1)
    first, _, third, *_ = records.requests
    of_another = DispatchRequest("other", 0, records.end, SIZE, 0, 1, 0, 0)
    store.builder.plan([first, of_another, third], at_start=False).write_here()
    assert store.queues.range_of("other", 0) == (0, 1)
    assert records.units() == [3 * SIZE, 4 * SIZE]


def test_a_queue_whose_first_message_has_no_place_is_empty() -> None:
    store = Store()
    records = Records(store)
    records.dispatch(-1, 3)
    assert (store.queues.range_of(*KEY), store.queues.stopped[KEY].messages) == ((0, 0), 2)
    records.dispatch(0)
    assert records.units() == [2 * SIZE]


def test_what_is_behind_a_stop_in_one_round_may_begin_the_queue_anew() -> None:
    store = Store()
    records = Records(store)
    records.dispatch(0, 1, 5, 2, 0, 1, 2)
    assert records.units() == [4 * SIZE, 5 * SIZE, 6 * SIZE]


def test_a_round_that_is_planned_again_stops_the_queue_in_the_same_place() -> None:
    """Of what was planned first nothing was written: another record of that round could not be read."""
    store = Store()
    records = Records(store)
    requests = records.add(0, 1, 5, 2, 3)
    store.builder.plan(requests, at_start=False)
    store.builder.plan(requests, at_start=False).write_here()
    assert (records.units(), store.queues.stopped[KEY].messages) == ([0, SIZE], 3)


def test_a_queue_stops_only_if_the_log_says_that_it_is_right() -> None:
    """Its last unit is damaged: it is built again, and what comes next may well fit."""
    store = Store()
    records = Records(store)
    records.dispatch(0, 1)
    del store.log.records[SIZE]
    with pytest.raises(CorruptLogError, match="does not prove that the queue is right"):
        records.dispatch(5)
    assert store.builder.put_aside(misfits=True) == store.log.is_there


def test_a_queue_that_was_put_aside_is_not_looked_at_again() -> None:
    """The log cannot be read in the next round, say: nothing new is known of any queue."""
    store = Store()
    records = Records(store)
    records.dispatch(0, 1)
    del store.log.records[SIZE]
    with pytest.raises(CorruptLogError, match="does not prove that the queue is right"):
        records.dispatch(5)
    assert store.builder.put_aside(misfits=True)
    assert not store.builder.put_aside(misfits=True)
