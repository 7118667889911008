"""A broker is a name server for its group: clients and mqadmin may be given its address for one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.own_routes import OwnRoutes
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.namesrv_headers import RegisterBrokerRequestHeader
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import TopicRouteData, decode_route
from rmqha.ha.runtime_info import ClientState
from rmqha.namesrv.routes import Registration
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import UNSET, Machine, ask, ha_client_of, replication_of, send_request
from tests.settings import config, topic_rules
from tests.sim.sim_net import SimNet

MASTER, SLAVE = "10.0.0.1", "10.0.0.2"
BOTH = {0: f"{MASTER}:10911", 1: f"{SLAVE}:10911"}
OF_SLAVE = {"brokerRole": "SLAVE", "haMasterAddress": f"{MASTER}:10912"}


@pytest.fixture
def net() -> SimNet:
    return SimNet()


@asynccontextmanager
async def pair(net: SimNet, **of_slave: str) -> AsyncIterator[tuple[Machine, Machine, BrokerController]]:
    """A master, and a slave that follows it."""
    master, slave = Machine(net, MASTER), Machine(net, SLAVE, OF_SLAVE | of_slave)
    async with master.broker(), slave.broker() as follower:
        await follows(follower)
        yield master, slave, follower


async def follows(slave: BrokerController) -> None:
    with trio.fail_after(60):
        while ha_client_of(slave).info().state is not ClientState.TRANSFER:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.1)


async def names(machine: Machine, addresses: dict[int, str]) -> None:
    """Wait until a broker says that these are its group's."""
    with trio.fail_after(60):
        while await addresses_at(machine) != addresses:  # noqa: ASYNC110 - it tells only who asks
            await trio.sleep(0.1)


async def answer_to(client: RemotingClient, code: RequestCode, body: bytes = b"", **fields: str) -> RemotingCommand:
    return await ask(client, RemotingCommand(code, ext_fields=fields, body=body))


async def route_at(machine: Machine, topic: str = "TBW102") -> TopicRouteData:
    async with machine.client() as client:
        return decode_route((await answer_to(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)).body)


async def addresses_at(machine: Machine) -> dict[int, str]:
    (broker,) = (await route_at(machine)).broker_datas
    return broker.broker_addrs


def registration(broker_id: int, address: str, name: str = "broker-a") -> dict[str, Any]:
    host = address.partition(":")[0]
    header = RegisterBrokerRequestHeader(name, address, "DefaultCluster", f"{host}:10912", broker_id)
    return {**encode_header(header)}


async def test_it_answers_as_a_name_server(net: SimNet, autojump_clock: MockClock) -> None:
    machine = Machine(net, MASTER)
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x"))
        info = json.loads((await answer_to(client, RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        broker = {"brokerAddrs": {"0": f"{MASTER}:10911"}, "brokerName": "broker-a", "cluster": "DefaultCluster"}
        assert info == {
            "brokerAddrTable": {"broker-a": broker},
            "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
        }
        topics = json.loads((await answer_to(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)["topicList"]
        assert {"t", "TBW102", "broker-a"} <= set(topics)
        await answer_to(client, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert (await route_at(machine, "t")).queue_datas[0].perm == 4
        await answer_to(client, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert (await route_at(machine, "t")).queue_datas[0].perm == 6
        unknown = await answer_to(client, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="another")
        assert unknown.ext_fields == {"wipeTopicCount": "0"}
        deleted = await answer_to(client, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t")
        assert deleted.code == ResponseCode.SUCCESS
        assert (await route_at(machine, "t")).queue_datas, "the broker still has it"


async def test_what_operators_keep_is_there_after_a_restart(net: SimNet, autojump_clock: MockClock) -> None:
    machine = Machine(net, MASTER)
    entry: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TBW102"}
    async with machine.broker(), machine.client() as client:
        await answer_to(client, RequestCode.PUT_KV_CONFIG, **entry, value="broker-a:2")
    async with machine.broker(), machine.client() as client:
        assert (await answer_to(client, RequestCode.GET_KV_CONFIG, **entry)).ext_fields == {"value": "broker-a:2"}
        answer = await answer_to(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        assert b'"orderTopicConf":"broker-a:2"' in answer.body


async def test_clients_may_do_no_more_than_with_the_broker(net: SimNet, autojump_clock: MockClock) -> None:
    machine = Machine(net, MASTER, {"brokerPermission": "4"})
    async with machine.broker():
        assert (await route_at(machine)).queue_datas[0].perm == 5


async def test_a_master_names_its_slaves_as_long_as_they_follow(net: SimNet, autojump_clock: MockClock) -> None:
    """So consumers know where to go on when it dies."""
    async with pair(net) as (master, _, follower):
        await names(master, BOTH)
        follower.stop()
        await names(master, {0: f"{MASTER}:10911"})


async def test_a_slave_names_the_master_that_it_was_told_of(net: SimNet, autojump_clock: MockClock) -> None:
    async with pair(net, masterAddress=f"{MASTER}:10911") as (_, slave, _follower):
        assert await addresses_at(slave) == BOTH


async def queues_at(machine: Machine) -> int:
    """How many there are to be read in a topic, as clients are told; 0 if they are not told of it."""
    async with machine.client() as client:
        answer = await answer_to(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        listed = await answer_to(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    is_there = answer.code == ResponseCode.SUCCESS
    assert is_there == ("orders" in json.loads(listed.body)["topicList"])
    return decode_route(answer.body).queue_datas[0].read_queue_nums if is_there else 0


async def has_tables(slave: BrokerController) -> None:
    """The next are asked for a second later, at the earliest."""
    with trio.fail_after(5):
        while not replication_of(slave).slave_synchronize.has_taken:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.1)


async def third_queue_arrives(master: Machine, slave: BrokerController) -> None:
    """A new topic has four, and its first message is in the third: so far a slave knows of three."""
    async with master.client() as client:
        await ask(client, send_request(b"x", topic="orders", queue_id=2))
    with trio.fail_after(2):
        while (found := slave.topics.select("orders")) is None:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.1)
    assert found.read_queue_nums == 3


async def test_a_slave_tells_of_a_new_topic_with_all_its_queues(net: SimNet, autojump_clock: MockClock) -> None:
    """Not before it has its master's table: a consumer that asks once would never read the fourth."""
    async with pair(net, masterAddress=f"{MASTER}:10911") as (master, slave, follower):
        await has_tables(follower)
        await third_queue_arrives(master, follower)
        assert (await queues_at(slave), replication_of(follower).facts()["topics_awaited"]) == (0, True)
        await trio.sleep(2)
        assert (await queues_at(slave), replication_of(follower).facts()["topics_awaited"]) == (4, False)


async def test_a_slave_that_gets_no_tables_tells_what_its_log_does(net: SimNet, autojump_clock: MockClock) -> None:
    """Nobody answers where its master should."""
    async with pair(net, masterAddress=f"{MASTER}:1") as (master, slave, follower):
        await third_queue_arrives(master, follower)
        assert await queues_at(slave) == 3


async def test_a_slave_whose_master_is_gone_tells_what_its_log_does(net: SimNet, autojump_clock: MockClock) -> None:
    slave = Machine(net, SLAVE, OF_SLAVE | {"masterAddress": f"{MASTER}:10911"})
    master = Machine(net, MASTER)
    async with slave.broker() as follower:
        async with master.broker():
            await follows(follower)
            await has_tables(follower)
            await third_queue_arrives(master, follower)
        assert await queues_at(slave) == 0
        await trio.sleep(2)
        assert await queues_at(slave) == 3


async def test_a_master_that_lost_its_table_tells_what_its_log_does(net: SimNet, autojump_clock: MockClock) -> None:
    machine = Machine(net, MASTER)
    async with machine.broker() as broker:
        broker.topics.learn_queue("orders", 2)
        assert await queues_at(machine) == 3


async def test_brokers_of_the_group_register_with_each_other(net: SimNet, autojump_clock: MockClock) -> None:
    """All are given all addresses as namesrvAddr: each of them names both, until one is gone."""
    everybody = f"{MASTER}:10911;{SLAVE}:10911"
    keys = {"namesrvAddr": everybody, "haMasterAddress": UNSET}
    master, slave = Machine(net, MASTER, {"namesrvAddr": everybody}), Machine(net, SLAVE, OF_SLAVE | keys)
    async with slave.broker() as follower:
        async with master.broker():
            await follows(follower)
            await names(master, BOTH)
            await names(slave, BOTH)
        await names(slave, {1: f"{SLAVE}:10911"})


async def test_a_rocketmq_slave_finds_its_master(net: SimNet, autojump_clock: MockClock) -> None:
    machine = Machine(net, MASTER)
    async with machine.broker(), machine.client() as client:
        answer = await answer_to(client, RequestCode.REGISTER_BROKER, **registration(1, "10.0.0.5:10911"))
        assert answer.ext_fields == {"haServerAddr": f"{MASTER}:10912", "masterAddr": f"{MASTER}:10911"}
        assert await addresses_at(machine) == {0: f"{MASTER}:10911", 1: "10.0.0.5:10911"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (registration(0, "10.6.6.6:10911"), "this broker is that, at 10.0.0.1:10911"),
        (registration(1, "10.6.6.6:10911", name="other"), "a name server for broker-a of DefaultCluster alone"),
    ],
)
async def test_strangers_are_not_taken_for_the_group(
    net: SimNet, autojump_clock: MockClock, fields: dict[str, Any], why: str
) -> None:
    machine = Machine(net, MASTER)
    async with machine.broker(), machine.client() as client:
        answer = await answer_to(client, RequestCode.REGISTER_BROKER, **fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert why in (answer.remark or "")
        assert await addresses_at(machine) == {0: f"{MASTER}:10911"}


class Roles:
    """Of a :class:`~rmqha.broker.replication.Replication` what routes ask: which broker this one is at present."""

    follows_tables = False
    ha_address = f"{SLAVE}:10912"

    def __init__(self) -> None:
        self.addrs = {0: f"{MASTER}:10911", 1: f"{SLAVE}:10911"}
        self.group = SimpleNamespace(broker_name="broker-a")

    def broker_addrs(self, own: str) -> dict[int, str]:
        return self.addrs


@dataclass(eq=False)
class Wire:
    """Of a broker that registered."""

    peer: str

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


async def test_a_former_leader_that_is_registered_does_not_hide_the_next() -> None:
    """It was told of as broker 0, and stays registered till its connection ends; then this broker leads."""
    roles = Roles()
    topics = TopicConfigManager(topic_rules(), now_ms=lambda: 1)
    routes = OwnRoutes(config(brokerName="broker-a"), topics, cast("Any", roles), address=lambda: f"{SLAVE}:10911")
    former = Registration("DefaultCluster", "broker-a", 0, f"{MASTER}:10911", f"{MASTER}:10912")
    routes.register_broker(former, {}, connection=Wire(f"{MASTER}:5"), now=0)
    assert routes.data.broker_addrs == BOTH
    roles.addrs = {0: f"{SLAVE}:10911"}
    assert routes.data.broker_addrs == {0: f"{SLAVE}:10911"}
