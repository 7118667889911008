"""RequestDispatcher: a guard stands before all processors."""

from contextlib import AbstractContextManager
from typing import Any

import pytest

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Fence

ONE_BY_ONE, TOGETHER, UNKNOWN = 1, 2, 3
SECRET = b"open sesame"


class Client:
    """A connection that keeps its answers: opaque and code."""

    peer = "10.9.9.9:9"
    is_turn_over = False

    def __init__(self) -> None:
        self.answers: dict[int, int] = {}
        self.fence = Fence()

    def fenced(self, request: RemotingCommand | None = None) -> AbstractContextManager[Any]:
        return self.fence.guard(self, request)  # type: ignore[arg-type]

    def send_reply(self, request: RemotingCommand, response: RemotingCommand) -> None:
        self.answers[request.opaque] = response.code

    def respond(self, request: RemotingCommand, code: int, *, remark: str | None = None) -> None:
        self.answers[request.opaque] = code


class Broker(RequestDispatcher):
    """Answers all that reaches its processors, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[int]] = []
        self.register(ONE_BY_ONE, lambda _, request: self.seen.append([request.opaque]))
        self.register_batch([TOGETHER], lambda _, some: self.seen.append([request.opaque for request in some]))


def ask_who_knows(_connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
    return None if request.body == SECRET else RemotingCommand(ResponseCode.NO_PERMISSION)


def process(broker: Broker, codes: list[int], *, knowing: set[int]) -> dict[int, int]:
    """The answers to requests that arrive together."""
    client = Client()
    requests = [RemotingCommand(code, n, body=SECRET if n in knowing else b"") for n, code in enumerate(codes)]
    assert broker.process(client, requests) == len(requests)  # type: ignore[arg-type]
    return client.answers


def test_what_a_guard_turns_away_reaches_no_processor_and_is_answered_by_the_guard() -> None:
    broker, codes = Broker(), [TOGETHER, TOGETHER, TOGETHER, ONE_BY_ONE, ONE_BY_ONE, UNKNOWN, UNKNOWN]
    broker.guard = ask_who_knows
    answers = process(broker, codes, knowing={0, 2, 4, 6})
    assert broker.seen == [[0, 2], [4]]
    assert answers == {
        **dict.fromkeys((1, 3, 5), ResponseCode.NO_PERMISSION),
        6: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }


def test_a_processor_is_not_called_for_nothing() -> None:
    broker = Broker()
    broker.guard = ask_who_knows
    process(broker, [TOGETHER, TOGETHER, ONE_BY_ONE], knowing=set())
    assert broker.seen == []


@pytest.mark.meets_bugs
async def test_what_a_guard_cannot_judge_is_refused() -> None:
    broker = Broker()

    def stumble(_connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        assert request.opaque != 1, "planted"
        return None

    broker.guard = stumble
    assert process(broker, [TOGETHER, TOGETHER, TOGETHER], knowing=set()) == {1: ResponseCode.SYSTEM_ERROR}
    assert broker.seen == [[0, 2]]


def test_without_a_guard_all_pass() -> None:
    broker = Broker()
    assert process(broker, [TOGETHER, TOGETHER, ONE_BY_ONE], knowing=set()) == {}
    assert broker.seen == [[0, 1], [2]]
