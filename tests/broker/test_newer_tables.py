"""A master that takes the end of its log from a peer takes what that knows of it, too; nothing goes back for that."""

from contextlib import AsyncExitStack
from copy import deepcopy

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.slave_synchronize import Merged, SlaveSynchronize
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_READ
from rmqha.errors import RemotingError
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.broker.producers import seen
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_clock import VirtualClock, WallClock
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
async def test_an_older_copy_of_a_store_that_is_put_back(role: dict[str, str], virtual_clock: VirtualClock) -> None:
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
async def test_the_longest_peer_that_comes_after_an_older_one(mode: str, virtual_clock: VirtualClock) -> None:
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
    async with first.broker(**settings | {"haCatchUpAtStart": "try"}), first.client() as client:
        assert (await ask(client, send_request(b"x"))).code == 0, "it lacks nothing of who is away now"


@pytest.mark.parametrize("after_s", [0.0, 3.0])
async def test_an_older_copy_that_is_killed_as_soon_as_it_has_caught_up(
    after_s: float, virtual_clock: VirtualClock
) -> None:
    """The log was there, what was taken of the tables was not yet saved, and nobody asked again."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE):
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, b"first")
        copy = deepcopy(master.disk.files)
        async with master.broker(brokerRole="ASYNC_MASTER") as broker:
            await trio.sleep(10)
            await send_delayed(master, *TEN)
            await use(broker)
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)
        async with trio.open_nursery() as nursery:
            broker = master.controller(brokerRole="ASYNC_MASTER", **PEERS)
            nursery.start_soon(broker.run)
            await replication_of(broker).opened.wait()
            await trio.sleep(after_s)
            nursery.cancel_scope.cancel()
        master.disk.power_cut()
        async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
            await trio.sleep(90)
            assert sorted(message.body for message in await seen(broker)) == [*TEN, b"first"]
            assert tables_of(broker) == USED


@pytest.mark.parametrize("role", ROLES)
async def test_a_log_that_is_lost_without_its_tables(role: dict[str, str], virtual_clock: VirtualClock) -> None:
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


@pytest.mark.parametrize("lost", ["the end of the log", "the store"])
async def test_offsets_beyond_the_log_that_a_late_peer_brings(lost: str, virtual_clock: VirtualClock) -> None:
    """Its tables came farther than its log: the group passed over the next messages, which are given those places."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE) as peer:
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, b"first")
        copy = deepcopy(master.disk.files)
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, *TEN)
        peer.offsets.commit_offset("g", "t", 0, offset=15)
    master.disk = SimDisk(now_ms=WallClock())
    master.disk.files.update(copy if lost == "the end of the log" else {})
    async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
        await trio.sleep(60)
        async with slave.broker(**SLAVE):
            await trio.sleep(90)
            assert broker.store.next_queue_offset("t", 0) == 11
            assert broker.offsets.query_offset("g", "t", 0) == 11


@pytest.mark.parametrize("what", ["a reset", "a deletion"])
async def test_an_earlier_place_that_was_chosen_here_stays(what: str, virtual_clock: VirtualClock) -> None:
    """A slave keeps the larger offset: with one message of the log's end it came back, and eighty were not read."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE):
        async with master.broker(brokerRole="ASYNC_MASTER") as broker:
            await trio.sleep(10)
            await send_delayed(master, *TEN)
            broker.offsets.commit_offset("g", "t", 0, offset=10)
            await trio.sleep(30)
            if what == "a reset":
                broker.offsets.commit_offset("g", "t", 0, offset=2)
            else:
                await broker.offsets.remove_offset_in_turns("g")
            await trio.sleep(30)
        copy = deepcopy(master.disk.files)
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, b"in the tail")
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)
        async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
            await trio.sleep(90)
            assert broker.store.next_queue_offset("t", 0) == 11
            assert broker.offsets.query_offset("g", "t", 0) == (2 if what == "a reset" else None)


async def test_what_is_farther_here_stays(virtual_clock: VirtualClock) -> None:
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
        peer.offsets.commit_offset("in the tail", "t", 0, offset=11)
        merged = await link.merge("10.0.0.2:10911", is_lost=False, next_offset=broker.store.next_queue_offset)
        assert merged.failure == ""
        assert tables_of(broker) == (9, 8, 0)
        assert [broker.offsets.query_offset(group, "t", 0) for group in ("behind", "in the tail")] == [3, 11]
        assert dict(broker.metadata.delay_offsets)[1] == 10


def test_deliveries_go_forward_alone() -> None:
    settled = 0
    offsets = DelayOffsets(lambda: settled)
    offsets.advance({1: 7, 2: 7}, log_end=0)
    offsets.take_newer({1: 3, 2: 9, 4: 1}, log_end=100)
    assert [*offsets] == [(1, 7), (2, 7)]
    settled = 100
    assert [*offsets] == [(1, 7), (2, 9), (4, 1)]


async def test_the_log_comes_without_them_too(virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that lets nobody ask, or whose listenPort is elsewhere, still has what was acknowledged."""

    async def fails(_tables: SlaveSynchronize, _address: str, **_how: object) -> Merged:
        return Merged("nothing answers")

    monkeypatch.setattr(SlaveSynchronize, "merge", fails)
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


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kept", ["commitlog", "all but config"])
async def test_tables_that_are_lost_beside_a_log(role: dict[str, str], kept: str, virtual_clock: VirtualClock) -> None:
    """A root disk that was replaced, or a copy without ``config``: the slave's tables were the last, and replaced."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE), master.broker(**role) as broker:
        await trio.sleep(10)
        await send_delayed(master, *TEN)
        await use(broker)
    for name in [*master.disk.files]:
        if ("commitlog" not in name) if kept == "commitlog" else ("config" in name):
            del master.disk.files[name]
    async with slave.broker(**SLAVE) as peer, master.broker(**role, **PEERS) as broker:
        await trio.sleep(90)
        assert sorted(message.body for message in await seen(broker)) == TEN
        assert [tables_of(broker), tables_of(peer)] == [USED, USED]


@pytest.mark.parametrize("comes", ["before", "later"])
async def test_tables_that_are_lost_beside_a_log_longer_than_the_slaves(
    comes: str, virtual_clock: VirtualClock
) -> None:
    """What the log had taught counted for more than what was decided: deleted topics and permissions were undone."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with master.broker(brokerRole="ASYNC_MASTER") as broker:
        async with slave.broker(**SLAVE), master.client() as client:
            await trio.sleep(10)
            for topic in ("t", "closed", "gone"):
                for number in range(24):
                    assert (await ask(client, send_request(b"x", topic=topic, queue_id=number % 4))).code == 0
            await use(broker)
            broker.topics.update_topic_config(TopicConfig("closed", 4, 4, PERM_READ))
            ends = {number: broker.store.next_queue_offset("gone", number) for number in range(4)}
            broker.topics.delete_topic_config("gone", ends, before=broker.store.max_offset)
            await trio.sleep(30)
        async with master.client() as client:
            for topic in ("t", "since"):
                assert (await ask(client, send_request(b"x", topic=topic))).code == 0
            await trio.sleep(10)
    for name in [*master.disk.files]:
        if "config" in name:
            del master.disk.files[name]

    def check(broker: BrokerController) -> None:
        assert tables_of(broker) == USED
        closed = broker.topics.select("closed")
        assert closed is not None
        assert closed.perm == PERM_READ
        assert broker.topics.select("gone") is None
        assert broker.topics.select("since") is not None, "the slave has not heard of it"

    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(slave.broker(**SLAVE)) if comes == "before" else None
        broker = await stack.enter_async_context(master.broker(brokerRole="ASYNC_MASTER", **PEERS))
        client = await stack.enter_async_context(master.client())
        await trio.sleep(60)
        if peer is None:
            broker.topics.update_topic_config(TopicConfig("made here", 2, 2))
            peer = await stack.enter_async_context(slave.broker(**SLAVE))
            await trio.sleep(60)
            assert broker.topics.select("made here") is not None
        check(broker)
        assert tables_of(peer) == USED
        assert peer.topics.select("gone") is None


async def _used_and_lost() -> tuple[Machine, Machine]:
    """A master whose ``config`` is gone beside its log, and its slave, which has as much of the log."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE), master.broker(brokerRole="ASYNC_MASTER") as broker, master.client() as client:
        await trio.sleep(10)
        for topic in ("t", "gone"):
            for number in range(24):
                assert (await ask(client, send_request(b"x", topic=topic, queue_id=number % 4))).code == 0
        await use(broker)
        ends = {number: broker.store.next_queue_offset("gone", number) for number in range(4)}
        broker.topics.delete_topic_config("gone", ends, before=broker.store.max_offset)
        await trio.sleep(30)
    for name in [name for name in master.disk.files if "config" in name]:
        del master.disk.files[name]
    return master, slave


@pytest.mark.parametrize("is_killed", [False, True])
async def test_tables_that_are_lost_beside_a_log_are_so_at_the_next_start(
    is_killed: bool, virtual_clock: VirtualClock
) -> None:
    """The first one had saved what the log tells; the second took that for the group's, and so did the slave."""
    master, slave = await _used_and_lost()
    async with trio.open_nursery() as nursery:
        first = master.controller(brokerRole="ASYNC_MASTER", **PEERS)
        nursery.start_soon(first.run)
        await trio.sleep(10)
        if is_killed:
            nursery.cancel_scope.cancel()
        first.stop()
    if is_killed:
        master.disk.power_cut()
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(master.broker(brokerRole="ASYNC_MASTER", **PEERS))
        await trio.sleep(5)
        peer = await stack.enter_async_context(slave.broker(**SLAVE))
        await trio.sleep(200)
        for one in (broker, peer):
            assert tables_of(one) == USED
            assert one.topics.select("gone") is None
    assert not [name for name in master.disk.files if name.endswith(("tablesLost", "takesTablesBack"))]


@pytest.mark.parametrize("after_s", [74, 131, 134])
async def test_tables_that_are_lost_are_asked_for_before_a_slave_takes_what_is_left(
    after_s: int, virtual_clock: VirtualClock
) -> None:
    """Within the minute that the slave waits: it was asked once a minute."""
    master, slave = await _used_and_lost()
    async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
        await trio.sleep(after_s)
        async with slave.broker(**SLAVE) as peer:
            await trio.sleep(100)
            assert [tables_of(broker), tables_of(peer)] == [USED, USED]


async def test_a_group_waits_for_its_place_while_tables_that_are_lost_are_awaited(virtual_clock: VirtualClock) -> None:
    """It was told that it has none, began at the end, and committed that: it never had what came before."""
    master, slave = await _used_and_lost()
    query = RemotingCommand(
        RequestCode.QUERY_CONSUMER_OFFSET, ext_fields={"consumerGroup": "g", "topic": "t", "queueId": "0"}
    )
    async with master.broker(brokerRole="ASYNC_MASTER", **PEERS):
        await trio.sleep(30)
        async with master.client() as client:
            with pytest.raises(RemotingError):  # any answer would have it begin somewhere
                await ask(client, query)
        async with slave.broker(**SLAVE), master.client() as client:
            await trio.sleep(20)
            answer = await ask(client, query)
            assert (answer.code, answer.ext_fields["offset"]) == (ResponseCode.SUCCESS, "5")


async def test_offsets_that_a_late_peer_tells_of_a_lost_table_are_cut(virtual_clock: VirtualClock) -> None:
    """Its tables had come farther than its log: the group passed over the next messages."""
    master, slave = await _used_and_lost()
    async with slave.broker(**SLAVE) as peer:
        peer.offsets.commit_offset("g", "t", 0, offset=15)
    async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
        await trio.sleep(60)
        async with slave.broker(**SLAVE):
            await trio.sleep(90)
            assert broker.offsets.query_offset("g", "t", 0) == broker.store.next_queue_offset("t", 0) == 6


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_nothing_is_taken_of_a_peer_with_other_bytes(is_restarted: bool, virtual_clock: VirtualClock) -> None:
    """A master in doubt had taken messages by then: a group's offset passed over them, and a topic of them was gone."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE), master.broker(brokerRole="ASYNC_MASTER") as broker:
        await trio.sleep(10)
        await send_delayed(master, *TEN)
        await use(broker)
    master.disk = SimDisk(now_ms=WallClock())
    async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker, master.client() as client:
        await trio.sleep(60)
        assert (await ask(client, send_request(b"since", topic="t"))).code == 0
        broker.offsets.commit_offset("g", "t", 0, offset=1)
        broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
        await trio.sleep(30)
        if not is_restarted:
            async with slave.broker(**SLAVE):
                await trio.sleep(60)
                assert "holds other bytes" in replication_of(broker).catch_up.refusal
                assert tables_of(broker) == (3, 1, 0)
    if is_restarted:
        async with slave.broker(**SLAVE):
            with pytest.raises(ExceptionGroup):
                await master.controller(brokerRole="ASYNC_MASTER", **PEERS).run()
    async with master.broker(brokerRole="ASYNC_MASTER") as broker:
        assert tables_of(broker) == (3, 1, 0)


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_of_a_new_group_one_peer_may_be_away_for_good(mode: str, virtual_clock: VirtualClock) -> None:
    """The other one follows, and has the tables; this master's own are what counts, also at its next start."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    settings = {"brokerRole": "ASYNC_MASTER", "haPeers": "10.0.0.2:10912,10.0.0.3:10912", "haCatchUpAtStart": mode}
    async with slave.broker(**SLAVE) as peer:
        for number in range(2):
            async with master.broker(**settings) as broker:
                await trio.sleep(30)
                await send_delayed(master, b"%d" % number)
                await use(broker)
                assert replication_of(broker).doubt()
                assert [tables_of(broker), tables_of(peer)] == [USED, USED]
                broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=8 + number))
                await trio.sleep(1)
        async with master.broker(**settings) as broker:
            await trio.sleep(30)
            assert tables_of(broker)[0] == 9


async def test_offsets_beyond_the_end_of_a_slave_give_way_to_its_masters(virtual_clock: VirtualClock) -> None:
    """An old master that lost its end kept what was committed there, and passed over messages as a master once more."""
    net = SimNet()
    old, new = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    never = {"flushIntervalCommitLog": "600000", "flushCommitLogThoroughInterval": "600000"}
    with trio.CancelScope() as life:
        async with old.broker(brokerRole="ASYNC_MASTER", **never) as broker, old.client() as client:
            async with new.broker(**SLAVE):
                await trio.sleep(10)
                for number in range(10):
                    await ask(client, send_request(b"%d" % number, topic="t"))
                await broker.store.flush_now(broker.store.max_offset)
                await trio.sleep(10)
            for _ in range(20):
                await ask(client, send_request(b"lost", topic="t"))
            broker.offsets.commit_offset("g", "t", 0, offset=28)
            await broker.metadata.save()
            life.cancel()
            await trio.sleep_forever()
    old.disk.power_cut()
    follows = SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    async with new.broker(brokerRole="ASYNC_MASTER") as broker, new.client() as client:
        for _ in range(30):
            await ask(client, send_request(b"new", topic="t"))
        broker.offsets.commit_offset("g", "t", 0, offset=11)
        async with old.broker(**follows) as following:
            await trio.sleep(30)
            assert following.store.max_offset == broker.store.max_offset
            assert following.offsets.query_offset("g", "t", 0) == 11
            broker.offsets.commit_offset("g", "t", 0, offset=9)
            await trio.sleep(30)
            assert following.offsets.query_offset("g", "t", 0) == 9, "it was set back"
    async with old.broker(brokerRole="ASYNC_MASTER") as broker:
        assert broker.offsets.query_offset("g", "t", 0) == 9


async def test_tables_that_are_gone_beside_a_log_are_told_of(virtual_clock: VirtualClock) -> None:
    """It was "ok", with all delayed messages delivered again, and its consumers at the beginning."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker:
        await trio.sleep(5)
        assert broker.metadata.files.lost == {}
        await send_delayed(machine, b"x")
    async with machine.broker() as broker:
        assert broker.metadata.files.lost == {}
    for name in [*machine.disk.files]:
        if "config" in name:
            del machine.disk.files[name]
    async with machine.broker() as broker, machine.client() as client:
        verdict = judge(await status(client))
        assert verdict.level == "degraded"
        assert any("topics.json was missing when this broker started" in reason for reason in verdict.reasons)
    async with machine.broker() as broker:
        assert broker.metadata.files.lost == {}, "until the next start"


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_pair_that_lost_its_tables_beside_equal_logs_goes_on(mode: str, virtual_clock: VirtualClock) -> None:
    """Each waited for the other's, for ever."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE), master.broker(**ROLES[1]):
        await trio.sleep(10)
        await send_delayed(master, *TEN)
    for machine in (master, slave):
        for name in [name for name in machine.disk.files if "config" in name]:
            del machine.disk.files[name]
    settings = ROLES[1] | PEERS | {"haCatchUpAtStart": mode}
    async with slave.broker(**SLAVE) as peer, master.broker(**settings), master.client() as client:
        await trio.sleep(100)
        assert (await ask(client, send_request(b"x"))).code == 0
        assert not peer.replication.facts()["not_learned"]


async def test_groups_that_are_new_since_an_older_copy_keep_their_places(virtual_clock: VirtualClock) -> None:
    """Of a quiet queue they lie before the copy's end: without an offset such a group began at the end."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE):
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, *TEN)
        copy = deepcopy(master.disk.files)
        async with master.broker(brokerRole="ASYNC_MASTER") as broker, master.client() as client:
            await trio.sleep(10)
            broker.groups.update(SubscriptionGroupConfig("since", retry_max_times=7))
            broker.offsets.commit_offset("since", "t", 0, offset=6)
            for _ in range(3):
                await ask(client, send_request(b"x", topic="other"))
            await trio.sleep(30)
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)
        async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
            await trio.sleep(90)
            assert broker.offsets.query_offset("since", "t", 0) == 6


async def test_an_older_copy_that_is_stopped_before_its_peer_has_told_is_told_at_its_next_start(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log was whole: nobody asked again, and what was delayed in the tail was delivered twice."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE) as peer:
        async with master.broker(brokerRole="ASYNC_MASTER"):
            await trio.sleep(10)
            await send_delayed(master, b"first")
        copy = deepcopy(master.disk.files)
        async with master.broker(brokerRole="ASYNC_MASTER") as broker:
            await trio.sleep(10)
            await send_delayed(master, *TEN)
            await use(broker)
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)

        async def never(*_: object, **_also: object) -> Merged:
            await trio.sleep_forever()
            return Merged()

        with monkeypatch.context() as patch:
            patch.setattr(SlaveSynchronize, "merge", never)
            async with trio.open_nursery() as nursery:
                broker = master.controller(brokerRole="ASYNC_MASTER", **PEERS)
                nursery.start_soon(broker.run)
                while broker.store.max_offset < peer.store.max_offset:  # noqa: ASYNC110 - a look from outside
                    await trio.sleep(0.01)
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
        master.disk.power_cut()
        async with master.broker(brokerRole="ASYNC_MASTER", **PEERS) as broker:
            await trio.sleep(90)
            assert sorted(message.body for message in await seen(broker)) == [*TEN, b"first"]
            assert tables_of(broker)[::2] == (7, 3)
