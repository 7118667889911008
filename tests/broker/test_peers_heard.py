"""Who may know what a broker lacks is asked: where queues end, tables that nothing vouches for, a promoted slave's.

Each case was found by an attacker, with real brokers.
"""

import pytest
import trio

from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError, RemotingError
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.broker.test_pair import SLAVE, status
from tests.broker.test_tables_merged import (
    DECIDED,
    MASTER,
    ONE_PEER,
    OTHER_SLAVE,
    PEERS,
    decide,
    decided,
    decided_on,
    fill,
    lose,
    three_machines,
)
from tests.sim.sim_clock import VirtualClock

LOG = ("/commitlog", "/consumequeue", "/index", "/checkpoint")


async def place_of_next(machine: Machine, topic: str) -> int:
    async with machine.client() as client:
        sent = await ask(client, send_request(b"next", topic=topic))
    assert sent.code == 0, sent.remark
    return int(sent.ext_fields["queueOffset"])


async def test_a_slave_promoted_while_its_master_waits_for_a_peer_asks_that_one(virtual_clock: VirtualClock) -> None:
    """It said nothing of what its master lacked; the other one took over tables in which prohibitions were undone."""
    master, missed, told = three_machines()
    async with told.broker(**OTHER_SLAVE), master.broker(**MASTER) as broker:
        async with missed.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 8)
            await trio.sleep(30)
        decide(broker)
        await trio.sleep(30)
    lose(master)
    async with master.broker(**MASTER, **PEERS), missed.broker(**SLAVE), missed.client() as client:
        await trio.sleep(90)
        assert "had yet to be told by its peers" in str((await status(client))["tables_not_taken"])
    follows = {
        "brokerRole": "SLAVE",
        "brokerId": "2",
        "haMasterAddress": "10.0.0.2:10912",
        "masterAddress": "10.0.0.2:10911",
    }
    async with missed.broker(**MASTER, haPeers="10.0.0.3:10912") as promoted, missed.client() as client:
        await trio.sleep(70)
        assert judge(await status(client)).level == "degraded"
        async with told.broker(**follows) as other:
            await trio.sleep(90)
            assert [decided(promoted), decided(other)] == [DECIDED] * 2


async def test_a_master_that_lost_its_log_alone_asks_where_queues_end(virtual_clock: VirtualClock) -> None:
    """Its own tables were there, so nobody was asked, and positions were given a second time."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER) as broker:
        await decided_on(master, broker)
        slave.metadata.queue_ends.learn({("silent", 0): 3})
        await trio.sleep(30)
    for directory in LOG:
        lose(master, directory)
    async with first.broker(**SLAVE), master.broker(**MASTER, **ONE_PEER) as broker:
        await replication_of(broker).opened.wait()
        assert await place_of_next(master, "silent") == 3


async def test_a_slave_that_lost_its_log_tells_of_a_table_that_its_master_lost(virtual_clock: VirtualClock) -> None:
    """It counted as one that has nothing to tell, as if all of the tables were there.

    Where groups were in messages that it has no more is not told: they have them again.
    """
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    for name in ("consumerOffset.json", "subscriptionGroup.json"):
        lose(master, name)
    for directory in LOG:
        lose(first, directory)
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(120)
        assert [decided(broker), decided(slave)] == [(*DECIDED[:3], 0)] * 2


@pytest.mark.parametrize("lost", [("consumerOffset.json", "tablesOrigin.json"), ("tablesOrigin.json",)])
async def test_tables_that_nothing_vouches_for_are_missed_by_no_slave(
    lost: tuple[str, ...], virtual_clock: VirtualClock
) -> None:
    """What says which tables there were was gone as well, and nobody was asked."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    for name in (*lost, "subscriptionGroup.json"):
        lose(master, name)
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(60)
        assert [decided(broker), decided(slave)] == [DECIDED] * 2


async def test_a_slave_without_offsets_tells_no_group_that_it_has_none_before_its_master_has_told_them(
    virtual_clock: VirtualClock,
) -> None:
    """The group began at the end, and what it committed there stayed beside the master's word."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    lose(first, "consumerOffset.json")
    query = RemotingCommand(
        RequestCode.QUERY_CONSUMER_OFFSET, ext_fields={"consumerGroup": "g", "topic": "t", "queueId": "0"}
    )
    async with first.broker(**SLAVE) as slave:
        await trio.sleep(30)
        async with first.client() as client:
            with pytest.raises(RemotingError):  # any answer would have it begin somewhere
                await ask(client, query)
        with pytest.raises(RemoteProtocolError, match="has yet to be told"):
            slave.offsets.commit_offset("g", "t", 0, offset=8, peer="10.9.9.9:1")
        async with master.broker(**MASTER), first.client() as client:
            await trio.sleep(20)
            answer = await ask(client, query)
            assert (answer.code, answer.ext_fields["offset"]) == (ResponseCode.SUCCESS, "5")
    lose(first, "consumerOffset.json")
    async with first.broker(**SLAVE), first.client() as client:
        await trio.sleep(70)
        assert (await ask(client, query)).code == ResponseCode.SUCCESS, "for a minute at most"


@pytest.mark.parametrize("lost", ["config", ""])
@pytest.mark.parametrize("peers", [ONE_PEER, PEERS])
async def test_a_group_without_a_message_keeps_what_operators_made_when_its_master_loses_that(
    lost: str, peers: dict[str, str], virtual_clock: VirtualClock
) -> None:
    """Of two peers without a message none was asked, and both took over the empty tables."""
    master, first, second = three_machines()
    async with master.broker(**MASTER) as broker, first.broker(**SLAVE), second.broker(**OTHER_SLAVE):
        await trio.sleep(10)
        decide(broker)
        await trio.sleep(30)
    lose(master, lost)
    async with (
        first.broker(**SLAVE) as slave,
        second.broker(**OTHER_SLAVE) as other,
        master.broker(**MASTER, **peers) as broker,
    ):
        await trio.sleep(120)
        kept = (*DECIDED[:3], 0)  # places in an empty queue are none
        assert [decided(each) for each in (broker, slave, other)] == [kept] * 3
