"""What RocketMQ stores and rmqha takes from nobody: it is in logs that a broker here goes on with."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.record import encoder
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.codec.send_back_header import ConsumerSendMsgBackRequestHeader
from rmqha.store.stopped_queues import StoppedQueue
from tests.broker.machines import Machine, ask, send_request
from tests.broker.producers import COMMIT, producer_of, seen
from tests.sim.sim_net import SimNet

RARELY: dict[str, Any] = {"transactionCheckInterval": "600000"}
NUL = "KEYS\x01a\0b"


async def test_a_nul_character_in_properties_keeps_no_message_from_its_consumers(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed one was left out, a half message thrown away, and none could be sent back."""
    machine = Machine(SimNet(), "10.0.0.1", RARELY)
    with monkeypatch.context() as rocketmq:
        rocketmq.setattr(encoder, "check_properties", lambda _properties: None)
        async with machine.broker(messageDelayLevel="20s"), producer_of(machine) as producer:
            half = await producer.prepare(b"money", properties=NUL)
            await producer.ask(send_request(b"delayed", topic="t", properties=f"{NUL}\x02DELAY\x011"))
            sent = await producer.ask(send_request(b"plain", topic="t", properties=NUL))
            offset = int(decode_send_response(sent).msg_id[-16:], 16)
    async with machine.broker(messageDelayLevel="20s") as broker, producer_of(machine) as producer:
        await producer.join()
        back = encode_header(ConsumerSendMsgBackRequestHeader(offset, "readers", -1))
        answer = await producer.ask(RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=back))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        ended = await producer.end(half, COMMIT)
        assert ended is not None
        assert ended.code == ResponseCode.SUCCESS, ended.remark
        await trio.sleep(30)
        messages = await seen(broker)
        assert sorted(message.body for message in messages) == [b"delayed", b"money", b"plain"]
        assert {message.properties["KEYS"] for message in messages} == {"a\0b", "a b"}
        assert [message.body for message in await seen(broker, topic="%DLQ%readers")] == [b"plain"]


async def test_half_messages_are_put_aside_though_their_queue_has_stopped(autojump_clock: MockClock) -> None:
    """The first one that was to be put aside there ended all questions, and no line said so."""
    times = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000", "transactionCheckMax": "2"}
    machine = Machine(SimNet(), "10.0.0.1", times)
    with trio.CancelScope() as life:
        async with machine.broker() as broker, producer_of(machine) as producer:
            await producer.join()
            await producer.prepare(b"never ended")
            await trio.sleep(20)
            await producer.beat()
            stopped = StoppedQueue(1, 7, 100, 100, next=8, last=100)
            broker.store.queues.stopped[CHECK_MAX_TIME_TOPIC, 0] = stopped
            await producer.prepare(b"nor this one")
            await trio.sleep(20)
            await producer.beat()
            producer.asked.clear()
            await producer.prepare(b"later")
            await trio.sleep(20)
            _, message = await producer.wait_asked(1)
            assert message.body == b"later"
            aside = [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC, queue_id=1)]
            assert aside[:1] == [b"nor this one"]
            life.cancel()
            await trio.sleep_forever()


async def test_so_are_dead_letters(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    with trio.CancelScope() as life:
        async with machine.broker() as broker, machine.client() as client:
            offset = int(decode_send_response(await ask(client, send_request(b"x", topic="t"))).msg_id[-16:], 16)
            await trio.sleep(20)
            back = encode_header(ConsumerSendMsgBackRequestHeader(offset, "readers", -1))
            request = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=back)
            answer = await ask(client, request)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            await trio.sleep(20)
            broker.store.queues.stopped["%DLQ%readers", 0] = StoppedQueue(1, 7, 100, 100, next=8, last=100)
            answer = await ask(client, request)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            await trio.sleep(20)
            assert [dead.body for dead in await seen(broker, topic="%DLQ%readers", queue_id=1)] == [b"x"]
            life.cancel()
            await trio.sleep_forever()
