"""Consumer: pulls messages of one topic, from the master or, while there is none, from a slave."""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Final

import trio

from rmqha.client.auto_commit import AutoCommit, check_auto_commit
from rmqha.client.consumer_options import ConsumerOptions
from rmqha.client.environment import check_timeout, check_trio_runs, logger
from rmqha.client.gone_queues import GoneQueues
from rmqha.client.message import MessageExt, MessageQueue, check_topic
from rmqha.client.offset_store import OffsetStore
from rmqha.client.process_queue import ProcessQueue, check_offset
from rmqha.client.pull_api import PullApi, Pulled
from rmqha.client.results import PullResult, PullStatus
from rmqha.client.start import Start, check_start, find_start
from rmqha.client.topic_routes import REFRESH_AFTER_S, TopicRoutes, nothing_to_read, readable_queues, split_addresses
from rmqha.client.unanswered import Unanswered
from rmqha.codec.acl import SessionCredentials
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import MQClientError, NoRouteError, RemotingError, RmqhaError
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.connections import Connections
from rmqha.transport import Network, TcpNetwork

_PAUSE_S: Final = 1.0
"""After a refusal, or an answer that brings nothing and nowhere: as long as RocketMQ's own clients wait."""


class Consumer:
    """Reads all queues of a topic; made by :func:`open_consumer`. Use one from one task.

    How far it has read is kept by the brokers if the caller commits (:meth:`commit`), or by the caller
    (:meth:`position`, :meth:`seek`).
    """

    def __init__(
        self,
        topic: str,
        *,
        offsets: OffsetStore,
        start: Start,
        pull_api: PullApi,
        routes: TopicRoutes,
        nursery: trio.Nursery,
        options: ConsumerOptions,
    ) -> None:
        self.topic = topic
        self._offsets = offsets
        self._start = start
        self._api = pull_api
        self._routes = routes
        self._nursery = nursery
        self._options = options
        self._states: dict[MessageQueue, ProcessQueue] = {}
        self._received: deque[tuple[MessageQueue, int, Sequence[StoredMessage], int]] = deque()
        self._errors: deque[tuple[MessageQueue | None, RmqhaError]] = deque()
        self._gone = GoneQueues(topic)
        self._unanswered = Unanswered()
        self._arrived = trio.Event()
        self._handed_out: ProcessQueue | None = None
        self._refresh_at = -inf
        self._is_refreshing = False
        self._is_open = False

    @property
    def queues(self) -> list[MessageQueue]:
        """The topic's readable queues, in order; none while the topic does not exist."""
        return list(self._states)

    def position(self, queue: MessageQueue) -> int:
        """The offset behind the last message handed out: store it, and :meth:`seek` there to continue."""
        return self._state(queue).delivered_offset

    def processed_offsets(self) -> dict[MessageQueue, int]:
        """Offsets behind what was handed out before the latest poll began: what the caller has dealt with."""
        return {queue: state.processed_offset for queue, state in self._states.items()}

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Let the brokers keep where the group goes on; ``start="committed"`` begins there.

        A commit may go back. Brokers write commits to disk every few seconds (``flushConsumerOffsetInterval``): a
        crash may undo the latest, and their messages come again; so may a commit that only a slave could take.

        Args:
            offsets: where to go on; None: behind everything handed out (:meth:`position`), in all queues.

        Raises:
            MQClientError: no group was named; not a queue of this topic, or a negative offset.
            RemotingError, MQBrokerError: a broker does not answer, or refuses. The other brokers have it.
        """
        if offsets is None:
            offsets = {queue: state.delivered_offset for queue, state in self._states.items()}
        for queue, offset in offsets.items():
            self._state(queue)
            check_offset(offset)
        await self._offsets.commit(offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on in ``queue``; None, or 0 if the queue begins there, if it never committed.

        Raises:
            MQClientError: no group was named; not a queue of this topic.
            RemotingError, MQBrokerError: no answer, or a refusal.
        """
        self._state(queue)
        return await self._offsets.read(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at ``offset``; what was received and not handed out is dropped.

        Raises:
            MQClientError: not a queue of this topic, or a negative offset.
        """
        state = self._state(queue)
        check_offset(offset)
        state.seek(offset)
        self._unanswered.clear(queue)

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
        return await self._api.pull_messages(queue, offset, max_messages=max_messages or self._options.batch_size)

    async def poll(self, *, timeout_s: float = 3.0) -> list[MessageExt]:
        """The next messages of any queue, at least one unless ``timeout_s`` passes first.

        While the topic does not exist there are none. A broker that restarts is waited for, a queue taken away is not.

        Raises:
            RemotingError: no broker of a queue has answered for ``timeout_s``, or answers when it has passed;
                polling again tries again.
            MQBrokerError: a broker refuses; if ``retryable``, polling again may help.
        """
        if self._handed_out is not None:
            self._handed_out.processed_offset = self._handed_out.delivered_offset
            self._handed_out = None
        with trio.move_on_after(check_timeout(timeout_s)):
            while True:
                self._refresh_queues()
                while self._errors and not self._is_refreshing:
                    queue, error = self._errors.popleft()
                    if queue not in self._gone:
                        raise error
                self._unanswered.raise_after(timeout_s, now=trio.current_time())
                self._start_pulls()
                await trio.lowlevel.checkpoint()  # to inflate may take long: others get a turn between two polls
                if messages := self._take():
                    return messages
                await self._wait_arrival()
        if not (messages := self._take()):
            self._unanswered.raise_after(0.0, now=trio.current_time())
        return messages

    def take_back(self, messages: Sequence[MessageExt]) -> None:
        """What a poll returned reached nobody: later ones return it again."""
        if messages and (state := self._states.get(messages[0].queue)):
            state.seek(messages[0].queue_offset)

    async def _wait_arrival(self) -> None:
        self._arrived = trio.Event()
        paused = [one.not_before for queue, one in self._states.items() if not one.pulling and queue not in self._gone]
        with trio.move_on_at(min([*paused, inf if self._is_refreshing else self._refresh_at])):
            await self._arrived.wait()

    def _take(self) -> list[MessageExt]:
        while self._received:
            queue, epoch, records, next_offset = self._received.popleft()
            state = self._states[queue]
            if epoch == state.epoch:
                messages, left = self._api.read_some(records, queue)
                if left:
                    self._received.appendleft((queue, epoch, left, next_offset))
                state.delivered_offset = left[0].queue_offset if left else next_offset
                state.pulling = bool(left)
                if messages:
                    self._handed_out = state
                    self._start_pulls()
                    return messages
                state.processed_offset = next_offset
        return []

    def _start_pulls(self) -> None:
        now = trio.current_time()
        for queue, state in self._states.items():
            if not state.pulling and state.not_before <= now and queue not in self._gone:
                state.pulling = True
                self._nursery.start_soon(self._pull, queue, state, state.epoch)

    async def _pull(self, queue: MessageQueue, state: ProcessQueue, epoch: int) -> None:
        ids = self._api.broker_ids(queue)
        if state.broker_id not in ids:
            state.broker_id = min(ids, default=0)
        try:
            result = await self._api.pull(
                queue,
                state.next_offset,
                max_messages=self._options.batch_size,
                suspend_s=0.0 if queue in self._unanswered else self._options.suspend_timeout_s,
                broker_id=state.broker_id,
            )
        except RmqhaError as error:
            if epoch == state.epoch:
                self._on_failed(queue, state, error)
            return
        if epoch == state.epoch:
            self._on_pulled(queue, state, result)

    def _on_failed(self, queue: MessageQueue, state: ProcessQueue, error: RmqhaError) -> None:
        """Try the queue's next address; when none is left, tell the caller."""
        state.pulling = False
        state.failures += 1
        addresses = self._api.broker_ids(queue)
        if isinstance(error, RemotingError) and state.failures < len(addresses):
            state.broker_id = next((one for one in addresses if one > state.broker_id), addresses[0])
            state.stay_until = trio.current_time() + REFRESH_AFTER_S
        else:
            state.failures = state.broker_id = 0
            state.not_before = trio.current_time() + _PAUSE_S
            self._tell(queue, error)
        self._refresh_at = -inf
        self._arrived.set()

    def _tell(self, queue: MessageQueue | None, error: RmqhaError) -> None:
        """Let the caller know: of a refusal now, of a missing answer unless one comes in time."""
        if isinstance(error, RemotingError):
            self._unanswered.note(queue, error, now=trio.current_time())
        else:
            self._errors.append((queue, error))

    def _on_pulled(self, queue: MessageQueue, state: ProcessQueue, result: Pulled) -> None:
        self._unanswered.clear(queue)
        if state.failures:
            logger.warning("consumer.moved: %s is read from broker id %d now", queue, state.broker_id)
        if trio.current_time() >= state.stay_until:
            state.broker_id = self._api.suggested_id(queue, result)
        if state.note_answer(is_moved=result.status is PullStatus.OFFSET_ILLEGAL, now=trio.current_time()):
            moved = (state.next_offset, queue, result.next_begin_offset)
            logger.warning("consumer.offset_moved: offset %d lies outside %s, going on at %d", *moved)
        elif result.status is not PullStatus.FOUND and result.next_begin_offset <= state.next_offset:
            if result.status is PullStatus.NO_MATCHED_MSG:
                state.not_before = trio.current_time() + _PAUSE_S  # a slave that is behind what we have read
            state.pulling = False
            self._arrived.set()
            return
        state.next_offset = result.next_begin_offset
        self._received.append((queue, state.epoch, result.records, result.next_begin_offset))
        self._arrived.set()

    def _refresh_queues(self) -> None:
        """Learn of new queues and addresses every 30 s, and after each failure; every second while there are none."""
        if trio.current_time() >= self._refresh_at and not self._is_refreshing:
            self._is_refreshing = True
            self._nursery.start_soon(self._refresh)

    async def _refresh(self) -> None:
        self._refresh_at = trio.current_time() + (REFRESH_AFTER_S if self._states else _PAUSE_S)
        try:
            await self.refresh()
        except RmqhaError as error:
            if self._states:
                self._unanswered.keep_route(self.topic, error)
            elif isinstance(error, NoRouteError):
                self._unanswered.clear(None)
            else:
                self._tell(None, error)
        else:
            self._unanswered.clear(None)
        finally:
            self._is_refreshing = False
            self._arrived.set()

    async def refresh(self) -> None:
        """Look the topic's route up now.

        Raises:
            NoRouteError: the topic is unknown, or no queue of it may be read.
            RemotingError, MQBrokerError: nobody answered, or a refusal.
        """
        route = await self._routes.find(self.topic)
        self._api.set_brokers(route.broker_datas)
        for queue in readable_queues(self.topic, route):
            await self._add(queue)
        self._gone.note_route([queue for queue, _ in self._errors], route)
        if not self._states:
            raise nothing_to_read(self.topic, route)
        self._refresh_at = trio.current_time() + REFRESH_AFTER_S

    async def _add(self, queue: MessageQueue) -> None:
        if queue not in self._states:
            offset = await find_start(self._api, queue, self._start, is_new=self._is_open)
            self._states.setdefault(queue, ProcessQueue(offset))

    async def open(self) -> None:
        """The first look at the route; a topic that does not exist is waited for.

        Raises:
            RemotingError, MQBrokerError: nobody answered, or a refusal.
        """
        try:
            await self.refresh()
        except NoRouteError as error:
            logger.warning("consumer.topic_unknown: waiting for topic %s: %r", self.topic, error)
        self._is_open = True

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        return self.queues if queues is None else list(queues)

    def _state(self, queue: MessageQueue) -> ProcessQueue:
        state = self._states.get(queue)
        if state is None:
            raise MQClientError(f"{queue} is not one of the {len(self._states)} queues of topic {self.topic}")
        return state


@asynccontextmanager
async def open_consumer(
    addresses: str,
    topic: str,
    *,
    group: str | None = None,
    start: Start | None = None,
    tags: str = "*",
    options: ConsumerOptions | None = None,
    network: Network | None = None,
    credentials: SessionCredentials | None = None,
) -> AsyncIterator[Consumer]:
    """A consumer for as long as the block runs. It reads all queues: members of a group do not share them out.

    A topic that does not exist yet is waited for, as RocketMQ's consumers do: polls bring nothing until it is there.

    Args:
        addresses: of brokers or name servers, ``host:port``, several separated by ``;``. A broker knows no address
            but its own: to read on when the master is gone, name its slaves, too.
        topic: what to read.
        group: for whom offsets are committed; without one, nothing can be.
        start: where to begin (:data:`~rmqha.client.start.Start`): ``"committed"`` (the default with a group),
            ``"first"`` (without), ``"last"``, a ``datetime``, or milliseconds since 1970. Queues that appear later
            are read from their first message on, not from ``"last"``.
        tags: ``*`` for all, or tags joined by ``||``.
        options: where RocketMQ's defaults do not fit.
        network: where connections come from; TCP if None.
        credentials: by which all that brokers are asked is signed, for those with ``aclEnable``.

    Raises:
        MQClientError: ``addresses`` or ``topic`` can be none, ``tags`` names no tag, ``start`` is no place, ``group``
            is no name, there is none to commit for, or trio does not run.
        RemotingError, MQBrokerError: nobody answered, or a refusal.
    """
    check_trio_runs("open_consumer", "SyncConsumer")
    options = options or ConsumerOptions()
    check_topic(topic)
    start = check_start(start, group=group)
    check_auto_commit(options.auto_commit_s, group=group)
    async with open_background_nursery() as nursery:
        connections = Connections(
            network or TcpNetwork(), nursery, connect_timeout_s=options.connect_timeout_s, credentials=credentials
        )
        named, servers = options.named_only, split_addresses(addresses)
        routes = TopicRoutes(connections, servers, nursery=nursery, timeout_s=options.timeout_s, named_only=named)
        api = PullApi(connections, group=group, tags=tags, options=options)
        offsets = OffsetStore(api, group=group)
        consumer = Consumer(
            topic, offsets=offsets, start=start, pull_api=api, routes=routes, nursery=nursery, options=options
        )
        await consumer.open()
        if options.auto_commit_s is None:
            yield consumer
            return
        auto_commit = AutoCommit(consumer, every_s=options.auto_commit_s)
        nursery.start_soon(auto_commit.run)
        try:
            yield consumer
        finally:
            await auto_commit.finish()
