"""A lower maxMessageSize is for what clients send from now on: what was acknowledged before comes all the same."""

import json

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.delayed_message import waiting_properties
from rmqha.codec.record.layout import BLANK_SIZE_MIN, SCHEDULE_TOPIC
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.broker.machines import Machine, ask, send_request
from tests.broker.processors.test_send_back_processor import RETRY, found, send_back
from tests.broker.producers import COMMIT, half_request, producer_of, seen
from tests.sim.sim_net import SimNet
from tests.store.helpers import message

LARGE = bytes(9000)
LOWERED = {"maxMessageSize": "1000"}
TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}
FILE = 65536


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"} | TIMES)


async def test_delayed_messages_come_in_order(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(), machine.client() as client:
        for body in (LARGE, b"behind it"):
            assert (await ask(client, send_request(body, properties="DELAY\x012"))).code == ResponseCode.SUCCESS
    async with machine.broker(**LOWERED), machine.client() as client:
        await trio.sleep(7)
        assert [one.body for one in await found(client, "t")] == [LARGE, b"behind it"]


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_half_message_is_asked_about_and_committed(
    machine: Machine, is_asked: bool, autojump_clock: MockClock
) -> None:
    async with machine.broker(), producer_of(machine) as producer:
        half = await producer.prepare(LARGE)
    async with machine.broker(**LOWERED) as broker, producer_of(machine) as producer:
        await producer.join()
        if is_asked:
            half, asked = await producer.wait_asked(1)
            assert asked.body == LARGE
        ended = await producer.end(half, COMMIT)
        assert ended is not None
        assert (ended.code, ended.remark) == (ResponseCode.SUCCESS, None)
        assert [one.body for one in await seen(broker)] == [LARGE]


@pytest.mark.parametrize(("level", "topic"), [(1, RETRY), (-1, "%DLQ%g")])
async def test_a_message_is_sent_back(machine: Machine, level: int, topic: str, autojump_clock: MockClock) -> None:
    async with machine.broker(), machine.client() as client:
        sent = decode_send_response(await ask(client, send_request(LARGE)))
    async with machine.broker(**LOWERED), machine.client() as client:
        answer = await ask(client, send_back(int(sent.msg_id[-16:], 16), level=level))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        await trio.sleep(2)
        assert [one.body for one in await found(client, topic)] == [LARGE]


async def test_sends_are_refused_from_then_on(machine: Machine, autojump_clock: MockClock) -> None:
    """Usual ones, half messages, delayed ones, and what consumers send to get it again."""
    async with machine.broker(**LOWERED) as broker, machine.client() as client:
        for properties in ("", "UNIQ_KEY\x01AB", "DELAY\x011"):
            for body, code in ((bytes(1000), ResponseCode.SUCCESS), (bytes(1001), ResponseCode.MESSAGE_ILLEGAL)):
                for _ in range(3):
                    answer = await ask(client, send_request(body, properties=properties))
                    assert answer.code == code
            assert answer.remark == "body of 1001 bytes, maxMessageSize is 1000"
        end = broker.store.max_offset
        for request in (half_request(bytes(1001)), send_request(bytes(1001), topic=RETRY, j="1")):
            answer = await ask(client, request)
            assert (answer.code, answer.remark) == (
                ResponseCode.MESSAGE_ILLEGAL,
                "body of 1001 bytes, maxMessageSize is 1000",
            )
        assert broker.store.max_offset == end


async def test_what_can_never_be_put_is_told_and_nothing_waits_behind_it(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """Under the name of its own topic it is larger than a file; it may lie in a log that another broker wrote."""
    properties = waiting_properties({}, delay_level=1, topic="t" * 127, queue_id=0)
    largest = message(topic=SCHEDULE_TOPIC, properties=properties, size=FILE - BLANK_SIZE_MIN)
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"before", properties="DELAY\x011"))
        (stored,) = await broker.store.put_messages_when_allocated([largest])
        await ask(client, send_request(b"behind", properties="DELAY\x011"))
        with capture_logs() as logs:
            await trio.sleep(3)
        assert [one.body for one in await found(client, "t")] == [b"before", b"behind"]
        (line,) = [line for line in logs if line["log_level"] == "error"]
        assert (line["event"], line["delay_level"], line["offset"]) == ("schedule.undeliverable", 1, 1)
        assert "do not fit" in line["reason"]
        assert broker.store.stats.undeliverable_messages == 1
        table = json.loads((await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))).body)["table"]
        assert json.loads(table["rmqhaStatus"])["undeliverable"].startswith("1 delayed message was left out")
        waiting = broker.store.look_message_by_offset(stored.wrote_offset)
        assert waiting is not None
        assert decode_message(waiting).body == largest.body
        assert dict(broker.metadata.delay_offsets)[1] == 3
