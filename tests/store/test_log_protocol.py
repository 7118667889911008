"""What is above Log assumes only what Log promises: here is one as of Raft, with gaps, and an end that falls."""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import pytest

from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.message import decode_message
from rmqha.errors import CorruptLogError, StoreError
from rmqha.replication.role import Role
from rmqha.replication.watermark import Watermark
from rmqha.store.build_consume_queue import CommitLogDispatcherBuildConsumeQueue
from rmqha.store.confirm_offset import ConfirmOffset
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.log import Log, PutRequest
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery
from rmqha.store.message_reader import MessageReader
from rmqha.store.queue_recovery import empty_queues_of, first_uncovered
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.running_flags import RunningFlags
from rmqha.store.start import next_queue_offsets
from rmqha.store.status import AppendResult, PutMessageStatus
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
    """Records in memory, none adjacent to another, each its entry; the last may be cut until a quorum has them."""

    is_there = True

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.min_offset = 0
        self.confirmed = 0
        self.wrote, self.flushed = Watermark(), Watermark()
        self.ends: dict[tuple[str, int], int] = {}

    @property
    def max_offset(self) -> int:
        return self.wrote.value

    def append(self, body: bytes, *, queue_id: int = 0) -> None:
        (result,) = self.put_messages([message(body, queue_id=queue_id)])
        assert result.status is PutMessageStatus.PUT_OK

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        results = []
        for request in requests:
            assert isinstance(request, PreparedRecord)
            offset, queue_offset = self.max_offset + GAP, self.next_queue_offset(request.topic, request.queue_id)
            record = request.pack(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=1)
            self.append_raw(memoryview(bytes(GAP) + record), self.max_offset)
            self.ends[request.topic, request.queue_id] = queue_offset + 1
            results.append(AppendResult(PutMessageStatus.PUT_OK, offset, len(record), queue_offset, 1))
        return results

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        if phy_offset != self.max_offset:
            raise StoreError(f"{phy_offset} is not where the log ends, {self.max_offset}")
        self.kept[phy_offset + GAP] = bytes(data[GAP:])
        self.wrote.advance(phy_offset + len(data))
        return len(data)

    def start_at(self, phy_offset: int) -> None:
        if self.kept:
            raise StoreError(f"the log holds records up to {self.max_offset}")
        self.min_offset = phy_offset
        self.wrote.advance(phy_offset)
        self.flushed.advance(phy_offset)

    def truncate(self, offset: int) -> None:
        if not self.confirmed <= offset <= self.max_offset:
            raise StoreError(f"{offset} is confirmed, or beyond the end")
        self.kept = {at: record for at, record in self.kept.items() if at < offset}
        self.wrote.cut(offset)
        self.flushed.cut(offset)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)

    def learn_queue_offsets(self, table: dict[tuple[str, int], int]) -> None:
        self.ends = table

    def load(self) -> None: ...

    def recover(self, known: DurableKnowledge, *, check_crc: bool, progress: RecoveryProgress) -> LogRecovery:
        return LogRecovery(self.min_offset, self.max_offset)

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
            confirm_offset=ConfirmOffset(log, sync_flush=True).value,
        )
        self.reader = MessageReader(
            log,
            self.queues,
            visible_offset=lambda: self.reput.reput_from_offset,
            in_memory_bytes=1 << 20,
            role=Role(),
            on_damaged=lambda queue, index: pytest.fail(f"{queue.topic} {index}"),
        )

    def cut(self, offset: int) -> None:
        """As a follower does in another term."""
        self.log.truncate(offset)
        table = next_queue_offsets(self.log, self.queues, dispatched=self.reput.reput_from_offset)
        self.log.learn_queue_offsets(table)

    def dispatch(self) -> None:
        self.log.confirmed = self.log.max_offset
        self.reput.catch_up()

    def bodies(self, queue_id: int = 0, start: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while views := self.reader.get_message("TopicTest", queue_id, start + len(found)).views:
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


def test_what_a_leader_sends_stands_where_it_stands_there(bench: Bench) -> None:
    """A follower that lacks the log's beginning begins where its leader's does."""
    leader, follower = bench.log, Bench()
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


def test_dispatch_ends_where_what_was_confirmed_is_cut(bench: Bench) -> None:
    """Nobody may do that; if a log does, nothing is dispatched in the place of what consumers have seen."""
    bench.dispatch()
    with pytest.raises(StoreError):
        bench.log.truncate(max(bench.log.kept) - GAP)
    bench.log.wrote.cut(max(bench.log.kept) - GAP)
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
