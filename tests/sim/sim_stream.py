"""Connections of the simulated network: two ends, the bytes between them, and when those arrive."""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from rmqha.memory import BytesLike
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import Bell

if TYPE_CHECKING:
    from rmqha.store.disk import DataFile
    from tests.sim.sim_net import SimHost, SimNet

_PIECES: Final = (1, 7, 8, 12, 12, 12, 13, 512, 32 * 1024)


class Pipe:
    """One direction of a connection. A chunk is ``(time of arrival, bytes)``; FIN is a chunk without bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.last_arrival = -inf

    def put(self, data: bytes, *, arrival: float) -> None:
        """Send behind everything sent before."""
        if arrival > self.last_arrival:
            self.last_arrival = arrival
        self.chunks.append((self.last_arrival, data))
        self.size += len(data)

    def delay_last(self, late_s: float) -> None:
        """What was sent last, and all behind it, arrives so much later."""
        arrival, data = self.chunks.pop()
        self.last_arrival = arrival + late_s
        self.chunks.append((self.last_arrival, data))

    def hurry(self, moment: float) -> None:
        """All that is under way arrives by this moment."""
        self.last_arrival = min(self.last_arrival, moment)
        for number, (arrival, data) in enumerate(self.chunks):
            self.chunks[number] = min(arrival, moment), data


class Connection:
    """Two ends and the bytes between them."""

    def __init__(self, net: "SimNet", client: "SimHost", server: "SimHost", port: int) -> None:
        self.net: Final = net
        there, back = Pipe(min(net.capacity, net.narrow.get(port, net.capacity))), Pipe(net.capacity)
        self.ends: Final = (
            SimStream(self, client, incoming=back, outgoing=there, peer=f"{server.address}:{port}"),
            SimStream(self, server, incoming=there, outgoing=back, peer=f"{client.address}:{net.next_port()}"),
        )
        self.ends[0].other, self.ends[1].other = self.ends[1], self.ends[0]
        net.connections.append(self)

    def wake(self) -> None:
        """Let both ends look again."""
        for end in self.ends:
            end.wake()

    def hurry(self, moment: float) -> None:
        """All that is under way arrives by this moment."""
        for end in self.ends:
            end.hurry(moment)

    def reset(self) -> None:
        """An RST to both."""
        for end in self.ends:
            end.break_at(trio.current_time())

    def answer_stale(self, rebooted: "SimHost") -> None:
        """A machine is back: what its old peers still try to send is answered with RST."""
        for end in self.ends:
            if end.stale and end.other.host is rebooted and end.outgoing.size:
                end.break_at(trio.current_time() + self.net.latency())


class SimStream:
    """rmqha.transport.Stream: one end of a connection, owned by one incarnation of one process."""

    other: "SimStream"

    def __init__(self, connection: Connection, host: "SimHost", *, incoming: Pipe, outgoing: Pipe, peer: str) -> None:
        self.peer = peer
        self.host: Final = host
        self.incoming: Final = incoming
        self.outgoing: Final = outgoing
        self.closed = False
        self.gone = False
        """Nothing is read here any more: closed here, or the process died."""
        self.on_coming: Callable[[bytes], None] | None = None
        """Sees what the other side sends when it leaves there."""
        self.stale = False
        """The other machine lost power and does not know this connection."""
        self._net = connection.net
        self._epoch = host.epoch
        self._broken_at = inf
        self._readable, self._writable = Bell(), Bell()

    @property
    def local_port(self) -> int:
        """See rmqha.transport.Stream: where the other end sends to."""
        port = self.other.peer.rpartition(":")[2]
        return int(port) if port.isdigit() else 0

    def wake(self) -> None:
        """The tasks that wait at this end look again."""
        self._readable.ring()
        self._writable.ring()

    @property
    def is_broken(self) -> bool:
        """Whether an RST has arrived."""
        return trio.current_time() >= self._broken_at

    def break_at(self, moment: float) -> None:
        """An RST arrives here at this moment."""
        self._broken_at = min(self._broken_at, moment)
        self.wake()

    def hurry(self, moment: float) -> None:
        """All that is under way to here arrives by this moment, an RST, too."""
        self.incoming.hurry(moment)
        if self._broken_at < inf:
            self.break_at(min(self._broken_at, moment))

    def hang_up(self, *, reset: bool) -> None:
        """Nothing is sent or read here any more; the other end learns of it."""
        self.gone = True
        arrival = trio.current_time() + self._net.latency()
        if reset:
            self.other.break_at(max(arrival, self.outgoing.last_arrival))
        else:
            self.outgoing.put(b"", arrival=arrival)
        self.other.wake()

    def _check_usable(self) -> None:
        if self._epoch != self.host.epoch:
            raise NodeDied(self.host.address)
        if self.closed:
            raise trio.ClosedResourceError("this connection was closed here")

    def _check_unbroken(self) -> None:
        if trio.current_time() >= self._broken_at and self._net.passes(self.other.host.address, self.host.address):
            self.gone = True
            raise trio.BrokenResourceError(f"connection to {self.peer}: reset")

    async def receive_into(self, buffer: memoryview) -> int:
        """See rmqha.transport.Stream."""
        has_waited, chunks = False, self.incoming.chunks
        while True:
            if self.closed or self._epoch != self.host.epoch:
                self._check_usable()
            now, deadline = trio.current_time(), self._broken_at
            if deadline <= now:
                self._check_unbroken()
                deadline = inf
            if chunks and self._net.passes(self.other.host.address, self.host.address):
                arrival = chunks[0][0]
                if arrival <= now and has_waited:
                    return self._take(buffer)
                if arrival < deadline:
                    deadline = arrival
            if deadline <= now:
                await trio.lowlevel.checkpoint()
            else:
                await self._readable.wait(deadline)
            has_waited = True

    def _take(self, buffer: memoryview) -> int:
        chunks, net = self.incoming.chunks, self._net
        arrival, chunk = chunks.popleft()
        if not chunk:
            chunks.append((arrival, chunk))  # the end of the stream stays the end
            return 0
        limit = len(buffer)
        if net.is_chopped():
            limit = min(limit, net.random.choice(_PIECES))
        taken = 0
        while chunk:
            size, room = len(chunk), limit - taken
            if size > room:
                buffer[taken:limit] = chunk[:room]
                chunks.appendleft((arrival, chunk[room:]))
                taken = limit
                break
            buffer[taken : taken + size] = chunk
            taken += size
            if not chunks or chunks[0][0] > trio.current_time() or net.is_chopped():
                break
            arrival, chunk = chunks.popleft()
            if not chunk:
                chunks.append((arrival, chunk))
        self.incoming.size -= taken
        net.journal.record("net.received", self.host.address, self.peer, taken)
        self.other._writable.ring()
        return taken

    async def send_all(self, data: BytesLike) -> None:
        """See rmqha.transport.Stream."""
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            taken = self.send_nowait(rest)
            rest = rest[taken:]
            if rest:
                await self._writable.wait(self._broken_at if self._broken_at > trio.current_time() else inf)

    def send_nowait(self, data: BytesLike) -> int:
        """See rmqha.transport.Stream."""
        self._check_usable()
        now, other = trio.current_time(), self.other
        if self._broken_at <= now:
            self._check_unbroken()
        if other.gone and not self.stale:
            self.break_at(now + 2 * self._net.latency())  # the other kernel answers RST
        taken = min(len(data), self.outgoing.capacity - self.outgoing.size)
        if taken <= 0:
            return 0
        sent = bytes(data[:taken])
        self.outgoing.put(sent, arrival=now + self._way_s())
        other._readable.ring_at(self.outgoing.last_arrival)
        if other.on_coming is not None:
            other.on_coming(sent)
        if self.stale and self.other.host.up:
            self.break_at(trio.current_time() + 2 * self._net.latency())
        return taken

    def _way_s(self) -> float:
        """So long do bytes that leave now take."""
        delays = self._net.delays
        late_s = delays.get((self.host.address, self.other.host.address), 0.0) if delays else 0.0
        return self._net.latency() + late_s

    async def send_file(self, header: bytes, file: "DataFile", at: int, size: int) -> None:
        """See rmqha.transport.Stream. The header may be on its way before the body."""
        body = bytes(file.view()[at : at + size])
        if self._net.is_chopped():
            await self.send_all(header)
            await self.send_all(body)
        else:
            await self.send_all(header + body)

    def send_eof(self) -> None:
        """See rmqha.transport.Stream."""
        if not self.closed and not self.gone and self._epoch == self.host.epoch:
            self.outgoing.put(b"", arrival=trio.current_time() + self._net.latency())
            self.other.wake()

    def close(self) -> None:
        """See rmqha.transport.Stream. Unread bytes turn the FIN into an RST, as in a real kernel."""
        if self.closed or self._epoch != self.host.epoch:
            return
        self.closed = True
        if not self.gone:
            self.hang_up(reset=any(chunk for _, chunk in self.incoming.chunks))
        self.wake()
        self._net.forget_finished()
