"""Delayed messages: each that waits in the log is delivered, in order, and never before its time."""

from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.codes import RequestCode
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.remoting import RemotingCommand
from tests.sim.sim_clock import stream
from tests.sim.swarm import CHAOS_S, DELAY_LEVELS_S
from tests.sim.takeover.envoy import Envoy, fields_of
from tests.sim.takeover.ledger import Ledger
from tests.sim.workload import LATE, QUEUES, Message

if TYPE_CHECKING:
    from tests.sim.world import World

_PROMPT_S: Final = 4.0
"""A message is delivered so long after its time: a broker looks every second, and tries again every half."""
_NUMBERS_FROM: Final = 300_000


class Delayed:
    """Sends them, and says what is wrong with what came of them."""

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, "takeover/delayed")
        self._envoy: Final = Envoy(world)
        self._count = 0
        self._bodies: Final[dict[bytes, bytes]] = {}
        self._last_sent_at = 0.0

    async def run(self) -> None:
        """Send some at any time of the chaos."""
        times = sorted(self._random.uniform(0.0, CHAOS_S) for _ in range(self._random.randint(0, 5)))
        for at in times:
            await trio.sleep_until(at)
            await self._send(self._random.randint(1, len(DELAY_LEVELS_S)))

    async def send_some(self, *, levels: int = len(DELAY_LEVELS_S)) -> None:
        """Some of each level, or of the first ones."""
        for level in range(1, 1 + levels):
            for _ in range(self._random.randint(0, 2)):
                await self._send(level)

    async def _send(self, level: int) -> None:
        number, queue_id = _NUMBERS_FROM + self._count, self._random.randrange(QUEUES)
        self._count += 1
        name = b"<d%d" % number
        body = name + b">" + self._random.randbytes(self._random.choice((0, 40, 300)))
        self._bodies[name] = body
        fields = fields_of(LATE, queue_id, f"TAGS\x01t\x02DELAY\x01{level}")
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)
        self._last_sent_at = trio.current_time()
        self._world.journal.record("delayed", number, level)
        await self._envoy.send(request, Message(number, self._last_sent_at, SCHEDULE_TOPIC, level - 1, body))

    def all_due_at(self) -> float:
        """Nothing waits any more then, whenever the message that was sent last was stored."""
        return self._last_sent_at + max(DELAY_LEVELS_S) + self._world.swarm.patience_s + _PROMPT_S

    def waits(self, ledger: Ledger) -> bool:
        """Whether a message of the log has yet to be delivered."""
        return any(name not in ledger.records[LATE] for name in ledger.records[SCHEDULE_TOPIC])

    def check(self, ledger: Ledger) -> None:
        """What is delivered so far: of a level in the order of its queue, whole, and not too early."""
        for level in range(1, 1 + len(DELAY_LEVELS_S)):
            waiting = [
                (name, records[0])
                for name, records in ledger.records[SCHEDULE_TOPIC].items()
                if records[0].queue_id == level - 1
            ]
            last = -1
            for name, record in waiting:
                for delivered in ledger.records[LATE].get(name, [])[:1]:
                    if delivered.physical_offset < last:
                        self._violation(f"{name!r} of level {level} is delivered before one that was sent earlier")
                    last = delivered.physical_offset
                self._check_copies(name, level, record.store_timestamp_ms, ledger)

    def _check_copies(self, name: bytes, level: int, stored_ms: int, ledger: Ledger) -> None:
        due_ms = stored_ms + 1000 * DELAY_LEVELS_S[level - 1]
        for delivered in ledger.records[LATE].get(name, []):
            if delivered.body != self._bodies.get(name):
                self._violation(f"{name!r} is delivered with another body")
            if self._world.clocks_agree and delivered.store_timestamp_ms < due_ms:
                early_ms = due_ms - delivered.store_timestamp_ms
                self._violation(f"{name!r} of level {level} is delivered {early_ms:.0f} ms too early")

    def _violation(self, what: str) -> None:
        self._world.checker.violation("delayed", what)
