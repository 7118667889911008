"""Brokers that do not belong together find out when they meet, and say so on both sides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.group import ReplicationGroup
from rmqha.cli.pages import Page
from rmqha.cli.status_text import render_status
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreError, errors_in
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Fence
from rmqha.remoting.server import RemotingServer
from rmqha.replication.group import GroupMember
from tests.broker.machines import UNSET, Machine, ask, ha_client_of, replication_of, send_request
from tests.broker.test_pair import SLAVE, Pair, status
from tests.settings import remoting_limits
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet
from tests.store.helpers import message, put


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"brokerName": "other"}, "brokerName=broker-a, this broker has brokerName=other"),
        ({"mappedFileSizeCommitLog": "131072"}, "mappedFileSizeCommitLog=65536, this broker has 131072"),
    ],
)
async def test_a_slave_of_another_group_does_not_follow(
    setting: dict[str, str], reason: str, virtual_clock: VirtualClock
) -> None:
    """It was "ok, in sync": until the first roll, or with everything twice for a consumer that names both."""
    pair = Pair()
    pair.slave.settings = SLAVE | setting
    with capture_logs() as logs:
        async with pair.master.broker() as master, pair.master.client() as client:
            async with pair.slave.broker() as slave, pair.slave.client() as slave_client:
                await ask(client, send_request(b"x"))
                await trio.sleep(20)
                verdict, at_master = judge(await status(slave_client)), judge(await status(client))
                assert (slave.store.max_offset, replication_of(master).ha_service.live_slaves) == (0, 0)
            await trio.sleep(13)
            assert (await status(client))["group_clashes"] == [], "it has been stopped"
    assert (verdict.level, reason in verdict.reasons[0]) == ("failed", True), verdict
    assert any("10.0.0.2:10911" in one for one in at_master.reasons), at_master
    assert len([line for line in logs if line["event"] == "ha_client.disconnected"]) == 1
    assert len([line for line in logs if line["event"] == "group.mixed_up"]) == 1


async def test_a_slave_of_another_cluster_follows_and_says_so(virtual_clock: VirtualClock) -> None:
    """It was "ok, in sync" on both, and as master had another cluster's name."""
    pair = Pair()
    pair.slave.settings = SLAVE | {"brokerClusterName": "other"}
    async with pair.master.broker(), pair.slave.broker(), pair.slave.client() as client:
        await trio.sleep(5)
        verdict = judge(await status(client))
    assert verdict.level == "degraded"
    (reason,) = verdict.reasons
    assert "its master has brokerClusterName=DefaultCluster, this broker has other" in reason
    assert Page.MIXED_UP in reason


async def test_a_slave_without_a_name_takes_its_masters(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    unnamed = Machine(pair.net, "10.0.0.2", SLAVE)
    async with pair.master.broker(), pair.master.client() as client, unnamed.broker(brokerName=UNSET) as slave:
        await ask(client, send_request(b"x"))
        await trio.sleep(15)
        assert slave.config.broker_name != "broker-a"
        async with unnamed.client() as slave_client:
            assert (await status(slave_client))["broker_name"] == "broker-a"
            assert judge(await status(client)).level == "ok"
            route = await ask(
                slave_client, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "t"})
            )
            assert b'"brokerName":"broker-a"' in route.body


async def test_a_slave_of_a_slave_has_an_id_of_its_own(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    end = Machine(pair.net, "10.0.0.3", SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": ""})
    async with pair.running(), end.broker(), end.client() as client:
        await trio.sleep(10)
        assert "both have brokerId=1" in judge(await status(client)).reasons[0]


async def test_two_slaves_with_one_id_are_told_of(virtual_clock: VirtualClock) -> None:
    """Clients would reach only one of them. When one leaves, or gets another id, all is well."""
    pair = Pair()
    twin = Machine(pair.net, "10.0.0.3", SLAVE)
    with capture_logs() as logs:
        async with pair.running(), pair.master.client() as client:
            async with twin.broker():
                await trio.sleep(5)
                (reason,) = judge(await status(client)).reasons
                assert reason.startswith("10.0.0.2:10911 and 10.0.0.3:10911: all have brokerId=1")
            await trio.sleep(60)
            assert (await status(client))["group_clashes"] == []
            async with twin.broker(brokerId="2"):
                await trio.sleep(5)
                assert (await status(client))["group_clashes"] == []
    assert len([line for line in logs if line["event"] == "group.mixed_up"]) == 1


async def test_a_slave_whose_id_another_slave_has_says_so_itself(virtual_clock: VirtualClock) -> None:
    """Its own status was ok, and only the master's told. A slave of the first that is fine is not concerned."""
    pair = Pair()
    twin, other = (
        Machine(pair.net, host, SLAVE | {"brokerId": number}) for host, number in (("10.0.0.3", "1"), ("10.0.0.4", "2"))
    )
    with capture_logs() as logs:
        async with pair.running(), pair.slave.client() as client, other.broker(), other.client() as other_client:
            async with twin.broker(), twin.client() as twin_client:
                await trio.sleep(15)
                for one in (client, twin_client):
                    verdict = judge(await status(one))
                    (reason,) = verdict.reasons
                    assert (verdict.level, verdict.in_sync) == ("degraded", True)
                    assert "10.0.0.2:10911 and 10.0.0.3:10911 say brokerId=1" in reason
                    assert reason.endswith(Page.MIXED_UP)
                assert judge(await status(other_client)).level == "ok"
            await trio.sleep(30)
            assert judge(await status(client)).level == "ok"
    assert len([line for line in logs if line["event"] == "group.broker_id_shared"]) == 2


async def test_a_slave_that_ha_peers_leaves_out_is_named_and_makes_nothing_degraded(
    virtual_clock: VirtualClock,
) -> None:
    """Only doctor told of it, and named nobody: what it alone acknowledged, a master that crashed never had back."""
    pair = Pair()
    other = Machine(pair.net, "10.0.0.3", SLAVE | {"brokerId": "2"})

    async def unnamed(client: RemotingClient) -> list[str]:
        facts: dict[str, Any] = await status(client)
        verdict, told = judge(facts), [str(one) for one in facts["unnamed_slaves"]]
        assert (verdict.level, verdict.reasons) == ("ok", ())
        hints = [line for line in render_status(facts, verdict).splitlines() if line.startswith("  hint ")]
        assert hints == [f"  hint     {one}; see {Page.HA_PEERS}" for one in told]
        return told

    async with other.broker(), pair.slave.broker():
        for peers, found in {
            "10.0.0.2:10912": ["haPeers leaves out 10.0.0.3:10911 (broker-a/2)"],
            "10.0.0.3:10912;10.0.0.2:10912": [],
            UNSET: [f"haPeers leaves out 10.0.0.{host}:10911 (broker-a/{host - 1})" for host in (2, 3)],
        }.items():
            async with pair.master.broker(haPeers=peers), pair.master.client() as client:
                await trio.sleep(30)
                told = await unnamed(client)
                assert [one.partition(", which follows:")[0] for one in told] == found
    async with pair.slave.broker(), pair.master.broker(haCatchUpAtStart="off"), pair.master.client() as client:
        await trio.sleep(30)
        assert await unnamed(client) == [], "nobody is ever asked"


async def test_a_peer_that_has_yet_to_say_who_it_is_may_be_any_of_the_slaves() -> None:
    group = group_of([("10.0.0.2", "50000"), ("10.0.0.2", "50001")])
    for number in ("1", "2"):
        member = {"brokerId": number, "listenPort": number, "haClientPort": f"5000{int(number) - 1}"}
        group.on_introduced("10.0.0.2", member, now=0)
    assert group.unnamed([None, None]) == group.unnamed([1, None]) == group.unnamed([2, 1, 7]) == []
    (told,) = group.unnamed([None])
    assert told.startswith("haPeers leaves out at least 1 of 10.0.0.2:1 (broker-a/1), 10.0.0.2:2 (broker-a/2)")


async def test_what_a_master_told_of_a_shared_id_is_forgotten_once_it_is_away(virtual_clock: VirtualClock) -> None:
    group = group_of([], **SLAVE)
    told = {
        "broker_name": "broker-a",
        "broker_id": 0,
        "shared_ids": {"1": ["10.0.0.2:1", "10.0.0.3:1"], "2": ["x", "y"]},
    }
    assert group.on_told(told, now=5) == GroupMember("broker-a", 0, None)
    assert ["say brokerId=1" in one for one in group.clashes(now=34)] == [True]
    assert group.clashes(now=36) == []
    group.on_told(told, now=40)
    group.on_told(told | {"shared_ids": {}}, now=41)
    assert group.clashes(now=41) == []


async def test_strangers_who_say_anything_are_forgotten(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    with capture_logs() as logs:
        async with pair.running(), pair.master.client() as client:
            for number in range(2000):
                fields = {"brokerName": "x" * number, "brokerId": "9" * number, "listenPort": str(number)}
                await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, ext_fields=fields))
            clashes = (await status(client))["group_clashes"]
            assert isinstance(clashes, list)
            assert len(clashes) < 130
            await trio.sleep(60)
            assert (await status(client))["group_clashes"] == []
    assert len([line for line in logs if line["event"] == "group.mixed_up"]) < 50


async def test_troubles_that_change_each_time_fill_no_log() -> None:
    group = group_of([])
    with capture_logs() as logs:
        for number in range(10_000):
            member = {"brokerId": "1", "listenPort": "10911", "haTrouble": f"trouble {number}" * 100}
            group.on_introduced("10.0.0.2", member, now=number / 1000)
    lines = [line for line in logs if line["event"].startswith("group.slave_takes")]
    assert 0 < len(lines) < 50
    assert max(len(line["reason"]) for line in lines) <= 300
    (told,) = group.troubles(now=10)
    assert "trouble 9999" in told, "the last one is told, whether it was logged or not"


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_master_takes_nothing_from_a_peer_of_another_group(mode: str, virtual_clock: VirtualClock) -> None:
    """An empty master with a wrong address in haPeers would become a copy of another group."""
    net = SimNet()
    other = Machine(net, "10.0.0.2", {"brokerName": "other"})
    master = Machine(net, "10.0.0.1", {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": mode})
    async with other.broker(), other.client() as client:
        await ask(client, send_request(b"x"))
        with pytest.RaisesGroup(StoreError, allow_unwrapped=True, flatten_subgroups=True) as raised:
            async with master.broker():
                pass
    assert "10.0.0.2:10912 of haPeers: it has brokerName=other" in str(errors_in(raised.value, StoreError)[0])


@pytest.mark.parametrize("ha_master", ["10.0.0.1:10912", "10.0.0.3:10912"])
async def test_a_broker_of_another_group_is_not_asked_for_its_tables(
    ha_master: str, virtual_clock: VirtualClock
) -> None:
    """Its consumers' offsets would let ours leave messages out."""
    net = SimNet()
    other, own = Machine(net, "10.0.0.1", {"brokerName": "other"}), Machine(net, "10.0.0.3")
    slave = Machine(net, "10.0.0.2", SLAVE | {"haMasterAddress": ha_master, "masterAddress": "10.0.0.1:10911"})
    async with other.broker() as theirs, own.broker(), slave.broker() as broker:
        theirs.offsets.commit_offset("billing", "orders", 0, offset=1_000_000)
        with capture_logs() as logs:
            await trio.sleep(30)
        assert broker.offsets.query_offset("billing", "orders", 0) is None
        told = [line["reason"] for line in logs if line["event"] == "master_link.not_synchronized"]
        if ha_master == "10.0.0.1:10912":  # whose log is refused as well: that tells enough
            assert (told, ha_client_of(broker).info().state.value) == ([], "misconfigured")
        else:
            assert "brokerName=other" in told[0]


async def test_a_broker_of_another_group_is_not_asked_where_queues_end(virtual_clock: VirtualClock) -> None:
    """A queue that begins there after a failover would leave out what it never had."""
    net = SimNet()
    other, own = Machine(net, "10.0.0.1", {"brokerName": "other"}), Machine(net, "10.0.0.3")
    conf = {"haMasterAddress": "10.0.0.3:10912", "masterAddress": "10.0.0.1:10911"}
    slave = Machine(net, "10.0.0.2", SLAVE | conf)
    async with other.broker() as theirs, own.broker() as master, slave.broker() as broker:
        theirs.queue_ends.learn({("orders", 0): 1_000_000})
        await put(master.store, message())
        with capture_logs() as logs:
            await trio.sleep(30)
        assert broker.store.max_offset == master.store.max_offset
        assert list(broker.queue_ends) == []
        (told,) = [line for line in logs if line["event"] == "queue_ends.unknown"]
        assert "brokerName=other" in told["reason"]


# ---- RocketMQ's masters


@asynccontextmanager
async def rocketmq(
    net: SimNet, config: bytes, *, host: str = "10.0.0.1", silent_s: float = 0.0, ends: tuple[int, int] = (0, 0)
) -> AsyncIterator[None]:
    """A RocketMQ master, as far as it is asked by remoting."""

    def runtime_info(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, body=b'{"table":{"commitLogMinOffset":"%d","commitLogMaxOffset":"%d"}}' % ends)

    def broker_config(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        if trio.current_time() < silent_s:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR)
        return RemotingCommand(ResponseCode.SUCCESS, body=config)

    dispatcher = RequestDispatcher()
    dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, runtime_info)
    dispatcher.register(RequestCode.GET_BROKER_CONFIG, broker_config)
    server = RemotingServer(dispatcher, limits=remoting_limits(), fence=Fence())
    listener = await net.host(host).mount().listen(host, 10911)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (b"brokerName=RaftNode\\=00\nbrokerId=0\nmappedFileSizeCommitLog=65536\n", "brokerName=RaftNode=00"),
        (
            b"brokerName=broker-a\nbrokerId=0\nmappedFileSizeCommitLog=1073741824\n",
            "mappedFileSizeCommitLog=1073741824",
        ),
        (b"brokerName=broker-a\nbrokerId=0\nmappedFileSizeCommitLog=65536\n", ""),
        (b"\xff\x00nothing=\\u12", ""),
        (b"", ""),
    ],
)
async def test_a_rocketmq_master_is_asked_who_it_is(config: bytes, reason: str, virtual_clock: VirtualClock) -> None:
    net = SimNet()
    slave = Machine(net, "10.0.0.2", SLAVE)
    async with rocketmq(net, config), slave.broker() as broker:
        await trio.sleep(10)
        info = ha_client_of(broker).info()
        assert (info.state.value == "misconfigured") == bool(reason), info
        assert reason in info.last_error


@pytest.mark.parametrize("silent_s", [1.0, 20.0])
async def test_a_master_that_says_only_later_who_it_is_is_left_then(
    silent_s: float, virtual_clock: VirtualClock
) -> None:
    """RocketMQ may not know it yet when it has just started; a slave that follows it would never have asked again."""
    net = SimNet()
    slave = Machine(net, "10.0.0.2", SLAVE | {"masterAddress": "10.0.0.9:10911"})
    master = Machine(net, "10.0.0.1", {"listenPort": "20911", "haListenPort": "10912"})
    answers = rocketmq(net, b"brokerName=other\n", host="10.0.0.9", silent_s=silent_s)
    with capture_logs() as logs:
        async with answers, master.broker(), slave.broker() as broker:
            await trio.sleep(0.5)
            assert ha_client_of(broker).info().state.value in {"transfer", "comparing"}
            await trio.sleep(45)
            assert ha_client_of(broker).info().state.value == "misconfigured"
    warned = [line for line in logs if line["event"] == "ha_client.group_unknown"]
    assert len(warned) == (silent_s > 2.0)


@pytest.mark.parametrize("ends", [(10**30, 10**31), (2**63 - 1, 2**63), (-(10**30), 5), (0, -(10**30))])
async def test_a_log_that_cannot_be_is_as_good_as_none_told(ends: tuple[int, int], virtual_clock: VirtualClock) -> None:
    """An empty slave asks for the log's begin, which has to fit a report."""
    net = SimNet()
    slave = Machine(net, "10.0.0.2", SLAVE | {"haMasterAddress": "10.0.0.3:10912"})
    ha_port = await net.host("10.0.0.3").mount().listen("10.0.0.3", 10912)
    async with rocketmq(net, b"brokerName=broker-a", ends=ends), slave.broker() as broker:
        report = memoryview(bytearray(8))
        with trio.fail_after(30):
            while not (size := await (await ha_port.accept()).receive_into(report)):
                pass  # it looks whether the port is open, while it waits for a better answer
        assert (size, bytes(report)) == (8, bytes(8))
        assert ha_client_of(broker).info().state.value != "failed"


def group_of(slave_addresses: list[tuple[str, str]], **settings: str) -> ReplicationGroup:
    config = Machine(SimNet(), "10.0.0.9").controller(**settings).config
    return ReplicationGroup(
        config,
        slave_addresses=lambda: slave_addresses,
        name_slave=lambda _host, _port, _name: None,
        came_from=lambda: ["10.0.0.2"],
    )


def speak(group: ReplicationGroup, port: str, broker_id: str, *, now: float) -> None:
    group.on_introduced("10.0.0.2", {"brokerId": broker_id, "listenPort": port}, now=now)


async def test_of_those_that_spoke_from_a_host_the_last_is_the_one_that_is_connected() -> None:
    """The others are gone, with whatever was wrong with them; the one that spoke again is back."""
    group = group_of([("10.0.0.2", "50000")])
    speak(group, "1", "0", now=0)
    speak(group, "2", "5", now=1)
    assert group.clashes(now=100) == []
    speak(group, "1", "0", now=200)
    assert ["both have brokerId=0" in one for one in group.clashes(now=300)] == [True]
    speak(group, "2", "5", now=400)
    assert group.clashes(now=500) == []


async def test_a_stranger_that_left_is_not_taken_for_the_slave_on_its_host() -> None:
    """It spoke last, and was a clash for as long as the slave followed."""
    group = group_of([("10.0.0.2", "50000")])
    member = {"brokerId": "1", "listenPort": "1", "haClientPort": "50000"}
    group.on_introduced("10.0.0.2", member, now=0)
    speak(group, "2", "0", now=1)
    assert len(group.clashes(now=2)) == 1
    assert group.clashes(now=14) == []
    speak(group, "3", "1", now=20)
    assert ["all have brokerId=1" in one for one in group.clashes(now=21)] == [True]
    assert group.clashes(now=34) == []


async def test_clients_are_not_sent_to_a_slave_whose_connection_has_ended() -> None:
    group = group_of(connected := [("10.0.0.2", "50001"), ("10.0.0.2", "50002")])
    for port, ha_client_port in (("1", "50001"), ("2", "50002")):
        member = {"brokerId": port, "listenPort": port, "haClientPort": ha_client_port}
        group.on_introduced("10.0.0.2", member, now=0)
    assert group.following() == {1: "10.0.0.2:1", 2: "10.0.0.2:2"}
    del connected[0]
    assert group.following() == {2: "10.0.0.2:2"}


async def test_the_name_of_a_master_that_is_not_followed_is_not_taken() -> None:
    group = group_of([], **SLAVE, brokerName=UNSET)
    before = group.broker_name
    assert group.meet(GroupMember("other", 0, 131072))
    assert group.broker_name == before
    assert group.meet(GroupMember("other", 0, 65536)) == ""
    assert group.broker_name == "other"
