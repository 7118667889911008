"""Producers: what they send, and when."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.errors import RemotingError
from rmqha.remoting.response_table import Outcome
from tests.sim.sim_client import SimClient, connect
from tests.sim.sim_clock import stream
from tests.sim.swarm import CHAOS_S, RECORD_OVERHEAD, Swarm

if TYPE_CHECKING:
    from tests.sim.nemesis import Fault
    from tests.sim.world import World

TOPICS: Final = ("alpha", "beta")
LATE: Final = "late"
"""Where delayed messages go."""
PAID: Final = "paid"
"""Where transactional messages go."""
QUEUES: Final = 2
_NEAR_A_FAULT: Final = 0.6
STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
_TAGGED: Final = b"TAGS\x01t\x02"
_MIXED: Final = 0.4
_AFTER_TWINS_S: Final = (0.5, 2.0, 2.7)
_BEFORE_THE_END: Final = (0, 7, 8, 8, 8, 9, 8 + 91, 500)
_WAY_BACK_S: Final = 1.0
"""An answer may be so long on its way."""
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
    how: str = ""
    """``batch``: with all others of its burst in one request; ``oneway``: nobody is told what became of it."""


def _number(number: int) -> bytes:
    """What a body begins with."""
    return b"<%06d>" % number


def _request(messages: list[Message], *, keys: bool) -> RemotingCommand:
    """One message, or a batch."""
    message = messages[0]
    properties = f"TAGS\x01t\x02UNIQ_KEY\x01{message.number:032X}\x02KEYS\x01a b" if keys else "TAGS\x01t"
    fields = {
        "a": "sim", "b": message.topic, "c": "TBW102", "d": str(QUEUES), "e": str(message.queue_id), "f": "0",
        "g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    if message.how == "batch":
        body = encode_batch(BatchEntry(0, one.body, _TAGGED) for one in messages)
        fields |= {"i": "", "m": "true"}
        return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext_fields=fields, body=body)
    if message.how == "oneway":
        opaque = -1 - message.number
        return RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, opaque=opaque, flag=FLAG_ONEWAY, ext_fields=fields, body=message.body
        )
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=message.body)


def draw_messages(world: "World") -> list[list[list[Message]]]:
    """All messages of the chaos, in bursts, a list for each producer. Most are sent when something goes wrong.

    Of one burst all have the same time and queue; several may be due at once, at the end of the chaos.
    """
    swarm, random, faults = world.swarm, stream(world.seed, "workload"), world.drawn
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
            burst.append(Message(number, at, topic, queue_id, _number(number) + random.randbytes(size)))
            number += 1
        if swarm.mixed:
            _mix(random, burst, segment_size=swarm.segment_size)
        random.choice(bursts).append(burst)
    for fault in faults:
        if fault.kind == "twins":
            for after_s in _AFTER_TWINS_S:
                bursts[0].append([Message(number, fault.at + after_s, "alpha", 0, _number(number) + b"twin")])
                number += 1
    mine_in_order = [sorted(mine, key=lambda burst: burst[0].at) for mine in bursts]
    return [list(_only(mine, world.only_messages)) for mine in mine_in_order]


def numbers(swarm: Swarm, drawn: "list[Fault]") -> range:
    """Of all messages that may be drawn near these faults."""
    return range(swarm.messages + swarm.burst + len(_AFTER_TWINS_S) * len(drawn))


def _only(bursts: list[list[Message]], wanted: frozenset[int] | None) -> Iterator[list[Message]]:
    """What is left of bursts of which only some messages are sent; None: all."""
    for burst in bursts:
        if chosen := [message for message in burst if wanted is None or message.number in wanted]:
            yield chosen


def _mix(random: Random, burst: list[Message], *, segment_size: int) -> None:
    """Let this burst be a batch, if one may be so large with such segments, or some of its messages be one-way."""
    if (
        random.random() < _MIXED
        and sum(len(message.body) + RECORD_OVERHEAD for message in burst) < segment_size * 3 // 4
    ):
        for message in burst:
            message.how = "batch"
    elif random.random() < _MIXED:
        for message in burst:
            message.how = random.choice(("", "oneway"))


class Producer:
    """Sends its bursts at their times, one after the other, to the master of that time."""

    def __init__(self, world: "World", bursts: list[list[Message]]) -> None:
        self.world: Final = world
        self.bursts: Final = bursts
        self._client: SimClient | None = None

    async def run(self) -> None:
        """Send everything; messages for which there is no master at their time are not sent at all."""
        for burst in self.bursts:
            await trio.sleep_until(burst[0].at)
            if trio.current_time() > CHAOS_S:
                return
            await self.send(burst)

    async def send(self, burst: list[Message]) -> None:
        """Send and wait for every answer, or for the end of the connection on which it would come."""
        world, client = self.world, await self._connected()
        if client is None:
            return
        if world.swarm.edges and len(burst) == 1 and burst[0].how != "batch":
            burst[0].body = self._edged(client, burst[0])
        asked_at, limit_s = trio.current_time(), world.swarm.answer_s(sum(len(message.body) for message in burst))
        is_calm = world.is_calm_until(asked_at + limit_s)
        world.journal.record("send", burst[0].number, len(burst))
        sent = Burst(world, client, burst)
        await sent.wait_answered()
        if is_calm:
            world.checker.check_prompt(burst, answered_s=sent.answered_at - asked_at, limit_s=limit_s)

    def _edged(self, client: SimClient, message: Message) -> bytes:
        """Its body, changed so that the record ends just where a segment ends, or where only a blank fits, or not even.

        As long as nobody else sends at the same time.
        """
        acked = reversed(self.world.checker.acked)
        if (one := next((one for one in acked if one.message.topic in TOPICS), None)) is None:
            return message.body
        extra = len(one.record) - len(one.message.body) - len(one.message.topic) + len(message.topic)
        room = -client.process.broker.store.max_offset % self.world.swarm.segment_size
        size = room - extra - self.world.random.choice(_BEFORE_THE_END)
        return (
            message.body.ljust(size, b".")[: max(size, len(_number(message.number)))] if size < 3000 else message.body
        )

    async def _connected(self) -> SimClient | None:
        """The connection there is, or a new one if that has ended or leads to somebody else."""
        world, client = self.world, self._client
        if client is not None and client.is_usable and client.process.node is world.master:
            return client
        if client is not None:
            client.remoting.close()
        self._client = None
        if (process := world.master.process) is not None and process.is_serving:
            self._client = await connect(world, world.master)
        return self._client


class Burst:
    """Messages that leave together, as one request list, and their answers."""

    def __init__(self, world: "World", client: SimClient, messages: list[Message]) -> None:
        self._world: Final = world
        self._client: Final = client
        self._messages: Final = messages
        is_batch = messages[0].how == "batch"
        self._waiting = dict.fromkeys(message for message in messages if is_batch or message.how != "oneway")
        self._answered: Final = trio.Event()
        self.answered_at = inf
        """When the last answer left the broker."""
        frames = []
        for some in [messages] if messages[0].how == "batch" else [[message] for message in messages]:
            request = _request(some, keys=world.swarm.keys)
            try:
                if some[0].how != "oneway":
                    request.opaque = client.expect(
                        partial(self._take, some), self._on_outcome, timeout_s=self._limit_s() + _WAY_BACK_S
                    )
            except RemotingError:  # it ended just now
                self._answered.set()
                return
            frames.append(request.encode())
        client.remoting.put(b"".join(frames))
        if not self._waiting:
            self.answered_at = trio.current_time()
            self._answered.set()

    def _limit_s(self) -> float:
        hangs = self._world.master.disk.faults.hung_until > self._messages[0].at
        return self._world.swarm.patience_s + (SEGMENT_S if hangs else 0.0)

    def _take(self, messages: list[Message], answer: RemotingCommand) -> None:
        world, checker, process = self._world, self._world.checker, self._client.process
        for message in messages:
            del self._waiting[message]
            message.code = answer.code
        world.journal.record("answer", messages[0].number, int(answer.code))
        if answer.code in STORED:
            offsets = [int(one[16:], 16) for one in decode_send_response(answer).msg_id.split(",")]
            checker.on_stored(process, offsets[0])
            checker.check_whole(process, messages, offsets)
        elif messages[0].how == "batch":
            checker.check_absent(process, messages)
        if answer.code == ResponseCode.SUCCESS:
            first = decode_send_response(answer).queue_offset
            for number, (message, offset) in enumerate(zip(messages, offsets, strict=False)):
                checker.on_send_ok(process, message, offset=offset, queue_offset=first + number)
        if not self._waiting:
            self.answered_at = trio.current_time()

    def _on_outcome(self, outcome: Outcome) -> None:
        """The real client has an answer, or gives up; when it has them all, or its connection ended, that is all."""
        if not self._waiting or self._client.remoting.closed or not isinstance(outcome, RemotingCommand):
            self._answered.set()

    async def wait_answered(self) -> None:
        """Return when nothing more can come."""
        limit_s = self._limit_s()
        with trio.move_on_after(limit_s + _WAY_BACK_S):
            await self._answered.wait()
        if self._waiting and self._client.owes:
            numbers = sorted(message.number for message in self._waiting)
            why = "the connection ended" if self._client.ended.is_set() else f"waited {limit_s:g} s"
            self._world.checker.violation(
                "I8", f"messages {numbers} sent at {self._messages[0].at:.3f} are not answered ({why})"
            )
