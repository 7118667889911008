"""How far rounds over half messages are is saved when replicas have what they wrote, and only what the log holds."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.puts.internal_puts import InternalPuts, PutMessageResult
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC, OP_TOPIC
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.replication.role import RoleKind
from tests.broker.machines import Machine
from tests.broker.producers import COMMIT, producer_of, seen
from tests.sim.sim_net import SimNet

TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}


async def test_a_half_message_is_not_passed_while_only_this_log_has_it_again(autojump_clock: MockClock) -> None:
    """The replica that is made master would go on behind it, and hold no other: nobody would be asked any more."""
    machine = Machine(SimNet(), "10.0.0.1", TIMES)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"money")
        await seen(broker)
        end, replicas = broker.store.max_offset, [broker.store.max_offset]
        broker.store.parts.confirm_offset.limit_to(lambda: replicas[0])
        await trio.sleep(60)
        assert broker.store.max_offset > end, "it was written again"
        assert broker.store.flushed_offset == broker.store.max_offset
        assert not broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)
        replicas[0] = broker.store.max_offset + 1_000_000
        await trio.sleep(60)
        assert broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)


async def test_an_offset_behind_the_end_of_the_queue_passes_nothing(autojump_clock: MockClock) -> None:
    """As a slave it was told how far its master was, whose log was longer: what comes to these places now is new."""
    machine = Machine(SimNet(), "10.0.0.1", TIMES)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.end(await producer.prepare(b"before"), COMMIT)
        await trio.sleep(10)
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        broker.offsets.commit_offset(CONSUMER_GROUP, HALF_TOPIC, 0, offset=100)
        broker.role.become(RoleKind.MASTER, term=2)
        await producer.join()
        await producer.prepare(b"new")
        half, message = await producer.wait_asked(1)
        assert message.body == b"new"
        await producer.end(half, COMMIT)
        assert [one.body for one in await seen(broker)] == [b"before", b"new"]


async def test_no_mark_is_passed_before_its_half_message_is(autojump_clock: MockClock) -> None:
    """RocketMQ's brokers read marks from the saved offset on alone: they would ask about what has ended."""
    machine = Machine(SimNet(), "10.0.0.1", TIMES | {"transactionTimeOut": "60000"})
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"waits")
        await producer.end(await producer.prepare(b"done"), COMMIT)
        await trio.sleep(30)
        assert not broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)
        assert not broker.offsets.query_offset(CONSUMER_GROUP, OP_TOPIC, 0)
        await trio.sleep(60)
        assert (broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) or 0) >= 2
        assert broker.offsets.query_offset(CONSUMER_GROUP, OP_TOPIC, 0) == 1


async def test_what_ends_while_it_is_written_again_has_a_mark_at_its_new_place(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """RocketMQ's brokers, and one whose log begins behind the first place, know it by no other."""
    machine = Machine(SimNet(), "10.0.0.1", TIMES)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half = await producer.prepare(b"money")
        put = InternalPuts.put

        async def put_and_end(puts: InternalPuts, record: PreparedRecord, *, wait: bool) -> PutMessageResult:
            result = await put(puts, record, wait=wait)
            if record.topic == HALF_TOPIC:
                await producer.end(half, COMMIT)
            return result

        monkeypatch.setattr(InternalPuts, "put", put_and_end)
        await trio.sleep(20)
        assert [one.body for one in await seen(broker)] == [b"money"]
        assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0", b"1"]
