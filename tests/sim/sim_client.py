"""A client's connection: the real RemotingClient on one side, the broker's port on the other, a witness in between.

Answers are looked at when they leave the broker: what SEND_OK promises must hold then, not when it arrives.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand, decode_frames
from rmqha.errors import RemotingError, RemotingTimeoutError
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.response_table import Outcome
from tests.sim.node import LISTEN_PORT
from tests.sim.sim_net import SimStream

if TYPE_CHECKING:
    from tests.sim.node import Process, SimNode
    from tests.sim.world import World

CLIENTS: Final = "10.0.0.99"
"""The machine of all clients. Nothing ever happens to its lines."""
_RECEIVE_SIZE: Final = 4096
_CONNECT_TIMEOUT_S: Final = 3.0

Witness = Callable[[RemotingCommand], None]
"""Sees an answer as it leaves the broker."""
Question = Callable[["SimClient", RemotingCommand], None]
"""What a broker asks of a client, as it leaves the broker."""


class SimClient:
    """One connection to one process of a broker. ``ended`` is set when nothing more can come."""

    def __init__(self, world: "World", process: "Process", stream: SimStream) -> None:
        self.world: Final = world
        self.process: Final = process
        self.remoting: Final = RemotingClient(stream, process.node.address, receive_size=_RECEIVE_SIZE)
        self.ended: Final = trio.Event()
        self.on_question: Question | None = None
        self._awaited: dict[int, Witness] = {}
        self._invoked: list[tuple[RemotingCommand, Witness]] = []
        self._wire = b""
        stream.on_coming = self._on_coming

    async def run(self) -> None:
        """As long as the connection lasts."""
        await self.remoting.run()
        self.ended.set()

    @property
    def is_usable(self) -> bool:
        """Whether it leads to the process that runs there now."""
        return not self.ended.is_set() and not self.remoting.closed and self.process.is_serving

    @property
    def owes(self) -> bool:
        """Whether the broker has no excuse for an answer that does not come."""
        return not self.process.dead and not self.process.is_stopping

    def expect(self, witness: Witness, done: Callable[[Outcome], None], *, timeout_s: float) -> int:
        """Await an answer; returns the opaque to ask with."""
        opaque = self.remoting.expect(trio.current_time() + timeout_s, done)
        if opaque in self._awaited:
            self.world.checker.violation("I8", f"opaque {opaque} is given out again before its answer came")
        self._awaited[opaque] = witness
        return opaque

    def ask(
        self, request: RemotingCommand, witness: Witness, done: Callable[[Outcome], None], *, timeout_s: float
    ) -> None:
        """Send one request. An answer that does not come in time is a violation, unless the broker is excused."""

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingTimeoutError) and self.owes:
                self.world.checker.violation("I8", f"request {request.code} is not answered within {timeout_s:g} s")
            done(outcome)

        request.opaque = self.expect(witness, on_outcome, timeout_s=timeout_s)
        self.remoting.put(request.encode())

    async def invoke(self, request: RemotingCommand, witness: Witness, *, timeout_s: float) -> None:
        """Ask, and wait for the answer or the end of the connection; the waiting task may be cancelled."""
        self._invoked.append((request, witness))
        try:
            await self.remoting.invoke(request, timeout_s=timeout_s)
        except RemotingTimeoutError:
            if self.owes:
                self.world.checker.violation("I8", f"request {request.code} is not answered within {timeout_s:g} s")
        except RemotingError:
            return

    def _witness_of(self, opaque: int) -> Witness | None:
        found = [invoked for invoked in self._invoked if invoked[0].opaque == opaque]
        if len(found) + (opaque in self._awaited) > 1:
            self.world.checker.violation("I8", f"opaque {opaque} is given out again before its answer came")
        if found:
            self._invoked.remove(found[0])
            return found[0][1]
        return self._awaited.pop(opaque, None)

    def _on_coming(self, data: bytes) -> None:
        frames, taken = decode_frames(self._wire + data)
        self._wire = (self._wire + data)[taken:]
        for answer in frames:
            if not answer.flag & FLAG_RESPONSE:
                if self.on_question is not None and not self.process.dead:
                    self.on_question(self, answer)
                continue
            witness = self._witness_of(answer.opaque)
            if witness is None:
                self.world.checker.violation("I8", f"an answer to nothing: opaque {answer.opaque} (or a second one)")
            elif not self.process.dead:
                witness(answer)


async def connect(world: "World", node: "SimNode") -> SimClient | None:
    """A connection to the broker on this node; None if there is none."""
    try:
        stream = await world.clients.connect(node.address, LISTEN_PORT, timeout_s=_CONNECT_TIMEOUT_S)
    except OSError:
        return None
    process = node.process
    if process is None:
        stream.close()
        return None
    client = SimClient(world, process, stream)
    world.nursery.start_soon(client.run)
    return client
