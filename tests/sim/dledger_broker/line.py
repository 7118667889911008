"""A client's connection to a broker: the real RemotingClient, and a witness of what the broker sends on it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand, decode_frames
from rmqha.errors import RemotingError, RemotingTimeoutError
from rmqha.remoting.client import RemotingClient
from tests.sim.dledger_broker.machine import LISTEN_PORT, BrokerMachine, BrokerProcess
from tests.sim.sim_net import SimNetwork, SimStream

if TYPE_CHECKING:
    from tests.sim.dledger_broker.world import BrokerWorld

Witness = Callable[[RemotingCommand], None]
"""Sees an answer as it leaves the broker."""
_RECEIVE_SIZE: Final = 4096
_CONNECT_TIMEOUT_S: Final = 1.0
ANSWER_S: Final = 8.0
"""Every request is answered within this time by a broker that lives."""


class Line:
    """One connection to one process of a broker."""

    def __init__(self, world: "BrokerWorld", machine: BrokerMachine, life: BrokerProcess, stream: SimStream) -> None:
        self.world: Final = world
        self.machine: Final = machine
        self.life: Final = life
        self.remoting: Final = RemotingClient(stream, machine.address, receive_size=_RECEIVE_SIZE)
        self._asked: Final = list[tuple[RemotingCommand, Witness]]()
        self._wire = b""
        stream.on_coming = self._on_coming
        world.nursery.start_soon(self.remoting.run)

    @property
    def is_usable(self) -> bool:
        """Whether it leads to the process that runs there now."""
        return not self.remoting.closed and self.life.owes

    async def ask(self, request: RemotingCommand, witness: Witness, *, held_s: float = 0.0) -> RemotingCommand | None:
        """Ask, and wait for the answer; None if the connection ends before."""
        self._asked.append((request, witness))
        hung_s = max(0.0, self.machine.disk.faults.hung_until - trio.current_time())
        try:
            return await self.remoting.invoke(request, timeout_s=ANSWER_S + held_s + hung_s)
        except RemotingTimeoutError:
            if self.life.owes and self.machine.disk.faults.hung_until < trio.current_time() - ANSWER_S:
                what = f"{self.machine.name} does not answer request {request.code} of {request.ext_fields}"
                self.world.checker.violation("I8", what)
        except RemotingError:
            pass
        return None

    def _on_coming(self, data: bytes) -> None:
        frames, taken = decode_frames(self._wire + data)
        self._wire = (self._wire + data)[taken:]
        for answer in frames:
            if not answer.flag & FLAG_RESPONSE:
                continue
            found = [asked for asked in self._asked if asked[0].opaque == answer.opaque]
            if len(found) != 1:
                self.world.checker.violation("I8", f"an answer to nothing, or a second one: opaque {answer.opaque}")
                return
            self._asked.remove(found[0])
            if not self.life.dead:
                found[0][1](answer)


async def connect(world: "BrokerWorld", network: SimNetwork, machine: BrokerMachine) -> Line | None:
    """A connection to the broker there; None if there is none."""
    try:
        stream = await network.connect(machine.address, LISTEN_PORT, timeout_s=_CONNECT_TIMEOUT_S)
    except OSError:
        return None
    if (life := machine.life) is None:
        stream.close()
        return None
    return Line(world, machine, life, stream)
