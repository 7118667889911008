"""A server that stops: what it answered arrives, whatever the client goes on sending. Over the kernel's TCP."""

from collections.abc import Callable
from functools import partial

import trio

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.transport import Stream, TcpNetwork
from tests.settings import remoting_limits

FRAME = RemotingCommand(1, body=bytes(2000)).encode()


class Counting(RequestDispatcher):
    """Answers requests 1 with as many bytes as they have."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = 0
        self.register(1, self._answer)

    def _answer(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.answered += 1
        return RemotingCommand(0, body=bytes(request.body))


async def pipeline(stream: Stream) -> None:
    """Send for ever, until the server is gone."""
    try:
        while True:
            await stream.send_all(FRAME * 100)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def count_answers(stream: Stream) -> int:
    """Take what comes until its end."""
    decoder, buffer, answers = FrameDecoder(), memoryview(bytearray(1 << 16)), 0
    while count := await stream.receive_into(buffer):
        answers += len(decoder.receive_data(bytes(buffer[:count])))
    return answers


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - sockets are in no virtual time
        await trio.sleep(0.01)


async def test_who_sends_without_reading_gets_all_answers_that_were_sent() -> None:
    """Closed with requests unread, a connection is reset, and what was on its way is thrown away."""
    network, broker = TcpNetwork(), Counting()
    server = RemotingServer(broker, limits=remoting_limits(connection_outgoing_bytes_max=64 * 1024))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listener = await network.listen("127.0.0.1", 0)
            nursery.start_soon(server.serve, listener)
            stream = await network.connect("127.0.0.1", listener.port, timeout_s=5)
            nursery.start_soon(pipeline, stream)
            before = -1
            while broker.answered > before or not before:  # until the answers fill all buffers on their way
                before = broker.answered
                await trio.sleep(0.2)
            nursery.start_soon(partial(server.close, grace_s=30))
            await trio.sleep(0.1)
            assert await count_answers(stream) == broker.answered
            stream.close()
            await wait_until(lambda: not server.connections)
            nursery.cancel_scope.cancel()


async def test_who_never_leaves_is_waited_for_as_long_as_clients_are_given() -> None:
    network, broker = TcpNetwork(), Counting()
    server = RemotingServer(broker, limits=remoting_limits())
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listener = await network.listen("127.0.0.1", 0)
            nursery.start_soon(server.serve, listener)
            stays, asks_nothing = [await network.connect("127.0.0.1", listener.port, timeout_s=5) for _ in range(2)]
            await stays.send_all(FRAME)
            await wait_until(lambda: broker.answered == 1 and len(server.connections) == 2)
            begun_at = trio.current_time()
            nursery.start_soon(partial(server.close, grace_s=0.5))
            assert await count_answers(asks_nothing) == 0
            assert await count_answers(stays) == 1
            await wait_until(lambda: not server.connections)
            assert trio.current_time() - begun_at >= 0.5
            for stream in (stays, asks_nothing):
                stream.close()
            nursery.cancel_scope.cancel()
