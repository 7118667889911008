"""What the simulator found in rmqha itself, each as small as it can be told."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import LocalProtocolError, StoreWriteError
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.machines import Machine, ask, send_request
from tests.sim import campaign
from tests.sim.node import is_noticed
from tests.sim.sim_disk import SECTOR, SimDisk
from tests.sim.sim_net import SimNet
from tests.sim.world import simulate
from tests.store.helpers import SEGMENT, Clock, dispatched, make_store, message, options, put
from tests.store.helpers import running as serving

SEGMENT_PATH = "/store/commitlog/00000000000000000000"


def opened(disk: SimDisk, *, sync_flush: bool = True) -> DefaultMessageStore:
    """A store on the disk as a new process loads it."""
    store = make_store(options(sync_flush=sync_flush), disk.mount(), now_ms=Clock())
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
        if inspect.isawaitable(done := act(store)):
            await done
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


async def test_a_cut_that_failed_is_not_believed_afterwards(autojump_clock: MockClock) -> None:
    """Zeros whose fdatasync failed are still seen; the device still has the tail, which a power cut brings back."""
    disk = SimDisk()
    await running(disk, lambda s: s.put_messages([message(b"x" * 900) for _ in range(3)]), sync_flush=False)
    disk.lose_power(lambda _path, number, old, new: old if number == 0 else new)
    disk.faults.sync_errors = 1
    with pytest.raises(StoreWriteError):
        opened(disk)
    assert opened(disk).max_offset == 0
    disk.lose_power(lambda _path, _number, old, _new: old)
    assert not any(disk.files[SEGMENT_PATH].durable)


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


async def test_times_of_a_log_that_was_never_flushed_prove_nothing(autojump_clock: MockClock) -> None:
    """Seed 155600: its queues were, and the checkpoint's lone time had recovery judge by a clock, which had jumped."""
    disk, clock = SimDisk(), Clock()
    seldom: dict[str, Any] = {"flush_interval_commit_log_s": 60.0, "flush_commit_log_thorough_interval_s": 60.0}
    often: dict[str, Any] = {"flush_interval_consume_queue_s": 1.0, "flush_consume_queue_thorough_interval_s": 1.0}
    async with serving(disk.mount(), now_ms=clock, crash=True, sync_flush=False, **seldom, **often) as store:
        await put(store, message(b"y"), message(b"z" * 60, properties=b"KEYS\x01" + b"k" * 1400))
        clock.now_ms += 86_400_000
        await put(store, message(b"a day later"))
        await dispatched(store)
        await trio.sleep(5.0)
        assert (store.flushed_offset, store.queues.dirty) == (0, {})
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

    async def catch_up_and_put(store: DefaultMessageStore) -> None:
        store.append_raw(caught_up, 0)
        await store.recover_topic_queue_table()
        assert store.put_messages([message(b"c")])[0].queue_offset == 2

    store = await running(SimDisk(), catch_up_and_put)
    assert store.reput.reput_from_offset == store.wrote.value


MASTER, SLAVE, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def cluster(in_sync_replicas: int) -> list[Machine]:
    """A master that asks both its slaves at its start, and these."""
    net = SimNet()
    required = {"haPeers": f"{SLAVE}:10912,{OTHER}:10912", "haCatchUpAtStart": "require"}
    following = {"brokerRole": "SLAVE", "haMasterAddress": f"{MASTER}:10912"}
    promise = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": str(in_sync_replicas)}
    return [
        Machine(net, MASTER, promise | required),
        Machine(net, SLAVE, following | {"brokerId": "1"}),
        Machine(net, OTHER, following | {"brokerId": "2"}),
    ]


async def test_an_empty_cluster_that_requires_answers_starts(autojump_clock: MockClock) -> None:
    """A slave with nothing has nothing more: that is an answer. The first start of all never came to an end."""
    master, slave, other = cluster(in_sync_replicas=3)
    with trio.fail_after(60):
        async with slave.broker(), other.broker(), master.broker(), master.client() as client:
            await trio.sleep(5.0)
            assert (await ask(client, send_request(b"first"))).code == 0


@pytest.mark.parametrize(("in_sync_replicas", "refusal"), [(2, "1 peers of haPeers"), (3, "")])
async def test_as_many_peers_must_answer_as_share_a_slave_with_each_acknowledgement(
    in_sync_replicas: int, refusal: str, autojump_clock: MockClock
) -> None:
    """With two slaves and inSyncReplicas=2 the one that is away may be the one that holds the message."""
    master, slave, _ = cluster(in_sync_replicas)
    async with slave.broker(), master.broker() as controller:
        await trio.sleep(60.0)
        assert refusal in controller.store.refusal()
        assert bool(controller.store.refusal()) == bool(refusal)


@pytest.mark.parametrize("lost", range(8))
async def test_without_the_crc_recovery_ends_whatever_sector_is_missing(lost: int, autojump_clock: MockClock) -> None:
    """checkCRCOnRecover=false: the last record is looked at all the same, and its body need not be good."""
    disk = SimDisk()
    properties = b"KEYS\x01" + b"k" * 300
    await running(
        disk,
        lambda s: s.put_messages([message(b"b" * 900, properties=properties) for _ in range(3)]),
        sync_flush=False,
    )
    disk.lose_power(lambda _path, number, old, new: old if number == lost else new)
    ends = []
    for _ in range(2):
        store = make_store(options(check_crc_on_recover=False), disk.mount(), now_ms=Clock())
        store.load()
        ends.append(store.max_offset)
        store.close()
    assert ends[0] == ends[1]


@pytest.mark.parametrize("in_sync_replicas", [2, 3])
def test_an_old_master_that_never_followed_is_not_promoted_again(in_sync_replicas: int) -> None:
    """Seed 95061, as docs/operations.md had it: the longest log took over, which was a former master's own tail.

    What the others had acknowledged meanwhile was lost.
    """
    tape = campaign.corpus()["a-former-master-that-never-followed"]
    swarm = replace(tape.swarm, in_sync_replicas=in_sync_replicas)
    outcome = simulate(tape.seed, swarm=swarm, plan=tape.plan, drawn=tape.drawn, keep_events=True)
    assert outcome.violations == []
    assert outcome.events is not None
    assert [event.split()[-1] for event in outcome.events if "operator.promoted" in event] == ["('n2',)", "('n1',)"]


def test_torn_sectors_are_told_exactly() -> None:
    """Bytes come back as they were written or not at all, wherever sectors were torn; and twice the same."""
    for seed in range(400):
        random = Random(seed)
        disk = SimDisk(random)
        opened(disk)  # the process that will die
        mount, log = disk.mount(), b""
        for number in range(random.randint(3, 8)):
            properties = b"KEYS\x01" + b"k" * random.randint(0, 200)
            put = message(b"x" * random.randint(0, 300), properties=properties)
            log += put.pack(queue_offset=number, physical_offset=len(log), store_timestamp_ms=1_700_000_000_000)
        mount.create(SEGMENT_PATH, SEGMENT).pwrite([log[:SEGMENT]], 0)
        disk.is_noticed = lambda path, start, end, disk=disk: is_noticed(disk, path, start, end)  # type: ignore[misc]
        disk.lose_power(lambda p, n, old, new, disk=disk: disk._kept(p, n, old, new, keep=0.8, tear=0.3))  # type: ignore[misc]
        end = opened(disk).max_offset
        assert disk.files[SEGMENT_PATH].cache[:end] == log[:end], f"seed {seed}"
        assert not any(disk.files[SEGMENT_PATH].durable[end:])
        assert opened(disk).max_offset == end, f"seed {seed}"
