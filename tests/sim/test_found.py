"""What the simulator found in rmqha itself, each as small as it can be told."""

from collections.abc import Callable
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import LocalProtocolError, StoreWriteError
from rmqha.store.message_store import DefaultMessageStore
from tests.sim.sim_disk import SECTOR, SimDisk
from tests.store.helpers import Clock, message, options

SEGMENT_PATH = "/store/commitlog/00000000000000000000"


def opened(disk: SimDisk, *, sync_flush: bool = True) -> DefaultMessageStore:
    """A store on the disk as a new process loads it."""
    store = DefaultMessageStore(options(sync_flush=sync_flush), disk.mount(), now_ms=Clock())
    store.load()
    return store


async def running(
    disk: SimDisk, act: Callable[[DefaultMessageStore], object], *, until_s: float = 1.0, sync_flush: bool = True
) -> DefaultMessageStore:
    """Open a store, let it run for a while after ``act``, and kill it."""
    store = opened(disk, sync_flush=sync_flush)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await store.put_messages_when_allocated([])
        await trio.sleep(0.1)
        act(store)
        await trio.sleep(until_s)
        nursery.cancel_scope.cancel()
    return store


async def test_recovery_writes_again_what_a_failed_sync_did_not_write(autojump_clock: MockClock) -> None:
    """After EIO the kernel takes pages for clean; a restarted process that believes them loses them at a power cut."""
    for seed in range(5):
        disk = SimDisk(Random(seed))

        def put_and_fail(store: DefaultMessageStore, disk: SimDisk = disk) -> None:
            disk.faults.sync_errors = 1
            store.put_messages([message(b"x" * 1000)])

        store = await running(disk, put_and_fail)
        assert isinstance(store.write_error, StoreWriteError)
        recovered = opened(disk)
        disk.lose_power(lambda _path, _number, old, _new: old)
        assert opened(disk).max_offset == recovered.flushed_offset


async def test_a_record_whose_properties_were_torn_off_is_cut(autojump_clock: MockClock) -> None:
    """No checksum covers properties: zeros in their place, and the record would come back as another one."""
    disk = SimDisk()
    properties = b"KEYS\x01" + b"k" * 700
    store = await running(disk, lambda s: s.put_messages([message(b"y"), message(b"z" * 60, properties=properties)]))
    first_end = len(message(b"y").pack(queue_offset=0, physical_offset=0, store_timestamp_ms=0))
    assert store.flushed_offset > first_end + SECTOR
    disk.files[SEGMENT_PATH].durable[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    disk.power_cut()
    assert opened(disk).max_offset == first_end


async def test_torn_properties_are_cut_though_good_records_follow(autojump_clock: MockClock) -> None:
    """The next record may have reached the device on its own."""
    disk = SimDisk()
    long = message(b"z" * 60, properties=b"KEYS\x01" + b"k" * 1400)
    await running(disk, lambda s: s.put_messages([message(b"y"), long, message(b"after")]), sync_flush=False)
    disk.lose_power(lambda _path, number, old, new: old if number == 1 else new)
    assert opened(disk).max_offset == 101


def test_a_nul_in_properties_is_refused() -> None:
    """Else an acknowledged message could look like a torn one."""
    with pytest.raises(LocalProtocolError, match="NUL"):
        message(properties=b"KEYS\x01\0")


async def test_queue_offsets_go_on_behind_what_came_from_a_peer(autojump_clock: MockClock) -> None:
    """A master that caught up at its start gave queue offsets a second time."""
    peer = SimDisk()
    end = (await running(peer, lambda s: s.put_messages([message(b"a"), message(b"b")]))).flushed_offset
    caught_up = peer.files[SEGMENT_PATH].cache[:end]

    def catch_up_and_put(store: DefaultMessageStore) -> None:
        store.append_raw(caught_up, 0)
        store.recover_topic_queue_table()
        assert store.put_messages([message(b"c")])[0].queue_offset == 2

    store = await running(SimDisk(), catch_up_and_put)
    assert store.reput.reput_from_offset == store.wrote.value
