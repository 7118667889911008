"""Connections: many who need the same one."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemotingConnectError, RemotingTimeoutError
from rmqha.remoting.connection import Connection
from rmqha.remoting.connections import Connections
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.transport import Stream
from tests.fakes import MemoryNetwork
from tests.settings import remoting_limits

ADDRESS = "10.0.0.1:10911"
ASKED, HELD = 1, 2


class SilentNetwork:
    """The host that is asked has lost power: nothing comes back."""

    def __init__(self) -> None:
        self.attempts = 0

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Stream:
        self.attempts += 1
        await trio.sleep(timeout_s)
        raise TimeoutError(110, f"no connection to {host}:{port} within {timeout_s:g} s")

    async def listen(self, host: str, port: int, *, unsent_bytes_max: int | None = None) -> "SilentListener":
        raise NotImplementedError


class SilentListener:
    port = 0

    async def accept(self) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


async def test_who_waits_for_the_same_connection_fails_with_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The last of a topic's 16 queues was read from the slave 48 s after the master's host had gone."""
    network = SilentNetwork()
    connections = Connections(network, nursery, connect_timeout_s=3)
    failed_at: list[float] = []

    async def get() -> None:
        with pytest.raises(RemotingConnectError, match=r"^10.0.0.1:10911: no connection to 10.0.0.1:10911 within 3 s$"):
            await connections.get("10.0.0.1:10911")
        failed_at.append(trio.current_time() - begun_at)

    for attempts in (1, 2):
        begun_at = trio.current_time()
        async with trio.open_nursery() as callers:
            for _ in range(16):
                callers.start_soon(get)
        assert network.attempts == attempts
        assert max(failed_at) == pytest.approx(3)


async def test_who_waits_behind_one_that_was_cancelled_connects_by_itself(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = SilentNetwork()
    connections = Connections(network, nursery, connect_timeout_s=3)
    async with trio.open_nursery() as callers:
        callers.start_soon(_get_for_a_second, connections)
        await trio.sleep(0.5)
        with pytest.raises(RemotingConnectError):
            await connections.get("10.0.0.1:10911")
    assert network.attempts == 2


async def _get_for_a_second(connections: Connections) -> None:
    with trio.move_on_after(1):
        await connections.get("10.0.0.1:10911")


class Broker(RequestDispatcher):
    """Answers; but what is HELD it keeps, and all that comes over the first connection while that is dead."""

    def __init__(self, *, first_is_dead: bool) -> None:
        super().__init__()
        self.first_is_dead = first_is_dead
        self.held: list[tuple[Connection, RemotingCommand]] = []
        self.server = RemotingServer(self, limits=remoting_limits())
        self.connections: list[Connection] = []
        for code in (ASKED, HELD):
            self.register(code, self._process)

    def _process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if connection not in self.connections:
            self.connections.append(connection)
        if request.code == HELD or (self.first_is_dead and connection is self.connections[0]):
            self.held.append((connection, request))
            return None
        return RemotingCommand(0)


async def test_over_which_nothing_comes_is_not_asked_again_and_may_answer_still(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """After a line was broken for a minute a client went on to wait by the old connection for as long again."""
    network, broker, codes = MemoryNetwork(), Broker(first_is_dead=True), list[int]()
    nursery.start_soon(broker.server.serve, await network.listen("10.0.0.1", 10911))
    connections = Connections(network, nursery, connect_timeout_s=3)

    async def ask_patiently() -> None:
        codes.append((await connections.invoke(ADDRESS, RemotingCommand(HELD), timeout_s=20)).code)

    nursery.start_soon(ask_patiently)
    with pytest.raises(RemotingTimeoutError):
        await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)
    assert (await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)).code == 0
    await trio.sleep(5)
    assert len(broker.server.connections) == 2
    connection, request = next(held for held in broker.held if held[1].code == HELD)
    connection.respond(request, 7)
    await trio.sleep(2)
    assert codes == [7]
    assert len(broker.server.connections) == 1


async def test_over_which_something_came_meanwhile_is_asked_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, broker = MemoryNetwork(), Broker(first_is_dead=False)
    nursery.start_soon(broker.server.serve, await network.listen("10.0.0.1", 10911))
    connections = Connections(network, nursery, connect_timeout_s=3)

    async def ask_later() -> None:
        await trio.sleep(1)
        await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)

    nursery.start_soon(ask_later)
    with pytest.raises(RemotingTimeoutError):
        await connections.invoke(ADDRESS, RemotingCommand(HELD), timeout_s=3)
    await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)
    assert len(broker.connections) == 1


async def test_over_which_an_answer_came_too_late_is_asked_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A broker that was busy for a while is not connected to anew."""
    network, broker = MemoryNetwork(), Broker(first_is_dead=False)
    nursery.start_soon(broker.server.serve, await network.listen("10.0.0.1", 10911))
    connections = Connections(network, nursery, connect_timeout_s=3)
    with pytest.raises(RemotingTimeoutError):
        await connections.invoke(ADDRESS, RemotingCommand(HELD), timeout_s=3)
    ((connection, request),) = broker.held
    connection.respond(request, 7)
    await trio.sleep(1)
    await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)
    assert len(broker.connections) == 1


async def test_over_which_an_earlier_answer_came_meanwhile_is_asked_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """One request is held, as a pull is; that the one before it was answered meanwhile shows that the way is there."""
    network, broker = MemoryNetwork(), Broker(first_is_dead=False)
    nursery.start_soon(broker.server.serve, await network.listen("10.0.0.1", 10911))
    connections = Connections(network, nursery, connect_timeout_s=3)

    async def be_answered() -> None:
        await connections.invoke(ADDRESS, RemotingCommand(HELD), timeout_s=20)

    nursery.start_soon(be_answered)
    await trio.sleep(0.5)

    async def answer_the_first() -> None:
        await trio.sleep(1)
        connection, request = broker.held[0]
        connection.respond(request, 7)

    nursery.start_soon(answer_the_first)
    with pytest.raises(RemotingTimeoutError):
        await connections.invoke(ADDRESS, RemotingCommand(HELD), timeout_s=3)
    await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)
    assert len(broker.connections) == 1


async def test_one_that_was_not_used_for_long_is_closed_when_the_next_one_is_made(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A peer that ends none for idleness would have one more each time."""
    network, broker = MemoryNetwork(), Broker(first_is_dead=False)
    broker.server = RemotingServer(broker, limits=remoting_limits(server_channel_max_idle_time_s=1_000_000))
    nursery.start_soon(broker.server.serve, await network.listen("10.0.0.1", 10911))
    connections = Connections(network, nursery, connect_timeout_s=3)
    for count in range(1, 5):
        await connections.invoke(ADDRESS, RemotingCommand(ASKED), timeout_s=3)
        await trio.sleep(1)
        assert (len(broker.connections), len(broker.server.connections)) == (count, 1)
        await trio.sleep(1000)
