"""What counts as durable, where entries come while a flush is under way, or a flush fails."""

import random

import pytest
import trio
import trio.testing

from tests.dledger.members import bodies_of, leader, opened, put
from tests.sim.sim_disk import SimDisk

ROOMY = {"mapped_file_size_for_entry_data": 4096}


async def test_what_comes_during_a_flush_is_made_durable_by_the_next(autojump_clock: trio.testing.MockClock) -> None:
    """The first may have begun before it was written: it says nothing of it, to the file either."""
    disk = SimDisk(latency_s=(0.001, 0.001))
    store = leader(disk.mount(), **ROOMY)
    put(store, b"one")
    for number, body in enumerate([b"two", b"three", b"four"]):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.flush_in_thread)
            await trio.sleep(0.0005)
            put(store, body)
        assert (store.flushed_index, store.ledger_end_index) == (number, number + 1)
        assert not store.is_flushed
    assert await store.flush_in_thread()
    assert store.is_flushed
    disk.lose_power(lambda path, number, old, new: old)
    assert bodies_of(opened(disk.mount(), **ROOMY)) == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_stop_whose_flush_failed_an_entry_that_was_torn_is_none(seed: int) -> None:
    """The checkpoint of a stop that went well says that units of the index prove nothing: there all is durable."""
    disk = SimDisk(random.Random(seed), latency_s=(0, 0))
    store = leader(disk.mount(), **ROOMY)
    put(store, b"one")
    assert await store.flush_in_thread()
    put(store, b"two" * 300)
    disk.faults.sync_errors = 1
    await store.shutdown()
    disk.lose_power(lambda path, number, old, new: old)
    assert bodies_of(opened(disk.mount(), **ROOMY)) == [b"one"]
