"""What is above Log assumes only what Log promises: here is one with gaps between records, and an end that falls."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.message import decode_message
from rmqha.errors import CorruptLogError
from rmqha.replication.role import Role
from rmqha.replication.watermark import Watermark
from rmqha.store.build_consume_queue import CommitLogDispatcherBuildConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.log import Log, PutRequest
from rmqha.store.message_reader import MessageReader
from rmqha.store.queue_recovery import empty_queues_of, first_uncovered
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.running_flags import RunningFlags
from rmqha.store.start import next_queue_offsets
from rmqha.store.status import AppendResult
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import message

GAP = 48
"""Bytes before each record, as of a Raft entry's header."""
EXTENT = 1000


class SparseExtent(NamedTuple):
    begin: int
    end: int

    def holds_just(self, size_bytes: int) -> bool:
        """Sizes tell nothing here."""
        return False


class SparseLog:
    """Records in memory, none adjacent to another; the last may be taken back, as before a quorum has them."""

    is_there = True

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.min_offset = self.max_offset = 0
        self.confirmed = 0
        self.wrote, self.flushed = Watermark(), Watermark()
        self.ends: dict[int, int] = {}

    def append(self, body: bytes, *, queue_id: int = 0) -> None:
        offset = self.max_offset + GAP
        queue_offset = self.ends.get(queue_id, 0)
        record = message(body, queue_id=queue_id).pack(
            queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=1
        )
        self.kept[offset] = record
        self.max_offset = offset + len(record)
        self.ends[queue_id] = queue_offset + 1

    def take_back_last(self) -> None:
        offset, record = self.kept.popitem()
        self.max_offset = offset - GAP
        self.ends[decode_message(record).queue_id] -= 1

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        raise AssertionError("nobody puts here")

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        offsets = sorted(self.kept)
        found: list[DispatchRequest] = []
        for offset in offsets[bisect_left(offsets, start) :][:3]:
            record = self.kept[offset]
            if offset + len(record) > end:
                break
            found += read_dispatch(record, 0, len(record), phy_offset_base=offset)[0]
            start = offset + len(record)
        return found, start

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        record = self.kept.get(offset)
        return None if record is None or offset + len(record) > end else memoryview(record)

    def extents(self, start: int = 0) -> list[SparseExtent]:
        begins: list[int] = []
        for offset in self.kept:
            if not begins or offset - begins[-1] >= EXTENT:
                begins.append(offset)
        ends = [max(at + len(self.kept[at]) for at in self.kept if at < begin) for begin in [*begins[1:], 1 << 60]]
        return [one for one in map(SparseExtent, begins, ends) if one.end > start]

    def note_records(self, end: int, store_timestamp_ms: int) -> None: ...


class Bench:
    """A log, its queues, and what dispatches and reads them."""

    def __init__(self) -> None:
        self.log = SparseLog()
        log: Log = self.log
        self.queues = ConsumeQueueTable(SimDisk().mount(), "/store/consumequeue", file_size=200)
        self.reput = ReputMessageService(
            log,
            [CommitLogDispatcherBuildConsumeQueue(log, self.queues)],
            flags=RunningFlags(),
            confirm_offset=lambda: self.log.confirmed,
        )
        self.reader = MessageReader(
            log,
            self.queues,
            visible_offset=lambda: self.reput.reput_from_offset,
            in_memory_bytes=1 << 20,
            role=Role(),
            on_damaged=lambda queue, index: pytest.fail(f"{queue.topic} {index}"),
        )

    def dispatch(self) -> None:
        self.log.confirmed = self.log.max_offset
        self.reput.catch_up()

    def bodies(self, queue_id: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while views := self.reader.get_message("TopicTest", queue_id, len(found)).views:
            found += [decode_message(view).body for view in views]
        return found


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for number in range(30):
        bench.log.append(b"%d" % number, queue_id=number % 2)
    return bench


def test_records_with_gaps_are_dispatched_and_read(bench: Bench) -> None:
    bench.dispatch()
    assert bench.bodies(0) == [b"%d" % number for number in range(0, 30, 2)]
    assert bench.bodies(1) == [b"%d" % number for number in range(1, 30, 2)]
    assert bench.reput.reput_from_offset == bench.log.max_offset


def test_an_end_that_falls_before_it_is_confirmed_is_nobodys_concern(bench: Bench) -> None:
    bench.dispatch()
    bench.log.append(b"of another term")
    bench.reput.catch_up()
    bench.log.take_back_last()
    bench.log.append(b"of this term")
    bench.dispatch()
    assert bench.bodies(0)[-2:] == [b"28", b"of this term"]


def test_dispatch_ends_where_what_was_confirmed_is_cut(bench: Bench) -> None:
    """Nobody may do that; if a log does, nothing is dispatched in the place of what consumers have seen."""
    bench.dispatch()
    bench.log.take_back_last()
    with pytest.raises(CorruptLogError, match="what is confirmed must never be"):
        bench.dispatch()
    assert bench.bodies(0)[-1:] == [b"28"]


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


def test_queues_are_emptied_only_where_the_log_has_no_gap_in_one(bench: Bench) -> None:
    bench.dispatch()
    assert empty_queues_of(bench.queues, bench.log)
    assert bench.bodies(0) == []
    bench.reput.begin_at(0)
    bench.reput.catch_up()
    assert len(bench.bodies(0)) == 15
    del bench.log.kept[[*bench.log.kept][5]]
    assert not empty_queues_of(bench.queues, bench.log)
