"""TcpStream over real sockets: what only the kernel can show."""

import socket
from typing import Any

import pytest
import trio

from rmqha.transport import TcpNetwork
from tests.e2e.processes import nobody_listens


async def test_a_cancelled_receive_loses_nothing() -> None:
    """A deadline that passes just as bytes arrive must leave them: else the stream is cut inside a frame."""
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    client = await network.connect("127.0.0.1", listener.port, timeout_s=60)
    server = await listener.accept()
    buffer = memoryview(bytearray(100))
    try:
        with trio.fail_after(60):
            await client.send_all(b"hello")
            with trio.CancelScope() as scope:
                scope.cancel()
                await server.receive_into(buffer)
            assert scope.cancelled_caught
            size = await server.receive_into(buffer)
        assert bytes(buffer[:size]) == b"hello"
    finally:
        for end in (client, server, listener):
            end.close()


class TwoAddresses(trio.abc.HostnameResolver):
    """A name service that knows one host, by an address where nobody answers and by one where somebody may."""

    async def getaddrinfo(
        self,
        _host: object,
        port: object,
        family: int = 0,
        type: int = 0,  # noqa: A002 - trio's name
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

    async def getnameinfo(self, _address: object, _flags: int) -> Any:
        raise AssertionError("nobody asks for names")


class NoAddress(TwoAddresses):
    """One that knows no host; a real one may take its time to say so."""

    async def getaddrinfo(self, *_: object, **_more: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_a_host_with_several_addresses_is_tried_by_all_of_them() -> None:
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    try:
        with trio.fail_after(60):
            client = await network.connect("broker.example", listener.port, timeout_s=30)
            server = await listener.accept()
        assert (client.peer, server.peer) == (f"127.0.0.1:{listener.port}", f"127.0.0.1:{client.local_port}")
        client.close()
        server.close()
        listener.close()
        with nobody_listens(listener.port) as port, pytest.raises(ConnectionRefusedError):
            await network.connect("broker.example", port, timeout_s=30)
    finally:
        trio.socket.set_custom_hostname_resolver(None)
        listener.close()


async def test_what_the_kernel_says_of_an_address_is_told() -> None:
    network = TcpNetwork()
    with nobody_listens() as port, pytest.raises(ConnectionRefusedError, match=r"^\[Errno 111\] Connection refused$"):
        await network.connect("127.0.0.1", port, timeout_s=30)
    trio.socket.set_custom_hostname_resolver(NoAddress())
    try:
        with pytest.raises(OSError, match="Name or service not known"):
            await network.connect("broker.example", port, timeout_s=30)
    finally:
        trio.socket.set_custom_hostname_resolver(None)
