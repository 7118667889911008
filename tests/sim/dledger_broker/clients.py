"""Producers and consumers of brokers on a group: they send to who is master, and pull from anybody."""

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.group_headers import DeleteSubscriptionGroupRequestHeader
from rmqha.codec.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.remoting import RemotingCommand
from tests.sim.dledger_broker.line import Line, connect
from tests.sim.dledger_broker.machine import BrokerMachine
from tests.sim.dledger_broker.streams import LATE, QUEUES, TOPICS, Key, Sent
from tests.sim.dledger_broker.swarm import DELAY_LEVELS_S
from tests.sim.sim_clock import EPOCH_MS, stream

if TYPE_CHECKING:
    from tests.sim.dledger_broker.world import BrokerWorld

_AGAIN_S: Final = 0.1
_HELD_S: Final = 1.0
_PAUSE_S: Final = (0.01, 0.3)
_COMMITS: Final = 0.3
_DELETED: Final = 0.3


class _Actor:
    """One client on a machine of its own, with one connection at a time."""

    def __init__(self, world: "BrokerWorld", name: str, address: str) -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, f"dledger_broker/{name}")
        self.name: Final = name
        self.address: Final = address
        self._network: Final = world.net.host(address).mount()
        self._line: Line | None = None

    async def _connected(self, machine: BrokerMachine) -> Line | None:
        line = self._line
        if line is not None and line.is_usable and line.machine is machine:
            return line
        if line is not None:
            line.remoting.close()
        self._line = await connect(self._world, self._network, machine)
        return self._line


class Producer(_Actor):
    """Sends messages one by one, each once."""

    def __init__(self, world: "BrokerWorld", number: int) -> None:
        super().__init__(world, f"p{number}", f"10.0.2.{number + 1}")
        self._count = 0

    async def run(self) -> None:
        """Until the world has enough."""
        random, swarm = self._random, self._world.swarm
        while not self._world.has_enough:
            await trio.sleep(random.expovariate(swarm.rate / swarm.producers))
            await self.send(delay=random.randint(1, len(DELAY_LEVELS_S)) if random.random() < swarm.delayed else 0)

    async def send(self, *, delay: int = 0) -> bool:
        """Send something that nobody has sent yet; whether it is SEND_OK."""
        world, random = self._world, self._random
        masters = [machine for machine in world.brokers if machine.master is not None]
        if random.random() < world.swarm.stubborn / 4:
            masters = world.brokers
        line = await self._connected(random.choice(masters)) if masters else None
        if line is None:
            await trio.sleep(_AGAIN_S)
            return False
        self._count += 1
        name = b"<%s/%d>" % (self.name.encode(), self._count)
        body = name.ljust(random.choice((0, 30, world.swarm.body_size_max)), b".")
        sent = Sent(body, LATE if delay else random.choice(TOPICS), random.randrange(QUEUES), delay)
        world.journal.record("send", self.name, self._count, line.machine.name, delay)
        answer = await line.ask(_send_request(sent), partial(world.streams.on_sent, line, sent))
        code = None if answer is None else int(answer.code)
        world.journal.record("told", self.name, self._count, code)
        world.journal.mark(f"send: {code}")
        return code == ResponseCode.SUCCESS


def _send_request(sent: Sent) -> RemotingCommand:
    properties = "TAGS\x01t" + (f"\x02DELAY\x01{sent.delay}" if sent.delay else "")
    fields = {
        "a": "sim", "b": sent.topic, "c": "TBW102", "d": str(QUEUES), "e": str(sent.queue_id), "f": "0",
        "g": str(EPOCH_MS + int(1000 * trio.current_time())), "h": "0", "i": properties, "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=sent.body)


class Consumer(_Actor):
    """Reads every queue of a topic, from one broker and then from another."""

    def __init__(self, world: "BrokerWorld", number: int) -> None:
        super().__init__(world, f"g{number}", f"10.0.3.{number + 1}")
        topic = self._random.choice((*TOPICS, LATE) if world.swarm.delayed else TOPICS)
        self._positions: Final[dict[Key, int]] = {(topic, queue): 0 for queue in range(QUEUES)}

    async def run(self) -> None:
        """Until the world has enough."""
        while not self._world.has_enough:
            line = await self._connected(self._random.choice(self._world.brokers))
            if line is None:
                await trio.sleep(_AGAIN_S)
                continue
            for _ in range(self._random.randint(1, 8)):
                if not line.is_usable:
                    break
                key = self._random.choice(list(self._positions))
                await self._pull(line, key)
                if line.life.is_master and self._random.random() < _COMMITS:
                    await self._commit(line, key)
                await trio.sleep(self._random.uniform(*_PAUSE_S))

    async def _pull(self, line: Line, key: Key) -> None:
        asked, held_s = self._positions[key], self._random.choice((0.0, _HELD_S))
        header = PullMessageRequestHeader(
            consumer_group=self.name,
            topic=key[0],
            queue_id=key[1],
            queue_offset=asked,
            max_msg_nums=self._random.choice((1, 3, 32)),
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if held_s else 0),
            commit_offset=0,
            suspend_timeout_millis=int(held_s * 1000),
            subscription="*",
        )
        request = RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=encode_header(header))
        witness = partial(self._world.streams.on_pulled, line, key, asked)
        answer = await line.ask(request, witness, held_s=held_s)
        self._world.journal.mark(f"pull: {None if answer is None else int(answer.code)}")
        if answer is not None and answer.code in {ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED}:
            self._positions[key] = decode_header(PullMessageResponseHeader, answer).next_begin_offset

    async def settle(self) -> None:
        """Commit where this group is, to who is master."""
        master = next((machine for machine in self._world.brokers if machine.master is not None), None)
        line = None if master is None else await self._connected(master)
        for key in self._positions if line is not None else ():
            await self._commit(line, key)

    async def advance(self) -> None:
        """Read on from who is master, to the end, and commit."""
        for key in self._positions:
            self._positions[key] = len(self._world.streams.queues[key])
        await self.settle()

    async def go_back(self) -> None:
        """As an operator has a group do: it goes on at the beginning, or is deleted."""
        is_deleted = self._random.random() < _DELETED
        self._positions.update(dict.fromkeys(self._positions, 0))
        await self.settle()
        if is_deleted and (line := self._line) is not None:
            header = encode_header(DeleteSubscriptionGroupRequestHeader(self.name, remove_offset=True))
            request = RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=header)
            await line.ask(request, lambda _: None)

    async def _commit(self, line: Line | None, key: Key) -> None:
        assert line is not None, "it was made"
        header = UpdateConsumerOffsetRequestHeader(self.name, *key, commit_offset=self._positions[key])
        request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header))
        await line.ask(request, lambda _: None)
