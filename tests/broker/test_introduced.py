"""Who says by request 28 that it is a slave is believed if it comes to the HA port, too."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.classic.classic_replication import ClassicReplication
from rmqha.broker.group import ReplicationGroup
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreError, StoreWriteError, errors_in
from rmqha.ha.runtime_info import ClientState
from tests.broker.machines import Machine, ask, ha_client_of, replication_of, send_request, status_of
from tests.broker.test_pair import SLAVE, Pair
from tests.sim.sim_net import SimNet


def introduction(number: int, **more: str) -> dict[str, str]:
    return {"brokerName": "broker-a", "brokerId": str(number), "listenPort": str(3000 + number), **more}


async def addresses_of(machine: Machine) -> dict[str, str]:
    """By brokerId, as the broker's own route has them."""
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "TBW102"})
    async with machine.client() as client:
        (broker,) = json.loads((await ask(client, request)).body)["brokerDatas"]
    addresses: dict[str, str] = broker["brokerAddrs"]
    return addresses


@pytest.mark.parametrize(
    "said",
    [{"haLacksBytes": "1048576"}, {"haTrouble": "OK all slaves in sync"}, {"brokerName": "other"}, {"brokerId": "1"}],
)
async def test_a_client_that_says_it_is_a_slave_is_not_believed(
    said: dict[str, str], autojump_clock: MockClock
) -> None:
    """One request, and a master that was ok was degraded, with whatever sentence somebody had chosen."""
    pair = Pair()
    with capture_logs() as logs:
        async with pair.running(), pair.master.client() as client:
            await trio.sleep(5)
            fields = introduction(2) | said
            await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, ext_fields=fields))
            facts = await status_of(pair.master)
            assert (facts["group_clashes"], facts["slave_troubles"], facts["lacking_slaves"]) == ([], [], [])
            assert (judge(facts).level, len(facts["ha"]["connections"])) == ("ok", 1)
    assert [
        line for line in logs if line["event"].startswith("group.slave_") or line["event"] == "group.mixed_up"
    ] == []


async def test_strangers_push_no_slave_out_of_what_its_master_knows(autojump_clock: MockClock) -> None:
    """The master's own route lost it for the life of its connection."""
    pair = Pair()
    async with pair.running(), pair.master.client() as client:
        await trio.sleep(5)
        before = await addresses_of(pair.master)
        assert before == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
        for number in range(40, 140):
            await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, ext_fields=introduction(number)))
        assert await addresses_of(pair.master) == before


async def test_what_is_forgotten_of_a_slave_is_known_again_soon(autojump_clock: MockClock) -> None:
    """It spoke at the begin of its connection alone."""
    pair = Pair()
    async with pair.running() as (master, _), pair.master.client() as client:
        await ask(client, send_request(b"x"))
        await trio.sleep(5)
        group = replication_of(master).group
        slave = next(one for one in replication_of(master).ha_service.connections.values()).peer.split(":")
        group.on_introduced("10.0.0.2", introduction(7, haClientPort=slave[1]), now=trio.current_time())
        assert await addresses_of(pair.master) == {"0": "10.0.0.1:10911", "7": "10.0.0.2:3007"}
        await trio.sleep(15)
        assert await addresses_of(pair.master) == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
        assert replication_of(master).ha_service.reported_of("broker-a/1") > 0


async def test_a_slave_s_slave_tells_the_one_to_which_it_comes_that_it_takes_nothing(autojump_clock: MockClock) -> None:
    """Of a chain the first one is asked for tables: nobody comes to its HA port from there."""
    pair = Pair()
    end = Machine(pair.net, "10.0.0.3", SLAVE | {"brokerId": "2", "haMasterAddress": "10.0.0.2:10912"})
    async with pair.running(), pair.master.client() as client, end.broker() as broker:
        await trio.sleep(15)
        failure = StoreWriteError(OSError(5, "injected"), operation="fdatasync", path="/a")
        broker.store.running_flags.fail(failure)
        await ask(client, send_request(b"x"))
        await trio.sleep(60)
        assert ha_client_of(broker).info().state is ClientState.FAILED
        (told,) = (await status_of(pair.slave))["slave_troubles"]
        assert told.startswith("10.0.0.3:10911 (broker-a/2) takes nothing, and says why: the store is not writable")
        assert (await status_of(pair.master))["slave_troubles"] == []


def group_of(slaves: list[tuple[str, str]], came_from: list[str]) -> ReplicationGroup:
    config = Machine(SimNet(), "10.0.0.9").controller().config
    return ReplicationGroup(
        config, slave_addresses=lambda: slaves, name_slave=lambda *_: None, came_from=lambda: came_from
    )


async def test_of_a_host_little_is_kept_and_who_follows_is_spared() -> None:
    group = group_of([("10.0.0.2", "50000")], ["10.0.0.2", "10.0.0.3"])
    group.on_introduced("10.0.0.2", introduction(1, haClientPort="50000"), now=0)
    group.on_introduced("10.0.0.3", introduction(2, haTrouble="its disk is full"), now=1)
    for number in range(10, 1000):
        group.on_introduced("10.0.0.2", introduction(number, haTrouble="x"), now=2)
    assert group.following() == {1: "10.0.0.2:3001"}
    told = group.troubles(now=3)
    assert len(told) == 9
    assert told[0].startswith("10.0.0.3:3002 (broker-a/2) takes nothing, and says why: its disk is full")
    assert told[-1].startswith("10.0.0.2:3999 "), "the newest are kept"


async def test_many_hosts_push_no_follower_out() -> None:
    hosts = [f"10.0.1.{number}" for number in range(200)]
    group = group_of([("10.0.0.2", "50000")], ["10.0.0.2", *hosts])
    group.on_introduced("10.0.0.2", introduction(1, haClientPort="50000"), now=0)
    for number, host in enumerate(hosts, 2):
        group.on_introduced(host, introduction(number, haTrouble="x"), now=1)
    assert group.following() == {1: "10.0.0.2:3001"}
    assert len(group.troubles(now=2)) == 63


async def test_a_connection_is_one_brokers() -> None:
    """Else those that name another one's would never be forgotten."""
    group = group_of([("10.0.0.2", "50000")], ["10.0.0.2"])
    for number in range(1, 1000):
        group.on_introduced("10.0.0.2", introduction(number, haClientPort="50000", haTrouble="x"), now=0)
    assert group.following() == {999: "10.0.0.2:3999"}
    assert len(group.troubles(now=1)) == 1


async def test_who_never_came_is_told_of_once_it_has_come() -> None:
    came = list[str]()
    group = group_of([], came)
    for now in (1, 2):
        group.on_introduced("10.0.0.2", introduction(1, haTrouble="its disk is full"), now=now)
        assert len(group.troubles(now=now)) == len(came)
        came.append("10.0.0.2")


async def test_where_a_slave_s_log_begins_is_known_behind_a_tunnel_too() -> None:
    """Its HA connection comes from another port than it says: far readers went to and fro, a batch each time."""
    slaves = [("10.0.0.2", "50000")]
    group = group_of(slaves, ["10.0.0.2"])
    group.on_introduced("10.0.0.2", introduction(1, haClientPort="4", haMinOffset="100"), now=0)
    assert [group.begin_of(number) for number in (1, 2)] == [100, 0]
    group.on_introduced("10.0.0.2", introduction(1, haClientPort="50000", listenPort="1", haMinOffset="7"), now=1)
    assert group.begin_of(1) == 7, "that one follows"


async def test_a_master_hears_of_another_one_that_asks_it_as_its_peer(autojump_clock: MockClock) -> None:
    """That one ends its start at once, as both are masters, and does not come to be sent a log."""
    net, role = SimNet(), {"brokerRole": "ASYNC_MASTER"}
    one, two = (Machine(net, f"10.0.0.{number}", role) for number in (1, 2))
    async with one.broker():
        with pytest.raises(ExceptionGroup) as ended:
            await two.controller(haPeers="10.0.0.1:10912").run()
        assert "both have brokerId=0" in str(errors_in(ended.value, StoreError))
        clashes = (await status_of(one))["group_clashes"]
    assert [clash for clash in clashes if clash.startswith("10.0.0.2:10911")]


def test_a_slave_holds_what_it_has_reported_from_where_its_log_begins() -> None:
    """Consumers are sent to it for that: it has none of what lies before."""
    reported = {"broker-a/1": 100}
    group = SimpleNamespace(broker_name="broker-a", begin_of=lambda number: 40 * number)
    ha_service = SimpleNamespace(reported_of=lambda name: reported.get(name, 0))
    master: Any = SimpleNamespace(group=group, ha_service=ha_service)
    asked = [(number, at) for number in (1, 2) for at in (39, 40, 99, 100)]
    assert [one for one in asked if ClassicReplication.is_held_by(master, *one)] == [(1, 40), (1, 99)]
