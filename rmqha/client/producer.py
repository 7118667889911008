"""Producer: sends messages and tells how safe each of them is."""

import os
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import randbits
from typing import Final, NamedTuple

import trio

from rmqha.client.compression import ZLIB_SYS_FLAG, compress_body
from rmqha.client.environment import check_timeout, check_trio_runs
from rmqha.client.message import Message, MessageQueue, check_message, check_topic, render_properties
from rmqha.client.message_client_id_setter import MessageClientIDSetter
from rmqha.client.pipeline import NOT_IN_TIME, QUEUED_BYTES_MAX, Pipeline
from rmqha.client.results import SendOutcome, SendResult, may_be_stored, read_send_outcome
from rmqha.client.topic_publish_infos import TopicPublishInfos
from rmqha.client.topic_routes import TopicRoutes, split_addresses
from rmqha.codec.acl import SessionCredentials
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import ResponseCode
from rmqha.codec.limits import group_problem
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import AUTO_CREATE_TOPIC_KEY_TOPIC
from rmqha.codec.send_headers import SendMessageRequestEncoder
from rmqha.errors import MQClientError, RemotingConnectError, RemotingError, RmqhaError
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.connections import Connections
from rmqha.remoting.response_table import Outcome
from rmqha.replication.backoff import Backoff
from rmqha.transport import Network, TcpNetwork

_ROUTE_TIMEOUT_S: Final = 3.0
"""RocketMQ's; half of what a send may take, so that an address without an answer does not use it up."""
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer works, where RocketMQ's defaults do not fit."""

    timeout_s: float = 6.0
    """A send's time, all its retries included. Longer than the broker's syncFlushTimeout (5 s) and slaveTimeout (3 s):
    a client that gives up first never learns the status (#5657; RocketMQ's own wait 3 s)."""
    connect_timeout_s: float = 3.0
    compress_over_bytes: int | None = None
    """Compress bodies of at least this size (RocketMQ's producers do from 4096 on); None never."""
    message_size_max: int = 4 * 1024 * 1024
    default_topic_queue_nums: int = 4
    """Queues of a topic that a first message creates."""


class RenderedMessage(NamedTuple):
    """A message, or a batch, as it goes into a frame; a retry sends the same one."""

    topic: str
    body: bytes
    msg_id: str
    properties: bytes
    born_timestamp_ms: int
    sys_flag: int
    flag: int
    batch: bool = False


class Producer:
    """Sends messages; made by :func:`open_producer`. Any number of tasks may use one."""

    def __init__(
        self,
        connections: Connections,
        publish_infos: TopicPublishInfos,
        *,
        group: str,
        options: ProducerOptions,
        ids: MessageClientIDSetter,
        chance: Callable[[], float],
    ) -> None:
        self._connections = connections
        self._publish_infos = publish_infos
        self._options = options
        self._ids = ids
        self._chance = chance
        self._encoder = SendMessageRequestEncoder(
            group, default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC, default_topic_queue_nums=options.default_topic_queue_nums
        )

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> SendResult:
        """Send and wait for the answer.

        Args:
            message: what to send.
            queue: where; None takes the topic's queues in turn.
            timeout_s: for everything together; None is the producer's own.
            retries: how often to try again after an error with ``retryable``, if ``timeout_s`` allows: at once, on
                another broker if there is one; then after 0.1 s, and twice as long each time up to 1 s, less a random
                part. 16 bridge a restart of 6 s.
                An earlier try may have been stored all the same: consumers then see the message twice, with one
                ``msg_id``.

        Raises:
            MQClientError: the message is none that a broker would take (not retryable).
            NoRouteError: no broker for the topic.
            MQBrokerError: the broker refused; the message is not stored. With SYSTEM_ERROR it may be: so answers,
                too, a leader of a DLedger group that no majority has confirmed the message to.
            RemotingConnectError: not sent, the message is not stored.
            RemotingError: otherwise, it is unknown whether the message is stored (by any of the tries).
                Of several tries that failed the last one is raised that leaves this open, if there is one.
            RemoteProtocolError: an answer came that cannot be read: likewise.
        """
        return await self._send(self.render(message), queue, timeout_s, retries)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> SendResult:
        """Send messages of one topic that are taken or refused together and lie one behind the other; see :meth:`send`.

        Without an answer it is unknown how many of them are stored: a master that dies keeps records, not batches.
        """
        return await self._send(self._render_batch(messages), queue, timeout_s, retries)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send, and never learn what became of it. Waits while the broker does not take what was sent before.

        Raises:
            RmqhaError: it could not even be handed to the network.
        """
        rendered = self.render(message)
        queue, client = await self.connect(rendered.topic, queue)
        await client.wait_writable(QUEUED_BYTES_MAX)
        client.put_nowait(self.encode(rendered, queue, opaque=0, oneway=True))

    def pipeline(self, *, window: int = 1000, timeout_s: float | None = None) -> Pipeline:
        """Send many messages with up to ``window`` unanswered at once; see :class:`Pipeline`."""
        return Pipeline(self, window=window, timeout_s=self._options.timeout_s if timeout_s is None else timeout_s)

    async def send_many(
        self, messages: Iterable[Message], *, window: int = 1000, timeout_s: float | None = None
    ) -> AsyncGenerator[SendOutcome, None]:
        """Send all ``messages`` and yield the outcome of each, in order. Errors are yielded, not raised."""
        pipeline = self.pipeline(window=window, timeout_s=timeout_s)
        for message in messages:
            for outcome in await pipeline.send(message):
                yield outcome
        for outcome in await pipeline.finish():
            yield outcome

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of ``topic`` go to.

        Raises:
            NoRouteError, RemotingError, MQBrokerError: as for :meth:`send`.
        """
        return [queue for queue, _ in (await self._publish_infos.find(topic)).queues]

    async def _send(
        self, rendered: RenderedMessage, queue: MessageQueue | None, timeout_s: float | None, retries: int
    ) -> SendResult:
        deadline = trio.current_time() + check_timeout(self._options.timeout_s if timeout_s is None else timeout_s)
        backoff = Backoff(self._chance, first_s=_FIRST_PAUSE_S, max_s=_PAUSE_S_MAX)
        backoff.on_progress()  # the first retry comes at once
        avoid_broker = None
        unknown: RmqhaError | None = None
        for attempts_left in range(retries, -1, -1):
            chosen, outcome = await self._try_send(rendered, queue, deadline, avoid_broker)
            if isinstance(outcome, SendResult):
                return outcome
            if may_be_stored(outcome):
                unknown = outcome
            if not attempts_left or not outcome.retryable or not await _pause(backoff.next_pause_s(), deadline):
                error = unknown or outcome
                raise error from (None if outcome is error else outcome)
            avoid_broker = chosen.broker_name if chosen else None
        raise MQClientError(f"retries must not be negative: {retries}")

    async def _try_send(
        self, rendered: RenderedMessage, queue: MessageQueue | None, deadline: float, avoid_broker: str | None
    ) -> tuple[MessageQueue | None, SendOutcome]:
        if (
            queue is None
            and avoid_broker is None
            and (live := self.select_live(rendered.topic, now=trio.current_time()))
        ):
            return live[0], await self._ask(live[1], rendered, live[0], deadline)
        chosen = queue
        try:
            with trio.fail_at(deadline):
                chosen, address = await self.select_queue(rendered.topic, queue, avoid_broker=avoid_broker)
                client = await self._client_of(rendered.topic, address)
        except trio.TooSlowError:
            return chosen, RemotingConnectError(rendered.topic, NOT_IN_TIME)
        except RmqhaError as error:
            self.forget_route(rendered.topic)
            return chosen, error
        return chosen, await self._ask(client, rendered, chosen, deadline)

    async def _ask(
        self, client: RemotingClient, rendered: RenderedMessage, queue: MessageQueue, deadline: float
    ) -> SendOutcome:
        outcomes: list[Outcome] = []
        finished = trio.Event()

        def on_outcome(outcome: Outcome) -> None:
            outcomes.append(outcome)
            finished.set()

        opaque = client.expect(deadline, on_outcome)
        try:
            client.put_nowait(self.encode(rendered, queue, opaque=opaque))
            await finished.wait()
        finally:
            client.forget(opaque)
        self.note_outcome(rendered.topic, outcomes[0])
        return read_send_outcome(outcomes[0], queue, rendered.msg_id)

    def render(self, message: Message) -> RenderedMessage:
        """The message as it goes into a frame, with a new id.

        Raises:
            MQClientError: no broker would take it.
        """
        if message.topic not in self._publish_infos:
            check_topic(message.topic)
        check_message(message, message_size_max=self._options.message_size_max)
        msg_id, now_ms = self._ids.create_uniq_id()
        body, sys_flag = message.body, 0
        over = self._options.compress_over_bytes
        if over is not None and len(body) >= over:
            body, sys_flag = compress_body(body), ZLIB_SYS_FLAG
        properties = render_properties(message, msg_id)
        return RenderedMessage(message.topic, body, msg_id, properties, now_ms, sys_flag, message.flag)

    def _render_batch(self, messages: Sequence[Message]) -> RenderedMessage:
        if not messages:
            raise MQClientError("a batch without messages")
        first = messages[0]
        check_topic(first.topic)
        entries, msg_ids = [], []
        for message in messages:
            check_message(message, message_size_max=self._options.message_size_max)
            if message.topic != first.topic or message.wait_store_msg_ok != first.wait_store_msg_ok:
                raise MQClientError("messages of a batch must have one topic and one wait_store_msg_ok")
            if message.delay_level or message.topic.startswith("%RETRY%"):
                raise MQClientError("a batch holds no delayed and no retry messages: send them one by one")
            msg_id, now_ms = self._ids.create_uniq_id()
            msg_ids.append(msg_id)
            entries.append(BatchEntry(message.flag, message.body, render_properties(message, msg_id)))
        body = encode_batch(entries)
        if len(body) > self._options.message_size_max:
            raise MQClientError(f"a batch of {len(body)} bytes, at most {self._options.message_size_max} are accepted")
        properties = b"WAIT\x01true" if first.wait_store_msg_ok else b"WAIT\x01false"
        return RenderedMessage(first.topic, body, ",".join(msg_ids), properties, now_ms, 0, 0, batch=True)

    def encode(self, message: RenderedMessage, queue: MessageQueue, *, opaque: int, oneway: bool = False) -> bytes:
        """The frame that sends ``message`` to ``queue``."""
        return self._encoder.encode(
            message.topic,
            message.body,
            opaque=opaque,
            queue_id=queue.queue_id,
            sys_flag=message.sys_flag,
            flag=message.flag,
            properties=message.properties,
            born_timestamp_ms=message.born_timestamp_ms,
            batch=message.batch,
            oneway=oneway,
        )

    def select_live(self, topic: str, *, now: float) -> tuple[MessageQueue, RemotingClient] | None:
        """The next queue of the topic, if its route is known and its broker connected: no waiting needed."""
        info = self._publish_infos.usable(topic, now=now)
        if info is None:
            return None
        queue, address = info.select_one_message_queue()
        client = self._connections.live(address, now=now)
        return None if client is None else (queue, client)

    async def connect(self, topic: str, queue: MessageQueue | None = None) -> tuple[MessageQueue, RemotingClient]:
        """The next queue of the topic, or this one, and its broker, looked up and connected as need be.

        Raises:
            NoRouteError, RemotingError, MQBrokerError: as for :meth:`send`.
        """
        queue, address = await self.select_queue(topic, queue)
        return queue, await self._client_of(topic, address)

    async def _client_of(self, topic: str, address: str) -> RemotingClient:
        """Whose time ends meanwhile has learned as little good of the route as who waits for the error."""
        try:
            return await self._connections.get(address)
        except (RmqhaError, trio.Cancelled):
            self.forget_route(topic)
            raise

    async def select_queue(
        self, topic: str, queue: MessageQueue | None, *, avoid_broker: str | None = None
    ) -> tuple[MessageQueue, str]:
        """The queue to send to, and its master's address."""
        info = await self._publish_infos.get(topic)
        if queue is None:
            return info.select_one_message_queue(avoid_broker=avoid_broker)
        for candidate, address in info.queues:
            if candidate == queue:
                return candidate, address
        raise MQClientError(f"topic {topic} has no queue {queue.queue_id} on broker {queue.broker_name}")

    def note_outcome(self, topic: str, outcome: Outcome | RmqhaError) -> None:
        """Forget the topic's route if a send's outcome puts it in doubt; a former master refuses sends."""
        if isinstance(outcome, RemotingError):
            self.forget_route(topic)
        elif isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self._publish_infos.doubt(topic)

    def forget_route(self, topic: str) -> None:
        """Look the topic up anew before the next send: something went wrong with its broker."""
        self._publish_infos.forget(topic)


async def _pause(pause_s: float, deadline: float) -> bool:
    """Wait before another try, the less the closer ``deadline`` is; False if there is no time for one."""
    left_s = deadline - trio.current_time()
    pause_s = min(pause_s, max(left_s / 2, _FIRST_PAUSE_S))
    if pause_s >= left_s:
        return False
    await trio.sleep(pause_s)
    return True


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def open_producer(
    addresses: str,
    *,
    group: str = "rmqha-producer",
    options: ProducerOptions | None = None,
    network: Network | None = None,
    credentials: SessionCredentials | None = None,
    now_ms: Callable[[], int] = wall_clock_ms,
    chance: Callable[[], float] = random.random,
) -> AsyncIterator[Producer]:
    """A producer for as long as the block runs.

    Args:
        addresses: of brokers or name servers, ``host:port``, several separated by ``;``.
        group: the producer group's name.
        options: where RocketMQ's defaults do not fit.
        network: where connections come from; TCP if None.
        credentials: by which all that brokers are asked is signed, for those with ``aclEnable``.
        now_ms: the wall clock.
        chance: numbers in ``[0, 1)``, for the pauses between tries.

    Raises:
        MQClientError: ``addresses`` can be none, ``group`` is no name, or trio does not run. Nothing is connected yet.
    """
    check_trio_runs("open_producer", "SyncProducer")
    if problem := group_problem(group):
        raise MQClientError(problem)
    options = options or ProducerOptions()
    async with open_background_nursery() as nursery:
        connections = Connections(
            network or TcpNetwork(), nursery, connect_timeout_s=options.connect_timeout_s, credentials=credentials
        )
        timeout_s = min(options.timeout_s, _ROUTE_TIMEOUT_S)
        routes = TopicRoutes(connections, split_addresses(addresses), nursery=nursery, timeout_s=timeout_s)
        ids = MessageClientIDSetter(ip="127.0.0.1", pid=os.getpid(), process_hash=randbits(32), now_ms=now_ms)
        nums = options.default_topic_queue_nums
        publish_infos = TopicPublishInfos(routes, nursery=nursery, default_queue_nums=nums)
        yield Producer(connections, publish_infos, group=group, options=options, ids=ids, chance=chance)
