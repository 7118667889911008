"""Ends of transactions that wait are counted, also while a mark is looked for: so many may wait, and no more."""

from collections import Counter
from math import inf

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.processors import end_transaction_processor
from rmqha.broker.puts.internal_puts import InternalPuts, PutMessageResult
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.encoder import PreparedRecord
from tests.broker.machines import Machine
from tests.broker.producers import COMMIT, Half, end_request, producer_of, seen
from tests.broker.test_ends_that_come_again import end_all, few_are_remembered
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import running


async def test_as_many_may_wait_after_marks_were_looked_for_as_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Half of what is free, for one host."""
    monkeypatch.setattr(end_transaction_processor, "WAITING_MAX", 10)
    few_are_remembered(monkeypatch, 8, read=100)
    async with machine.broker() as broker, producer_of(machine) as producer:
        halves = [await producer.prepare(b"%d" % number) for number in range(30)]
        for _ in range(2):
            assert set(await end_all(producer, halves)) == {ResponseCode.SUCCESS}
        assert len(await seen(broker)) == 30, "of most of them nothing but the mark told that they had ended"
        frames = [end_request(await producer.prepare(b"last"), COMMIT) for _ in range(20)]
        for opaque, frame in enumerate(frames):
            frame.opaque = 1000 + opaque
        await producer.stream.send_all(b"".join(frame.encode() for frame in frames))
        with trio.fail_after(60):
            while not {frame.opaque for frame in frames} <= set(producer.answers):
                await producer.heard.wait()
        codes = Counter(producer.answers[frame.opaque].code for frame in frames)
        assert codes == {ResponseCode.SUCCESS: 5, ResponseCode.SYSTEM_BUSY: 15}


async def test_what_ends_while_it_is_written_again_has_a_mark_at_each_of_its_places(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A broker of RocketMQ's that goes on with this store knows a place by its mark alone, and asks about any other."""
    put, ended = InternalPuts.put, list[Half]()
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money")

        async def put_and_end(puts: InternalPuts, record: PreparedRecord, *, wait: bool = True) -> PutMessageResult:
            result = await put(puts, record, wait=wait)
            if record.topic == HALF_TOPIC and not ended:
                ended.append(half)
                assert await end_all(producer, [half]) == [ResponseCode.SUCCESS]
            return result

        monkeypatch.setattr(InternalPuts, "put", put_and_end)
        with trio.fail_after(600):
            while not ended:  # noqa: ASYNC110 - virtual time
                await trio.sleep(1)
        await trio.sleep(1)
        assert [message.body for message in await seen(broker)] == [b"money"]
        assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0", b"1"]


async def test_half_messages_that_come_while_others_are_told_of_are_told_of_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Many may wait, and are told in turns: what came meanwhile was told with the next one that came, or never."""
    told = list[int]()
    async with running(SimDisk().mount()) as store:
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        (*_, arrive) = store.queues.on_arrival

        def on_visible(_is_visible: bool, queue_end: int) -> None:
            told.append(queue_end)
            if len(told) == 50:
                arrive(HALF_TOPIC, 0, 2)

        for place in [*[0] * 100, 1]:
            bridge.when_visible(place, inf, on_visible)
        nursery.start_soon(bridge.run)
        arrive(HALF_TOPIC, 0, 1)
        await trio.sleep(1)
        assert (len(told), told[-1]) == (101, 2)
