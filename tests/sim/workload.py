"""Producers, and consumers that look at everything the brokers let them see."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand, decode_frames
from rmqha.codec.send_answers import decode_send_response
from rmqha.memory import BytesLike
from rmqha.remoting.connection import Connection
from tests.sim.journal import NodeDied
from tests.sim.nemesis import draw_plan
from tests.sim.sim_clock import stream
from tests.sim.swarm import CHAOS_S

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

TOPICS: Final = ("alpha", "beta")
QUEUES: Final = 2
_NEAR_A_FAULT: Final = 0.6
ANSWER_S: Final = 8.0
"""Every request is answered within this time: syncFlushTimeout is 5 s, slaveTimeout 3 s."""
SEGMENT_S: Final = 5.0
"""While the disk hangs it may have waited so long before, for a segment to be stored in."""


@dataclass(eq=False, slots=True)
class Message:
    """One message to be sent. ``number`` is unique in a run and stands in the body."""

    number: int
    at: float
    topic: str
    queue_id: int
    body: bytes
    code: int | None = None
    """How the broker answered."""


class SimClient:
    """Stands for a producer's connection: takes the broker's answers."""

    peer = "10.0.0.99:5000"

    def __init__(self, world: "World", process: "Process") -> None:
        self.world = world
        self.process = process
        self.waiting: dict[int, Message] = {}
        self.answered = trio.Event()
        """Or nobody will answer any more."""
        self.closed = False

    def close(self) -> None:
        """The broker ends: it answers no more."""
        self.closed = True
        self.answered.set()

    def send(self, messages: list[Message]) -> None:
        """Hand all messages to the broker as requests that arrived together."""
        dispatcher = self.process.broker.dispatcher
        assert dispatcher is not None, "it serves"
        self.waiting = {message.number: message for message in messages}
        self.process.broker.clients[self] = None
        dispatcher.process(cast(Connection, self), [_request(message) for message in messages])

    def respond(self, request: RemotingCommand, code: int, *, remark: str | None = None, **_: object) -> None:
        """An answer without a message stored."""
        self._take(request.opaque, RemotingCommand(code, opaque=request.opaque, remark=remark))

    def send_response(self, *parts: BytesLike) -> None:
        """An encoded answer."""
        frames, _ = decode_frames(b"".join(parts))
        for answer in frames:
            self._take(answer.opaque, answer)

    send_nowait = send_response

    def send_responses(self, frames: list[bytes]) -> None:
        """Encoded answers that leave together."""
        self.send_response(*frames)

    def _take(self, number: int, answer: RemotingCommand) -> None:
        message = self.waiting.pop(number, None)
        if message is None:
            self.world.checker.violation("I8", f"message {number} was answered twice")
            return
        message.code = answer.code
        self.world.journal.record("answer", number, int(answer.code))
        if answer.code == ResponseCode.SUCCESS:
            response = decode_send_response(answer)
            offset = int(response.msg_id[16:], 16)
            self.world.checker.on_send_ok(self.process, message, offset=offset, queue_offset=response.queue_offset)
        if not self.waiting:
            self.answered.set()


def _request(message: Message) -> RemotingCommand:
    fields = {
        "a": "sim", "b": message.topic, "c": "TBW102", "d": str(QUEUES), "e": str(message.queue_id), "f": "0",
        "g": "1700000000000", "h": "0", "i": "TAGS\x01t", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=message.number, ext_fields=fields, body=message.body)


def draw_messages(world: "World") -> list[list[Message]]:
    """All messages of the chaos, in bursts, a list for each producer. Most are sent when something goes wrong."""
    swarm, random = world.swarm, stream(world.seed, "workload")
    faults = draw_plan(world.seed, swarm)
    bursts: list[list[list[Message]]] = [[] for _ in range(swarm.producers)]
    number = 0
    while number < swarm.messages:
        count = random.randint(1, swarm.burst)
        at = random.uniform(0, CHAOS_S)
        if number == 0 and faults:
            at = faults[0].at * random.uniform(0.3, 0.9)
        elif faults and random.random() < _NEAR_A_FAULT:
            at = min(max(0.0, random.choice(faults).at + random.uniform(-0.1, 0.6)), CHAOS_S)
        topic, queue_id = random.choice(TOPICS), random.randrange(QUEUES)
        burst = []
        for _ in range(count):
            size = random.randint(swarm.body_size_min, swarm.body_size_max)
            burst.append(Message(number, at, topic, queue_id, b"<%06d>" % number + random.randbytes(size)))
            number += 1
        random.choice(bursts).append(burst)
    return [[m for burst in sorted(mine, key=lambda b: b[0].at) for m in burst] for mine in bursts]


class Producer:
    """Sends its messages at their times, one burst after the other, to whoever is master then."""

    def __init__(self, world: "World", messages: list[Message]) -> None:
        self.world = world
        self.messages = messages

    async def run(self) -> None:
        """Send everything; messages for which there is no master at their time are not sent at all."""
        rest = self.messages
        while rest:
            burst = [message for message in rest if message.at == rest[0].at]
            rest = rest[len(burst) :]
            await trio.sleep_until(burst[0].at)
            if trio.current_time() > CHAOS_S:
                return
            await send(self.world, burst)


async def send(world: "World", burst: list[Message]) -> None:
    """Send and wait for every answer, or for the death of the process that owes it."""
    process = world.master.process
    asked_at, limit_s = trio.current_time(), world.swarm.answer_s(sum(len(message.body) for message in burst))
    is_calm = world.is_calm_until(asked_at + limit_s)
    if process is None or not process.is_serving:
        return
    client = SimClient(world, process)
    world.journal.record("send", burst[0].number, len(burst))
    try:
        client.send(burst)
    except NodeDied:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, a broker must not raise it
        world.checker.violation("crash", f"handling a request raised {error!r}")
        world.keep_traceback(error)
        return
    await _wait_answered(world, client, burst)
    if is_calm:
        world.checker.check_prompt(burst, answered_s=trio.current_time() - asked_at, limit_s=limit_s)


async def _wait_answered(world: "World", client: SimClient, burst: list[Message]) -> None:
    if not client.waiting:
        return
    with trio.move_on_after(ANSWER_S + (SEGMENT_S if world.master.disk.faults.hung_until > burst[0].at else 0.0)):
        await client.answered.wait()
    client.process.broker.clients.pop(client, None)
    if client.waiting and not client.process.dead and not client.closed:
        numbers = sorted(client.waiting)
        world.checker.violation("I8", f"messages {numbers} sent at {burst[0].at:.3f} are not answered in time")
