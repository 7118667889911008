"""Transactional messages when another broker becomes master, of a DLedger group or a pair, and what it goes by."""

from typing import Any

import pytest
import trio

from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.broker.machines import Machine, send_request
from tests.broker.producers import COMMIT, ROLLBACK, Half, half_request, producer_of, seen
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_pair import SLAVE
from tests.broker.test_slave_synchronize import synchronize_with
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

TIMES: dict[str, Any] = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}


@pytest.mark.parametrize("ending", ["kill", "cut_power"])
async def test_the_next_leader_of_a_group_asks_on(ending: str, virtual_clock: VirtualClock) -> None:
    async with group_of(**TIMES) as group:
        former = await group.wait_master()
        async with producer_of(former) as producer:
            await producer.join()
            done, lost = await producer.prepare(b"done"), await producer.prepare(b"rolled back")
            await producer.prepare(b"pending")
            await producer.end(done, COMMIT)
            await producer.end(lost, ROLLBACK)
            await producer.wait_asked(2)
        getattr(former, ending)()
        leader = await group.wait_master()
        async with producer_of(leader) as producer:
            await producer.join()
            half, message = await producer.wait_asked(1)
            assert message.body == b"pending"
            await producer.end(half, COMMIT)
            await trio.sleep(20)
            assert [message.body for message in await seen(leader.running)] == [b"done", b"pending"]
            assert {message.body for _, message in [await producer.wait_asked(1)]} == {b"pending"}
        await former.start()
        await group.wait_same()


async def test_followers_ask_nobody(virtual_clock: VirtualClock) -> None:
    async with group_of(**TIMES) as group:
        leader = await group.wait_master()
        follower = next(node for node in group.nodes.values() if not node.is_master)
        async with producer_of(leader) as producer, producer_of(follower) as other:
            await producer.prepare(b"pending")
            await other.join()
            await trio.sleep(20)
            assert other.asked == []


async def test_a_slave_that_becomes_master_asks_on(virtual_clock: VirtualClock) -> None:
    net = SimNet()
    master = Machine(net, "10.0.0.1", TIMES)
    slave = Machine(net, "10.0.0.2", TIMES)
    async with master.broker(brokerRole="SYNC_MASTER") as former, slave.broker(**SLAVE) as copy:
        async with producer_of(master) as producer:
            question = send_request(b"is there a slave?", topic="other")
            while (await producer.ask(question)).code:  # noqa: ASYNC110 - asking is how one finds out
                await trio.sleep(0.1)
            await producer.join()
            done, lost = await producer.prepare(b"done"), await producer.prepare(b"rolled back")
            await producer.prepare(b"pending")
            await producer.end(done, COMMIT)
            await producer.end(lost, ROLLBACK)
            await producer.wait_asked(1)
        await trio.sleep(15)  # the slave asks for offsets every ten seconds
        assert copy.store.max_offset == former.store.max_offset
        assert copy.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)
    async with slave.broker() as leader, producer_of(slave) as producer:
        await producer.join()
        half, message = await producer.wait_asked(1)
        assert message.body == b"pending"
        for again in (done, lost, half, half):
            await producer.end(again, COMMIT)
        assert [message.body for message in await seen(leader)] == [b"done", b"pending"]


async def test_without_a_slave_a_producer_rolls_back_and_is_not_asked(virtual_clock: VirtualClock) -> None:
    """As RocketMQ's producers do, which take a half message for sent only if it is SEND_OK."""
    alone = Machine(SimNet(), "10.0.0.1", TIMES)
    async with alone.broker(brokerRole="SYNC_MASTER") as broker, producer_of(alone) as producer:
        await producer.join()
        answer = await producer.ask(half_request(b"money"))
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        sent = decode_send_response(answer)
        half = Half(sent.queue_offset, int(sent.msg_id[-16:], 16))
        ended = await producer.end(half, ROLLBACK)
        assert ended is not None
        assert ended.code == ResponseCode.SUCCESS, ended.remark
        await trio.sleep(30)
        assert producer.asked == []
        assert await seen(broker) == []


async def test_no_client_says_how_far_half_messages_are_dealt_with(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", TIMES)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.prepare(b"pending")
        fields = {"consumerGroup": CONSUMER_GROUP, "topic": HALF_TOPIC, "queueId": "0", "commitOffset": "1"}
        answer = await producer.ask(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert not broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)


async def test_a_slave_that_is_behind_goes_on_before_what_it_lacks(virtual_clock: VirtualClock) -> None:
    """What the master has dealt with it wrote again, beyond the end of the slave's log."""
    net = SimNet()
    lonely = Machine(net, "10.0.0.2", SLAVE | {"haMasterAddress": "10.0.0.9:10912"})
    async with Machine(net, "10.0.0.1").broker() as master, lonely.broker() as behind:
        async with producer_of(Machine(net, "10.0.0.1")) as producer:
            await producer.prepare(b"pending")
        master.offsets.commit_offset(CONSUMER_GROUP, HALF_TOPIC, 0, offset=1)
        master.offsets.commit_offset("group", "t", 0, offset=1)
        with trio.move_on_after(60):
            await synchronize_with(net, "10.0.0.3", behind).run("10.0.0.1:10911")
        assert behind.offsets.query_offset("group", "t", 0) == 1
        assert behind.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) is None
