"""A broker that does not have all of its group's tables is not taken for one that has, nor is what it says of them.

Each case was found by an attacker.
"""

from contextlib import AsyncExitStack

import pytest
import trio

from rmqha.codec.codes import READS_ORIGIN_FIELD, RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import open_remoting_client
from tests.broker.machines import Machine, ask, replication_of, send_request, status_of
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import (
    DECIDED,
    MASTER,
    ONE_PEER,
    OTHER_SLAVE,
    PEERS,
    decided,
    decided_on,
    fill,
    lose,
    put_back,
    three_machines,
)
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_network import SimNetwork

NOBODY = {"masterAddress": "10.0.0.1:10999"}
OF_THE_SECOND = {"haMasterAddress": "10.0.0.3:10912", "masterAddress": "10.0.0.3:10911"}


@pytest.mark.parametrize("what", ["queueEnds.json", ""])
@pytest.mark.parametrize("is_peer_there", [False, True])
async def test_a_master_that_awaits_lost_ends_tells_no_slave_that_it_knows_all(
    what: str, is_peer_there: bool, virtual_clock: VirtualClock
) -> None:
    """A new slave asked no more, and gave places of a silent queue a second time when it was made master."""
    master, first, second = three_machines()
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER) as broker:
        await decided_on(master, broker)
        for each in (broker, slave):
            each.metadata.queue_ends.learn({("silent", 0): 3})
        await trio.sleep(30)
    lose(master, f"/config/{what}")
    async with master.broker(**MASTER, **PEERS), second.broker(**OTHER_SLAVE):
        await trio.sleep(90)
        assert "should not be made master" in str((await status_of(second))["not_learned"])
        async with first.broker(**SLAVE):
            await trio.sleep(120)
            assert (await status_of(second))["not_learned"] == []
    async with AsyncExitStack() as stack:
        if is_peer_there:
            await stack.enter_async_context(first.broker(**SLAVE | OF_THE_SECOND))
        await stack.enter_async_context(second.broker(**MASTER, haPeers="10.0.0.1:10912,10.0.0.2:10912"))
        await trio.sleep(60)
        async with second.client() as client:
            sent = await ask(client, send_request(b"4", topic="silent"))
        assert sent.ext_fields is not None
        assert sent.ext_fields["queueOffset"] == "3"


async def test_a_master_without_its_store_waits_where_its_longer_peer_never_had_tables(
    virtual_clock: VirtualClock,
) -> None:
    """It began after 20 s with what the peer's log told, called that its group's tables, and was well."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    put_back(master, {})
    lose(first)
    async with first.broker(**SLAVE), master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(120)
        assert not replication_of(broker).opened.is_set()
        assert "no master has told it" in replication_of(broker).catch_up.refusal
        assert (await status_of(first))["tables_not_taken"]


@pytest.mark.parametrize("lost", [["queueEnds.json"], ["queueEnds.json", "consumerOffset.json"], [""]])
@pytest.mark.parametrize("alone_s", [0, 60])
async def test_where_a_group_is_in_a_silent_queue_comes_back_with_the_queue_s_end(
    lost: list[str], alone_s: float, virtual_clock: VirtualClock
) -> None:
    """Where the queue ended was learned after what the peer said was cut by it: the group was at 0."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER) as broker:
        await decided_on(master, broker)
        for each in (broker, slave):
            each.metadata.queue_ends.learn({("silent", 0): 3})
        broker.offsets.commit_offset("g", "silent", 0, offset=3)
        await trio.sleep(30)
    for name in lost:
        lose(master, f"/config/{name}")
    if alone_s:
        async with master.broker(**MASTER, **ONE_PEER):
            await trio.sleep(alone_s)
    async with first.broker(**SLAVE), master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(90)
        assert broker.offsets.query_offset("g", "silent", 0) == 3


async def test_a_slave_that_has_its_masters_log_and_not_its_tables_says_so_when_the_master_is_gone(
    virtual_clock: VirtualClock,
) -> None:
    """It was promoted with tables of days ago, and those of the other slave, which had all, were replaced."""
    master, first, second = three_machines()
    async with second.broker(**OTHER_SLAVE) as other, master.broker(**MASTER) as broker:
        async with first.broker(**SLAVE):
            await fill(master, 1)
            await trio.sleep(30)
        async with first.broker(**SLAVE | NOBODY):
            await decided_on(master, broker)
            await trio.sleep(60)
            assert (await status_of(first))["tables_not_taken"]
        assert decided(other) == DECIDED
    async with first.broker(**SLAVE):
        await trio.sleep(120)
        assert (await status_of(first))["tables_not_taken"], "its master is away"
        async with master.broker(**MASTER):
            await trio.sleep(30)
            assert (await status_of(first))["tables_not_taken"] is None
        await trio.sleep(120)
        assert (await status_of(first))["tables_not_taken"] is None, "it has what it had"


async def test_a_slave_of_rocketmqs_is_told_no_tables_while_it_may_have_what_is_awaited(
    virtual_clock: VirtualClock,
) -> None:
    """It replaced all of its own as soon as another peer had told older ones, and then told what it had been given."""
    master, first, second = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker, second.broker(**OTHER_SLAVE):
        await decided_on(master, broker)
    lose(master)
    tables = [RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG]

    async def codes(machine: Machine) -> set[int]:
        host = machine.net.host(machine.address)
        async with open_remoting_client(SimNetwork(host, host.epoch), "10.0.0.1:10911") as client:
            return {(await ask(client, RemotingCommand(code))).code for code in tables}

    async with first.broker(**SLAVE), master.broker(**MASTER, **PEERS) as broker:
        await trio.sleep(120)
        assert decided(broker) == DECIDED
        assert await codes(second) == {ResponseCode.SYSTEM_BUSY}
        assert await codes(first) == {ResponseCode.SUCCESS}, "all that it knew is here"
        async with master.client() as client:
            marked = {READS_ORIGIN_FIELD: "true"}
            assert (await ask(client, RemotingCommand(tables[0], ext_fields=marked))).code == ResponseCode.SUCCESS
        async with second.broker(**OTHER_SLAVE):
            await trio.sleep(60)
        assert await codes(second) == {ResponseCode.SUCCESS}, "all have told"


async def test_a_slave_that_lacks_tables_tells_none_to_a_slave_of_rocketmqs(virtual_clock: VirtualClock) -> None:
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
        async with first.client() as client:
            answer = await ask(client, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
        assert answer.code == ResponseCode.SUCCESS
    lose(first)
    async with first.broker(**SLAVE | NOBODY):
        await trio.sleep(90)
        async with first.client() as client:
            answer = await ask(client, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "has not had all of its master's topics" in str(answer.remark)
