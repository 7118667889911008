"""POP consumers of RocketMQ 5 get nothing, as ever, and the operator is told of them, within bounds."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import Machine, ask

QUERY_ASSIGNMENT, POP, ACK, BATCH_ACK, NOTIFICATION, POP_ROLLBACK = 400, 200050, 200051, 200151, 200054, 200056
FIELDS = {"consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "60000"}


def warnings(logs: Any) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == "pop.refused"]


@pytest.mark.parametrize("code", [POP, ACK, 200052, 200053, NOTIFICATION, 200055, POP_ROLLBACK, BATCH_ACK])
async def test_each_of_its_requests_is_refused_and_told(
    machine: Machine, broker: BrokerController, code: int, autojump_clock: MockClock
) -> None:
    """The answer is that to any code that is not known."""
    with capture_logs() as logs:
        async with machine.client() as client:
            answer = await ask(client, RemotingCommand(code, ext_fields=FIELDS))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == f" request type {code} not supported"
    (told,) = warnings(logs)
    assert (told["log_level"], told["group"], told["topic"], told["code"]) == ("warning", "G", "T", code)
    assert told["peer"].startswith("10.9.9.")
    assert "setClientRebalance(false)" in told["reason"]
    assert "docs/clients.md" in told["reason"]
    assert broker.pops.refused == 1


async def test_who_has_the_broker_share_out_queues_is_told(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """All that such a consumer asks for, if it has never asked a broker of RocketMQ 5; its body says who it is."""
    body = b'{"clientId":"10.9.9.9@1","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}'
    with capture_logs() as logs:
        async with machine.client() as client:
            answer = await ask(client, RemotingCommand(QUERY_ASSIGNMENT, body=body))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    (told,) = warnings(logs)
    assert (told["group"], told["topic"], told["code"]) == ("G", "T", QUERY_ASSIGNMENT)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"{", b"[]", b'{"topic":7,"consumerGroup":["G"]}', b'{"topic":"T"}' + bytes(5000)]
)
async def test_a_body_that_is_none_tells_no_names(
    machine: Machine, broker: BrokerController, body: bytes, autojump_clock: MockClock
) -> None:
    """Nor is a large one looked at."""
    with capture_logs() as logs:
        async with machine.client() as client:
            answer = await ask(client, RemotingCommand(QUERY_ASSIGNMENT, body=body))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    (told,) = warnings(logs)
    assert (told["group"], told["topic"]) == (None, None)


async def test_what_says_no_group_is_told_by_its_client(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    with capture_logs() as logs:
        async with machine.client() as client:
            await ask(client, RemotingCommand(BATCH_ACK, body=b'{"acks":[]}'))
    (told,) = warnings(logs)
    assert (told["group"], told["topic"]) == (None, None)


async def test_a_consumer_that_asks_again_and_again_has_one_line_in_ten_minutes(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    with capture_logs() as logs:
        async with machine.client() as client:
            for number in range(599):
                await ask(client, RemotingCommand((POP, ACK, NOTIFICATION)[number % 3], ext_fields=FIELDS))
                assert len(warnings(logs)) == 1
                await trio.sleep(1)
            await trio.sleep(2)
            await ask(client, RemotingCommand(POP, ext_fields=FIELDS))
    first, second = warnings(logs)
    assert (first["repeated"], second["repeated"]) == (0, 598)
    assert broker.pops.refused == 600


async def test_strangers_fill_neither_log_nor_memory(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """By any number of groups, and names of any length."""
    with capture_logs() as logs:
        async with machine.client() as client:
            for number in range(2000):
                fields = {"consumerGroup": f"{number}" + "x" * 20_000, "topic": "y" * 20_000}
                await ask(client, RemotingCommand(POP, ext_fields=fields))
    told = warnings(logs)
    assert 1 <= len(told) <= 30
    assert max(len(str(line)) for line in told) < 1500
    assert broker.pops.refused == 2000
