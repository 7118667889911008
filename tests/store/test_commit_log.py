"""Appending: positions, blanks, batches, limits, and what a failed write leaves."""

import errno
import struct
from collections.abc import Sequence

import pytest
import structlog
import trio
from trio.testing import MockClock

from rmqha.codec.record.layout import BLANK_MAGIC, SysFlag
from rmqha.codec.record.message import decode_message
from rmqha.errors import StoreError, StoreWriteError
from rmqha.store.allocate_service import AllocateMappedFileService
from rmqha.store.commit_log import CommitLog
from rmqha.store.log import PutRequest
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.running_flags import RunningFlags
from rmqha.store.status import AppendResult, PutMessageStatus
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, Clock, batch_of, message

OK = PutMessageStatus.PUT_OK


class Bench:
    """A commit log on a simulated disk, with the service that makes its segments."""

    def __init__(self) -> None:
        self.device = SimDisk(latency_s=(0.001, 0.001))
        self.disk = self.device.mount()
        self.disk.makedirs("/log")
        self.failures: list[StoreWriteError] = []
        self.now_ms = Clock()
        self.queue = MappedFileQueue(self.disk, "/log", file_size=SEGMENT)
        flags = RunningFlags()
        flags.on_write_error.append(self.failures.append)
        self.allocate = AllocateMappedFileService(self.queue, flags=flags)
        self.log = CommitLog(
            self.queue,
            self.allocate,
            now_ms=self.now_ms,
            fail=self.failures.append,
        )

    async def put(self, *requests: PutRequest) -> list[AppendResult]:
        results = self.log.put_messages(requests)
        while len(results) < len(requests):
            await self.allocate.wait_allocated()
            results += self.log.put_messages(requests[len(results) :])
        return results

    def bytes_at(self, offset: int, size: int) -> bytes:
        segment = self.queue.find(offset)
        assert segment is not None
        position = offset - segment.file_from_offset
        return bytes(segment.view[position : position + size])


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.allocate.run)
    return bench


async def test_records_follow_each_other_and_count_their_queues(autojump_clock: MockClock, bench: Bench) -> None:
    results = await bench.put(message(b"one"), message(b"two", queue_id=1), message(b"three"))
    sizes = [103, 103, 105]
    assert [(r.status, r.wrote_offset, r.wrote_bytes, r.queue_offset) for r in results] == [
        (OK, 0, sizes[0], 0),
        (OK, sizes[0], sizes[1], 0),
        (OK, sizes[0] + sizes[1], sizes[2], 1),
    ]
    assert results[2].end_offset == bench.log.max_offset == sum(sizes)
    decoded = decode_message(bench.bytes_at(*results[2][1:3]))
    assert (decoded.body, decoded.queue_offset, decoded.physical_offset, decoded.store_timestamp_ms) == (
        b"three",
        1,
        206,
        bench.now_ms(),
    )
    assert bench.log.last_store_timestamp_ms == bench.now_ms()


async def test_a_list_of_messages_is_one_write(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message())
    writes = bench.device.calls
    await bench.put(*[message() for _ in range(20)])
    assert bench.device.calls == writes + 1


@pytest.mark.parametrize("free", [8, 9, 12, 100])
async def test_a_record_that_leaves_room_for_a_blank_fits(autojump_clock: MockClock, bench: Bench, free: int) -> None:
    await bench.put(message(size=SEGMENT // 2))
    (last,) = await bench.put(message(size=SEGMENT // 2 - free))
    assert last.end_offset == SEGMENT - free
    (behind,) = await bench.put(message(size=100 + free))
    assert behind.wrote_offset == SEGMENT
    blank = free.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
    assert bench.bytes_at(SEGMENT - free, free) == blank + bytes(free - 8)


@pytest.mark.parametrize("free", [0, 1, 4, 7])
async def test_a_record_that_leaves_no_room_for_a_blank_rolls(
    autojump_clock: MockClock, bench: Bench, free: int
) -> None:
    await bench.put(message(size=SEGMENT // 2))
    (last,) = await bench.put(message(size=SEGMENT // 2 - free))
    assert last.wrote_offset == SEGMENT
    assert bench.bytes_at(SEGMENT // 2, 4) == (SEGMENT // 2).to_bytes(4, "big")
    assert bench.log.queue.files[0].is_full


async def test_a_batch_lies_in_one_segment_or_moves_whole(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message(size=SEGMENT - 600))
    (result,) = await bench.put(batch_of(message(size=300), message(size=150), message(size=150)))
    assert result.offsets == (SEGMENT, SEGMENT + 300, SEGMENT + 450)
    assert (result.status, result.wrote_offset, result.wrote_bytes, result.queue_offset) == (OK, SEGMENT, 600, 1)
    stored = [decode_message(bench.bytes_at(offset, 150)).queue_offset for offset in result.offsets[1:]]
    assert stored == [2, 3]
    (single,) = await bench.put(message())
    assert single.offsets == (single.wrote_offset,)


async def test_several_segments_in_one_list(autojump_clock: MockClock, bench: Bench) -> None:
    results = await bench.put(*[message(size=1000) for _ in range(20)])
    assert [result.status for result in results] == [OK] * 20
    assert [result.wrote_offset % SEGMENT for result in results] == [0, 1000, 2000, 3000] * 5
    assert len(bench.queue.files) == 5


async def test_a_put_reports_what_it_took_while_the_segment_is_being_made(
    autojump_clock: MockClock, bench: Bench
) -> None:
    assert bench.log.put_messages([message()]) == []
    await bench.allocate.wait_allocated()
    taken = bench.log.put_messages([message(size=1500) for _ in range(4)])
    assert (len(taken), bench.log.max_offset) == (2, 3000)
    assert not bench.log.queue.files[0].is_full, "no blank before the next segment is there"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (message(size=4089), "4089 bytes and 8 more do not fit"),
        (message(topic=""), "the topic is empty"),
        (message(queue_id=-1), "no queue -1"),
        (batch_of(message(size=2000), message(size=2089)), "4089 bytes and 8 more do not fit"),
        (batch_of(*[message(size=1000)] * 70), "70000 bytes"),
        (batch_of(message(queue_id=-1), message(queue_id=-1)), "no queue -1"),
        (batch_of(message(topic="")), "the topic is empty"),
        (batch_of(), "the batch is empty"),
    ],
)
async def test_what_can_never_be_stored_is_refused_before_the_append(
    autojump_clock: MockClock, bench: Bench, request_: PutRequest, reason: str
) -> None:
    before, refused, after = await bench.put(message(), request_, message())
    assert refused.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert reason in refused.remark
    assert (before.queue_offset, after.queue_offset, after.wrote_offset) == (0, 1, before.end_offset)


async def test_a_record_of_exactly_a_segment_less_a_blank_fits(autojump_clock: MockClock, bench: Bench) -> None:
    (fits,) = await bench.put(message(size=SEGMENT - 8))
    (refused,) = await bench.put(message(size=SEGMENT - 7))
    assert (fits.status, refused.status) == (OK, PutMessageStatus.MESSAGE_ILLEGAL)
    assert bench.log.max_offset == SEGMENT - 8, "nothing is burned"


async def test_prepared_and_rollback_enter_no_queue(autojump_clock: MockClock, bench: Bench) -> None:
    flags = [0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK, 0]
    results = await bench.put(*[message(sys_flag=flag) for flag in flags])
    assert [result.queue_offset for result in results] == [0, 0, 1, 0, 2]


async def test_a_failed_write_counts_for_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message(size=3000), message(queue_id=7))
    await bench.allocate.wait_allocated()
    bench.device.faults.write_errors = 1
    end = bench.log.max_offset
    results = await bench.put(
        message(size=4089), message(size=100), batch_of(message(size=100), message(size=100)), message(size=2000)
    )
    assert {result.status for result in results} == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
    assert all("errno 5" in result.remark for result in results)
    assert bench.log.max_offset == end
    assert bench.log.topic_queue_table == {("TopicTest", 0): 1, ("TopicTest", 7): 1}
    assert [error.errno for error in bench.failures] == [errno.EIO]


async def test_what_was_written_before_the_failing_segment_counts(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message(size=3000))
    await bench.allocate.wait_allocated()
    pwrite = bench.queue.files[0].file.pwrite

    def then_full(buffers: Sequence[bytes], at: int) -> None:
        pwrite(buffers, at)
        bench.device.faults.read_only = True

    bench.queue.files[0].file.pwrite = then_full  # type: ignore[method-assign, assignment]
    results = bench.log.put_messages([message(size=1000), message(size=1000)])
    assert [result.status for result in results] == [OK, PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert (bench.log.max_offset, bench.failures[0].errno) == (SEGMENT, errno.EROFS)


async def test_a_segment_that_cannot_be_made_fails_for_good_only_when_needed(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await bench.put(message(size=1000))
    await bench.put(message(size=2000))
    bench.device.faults.read_only = True
    with structlog.testing.capture_logs() as logs:
        await trio.sleep(1)
    assert [log["event"] for log in logs] == ["allocate_mapped_file_service.failed"]
    assert bench.failures == []
    assert len(bench.log.put_messages([message(size=2000)])) == 0
    await bench.allocate.wait_allocated()
    assert [error.errno for error in bench.failures] == [errno.EROFS]


async def test_a_segment_that_failed_ahead_is_tried_again_when_needed(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message(size=1000))
    bench.device.faults.full = True
    await bench.put(message(size=2000))
    await trio.sleep(1)
    bench.device.faults.full = False
    (result,) = await bench.put(message(size=2000))
    assert (result.status, bench.failures) == (OK, [])


async def test_an_empty_batch_beside_a_write_that_fails_is_answered(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message())
    bench.device.faults.write_errors = 1
    results = await bench.put(message(), batch_of(), message())
    assert [result.status for result in results] == [PutMessageStatus.SERVICE_NOT_AVAILABLE] * 3
    assert bench.log.topic_queue_table == {("TopicTest", 0): 1}


@pytest.mark.parametrize("batched", [False, True])
async def test_what_cannot_be_encoded_takes_no_place_in_its_queue(
    autojump_clock: MockClock, bench: Bench, batched: bool
) -> None:
    await bench.put(message())
    end = bench.log.max_offset
    requests = [message(), message(), message()._replace(flag=1 << 40)]
    with pytest.raises(struct.error):
        bench.log.put_messages([batch_of(*requests)] if batched else requests)
    (result,) = await bench.put(message())
    assert (result.wrote_offset, result.queue_offset) == (end, 1)


async def test_a_record_that_is_read_takes_back_nothing_that_was_put_behind_it(
    autojump_clock: MockClock, bench: Bench
) -> None:
    (first, _) = await bench.put(message(), message())
    bench.log.note_records(first.end_offset, 5)
    assert (bench.log.boundary_offset, bench.log.last_store_timestamp_ms) == (bench.log.max_offset, bench.now_ms())


async def test_raw_bytes_continue_the_log_across_segments(autojump_clock: MockClock, bench: Bench) -> None:
    data = bytes(range(256)) * 40
    taken = bench.log.append_raw(memoryview(data), 0)
    while taken < len(data):
        await bench.allocate.wait_allocated()
        taken += bench.log.append_raw(memoryview(data)[taken:], taken)
    assert (bench.log.max_offset, len(bench.queue.files)) == (len(data), 3)
    assert b"".join(bytes(file.view) for file in bench.queue.files)[: len(data)] == data


async def test_raw_bytes_must_continue_the_log(autojump_clock: MockClock, bench: Bench) -> None:
    with pytest.raises(StoreError, match="bytes of offset 7 do not continue a log that ends at 0"):
        bench.log.append_raw(memoryview(b"x"), 7)


async def test_a_failed_raw_append_counts_for_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message())
    end = bench.log.max_offset
    bench.device.faults.write_errors = 1
    with pytest.raises(StoreWriteError):
        bench.log.append_raw(memoryview(b"x" * 10), end)
    assert (bench.log.max_offset, len(bench.failures)) == (end, 1)


async def test_an_empty_log_begins_where_it_is_told(autojump_clock: MockClock, bench: Bench) -> None:
    assert bench.log.put_messages([message()]) == []
    await bench.allocate.wait_allocated()
    bench.log.start_at(0)
    bench.log.put_messages([])
    bench.queue.add(bench.allocate.take())  # type: ignore[arg-type]
    bench.log.start_at(5 * SEGMENT)
    assert bench.disk.listdir("/log") == []
    assert (bench.log.min_offset, bench.log.max_offset) == (5 * SEGMENT, 5 * SEGMENT)
    await bench.put(message())
    assert bench.disk.listdir("/log") == [f"{5 * SEGMENT:020d}"]
    with pytest.raises(StoreError, match="cannot begin"):
        bench.log.start_at(6 * SEGMENT)


async def test_an_empty_log_does_not_begin_inside_a_segment(autojump_clock: MockClock, bench: Bench) -> None:
    for offset in (SEGMENT + 1, -SEGMENT):
        with pytest.raises(StoreError, match="is mappedFileSizeCommitLog"):
            bench.log.start_at(offset)


async def test_a_segment_in_the_making_is_dropped_when_the_log_begins_elsewhere(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.allocate.prepare()
    await trio.testing.wait_all_tasks_blocked()
    bench.log.start_at(5 * SEGMENT)
    await trio.sleep(1)
    assert bench.disk.listdir("/log") == []
    (result,) = await bench.put(message())
    assert result.wrote_offset == 5 * SEGMENT
