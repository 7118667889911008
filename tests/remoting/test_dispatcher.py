"""RequestDispatcher: a guard stands before all processors."""

from contextlib import AbstractContextManager
from typing import Any

import pytest

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher, RequestGuard
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

    def __init__(self, guard: RequestGuard | None = None) -> None:
        super().__init__(guard)
        self.seen: list[list[int]] = []
        self.register(ONE_BY_ONE, lambda _, request: self.seen.append([request.opaque]))
        self.register_batch([TOGETHER], lambda _, some: self.seen.append([request.opaque for request in some]))


def ask_who_knows(_connection: Connection, request: Request) -> Request:
    if request.body != SECRET:
        raise RemoteProtocolError("who are you?")
    return request


def process(broker: Broker, codes: list[int], *, knowing: set[int]) -> dict[int, int]:
    """The answers to requests that arrive together."""
    client = Client()
    requests = [RemotingCommand(code, n, body=SECRET if n in knowing else b"") for n, code in enumerate(codes)]
    assert broker.process(client, requests) == len(requests)  # type: ignore[arg-type]
    return client.answers


async def test_what_a_guard_turns_away_reaches_no_processor_and_is_answered() -> None:
    broker, codes = Broker(ask_who_knows), [TOGETHER, TOGETHER, TOGETHER, ONE_BY_ONE, ONE_BY_ONE, UNKNOWN, UNKNOWN]
    answers = process(broker, codes, knowing={0, 2, 4, 6})
    assert broker.seen == [[0, 2], [4]]
    assert answers == {
        **dict.fromkeys((1, 3, 5), ResponseCode.SYSTEM_ERROR),
        6: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }


async def test_a_processor_is_not_called_for_nothing() -> None:
    broker = Broker(ask_who_knows)
    process(broker, [TOGETHER, TOGETHER, ONE_BY_ONE], knowing=set())
    assert broker.seen == []


@pytest.mark.meets_bugs
async def test_what_a_guard_cannot_judge_is_refused() -> None:
    def stumble(_connection: Connection, request: Request) -> Request:
        assert request.command.opaque != 1, "planted"
        return request

    broker = Broker(stumble)
    assert process(broker, [TOGETHER, TOGETHER, TOGETHER], knowing=set()) == {1: ResponseCode.SYSTEM_ERROR}
    assert broker.seen == [[0, 2]]


def test_a_processor_sees_what_the_guard_lets_through_and_nothing_else() -> None:
    broker = Broker(lambda _, request: RemotingCommand(request.code, request.command.opaque + 100))
    process(broker, [TOGETHER, TOGETHER, ONE_BY_ONE], knowing=set())
    assert broker.seen == [[100, 101], [102]]


def test_a_guard_looks_at_no_more_than_a_turn_has_time_for() -> None:
    client = Client()
    asked: list[int] = []

    def slow(_connection: Connection, request: Request) -> Request:
        asked.append(request.command.opaque)
        client.is_turn_over = len(asked) == 2
        return request

    broker = Broker(slow)
    requests: list[Request] = [RemotingCommand(TOGETHER, opaque) for opaque in range(4)]
    assert broker.process(client, requests) == 2  # type: ignore[arg-type]
    assert (asked, broker.seen) == ([0, 1], [[0, 1]])


def test_without_a_guard_all_pass() -> None:
    broker = Broker()
    assert process(broker, [TOGETHER, TOGETHER, ONE_BY_ONE], knowing=set()) == {}
    assert broker.seen == [[0, 1], [2]]
