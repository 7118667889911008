"""Pipeline: many sends under way on one connection, their outcomes in order, and no task per message."""

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from rmqha.client.results import SendOutcome, read_send_outcome
from rmqha.errors import RemotingError, RmqhaError
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.response_table import Outcome

if TYPE_CHECKING:
    from rmqha.client.message import Message, MessageQueue
    from rmqha.client.producer import Producer

_UNFLUSHED_FRAMES_MAX = 64
_UNFLUSHED_BYTES_MAX = 128 * 1024
_QUEUED_BYTES_MAX = 4 * 1024 * 1024


class _Slot:
    """One send under way; ``outcome`` is set once."""

    __slots__ = ("msg_id", "outcome", "pipeline", "queue")

    def __init__(self, pipeline: "Pipeline", msg_id: str, queue: "MessageQueue | None") -> None:
        self.pipeline = pipeline
        self.msg_id = msg_id
        self.queue = queue
        self.outcome: Outcome | RmqhaError | None = None

    def complete(self, outcome: Outcome | RmqhaError) -> None:
        self.outcome = outcome
        self.pipeline.on_completed(self)

    def read(self) -> SendOutcome:
        outcome = self.outcome
        assert outcome is not None
        if isinstance(outcome, RmqhaError):
            return outcome
        assert self.queue is not None
        return read_send_outcome(outcome, self.queue, self.msg_id)


class Pipeline:
    """Use one from one task. Every message gets exactly one outcome, in the order of sending.

        async with producer.pipeline(window=1000) as pipeline:
            for message in messages:
                for outcome in await pipeline.send(message):
                    ...                    # of earlier messages
            for outcome in await pipeline.finish():
                ...                        # of the rest

    An outcome is a SendResult or the error that :meth:`Producer.send` would have raised; nothing is retried.
    """

    def __init__(self, producer: "Producer", *, window: int, timeout_s: float) -> None:
        self._producer = producer
        self._window = window
        self._timeout_s = timeout_s
        self._slots: deque[_Slot] = deque()
        self._head_completed = trio.lowlevel.ParkingLot()
        self._client: RemotingClient | None = None
        self._frames: list[bytes] = []
        self._frames_size = 0
        self._untaken: list[SendOutcome] = []

    async def send(self, message: "Message") -> list[SendOutcome]:
        """Send, waiting only while ``window`` messages are unanswered; returns what earlier sends came to."""
        if len(self._slots) >= self._window:
            await self._flush()
            await self._wait_head()
        slot = _Slot(self, "", None)
        self._slots.append(slot)
        try:
            await self._start(slot, message)
        except RmqhaError as error:
            slot.complete(error)
        if len(self._frames) >= _UNFLUSHED_FRAMES_MAX or self._frames_size >= _UNFLUSHED_BYTES_MAX:
            await self._flush()
        return self.take() if self._slots[0].outcome is not None else []

    async def finish(self) -> list[SendOutcome]:
        """Wait for everything sent; returns the outcomes not taken yet."""
        outcomes: list[SendOutcome] = []
        await self._flush()
        while self._slots:
            await self._wait_head()
            outcomes += self.take()
        return outcomes

    def take(self) -> list[SendOutcome]:
        """The outcomes known by now, up to the first send that is not answered."""
        outcomes, self._untaken = self._untaken, []
        slots = self._slots
        while slots and slots[0].outcome is not None:
            outcomes.append(slots.popleft().read())
        return outcomes

    async def _start(self, slot: _Slot, message: "Message") -> None:
        rendered = self._producer.render(message)
        now = trio.current_time()
        chosen = self._producer.select_live(message.topic, now=now)
        if chosen is None:
            await self._flush()
            chosen = await self._producer.connect(message.topic)
        queue, client = chosen
        if client is not self._client:
            await self._flush()
            self._client = client
        slot.msg_id, slot.queue = rendered.msg_id, queue
        opaque = client.expect(now + self._timeout_s, slot.complete)
        frame = self._producer.encode(rendered, queue, opaque=opaque)
        self._frames.append(frame)
        self._frames_size += len(frame)

    async def _flush(self) -> None:
        """Hand what has gathered to the network, waiting if that is slow."""
        if self._frames and self._client is not None:
            frames, self._frames, self._frames_size = self._frames, [], 0
            self._client.put_nowait(b"".join(frames))
            await self._client.wait_writable(_QUEUED_BYTES_MAX)
        await trio.lowlevel.checkpoint()

    async def _wait_head(self) -> None:
        while self._slots[0].outcome is None:
            await self._head_completed.park()

    def on_completed(self, slot: _Slot) -> None:
        """A send has ended; wake whoever waits for the oldest one."""
        if isinstance(slot.outcome, RemotingError) and slot.queue is not None:
            self._producer.forget_route(slot.queue.topic)
        if self._head_completed and slot is self._slots[0]:
            self._head_completed.unpark()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaving in peace waits for everything sent; outcomes not taken yet stay to be taken."""
        if error is None:
            self._untaken = await self.finish()
