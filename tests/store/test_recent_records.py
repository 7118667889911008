"""Dispatch is told the same of what was just put as it would read in the log, however far it may go."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

import rmqha.store.segment_reader
from rmqha.codec.delay_level import DELAY_LEVELS_MS
from rmqha.codec.host import parse_host
from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.codec.record.layout import SCHEDULE_TOPIC, SysFlag, encode_blank
from rmqha.store.log import PutRequest
from rmqha.store.recent_records import RECORDS_MAX, RecentRecords
from rmqha.store.segment_reader import SegmentReader
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import HOST, SEGMENT, batch_of, commit_log, dispatched, message, put, running
from tests.store.test_commit_log import Bench

PROPERTIES = (
    b"",
    b"TAGS\x01one",
    b"KEYS\x01k\x02TAGS\x01two\x02",
    b"TAGS\x01one\x02TAGS\x01\x02UNIQ_KEY\x010A",
    b"MYTAGS\x01x",
    b"TAGS\x01" + b"long" * 40,
    b"TAGS\x01\xff",
    b"DELAY\x013\x02TAGS\x01x",
)


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.allocate.run)
    return bench


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were read from the log, each time."""
    reads: list[int] = []

    def read(*args: object, **kwargs: object) -> tuple[list[DispatchRequest], int]:
        found = read_dispatch(*args, **kwargs)  # type: ignore[arg-type]
        reads.append(len(found[0]))
        return found

    monkeypatch.setattr(rmqha.store.segment_reader, "read_dispatch", read)
    return reads


def any_record(random: Random, *, odd: bool) -> PreparedRecord:
    return prepare(
        SCHEDULE_TOPIC if odd and random.random() < 0.2 else random.choice(("TopicTest", "%RETRY%g")),
        bytes(random.choice((0, 10, 300))),
        queue_id=random.randrange(3),
        born_timestamp_ms=1,
        born_host_raw=parse_host("[fe80::1]:99") if odd and random.random() < 0.2 else HOST,
        store_host_raw=HOST,
        properties_raw=random.choice(PROPERTIES),
        sys_flag=random.choice((0, SysFlag.COMPRESSED, SysFlag.TRANSACTION_PREPARED)) if odd else 0,
    )


def any_request(random: Random, *, odd: float) -> PutRequest:
    if random.random() < 0.1:
        count = random.randint(1, 8)
        return batch_of(*[message(bytes(20), properties=random.choice(PROPERTIES)) for _ in range(count)])
    return any_record(random, odd=random.random() < odd)


def walk(log: SegmentReader | Bench, start: int, end: int) -> tuple[list[DispatchRequest], int]:
    """All that may be dispatched, round by round."""
    records = log.log.records if isinstance(log, Bench) else log.records
    found: list[DispatchRequest] = []
    while True:
        requests, at = records(start, end)
        if at == start:
            return found, at
        found, start = found + requests, at


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("odd", [0, 0.1])
async def test_what_was_put_is_told_as_it_would_be_read(
    autojump_clock: MockClock, bench: Bench, reads: list[int], seed: int, odd: float
) -> None:
    random, at, dispatched_count = Random(seed), 0, 0
    reader = SegmentReader(bench.queue, DELAY_LEVELS_MS)
    read_for_dispatch = 0
    for _ in range(30):
        await bench.put(*[any_request(random, odd=odd) for _ in range(random.randint(1, 12))])
        if random.random() < 0.2:
            bench.now_ms.now_ms += 1
        end = random.choice((bench.log.max_offset, random.randint(at, bench.log.max_offset)))
        told = walk(bench, at, end)
        read_for_dispatch += sum(reads)
        assert told == walk(reader, at, end)
        dispatched_count, at = dispatched_count + len(told[0]), told[1]
        reads.clear()
    assert dispatched_count
    assert odd or not read_for_dispatch


def requests(start: int, count: int) -> list[DispatchRequest]:
    return [DispatchRequest("T", 0, start + 100 * number, 100, 0, 1, number, 0) for number in range(count)]


def test_what_does_not_follow_begins_anew() -> None:
    recent = RecentRecords()
    recent.note(0, 100, requests(0, 1))
    recent.note(300, 400, requests(300, 1))
    assert recent.between(0, 400) is None
    assert recent.between(300, 400) == (requests(300, 1), 400)


def test_it_is_bounded() -> None:
    recent, last = RecentRecords(), RECORDS_MAX * 100
    for start in range(0, last, 25_600):
        recent.note(start, start + 25_600, requests(start, 256))
    assert recent.between(0, last) is not None
    recent.note(last, last + 100, requests(last, 1))
    assert recent.between(0, last + 100) is None
    assert recent.between(last, last + 100) == (requests(last, 1), last + 100)
    recent.note(last + 100, 3 * last, requests(last + 100, RECORDS_MAX + 1))
    assert recent.between(last + 100, 3 * last) is None


def test_what_was_dispatched_makes_room() -> None:
    recent = RecentRecords()
    for start in range(0, 10 * RECORDS_MAX * 100, 25_600):
        recent.note(start, start + 25_600, requests(start, 256))
        assert recent.between(start, start + 25_600) == (requests(start, 256), start + 25_600)


async def test_a_cut_log_forgets(autojump_clock: MockClock, bench: Bench) -> None:
    _, second = await bench.put(message(), message(properties=b"TAGS\x01gone"))
    bench.log.truncate(second.wrote_offset)
    other = message(properties=b"TAGS\x01here")
    raw = other.pack(queue_offset=1, physical_offset=second.wrote_offset, store_timestamp_ms=5)
    assert bench.log.append_raw(memoryview(raw), second.wrote_offset) == len(raw)
    told, _ = walk(bench, 0, bench.log.max_offset)
    assert [request.tags_code for request in told] == [0, other.tags_code]


async def test_a_log_that_begins_anew_before_its_end_forgets(autojump_clock: MockClock, bench: Bench) -> None:
    """Its only segment with messages is gone, as if somebody had deleted it."""
    (result,) = await bench.put(message(properties=b"TAGS\x01gone"))
    rest = encode_blank(SEGMENT - result.end_offset).ljust(SEGMENT - result.end_offset, b"\0")
    bench.log.append_raw(memoryview(rest), result.end_offset)
    bench.allocate.prepare()
    await bench.allocate.wait_allocated()
    bench.queue.add(bench.allocate.take())  # type: ignore[arg-type]
    await bench.queue.delete_first_in_thread()
    bench.log.start_at(0)
    other = message(properties=b"TAGS\x01here")
    raw = other.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=5)
    await bench.allocate.wait_allocated()
    assert bench.log.append_raw(memoryview(raw), 0) == len(raw)
    told, _ = walk(bench, 0, bench.log.max_offset)
    assert [request.tags_code for request in told] == [other.tags_code]


async def test_a_failed_write_is_told_of_by_nobody(autojump_clock: MockClock, bench: Bench) -> None:
    await bench.put(message())
    bench.device.faults.write_errors = 1
    assert (await bench.put(message()))[0].status.value != "PUT_OK"
    assert len(walk(bench, 0, SEGMENT)[0]) == 1


async def test_a_store_dispatches_what_it_put_without_reading_it(autojump_clock: MockClock, reads: list[int]) -> None:
    async with running(SimDisk().mount()) as store:
        for _ in range(20):
            await put(store, *[message(queue_id=number % 3) for number in range(10)])
            await dispatched(store)
        assert not sum(reads)
        assert [store.get_max_offset_in_queue("TopicTest", queue_id) for queue_id in range(3)] == [80, 60, 60]
        assert walk(SegmentReader(commit_log(store).queue, DELAY_LEVELS_MS), 0, store.max_offset)[1] == store.max_offset
