"""The failover of docs/operations.md, of a slave that was rebuilt empty after a topic had long fallen silent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.processors.metadata_processor import MetadataProcessor
from rmqha.broker.slave_synchronize import Merged, SlaveSynchronize
from rmqha.broker.tables.queue_ends_client import QueueEndsClient
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.cli.verdict import judge
from rmqha.codec import java_json
from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_READ
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.connection import Connection
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.producers import seen
from tests.broker.test_deleted_topics import delete_request
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_clock import VirtualClock, WallClock
from tests.sim.sim_net import SimNet

IDLE_S = 2 * 3600.0
MASTER = {"brokerRole": "ASYNC_MASTER", "fileReservedTime": "1"}
FOLLOWER = SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}


async def send(client: RemotingClient, topic: str, body: bytes = b"idle message") -> int:
    """The queue offset that a message got."""
    answer = await ask(client, send_request(body, topic=topic))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_send_response(answer).queue_offset


async def body_at(machine: Machine, offset: int) -> bytes:
    """What consumers get there of the silent topic, in its first queue."""
    async with machine.client() as client:
        answer = await ask(client, pull_request(offset, topic="idle"))
    message = decode_message(answer.body)
    assert message.queue_offset == offset
    return message.body


def unknown(_self: MetadataProcessor, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


async def never_learn(self: QueueEndsClient) -> None:
    """A slave that does not ask, as RocketMQ's."""


class Cluster:
    """Two machines, and a master whose log holds no message of the topic "idle" any more, though it had three."""

    def __init__(self) -> None:
        self.net = net = SimNet()
        self.first = Machine(net, "10.0.0.1")
        self.second = Machine(net, "10.0.0.2")

    async def let_a_topic_fall_silent(self) -> None:
        async with self.first.broker(**MASTER) as broker, self.first.client() as client:
            for _ in range(3):
                await send(client, "idle")
            for _ in range(3):
                await send(client, "busy", bytes(40_000))
            await trio.sleep(IDLE_S)
            broker.store.cleaner.execute_delete_files_manually()
            await trio.sleep(60)
            assert broker.store.min_offset > 0

    @asynccontextmanager
    async def rebuilt_slave(self) -> AsyncIterator[BrokerController]:
        """The first machine as master and the second as its slave, which has all of the log and some seconds more."""
        async with self.first.broker(**MASTER) as master, self.second.broker(**SLAVE) as slave:
            with trio.fail_after(60):
                while slave.store.max_offset < master.store.max_offset:  # noqa: ASYNC110 - virtual time
                    await trio.sleep(0.1)
            await trio.sleep(5)
            yield slave


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize("peer", ["rmqha", "rocketmq"])
async def test_no_position_is_given_twice_by_a_slave_that_never_saw_the_message(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    await cluster.let_a_topic_fall_silent()
    with monkeypatch.context() as patch:
        if peer == "rocketmq":  # it knows nothing of our request
            patch.setattr(MetadataProcessor, "get_queue_ends", unknown)
        async with cluster.rebuilt_slave():
            pass
    async with cluster.second.broker(**MASTER), cluster.second.client() as client:
        assert [await send(client, "idle") for _ in range(2)] == [3, 4]
    async with cluster.second.broker(**MASTER), cluster.first.broker(**FOLLOWER) as former:
        await trio.sleep(20)
        assert former.store.running_flags.dispatch_error is None
        assert await body_at(cluster.first, 3) == b"idle message"


async def test_what_a_slave_has_learned_survives_a_power_cut(cluster: Cluster, virtual_clock: VirtualClock) -> None:
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave():
        saved = java_json.loads(cluster.second.disk.files["/store/config/queueEnds.json"].durable)
    assert saved["queueEnds"]["idle"] == {0: 3}


async def test_consumers_of_a_silent_topic_stay_where_they_were(cluster: Cluster, virtual_clock: VirtualClock) -> None:
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave() as slave:
        slave.offsets.commit_offset("g", "idle", 0, offset=3)
    async with cluster.second.broker(**MASTER) as broker, cluster.second.client() as client:
        assert broker.offsets.query_offset("g", "idle", 0) == 3, "it is not beyond the end"
        assert broker.store.get_max_offset_in_queue("idle", 0) == 3
        assert broker.store.get_min_offset_in_queue("idle", 0) == 3
        answer = await ask(client, pull_request(3, topic="idle"))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "3")
        answer = await ask(client, pull_request(0, topic="idle"))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")


async def test_a_slave_of_the_new_master_learns_what_that_one_learned(
    cluster: Cluster, virtual_clock: VirtualClock
) -> None:
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave():
        pass
    cluster.first.disk = type(cluster.first.disk)(now_ms=WallClock())
    async with cluster.second.broker(**MASTER), cluster.first.broker(**FOLLOWER) as slave:
        await trio.sleep(20)
        assert slave.store.queues.known_ends["idle", 0] == 3


async def forget_the_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second broker has the log, and was never told where the silent topic's queue ends."""
    await cluster.let_a_topic_fall_silent()
    with monkeypatch.context() as patch:
        patch.setattr(QueueEndsClient, "run", never_learn)
        async with cluster.rebuilt_slave():
            pass


async def test_a_former_master_follows_one_that_did_not_know_the_end(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RocketMQ does not: its queue begins at 0 again, and so has ours, as none of the old messages is there."""
    await forget_the_end(cluster, monkeypatch)
    async with cluster.second.broker(**MASTER), cluster.second.client() as client:
        assert await send(client, "idle") == 0
        with capture_logs() as logs:
            async with cluster.first.broker(**FOLLOWER) as former:
                await trio.sleep(20)
                assert former.store.running_flags.dispatch_error is None
                assert await body_at(cluster.first, 0) == b"idle message"
    (begun_again,) = [entry for entry in logs if entry["event"] == "consume_queue.begun_again"]
    assert (begun_again["topic"], begun_again["ended_at"], begun_again["begins_at"]) == ("idle", 3, 0)


async def test_a_former_master_goes_on_behind_the_messages_that_it_had_from_one_that_did_not_know_the_end(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When these had expired it remembered the old end, left out two numbers, and stopped the queues of all others."""
    await forget_the_end(cluster, monkeypatch)
    async with cluster.second.broker(**MASTER), cluster.second.client() as client:
        assert await send(client, "idle") == 0
        for _ in range(3):
            await send(client, "busy", bytes(40_000))
        async with cluster.first.broker(**FOLLOWER):
            await trio.sleep(20)
    async with cluster.first.broker(**MASTER) as broker:
        await trio.sleep(IDLE_S)
        broker.store.cleaner.execute_delete_files_manually()
        await trio.sleep(60)
        assert broker.store.queues.range_of("idle", 0) == (1, 1)
        async with cluster.first.client() as client:
            assert await send(client, "idle") == 1
        async with cluster.second.broker(**SLAVE) as slave:
            await trio.sleep(20)
            assert not slave.store.queues.stopped
            assert await body_at(cluster.second, 1) == b"idle message"


async def test_queues_moved_away_are_no_reason_to_give_a_position_twice(
    cluster: Cluster, virtual_clock: VirtualClock
) -> None:
    """Moving them away is what our own errors advise when they are damaged."""
    await cluster.let_a_topic_fall_silent()
    for path in [path for path in cluster.first.disk.files if "/consumequeue/" in path]:
        cluster.first.disk.mount().unlink(path)
    async with cluster.first.broker(**MASTER), cluster.first.client() as client:
        assert await send(client, "idle") == 3


async def test_a_slave_says_so_while_it_does_not_know_the_ends(cluster: Cluster, virtual_clock: VirtualClock) -> None:
    await cluster.let_a_topic_fall_silent()
    with capture_logs() as logs:
        async with cluster.first.broker(**MASTER), cluster.second.broker(**SLAVE | {"masterAddress": "10.0.0.1:1"}):
            await trio.sleep(60)
    (unknown,) = [entry for entry in logs if entry["event"] == "queue_ends.unknown"]
    assert unknown["address"] == "10.0.0.1:1"


async def test_a_slave_s_slave_does_not_know_more_than_that_one(cluster: Cluster, virtual_clock: VirtualClock) -> None:
    """It was promoted as one that knows, and began at 0 again."""
    await cluster.let_a_topic_fall_silent()
    third = Machine(cluster.net, "10.0.0.3")
    follows = SLAVE | {"brokerId": "2", "haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    for address, is_told in (("10.0.0.1:1", False), ("10.0.0.1:10911", True)):
        async with (
            cluster.first.broker(**MASTER),
            cluster.second.broker(**SLAVE | {"masterAddress": address}),
            third.broker(**follows),
            third.client() as client,
        ):
            await trio.sleep(60)
            told = str((await status(client))["not_learned"])
            assert ("10.0.0.2:10911 does not know all of them itself" not in told) == is_told
            assert ("it should not be made master" not in told) == is_told


async def test_without_master_address_the_broker_behind_the_ha_port_is_asked(
    cluster: Cluster, virtual_clock: VirtualClock
) -> None:
    await cluster.let_a_topic_fall_silent()
    cluster.second.settings = {key: value for key, value in SLAVE.items() if key != "masterAddress"}
    async with cluster.first.broker(**MASTER), cluster.second.broker() as slave:
        await trio.sleep(20)
        assert slave.store.queues.known_ends["idle", 0] == 3


async def test_a_master_that_begins_empty_learns_from_the_peer_that_gives_it_the_log(
    cluster: Cluster, virtual_clock: VirtualClock
) -> None:
    """Its disk was lost; the slave, named in haPeers, has everything."""
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave():
        pass
    cluster.first.disk = type(cluster.first.disk)(now_ms=WallClock())
    async with cluster.second.broker(**SLAVE), cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master:
        assert master.store.max_offset > 0
        async with cluster.first.client() as client:
            assert await send(client, "idle") == 3


async def lose_the_masters_store(cluster: Cluster, *, more: int = 0) -> None:
    """Its slave has all of it: a topic that nobody may send to, one that was deleted, and where a group is."""
    async with cluster.first.broker(**MASTER) as master, cluster.second.broker(**SLAVE):
        async with cluster.first.client() as client:
            for topic in ("read", "gone"):
                for _ in range(3):
                    await send(client, topic)
            master.topics.update_topic_config(TopicConfig("read", 3, 3, PERM_READ))
            answer = await ask(client, delete_request("gone"))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            for _ in range(more):
                await send(client, "more", bytes(4000))
        master.offsets.commit_offset("g", "read", 0, offset=2)
        master.groups.update(SubscriptionGroupConfig("g", retry_max_times=7))
        await trio.sleep(30)
    cluster.first.disk = type(cluster.first.disk)(now_ms=WallClock())


async def test_a_master_that_begins_empty_has_its_tables_from_the_peer_as_well(
    cluster: Cluster, virtual_clock: VirtualClock
) -> None:
    """What was deleted is not there again, nor may be sent what was forbidden, nor is anything consumed twice."""
    await lose_the_masters_store(cluster)
    async with cluster.second.broker(**SLAVE) as slave:
        async with cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master, cluster.first.client() as client:
            assert (await ask(client, pull_request(0, topic="gone"))).code == ResponseCode.TOPIC_NOT_EXIST
            assert await send(client, "gone") == 3
            await trio.sleep(30)
            for broker in (master, slave):
                assert broker.topics.select("read") == TopicConfig("read", 3, 3, PERM_READ)
                assert broker.offsets.query_offset("g", "read", 0) == 2
                group = broker.groups.select("g")
                assert group is not None
                assert group.retry_max_times == 7
        async with cluster.first.broker(**MASTER) as master:
            assert master.topics.select("read") == TopicConfig("read", 3, 3, PERM_READ), "it has saved them"


async def test_a_slave_in_sync_can_give_them_back_though_it_was_just_made(
    cluster: Cluster, virtual_clock: VirtualClock
) -> None:
    """It said so up to three seconds before, and the master waited for ever for what nobody had told its peer."""
    async with cluster.first.broker(**MASTER) as master, cluster.first.client() as client:
        await send(client, "read")
        master.offsets.commit_offset("g", "read", 0, offset=1)
        async with cluster.second.broker(**SLAVE), cluster.second.client() as asked:
            with trio.fail_after(60):
                while not judge(await status(asked)).in_sync:  # noqa: ASYNC110 - as an operator asks
                    await trio.sleep(0.001)
    cluster.first.disk = type(cluster.first.disk)(now_ms=WallClock())
    async with cluster.second.broker(**SLAVE), cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master:
        assert master.offsets.query_offset("g", "read", 0) == 1


async def wait_forever(_tables: SlaveSynchronize, _client: RemotingClient, **_: object) -> None:
    await trio.sleep_forever()


async def test_one_that_ends_while_it_asks_for_tables_asks_for_all_of_them_again(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saved the topics it had by then, and took its tables for its own at the next start: offsets were gone."""
    await lose_the_masters_store(cluster)
    disk, take_over_offsets = cluster.first.disk, SlaveSynchronize._take_over_offsets
    async with cluster.second.broker(**SLAVE):
        monkeypatch.setattr(SlaveSynchronize, "_take_over_offsets", wait_forever)
        async with trio.open_nursery() as nursery:
            first = cluster.first.controller(**MASTER, haPeers="10.0.0.2:10912")
            nursery.start_soon(first.run)
            with trio.fail_after(60):
                while first.topics.select("read") is None:  # noqa: ASYNC110 - virtual time
                    await trio.sleep(0.001)
            await first.metadata.save()
            nursery.cancel_scope.cancel()
        assert "/store/config/topics.json" in disk.files
        monkeypatch.setattr(SlaveSynchronize, "_take_over_offsets", take_over_offsets)
        async with cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master, cluster.first.client() as client:
            assert await send(client, "gone") == 3
            assert master.offsets.query_offset("g", "read", 0) == 2


@pytest.mark.parametrize("is_whole", [False, True])
async def test_one_that_ends_before_its_tables_count_asks_again(
    cluster: Cluster, virtual_clock: VirtualClock, *, is_whole: bool
) -> None:
    """Its log was not empty any more, and had topics: all delayed messages came again, after a SIGTERM, too."""
    await lose_the_masters_store(cluster, more=100)
    disk, end = cluster.first.disk, 0
    async with cluster.second.broker(**SLAVE) as slave:
        slave.metadata.delay_offsets.take_over({1: 5}, log_end=0)
        end = slave.store.max_offset if is_whole else 1
        async with trio.open_nursery() as nursery:
            first = cluster.first.controller(**MASTER, haPeers="10.0.0.2:10912")
            nursery.start_soon(first.run)
            with trio.fail_after(60):
                while first.store.max_offset < end:  # noqa: ASYNC110 - virtual time
                    await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        assert "/store/takesTablesBack" in disk.files
        disk.power_cut()
        if not is_whole:  # the last of them was not saved yet
            assert first.store.max_offset < slave.store.max_offset
            disk.files.pop("/store/config/consumerOffset.json", None)
            disk.files.pop("/store/config/delayOffset.json", None)
        async with cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master, cluster.first.client() as client:
            assert await send(client, "gone") == 3
            assert master.metadata.delay_offsets.offset_of(1) == 5
            assert master.offsets.query_offset("g", "read", 0) == 2
            await trio.sleep(10)
            assert "/store/takesTablesBack" not in disk.files


async def code_of_send(client: RemotingClient, topic: str) -> int:
    return (await ask(client, send_request(b"x", topic=topic))).code


async def test_it_begins_with_no_tables_that_are_made_of_the_log(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is asked again, and no send is taken meanwhile."""
    await lose_the_masters_store(cluster)
    learns_from_s, merge = trio.current_time() + 15.0, SlaveSynchronize.merge

    async def merge_later(tables: SlaveSynchronize, address: str, **how: Any) -> Merged:
        return await merge(tables, address, **how) if trio.current_time() > learns_from_s else Merged("not yet")

    monkeypatch.setattr(SlaveSynchronize, "merge", merge_later)
    async with (
        cluster.second.broker(**SLAVE),
        cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master,
        cluster.first.client() as client,
    ):
        assert await code_of_send(client, "new") == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(20)
        assert master.topics.select("read") == TopicConfig("read", 3, 3, PERM_READ)
        assert await code_of_send(client, "new") == ResponseCode.SUCCESS


async def test_tables_that_were_not_lost_stay(cluster: Cluster, virtual_clock: VirtualClock) -> None:
    """The slave's are some seconds older."""
    await lose_the_masters_store(cluster)
    async with cluster.first.broker(**MASTER) as master:
        master.topics.create_topic_in_send_message_back_method("newer", queue_nums=3)
        await trio.sleep(10)
    async with cluster.second.broker(**SLAVE), cluster.first.broker(**MASTER, haPeers="10.0.0.2:10912") as master:
        assert master.store.max_offset > 0
        assert master.topics.select("newer") is not None


async def test_a_log_does_not_begin_before_it_is_known_where_queues_end(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is asked again, and no send is taken meanwhile."""
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave():
        pass
    cluster.first.disk = type(cluster.first.disk)(now_ms=WallClock())
    learns_from_s, learn = trio.current_time() + 15.0, QueueEndsClient.learn

    async def learn_later(self: QueueEndsClient, *, before: int) -> bool:
        return trio.current_time() > learns_from_s and await learn(self, before=before)

    monkeypatch.setattr(QueueEndsClient, "learn", learn_later)
    first = cluster.first
    async with (
        cluster.second.broker(**SLAVE),
        first.broker(**MASTER, haPeers="10.0.0.2:10912"),
        first.client() as client,
    ):
        refused = await ask(client, send_request(b"too early", topic="idle"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "where its queues end" in (refused.remark or "")
        await trio.sleep(20)
        assert await send(client, "idle") == 3


async def test_where_queues_end_is_durable_before_the_log_begins(
    cluster: Cluster, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that loses its power while it takes the log asks no more when it is back: its log is not empty."""
    await cluster.let_a_topic_fall_silent()
    async with cluster.rebuilt_slave():
        pass
    disk = cluster.first.disk = type(cluster.first.disk)(now_ms=WallClock())
    async with cluster.second.broker(**SLAVE), trio.open_nursery() as nursery:
        master = cluster.first.controller(**MASTER, haPeers="10.0.0.2:10912")
        nursery.start_soon(master.run)
        with trio.fail_after(60):
            while not master.store.max_offset:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.001)
        assert "/store/config/queueEnds.json" in disk.files
        saved = java_json.loads(disk.files["/store/config/queueEnds.json"].durable)
        assert saved["queueEnds"]["idle"] == {0: 3}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_of_two_peers_the_longest_tells_what_was_delivered(mode: str, virtual_clock: VirtualClock) -> None:
    """The other one's table is older: with it all delayed messages of the time between came again."""
    net = SimNet()
    first, second, third = (Machine(net, f"10.0.0.{number}") for number in (1, 2, 3))
    one, other = SLAVE, SLAVE | {"brokerId": "2"}
    async with second.broker(**one), first.broker(brokerRole="ASYNC_MASTER") as broker, first.client() as client:
        async with third.broker(**other):
            await ask(client, send_request(b"first", topic="t", properties="DELAY\x011"))
            await trio.sleep(20)
        for number in range(10):
            await ask(client, send_request(b"%d" % number, topic="t", properties="DELAY\x011"))
        await trio.sleep(60)
    first.disk = type(first.disk)(now_ms=WallClock())
    peers = {"haPeers": "10.0.0.2:10912,10.0.0.3:10912", "haCatchUpAtStart": mode}
    async with (
        second.broker(**one),
        third.broker(**other),
        first.broker(brokerRole="ASYNC_MASTER", **peers) as broker,
    ):
        await broker.replication.opened.wait()
        await trio.sleep(30)
        assert len(await seen(broker)) == 11
