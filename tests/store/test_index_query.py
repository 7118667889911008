"""No query takes longer than its share, nor finds what may not be seen."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.store import index_query
from rmqha.store.index_query import Query
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import put, running
from tests.store.indexing import ALWAYS, indexed, keyed, offsets_of, uniq_key


async def test_a_chain_is_followed_in_turns_and_not_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_query, "_STEPS_A_TURN", 10)
    monkeypatch.setattr(index_query, "_EXAMINED_MAX", 250)
    async with running(SimDisk().mount(), max_index_num=4000, max_hash_slot_num=1) as store:
        offsets = [result.wrote_offset for number in range(150) for result in await put(store, keyed(number, keys="k"))]
        await indexed(store)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            await trio.lowlevel.checkpoint()
            turns = 0
            result = await store.query_message(Query("TopicTest", "k", 64, *ALWAYS))
            nursery.cancel_scope.cancel()
        assert 7 <= turns <= 12
        found = [store.physical_offset_of(view) for view in result.views]
        assert (found, result.is_complete) == (offsets[-50:], False)


async def test_an_answer_has_so_many_bytes_and_at_least_one_message(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(SimDisk().mount()) as store:
        offsets = [result.wrote_offset for number in range(5) for result in await put(store, keyed(number, keys="k"))]
        await indexed(store)
        monkeypatch.setattr(index_query, "_BYTES_MAX", 500)
        assert await offsets_of(store, "k") == offsets[-3:]
        monkeypatch.setattr(index_query, "_BYTES_MAX", 1)
        assert await offsets_of(store, "k") == offsets[-1:]


async def test_a_message_that_has_a_key_twice_is_found_once(autojump_clock: MockClock) -> None:
    """As its unique key and among the others, or twice among these; an answer has the bytes of its messages."""
    async with running(SimDisk().mount()) as store:
        twice = [result for keys in (uniq_key(0), "k k") for result in await put(store, keyed(0, keys=keys))]
        await indexed(store)
        for key, expected in ((uniq_key(0), twice), ("k", twice[1:])):
            result = await store.query_message(Query("TopicTest", key, 64, *ALWAYS))
            assert [store.physical_offset_of(view) for view in result.views] == [one.wrote_offset for one in expected]
            assert result.size_bytes == sum(map(len, result.views))


async def test_it_says_what_is_last_in_the_index(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        query = Query("TopicTest", "k", 64, *ALWAYS)
        assert (await store.query_message(query))[1:4] == (0, 0, 0)
        last = [result for number in range(5) for result in await put(store, keyed(number))][-1]
        await indexed(store)
        result = await store.query_message(query)
        assert (result.index_last_update_phyoffset, result.views) == (last.wrote_offset, ())
        assert result.index_last_update_timestamp == last.store_timestamp_ms
