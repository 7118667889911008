"""Clients of a group: the real DLedgerClient, and what each did and was told, as a history."""

from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmqha.codec.dledger_wire import AppendEntryResponse, GetEntriesResponse
from rmqha.dledger.dledger_client import DLedgerClient, open_dledger_client
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.errors import RemotingConnectError
from tests.sim.dledger.history import Operation, Place
from tests.sim.dledger.machine import GROUP, PORT
from tests.sim.sim_clock import stream

if TYPE_CHECKING:
    from tests.sim.dledger.world import World

_Code = DLedgerResponseCode
PROMPT_S: Final = 1.5
"""In a group in which nothing goes wrong everything is answered within this time, once somebody leads."""


class _Began(NamedTuple):
    """When a request began, and whether every member answered then."""

    at: float
    all_served: bool


class Client:
    """One client on a machine of its own, which asks one thing at a time."""

    def __init__(self, world: "World", number: int) -> None:
        self.world: Final = world
        self.name: Final = f"c{number}"
        self.address: Final = f"10.0.1.{number + 1}"
        self.client: DLedgerClient
        self.is_open: Final = trio.Event()
        self._random: Final = stream(world.seed, f"dledger/client/{number}")
        self._count = 0

    async def live(self) -> None:
        """Until cancelled."""
        peers = {machine.name: f"{machine.address}:{PORT}" for machine in self.world.machines.values()}
        network = self.world.net.host(self.address).mount()
        async with open_dledger_client(group=GROUP, peers=peers, network=network) as self.client:
            self.is_open.set()
            await trio.sleep_forever()

    async def run(self) -> None:
        """Append and read until the world has enough."""
        random, swarm = self._random, self.world.swarm
        await self.is_open.wait()
        while not self.world.has_enough:
            await trio.sleep(random.expovariate(swarm.rate / swarm.clients))
            if random.random() < swarm.stubborn:
                self.client.leader_id = random.choice(swarm.names)
            if random.random() < swarm.reads:
                await self.get(self._draw_index())
            else:
                await self.append(random.choice((0, swarm.body_size_max, random.randint(0, swarm.body_size_max))))

    def _draw_index(self) -> int:
        """Mostly near the end: what was acknowledged just now, and what is not there yet."""
        end, random = self.world.known_end, self._random
        if random.random() < 0.7:
            return max(0, end + random.choice((-1, 0, 0, 0, 1, 1, 2)))
        return random.randint(0, max(end, 0))

    async def append(self, size: int = 0) -> bool:
        """Append something that nobody has appended yet; whether it was acknowledged."""
        self._count += 1
        name = b"<%s/%d>" % (self.name.encode(), self._count)
        body = name * (1 + -(-size // len(name)))  # without zeros: what a power cut tears off shows
        operation = self.world.history.append(self.name, body)
        began, answer = self._begin(), AppendEntryResponse(_Code.UNKNOWN)
        try:
            answer = await self.client.append(body)
        except RemotingConnectError:
            answer = AppendEntryResponse(_Code.METADATA_ERROR)
        is_there = answer.code == _Code.SUCCESS
        self._answered(operation, answer.code, Place(answer.index, answer.term, answer.pos) if is_there else None)
        self._check_prompt(operation, answer.code, began)
        if is_there:
            self.world.known_end = max(self.world.known_end, answer.index)
        return is_there

    async def get(self, index: int) -> None:
        """Read an entry."""
        operation, began = self.world.history.get(self.name, index), self._begin()
        try:
            answer = await self.client.get(index)
        except RemotingConnectError:
            answer = GetEntriesResponse(_Code.METADATA_ERROR)
        entry = answer.entries[0] if answer.entries else None
        place = None if entry is None else Place(entry.index, entry.term, entry.pos)
        self._answered(operation, answer.code, place, None if entry is None else bytes(entry.body))
        self._check_prompt(operation, answer.code, began)

    def _answered(self, operation: Operation, code: int, place: Place | None, found: bytes | None = None) -> None:
        self.world.history.answered(operation, code, place=place, found=found)
        self.world.journal.record(
            "told", operation.client, operation.is_append, operation.index if place is None else place.index, int(code)
        )
        self.world.journal.mark(f"{'append' if operation.is_append else 'get'}: {int(code)}")

    def _begin(self) -> _Began:
        return _Began(trio.current_time(), all(machine.serves for machine in self.world.machines.values()))

    def _check_prompt(self, operation: Operation, code: int, began: _Began) -> None:
        """S11: every request is answered in time by a member that lives; and well, if nothing is wrong."""
        world, now = self.world, trio.current_time()
        lives = began.all_served and max([world.hidden_until, *world.died_at.values()]) < began.at
        if code == _Code.TIMEOUT and lives:
            world.checker.violation("S11", f"nobody answered: {operation.describe()}")
        is_late = code not in {_Code.SUCCESS, _Code.INDEX_OUT_OF_RANGE} or now - began.at > PROMPT_S
        if world.is_calm_since <= began.at and is_late:
            world.checker.violation("S11", f"code {code} after {now - began.at:.1f} s: {operation.describe()}")
