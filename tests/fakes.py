"""Fakes shared by the tests: an in-memory network behind rmqha.transport's doors."""

import errno
from collections import deque
from typing import TYPE_CHECKING

import trio

from rmqha.memory import BytesLike

if TYPE_CHECKING:
    from rmqha.store.disk import DataFile


class MemoryPipe:
    """One direction of a connection: a bounded byte queue."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.chunks: deque[bytes] = deque()
        self.size = 0
        self.ended = False  # the writer closed: what is queued can still be read
        self.broken = False  # reset: nothing more
        self.changed = trio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def put_nowait(self, data: BytesLike) -> int:
        if self.broken or self.ended:
            raise trio.BrokenResourceError("the peer closed this connection")
        taken = min(len(data), self.capacity - self.size)
        if taken > 0:
            self.chunks.append(bytes(data[:taken]))
            self.size += taken
            self.wake()
        return max(taken, 0)

    def take_nowait(self, buffer: memoryview) -> int:
        chunk = self.chunks.popleft()
        taken = min(len(chunk), len(buffer))
        buffer[:taken] = chunk[:taken]
        if taken < len(chunk):
            self.chunks.appendleft(chunk[taken:])
        self.size -= taken
        self.wake()
        return taken


class MemoryStream:
    """One end of an in-memory connection (rmqha.transport.Stream)."""

    def __init__(self, incoming: MemoryPipe, outgoing: MemoryPipe, peer: str, *, local_port: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.peer = peer
        self.local_port = local_port
        self.closed = False

    async def receive_into(self, buffer: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        while not self.incoming.chunks:
            if self.closed:
                raise trio.ClosedResourceError("this connection was closed here")
            if self.incoming.broken:
                raise trio.BrokenResourceError("connection reset")
            if self.incoming.ended:
                return 0
            await self.incoming.changed.wait()
        if self.closed:
            raise trio.ClosedResourceError("this connection was closed here")
        return self.incoming.take_nowait(buffer)

    async def send_all(self, data: BytesLike) -> None:
        await trio.lowlevel.checkpoint()
        view = memoryview(data)
        while view:
            taken = self.send_nowait(view)
            view = view[taken:]
            if view:
                await self.outgoing.changed.wait()

    def send_nowait(self, data: BytesLike) -> int:
        if self.closed:
            raise trio.ClosedResourceError("this connection was closed here")
        return self.outgoing.put_nowait(data)

    async def send_file(self, header: bytes, file: "DataFile", at: int, size: int) -> None:
        await self.send_all(header)
        await self.send_all(file.view()[at : at + size])

    def send_eof(self) -> None:
        self.outgoing.ended = True
        self.outgoing.wake()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.outgoing.ended = True
            self.incoming.ended = True
            self.outgoing.wake()
            self.incoming.wake()

    def reset(self) -> None:
        """As an RST: what was queued is lost in both directions."""
        for pipe in (self.incoming, self.outgoing):
            pipe.broken = True
            pipe.chunks.clear()
            pipe.size = 0
            pipe.wake()


def memory_connection(
    *, peer_a: str = "10.0.0.1:1000", peer_b: str = "10.0.0.2:2000", capacity: int = 1 << 20
) -> tuple[MemoryStream, MemoryStream]:
    """Both ends of a connection; each sees the other's address as its peer."""
    there, back = MemoryPipe(capacity), MemoryPipe(capacity)
    port_a, port_b = (int(peer.rpartition(":")[2]) for peer in (peer_a, peer_b))
    return (
        MemoryStream(back, there, peer_b, local_port=port_a),
        MemoryStream(there, back, peer_a, local_port=port_b),
    )


class MemoryListener:
    """A listener of a MemoryNetwork."""

    def __init__(self, network: "MemoryNetwork", host: str, port: int, *, unsent_bytes_max: int | None = None) -> None:
        self.network = network
        self.unsent_bytes_max = unsent_bytes_max
        self.host = host
        self.port = port
        self.closed = False
        self._accepted, self._accepting = trio.open_memory_channel[MemoryStream](128)

    def offer(self, stream: MemoryStream) -> None:
        self._accepted.send_nowait(stream)

    async def accept(self) -> MemoryStream:
        try:
            return await self._accepting.receive()
        except trio.EndOfChannel:
            raise trio.ClosedResourceError("this listener was closed") from None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._accepted.close()
            del self.network.listeners[self.port]


class MemoryNetwork:
    """Every host in one process; a listener is found by its port alone."""

    def __init__(self, *, host: str = "10.0.0.1", capacity: int = 1 << 20) -> None:
        self.host = host
        self.capacity = capacity
        self.listeners: dict[int, MemoryListener] = {}
        self.connections: list[MemoryStream] = []
        self.next_port = 20000

    async def connect(self, host: str, port: int, *, timeout_s: float) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        if port not in self.listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        self.next_port += 1
        mine, theirs = memory_connection(
            peer_a=f"{self.host}:{self.next_port}", peer_b=f"{host}:{port}", capacity=self.capacity
        )
        self.listeners[port].offer(theirs)
        self.connections.append(mine)
        return mine

    async def listen(self, host: str, port: int, *, unsent_bytes_max: int | None = None) -> MemoryListener:
        await trio.lowlevel.checkpoint()
        if port == 0:
            self.next_port += 1
            port = self.next_port
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} is taken")
        listener = self.listeners[port] = MemoryListener(self, host, port, unsent_bytes_max=unsent_bytes_max)
        return listener
