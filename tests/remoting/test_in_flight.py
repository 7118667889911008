"""The account of requests not answered yet: nobody gets another's answer, and nothing stays on the account."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.errors import RemotingTimeoutError
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.limits import RemotingLimits
from rmqha.remoting.response_table import Outcome
from rmqha.remoting.server import RemotingServer
from tests.fakes import MemoryNetwork

HELD, TOGETHER = 2, 6


class Broker(RequestDispatcher):
    """Holds requests 2, and answers requests 6 together: each as many at once as arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Connection, RemotingCommand]] = []
        self.together: list[int] = []
        self.register(HELD, lambda connection, request: self.held.append((connection, request)))
        self.register_batch([TOGETHER], self._answer_together)

    def _answer_together(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        self.together.append(len(requests))
        connection.send_responses([RemotingCommand(0, one.opaque, FLAG_RESPONSE).encode() for one in requests])

    def echo_held(self) -> None:
        """Answer what is held by its own body, oldest first."""
        held, self.held = self.held, []
        for connection, request in held:
            connection.respond(request, 0, body=bytes(request.body))


@asynccontextmanager
async def connected(limits: RemotingLimits) -> AsyncIterator[tuple[Broker, RemotingServer, RemotingClient]]:
    network, broker = MemoryNetwork(), Broker()
    server = RemotingServer(broker, limits=limits)
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
            async with open_remoting_client(network, "10.0.0.1:10911") as client:
                yield broker, server, client
            nursery.cancel_scope.cancel()


async def test_a_late_answer_is_never_taken_for_another_requests(autojump_clock: MockClock) -> None:
    """Neither that of a request that was cancelled, nor of one that timed out, nor of one that was forgotten."""
    async with connected(RemotingLimits()) as (broker, _, client):

        async def cancelled() -> None:
            with trio.move_on_after(1):
                await client.invoke(RemotingCommand(HELD, body=b"cancelled"), timeout_s=30)

        async def timed_out() -> None:
            with pytest.raises(RemotingTimeoutError):
                await client.invoke(RemotingCommand(HELD, body=b"timed out"), timeout_s=1)

        async def forgotten() -> None:
            request = RemotingCommand(HELD, body=b"forgotten")
            request.opaque = client.expect(trio.current_time() + 30, lambda _: None)
            client.put_nowait(request.encode())
            client.forget(request.opaque)
            await trio.testing.wait_all_tasks_blocked()

        for given_up in (cancelled, timed_out, forgotten):
            await given_up()
            assert client.in_flight == 0
            outcomes: list[Outcome] = []
            for body in (b"first", b"second"):
                request = RemotingCommand(HELD, body=body)
                client.invoke_nowait(request, deadline=trio.current_time() + 30, on_outcome=outcomes.append)
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.held) == 3
            broker.echo_held()
            await trio.testing.wait_all_tasks_blocked()
            assert [one.body for one in outcomes if isinstance(one, RemotingCommand)] == [b"first", b"second"]


async def test_answers_sent_together_release_as_many_requests(autojump_clock: MockClock) -> None:
    """Else a few rounds fill the connection's account, and nothing more is read of it."""
    in_flight_max = 8
    async with connected(RemotingLimits(connection_in_flight_requests_max=in_flight_max)) as (broker, server, client):
        for _ in range(10):
            answers: list[Outcome] = []
            for _ in range(in_flight_max - 1):
                deadline = trio.current_time() + 3
                request = RemotingCommand(TOGETHER)
                request.opaque = client.expect(deadline, answers.append)
                client.put(request.encode())
            await trio.testing.wait_all_tasks_blocked()
            assert [type(answer) for answer in answers] == [RemotingCommand] * (in_flight_max - 1)
            assert server.in_flight_bytes == 0
            assert [connection.in_flight for connection in server.connections] == [0]
        assert set(broker.together) == {in_flight_max - 1}, "they did arrive together"
