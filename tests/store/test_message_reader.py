"""Pulls and lookups: the table of spec: remoting §2.5, batch limits, the tag filter, times."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.hashing import tags_code
from rmqha.codec.host import parse_host
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.message import decode_message
from rmqha.replication.role import RoleKind
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageStatus
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, put, running


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(clock: Clock) -> AsyncIterator[DefaultMessageStore]:
    async with running(SimDisk().mount(), now_ms=clock) as store:
        yield store


async def test_a_pull_returns_the_stored_bytes_in_order(autojump_clock: MockClock, store: DefaultMessageStore) -> None:
    results = await put(store, message(b"one"), message(b"no", queue_id=1), message(b"two"), message(b"three"))
    await dispatched(store)
    result = store.get_message("TopicTest", 0, 1)
    assert (result.status, result.next_begin_offset, result.min_offset, result.max_offset) == (
        GetMessageStatus.FOUND,
        3,
        0,
        3,
    )
    assert [decode_message(view).body for view in result.views] == [b"two", b"three"]
    assert result.size_bytes == sum(len(view) for view in result.views)
    assert [store.physical_offset_of(view) for view in result.views] == [r.wrote_offset for r in results[2:]]


@pytest.mark.parametrize(
    ("offset", "status", "next_begin_offset", "on_slave"),
    [
        (0, GetMessageStatus.OFFSET_TOO_SMALL, 2, 0),
        (5, GetMessageStatus.OFFSET_OVERFLOW_ONE, 5, 5),
        (6, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5, 6),
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 2, -1),
    ],
)
async def test_offsets_outside_the_queue(
    autojump_clock: MockClock,
    store: DefaultMessageStore,
    offset: int,
    status: GetMessageStatus,
    next_begin_offset: int,
    on_slave: int,
) -> None:
    await put(store, *[message() for _ in range(5)])
    await dispatched(store)
    queue = store.queues.find("TopicTest", 0)
    assert queue is not None
    queue.min_offset_in_queue = 2
    result = store.get_message("TopicTest", 0, offset)
    assert result == (status, next_begin_offset, 2, 5, (), 0)
    store.role.become(RoleKind.SLAVE)
    assert store.get_message("TopicTest", 0, offset).next_begin_offset == on_slave


@pytest.mark.parametrize("offset", [0, 7])
async def test_queues_without_messages(autojump_clock: MockClock, store: DefaultMessageStore, offset: int) -> None:
    result = store.get_message("TopicTest", 0, offset)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    store.queues.find_or_create("TopicTest", 0)
    result = store.get_message("TopicTest", 0, offset)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)


async def test_the_tag_filter_passes_over_what_is_not_wanted(
    autojump_clock: MockClock, store: DefaultMessageStore
) -> None:
    tags = [b"TAGS\x01" + tag for tag in (b"a", b"polygenelubricants", b"a", b"c")]
    await put(store, *[message(properties=tag) for tag in tags])
    await dispatched(store)
    wanted = frozenset({tags_code("polygenelubricants"), tags_code("c")})
    result = store.get_message("TopicTest", 0, 0, code_set=wanted)
    assert [decode_message(view).queue_offset for view in result.views] == [1, 3]
    assert result.next_begin_offset == 4
    nothing = store.get_message("TopicTest", 0, 0, code_set=frozenset({tags_code("x")}))
    assert (nothing.status, nothing.next_begin_offset, nothing.views) == (GetMessageStatus.NO_MATCHED_MESSAGE, 4, ())


async def test_how_much_one_pull_looks_at(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), mapped_file_size_consume_queue=20_000) as store:
        for _ in range(20):
            await put(store, *[message(size=1) for _ in range(50)])
        await dispatched(store)
        nothing = store.get_message("TopicTest", 0, 0, max_msg_nums=1_000_000, code_set=frozenset({tags_code("x")}))
        assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 800)


async def test_how_much_one_answer_holds(autojump_clock: MockClock) -> None:
    async with running(
        SimDisk().mount(),
        mapped_file_size_commit_log=1 << 21,
        mapped_file_size_consume_queue=20_000,
        in_memory_bytes=700_000,
    ) as store:
        await put(store, *[message(size=10_000, queue_id=0) for _ in range(100)])
        await dispatched(store)
        cold = store.get_message("TopicTest", 0, 0)
        assert (len(cold.views), cold.next_begin_offset) == (6, 6), "65536 bytes from disk"
        warm = store.get_message("TopicTest", 0, 60)
        assert len(warm.views) == 26, "262144 bytes from memory"
        assert len(store.get_message("TopicTest", 0, 60, max_bytes=35_000).views) == 3
        assert len(store.get_message("TopicTest", 0, 60, max_msg_nums=2).views) == 2
        assert len(store.get_message("TopicTest", 0, 60, max_bytes=1).views) == 1, "the first, whatever its size"
        await put(store, *[message(queue_id=1) for _ in range(50)])
        await dispatched(store)
        assert len(store.get_message("TopicTest", 1, 0, max_msg_nums=100).views) == 32


async def test_one_answer_from_the_disk_holds_eight_messages(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), mapped_file_size_commit_log=1 << 21, in_memory_bytes=0) as store:
        await put(store, *[message() for _ in range(50)])
        await dispatched(store)
        assert len(store.get_message("TopicTest", 0, 0).views) == 8


async def test_messages_whose_log_is_gone_are_passed_over(
    autojump_clock: MockClock, store: DefaultMessageStore
) -> None:
    await put(store, *[message(size=1500) for _ in range(5)])
    await dispatched(store)
    await commit_log(store).queue.delete_first_in_thread()
    result = store.get_message("TopicTest", 0, 0, max_msg_nums=1)
    assert [decode_message(view).queue_offset for view in result.views] == [2]
    commit_log(store).queue.files.pop(0)
    queue = store.queues.find("TopicTest", 0)
    assert queue is not None
    commit_log(store).queue.files.clear()
    commit_log(store).queue.start_offset = 1 << 40
    gone = store.get_message("TopicTest", 0, 0)
    assert (gone.status, gone.next_begin_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 5)


async def test_a_message_by_its_physical_offset(autojump_clock: MockClock, store: DefaultMessageStore) -> None:
    first, second = await put(store, message(b"one"), message(b"two"))
    await dispatched(store)
    view = store.look_message_by_offset(second.wrote_offset)
    assert view is not None
    assert decode_message(view).body == b"two"
    for nothing in (first.wrote_offset + 1, second.end_offset, second.end_offset - 1, -1, 10 * SEGMENT):
        assert store.look_message_by_offset(nothing) is None


async def test_offsets_of_a_queue(autojump_clock: MockClock, store: DefaultMessageStore) -> None:
    assert (store.get_max_offset_in_queue("TopicTest", 0), store.get_min_offset_in_queue("TopicTest", 0)) == (0, 0)
    await put(store, *[message() for _ in range(3)])
    await dispatched(store)
    assert (store.get_max_offset_in_queue("TopicTest", 0), store.get_min_offset_in_queue("TopicTest", 0)) == (3, 0)


async def test_times(autojump_clock: MockClock, store: DefaultMessageStore, clock: Clock) -> None:
    assert store.earliest_message_time_ms() == -1
    assert store.get_offset_in_queue_by_time("TopicTest", 0, 5) == 0
    first_ms = clock.now_ms
    host_v6 = parse_host("[2001:db8::1]:10911")
    for _ in range(3):
        v6 = prepare("TopicTest", b"x", queue_id=0, born_timestamp_ms=1, born_host_raw=host_v6, store_host_raw=host_v6)
        await put(store, v6)
        clock.now_ms += 1000
    await dispatched(store)
    assert store.earliest_message_time_ms() == first_ms
    found = [store.get_offset_in_queue_by_time("TopicTest", 0, first_ms + ms) for ms in (0, 499, 501, 1000, 9000)]
    assert found == [0, 0, 1, 1, 2]


async def test_views_stay_valid_after_the_store_is_closed(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        await put(store, message(b"kept"))
        await dispatched(store)
        result = store.get_message("TopicTest", 0, 0)
    await trio.sleep(1)
    assert decode_message(result.views[0]).body == b"kept"
