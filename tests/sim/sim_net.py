"""A simulated network behind rmqha.transport's doors: ordered byte pipes between hosts that may die.

What the model takes from the world of TCP:

* Bytes arrive in order, after a latency, in pieces of any size; a bounded number is under way (back-pressure).
* A direction between two hosts may be a black hole: what is sent waits in the sender's kernel and arrives after
  the hole is closed. Connections survive that unless somebody loses patience.
* A process that dies sends FIN or RST. A machine that loses power sends nothing: the peer's connection is stale
  until it sends something to the rebooted machine, which answers with RST.
* Connecting is refused where nobody listens, and times out where nobody is.

There is no task and no timer in here: bytes carry their time of arrival, and receivers wait for it.
"""

import errno
from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from rmqha.memory import BytesLike
from tests.sim.journal import Journal, NodeDied
from tests.sim.sim_clock import Bell

if TYPE_CHECKING:
    from rmqha.store.disk import DataFile

CAPACITY: Final = 64 * 1024
_LATENCY_S: Final = (0.0001, 0.002)
_PIECES: Final = (1, 7, 8, 12, 12, 12, 13, 512, 32 * 1024)


class SimNet:
    """All hosts and everything between them."""

    def __init__(
        self,
        random: Random | None = None,
        *,
        journal: Journal | None = None,
        capacity: int = CAPACITY,
        latency_s: tuple[float, float] = _LATENCY_S,
        chopping: float = 0.1,
    ) -> None:
        self.random: Final = random or Random(0)
        self.journal: Final = journal or Journal()
        self.capacity: Final = capacity
        self.latency_s: Final = latency_s
        self.chopping: Final = chopping
        """How often a receiver gets a small odd piece instead of all that is there, or a frame leaves in two parts."""
        self.hosts: dict[str, SimHost] = {}
        self.holes: set[tuple[str, str]] = set()
        """Directions ``(from, to)`` in which nothing arrives; only ever asked for membership."""
        self.delays: dict[tuple[str, str], float] = {}
        """Directions in which everything takes so much longer."""
        self.narrow: dict[int, int] = {}
        """So many bytes are under way to a server's port at most, where that is less than :attr:`capacity`."""
        self.on_connected: Callable[[SimStream, int], None] = lambda _client, _port: None
        """``on_connected(client, port)``: told of each connection before anything is sent on it."""
        self.reuse = 0.0
        """How often a client gets the port again that its last connection to the same server had."""
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.connections: list[Connection] = []
        self.changed: Final = Bell()
        self._next_port = 40000

    def host(self, address: str) -> "SimHost":
        """The machine with this address, running from the start."""
        if address not in self.hosts:
            self.hosts[address] = SimHost(self, address)
        return self.hosts[address]

    def latency(self) -> float:
        """The time one segment is under way."""
        return self.random.uniform(*self.latency_s) if self.latency_s[1] else 0.0

    def is_port_reused(self) -> bool:
        """Whether a new connection gets the port of the last one."""
        return self.reuse > 0 and self.random.random() < self.reuse

    def is_chopped(self) -> bool:
        """Whether something is to arrive in parts this time."""
        return self.chopping > 0 and self.random.random() < self.chopping

    def next_port(self) -> int:
        """A port nobody has used in this run."""
        self._next_port += 1
        return self._next_port

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self.changed.ring()
        for connection in self.connections:
            connection.wake()

    def cut(self, sender: str, receiver: str) -> None:
        """From now on nothing gets from one host to the other (one way)."""
        self.journal.record("net.cut", sender, receiver)
        self.holes.add((sender, receiver))
        self.wake()

    def mend(self, holes: list[tuple[str, str]]) -> None:
        """Close these black holes."""
        self.journal.record("net.mended", *[host for hole in holes for host in hole])
        self.holes.difference_update(holes)
        self.wake()

    def heal(self) -> None:
        """Close all black holes."""
        self.journal.record("net.healed")
        self.holes.clear()
        self.delays.clear()
        self.wake()

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether bytes get through in this direction."""
        return (sender, receiver) not in self.holes

    def forget_finished(self) -> None:
        """Drop connections that are over at both ends."""
        self.connections = [c for c in self.connections if not (c.ends[0].gone and c.ends[1].gone)]

    def reuse_port(self, connection: "Connection") -> None:
        """The connection gets the client's port of an earlier one, which the server is then told of, at the latest."""
        client, server = connection.ends
        for former in reversed(self.connections[:-1]):
            if (former.ends[0].host, former.ends[0].peer) == (client.host, client.peer) and former.ends[0].gone:
                former.ends[1].break_at(trio.current_time())
                server.peer = former.ends[1].peer
                return

    def reset_between(self, one: str, other: str) -> None:
        """Break every connection of two hosts with an RST to both."""
        for connection in self.connections:
            if {end.host.address for end in connection.ends} == {one, other}:
                connection.reset()


class SimHost:
    """One machine: the incarnation counter of its process and the connections this process has."""

    def __init__(self, net: SimNet, address: str) -> None:
        self.net: Final = net
        self.address: Final = address
        self.up = True
        self.epoch = 0

    def mount(self) -> "SimNetwork":
        """The network as one new process on this machine sees it; the machine is up from now on."""
        self.epoch += 1
        self.up = True
        for connection in self.net.connections:
            connection.answer_stale(self)
        self.net.wake()
        return SimNetwork(self, self.epoch)

    def kill(self) -> None:
        """The process dies; the kernel tells every peer, by FIN, or by RST if something was unread."""
        self.epoch += 1
        for connection in self.net.connections:
            for end in connection.ends:
                if end.host is self and not end.gone:
                    end.hang_up(reset=bool(end.incoming.chunks))
        self._stop_listening()

    def power_cut(self) -> None:
        """The machine is gone, and nobody is told."""
        self.epoch += 1
        self.up = False
        for connection in self.net.connections:
            for end in connection.ends:
                if end.host is self and not end.gone:
                    end.gone = True
                    end.other.stale = True
        self._stop_listening()

    def _stop_listening(self) -> None:
        for key, listener in list(self.net.listeners.items()):
            if key[0] == self.address:
                listener.stop()
        self.net.forget_finished()
        self.net.wake()


class Pipe:
    """One direction of a connection. A chunk is ``(time of arrival, bytes)``; FIN is a chunk without bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity: Final = capacity
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.last_arrival = -inf

    def put(self, data: bytes, *, arrival: float) -> None:
        """Send behind everything sent before."""
        self.last_arrival = max(self.last_arrival, arrival)
        self.chunks.append((self.last_arrival, data))
        self.size += len(data)


class Connection:
    """Two ends and the bytes between them."""

    def __init__(self, net: SimNet, client: SimHost, server: SimHost, port: int) -> None:
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

    def reset(self) -> None:
        """An RST to both."""
        for end in self.ends:
            end.break_at(trio.current_time())

    def answer_stale(self, rebooted: SimHost) -> None:
        """A machine is back: what its old peers still try to send is answered with RST."""
        for end in self.ends:
            if end.stale and end.other.host is rebooted and end.outgoing.size:
                end.break_at(trio.current_time() + self.net.latency())


class SimStream:
    """rmqha.transport.Stream: one end of a connection, owned by one incarnation of one process."""

    other: "SimStream"

    def __init__(self, connection: Connection, host: SimHost, *, incoming: Pipe, outgoing: Pipe, peer: str) -> None:
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
        arrival, chunk = self.incoming.chunks.popleft()
        if not chunk:
            self.incoming.chunks.append((arrival, chunk))  # the end of the stream stays the end
            return 0
        limit = len(buffer)
        if self._net.is_chopped():
            limit = min(limit, self._net.random.choice(_PIECES))
        taken = 0
        while chunk:
            part = chunk[: limit - taken]
            buffer[taken : taken + len(part)] = part
            taken += len(part)
            if len(part) < len(chunk):
                self.incoming.chunks.appendleft((arrival, chunk[len(part) :]))
                break
            if not self.incoming.chunks or self.incoming.chunks[0][0] > trio.current_time() or self._net.is_chopped():
                break
            arrival, chunk = self.incoming.chunks.popleft()
            if not chunk:
                self.incoming.chunks.append((arrival, chunk))
        self.incoming.size -= taken
        self._net.journal.record("net.received", self.host.address, self.peer, taken)
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

    def close(self) -> None:
        """See rmqha.transport.Stream. Unread bytes turn the FIN into an RST, as in a real kernel."""
        if self.closed or self._epoch != self.host.epoch:
            return
        self.closed = True
        if not self.gone:
            self.hang_up(reset=any(chunk for _, chunk in self.incoming.chunks))
        self.wake()
        self._net.forget_finished()


class SimListener:
    """rmqha.transport.Listener. The kernel accepts connections before the process does."""

    def __init__(self, host: SimHost, port: int) -> None:
        self.port: Final = port
        self._host = host
        self._epoch = host.epoch
        self._backlog: deque[SimStream] = deque()
        self._changed = Bell()
        self._closed = False

    def offer(self, stream: SimStream) -> None:
        """A client connected."""
        self._backlog.append(stream)
        self._changed.ring()

    async def accept(self) -> SimStream:
        """See rmqha.transport.Listener."""
        has_waited = False
        while True:
            if self._epoch != self._host.epoch:
                raise NodeDied(self._host.address)
            if self._closed:
                raise trio.ClosedResourceError("this listener was closed")
            if self._backlog and has_waited:
                stream = self._backlog.popleft()
                if stream.is_broken:
                    stream.peer = "unknown"  # getpeername fails
                return stream
            if self._backlog:
                await trio.lowlevel.checkpoint()
            else:
                await self._changed.wait()
            has_waited = True

    def stop(self) -> None:
        """The port is free again, connections not accepted yet are reset."""
        self._host.net.listeners.pop((self._host.address, self.port), None)
        self._closed = True
        for stream in self._backlog:
            if not stream.gone:
                stream.hang_up(reset=True)
        self._backlog.clear()
        self._changed.ring()

    def close(self) -> None:
        """See rmqha.transport.Listener."""
        if not self._closed and self._epoch == self._host.epoch:
            self.stop()


class SimNetwork:
    """rmqha.transport.Network for one process."""

    def __init__(self, host: SimHost, epoch: int) -> None:
        self.host: Final = host
        self._epoch = epoch

    def _check_alive(self) -> None:
        if self._epoch != self.host.epoch:
            raise NodeDied(self.host.address)

    async def connect(self, host: str, port: int, *, timeout_s: float) -> SimStream:
        """See rmqha.transport.Network: half the round trip there, half back; SYNs are sent again meanwhile."""
        self._check_alive()
        net, server = self.host.net, self.host.net.host(host)
        net.journal.record("net.connect", self.host.address, host, port)
        deadline = trio.current_time() + timeout_s
        await trio.sleep(2 * net.latency())
        while not (server.up and net.passes(self.host.address, host) and net.passes(host, self.host.address)):
            await net.changed.wait(deadline)
            self._check_alive()
            if trio.current_time() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"no connection to {host}:{port} within {timeout_s:g} s")
        self._check_alive()
        listener = net.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        connection = Connection(net, self.host, server, port)
        if net.is_port_reused():
            net.reuse_port(connection)
        net.on_connected(connection.ends[0], port)
        listener.offer(connection.ends[1])
        return connection.ends[0]

    async def listen(self, host: str, port: int) -> SimListener:
        """See rmqha.transport.Network. The address is this machine's, whatever ``host`` says."""
        await trio.lowlevel.checkpoint()
        self._check_alive()
        net = self.host.net
        port = port or net.next_port()
        if (self.host.address, port) in net.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} is taken")
        listener = net.listeners[self.host.address, port] = SimListener(self.host, port)
        return listener
