"""A whole store lives on a log of another kind, from its start to its stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import StoreError
from rmqha.replication.role import Role
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.store_log import StoreGround, StoreLog
from tests.settings import clean_options
from tests.store.helpers import Clock, bodies, dispatched, message, options, put
from tests.store.sparse_log import DIRECTORY, FLUSH_S, ROOM, Medium, SparseLog


class SparseStore:
    """One life of a store on a :class:`SparseLog`."""

    def __init__(self, medium: Medium, **changes: Any) -> None:
        ground = StoreGround(options(sync_flush=True, **changes), medium.disk.mount(), now_ms=Clock(1 << 42))
        self.log = SparseLog(medium, ground.disk)
        log: StoreLog = self.log
        self.store = DefaultMessageStore(make_parts(ground, log, role=Role()))

    async def put(self, *bodies: bytes) -> int:
        """Put them into queue 0; returns the queue offset of the first."""
        return (await put(self.store, *map(message, bodies)))[0].queue_offset

    async def confirm(self) -> None:
        """A quorum has all that is flushed, and consumers are shown it."""
        await self.store.flush_now(self.store.max_offset)
        self.log.confirm(self.log.flushed.value)
        self.store.confirm()
        await dispatched(self.store)

    async def cut(self, offset: int) -> None:
        """As in another term."""
        self.log.truncate(offset)
        await self.store.recover_topic_queue_table()

    def bodies(self) -> list[bytes]:
        """What a consumer is shown of queue 0."""
        return bodies(self.store)


@asynccontextmanager
async def living(medium: Medium, *, crash: bool = False, **changes: Any) -> AsyncIterator[SparseStore]:
    """Loaded and serving; stopped cleanly at the end, or just dropped."""
    sparse = SparseStore(medium, **changes)
    sparse.store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(sparse.store.run)
        yield sparse
        if crash:
            nursery.cancel_scope.cancel()
        else:
            sparse.store.stop()


@pytest.fixture
def medium() -> Medium:
    return Medium()


async def test_consumers_see_what_is_confirmed_and_a_cut_takes_the_rest(
    autojump_clock: MockClock, medium: Medium
) -> None:
    async with living(medium) as sparse:
        await sparse.put(b"0", b"1")
        await sparse.store.flush_now(sparse.store.max_offset)
        await trio.sleep(1)
        assert sparse.bodies() == [], "no quorum has them"
        await sparse.confirm()
        assert sparse.bodies() == [b"0", b"1"]
        end = sparse.store.max_offset
        assert await sparse.put(b"of another term", b"and another") == 2
        await sparse.cut(end)
        assert (sparse.store.max_offset, sparse.store.flushed_offset) == (end, end)
        assert await sparse.put(b"2") == 2
        await sparse.confirm()
        assert sparse.bodies() == [b"0", b"1", b"2"]
        with pytest.raises(StoreError):
            sparse.log.truncate(end)


async def test_a_stop_and_a_start_lose_nothing(autojump_clock: MockClock, medium: Medium) -> None:
    bodies = [b"%d" % number for number in range(25)]
    async with living(medium) as sparse:
        assert sparse.log.is_prepared
        await sparse.put(*bodies)
        await sparse.confirm()
    assert sparse.log.is_closed
    assert not medium.disk.mount().exists("/store/abort"), "there is nothing to repair"
    async with living(medium) as sparse:
        assert sparse.store.reput_from_offset == sparse.store.max_offset
        assert sparse.bodies() == bodies
        assert await sparse.put(b"25") == 25


async def test_a_crash_takes_what_was_not_flushed(autojump_clock: MockClock, medium: Medium) -> None:
    async with living(medium, crash=True) as sparse:
        await sparse.put(b"0", b"1")
        await sparse.confirm()
        assert await sparse.put(b"2") == 2
    async with living(medium) as sparse:
        assert sparse.bodies() == [b"0", b"1"]
        assert await sparse.put(b"2 again") == 2
        await sparse.confirm()
        assert sparse.bodies() == [b"0", b"1", b"2 again"]


async def test_what_a_leader_sends_comes_in_through_the_store(autojump_clock: MockClock, medium: Medium) -> None:
    leader = SparseLog()
    for number in range(5):
        leader.append(b"%d" % number)
    async with living(medium) as sparse:
        at = 0
        for offset, record in leader.kept.items():
            assert sparse.store.append_raw(bytes(offset - at) + record, at) == offset + len(record) - at
            at = offset + len(record)
        await sparse.confirm()
        assert sparse.bodies() == [b"%d" % number for number in range(5)]
        await sparse.store.recover_topic_queue_table()
        assert await sparse.put(b"of the next leader") == 5


async def test_what_has_no_room_yet_comes_when_the_log_s_service_has_made_some(
    autojump_clock: MockClock, medium: Medium
) -> None:
    async with living(medium) as sparse:
        requests = [message(b"%d" % number) for number in range(2 * ROOM + 1)]
        assert len(sparse.store.put_messages(requests)) == ROOM
        begun_at = trio.current_time()
        with trio.fail_after(60):
            results = await sparse.store.put_messages_when_allocated(requests[ROOM:])
        assert [result.queue_offset for result in results] == list(range(ROOM, 2 * ROOM + 1))
        assert 1 <= trio.current_time() - begun_at <= 2


async def test_who_waits_for_a_flush_is_told_at_the_stop(autojump_clock: MockClock, medium: Medium) -> None:
    told = list[bool]()
    async with living(medium, crash=True) as sparse:
        await sparse.put(b"0")
        sparse.log.flushed.add(
            sparse.store.max_offset + 1, trio.current_time() + 60, lambda reached, _: told.append(reached)
        )
        await trio.sleep(FLUSH_S * 2)
    assert told == [False]


async def test_what_is_old_goes_but_nothing_that_is_not_confirmed(autojump_clock: MockClock, medium: Medium) -> None:
    clean = replace(clean_options(), delete_when=tuple(range(24)), file_reserved_time_s=1)
    async with living(medium, clean=clean) as sparse:
        bodies = [b"%d" % number for number in range(20)]
        await sparse.put(*bodies)
        await sparse.store.flush_now(sparse.store.max_offset)
        assert await sparse.store.cleaner.clean() == 0, "no quorum has them"
        await sparse.confirm()
        files = [file.path for file in sparse.log.files.files]
        assert await sparse.store.cleaner.clean() == len(files) - 1 > 1
        assert [f"{DIRECTORY}/{name}" for name in sparse.store.disk.listdir(DIRECTORY)] == files[-1:]
        left = len(sparse.log.kept)
        assert (sparse.bodies(), sparse.store.get_min_offset_in_queue("TopicTest", 0)) == (bodies[-left:], 20 - left)
    async with living(medium) as sparse:
        assert sparse.bodies() == bodies[-left:]
