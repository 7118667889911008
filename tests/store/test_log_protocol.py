"""What is above Log assumes only what Log promises: on one as of Raft, with gaps, and an end that falls."""

from math import inf

import pytest

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.message import decode_message
from rmqha.errors import CorruptLogError, StoreError
from rmqha.replication.role import Role
from rmqha.store.build_consume_queue import CommitLogDispatcherBuildConsumeQueue
from rmqha.store.confirm_offset import ConfirmOffset
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.message_reader import MessageReader
from rmqha.store.queue_recovery import empty_queues_of, first_uncovered
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.running_flags import RunningFlags
from rmqha.store.start import next_queue_offsets
from tests.dledger.ledger_log import LedgerLog, ledger_log
from tests.sim.sim_disk import SimDisk
from tests.store.sparse_log import GAP, SparseLog


class Bench:
    """A log, its queues, and what dispatches and reads them."""

    def __init__(self, log: "SparseLog | LedgerLog") -> None:
        self.log = log
        self.queues = ConsumeQueueTable(SimDisk().mount(), "/store/consumequeue", file_size=200)
        self.reput = ReputMessageService(
            log,
            [CommitLogDispatcherBuildConsumeQueue(log, self.queues)],
            flags=RunningFlags(),
            confirm_offset=ConfirmOffset(log, sync_flush=True).value,
        )
        self.reader = MessageReader(
            log,
            self.queues,
            visible_offset=lambda: self.reput.reput_from_offset,
            in_memory_bytes=1 << 20,
            role=Role(),
            on_damaged=lambda queue, index: pytest.fail(f"{queue.topic} {index}"),
            on_given=lambda _queue, _first, _count: None,
        )

    def cut(self, offset: int) -> None:
        """As a follower does in another term."""
        self.log.cut(offset)
        table = next_queue_offsets(self.log, self.queues, dispatched=self.reput.reput_from_offset)
        self.log.learn_queue_offsets(table)

    def dispatch(self) -> None:
        self.log.confirm_all()
        self.reput.catch_up()

    def bodies(self, queue_id: int = 0, start: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while views := self.reader.get_message("TopicTest", queue_id, start + len(found)).views:
            found += [decode_message(view).body for view in views]
        return found


def filled(log: SparseLog | LedgerLog) -> Bench:
    for number in range(30):
        log.append(b"%d" % number, queue_id=number % 2)
    return Bench(log)


@pytest.fixture(params=[SparseLog, ledger_log])
def bench(request: pytest.FixtureRequest) -> Bench:
    """On a log of the tests, and on DLedger's."""
    return filled(request.param())


class SparseBench(Bench):
    """Whose log can be looked into."""

    log: SparseLog


@pytest.fixture
def sparse() -> SparseBench:
    bench = SparseBench(SparseLog())
    filled(bench.log)
    return bench


def test_records_with_gaps_are_dispatched_and_read(bench: Bench) -> None:
    bench.dispatch()
    assert bench.bodies(0) == [b"%d" % number for number in range(0, 30, 2)]
    assert bench.bodies(1) == [b"%d" % number for number in range(1, 30, 2)]
    assert bench.reput.reput_from_offset == bench.log.max_offset


def test_an_end_that_falls_before_it_is_confirmed_is_nobodys_concern(bench: Bench) -> None:
    bench.dispatch()
    end = bench.log.max_offset
    bench.log.append(b"of another term")
    bench.log.append(b"and another", queue_id=1)
    bench.reput.catch_up()
    assert bench.reput.reput_from_offset == end, "it is not confirmed"
    bench.cut(end)
    bench.log.append(b"of this term")
    bench.dispatch()
    assert bench.bodies(0)[-2:] == [b"28", b"of this term"]
    assert bench.bodies(1)[-1:] == [b"29"]


def test_what_a_leader_sends_stands_where_it_stands_there(sparse: SparseBench) -> None:
    """A follower that lacks the log's beginning begins where its leader's does."""
    leader, follower = sparse.log, SparseBench(SparseLog())
    entries = [(at - GAP, bytes(GAP) + record) for at, record in leader.kept.items()]
    follower.log.start_at(entries[10][0])
    follower.reput.begin_at(entries[10][0])
    for at, entry in entries[10:]:
        assert follower.log.append_raw(memoryview(entry), at) == len(entry)
    with pytest.raises(StoreError):
        follower.log.append_raw(memoryview(entries[0][1]), entries[0][0])
    follower.dispatch()
    assert follower.bodies(0, start=5) == [b"%d" % number for number in range(10, 30, 2)]


def test_who_waits_for_what_is_cut_hears_of_it(bench: Bench) -> None:
    end, answers = bench.log.max_offset, list[bool]()
    bench.log.append(b"of another term")
    for watermark in (bench.log.wrote, bench.log.flushed):
        watermark.add(bench.log.max_offset + 1, inf, lambda reached, _: answers.append(reached))
    bench.cut(end)
    assert (answers, bench.log.wrote.value) == ([False, False], end)


def test_dispatch_ends_where_what_was_confirmed_is_cut(sparse: SparseBench) -> None:
    """Nobody may do that; if a log does, nothing is dispatched in the place of what consumers have seen."""
    sparse.dispatch()
    with pytest.raises(StoreError):
        sparse.log.truncate(max(sparse.log.kept) - GAP)
    sparse.log.wrote.cut(max(sparse.log.kept) - GAP)
    with pytest.raises(CorruptLogError, match="what is confirmed must never be"):
        sparse.dispatch()
    assert sparse.bodies(0)[-1:] == [b"28"]


def test_queue_recovery_reads_where_sizes_tell_nothing(bench: Bench) -> None:
    bench.dispatch()
    log = bench.log
    assert len(log.extents()) > 3
    assert first_uncovered(bench.queues, log) == log.max_offset
    log.append(b"not dispatched", queue_id=1)
    assert first_uncovered(bench.queues, log) == log.extents()[-1].begin
    bench.queues.take_back(log.extents()[2].begin)
    assert first_uncovered(bench.queues, log) == log.extents()[2].begin


def test_where_queues_go_on_is_learned_past_what_is_dispatched(bench: Bench) -> None:
    bench.dispatch()
    bench.log.append(b"not dispatched", queue_id=1)
    dispatched = bench.reput.reput_from_offset
    offsets = next_queue_offsets(bench.log, bench.queues, dispatched=dispatched)
    assert offsets == {("TopicTest", 0): 15, ("TopicTest", 1): 16}


def test_a_deleted_queue_does_not_go_on_before_what_was_deleted(bench: Bench) -> None:
    """Though the log holds its first messages, and dispatch has not come to them."""
    end = bench.log.max_offset
    bench.queues.hide({("TopicTest", 0): DeletedQueue(15, end), ("TopicTest", 1): DeletedQueue(20, end)})
    bench.dispatch()
    assert next_queue_offsets(bench.log, bench.queues, dispatched=0) == {("TopicTest", 0): 15, ("TopicTest", 1): 20}


def test_queues_are_emptied_where_all_of_the_log_can_be_read(sparse: SparseBench) -> None:
    sparse.dispatch()
    assert empty_queues_of(sparse.queues, sparse.log)
    assert sparse.bodies(0) == []
    sparse.reput.begin_at(0)
    sparse.reput.catch_up()
    assert len(sparse.bodies(0)) == 15
    del sparse.log.kept[[*sparse.log.kept][5]]
    assert empty_queues_of(sparse.queues, sparse.log)
    sparse.reput.begin_at(0)
    sparse.reput.catch_up()
    assert (len(sparse.bodies(0)), len(sparse.bodies(1))) == (15, 2), "one queue lacks a message, and ends before that"
