"""Brokers and name servers: who is registered as what, and what slaves and followers learn there."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.group import ReplicationGroup
from rmqha.broker.identity import Identity
from rmqha.broker.master_link import MasterLink
from rmqha.broker.name_servers import NameServers
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.cli.pages import Page
from rmqha.codec import java_json, remoting
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import BrokerData, TopicRouteData, decode_route, encode_route
from rmqha.config import BrokerConfig, load_config
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.namesrv.routes import Registration
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from tests.broker.dledger_brokers import COMMON, BrokerGroup, Node
from tests.broker.machines import Machine, ask, send_request
from tests.namesrv.machines import NameServerMachine
from tests.settings import remoting_limits, topic_rules
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

ADDRESS = "10.7.7.7"
NAMESRV = f"{ADDRESS}:9876"


@dataclass
class NameServer:
    """As RocketMQ's: an address is one broker, which is forgotten when its connection ends."""

    net: SimNet
    brokers: dict[int, str] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    registered: int = 0
    peers: list[str] = field(default_factory=list)
    """The broker's end of the connection of each registration."""
    _connections: dict[Connection, str] = field(default_factory=dict)

    def _register(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        fields, address = request.ext_fields, request.ext_fields["brokerAddr"]
        self.registered += 1
        self.peers.append(connection.peer)
        self._forget(address)
        self.brokers[int(fields["brokerId"])] = address
        self._connections[connection] = address
        if fields["brokerId"] == "0":
            self.topics |= java_json.loads(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
        else:
            assert not request.body, "only masters tell topics"
        return RemotingCommand(ResponseCode.SUCCESS)

    def _route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        route = TopicRouteData((BrokerData("DefaultCluster", request.ext_fields["topic"], self.brokers),), ())
        return RemotingCommand(ResponseCode.SUCCESS, body=encode_route(route, version=0))

    def _forget(self, address: str) -> None:
        self.brokers = {broker_id: other for broker_id, other in self.brokers.items() if other != address}

    async def run(self) -> None:
        """Until cancelled; who is connected is cut off then."""
        dispatcher = RequestDispatcher()
        dispatcher.register(RequestCode.REGISTER_BROKER, self._register)
        dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        dispatcher.on_closed(lambda connection: self._forget(self._connections.pop(connection, "")))
        listener = await self.net.host(ADDRESS).mount().listen(ADDRESS, 9876)
        await RemotingServer(dispatcher, limits=remoting_limits()).serve(listener)


@asynccontextmanager
async def registered_group() -> AsyncIterator[tuple[BrokerGroup, NameServer, Node]]:
    """A group that registers at a name server, and its master."""
    async with trio.open_nursery() as nursery:
        group = BrokerGroup(nursery, namesrvAddr=NAMESRV)
        names = NameServer(group.net)
        nursery.start_soon(names.run)
        await group.start()
        yield group, names, await group.wait_master()
        nursery.cancel_scope.cancel()


@pytest.fixture
def net() -> SimNet:
    return SimNet()


async def test_the_leader_is_master_and_followers_are_slaves(virtual_clock: VirtualClock) -> None:
    """And when the leader's process ends, the next one is master."""
    async with registered_group() as (group, names, master):
        await group.send(b"0")
        everybody = {f"{address}:10911" for address in group.addresses.values()}
        await group.wait(lambda: set(names.brokers.values()) == everybody and "t" in names.topics)
        assert names.brokers[0] == master.running.address
        slaves = {int(name[1:]) + 1 for name in group.nodes if name != master.name}
        assert names.brokers.keys() == {0} | slaves
        assert names.topics["t"]["writeQueueNums"] == 4
        told_in_vain = names.registered
        await trio.sleep(100)
        assert names.registered - told_in_vain <= 12, "nothing is new"
        former = master.running.address
        master.kill()
        await group.wait(lambda: names.brokers.get(0, former) != former)
        assert names.brokers[0] == (await group.wait_master()).running.address


async def test_a_leader_that_stood_still_does_not_say_that_it_is_master(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it finds out that another leads: name servers would forget that one until it is registered again."""
    async with registered_group() as (group, names, master):
        await group.wait(lambda: 0 in names.brokers)
        with monkeypatch.context() as still:
            still.setattr(DLedgerLeaderElector, "due_at", inf)
            await group.wait(lambda: 0 not in names.brokers, limit_s=5)
            assert master.is_master, "it has not found out"


async def test_members_of_a_group_are_name_servers_for_each_other(virtual_clock: VirtualClock) -> None:
    """Each names all of them, and who leads; also after the leader's process has ended."""
    async with trio.open_nursery() as nursery:
        group = BrokerGroup(nursery)
        group.settings["namesrvAddr"] = group.clients_addresses
        await group.start()

        async def wait_named(master: Node) -> None:
            running = [node for node in group.nodes.values() if node.broker]
            ids = {node.name: 0 if node is master else int(node.name[1:]) + 1 for node in running}
            expected = {ids[node.name]: node.running.address for node in running}
            network = group.net.host(f"10.9.9.{len(group.net.hosts)}").mount()
            for node in running:
                async with open_remoting_client(network, node.running.address) as client:
                    with trio.fail_after(60):
                        while (await route_at(client)).broker_datas[0].broker_addrs != expected:  # noqa: ASYNC110
                            await trio.sleep(0.1)

        master = await group.wait_master()
        await wait_named(master)
        master.kill()
        await group.wait(lambda: group.masters != [master.name] and len(group.masters) == 1)
        await wait_named(await group.wait_master())
        nursery.cancel_scope.cancel()


async def route_at(client: RemotingClient) -> TopicRouteData:
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "g"})
    return decode_route((await client.invoke(request, timeout_s=60)).body)


def config_of(**keys: str) -> BrokerConfig:
    members = {"dLegerSelfId": "n0", "dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2"}
    return load_config(None, COMMON | members | {"namesrvAddr": NAMESRV} | keys)


def name_servers(
    net: SimNet,
    *,
    host: str = "10.0.0.1",
    broker_id: int = 0,
    identity: Callable[[], Identity] | None = None,
    **keys: str,
) -> NameServers:
    usual = Identity("g", broker_id, f"{host}:10911", f"{host}:10912")
    return NameServers(
        config_of(**keys),
        TopicConfigManager(topic_rules(), now_ms=lambda: 0),
        network=net.host(host).mount(),
        identity=identity or (lambda: usual),
    )


async def test_a_name_server_that_comes_later_or_again_is_told(net: SimNet, virtual_clock: VirtualClock) -> None:
    names, ours = NameServer(net), name_servers(net)
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.run)
            await trio.sleep(60)
            assert [line.split(":")[0] for line in ours.not_registered()] == ["name server 10.7.7.7"]
            for _ in range(2):
                async with trio.open_nursery() as life:
                    life.start_soon(names.run)
                    await trio.sleep(10)
                    assert names.brokers == {0: "10.0.0.1:10911"}
                    assert ours.not_registered() == []
                    life.cancel_scope.cancel()
                await trio.sleep(10)
                assert names.brokers == {}
            nursery.cancel_scope.cancel()
    events = [log["event"] for log in logs if log["event"].startswith("name_servers")]
    assert events == ["name_servers.not_registered", "name_servers.registered"] * 2 + ["name_servers.not_registered"]


async def test_a_new_master_is_told_at_once(net: SimNet, virtual_clock: VirtualClock) -> None:
    """Clients had the former one, or none, for up to half a second more."""
    names, broker_id = NameServer(net), [1]
    ours = name_servers(net, identity=lambda: Identity("g", broker_id[0], "10.0.0.1:10911", "10.0.0.1:10912"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(names.run)
        nursery.start_soon(ours.run)
        await trio.sleep(10.1)
        assert names.brokers == {1: "10.0.0.1:10911"}
        broker_id[0] = 0
        ours.look_again()
        await trio.sleep(0.05)
        assert names.brokers == {0: "10.0.0.1:10911"}
        broker_id[0] = 1
        await trio.sleep(1)
        assert names.brokers == {1: "10.0.0.1:10911"}, "nobody has told it"
        nursery.cancel_scope.cancel()


async def test_a_broker_that_takes_another_name_connects_anew(net: SimNet, virtual_clock: VirtualClock) -> None:
    """RocketMQ's name server forgets the former name with its connection alone."""
    names, name, address = NameServer(net), ["g"], "10.0.0.1:10911"
    ours = name_servers(net, identity=lambda: Identity(name[0], 1, address, "10.0.0.1:10912"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(names.run)
        nursery.start_soon(ours.run)
        await trio.sleep(60)
        assert len(set(names.peers)) == 1 < names.registered
        name[0] = "another"
        await trio.sleep(60)
        assert (len(set(names.peers)), names.brokers) == (2, {1: address})
        nursery.cancel_scope.cancel()


async def eventually(condition: Callable[[], bool], *, limit_s: float = 60) -> None:
    with trio.fail_after(limit_s):
        while not condition():  # noqa: ASYNC110 - what it asks tells nobody
            await trio.sleep(0.01)


def known_at(names: NamesrvController) -> dict[str, Any]:
    """What clients find there: addresses by topic."""
    return {topic: group.data.broker_addrs for group in names.routes.groups() for topic, _ in group.topics()}


async def test_a_slave_finds_its_master_and_follows_the_next_one(net: SimNet, virtual_clock: VirtualClock) -> None:
    """By a name server alone; with the log come the tables. When another master registers, it is followed."""
    machine = NameServerMachine(net)
    keys = {"namesrvAddr": machine.where}
    first, second = Machine(net, "10.0.0.1", keys), Machine(net, "10.0.0.3", keys)
    second.disk = first.disk
    slave = Machine(net, "10.0.0.2", keys | {"brokerRole": "SLAVE"})
    async with machine.running() as names, slave.broker() as follower:
        async with first.broker() as master, first.client() as client:
            await ask(client, send_request(b"one"))
            await eventually(lambda: follower.store.max_offset == master.store.max_offset > 0)
            await eventually(lambda: follower.topics.select("t") is not None)
            await eventually(lambda: known_at(names).get("t") == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
            assert follower.replication.broker_addrs("here") == {0: "10.0.0.1:10911", 1: "here"}
        await eventually(lambda: known_at(names).get("t") == {1: "10.0.0.2:10911"})
        async with second.broker() as master, second.client() as client:
            await ask(client, send_request(b"two"))
            await eventually(lambda: follower.store.max_offset == master.store.max_offset)
            await eventually(lambda: known_at(names).get("t") == {0: "10.0.0.3:10911", 1: "10.0.0.2:10911"})


async def test_a_slave_that_was_there_first_finds_its_master_soon(net: SimNet, virtual_clock: VirtualClock) -> None:
    """Not after registerNameServerPeriod: 30 s."""
    machine = NameServerMachine(net)
    keys = {"namesrvAddr": machine.where}
    slave, master = Machine(net, "10.0.0.2", keys | {"brokerRole": "SLAVE"}), Machine(net, "10.0.0.1", keys)
    async with machine.running(), slave.broker() as follower:
        await trio.sleep(100)
        async with master.broker(), master.client() as client:
            await ask(client, send_request(b"one"))
            with trio.fail_after(6):
                while not follower.store.max_offset:  # noqa: ASYNC110 - virtual time
                    await trio.sleep(0.1)


class Elsewhere:
    """The connection of a master that stays registered."""

    peer = "10.0.0.1:5"

    def close(self, reason: str) -> None: ...


def register_master(names: NamesrvController, host: str) -> None:
    master = Registration("DefaultCluster", "g", 0, f"{host}:10911", f"{host}:10912")
    names.routes.register_broker(master, {}, connection=Elsewhere(), now=trio.current_time())


async def test_a_name_server_that_is_gone_names_no_master(net: SimNet, virtual_clock: VirtualClock) -> None:
    """The next master may be known to others alone."""
    first, second = NameServerMachine(net), NameServerMachine(net, "10.7.7.8")
    slave = name_servers(
        net,
        broker_id=1,
        namesrvAddr=f"{first.where};{second.where}",
        brokerRole="SLAVE",
        enableDLegerCommitLog="false",
        brokerName="g",
    )
    async with second.running() as others, trio.open_nursery() as nursery:
        async with first.running() as names:
            register_master(names, "10.0.0.3")
            nursery.start_soon(slave.run)
            await eventually(lambda: slave.master == ("10.0.0.3:10911", "10.0.0.3:10912"))
        register_master(others, "10.0.0.4")
        with trio.fail_after(5):  # not at the next registration there, after 30 s
            await eventually(lambda: slave.master == ("10.0.0.4:10911", "10.0.0.4:10912"))
        nursery.cancel_scope.cancel()


async def test_a_topic_is_told_once_it_is_saved(net: SimNet, virtual_clock: VirtualClock) -> None:
    """A client hears of a topic only when ``topics.json`` has it."""
    machine = NameServerMachine(net)
    broker = Machine(net, "10.0.0.1", {"namesrvAddr": machine.where})
    async with machine.running() as names, broker.broker() as master, broker.client() as client:
        await eventually(lambda: "TBW102" in known_at(names))
        broker.disk.faults.hung_until = trio.current_time() + 20
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, client, send_request(b"x"))
            await eventually(lambda: "t" in master.topics.unsaved)
            await trio.sleep(5)
            assert "t" not in known_at(names)
            await eventually(lambda: "t" in known_at(names))
            assert "t" not in master.topics.unsaved


async def test_what_a_name_server_answers_ends_nothing(net: SimNet, virtual_clock: VirtualClock) -> None:
    dispatcher = RequestDispatcher()
    answer = RemotingCommand(ResponseCode.SUCCESS, body=b'{"brokerDatas":7}')
    dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: answer)
    listener = await net.host(ADDRESS).mount().listen(ADDRESS, 9876)
    ours = name_servers(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RemotingServer(dispatcher, limits=remoting_limits()).serve, listener)
        nursery.start_soon(ours.run)
        with capture_logs() as logs:
            await trio.sleep(100)
        (told,) = [log for log in logs if log["event"] == "name_servers.not_registered"]
        assert told["see"] == Page.NOT_REGISTERED
        assert await ours.find_master() == ""
        nursery.cancel_scope.cancel()


async def test_a_name_server_that_answers_a_lot_holds_nobody_up(net: SimNet, virtual_clock: VirtualClock) -> None:
    """Fifteen megabytes of header held the event loop for more than a second, and took 700 MB, every five seconds."""
    brokers = [BrokerData("DefaultCluster", "g", dict.fromkeys(range(5000), "10.0.0.1:10911"))]
    long = RemotingCommand(ResponseCode.SUCCESS, body=encode_route(TopicRouteData(tuple(brokers), ()), version=0))
    wide = RemotingCommand(ResponseCode.SUCCESS, ext_fields={"haServerAddr": "x" * remoting.HEADER_SIZE_MAX})
    dispatcher = RequestDispatcher()
    dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: long)
    dispatcher.register(RequestCode.REGISTER_BROKER, lambda *_: wide)
    listener = await net.host(ADDRESS).mount().listen(ADDRESS, 9876)
    ours = name_servers(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(RemotingServer(dispatcher, limits=remoting_limits()).serve, listener)
        nursery.start_soon(ours.run)
        await trio.sleep(10)
        assert "with a header of 131" in ours.failures[NAMESRV]
        assert await ours.find_master() == ""
        nursery.cancel_scope.cancel()


async def test_a_table_that_no_frame_holds_ends_no_broker(
    net: SimNet, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, ours = NameServer(net), name_servers(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(names.run)
        with monkeypatch.context() as patch:
            patch.setattr(remoting, "FRAME_SIZE_MAX", 500)
            nursery.start_soon(ours.run)
            await trio.sleep(10)
            assert "exceeds 500" in "".join(ours.not_registered())
        await eventually(lambda: names.brokers == {0: "10.0.0.1:10911"} and not ours.not_registered())
        nursery.cancel_scope.cancel()


async def test_the_master_is_found_at_any_name_server(net: SimNet, virtual_clock: VirtualClock) -> None:
    names, ours = NameServer(net), name_servers(net, namesrvAddr=f"10.7.7.6:9876;{NAMESRV}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(names.run)
        assert await ours.find_master() == ""
        names.brokers = {0: "10.0.0.9:10911", 2: "10.0.0.8:10911"}
        assert await ours.find_master() == "10.0.0.9:10911"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("keys", "is_member"),
    [("dLegerSelfId=n1\ndLegerGroup=g\n", True), ("dLegerSelfId=n2\ndLegerGroup=g\n", False), ("brokerId=0\n", False)],
)
async def test_a_broker_of_rocketmq_says_which_member_it_is(
    net: SimNet, virtual_clock: VirtualClock, keys: str, is_member: bool
) -> None:
    """A name server may still name the master of an earlier term."""
    dispatcher, config = RequestDispatcher(), config_of()
    answer = RemotingCommand(ResponseCode.SUCCESS, body=keys.encode())
    dispatcher.register(RequestCode.GET_BROKER_CONFIG, lambda *_: answer)
    group = ReplicationGroup(config, slave_addresses=lambda: (), name_slave=lambda *_: None)
    link = MasterLink(net.host("10.0.0.1").mount(), config, group)
    async with trio.open_nursery() as nursery:
        listener = await net.host("10.0.0.2").mount().listen("10.0.0.2", 10911)
        nursery.start_soon(RemotingServer(dispatcher, limits=remoting_limits()).serve, listener)
        assert await link.is_member("10.0.0.2:10911", "n1", "g") is is_member
        assert not await link.is_member("10.0.0.3:10911", "n1", "g"), "nobody listens"
        nursery.cancel_scope.cancel()
