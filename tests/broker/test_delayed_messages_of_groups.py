"""Delayed messages when another broker becomes master, of a group or of a pair: none is lost (#2259, #3617)."""

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.replication.role import RoleKind
from tests.broker.dledger_brokers import Node
from tests.broker.machines import Machine, ask, send_request
from tests.broker.producers import seen
from tests.broker.test_dledger_broker import asked, group_of
from tests.broker.test_pair import SLAVE
from tests.broker.test_quorum_broker import Node as QuorumNode
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet
from tests.store.helpers import message
from tests.store.sparse_log import GAP


def delayed(body: bytes, level: int) -> RemotingCommand:
    return send_request(body, properties=f"DELAY\x01{level}")


async def delivered(broker: BrokerController) -> list[bytes]:
    return [message.body for message in await seen(broker)]


async def send(node: Node, *requests: RemotingCommand) -> None:
    for request in requests:
        assert (await asked(node, request)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("ending", ["kill", "cut_power"])
@pytest.mark.parametrize("after_s", [0.3, 1.0, 1.2, 4.0, 30.0])
async def test_the_next_leader_of_a_group_delivers_on(ending: str, after_s: float, virtual_clock: VirtualClock) -> None:
    bodies = {b"%d" % number for number in range(9)}
    async with group_of(messageDelayLevel="1s 2s 10s") as group:
        former = await group.wait_master()
        await send(former, *(delayed(body, int(body) % 3 + 1) for body in sorted(bodies)))
        await trio.sleep(after_s)
        getattr(former, ending)()
        leader = await group.wait_master()
        await trio.sleep(15)
        came = await delivered(leader.running)
        assert {*came} == bodies
        if after_s == 30.0:
            assert len(came) == len(bodies), "its offsets were known everywhere"
        await former.start()
        await group.wait_same()
        await leader.stop()
        await (await group.wait_master()).group.wait(lambda: True)
        await trio.sleep(15)
        assert {*await delivered((await group.wait_master()).running)} == bodies


async def test_followers_deliver_nothing(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        leader = await group.wait_master()
        await send(leader, delayed(b"x", 1))
        await trio.sleep(30)
        await group.wait_same()
        for node in group.nodes.values():
            assert await delivered(node.running) == [b"x"]


async def test_what_an_election_cuts_away_was_not_delivered(virtual_clock: VirtualClock) -> None:
    """The leader put it, but no majority ever had it; the bytes that come to lie in its place deliver nothing."""
    node = QuorumNode()
    async with node.broker() as (broker, quorum, client), trio.open_nursery() as nursery:
        await quorum.elect(RoleKind.MASTER, term=1)
        nursery.start_soon(ask, client, delayed(b"x", 1))
        await trio.sleep(0.1)
        await quorum.commit()
        await trio.sleep(2)
        put_to = broker.store.max_offset
        assert put_to > broker.store.confirm_offset(), "it was put"
        await quorum.elect(RoleKind.SLAVE, term=2)
        assert broker.store.max_offset < put_to, "it is cut away"
        offset = broker.store.max_offset + GAP
        record = message(bytes(500), queue_id=7).pack(queue_offset=0, physical_offset=offset, store_timestamp_ms=1)
        broker.store.append_raw(bytes(GAP) + record, broker.store.max_offset)
        await quorum.commit()
        assert broker.store.confirm_offset() > put_to, "its place has other bytes now, which stay"
        await trio.sleep(10)
        await quorum.elect(RoleKind.MASTER, term=3)
        await trio.sleep(2)
        await quorum.commit()
        await trio.sleep(1)
        assert await delivered(broker) == [b"x"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("followed_s", [3.0, 40.0])
async def test_a_slave_that_becomes_master_delivers_on(followed_s: float, virtual_clock: VirtualClock) -> None:
    net = SimNet()
    master, slave = Machine(net, "10.0.0.1"), Machine(net, "10.0.0.2")
    async with (
        master.broker(brokerRole="SYNC_MASTER") as former,
        slave.broker(**SLAVE) as copy,
        master.client() as client,
    ):
        while (await ask(client, send_request(b"is there a slave?", topic="other"))).code:  # noqa: ASYNC110
            await trio.sleep(0.1)
        for level in (1, 1, 2, 6):
            assert (await ask(client, delayed(b"%d" % level, level))).code == ResponseCode.SUCCESS
        await trio.sleep(followed_s)
        assert copy.store.max_offset == former.store.max_offset
        assert copy.metadata.delay_offsets.offset_of(1) == (2 if followed_s > 30 else 0)
    async with slave.broker(brokerRole="ASYNC_MASTER", brokerId="0") as leader:
        await trio.sleep(130)
        came = await delivered(leader)
        assert {*came} == {b"1", b"2", b"6"}
        if followed_s > 30:
            assert sorted(came) == [b"1", b"1", b"2", b"6"]
