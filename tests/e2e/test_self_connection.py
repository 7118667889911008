"""A connection that the kernel led to itself: a port of this machine at which nobody listens was given to who asked."""

import socket
import struct

import pytest
import trio

from rmqha.cli import promotion_asked
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.blocking import BlockingConnection
from rmqha.self_connection import refuse_itself
from rmqha.transport import TcpNetwork


def led_to_itself() -> socket.socket:
    """As the kernel makes one by chance."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.bind(("127.0.0.1", 0))
    found.connect(found.getsockname())
    assert found.getsockname() == found.getpeername()
    return found


def port_of(connection: socket.socket) -> int:
    port: int = connection.getsockname()[1]
    return port


def listen_at(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_the_event_loop_s_is_refused_and_its_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of a group that was killed could not start: one that looked for it had its port, for good."""
    connection = led_to_itself()
    port = port_of(connection)

    async def open_tcp_stream(_host: str, _port: int) -> trio.SocketStream:
        connection.setblocking(False)
        return trio.SocketStream(trio.socket.from_stdlib_socket(connection))

    with pytest.raises(OSError, match="in use"):
        listen_at(port)
    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    with pytest.raises(ConnectionRefusedError):
        await TcpNetwork().connect("127.0.0.1", port, timeout_s=60)
    listen_at(port)


def test_a_command_s_is_refused_and_its_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = led_to_itself()
    port = port_of(connection)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: connection)
    with (
        pytest.raises(ConnectionRefusedError),
        BlockingConnection("127.0.0.1", port, timeout_s=60) as asked,
    ):
        asked.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    listen_at(port)


def test_who_is_promoted_takes_it_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = led_to_itself()
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: connection)
    assert not promotion_asked._listens("127.0.0.1", port_of(connection), 60)


def test_one_that_has_ended_led_to_somebody() -> None:
    """A port that turns connections away is one at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        refuse_itself(connection)
        connection.close()
