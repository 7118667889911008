"""Two brokers that register as one: each takes the other's place in the routes, and both say so."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.identity import Identity
from rmqha.broker.taken_places import TakenPlaces
from rmqha.cli.verdict import judge
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from tests.broker.machines import Machine
from tests.broker.test_name_servers import NameServer, name_servers, registered_group
from tests.broker.test_pair import status
from tests.namesrv.machines import NameServerMachine
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

PLACE_TAKEN = "name_servers.place_taken"


@pytest.fixture
def net() -> SimNet:
    return SimNet()


async def facts_of(machine: Machine) -> dict[str, Any]:
    async with machine.client() as client:
        return await status(client)


async def test_two_masters_of_one_name_both_say_so(net: SimNet, virtual_clock: VirtualClock) -> None:
    """And no more a while after one of them has gone."""
    machine = NameServerMachine(net)
    keys = {"namesrvAddr": machine.where}
    first, second = Machine(net, "10.0.0.1", keys), Machine(net, "10.0.0.3", keys)
    with capture_logs() as logs:
        async with machine.running(), first.broker():
            await trio.sleep(10)
            async with second.broker():
                await trio.sleep(15)
                assert (await facts_of(first))["place_taken"] == []
                await trio.sleep(85)
                facts = await facts_of(first)
                [at_first], [at_second] = facts["place_taken"], (await facts_of(second))["place_taken"]
                assert "at 10.0.0.1:10911, now the one at 10.0.0.3:10911" in at_first
                assert "at 10.0.0.3:10911, now the one at 10.0.0.1:10911" in at_second
                verdict = judge(facts)
                assert (verdict.level, at_first in "".join(verdict.reasons)) == ("degraded", True)
            await trio.sleep(200)
            assert (await facts_of(first))["place_taken"] == []
    assert len([log for log in logs if log["event"] == PLACE_TAKEN]) == 2


@pytest.mark.parametrize("broker_id", [0, 1])
async def test_with_a_name_server_as_rocketmq_s(net: SimNet, virtual_clock: VirtualClock, broker_id: int) -> None:
    """Masters, and slaves of one brokerId."""
    names, ours = NameServer(net), name_servers(net, broker_id=broker_id)
    other = name_servers(net, host="10.0.0.2", broker_id=broker_id)
    async with trio.open_nursery() as nursery:
        for part in (names.run, ours.run):
            nursery.start_soon(part)
        await trio.sleep(10)
        nursery.start_soon(other.run)
        await trio.sleep(100)
        assert len(ours.facts()["place_taken"]) == len(other.facts()["place_taken"]) == 1
        nursery.cancel_scope.cancel()


async def test_a_broker_whose_place_was_taken_once_is_silent(net: SimNet, virtual_clock: VirtualClock) -> None:
    """One that has moved, and whose former process takes its time to end."""
    names, ours = NameServer(net), name_servers(net)
    async with trio.open_nursery() as nursery:
        for part in (names.run, ours.run):
            nursery.start_soon(part)
        for _ in range(3):
            await trio.sleep(200)
            names.brokers[0] = "10.0.0.2:10911"
            await trio.sleep(40)
            assert names.brokers == {0: "10.0.0.1:10911"}
            assert ours.facts()["place_taken"] == []
        nursery.cancel_scope.cancel()


def test_a_broker_that_was_made_master_begins_anew() -> None:
    """As a slave, its place was taken once, and as a master once: by a successor each time, perhaps."""
    places = TakenPlaces()
    slave, master = (Identity("pair", broker_id, "10.0.0.1:10911", "10.0.0.1:10912") for broker_id in (1, 0))
    with capture_logs() as logs:
        places.saw("ns:9876", slave, "10.0.0.3:10911", now=0.0)
        places.saw("ns:9876", master, "10.0.0.2:10911", now=30.0)
        assert (places.describe(master, now=30.0), logs) == ([], [])
        places.saw("ns:9876", master, "10.0.0.2:10911", now=60.0)
    assert len(places.describe(master, now=60.0)) == len(logs) == 1


class KnowsBetter(NameServer):
    """As a slave that is one, and knows its master by another of its addresses."""

    def _route(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.brokers = {0: "name-of-this-machine:10911"}
        return super()._route(connection, request)


async def test_a_name_server_that_always_names_another_address_is_not_believed(
    net: SimNet, virtual_clock: VirtualClock
) -> None:
    names, ours = KnowsBetter(net), name_servers(net)
    async with trio.open_nursery() as nursery:
        for part in (names.run, ours.run):
            nursery.start_soon(part)
        await trio.sleep(300)
        assert names.registered > 5
        assert ours.facts()["place_taken"] == []
        nursery.cancel_scope.cancel()


async def test_a_leadership_that_wanders_is_no_clash(virtual_clock: VirtualClock) -> None:
    """BrokerId 0 wanders with the leadership."""
    with capture_logs() as logs:
        async with registered_group() as (group, names, _master):
            for _ in range(4):
                await group.wait(lambda: 0 in names.brokers)
                former = await group.wait_master()
                former.kill()
                await group.wait(lambda: bool(group.masters))
                await former.start()
                await trio.sleep(20)
            for node in group.nodes.values():
                assert node.running.replication.facts()["place_taken"] == []
    assert PLACE_TAKEN not in {log["event"] for log in logs}
