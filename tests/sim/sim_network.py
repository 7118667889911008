"""The simulated network as one process sees it: rmqha.transport.Network, and who listens."""

import errno
from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from tests.sim.journal import NodeDied
from tests.sim.sim_clock import Bell
from tests.sim.sim_stream import Connection, SimStream

if TYPE_CHECKING:
    from tests.sim.sim_net import SimHost


class SimListener:
    """rmqha.transport.Listener. The kernel accepts connections before the process does."""

    def __init__(self, host: "SimHost", port: int, *, unsent_bytes_max: int | None = None) -> None:
        self.port: Final = port
        self.unsent_bytes_max: Final = unsent_bytes_max
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

    def __init__(self, host: "SimHost", epoch: int) -> None:
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

    async def listen(self, host: str, port: int, *, unsent_bytes_max: int | None = None) -> SimListener:
        """See rmqha.transport.Network. The address is this machine's, whatever ``host`` says."""
        await trio.lowlevel.checkpoint()
        self._check_alive()
        net = self.host.net
        port = port or net.next_port()
        if (self.host.address, port) in net.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} is taken")
        listener = SimListener(self.host, port, unsent_bytes_max=unsent_bytes_max)
        net.listeners[self.host.address, port] = listener
        return listener
