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

from collections.abc import Callable
from random import Random
from typing import Final

import trio

from tests.sim.journal import Journal
from tests.sim.sim_clock import Bell
from tests.sim.sim_network import SimListener, SimNetwork
from tests.sim.sim_stream import Connection, SimStream

__all__ = ["CAPACITY", "Connection", "SimHost", "SimListener", "SimNet", "SimNetwork", "SimStream"]

CAPACITY: Final = 64 * 1024
_LATENCY_S: Final = (0.0001, 0.002)


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
        least, most = self.latency_s
        return least + (most - least) * self.random.random() if most else 0.0

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
        """Close all black holes; what is late on a slow line arrives as soon as on any other."""
        self.journal.record("net.healed")
        self.holes.clear()
        self.delays.clear()
        for connection in self.connections:
            connection.hurry(trio.current_time() + self.latency_s[1])
        self.wake()

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether bytes get through in this direction."""
        return (sender, receiver) not in self.holes

    def forget_finished(self) -> None:
        """Drop connections that are over at both ends."""
        self.connections = [c for c in self.connections if not (c.ends[0].gone and c.ends[1].gone)]

    def reuse_port(self, connection: Connection) -> None:
        """The connection gets the client's port of an earlier one, which the server is then told of, at the latest."""
        client, server = connection.ends
        for former in reversed(self.connections[:-1]):
            if (former.ends[0].host, former.ends[0].peer) == (client.host, client.peer) and former.ends[0].gone:
                former.ends[1].break_at(trio.current_time())
                server.peer = former.ends[1].peer
                return

    def choke(self, port: int) -> None:
        """From now on nothing more is taken by the lines there are to this port, either way; nothing breaks."""
        self.journal.record("net.choked", port)
        for connection in self.connections:
            if connection.ends[0].peer.endswith(f":{port}"):
                for end in connection.ends:
                    end.outgoing.capacity = 0

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

    def mount(self) -> SimNetwork:
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
