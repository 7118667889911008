"""However connections end, nothing of them is left to the collector, which stops the loop while it is at work.

Where errors went through a connection's nursery each left some 120 objects, and a TLS session: after 12,000 that ended
with a reset a broker answered nobody for seconds.
"""

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemotingError
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.client import RemotingClient, connect_remoting_client, open_remoting_client
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.tls import TlsNetwork
from rmqha.transport import Network, TcpNetwork
from tests.fakes import MemoryListener, MemoryNetwork, MemoryStream
from tests.garbage import FEW, PEERS, counted_garbage
from tests.settings import remoting_limits
from tests.test_tls import Pki

HOST, PORT = "10.0.0.1", 10911
REQUEST = RemotingCommand(1, 1).encode()
HELD = RemotingCommand(2, 1).encode()
TLS_BEGUN = bytes.fromhex("16 0301 0040 01")

End = Callable[[MemoryStream], None]
reset, close = MemoryStream.reset, MemoryStream.close


def stay(_peer: MemoryStream) -> None:
    """It is the server that ends the connection."""


def dispatcher() -> RequestDispatcher:
    def echo(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, body=request.body)

    def hold(_connection: Connection, _request: RemotingCommand) -> None:
        pass

    made = RequestDispatcher()
    made.register(1, echo)
    made.register(2, hold)
    return made


async def end_peers(memory: MemoryNetwork, network: Network, data: bytes, end: End) -> RemotingServer:
    """Have peers connect and send ``data``, and end; nothing is left of those that came."""
    limits = remoting_limits(max_connections=PEERS, max_connections_per_address=PEERS)
    server = RemotingServer(dispatcher(), limits=limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen(HOST, PORT))
        for _ in range(2):  # the first time some things are made that stay
            with counted_garbage() as left:
                peers = [await memory.connect(HOST, PORT, timeout_s=1) for _ in range(PEERS)]
                for peer in peers:
                    peer.send_nowait(data)
                await trio.sleep(0.1)
                for peer in peers:
                    end(peer)
                await trio.sleep(20)
                assert not server.connections
        nursery.cancel_scope.cancel()
    assert left.total() < FEW, left.most_common(20)
    return server


@pytest.mark.parametrize(
    ("data", "end"),
    [
        pytest.param(REQUEST, close, id="it has its answer and closes"),
        pytest.param(REQUEST, reset, id="it has its answer and resets"),
        pytest.param(REQUEST[:20], close, id="half a frame and the end"),
        pytest.param(REQUEST[:20], reset, id="half a frame and a reset"),
        pytest.param(REQUEST[:20], stay, id="half a frame and nothing more"),
        pytest.param(HELD, reset, id="a reset while it is not answered"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", stay, id="no frame"),
    ],
)
async def test_a_client_that_ends_leaves_nothing(data: bytes, end: End, autojump_clock: MockClock) -> None:
    memory = MemoryNetwork()
    server = await end_peers(memory, memory, data, end)
    assert server.refused["protocol"] == (2 * PEERS if data.startswith(b"GET") else 0)


@pytest.mark.parametrize(
    ("data", "end"),
    [
        pytest.param(TLS_BEGUN, close, id="half a hello and the end"),
        pytest.param(TLS_BEGUN, reset, id="half a hello and a reset"),
        pytest.param(TLS_BEGUN, stay, id="half a hello and nothing more"),
        pytest.param(TLS_BEGUN + bytes(100), stay, id="no hello"),
        pytest.param(REQUEST, stay, id="no TLS"),
    ],
)
async def test_a_failed_tls_handshake_leaves_nothing(
    data: bytes, end: End, tmp_path: Path, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork()
    server = await end_peers(memory, TlsNetwork(memory, Pki(tmp_path).options("broker")), data, end)
    assert server.refused["untrusted"] == (0 if end is reset else 2 * PEERS)


async def ask(client: RemotingClient, *, timeout_s: float = 5.0) -> None:
    with suppress(RemotingError):
        await client.invoke(RemotingCommand(1), timeout_s=timeout_s)


async def left_by(one: Callable[[], Awaitable[None]]) -> None:
    await one()
    with counted_garbage() as left:
        for _ in range(PEERS):
            await one()
    assert left.total() < FEW, left.most_common(20)


async def accept(listener: MemoryListener) -> MemoryStream:
    return await listener.accept()


def junk(peer: MemoryStream) -> None:
    peer.send_nowait(b"HTTP/1.0 200 OK\r\n\r\n" * 4)


@pytest.mark.parametrize("end", [reset, close, junk])
async def test_a_server_that_ends_leaves_nothing_to_its_client(end: End, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen(HOST, PORT)

    async def one() -> None:
        client = await connect_remoting_client(network, f"{HOST}:{PORT}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            nursery.start_soon(ask, client)
            await trio.sleep(0.1)
            end(await accept(listener))
        network.connections.clear()

    await left_by(one)


@pytest.mark.parametrize("timeout_s", [0.1, 5.0])
async def test_an_error_of_a_block_leaves_nothing_of_the_tasks_behind_it(
    timeout_s: float, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    listener = await network.listen(HOST, PORT)

    async def end_late() -> None:
        peer = await accept(listener)
        await trio.sleep(1)
        peer.reset()

    async def one() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_late)
            with suppress(RemotingError):
                async with open_remoting_client(network, f"{HOST}:{PORT}") as client:
                    await client.invoke(RemotingCommand(1), timeout_s=timeout_s)
        network.connections.clear()

    await left_by(one)


async def test_what_cannot_be_connected_leaves_nothing() -> None:
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    listener.close()

    async def one() -> None:
        with pytest.raises(ConnectionRefusedError) as caught:
            await network.connect("127.0.0.1", listener.port, timeout_s=5)
        assert caught.value.errno == errno.ECONNREFUSED
        del caught

    await left_by(one)


async def test_errors_of_a_block_and_of_a_task_behind_it_come_together(autojump_clock: MockClock) -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("behind")

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - the error is made by leaving the block
        async with open_background_nursery() as nursery:
            nursery.start_soon(fail_when_cancelled)
            await trio.sleep(1)
            raise ValueError("in the block")
    assert sorted(map(str, caught.value.exceptions)) == ["behind", "in the block"]
