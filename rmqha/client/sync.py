"""SyncProducer and SyncConsumer: the same clients for plain code, on an event loop in a thread of their own.

Each call blocks until its result is there, or raises MQClientError when the client is closed. An object may be used
by many threads; a consumer's calls take turns. A process that forks must open its own afterwards.
"""

import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import trio

from rmqha.client.consumer import Consumer, open_consumer
from rmqha.client.consumer_options import ConsumerOptions
from rmqha.client.environment import check_trio_does_not_run
from rmqha.client.message import Message, MessageExt, MessageQueue
from rmqha.client.pipeline import Pipeline
from rmqha.client.producer import Producer, ProducerOptions, open_producer
from rmqha.client.results import SendOutcome, SendResult
from rmqha.client.start import Start
from rmqha.codec.acl import SessionCredentials
from rmqha.errors import MQClientError
from rmqha.transport import Network

Client = TypeVar("Client")
Result = TypeVar("Result")

_HANDED_OVER_AT_ONCE = 256
_CLOSED = "this client is closed, or belongs to the process that this one was forked from: open one here"


class _Call(Generic[Result]):
    """One call into the loop; both methods run there."""

    def __init__(
        self,
        async_fn: Callable[[], Awaitable[Result]],
        *,
        on_unclaimed: Callable[[Result], None] = lambda _result: None,
    ) -> None:
        """Nothing is called yet.

        Args:
            async_fn: what to call.
            on_unclaimed: given a result that came all the same when nobody waited any more.
        """
        self._async_fn: Final = async_fn
        self._on_unclaimed: Final = on_unclaimed
        self._scope: Final = trio.CancelScope()
        self._results: Final[list[Result]] = []

    async def run(self) -> Result:
        """Do it, unless it is abandoned."""
        with self._scope:
            result = await self._async_fn()
            self._results.append(result)
            if self._scope.cancel_called:
                self.abandon()
            return result
        raise MQClientError("interrupted: nobody waits for this any more")

    def abandon(self) -> None:
        """Nobody gets the result."""
        self._scope.cancel()
        while self._results:
            self._on_unclaimed(self._results.pop())


class _Loop(Generic[Client]):
    """A client inside a trio loop inside a thread, from :meth:`start` to :meth:`stop`."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Client]], *, names: tuple[str, str]) -> None:
        self._opening = opening
        self._names = names
        self._started: SimpleQueue[tuple[Client, trio.lowlevel.TrioToken] | BaseException] = SimpleQueue()
        self._stop = trio.Event()
        self._has_ended = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="rmqha-client", daemon=True)

    def start(self) -> None:
        check_trio_does_not_run(*self._names)
        self._thread.start()
        started = self._started.get()
        if isinstance(started, BaseException):
            self._thread.join()
            raise started
        self.client, self._token = started

    def call(self, async_fn: Callable[[], Awaitable[Result]]) -> Result:
        """As :meth:`wait`."""
        return self.wait(_Call(async_fn))

    def wait(self, call: "_Call[Result]") -> Result:
        """Wait for ``call`` in the loop. If this thread is interrupted meanwhile (ctrl-c), it is cancelled there.

        Raises:
            MQClientError: the client is closed, or was while this waited.
        """
        self._check_open()
        try:
            return trio.from_thread.run(call.run, trio_token=self._token)
        except (trio.Cancelled, trio.RunFinishedError, BaseExceptionGroup) as error:
            raise MQClientError(_CLOSED) from error
        except RuntimeError as error:
            self.call_soon(call.abandon)
            if not self._stop.is_set():
                raise
            raise MQClientError(_CLOSED) from error  # what it would have begun has no nursery any more
        except BaseException:
            self.call_soon(call.abandon)
            raise

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call in the loop, before whatever is called later, and do not wait for it."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(fn)

    def call_sync(self, fn: Callable[[], Result]) -> Result:
        """As :meth:`call`, for what does not wait."""
        self._check_open()
        try:
            return trio.from_thread.run_sync(fn, trio_token=self._token)
        except trio.RunFinishedError as error:
            raise MQClientError(_CLOSED) from error

    def _check_open(self) -> None:
        check_trio_does_not_run(*self._names)
        if not self._is_running():
            raise MQClientError(_CLOSED)

    def _is_running(self) -> bool:
        """Whether the thread runs, in this process. ``Thread.is_alive`` says no for ever once a ctrl-c met it."""
        return not self._has_ended and self._pid == os.getpid()  # threads do not come along when a process forks

    def stop(self) -> None:
        if self._is_running():
            with suppress(trio.RunFinishedError):
                trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
            self._thread.join()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits in start()
            self._started.put(error)
        finally:
            self._has_ended = True

    async def _main(self) -> None:
        async with self._opening() as client:
            self._started.put((client, trio.lowlevel.current_trio_token()))
            await self._stop.wait()


class SyncProducer:
    """A :class:`~rmqha.client.Producer` for plain code; its block closes it."""

    def __init__(
        self,
        addresses: str,
        *,
        group: str = "rmqha-producer",
        options: ProducerOptions | None = None,
        network: Network | None = None,
        credentials: SessionCredentials | None = None,
    ) -> None:
        self._loop: _Loop[Producer] = _Loop(
            lambda: open_producer(addresses, group=group, options=options, network=network, credentials=credentials),
            names=("SyncProducer", "open_producer"),
        )
        self._loop.start()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> SendResult:
        """See :meth:`Producer.send`."""
        producer = self._loop.client
        return self._loop.call(lambda: producer.send(message, queue=queue, timeout_s=timeout_s, retries=retries))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> SendResult:
        """See :meth:`Producer.send_batch`."""
        producer = self._loop.client
        return self._loop.call(lambda: producer.send_batch(messages, queue=queue, timeout_s=timeout_s, retries=retries))

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """See :meth:`Producer.send_oneway`."""
        producer = self._loop.client
        self._loop.call(lambda: producer.send_oneway(message, queue=queue))

    def send_many(
        self, messages: Iterable[Message], *, window: int = 1000, timeout_s: float | None = None
    ) -> Iterator[SendOutcome]:
        """See :meth:`Producer.send_many`. ``messages`` are taken in this thread, a few hundred at a time."""
        pipeline = self._loop.call_sync(lambda: self._loop.client.pipeline(window=window, timeout_s=timeout_s))
        for part in _parts(messages, min(window, _HANDED_OVER_AT_ONCE)):
            yield from self._loop.call(lambda part=part: _send_part(pipeline, part))  # type: ignore[misc]
        yield from self._loop.call(pipeline.finish)

    def queues(self, topic: str) -> list[MessageQueue]:
        """See :meth:`Producer.queues`."""
        return self._loop.call(lambda: self._loop.client.queues(topic))

    def close(self) -> None:
        """End all connections; what is unanswered then fails. Idempotent."""
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SyncConsumer:
    """A :class:`~rmqha.client.Consumer` for plain code; its block closes it."""

    def __init__(
        self,
        addresses: str,
        topic: str,
        *,
        group: str | None = None,
        start: Start | None = None,
        tags: str = "*",
        options: ConsumerOptions | None = None,
        network: Network | None = None,
        credentials: SessionCredentials | None = None,
    ) -> None:
        self._loop: _Loop[Consumer] = _Loop(
            lambda: open_consumer(
                addresses,
                topic,
                group=group,
                start=start,
                tags=tags,
                options=options,
                network=network,
                credentials=credentials,
            ),
            names=("SyncConsumer", "open_consumer"),
        )
        self._lock = threading.Lock()
        self._loop.start()

    @property
    def queues(self) -> list[MessageQueue]:
        """See :attr:`Consumer.queues`."""
        return self._loop.call_sync(lambda: self._loop.client.queues)

    def poll(self, *, timeout_s: float = 3.0) -> list[MessageExt]:
        """See :meth:`Consumer.poll`. What a ctrl-c kept from its caller, the next call returns again."""
        return self._take(self._polling(timeout_s))

    async def poll_in_asyncio(self, *, timeout_s: float = 3.0) -> list[MessageExt]:
        """As :meth:`poll`, for a task of asyncio. What a cancellation kept from it, the next call returns again.

        For example::

            consumer = await asyncio.to_thread(SyncConsumer, "127.0.0.1:10911", "orders", group="billing")
            try:
                messages = await consumer.poll_in_asyncio(timeout_s=5)
                await asyncio.to_thread(consumer.commit)
            finally:
                await asyncio.to_thread(consumer.close)

        A poll made by ``asyncio.to_thread`` does not learn that its task is cancelled: it goes on, and what it gets is
        missed, and committed by the next commit.
        """
        import asyncio  # noqa: PLC0415 - nobody else needs it

        polling = self._polling(timeout_s)
        try:
            return await asyncio.to_thread(self._take, polling)
        except BaseException:
            self._loop.call_soon(polling.abandon)
            raise

    def _polling(self, timeout_s: float) -> _Call[list[MessageExt]]:
        client = self._loop.client
        return _Call(lambda: client.poll(timeout_s=timeout_s), on_unclaimed=client.take_back)

    def _take(self, polling: _Call[list[MessageExt]]) -> list[MessageExt]:
        try:
            with self._lock:
                return self._loop.wait(polling)
        except BaseException:
            self._loop.call_soon(polling.abandon)
            raise

    def position(self, queue: MessageQueue) -> int:
        """See :meth:`Consumer.position`."""
        return self._loop.call_sync(lambda: self._loop.client.position(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """See :meth:`Consumer.commit`."""
        with self._lock:
            self._loop.call(lambda: self._loop.client.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """See :meth:`Consumer.committed`."""
        return self._loop.call(lambda: self._loop.client.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See :meth:`Consumer.seek`."""
        with self._lock:
            self._loop.call_sync(lambda: self._loop.client.seek(queue, offset))

    def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """See :meth:`Consumer.seek_to_begin`."""
        with self._lock:
            self._loop.call(lambda: self._loop.client.seek_to_begin(queues))

    def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """See :meth:`Consumer.seek_to_end`."""
        with self._lock:
            self._loop.call(lambda: self._loop.client.seek_to_end(queues))

    def seek_to_time(self, timestamp_ms: int, queues: Iterable[MessageQueue] | None = None) -> None:
        """See :meth:`Consumer.seek_to_time`."""
        with self._lock:
            self._loop.call(lambda: self._loop.client.seek_to_time(timestamp_ms, queues))

    def close(self) -> None:
        """End all connections. Idempotent."""
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _send_part(pipeline: Pipeline, messages: list[Message]) -> list[SendOutcome]:
    outcomes: list[SendOutcome] = []
    for message in messages:
        outcomes += await pipeline.send(message)
    return outcomes


def _parts(messages: Iterable[Message], size: int) -> Iterator[list[Message]]:
    part: list[Message] = []
    for message in messages:
        part.append(message)
        if len(part) >= size:
            yield part
            part = []
    if part:
        yield part
