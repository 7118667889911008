"""Consumer: pulls messages of one topic, from the master or, while there is none, from a slave."""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio

from rmqha.client.connections import Connections
from rmqha.client.environment import check_trio_runs, logger
from rmqha.client.message import MessageExt, MessageQueue
from rmqha.client.pull_api import PullApi
from rmqha.client.results import PullResult, PullStatus
from rmqha.client.topic_routes import PERM_READ, REFRESH_AFTER_S, TopicRoutes, split_addresses
from rmqha.errors import MQClientError, NoRouteError, RemotingError, RmqhaError
from rmqha.remoting.background import open_background_nursery
from rmqha.transport import Network, TcpNetwork

_PAUSE_S: Final = 1.0
"""After a refusal, or an answer that brings nothing and nowhere: as long as RocketMQ's own clients wait."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer works, where RocketMQ's defaults do not fit."""

    batch_size: int = 32
    """Messages asked for at once in each queue."""
    suspend_timeout_s: float = 15.0
    """How long a broker may hold a pull that finds nothing; the answer is awaited 10 s longer."""
    timeout_s: float = 3.0
    """For every other request."""
    connect_timeout_s: float = 3.0
    body_size_max: int = 64 * 1024 * 1024
    """Larger bodies are not decompressed."""


class _QueueState:
    """Where one queue stands. At most one pull is under way; its answer counts only if ``epoch`` is unchanged.

    Attributes:
        next_offset: where the next pull begins: behind everything received.
        delivered_offset: behind everything handed to the caller; what he should commit.
        broker_id: whom to ask: 0 the master, larger a slave.
        not_before: no pull before this time (trio's clock).
        stay_until: after the master failed, no return to it before this time.
    """

    def __init__(self, offset: int) -> None:
        self.next_offset = self.delivered_offset = offset
        self.epoch = 0
        self.pulling = False
        self.broker_id = 0
        self.not_before = 0.0
        self.stay_until = 0.0
        self.failures = 0


class Consumer:
    """Reads all queues of a topic; made by :func:`open_consumer`. Use one from one task.

    Offsets are the caller's to keep: :meth:`position` tells what to store, :meth:`seek` continues there.
    """

    def __init__(
        self, topic: str, *, pull_api: PullApi, routes: TopicRoutes, nursery: trio.Nursery, options: ConsumerOptions
    ) -> None:
        self.topic = topic
        self._api = pull_api
        self._routes = routes
        self._nursery = nursery
        self._options = options
        self._states: dict[MessageQueue, _QueueState] = {}
        self._received: deque[tuple[MessageQueue, int, list[MessageExt], int]] = deque()
        self._errors: deque[RmqhaError] = deque()
        self._arrived = trio.Event()
        self._refreshed_at = float("-inf")

    @property
    def queues(self) -> list[MessageQueue]:
        """The topic's readable queues, in order."""
        return list(self._states)

    def position(self, queue: MessageQueue) -> int:
        """The offset behind the last message handed out: store it, and :meth:`seek` there to continue."""
        return self._state(queue).delivered_offset

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at ``offset``; what was received and not handed out is dropped.

        Raises:
            MQClientError: not a queue of this topic, or a negative offset.
        """
        state = self._state(queue)
        if offset < 0:
            raise MQClientError(f"offset {offset} is negative")
        state.epoch += 1
        state.pulling = False
        state.next_offset = state.delivered_offset = offset
        state.not_before = 0.0

    async def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue at the first message there is, in ``queues`` or in all."""
        for queue in self._chosen(queues):
            self.seek(queue, await self._api.min_offset(queue))

    async def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue behind the last message there is, in ``queues`` or in all."""
        for queue in self._chosen(queues):
            self.seek(queue, await self._api.max_offset(queue))

    async def seek_to_time(self, timestamp_ms: int, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue at the first message stored at ``timestamp_ms`` or later, in ``queues`` or in all.

        A time later than all messages gives the last message, as RocketMQ's search does.
        """
        for queue in self._chosen(queues):
            self.seek(queue, await self._api.search_offset(queue, timestamp_ms))

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int | None = None) -> PullResult:
        """One pull that does not wait for messages, independent of :meth:`poll` and its positions.

        Raises:
            RemotingError, MQBrokerError: no answer, or a refusal.
        """
        return await self._api.pull(queue, offset, max_messages=max_messages or self._options.batch_size, suspend_s=0)

    async def poll(self, *, timeout_s: float = 3.0) -> list[MessageExt]:
        """The next messages of any queue, at least one unless ``timeout_s`` passes first.

        Raises:
            RemotingError: no broker of a queue answers; polling again tries again.
            MQBrokerError: a broker refuses; if ``retryable``, polling again may help.
        """
        with trio.move_on_after(timeout_s):
            while True:
                if self._errors:
                    raise self._errors.popleft()
                await self._refresh_queues()
                self._start_pulls()
                if messages := self._take():
                    return messages
                await self._wait_arrival()
        return self._take()

    async def _wait_arrival(self) -> None:
        self._arrived = trio.Event()
        paused = [state.not_before for state in self._states.values() if not state.pulling]
        with trio.move_on_at(min([*paused, self._refreshed_at + REFRESH_AFTER_S])):
            await self._arrived.wait()

    def _take(self) -> list[MessageExt]:
        while self._received:
            queue, epoch, messages, next_offset = self._received.popleft()
            state = self._states[queue]
            if epoch == state.epoch:
                state.delivered_offset = next_offset
                state.pulling = False
                if messages:
                    self._start_pulls()
                    return messages
        return []

    def _start_pulls(self) -> None:
        now = trio.current_time()
        for queue, state in self._states.items():
            if not state.pulling and state.not_before <= now:
                state.pulling = True
                self._nursery.start_soon(self._pull, queue, state, state.epoch)

    async def _pull(self, queue: MessageQueue, state: _QueueState, epoch: int) -> None:
        ids = self._api.broker_ids(queue)
        if state.broker_id not in ids:
            state.broker_id = min(ids, default=0)
        try:
            result = await self._api.pull(
                queue,
                state.next_offset,
                max_messages=self._options.batch_size,
                suspend_s=self._options.suspend_timeout_s,
                broker_id=state.broker_id,
            )
        except RmqhaError as error:
            if epoch == state.epoch:
                self._on_failed(queue, state, error)
            return
        if epoch == state.epoch:
            self._on_pulled(queue, state, result)

    def _on_failed(self, queue: MessageQueue, state: _QueueState, error: RmqhaError) -> None:
        """Try the queue's next address; when none is left, tell the caller."""
        state.pulling = False
        state.failures += 1
        addresses = self._api.broker_ids(queue)
        if isinstance(error, RemotingError) and state.failures < len(addresses):
            state.broker_id = next((one for one in addresses if one > state.broker_id), addresses[0])
            state.stay_until = trio.current_time() + REFRESH_AFTER_S
            logger.warning("consumer.moved: %s is read from broker id %d now: %r", queue, state.broker_id, error)
        else:
            state.failures = 0
            state.broker_id = 0
            state.not_before = trio.current_time() + _PAUSE_S
            self._errors.append(error)
        self._refreshed_at = float("-inf")
        self._arrived.set()

    def _on_pulled(self, queue: MessageQueue, state: _QueueState, result: PullResult) -> None:
        state.failures = 0
        if trio.current_time() >= state.stay_until:
            state.broker_id = self._suggested(queue, result)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "consumer.offset_moved: offset %d lies outside %s, going on at %d",
                state.next_offset,
                queue,
                result.next_begin_offset,
            )
        elif result.status is not PullStatus.FOUND and result.next_begin_offset <= state.next_offset:
            if result.status is PullStatus.NO_MATCHED_MSG:
                state.not_before = trio.current_time() + _PAUSE_S  # a slave that is behind what we have read
            state.pulling = False
            self._arrived.set()
            return
        state.next_offset = result.next_begin_offset
        self._received.append((queue, state.epoch, result.messages, result.next_begin_offset))
        self._arrived.set()

    def _suggested(self, queue: MessageQueue, result: PullResult) -> int:
        ids = self._api.broker_ids(queue)
        return result.suggest_which_broker_id if result.suggest_which_broker_id in ids else min(ids, default=0)

    async def _refresh_queues(self) -> None:
        """Learn of new queues and addresses every 30 s, and after each failure."""
        if trio.current_time() < self._refreshed_at + REFRESH_AFTER_S:
            return
        self._refreshed_at = trio.current_time()
        try:
            await self.refresh()
        except RmqhaError as error:
            if not self._states:
                raise
            logger.warning("consumer.route_unknown: topic %s keeps the addresses it had: %r", self.topic, error)

    async def refresh(self) -> None:
        """Look the topic's route up now.

        Raises:
            NoRouteError: the topic is unknown, or no queue of it may be read.
            RemotingError, MQBrokerError: nobody answered, or a refusal.
        """
        route = await self._routes.find(self.topic)
        self._api.set_brokers(route.broker_datas)
        self._refreshed_at = trio.current_time()
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
            for queue_id in range(data.read_queue_nums if data.perm & PERM_READ else 0):
                self._states.setdefault(MessageQueue(self.topic, data.broker_name, queue_id), _QueueState(0))
        if not self._states:
            raise NoRouteError(f"topic {self.topic} has no queue that may be read")

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        return self.queues if queues is None else list(queues)

    def _state(self, queue: MessageQueue) -> _QueueState:
        state = self._states.get(queue)
        if state is None:
            raise MQClientError(f"{queue} is not one of the {len(self._states)} queues of topic {self.topic}")
        return state


@asynccontextmanager
async def open_consumer(
    addresses: str,
    topic: str,
    *,
    group: str = "rmqha-consumer",
    tags: str = "*",
    options: ConsumerOptions | None = None,
    network: Network | None = None,
) -> AsyncIterator[Consumer]:
    """A consumer for as long as the block runs, positioned at offset 0 of each queue.

    Args:
        addresses: of brokers or name servers, ``host:port``, several separated by ``;``. A broker knows no address
            but its own: to read on when the master is gone, name its slaves, too.
        topic: what to read.
        group: the consumer group's name; brokers know it only for their statistics.
        tags: ``*`` for all, or tags joined by ``||``.
        options: where RocketMQ's defaults do not fit.
        network: where connections come from; TCP if None.

    Raises:
        MQClientError: no address is given, or ``tags`` names no tag.
        NoRouteError: the topic is unknown.
        RemotingError, MQBrokerError: nobody answered, or a refusal.
    """
    check_trio_runs("open_consumer", "SyncConsumer")
    options = options or ConsumerOptions()
    async with open_background_nursery() as nursery:
        connections = Connections(network or TcpNetwork(), nursery, connect_timeout_s=options.connect_timeout_s)
        routes = TopicRoutes(connections, split_addresses(addresses), nursery=nursery, timeout_s=options.timeout_s)
        api = PullApi(
            connections, group=group, tags=tags, timeout_s=options.timeout_s, body_size_max=options.body_size_max
        )
        consumer = Consumer(topic, pull_api=api, routes=routes, nursery=nursery, options=options)
        await consumer.refresh()
        yield consumer
