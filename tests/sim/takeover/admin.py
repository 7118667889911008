"""Admin: makes, changes and deletes topics and groups, and moves a group on; knows what the tables have to say then."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.admin_headers import CreateTopicRequestHeader, TopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from tests.sim.sim_clock import stream
from tests.sim.swarm import CHAOS_S
from tests.sim.takeover.envoy import Envoy, fields_of
from tests.sim.workload import QUEUES, TOPICS, Message

if TYPE_CHECKING:
    from tests.sim.node import Process
    from tests.sim.world import World

MADE: Final = ("made0", "made1", "made2")
"""Topics that nobody else knows of."""
KEEPER: Final = "keeper"
"""A group that only ever goes on."""
GUARDED: Final = "guarded"
"""A group that is changed."""
_NUMBERS_FROM: Final = 500_000
_AGAIN_S: Final = 0.5
_PERMS: Final = (6, 6, 4, 2)
_AUTO_MADE: Final = 6


class Admin:
    """One operator's tools.

    Attributes:
        topics: what each of :data:`MADE` is, once it was said to be so; None: it was deleted.
        deleted: by topic and queue: the messages before this one were deleted.
        committed: by topic and queue: where :data:`KEEPER` is.
        guarded: whether :data:`GUARDED` may consume; None: nobody said so yet.
    """

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, "takeover/admin")
        self._envoy: Final = Envoy(world)
        self.topics: Final[dict[str, TopicConfig | None]] = {}
        self.deleted: Final[dict[tuple[str, int], int]] = {}
        self.committed: Final[dict[tuple[str, int], int]] = {}
        self.guarded: bool | None = None
        self._count = 0
        self._has_ended: Final = trio.Event()
        """What it does during the chaos is over."""

    async def run(self) -> None:
        """During the chaos: what comes of it is not looked at."""
        for at in sorted(self._random.uniform(0.0, CHAOS_S) for _ in range(self._random.randint(0, 6))):
            await trio.sleep_until(at)
            topic = self._random.choice(MADE)
            await self._random.choice((self._make, self._delete, self._send, self._send))(topic)
        self.topics.clear()  # what a change of master has cost nobody knows
        self.deleted.clear()
        self._has_ended.set()

    async def settle(self) -> None:
        """Everything is as it is told from now on."""
        await self._has_ended.wait()
        for topic in MADE:
            steps: list[tuple[Callable[[str], Awaitable[bool]], ...]] = [
                (self._make,), (self._delete,), (self._make, self._send), (self._delete, self._send),
                (self._make, self._send, self._delete), (self._make, self._send, self._delete, self._make, self._send),
            ]  # fmt: skip
            if topic in self.topics:
                steps += [(), (), (self._send, self._delete)]
            for step in self._random.choice(steps):
                await self._until_done(partial(step, topic))
        await self._until_done(self._guard)
        await self._until_done(self._commit)

    async def send_everywhere(self) -> None:
        """A position that is given twice shows when it is given."""
        for topic in MADE:
            await self._send(topic)

    async def fill(self, size: int) -> None:
        """A large message in a topic that is never silent."""
        number = _NUMBERS_FROM + self._count
        self._count += 1
        message = Message(number, trio.current_time(), TOPICS[0], 0, (b"<f%d>" % number).ljust(size, b"."))
        fields = fields_of(TOPICS[0], 0, "TAGS\x01t")
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=message.body)
        await self._envoy.send(request, message)

    async def _until_done(self, step: Callable[[], Awaitable[bool]]) -> None:
        while not await step():  # noqa: ASYNC110 - it is asked
            await trio.sleep(_AGAIN_S)

    # ---- the steps; each says whether it was done

    async def _ask(self, request: RemotingCommand, on_success: Callable[["Process"], object]) -> bool:
        codes: list[int] = []

        def on_answer(process: "Process", answer: RemotingCommand) -> None:
            codes.append(answer.code)
            if answer.code == ResponseCode.SUCCESS:
                on_success(process)

        await self._envoy.ask(request, on_answer)
        self._world.journal.record("admin", int(request.code), *map(int, codes))
        return ResponseCode.SUCCESS in codes

    async def _make(self, topic: str) -> bool:
        perm, more = self._random.choice(_PERMS), self._random.randint(0, 2)
        header = CreateTopicRequestHeader(topic, QUEUES + more, QUEUES, perm)
        config = TopicConfig(topic, QUEUES + more, QUEUES, perm)
        request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=encode_header(header))
        return await self._ask(request, lambda _: self.topics.update({topic: config}))

    async def _delete(self, topic: str) -> bool:
        def on_deleted(process: "Process") -> None:
            self.topics[topic] = None
            for queue_id in range(QUEUES):
                self.deleted[topic, queue_id] = process.broker.store.next_queue_offset(topic, queue_id)

        header = encode_header(TopicRequestHeader(topic))
        return await self._ask(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=header), on_deleted)

    async def _send(self, topic: str) -> bool:
        """A message, where one may be sent; a topic that is deleted is made by it."""
        known = self.topics.get(topic)
        if known is not None and not known.perm & 2:
            return True
        number, queue_id = _NUMBERS_FROM + self._count, self._random.randrange(QUEUES)
        self._count += 1
        message = Message(number, trio.current_time(), topic, queue_id, b"<m%d>" % number)
        fields = fields_of(topic, queue_id, "TAGS\x01t")
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=message.body)
        is_sent = await self._envoy.send(request, message) is not None
        if known is None:
            self.topics.pop(topic, None)
            if is_sent:
                self.topics[topic] = TopicConfig(topic, QUEUES, QUEUES, _AUTO_MADE)
        return is_sent

    async def _guard(self) -> bool:
        may = self._random.random() < 0.5
        body = b'{"groupName":"%s","consumeEnable":%s}' % (GUARDED.encode(), b"true" if may else b"false")
        request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        return await self._ask(request, lambda _: setattr(self, "guarded", may))

    async def _commit(self) -> bool:
        """The group goes on, to somewhere within the queue."""
        process = self._world.master.process
        if process is None:
            return False
        key = self._random.choice(TOPICS), self._random.randrange(QUEUES)
        before, end = self.committed.get(key, 0), process.broker.store.get_max_offset_in_queue(*key)
        offset = self._random.randint(before, max(before, end))
        header = UpdateConsumerOffsetRequestHeader(KEEPER, *key, commit_offset=offset)
        request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header))
        return await self._ask(request, lambda _: self.committed.update({key: offset}))
