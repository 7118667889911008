"""Connections that are reset before anybody accepts them, and ports that are used again, over real sockets.

What a peer is called is no name for its connection: a socket that was reset has no peer any more, and the next one from
the same port comes while the last one is still there.
"""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rmqha.choices import TlsMode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transfer import encode_report
from rmqha.ha.ha_client import HAClient
from rmqha.ha.ha_service import HAService
from rmqha.remoting.client import open_remoting_client
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.tls import TlsNetwork
from rmqha.transport import Network, TcpNetwork
from tests.memory_log import MemoryLog, records
from tests.settings import ha_client_options, ha_options, remoting_limits
from tests.test_tls import Pki

DATA = records([bytes([i]) * (i * 31 % 900) for i in range(40)])
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
STRANGERS = 200


def connect(port: int, *, source: int = 0) -> socket.socket:
    """A connection that the kernel has made, whether or not anybody has accepted it, and that ends by a reset."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    sock.bind(("127.0.0.1", source))
    sock.connect(("127.0.0.1", port))
    return sock


@pytest.fixture(params=["plain", "tls"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Network:
    if request.param == "plain":
        return TcpNetwork()
    return TlsNetwork(TcpNetwork(), Pki(tmp_path).options("127.0.0.1"), mode=TlsMode.ENFORCING)


@asynccontextmanager
async def a_service(network: Network) -> AsyncIterator[HAService]:
    """A master, which must serve an honest slave at the end."""
    log, copy = MemoryLog.holding(DATA), MemoryLog()
    service = HAService(log, network, ha_options())
    client = HAClient(copy, network, options=ha_client_options(), chance=lambda: 0.0)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            yield service
            client.update_master_address("127.0.0.1", service.port)
            nursery.start_soon(client.run)
            while service.group_transfer.acked.value < len(DATA):  # noqa: ASYNC110 - over real sockets
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert (copy.content(), service.bugs) == (DATA, 0)


@pytest.mark.parametrize("said", [b"", encode_report(0), b"GET / HTTP/1.1\r\n\r\n"])
async def test_connections_reset_before_they_are_accepted_are_nobody_s_matter(network: Network, said: bytes) -> None:
    async with a_service(network) as service:
        for _ in range(STRANGERS):
            stranger = connect(service.port)
            stranger.sendall(said)
            stranger.close()


async def test_the_same_source_port_again_is_another_connection(network: Network) -> None:
    async with a_service(network) as service:
        first = connect(service.port)
        source = first.getsockname()[1]
        while not service.connections:  # noqa: ASYNC110 - over real sockets
            await trio.sleep(0.01)
        for _ in range(3):
            first.close()
            first = connect(service.port, source=source)
            await trio.sleep(0.01)
        first.close()


async def test_the_port_for_clients_minds_neither(network: Network) -> None:
    server = RemotingServer(RequestDispatcher(), limits=remoting_limits())
    listener = await network.listen("127.0.0.1", 0)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, listener)
            for _ in range(STRANGERS):
                connect(listener.port).close()
            one = connect(listener.port)
            source = one.getsockname()[1]
            for _ in range(3):
                await trio.sleep(0.01)
                one.close()
                one = connect(listener.port, source=source)
            one.close()
            async with open_remoting_client(network, f"127.0.0.1:{listener.port}", timeout_s=30) as client:
                answer = await client.invoke(RemotingCommand(1), timeout_s=30)
            assert answer.remark == " request type 1 not supported"
            nursery.cancel_scope.cancel()
