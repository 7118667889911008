"""A master that takes the end of its log from a peer takes what that knows of it, too; nothing goes back for that."""

from copy import deepcopy

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.broker.producers import seen
from tests.broker.test_pair import SLAVE
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

PEERS = {"haPeers": "10.0.0.2:10912"}
ROLES = [{"brokerRole": "ASYNC_MASTER"}, {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}]
OTHER_SLAVE = SLAVE | {"brokerId": "2"}


async def send_delayed(machine: Machine, *bodies: bytes) -> None:
    """They are delivered when this ends, and everybody has what became of them."""
    async with machine.client() as client:
        for body in bodies:
            assert (await ask(client, send_request(body, topic="t", properties="DELAY\x011"))).code == 0
    await trio.sleep(30)


async def use(broker: BrokerController) -> None:
    """A group is set, and goes on."""
    broker.offsets.commit_offset("g", "t", 0, offset=5)
    broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=7))
    broker.topics.create_topic_in_send_message_back_method("made", queue_nums=3)
    await trio.sleep(30)


def tables_of(broker: BrokerController) -> tuple[int | None, int | None, int]:
    """How often group g may try again, where it is, and how many queues the topic has."""
    group, topic = broker.groups.select("g"), broker.topics.select("made")
    retries = group.retry_max_times if group else None
    return retries, broker.offsets.query_offset("g", "t", 0), topic.queue_nums if topic else 0


TEN = [b"%d" % number for number in range(10)]
USED = (7, 5, 3)


@pytest.mark.parametrize("role", ROLES)
async def test_an_older_copy_of_a_store_that_is_put_back(role: dict[str, str], autojump_clock: MockClock) -> None:
    """It had the log's end from its slave, delivered what was delayed there again, and the slave took its tables."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE) as peer:
        async with master.broker(**role):
            await trio.sleep(10)
            await send_delayed(master, b"first")
        copy = deepcopy(master.disk.files)
        async with master.broker(**role) as broker:
            await trio.sleep(10)
            await send_delayed(master, *TEN)
            await use(broker)
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)
        async with master.broker(**role, **PEERS) as broker:
            await trio.sleep(90)
            assert sorted(message.body for message in await seen(broker)) == [*TEN, b"first"]
            assert [tables_of(broker), tables_of(peer)] == [USED, USED]


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_the_longest_peer_that_comes_after_an_older_one(mode: str, autojump_clock: MockClock) -> None:
    """The older one had told all, as it was the longest that was there."""
    net = SimNet()
    first, second, third = (Machine(net, f"10.0.0.{number}") for number in (1, 2, 3))
    async with second.broker(**SLAVE), first.broker(brokerRole="ASYNC_MASTER") as broker:
        async with third.broker(**OTHER_SLAVE):
            await trio.sleep(10)
            await send_delayed(first, b"first")
        await send_delayed(first, *TEN)
        await use(broker)
    first.disk = SimDisk(now_ms=WallClock())
    settings = {"brokerRole": "ASYNC_MASTER", "haPeers": "10.0.0.2:10912,10.0.0.3:10912", "haCatchUpAtStart": mode}
    async with third.broker(**OTHER_SLAVE), first.broker(**settings) as broker:
        await trio.sleep(60)
        async with second.broker(**SLAVE) as longest:
            await trio.sleep(90)
            assert sorted(message.body for message in await seen(broker)) == [*TEN, b"first"]
            assert [tables_of(broker), tables_of(longest)] == [USED, USED]


@pytest.mark.parametrize("role", ROLES)
async def test_a_log_that_is_lost_without_its_tables(role: dict[str, str], autojump_clock: MockClock) -> None:
    """Opened without its peer, it cuts how far consumers are, as its queues are empty; the peer knows."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE), master.broker(**role) as broker:
        await trio.sleep(10)
        await send_delayed(master, *TEN)
        await use(broker)
    for name in [*master.disk.files]:
        if "config" not in name:
            del master.disk.files[name]
    async with master.broker(**role, **PEERS) as broker:
        await trio.sleep(60)
        assert tables_of(broker) == (7, 0, 3)
        async with slave.broker(**SLAVE):
            await trio.sleep(90)
            assert tables_of(broker) == USED
            assert sorted(message.body for message in await seen(broker)) == TEN


async def test_what_is_farther_here_stays(autojump_clock: MockClock) -> None:
    """A log that lost its end in a crash has tables that are as new as its slave's, or newer."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with master.broker(brokerRole="ASYNC_MASTER") as broker, slave.broker(**SLAVE) as peer:
        await trio.sleep(10)
        await send_delayed(master, *TEN)
        await use(broker)
        link = replication_of(broker).slave_synchronize
        broker.offsets.commit_offset("g", "t", 0, offset=8)
        broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=9))
        broker.topics.delete_topic_config("made", {}, before=0)
        peer.offsets.commit_offset("behind", "t", 0, offset=3)
        assert await link.take_newer("10.0.0.2:10911") == ""
        assert tables_of(broker) == (9, 8, 0)
        assert broker.offsets.query_offset("behind", "t", 0) == 3
        assert dict(broker.metadata.delay_offsets)[1] == 10


def test_deliveries_go_forward_alone() -> None:
    settled = 0
    offsets = DelayOffsets(lambda: settled)
    offsets.advance({1: 7, 2: 7}, log_end=0)
    offsets.take_newer({1: 3, 2: 9, 4: 1}, log_end=100)
    assert [*offsets] == [(1, 7), (2, 7)]
    settled = 100
    assert [*offsets] == [(1, 7), (2, 9), (4, 1)]


async def test_the_log_comes_without_them_too(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that lets nobody ask, or whose listenPort is elsewhere, still has what was acknowledged."""

    async def fails(_tables: SlaveSynchronize, _address: str) -> str:
        return "nothing answers"

    monkeypatch.setattr(SlaveSynchronize, "take_newer", fails)
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE) as peer:
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, b"first")
            copy = deepcopy(master.disk.files)
            await send_delayed(master, *TEN)
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)
        with capture_logs() as logs:
            async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
                await trio.sleep(30)
                assert broker.store.max_offset >= peer.store.max_offset > 0
    told = [entry for entry in logs if entry["event"] == "master_link.nothing_newer_taken"]
    assert [entry["reason"] for entry in told] == ["nothing answers"]
