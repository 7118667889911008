"""Dispatch: what reaches the queues, when, and what stops it."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.consume_queue import FILLER, UNIT, UNIT_SIZE
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SCHEDULE_TOPIC, SysFlag, encode_blank
from rmqha.errors import StoreError
from rmqha.store import message_store
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDisk
from rmqha.store.queue_verify import verify_queues
from rmqha.store.status import PutMessageStatus
from tests.sim.sim_disk import SimDataFile, SimDisk, SimMount
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, put, running


def entries(store: DefaultMessageStore, topic: str = "TopicTest", queue_id: int = 0) -> list[tuple[int, int, int]]:
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    found = [queue.unit(index) for index in range(queue.min_offset_in_queue, queue.max_offset_in_queue)]
    return [unit for unit in found if unit is not None]


async def test_every_message_gets_its_unit_and_queues_are_told_once_a_round(autojump_clock: MockClock) -> None:
    arrived: list[tuple[str, int, int]] = []
    async with running(SimDisk().mount()) as store:
        store.connect_consumers(lambda *queue: arrived.append(queue))
        results = await put(
            store,
            message(properties=b"TAGS\x01TagA"),
            message(queue_id=1),
            message(topic="Other", properties=b"KEYS\x01k"),
            message(),
        )
        await dispatched(store)
        a, b, c, d = [(result.wrote_offset, result.wrote_bytes) for result in results]
        assert entries(store) == [(*a, 2598919), (*d, 0)]
        assert entries(store, queue_id=1) == [(*b, 0)]
        assert entries(store, "Other") == [(*c, 0)]
        assert arrived == [("TopicTest", 0, 2), ("TopicTest", 1, 1), ("Other", 0, 1)]


async def test_transactions_and_delays(autojump_clock: MockClock) -> None:
    now_ms = Clock(1_000_000)
    async with running(SimDisk().mount(), now_ms=now_ms) as store:
        flags = [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]
        results = await put(
            store,
            *[message(sys_flag=flag) for flag in flags],
            message(topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013"),
        )
        await dispatched(store)
        assert [entry[0] for entry in entries(store)] == [results[1].wrote_offset]
        assert entries(store, SCHEDULE_TOPIC, 2)[0][2] == 1_010_000


async def test_a_delay_from_the_end_of_all_time_is_dispatched(autojump_clock: MockClock) -> None:
    """Of a damaged record, or of a master whose clock is: a sum that is no int64 ended the broker, and each start."""
    device, clock = SimDisk(), Clock(2**63 - 1)
    for life in range(2):
        async with running(device.mount(), now_ms=clock, crash=True) as store:
            await put(store, message(topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013"))
            await dispatched(store)
            assert [unit[2] for unit in entries(store, SCHEDULE_TOPIC, 2)] == [-(2**63) + 9_999] * (life + 1)


async def test_sync_flush_shows_nothing_that_is_not_durable(autojump_clock: MockClock) -> None:
    device = SimDisk(latency_s=(0.5, 0.5))
    async with running(device.mount(), sync_flush=True) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        await dispatched(store)
        (second,) = await put(store, message())
        await trio.sleep(0.4)  # its fdatasync is under way; dispatch, which has its file, would be over
        assert store.get_max_offset_in_queue("TopicTest", 0) == 1
        assert store.look_message_by_offset(second.wrote_offset) is None
        await store.flush_now(store.max_offset)
        await dispatched(store)
        assert store.get_max_offset_in_queue("TopicTest", 0) == 2
        assert store.look_message_by_offset(second.wrote_offset) is not None


async def test_a_further_limit_holds_dispatch_back_until_it_moves(autojump_clock: MockClock) -> None:
    replicated = 0
    async with running(SimDisk().mount()) as store:
        store.connect_replication(confirmed=lambda: replicated)
        first, second = await put(store, message(), message())
        await trio.sleep(1)
        assert store.reput_from_offset == 0
        replicated = first.end_offset + 5
        store.confirm()
        await trio.sleep(1)
        assert store.reput_from_offset == first.end_offset, "no part of a record"
        assert store.look_message_by_offset(first.wrote_offset) is not None
        assert store.look_message_by_offset(second.wrote_offset) is None
        assert store.stored_message_at(second.wrote_offset) is not None, "a slave may show it already"
        replicated = second.end_offset
        store.confirm()
        assert store.look_message_by_offset(second.wrote_offset) is not None, "before it is dispatched"
        await dispatched(store)
        assert store.get_max_offset_in_queue("TopicTest", 0) == 2


async def test_a_blank_is_crossed_only_when_all_of_it_may_be_seen(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        _, second = await put(store, message(size=2100), message(size=2100))
        await dispatched(store)
        assert (store.reput_from_offset, len(entries(store))) == (SEGMENT + 2100, 2)
        assert second.wrote_offset == SEGMENT
    limited = SEGMENT - 1
    async with running(SimDisk().mount()) as store:
        store.connect_replication(confirmed=lambda: limited)
        await put(store, message(size=2100), message(size=2100))
        await trio.sleep(1)
        assert store.reput_from_offset == 2100


async def test_many_rounds_and_large_records(autojump_clock: MockClock) -> None:
    big = 600_000
    async with running(SimDisk().mount(), mapped_file_size_commit_log=1 << 21) as store:
        await put(store, *[message(size=1000) for _ in range(600)], message(size=big), message())
        await dispatched(store)
        assert [entry[1] for entry in entries(store)] == [1000] * 600 + [big, 105]


async def test_a_slave_waits_for_the_rest_of_a_record(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as master:
        await put(master, message(b"one"), message(b"two"))
        data = bytes(commit_log(master).view_range(0, master.max_offset))
    async with running(SimDisk().mount(), is_slave=True) as slave:
        for position, byte in enumerate(data):
            while not slave.append_raw(bytes([byte]), position):
                await slave.wait_allocated()
            await trio.testing.wait_all_tasks_blocked()
        await dispatched(slave)
        assert (slave.reput_from_offset, len(entries(slave))) == (len(data), 2)


async def feed(store: DefaultMessageStore, data: bytes) -> None:
    taken = 0
    start = store.max_offset
    while taken < len(data):
        taken += store.append_raw(data[taken:], start + taken)
        if taken < len(data):
            await store.wait_allocated()


def record(offset: int, *, queue_offset: int, like: PreparedRecord | None = None) -> bytes:
    return (like or message()).pack(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=5)


async def test_a_late_slave_starts_its_queues_with_fillers(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        store.start_at(3 * SEGMENT)
        await feed(store, record(3 * SEGMENT, queue_offset=25))
        await dispatched(store)
        assert store.get_min_offset_in_queue("TopicTest", 0) == 25
        assert store.get_max_offset_in_queue("TopicTest", 0) == 26
        assert store.get_message("TopicTest", 0, 25).next_begin_offset == 26
        await feed(store, record(store.max_offset, queue_offset=26))
        await dispatched(store)
        assert len(entries(store)) == 2


async def feed_a_queue_that_falls_silent(store: DefaultMessageStore) -> None:
    """Three messages in a segment that is then deleted; one of another topic comes behind."""
    data = b"".join(record(105 * number, queue_offset=number) for number in range(3))
    rest = SEGMENT - len(data)
    await feed(store, data + encode_blank(rest) + bytes(rest - 8))
    await feed(store, record(SEGMENT, queue_offset=0, like=message(topic="Other")))
    await dispatched(store)
    await commit_log(store).queue.delete_first_in_thread()


@pytest.mark.parametrize("begins_at", [0, 1, 7, 30])
async def test_a_queue_whose_messages_are_gone_begins_where_the_log_says(
    autojump_clock: MockClock, begins_at: int
) -> None:
    """On a former master whose new one knows a later end, or none; after a crash, too."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True, crash=True) as store:
        await feed_a_queue_that_falls_silent(store)
        first = store.max_offset
        await feed(store, record(first, queue_offset=begins_at))
        await dispatched(store)
        await feed(store, record(first + 105, queue_offset=begins_at + 1))
        await dispatched(store)
        assert store.running_flags.dispatch_error is None
        assert store.get_min_offset_in_queue("TopicTest", 0) == begins_at
        assert store.get_max_offset_in_queue("TopicTest", 0) == begins_at + 2
        assert [entry[0] for entry in entries(store)] == [first, first + 105]
        assert store.queues.known_ends["TopicTest", 0] == 3
    async with running(device.mount(), is_slave=True) as store:
        assert [entry[0] for entry in entries(store)] == [first, first + 105]
        assert store.get_max_offset_in_queue("TopicTest", 0) == begins_at + 2


async def test_a_queue_begins_again_at_a_start_that_finds_it_in_the_log(autojump_clock: MockClock) -> None:
    """The record was received and not dispatched when the process died."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True, crash=True) as store:
        await feed_a_queue_that_falls_silent(store)
        first = store.max_offset
        store.connect_replication(confirmed=lambda: first)
        await feed(store, record(first, queue_offset=0))
    async with running(device.mount(), is_slave=True) as store:
        assert store.running_flags.dispatch_error is None
        assert [entry[0] for entry in entries(store)] == [first]
        assert store.get_max_offset_in_queue("TopicTest", 0) == 1


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (bytes(200), "zeros where a record should be"),
        (b"\xff" * 200, "MAGICCODE"),
        (encode_blank(77) + bytes(69), "does not reach exactly"),
        (record(7, queue_offset=1), "claims PHYSICALOFFSET 7"),
    ],
)
async def test_what_does_not_fit_stops_dispatch_and_is_flagged(
    autojump_clock: MockClock, second: bytes, reason: str
) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, record(0, queue_offset=0) + second)
        await trio.sleep(1)
        assert reason in str(store.running_flags.dispatch_error)
        assert (store.reput_from_offset, store.max_offset) == (105, 105 + len(second))
        await feed(store, b"more")
        await trio.sleep(60)
        assert store.reput_from_offset == 105


async def feed_numbers(store: DefaultMessageStore, *numbers: int, topic: str = "TopicTest") -> int:
    """Records with these numbers in their queue; returns where the first lies."""
    first = at = store.max_offset
    data = b""
    for number in numbers:
        one = record(at, queue_offset=number, like=message(topic=topic))
        at, data = at + len(one), data + one
    await feed(store, data)
    await dispatched(store)
    return first


async def test_what_lies_behind_a_record_that_does_not_fit_a_damaged_queue_is_not_passed_over(
    autojump_clock: MockClock,
) -> None:
    """All that comes before it in the round is dispatched, and the next round begins with it."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed_numbers(store, 0, 1)
        queue = store.queues.find("TopicTest", 0)
        assert queue is not None
        queue.queue.files[0].file.pwrite([UNIT.pack(0, 105, 0)], UNIT_SIZE)
        data, begin = b"", store.max_offset
        for topic, number in (("Other", 0), ("TopicTest", 3), ("Other", 1)):
            data += record(begin + len(data), queue_offset=number, like=message(topic=topic))
        await feed(store, data)
        await dispatched(store)
        await trio.sleep(5)
        assert (store.reput_from_offset, store.queues.lost) == (store.max_offset, {})
        assert (store.queues.range_of("TopicTest", 0), len(entries(store, "Other"))) == ((0, 2), 2)
        assert store.queues.stopped["TopicTest", 0].number == 3


@pytest.mark.parametrize("crash", [False, True])
async def test_a_topic_that_a_rocketmq_master_made_again_begins_anew(autojump_clock: MockClock, *, crash: bool) -> None:
    """Also at the next starts, and when its queues are built again; all other topics go on."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True, crash=crash) as store:
        await feed_numbers(store, *range(12))
        first = await feed_numbers(store, 0, 1)
        await feed_numbers(store, 0, 1, 2, topic="Other")
        assert [entry[0] for entry in entries(store)] == [first, first + 105]
        assert store.running_flags.final_error is None
    for _ in range(2):
        async with running(device.mount(), is_slave=True, crash=crash) as store:
            assert [entry[0] for entry in entries(store)] == [first, first + 105]
            assert store.get_max_offset_in_queue("Other", 0) == 3
            await store.recover_topic_queue_table()
            assert store.next_queue_offset("TopicTest", 0) == 2
    async with running(device.mount(), is_slave=True) as store:
        store.queues.note_missing("/store/consumequeue/TopicTest/0", damaged="x")
        await trio.sleep(5)
        assert [entry[0] for entry in entries(store)] == [first, first + 105]
        await feed_numbers(store, 2)
        assert len(entries(store)) == 3
        assert store.running_flags.final_error is None
    found = verify_queues(device.mount(), "/store/commitlog", "/store/consumequeue")
    assert (found.problems, found.units, found.behind) == ([], 6, 0)
    device.remove("/store/consumequeue")
    async with running(device.mount(), is_slave=True) as store:
        assert len(entries(store)) == 3


async def test_numbers_go_on_from_a_beginning_that_is_not_dispatched_yet(autojump_clock: MockClock) -> None:
    """The slave becomes master: numbers that the queue does not reach would stop its dispatch."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed_numbers(store, *range(12))
        end = store.max_offset
        store.connect_replication(confirmed=lambda: end)
        await feed(store, record(end, queue_offset=0))
        await store.recover_topic_queue_table()
        assert store.next_queue_offset("TopicTest", 0) == 1


async def test_a_record_that_is_in_its_queue_already_does_not_end_dispatch(autojump_clock: MockClock) -> None:
    """What a crash, or a full disk, cuts short is dispatched a second time, together with what is new."""
    async with running(SimDisk().mount()) as store:
        await put(store, *[message(queue_id=number % 2) for number in range(30)])
        await dispatched(store)
        before = [entries(store, queue_id=queue_id) for queue_id in (0, 1)]
        store.reput.begin_at(0)
        results = await put(store, message(), message(queue_id=1))
        await dispatched(store)
        assert store.running_flags.dispatch_error is None
        added = [(result.wrote_offset, result.wrote_bytes, 0) for result in results]
        assert [entries(store, queue_id=queue_id) for queue_id in (0, 1)] == [
            [*old, new] for old, new in zip(before, added, strict=True)
        ]


async def test_puts_are_refused_once_dispatch_failed(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        await dispatched(store)
        device.faults.write_errors = 1
        with pytest.raises(StoreError):
            store.queues.find_or_create("TopicTest", 0).append(memoryview(b"x" * 20))
        store.running_flags.fail_dispatch(StoreError("broken"))
        (refused,) = store.put_messages([message()])
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert "cannot dispatch" in refused.remark
        assert store.write_error is None, "the log itself is well"


async def test_a_full_disk_of_the_queues_holds_dispatch_until_there_is_space(autojump_clock: MockClock) -> None:
    """The log has room, and what it took is seen in the end; meanwhile nothing more is taken."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        await dispatched(store)
        device.faults.full = True
        await put(store, message(), message(queue_id=1), message(queue_id=1))
        await trio.sleep(100)
        (refused,) = store.put_messages([message()])
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert "tries again: " in refused.remark
        assert "No space left" in refused.remark
        device.faults.full = False
        await trio.sleep(1.5)
        assert store.reput_from_offset == store.max_offset, "it is tried again each second"
        await trio.sleep(10)
        await put(store, message(queue_id=1))
        await dispatched(store)
        assert (len(entries(store)), len(entries(store, queue_id=1))) == (2, 3)
        assert store.running_flags.final_error is None
    assert not device.mount().exists("/store/abort")


async def test_a_stop_while_the_disk_is_full_loses_nothing(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        await dispatched(store)
        device.faults.full = True
        await put(store, message(), message(queue_id=1))
        await trio.sleep(10)
    assert device.mount().exists("/store/abort"), "the next start dispatches again"
    device.faults.full = False
    async with running(device.mount()) as store:
        assert (len(entries(store)), len(entries(store, queue_id=1))) == (2, 1)


async def test_a_queue_that_begins_late_costs_neither_memory_nor_the_loop(tmp_path: Path) -> None:
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    last, file_size, turns = 299_999, 6_000_000, 0
    changes: dict[str, Any] = {
        "root": str(tmp_path / "store"),
        "is_slave": True,
        "mapped_file_size_consume_queue": file_size,
    }
    with trio.fail_after(60):
        async with running(OsDisk(), **changes) as store:
            tracemalloc.start()
            await feed(store, record(0, queue_offset=last))
            queue = store.queues.find_or_create("TopicTest", 0)
            while not queue.has_units:
                turns += bool(queue.queue.files)
                await trio.lowlevel.checkpoint()
            _, peak_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert turns > 20
            assert peak_bytes < 1 << 20
            assert queue.unit(last) == (0, 105, 0)
        async with running(OsDisk(), **changes) as store:
            assert store.get_min_offset_in_queue("TopicTest", 0) == last
    data = (tmp_path / f"store/consumequeue/TopicTest/0/{0:020d}").read_bytes()
    assert data == FILLER * last + UNIT.pack(0, 105, 0), "as RocketMQ would fill it"


async def test_fillers_that_a_full_disk_interrupts_are_written_in_the_end(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, record(0, queue_offset=0, like=message(queue_id=1)))
        await dispatched(store)
        device.faults.full = True
        await feed(store, record(105, queue_offset=9) + record(210, queue_offset=10))
        await trio.sleep(5)
        device.faults.full = False
        await dispatched(store)
        queue = store.queues.find_or_create("TopicTest", 0)
        assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (9, 11)


@pytest.mark.parametrize("queue_offset", [-1, 1 << 62])
async def test_a_place_that_no_queue_has_stops_that_queue(autojump_clock: MockClock, queue_offset: int) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, record(0, queue_offset=queue_offset))
        await feed_numbers(store, 0, 1, topic="Other")
        assert (store.queues.range_of("TopicTest", 0), store.queues.range_of("Other", 0)) == ((0, 0), (0, 2))
        assert "none can be that" in store.queues.stopped.describe()


async def test_dispatch_goes_on_where_it_failed_after_a_restart(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message(), message())
        await dispatched(store)
        device.faults.write_errors = 1
        with pytest.raises(StoreError):
            store.queues.find("TopicTest", 0).append(memoryview(b"x" * 20))  # type: ignore[union-attr]
        await put(store, message())
        await dispatched(store)
    async with running(device.mount()) as store:
        assert len(entries(store)) == 3


async def test_while_the_log_is_far_behind_dispatch_takes_a_quarter_of_the_time(autojump_clock: MockClock) -> None:
    """Two segments, so two rounds; each has to make a queue's first file, which takes its time."""

    async def second_round_at(*, is_far_behind: bool) -> float:
        device = SimDisk()
        async with running(device.mount()) as store:
            store.connect_replication(is_far_behind=lambda: is_far_behind)
            device.latency_s = (1.0, 1.0)
            begun_at = trio.current_time()
            await put(store, message(topic="A", size=3000), message(topic="B", size=3000))
            while "B" not in {queue.topic for queue in store.queues if queue.has_units}:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            return trio.current_time() - begun_at

    slow, usual = await second_round_at(is_far_behind=True), await second_round_at(is_far_behind=False)
    assert 2.5 < slow - usual < 3.5


class CancellableMount(SimMount):
    """Like a call in a worker thread: it is not begun once the caller is cancelled."""

    async def create_in_thread(self, path: str, size: int, *, sparse: bool = False) -> SimDataFile:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await super().create_in_thread(path, size, sparse=sparse)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.35, 2.0])
async def test_a_stop_in_the_middle_of_a_round_is_clean(after_s: float, autojump_clock: MockClock) -> None:
    """Many queues get their first file while the store stops: what is in its queue already is no other record."""
    device = SimDisk(latency_s=(0.1, 0.1))
    disk = CancellableMount(device, device.mount().epoch)
    async with running(disk, mapped_file_size_commit_log=1 << 16) as store:
        await put(store, *[message(topic=f"t{number % 12}") for number in range(60)])
        await trio.sleep(after_s)
    assert store.running_flags.dispatch_error is None
    assert "/store/abort" not in device.files
    async with running(device.mount(), mapped_file_size_commit_log=1 << 16) as store:
        for number in range(12):
            assert len(entries(store, f"t{number}")) == 5


async def test_how_long_dispatch_is_behind(autojump_clock: MockClock) -> None:
    """Of what may be seen; thousands of files that had to be made first were a broker's that was ok."""
    device = SimDisk()
    async with running(device.mount(), mapped_file_size_commit_log=1 << 20) as store:
        await put(store, message())
        await dispatched(store)
        await trio.sleep(100)
        assert store.reput.behind_s(trio.current_time()) == 0
        device.latency_s = (0.1, 0.1)
        await put(store, *[message(topic=f"t{number}") for number in range(16 * 60)])
        await trio.sleep(5)
        assert 4.9 < store.reput.behind_s(trio.current_time()) < 5.1
        await dispatched(store)
        assert store.reput.behind_s(trio.current_time()) == 0


async def test_a_stop_leaves_to_the_next_start_what_takes_long(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took two minutes, and a service manager's kill came first."""
    monkeypatch.setattr(message_store, "_DISPATCH_S", 0.5)
    monkeypatch.setattr(message_store, "_QUEUES_FLUSHED_S", 2.0)
    device, count = SimDisk(latency_s=(0.1, 0.1)), 200
    async with running(device.mount(), mapped_file_size_commit_log=1 << 20) as store:
        await put(store, *[message(topic=f"t{number}") for number in range(count)])
        await trio.sleep(0.1)
        stopped_at, end = trio.current_time(), store.max_offset
    assert trio.current_time() - stopped_at < 4
    assert store.reput_from_offset < end
    assert "/store/abort" in device.files
    device.latency_s = (0.0, 0.0)
    async with running(device.mount(), mapped_file_size_commit_log=1 << 20) as store:
        assert [len(entries(store, f"t{number}")) for number in range(count)] == [1] * count
        assert len([*store.queues]) == count
    assert "/store/abort" not in device.files


async def test_a_log_that_begins_anew_is_behind_by_nothing_of_the_one_before(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), mapped_file_size_commit_log=1 << 20) as store:
        await put(store, message())
        device.latency_s = (0.1, 0.1)
        await put(store, *[message(topic=f"t{number}") for number in range(16 * 60)])
        await trio.sleep(5)
        assert store.reput.behind_s(trio.current_time()) > 4
        store.reput.begin_at(0)
        assert store.reput.behind_s(trio.current_time()) == 0
