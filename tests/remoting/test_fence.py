"""A bug that one peer's bytes reach costs that peer its request or its connection, and nobody else anything."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.errors import LocalProtocolError, RemotingSendRequestError, StoreError
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Fence
from rmqha.remoting.server import RemotingServer
from tests.fakes import MemoryNetwork
from tests.settings import remoting_limits

ADDRESS = "10.0.0.1:10911"
SOUND, BROKEN, BROKEN_BATCH, BROKEN_TASK, BROKEN_ANSWER, LATE = range(1, 7)


class PlantedError(AssertionError):
    """What nobody raises on purpose."""


def broken(*_: Any) -> Any:
    raise PlantedError("planted")


def unanswerable(*_: Any) -> RemotingCommand:
    return RemotingCommand(0, body=bytes(16 << 20))


class Broker(RequestDispatcher):
    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[], None]] = []
        self.register(SOUND, lambda _, request: RemotingCommand(0, body=request.body))
        self.register(BROKEN, broken)
        self.register_batch([BROKEN_BATCH], broken)
        self.register(BROKEN_TASK, lambda connection, _: connection.start_soon(broken_task))
        self.register(BROKEN_ANSWER, unanswerable)
        self.register(LATE, self.hold)

    def hold(self, connection: Connection, request: RemotingCommand) -> None:
        def answer() -> None:
            with connection.fenced(request):
                broken()

        self.late.append(answer)


async def broken_task() -> None:
    broken()


Connect = Callable[[], Any]


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[tuple[RemotingServer, Fence, Connect]]:
    network, fence = MemoryNetwork(), Fence()
    server = RemotingServer(broker, limits=remoting_limits(), fence=fence)
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
            yield server, fence, lambda: open_remoting_client(network, ADDRESS)
            nursery.cancel_scope.cancel()


async def ask(client: RemotingClient, code: int, **more: Any) -> RemotingCommand:
    return await client.invoke(RemotingCommand(code, **more), timeout_s=3)


@pytest.mark.meets_bugs
async def test_a_request_that_meets_a_bug_is_refused_told_of_and_counted(autojump_clock: MockClock) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(Broker()) as (server, fence, connect), connect() as client:
            for number in range(1, 100):
                answer = await ask(client, BROKEN)
                assert (answer.code, fence.bugs) == (ResponseCode.SYSTEM_ERROR, number)
                assert "planted" in (answer.remark or "")
            assert (await ask(client, SOUND, body=b"x")).body == b"x"
            (connection,) = server.connections
            assert connection.in_flight.requests == connection.in_flight.size == 0
    lines = [line for line in logs if line["event"] == "request.broken"]
    assert 1 <= len(lines) < 30, "a traceback for each would fill the disk"
    assert lines[0]["log_level"] == "error"
    assert isinstance(lines[0]["exc_info"], PlantedError)
    assert lines[0]["code"] == BROKEN


@pytest.mark.meets_bugs
@pytest.mark.parametrize("code", [BROKEN_BATCH, BROKEN_TASK])
async def test_where_nobody_can_tell_what_is_answered_the_connection_ends(code: int, autojump_clock: MockClock) -> None:
    async with serving(Broker()) as (server, fence, connect), connect() as other:
        async with connect() as client:
            with pytest.raises(RemotingSendRequestError):
                await ask(client, code)
        assert (await ask(other, SOUND, body=b"x")).body == b"x"
        assert fence.bugs == 1
        assert len(server.connections) == 1


@pytest.mark.meets_bugs
@pytest.mark.parametrize("error", [PlantedError("planted"), StoreError("the disk is on fire")])
async def test_trap_7_what_clients_would_take_for_an_answer_is_not_refused(
    error: Exception, autojump_clock: MockClock
) -> None:
    """A consumer whose question for its offset (14) is refused begins at the queue's begin, or at its end."""

    def fail(*_: Any) -> RemotingCommand:
        raise error

    broker = Broker()
    broker.register(RequestCode.QUERY_CONSUMER_OFFSET, fail)
    async with serving(broker) as (server, _, connect):
        async with connect() as client:
            with pytest.raises(RemotingSendRequestError):
                await ask(client, RequestCode.QUERY_CONSUMER_OFFSET)
        await trio.testing.wait_all_tasks_blocked()
        assert server.capacity.used_bytes == 0


@pytest.mark.meets_bugs
async def test_a_bug_while_a_connection_is_forgotten_is_fenced_and_the_next_callback_is_called(
    autojump_clock: MockClock,
) -> None:
    broker, forgotten = Broker(), list[Connection]()
    broker.on_closed(broken)
    broker.on_closed(forgotten.append)
    async with serving(broker) as (_, fence, connect):
        async with connect() as client:
            await ask(client, SOUND)
        await trio.testing.wait_all_tasks_blocked()
        assert (fence.bugs, len(forgotten)) == (1, 1)


@pytest.mark.meets_bugs
async def test_an_answer_given_later_is_fenced_too(autojump_clock: MockClock) -> None:
    broker = Broker()
    async with serving(broker) as (_, fence, connect), connect() as client, trio.open_nursery() as nursery:
        answers: list[RemotingCommand] = []

        async def wait() -> None:
            answers.append(await ask(client, LATE))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        broker.late[0]()
        await trio.testing.wait_all_tasks_blocked()
        assert (answers[0].code, fence.bugs) == (ResponseCode.SYSTEM_ERROR, 1)


async def test_an_answer_that_fits_no_frame_is_a_refusal_and_no_bug(autojump_clock: MockClock) -> None:
    async with serving(Broker()) as (_, fence, connect), connect() as client:
        answer = await ask(client, BROKEN_ANSWER)
        assert (answer.code, fence.bugs) == (ResponseCode.SYSTEM_ERROR, 0)
        assert "exceeds" in (answer.remark or "")


async def test_cancellation_is_no_bug(autojump_clock: MockClock) -> None:
    async with serving(Broker()) as (_, fence, connect), connect() as client:
        (await ask(client, SOUND))
    assert fence.bugs == 0
    with pytest.raises(KeyboardInterrupt), fence.guard(Refusing(), None):
        raise KeyboardInterrupt
    with fence.guard(Refusing(), RemotingCommand(1)):
        raise LocalProtocolError("said by us")
    assert fence.bugs == 0


class Refusing:
    peer = "10.9.9.9:1"

    def respond(self, request: Request, code: int, *, remark: str | None = None) -> None:
        assert (code, remark) == (ResponseCode.SYSTEM_ERROR, "said by us")

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.mark.meets_bugs
async def test_a_bug_met_in_what_a_broker_sends_ends_the_connection_and_not_the_program(
    autojump_clock: MockClock,
) -> None:
    async with serving(Broker()) as (_, _, connect), connect() as client:
        client.invoke_nowait(RemotingCommand(SOUND), deadline=trio.current_time() + 3, on_outcome=broken)
        with pytest.raises(RemotingSendRequestError, match="planted"):
            await ask(client, LATE)
        assert client.closed


@pytest.mark.parametrize("flag", [FLAG_ONEWAY, FLAG_ONEWAY | FLAG_RESPONSE])
@pytest.mark.parametrize("code", [SOUND, BROKEN_ANSWER, 99])
async def test_a_oneway_request_is_in_flight_until_it_is_dealt_with(
    code: int, flag: int, autojump_clock: MockClock
) -> None:
    async with serving(Broker()) as (server, _, connect), connect() as client:
        client.put_nowait(RemotingCommand(code, flag=flag, body=b"x" * 1000).encode())
        await ask(client, SOUND)
        (connection,) = server.connections
        assert connection.in_flight.requests == connection.in_flight.size == server.capacity.used_bytes == 0
