"""Consumers: they pull from masters and slaves, commit, seek, lose patience, leave, and come back to somebody else."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.response_table import Outcome
from tests.sim.sim_client import SimClient, Witness, connect
from tests.sim.sim_clock import stream
from tests.sim.workload import QUEUES, TOPICS

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

Key = tuple[str, int]
"""Topic and queue."""
SUSPEND_S: Final = 6.0
"""So long a pull that finds nothing is held."""
_AGAIN_S: Final = (0.3, 3.0)
_ACT_S: Final = (0.3, 5.0)
_IMPATIENT_S: Final = (0.0, 0.003, 0.05)


@dataclass(frozen=True, slots=True)
class _Commit:
    process: "Process"
    offset: int
    kept: int
    """The next start of sends leaves so much of it: a master takes back what lies beyond the end of its queue (#4771),
    and a slave takes its master's word for what lies beyond the end of its own.

    A consumer may be there: it saw messages of a former master that nobody acknowledged, and that are gone with it.
    """


class Consumer:
    """One member of a group of its own, that reads every queue of one topic."""

    def __init__(self, world: "World", number: int) -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, f"consumer/{number}")
        self._group: Final = f"group{number}"
        topics = self._random.choice((TOPICS[:1], TOPICS[1:]))
        self._positions: Final[dict[Key, int]] = {(topic, queue): 0 for topic in topics for queue in range(QUEUES)}
        self._turns: Final = dict.fromkeys(self._positions, 0)
        """Counts what made an answer to an earlier pull void."""
        self.suspend_s: Final = SUSPEND_S if self._random.random() < 0.6 else 0.0
        """So long its pulls are held; else it asks again from time to time."""
        self._committed: Final[dict[Key, _Commit]] = {}
        self._most_committed: Final = dict.fromkeys(self._positions, 0)
        self._is_over = False

    def stop(self) -> None:
        """Pull nothing more; the connection stays."""
        self._is_over = True

    async def run(self) -> None:
        """Consume from one broker after the other until stopped."""
        world = self._world
        while not self._is_over:
            client = await connect(world, self._random.choice(list(world.nodes.values())))
            if client is None:
                await trio.sleep(self._random.uniform(*_AGAIN_S))
                continue
            connected_at = trio.current_time()
            for key in self._positions if world.swarm.asks_first else ():
                await self._query(client, key)
            for key in self._positions:
                self._pull(client, key)
            await self._live(client)
            if trio.current_time() < connected_at + _AGAIN_S[0]:
                await trio.sleep(_AGAIN_S[0])  # who does not know offsets ends the connection of who asks for one

    async def _live(self, client: SimClient) -> None:
        """Do what consumers do beside pulling, until the connection ends or this one has enough of it."""
        while not self._is_over:
            with trio.move_on_after(self._random.uniform(*_ACT_S)):
                await client.ended.wait()
            if not client.is_usable:
                return client.remoting.close()
            key = self._random.choice(list(self._positions))
            match self._random.choice(("commit", "commit", "query", "seek", "leave", "move")):
                case "commit":
                    await self._commit(client, key, self._positions[key])
                case "query":
                    await self._query(client, key)
                case "seek":
                    self._seek(client, key)
                    await self._commit(client, key, self._positions[key])
                case "leave":
                    return client.remoting.close()
        return None

    # ---- pulling

    def _pull(self, client: SimClient, key: Key) -> None:
        if self._is_over or client.remoting.closed:
            return
        asked, suspend_s = self._positions[key], self.suspend_s
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=key[0],
            queue_id=key[1],
            queue_offset=asked,
            max_msg_nums=self._random.choice((1, 3, 32)),
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if suspend_s else 0),
            commit_offset=0,
            suspend_timeout_millis=int(suspend_s * 1000),
            subscription="*",
        )
        client.ask(
            RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=encode_header(header)),
            partial(
                self._world.checker.visible.on_pulled, client.process, key, asked, had_started=client.process.is_serving
            ),
            partial(self._on_pulled, client, key, self._turns[key]),
            timeout_s=suspend_s + self._world.swarm.patience_s,
        )

    def _on_pulled(self, client: SimClient, key: Key, turn: int, outcome: Outcome) -> None:
        if not isinstance(outcome, RemotingCommand) or turn != self._turns[key]:
            return
        if outcome.code in {ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED}:
            self._positions[key] = decode_header(PullMessageResponseHeader, outcome).next_begin_offset
        if self.suspend_s and outcome.code in {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND}:
            self._pull(client, key)
        else:
            self._world.later(self._random.uniform(*_AGAIN_S), partial(self._pull_again, client, key, turn))

    def _pull_again(self, client: SimClient, key: Key, turn: int) -> None:
        if turn == self._turns[key]:
            self._pull(client, key)

    def _seek(self, client: SimClient, key: Key) -> None:
        """Go back, or to where it is; whatever is under way comes for nobody."""
        self._turns[key] += 1
        self._positions[key] = self._random.randint(0, self._positions[key])
        self._pull(client, key)

    # ---- committing

    async def _commit(self, client: SimClient, key: Key, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(self._group, *key, commit_offset=offset)
        request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header))
        self._most_committed[key] = max(self._most_committed[key], offset)
        store = client.process.broker.store
        if client.process.is_master:
            kept = min(offset, store.next_queue_offset(*key))
        else:
            kept = offset if offset <= store.get_max_offset_in_queue(*key) else 0

        def witness(answer: RemotingCommand) -> None:
            if answer.code == ResponseCode.SUCCESS:
                self._committed[key] = _Commit(client.process, offset, kept=kept)

        await self._invoke(client, request, witness)
        if self._random.random() < 0.3:
            await self._query(client, key)

    async def _query(self, client: SimClient, key: Key) -> None:
        header = QueryConsumerOffsetRequestHeader(self._group, *key)
        request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
        had_started = client.process.is_serving

        def witness(answer: RemotingCommand) -> None:
            if had_started or answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                self._check_position(client.process, key, answer)

        await self._invoke(client, request, witness)

    async def _invoke(self, client: SimClient, request: RemotingCommand, witness: Witness) -> None:
        """Ask, and now and then do not wait for the answer."""
        limit_s = self._random.choice(_IMPATIENT_S) if self._random.random() < 0.2 else self._world.swarm.patience_s
        with trio.move_on_after(limit_s):
            await client.invoke(request, witness, timeout_s=self._world.swarm.patience_s)

    def _check_position(self, process: "Process", key: Key, answer: RemotingCommand) -> None:
        """What is committed counts at once, forwards and backwards, survives an ordinary restart, and is nobody else's.

        A slave takes over larger offsets of its master.
        """
        said = decode_header(OffsetResponseHeader, answer).offset if answer.code == ResponseCode.SUCCESS else None
        last = self._committed.get(key)
        if last is not None and process.remembers(last.process) and (said is None or said < last.kept):
            self._violation(process, key, said, f"though {last.offset} was committed")
        elif last is not None and last.process is process and process.is_master and (said or 0) > last.offset:
            self._violation(process, key, said, f"though {last.offset} was committed last")
        elif (said or 0) > self._most_committed[key]:
            self._violation(process, key, said, f"though never more than {self._most_committed[key]} was committed")

    def _violation(self, process: "Process", key: Key, said: int | None, why: str) -> None:
        self._world.checker.violation("I4", f"{process.node.name} says {self._group} is at {said} of {key}, {why}")
