"""TcpStream over real sockets: what only the kernel can show."""

import trio

from rmqha.transport import TcpNetwork


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
