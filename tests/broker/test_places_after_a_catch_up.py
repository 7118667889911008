"""A master that lost its store gives no place of a queue twice, from the first send on that it takes."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.processors.metadata_processor import MetadataProcessor
from tests.broker.machines import replication_of
from tests.broker.test_failover import MASTER, Cluster, send, unknown
from tests.broker.test_pair import SLAVE
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk


async def test_the_first_send_goes_on_where_its_queue_ended_though_the_log_holds_nothing_of_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ tells where its queues end by now, which counts once its log is here: nobody waits for that."""
    cluster = Cluster()
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave():
        pass
    cluster.first.disk = SimDisk(now_ms=WallClock())
    monkeypatch.setattr(MetadataProcessor, "get_queue_ends", unknown)  # as a peer of RocketMQ's
    async with cluster.second.broker(**SLAVE), trio.open_nursery() as nursery:
        master = cluster.first.controller(**MASTER, haPeers="10.0.0.2:10912")
        nursery.start_soon(master.run)
        await replication_of(master).opened.wait()
        assert master.store.next_queue_offset("idle", 0) == 3
        async with cluster.first.client() as client:
            assert [await send(client, "idle") for _ in range(2)] == [3, 4]
        nursery.cancel_scope.cancel()
