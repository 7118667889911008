"""An operator asks consumers by the broker: what they answer comes back, and silence costs nobody else anything."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.processors import call_consumer_processor
from rmqha.broker.processors.call_consumer_processor import CALLS_MAX, CallConsumerProcessor
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.consumer_status import decode_consumer_status
from rmqha.codec.heartbeat import ConsumerData
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.group_members import Member, member_of
from tests.broker.machines import Machine, send_request


@pytest.fixture
async def operator(machine: Machine, broker: BrokerController) -> AsyncIterator[Member]:
    async with member_of(machine, "operator") as member:
        yield member


@pytest.fixture
async def consumer(machine: Machine, broker: BrokerController) -> AsyncIterator[Member]:
    async with member_of(machine, "c") as member:
        await member.heartbeat("g")
        yield member


def running_info(client_id: str = "c", **fields: str) -> RemotingCommand:
    ext_fields = {"consumerGroup": "g", "clientId": client_id, **fields}
    return RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=ext_fields)


async def test_what_a_consumer_answers_is_handed_on(
    operator: Member, consumer: Member, autojump_clock: MockClock
) -> None:
    consumer.answer = RemotingCommand(0, ext_fields={"a": "b"}, body=b"{}", version=317)
    signed = {
        "AccessKey": "a",
        "SecurityToken": "t",
        "Signature": "s",
    }  # with it one could ask as the operator
    answer = await operator.ask(running_info(jstackEnable="true", **signed))
    assert (answer.code, answer.ext_fields, bytes(answer.body)) == (ResponseCode.SUCCESS, {"a": "b"}, b"{}")
    (question,) = consumer.asked
    assert question.ext_fields == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}
    consumer.answer = RemotingCommand(1, remark="no")
    refused = await operator.ask(running_info())
    assert (refused.code, refused.remark) == (1, "no")


async def test_who_is_not_there_too_old_or_silent_is_told_of(
    operator: Member, consumer: Member, autojump_clock: MockClock
) -> None:
    absent = await operator.ask(running_info("other"))
    assert (absent.code, "not online" in (absent.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert (await operator.ask(running_info())).code == ResponseCode.CONSUME_MSG_TIMEOUT
    await consumer.heartbeat("g", version=61)
    assert "too low" in ((await operator.ask(running_info())).remark or "")


async def test_a_consumer_that_leaves_answers_no_more(
    operator: Member, machine: Machine, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "c") as consumer:
        await consumer.heartbeat("g")
        begun_at = trio.current_time()
        nursery.start_soon(close_soon, consumer)
        answer = await operator.ask(running_info())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert trio.current_time() < begun_at + 5


async def close_soon(member: Member) -> None:
    await trio.sleep(1)
    member.stream.send_eof()


async def test_a_consumer_is_given_one_message(operator: Member, consumer: Member, autojump_clock: MockClock) -> None:
    sent = await operator.ask(send_request(b"hello"))
    await trio.sleep(20)
    consumer.answer = RemotingCommand(0, body=b'{"consumeResult":"CR_SUCCESS"}')
    fields = {"consumerGroup": "g", "clientId": "c", "msgId": sent.ext_fields["msgId"]}
    signed = {"AccessKey": "a", "SecurityToken": "t", "Signature": "s"}
    answer = await operator.ask(RemotingCommand(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields=fields | signed))
    assert answer.code == ResponseCode.SUCCESS
    (question,) = consumer.asked
    assert (decode_message(question.body, 0).body, question.ext_fields) == (
        b"hello",
        fields | {"brokerName": "broker-a"},
    )
    fields["msgId"] = fields["msgId"][:-1] + "7"
    lost = await operator.ask(RemotingCommand(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields=fields))
    assert lost.code == ResponseCode.SYSTEM_ERROR


async def test_how_far_consumers_are_they_say_themselves(
    operator: Member, consumer: Member, machine: Machine, autojump_clock: MockClock
) -> None:
    """Who says nothing, or nonsense, is left out."""
    table = b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}'
    consumer.answer = RemotingCommand(0, body=table)
    async with member_of(machine, "silent") as silent, member_of(machine, "odd") as odd:
        odd.answer = RemotingCommand(0, body=b"[]")
        for member in (silent, odd):
            await member.heartbeat("g")
        for client, shown in ((None, {"c"}), ("c", {"c"}), ("silent", set()), ("other", set())):
            fields = {"topic": "t", "group": "g"} | ({"clientAddr": client} if client else {})
            answer = await operator.ask(
                RemotingCommand(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext_fields=fields)
            )
            assert answer.code == ResponseCode.SUCCESS
            told = java_json.loads(answer.body)["consumerTable"]
            assert set(told) == shown
            assert all(java_json.dumps(one) == table.decode()[21:-1] for one in told.values())
        assert consumer.asked[0].code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


@pytest.mark.parametrize(
    "table",
    [
        b"[" + b"[]," * 9 + b"[]]",
        b'{"t":"' + b"x" * 99 + b'","r":[{"$ref":"$.messageQueueTable.t"}]}',
        b'{"a":"7"}',
        b'{"a":1.5}',
        b'{"a":9223372036854775808}',
        b'{"a":' + b"[" * 400 + b"]" * 400 + b"}",
        b"{" + b",".join([b"%d:1" % number for number in range(12000)]) + b"}",
    ],
)
async def test_what_is_no_table_of_offsets_is_not_handed_on(
    table: bytes, operator: Member, consumer: Member, autojump_clock: MockClock
) -> None:
    """One request for the status of eight consumers made an answer of 240 MB, and the broker stand still for 7 s."""
    consumer.answer = RemotingCommand(0, body=b'{"messageQueueTable":' + table + b"}")
    fields = {"topic": "t", "group": "g"}
    answer = await operator.ask(RemotingCommand(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext_fields=fields))
    assert (answer.code, bytes(answer.body)) == (ResponseCode.SUCCESS, b'{"consumerTable":{}}')


async def test_answers_that_come_together_are_read_in_turns(
    machine: Machine,
    operator: Member,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of 64 consumers held the event loop for seconds."""
    passes, read, have_come = Passes(), list[int](), trio.Event()

    def decode(body: bytes) -> str:
        read.append(passes.count)
        return decode_consumer_status(body)

    async def invoke(_connection: Connection, _question: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        with trio.fail_after(timeout_s):
            await have_come.wait()
        return RemotingCommand(0, body=b'{"messageQueueTable":{"a":7}}')

    monkeypatch.setattr(call_consumer_processor, "decode_consumer_status", decode)
    monkeypatch.setattr(Connection, "invoke", invoke)
    trio.lowlevel.add_instrument(passes)
    async with AsyncExitStack() as stack:
        for number in range(8):
            member = await stack.enter_async_context(member_of(machine, f"c{number}"))
            await member.heartbeat("g")
        nursery.start_soon(set_soon, have_come)
        fields = {"topic": "t", "group": "g"}
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await operator.ask(RemotingCommand(code, ext_fields=fields))
        assert java_json.loads(answer.body)["consumerTable"] == {f"c{number}": {"a": 7} for number in range(8)}
    assert len(set(read)) == len(read) == 8


async def set_soon(event: trio.Event) -> None:
    await trio.sleep(1)
    event.set()


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_calls_that_nobody_answers_leave_room_for_others(
    machine: Machine, consumer: Member, operator: Member, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "greedy") as greedy:
        codes: list[int] = []

        async def ask() -> None:
            codes.append((await greedy.ask(running_info())).code)

        for _ in range(100):
            nursery.start_soon(ask)
        await trio.sleep(1)
        assert codes == [ResponseCode.SYSTEM_BUSY] * (100 - CALLS_MAX // 2)
        assert (await operator.ask(running_info())).code == ResponseCode.CONSUME_MSG_TIMEOUT
        await trio.sleep(20)
        assert codes.count(ResponseCode.CONSUME_MSG_TIMEOUT) == CALLS_MAX // 2
        consumer.answer = RemotingCommand(0)
        assert (await greedy.ask(running_info())).code == ResponseCode.SUCCESS


def test_an_operator_who_has_gone_takes_no_place() -> None:
    """It asked, and its connection ended before it was this request's turn."""

    class Gone:
        closed, peer = True, "10.9.9.1:1"

    gone, consumers = cast(Connection, Gone()), ConsumerManager()
    consumers.register(ConsumerData("g"), ClientChannelInfo(gone, "c", version=395))
    processor = CallConsumerProcessor(cast(DefaultMessageStore, None), consumers, broker_name="b")
    for _ in range(CALLS_MAX + 1):
        assert processor.get_consumer_running_info(gone, running_info()) is None
