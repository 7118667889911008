"""Envoy: asks the master of the moment, on a connection of its own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.sim.sim_client import Question, SimClient, connect
from tests.sim.sim_clock import EPOCH_MS
from tests.sim.workload import QUEUES, SEGMENT_S, STORED, Message

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

Witness = Callable[["Process", RemotingCommand], None]
"""Sees an answer as it leaves the broker."""


class Envoy:
    """One client. ``greet`` is what it says first on each new connection; it may be asked in return."""

    def __init__(
        self, world: "World", *, greet: Callable[[], RemotingCommand] | None = None, on_question: Question | None = None
    ) -> None:
        self._world: Final = world
        self._greet: Final = greet
        self._on_question: Final = on_question
        self._client: SimClient | None = None
        self._connecting: Final = trio.Lock()

    async def connected(self) -> SimClient | None:
        """The connection to the master, a new one if need be; None if there is no master now."""
        async with self._connecting:
            return await self._connect()

    async def _connect(self) -> SimClient | None:
        world, client = self._world, self._client
        if client is not None and client.is_usable and client.process.node is world.master:
            return client
        if client is not None:
            client.remoting.close()
        self._client = None
        if (process := world.master.process) is None or not process.is_serving:
            return None
        client = await connect(world, world.master)
        if client is not None:
            client.on_question = self._on_question
            if self._greet is not None:
                await client.invoke(self._greet(), lambda _: None, timeout_s=self._limit_s)
        self._client = client
        return client

    async def ask(self, request: RemotingCommand, witness: Witness) -> None:
        """Ask, and wait for the answer, if one comes."""
        client = await self.connected()
        if client is not None:
            process = client.process
            await client.invoke(request, lambda answer: witness(process, answer), timeout_s=self._limit_s)

    async def send(self, request: RemotingCommand, message: Message) -> tuple[int, int] | None:
        """Send a message that lies in the queue of ``message`` then; None unless it is SEND_OK.

        Returns:
            Where it lies in its queue, and in the log.
        """
        places: list[tuple[int, int]] = []

        def on_answer(process: "Process", answer: RemotingCommand) -> None:
            if answer.code not in STORED:
                return
            header = decode_send_response(answer)
            offset, checker = int(header.msg_id[16:], 16), self._world.checker
            checker.on_stored(process, offset)
            if answer.code == ResponseCode.SUCCESS:
                checker.on_send_ok(process, message, offset=offset, queue_offset=header.queue_offset)
                places.append((header.queue_offset, offset))

        await self.ask(request, on_answer)
        return places[0] if places else None

    @property
    def _limit_s(self) -> float:
        return self._world.swarm.patience_s + SEGMENT_S


def fields_of(topic: str, queue_id: int, properties: str, *, sys_flag: int = 0) -> dict[str, str]:
    """Of a send by request 310, now."""
    born_ms = EPOCH_MS + int(1000 * trio.current_time())
    return {
        "a": "sim", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue_id), "f": str(sys_flag),
        "g": str(born_ms), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
