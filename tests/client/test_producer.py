"""Producer against a fake broker behind the real server, over the in-memory network."""

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.client import Message, Producer, ProducerOptions, SendResult, SendStatus, open_producer
from rmqha.codec.codes import RequestCode
from rmqha.codec.route import PERM_READ
from rmqha.codec.usual.sends import Request
from rmqha.errors import (
    MQBrokerError,
    MQClientError,
    NoRouteError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
)
from rmqha.remoting.connection import Connection
from tests.client.fake_broker import FakeBroker
from tests.fakes import MemoryNetwork

NOW_MS = 1_763_700_000_000


@asynccontextmanager
async def running(
    *brokers: FakeBroker, addresses: str | None = None, **options: Any
) -> AsyncIterator[tuple[Producer, trio.Nursery, MemoryNetwork]]:
    network = MemoryNetwork()
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            for broker in brokers:
                nursery.start_soon(broker.run, network)
            await trio.testing.wait_all_tasks_blocked()
            async with open_producer(
                addresses or ";".join(broker.address for broker in brokers),
                network=network,
                options=ProducerOptions(**options),
                now_ms=lambda: NOW_MS,
            ) as producer:
                yield producer, nursery, network
            nursery.cancel_scope.cancel()


async def test_a_message_is_stored_as_it_was_meant(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        message = Message(
            "T", b"hello", tags="TagA", keys=["k1", "k2"], properties={"colour": "blå"}, flag=-7, delay_level=3
        )
        result = await producer.send(message)
        (stored,) = broker.messages("T", result.queue.queue_id)
        assert result.status is SendStatus.SEND_OK
        assert result.is_ok
        assert result.offset_msg_id == stored.offset_msg_id
        assert result.msg_id == stored.msg_id
        assert result.queue_offset == 0
        assert (stored.body, stored.flag, stored.sys_flag) == (b"hello", -7, 0)
        assert stored.properties == {
            "UNIQ_KEY": result.msg_id, "WAIT": "true", "TAGS": "TagA", "KEYS": "k1 k2", "DELAY": "3", "colour": "blå",
        }  # fmt: skip


async def test_a_new_topic_gets_as_many_queues_as_the_producer_asks_for(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        results = [await producer.send(Message("T", b"x")) for _ in range(8)]
        assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        chosen = (await producer.queues("T"))[2]
        assert (await producer.send(Message("T", b"x"), queue=chosen)).queue == chosen
        with pytest.raises(MQClientError, match="has no queue 9"):
            await producer.send(Message("T", b"x"), queue=chosen._replace(queue_id=9))


async def test_only_queues_that_may_be_written_are_sent_to(autojump_clock: MockClock) -> None:
    some, none = FakeBroker("a", 1), FakeBroker("b", 2)
    some.topics["T"] = none.topics["T"] = 8
    some.write_queue_nums = 2
    none.perm = 4
    async with running(some, none) as (producer, _, _network):
        queues = await producer.queues("T")
        assert [(queue.broker_name, queue.queue_id) for queue in queues] == [("a", 0), ("a", 1)]


async def test_a_broker_that_refuses_a_route_keeps_no_topic_from_being_made_by_another(
    autojump_clock: MockClock,
) -> None:
    strict, open_one = FakeBroker("a", 1), FakeBroker("b", 2)
    strict.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: strict.refuse())
    async with running(strict, open_one) as (producer, _, _network):
        assert (await producer.send(Message("T", b"x"))).queue.broker_name == "b"


async def test_sends_that_begin_together_share_one_connection(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, network):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(producer.send, Message("T", b"x"))
        assert len(broker.sent) == 5
        assert len(network.connections) == 1


async def test_without_a_route_nothing_is_sent(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.auto_create = False
    async with running(broker) as (producer, _, _network):
        with pytest.raises(NoRouteError, match=r"does not know topic T: .* no broker known there makes topics"):
            await producer.send(Message("T", b"x"))
    slave = FakeBroker(slave=True)
    slave.topics["T"] = 4
    async with running(slave) as (producer, _, _network):
        with pytest.raises(NoRouteError, match="no master"):
            await producer.send(Message("T", b"x"))
    readable = FakeBroker()
    readable.topics["T"], readable.perm = 4, PERM_READ
    async with running(readable) as (producer, _, _network):
        with pytest.raises(NoRouteError, match="topic T may not be sent to: its permission is without w"):
            await producer.send(Message("T", b"x"))
    async with running(addresses="10.0.0.1:1;10.0.0.1:2") as (producer, _, _network):
        with pytest.raises(RemotingConnectError) as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.retryable


@pytest.mark.parametrize(
    ("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
async def test_stored_but_not_safe_is_a_result(code: int, status: str, autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.answers = [code]
    async with running(broker) as (producer, _, _network):
        result = await producer.send(Message("T", b"x"))
        assert result.status.name == status
        assert not result.is_ok
        assert result.offset_msg_id


@pytest.mark.parametrize(
    ("code", "retryable"), [(1, True), (13, False), (14, True), (2, True), (26, False), (999, False)]
)
async def test_a_refusal_says_whether_to_try_again(code: int, retryable: bool, autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.answers = [code] * 3
    async with running(broker) as (producer, _, _network):
        with pytest.raises(MQBrokerError, match="because") as caught:
            await producer.send(Message("T", b"x"), retries=2)
        assert (caught.value.code, caught.value.retryable) == (code, retryable)
        assert len(broker.sent) == (3 if retryable else 1)


async def test_an_address_that_never_answers_holds_one_send_up(autojump_clock: MockClock) -> None:
    good, dead = FakeBroker("a", 1), FakeBroker("b", 2)
    good.topics["T"] = dead.topics["T"] = 1
    dead.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: None)
    async with running(good, dead) as (producer, _, _network):
        with pytest.raises(RemotingConnectError, match="nothing was sent"):
            await producer.send(Message("new", b"x"), timeout_s=1)
        assert (await producer.send(Message("T", b"x"), timeout_s=1)).is_ok
        assert (await producer.send(Message("new", b"x"))).is_ok
        for _ in range(5):
            await trio.sleep(31)
            begun_at = trio.current_time()
            await producer.send(Message("T", b"x"))
            assert trio.current_time() == pytest.approx(begun_at)
        dead.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, dead.route)
        for _ in range(4):
            await trio.sleep(31)
            await producer.send(Message("T", b"x"))
            await producer.send(Message("T", b"x"))
        assert dead.sent


async def test_a_retry_goes_to_another_broker_with_the_same_id(autojump_clock: MockClock) -> None:
    bad, good = FakeBroker("a", 1), FakeBroker("b", 2)
    bad.topics["T"] = good.topics["T"] = 2
    bad.answers = [14] * 10
    async with running(bad, good) as (producer, _, _network):
        results = [await producer.send(Message("T", b"x"), retries=1) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"b"}
        assert 1 <= len(bad.sent) <= 3
        assert bad.sent[0].ext_fields["i"] in {request.ext_fields["i"] for request in good.sent}


async def test_no_answer_is_a_timeout_and_all_tries_share_one_time(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.silent = True
    async with running(broker) as (producer, _, _network):
        with pytest.raises(RemotingTimeoutError):
            await producer.send(Message("T", b"x"), timeout_s=5, retries=3)
        assert trio.current_time() == pytest.approx(5)
        assert len(broker.sent) == 1


async def test_a_cancelled_send_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, network):
        await producer.send(Message("T", b"x"))
        broker.silent = True
        with trio.move_on_after(1) as scope:
            await producer.send(Message("T", b"x"), timeout_s=inf)
        assert scope.cancelled_caught
        broker.silent, connections = False, len(network.connections)
        await trio.sleep(101)
        await producer.send(Message("T", b"x"))
        assert len(network.connections) > connections, "nothing is in flight on the old one: it is given up when idle"


async def test_the_third_try_may_go_to_the_broker_of_the_first(autojump_clock: MockClock) -> None:
    brokers = FakeBroker("a", 1), FakeBroker("b", 2)
    answers: list[int] = []
    for broker in brokers:
        broker.topics["T"] = 1
        broker.answers = answers
    async with running(*brokers) as (producer, _, _network):
        first = (await producer.send(Message("T", b"x"))).queue
    answers += [14, 14]
    async with running(*brokers) as (producer, _, _network):
        assert (await producer.send(Message("T", b"x"), retries=2)).queue == first


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_broker_that_was_moved_is_found_by_the_send_after_the_one_that_failed(
    is_asked: bool, piped: bool, autojump_clock: MockClock
) -> None:
    here, there = FakeBroker(port=1), FakeBroker(port=2)
    there.topics["T"] = 4
    async with running(here, addresses=f"{here.address};{there.address}") as (producer, nursery, network):

        async def send() -> object:
            if not piped:
                return await producer.send(Message("T", b"x"))
            pipeline = producer.pipeline()
            (outcome,) = await pipeline.send(Message("T", b"x")) or await pipeline.finish()
            if isinstance(outcome, RemotingError):
                raise outcome
            return outcome

        await send()
        if is_asked:
            here.silent = True
            nursery.start_soon(here.die)
        else:
            await here.die()
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RemotingError):
            await send()
        nursery.start_soon(there.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(await send(), SendResult)


async def test_a_oneway_message_finds_a_broker_that_was_moved_after_one_that_failed(autojump_clock: MockClock) -> None:
    """No answer ever puts the route in doubt: that nobody listens there any more does."""
    here, there = FakeBroker(port=1), FakeBroker(port=2)
    there.topics["T"] = 4
    async with running(here, addresses=f"{here.address};{there.address}") as (producer, nursery, network):
        (queue, *_) = await producer.queues("T")
        await here.die()
        nursery.start_soon(there.run, network)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RemotingError):
            await producer.send_oneway(Message("T", b"x"), queue=queue)
        for chosen in (None, queue):
            await producer.send_oneway(Message("T", b"x"), queue=chosen)
        await trio.testing.wait_all_tasks_blocked()
        assert [int(request.ext_fields["e"]) for request in there.sent][-1] == queue.queue_id


async def test_a_send_that_waits_for_long_keeps_its_connection(autojump_clock: MockClock) -> None:
    """Though nothing was asked on it for as long as brokers tolerate of one that waits for nothing."""
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        await producer.send(Message("T", b"x"))
        broker.silent = True
        pipeline = producer.pipeline(timeout_s=115)
        await pipeline.send(Message("T", b"x"))
        await trio.sleep(110)
        broker.silent = False
        assert (await producer.send(Message("T", b"x"))).is_ok
        assert [type(outcome) for outcome in await pipeline.finish()] == [RemotingTimeoutError]
        assert trio.current_time() == pytest.approx(115)


async def test_oneway_messages_wait_for_a_broker_that_takes_none(autojump_clock: MockClock) -> None:
    """Nothing answers them, so nothing else would keep them from filling the producer's memory."""
    broker, sent = FakeBroker(), 0
    async with running(broker) as (producer, _, _network):
        broker.silent = True  # and reads no more once it holds 64 MiB of requests
        with trio.move_on_after(1):
            while sent < 100:
                await producer.send_oneway(Message("T", bytes(1 << 20)))
                sent += 1
        assert 64 < sent < 80


async def test_after_a_lost_connection_the_next_send_connects_again(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, nursery, network):
        await producer.send(Message("T", b"x"))
        broker.silent = True
        async with trio.open_nursery() as inner:
            inner.start_soon(broker.die)
            with pytest.raises(RemotingSendRequestError):
                await producer.send(Message("T", b"x"))
        with pytest.raises(RemotingConnectError):
            await producer.send(Message("T", b"x"))
        reborn = FakeBroker(log=broker.log)
        nursery.start_soon(reborn.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert (await producer.send(Message("T", b"x"))).is_ok


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("", b"x"), "topic is empty"),
        (Message("a b", b"x"), "may only hold"),
        (Message("T", b""), "body is empty"),
        (Message("T", "text"), "the body is str, not bytes"),  # type: ignore[arg-type]
        (Message("T", bytes(4 * 1024 * 1024 + 1)), "at most 4194304"),
        (Message("T", b"x", flag=1 << 31), "int32"),
        (Message("T", b"x", delay_level=19), "delay level"),
        (Message("T", b"x", tags="a\x01b"), "U\\+0001"),
        (Message("T", b"x", keys="a\x02b"), "U\\+0001"),
        (Message("T", b"x", properties={"": "x"}), "empty"),
        (Message("T", b"x", properties={"x": ""}), "empty"),
        (Message("T", b"x", properties={"DELAY": "3"}), "RocketMQ's own"),
        (Message("T", b"x", properties={"x": "y" * 40000}), "at most 32767"),
        (Message("T", b"x", tags="\ud800"), "UTF-8"),
    ],
)
async def test_what_no_broker_takes_is_not_sent(message: Message, reason: str, autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        with pytest.raises(MQClientError, match=reason):
            await producer.send(message)
        assert not broker.sent


async def test_a_large_body_is_compressed_if_asked_for(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker, compress_over_bytes=4096) as (producer, _, _network):
        small = await producer.send(Message("T", b"x" * 4095))
        large = await producer.send(Message("T", b"x" * 4096))
        (stored,) = broker.messages("T", small.queue.queue_id)
        assert stored.sys_flag == 0
        (stored,) = broker.messages("T", large.queue.queue_id)
        assert stored.sys_flag == 769
        assert zlib.decompress(stored.body) == b"x" * 4096


async def test_a_batch_is_stored_in_order_in_one_queue(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        result = await producer.send_batch([Message("T", b"%d" % n, tags=f"t{n}") for n in range(3)])
        stored = broker.messages("T", result.queue.queue_id)
        assert [message.body for message in stored] == [b"0", b"1", b"2"]
        assert result.msg_id.split(",") == [message.msg_id for message in stored]
        assert result.offset_msg_id.split(",") == [message.offset_msg_id for message in stored]
        assert [message.properties["TAGS"] for message in stored] == ["t0", "t1", "t2"]
        for batch, reason in (
            ([], "without messages"),
            ([Message("T", b"x"), Message("U", b"x")], "one topic"),
            ([Message("T", b"x"), Message("T", b"x", wait_store_msg_ok=False)], "one wait_store_msg_ok"),
            ([Message("T", b"x", delay_level=1)], "delayed"),
            ([Message("%RETRY%G", b"x")], "retry"),
            ([Message("T", bytes(3 << 20))] * 2, "a batch of"),
        ):
            with pytest.raises(MQClientError, match=reason):
                await producer.send_batch(batch)


async def test_where_a_message_lies_is_what_the_broker_says(autojump_clock: MockClock) -> None:
    broker = FakeBroker()

    def store_in_queue_3(connection: Connection, requests: list[Request]) -> None:
        for request in requests:
            fields = {"msgId": "id", "queueId": "3", "queueOffset": "7"}
            connection.respond(request, 0, ext_fields=fields)

    broker.register_batch([RequestCode.SEND_MESSAGE_V2], store_in_queue_3)
    async with running(broker) as (producer, _, _network):
        first, *_ = await producer.queues("T")
        result = await producer.send(Message("T", b"x"), queue=first)
        assert (result.queue, result.queue_offset) == (first._replace(queue_id=3), 7)


async def test_a_oneway_message_is_sent_and_not_answered(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        await producer.send_oneway(Message("T", b"x"))
        await trio.testing.wait_all_tasks_blocked()
        assert broker.sent[0].is_oneway


async def test_a_pipeline_yields_one_outcome_for_each_message_in_order(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.answers = [0, 14, 0, 12]
    async with running(broker) as (producer, _, network):
        messages = [Message("T", b"%d" % n) for n in range(500)]
        messages[7] = Message("T", b"")
        outcomes = [outcome async for outcome in producer.send_many(messages, window=50)]
        assert len(outcomes) == 500
        bodies = {message.msg_id: message.body for queue in range(4) for message in broker.messages("T", queue)}
        for n, outcome in enumerate(outcomes):
            if n == 1:
                assert isinstance(outcome, MQBrokerError)
            elif n == 7:
                assert isinstance(outcome, MQClientError)
            else:
                assert isinstance(outcome, SendResult)
                assert outcome.status is (SendStatus.FLUSH_SLAVE_TIMEOUT if n == 3 else SendStatus.SEND_OK)
                assert bodies[outcome.msg_id] == b"%d" % n
        assert len({outcome.msg_id for outcome in outcomes if isinstance(outcome, SendResult)}) == 498
        assert len(network.connections) == 1


async def test_a_pipeline_keeps_its_window(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        await producer.send(Message("T", b"x"))
        broker.silent = True
        broker.sent.clear()
        pipeline = producer.pipeline(window=10, timeout_s=3)
        with trio.move_on_after(2):
            for _ in range(20):
                assert await pipeline.send(Message("T", b"x")) == []
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.sent) == 10
        outcomes = await pipeline.finish()
        assert [type(outcome) for outcome in outcomes] == [RemotingTimeoutError] * 10
        assert trio.current_time() == pytest.approx(3)


async def test_a_pipeline_holds_little_that_the_network_does_not_take(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, network):
        await producer.send(Message("T", b"x"))
        network.connections[0].outgoing.capacity = 0
        sent = 0
        pipeline = producer.pipeline(window=1000, timeout_s=5)
        with trio.move_on_after(1):
            for _ in range(100):
                await pipeline.send(Message("T", bytes(1 << 20)))
                sent += 1
        assert 1 <= sent <= 6


async def test_a_pipeline_survives_the_loss_of_its_connection(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, nursery, network):
        outcomes: list[Any] = []
        async with producer.pipeline(window=100) as pipeline:
            for n in range(60):
                outcomes += await pipeline.send(Message("T", b"%d" % n))
                if n == 29:
                    outcomes += await pipeline.finish()
                    broker.silent = True
                if n == 40:
                    await broker.die()
                    await trio.testing.wait_all_tasks_blocked()
                    broker = FakeBroker(log=broker.log)
                    nursery.start_soon(broker.run, network)
                    await trio.testing.wait_all_tasks_blocked()
        outcomes += pipeline.take()
        assert len(outcomes) == 60
        good = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, SendResult)]
        assert set(range(30)) <= set(good)
        assert set(range(41, 60)) - set(good) <= {41}
        assert all(isinstance(outcomes[n], RemotingError) for n in set(range(60)) - set(good))


async def test_a_pipeline_sends_as_soon_as_its_task_waits_for_anything(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        pipeline = producer.pipeline(window=1000, timeout_s=2)
        outcomes = []
        for _ in range(3):
            outcomes += await pipeline.send(Message("T", b"x"))
            await trio.sleep(60)
        outcomes += pipeline.take()
        assert [type(outcome) for outcome in outcomes] == [SendResult] * 3


async def test_a_send_that_is_cancelled_or_raises_leaves_nothing_to_wait_for(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with running(broker) as (producer, _, _network):
        pipeline = producer.pipeline()
        with trio.CancelScope() as scope:
            scope.cancel()
            await pipeline.send(Message("T", b"cancelled while it connects"))
        with pytest.raises(TypeError):
            await pipeline.send(Message("T", b"x", keys=4711))  # type: ignore[arg-type]
        assert await pipeline.send(Message("T", b"x")) == []
        (outcome,) = await pipeline.finish()
        assert isinstance(outcome, SendResult)
        assert len(broker.sent) == 1


async def test_a_finish_that_is_cancelled_loses_no_outcome(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    broker.silent = True
    async with running(broker) as (producer, _, _network):
        pipeline = producer.pipeline(timeout_s=10)
        await pipeline.send(Message("T", b"times out"))
        await trio.sleep(4)
        await pipeline.send(Message("T", b"times out 4 s later"))
        with trio.move_on_after(8):
            await pipeline.finish()
        assert [type(outcome) for outcome in await pipeline.finish()] == [RemotingTimeoutError] * 2


async def test_a_pipeline_waits_for_an_earlier_send_though_the_last_one_is_answered(autojump_clock: MockClock) -> None:
    slow, quick = FakeBroker(), FakeBroker("broker-b", 10921)
    slow.topics["T"] = quick.topics["T"] = 1
    slow.silent = True
    async with running(slow, quick) as (producer, _, _network), producer.pipeline(timeout_s=2) as pipeline:
        outcomes: list[object] = []
        for _ in range(3):
            outcomes += await pipeline.send(Message("T", b"x"))
        outcomes += await pipeline.finish()
        assert [isinstance(outcome, SendResult) for outcome in outcomes] == [True, False, True]


async def test_a_broker_that_goes_and_comes_back_is_found_each_time(autojump_clock: MockClock) -> None:
    """Its address is asked in the background, as the other one tells the topic's route."""
    stays, goes = FakeBroker(), FakeBroker("broker-b", 10921)
    stays.topics["T"] = goes.topics["T"] = 1
    async with running(stays, goes) as (producer, nursery, network):
        for _ in range(3):
            assert len(await producer.queues("T")) == 2
            await goes.die()
            for _ in range(2):
                await trio.sleep(31)
                assert len(await producer.queues("T")) == 1
            goes = FakeBroker("broker-b", 10921)
            goes.topics["T"] = 1
            nursery.start_soon(goes.run, network)
            await trio.sleep(31)


async def test_a_window_that_lets_nothing_out_is_refused(autojump_clock: MockClock) -> None:
    async with running(FakeBroker()) as (producer, _, _network):
        with pytest.raises(MQClientError, match="window of 0"):
            producer.pipeline(window=0)
