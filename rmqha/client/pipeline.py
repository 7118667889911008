"""Pipeline: many sends under way on one connection, their outcomes in order, and no task per message."""

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from rmqha.client.environment import check_timeout
from rmqha.client.results import SendOutcome, read_send_outcome
from rmqha.errors import MQClientError, RemotingConnectError, RmqhaError
from rmqha.remoting.response_table import Outcome

if TYPE_CHECKING:
    from rmqha.client.message import Message, MessageQueue
    from rmqha.client.producer import Producer
    from rmqha.remoting.client import RemotingClient

_BURST_FRAMES_MAX = 64
_BURST_BYTES_MAX = 128 * 1024
QUEUED_BYTES_MAX = 4 * 1024 * 1024
"""Behind which sends that await no answer wait until the broker takes more."""
NOT_IN_TIME: Final = "no route or connection in time: nothing was sent"


class _Slot:
    """One send under way; ``outcome`` is set once."""

    __slots__ = ("msg_id", "outcome", "pipeline", "queue")

    def __init__(
        self,
        pipeline: "Pipeline",
        msg_id: str,
        queue: "MessageQueue | None",
        outcome: Outcome | RmqhaError | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.msg_id = msg_id
        self.queue = queue
        self.outcome = outcome

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

    For example::

        async with open_producer("127.0.0.1:10911") as producer, producer.pipeline(window=1000) as pipeline:
            for number in range(5000):
                for outcome in await pipeline.send(Message("orders", b"%d" % number)):
                    print("of an earlier message:", outcome)
            for outcome in await pipeline.finish():
                print("of the rest:", outcome)

    An outcome is a SendResult or the error that :meth:`Producer.send` would have raised; nothing is retried.
    """

    def __init__(self, producer: "Producer", *, window: int, timeout_s: float) -> None:
        if window < 1:
            raise MQClientError(f"a window of {window} lets no message out: at least 1")
        self._producer = producer
        self._window = window
        self._timeout_s = check_timeout(timeout_s)
        self._slots: deque[_Slot] = deque()
        self._awaited: _Slot | None = None
        self._completed = trio.lowlevel.ParkingLot()
        self._burst_frames = 0
        self._burst_size = 0

    async def send(self, message: "Message") -> list[SendOutcome]:
        """Send, waiting only while ``window`` messages are unanswered; returns what earlier sends came to.

        What is sent in one go leaves together, as soon as this task waits for anything. When cancelled, or with an
        error raised, this message is not sent and has no outcome.
        """
        if self._burst_frames >= _BURST_FRAMES_MAX or self._burst_size >= _BURST_BYTES_MAX:
            await self._let_out()
        if len(self._slots) >= self._window:
            await self._wait_for(self._slots[0])
        try:
            await self._start(message)
        except RmqhaError as error:
            self._slots.append(_Slot(self, "", None, error))
        return self.take() if self._slots[0].outcome is not None else []

    async def finish(self) -> list[SendOutcome]:
        """Wait for everything sent; returns the outcomes not taken yet."""
        await self._wait_all()
        return self.take()

    def take(self) -> list[SendOutcome]:
        """The outcomes known by now, up to the first send that is not answered."""
        outcomes: list[SendOutcome] = []
        slots = self._slots
        while slots and slots[0].outcome is not None:
            outcomes.append(slots.popleft().read())
        return outcomes

    async def _start(self, message: "Message") -> None:
        rendered = self._producer.render(message)
        chosen = self._producer.select_live(message.topic, now=trio.current_time())
        queue, client = chosen or await self._connect(message.topic)
        await client.wait_writable(QUEUED_BYTES_MAX)
        slot = _Slot(self, rendered.msg_id, queue)
        opaque = client.expect(trio.current_time() + self._timeout_s, slot.complete)
        frame = self._producer.encode(rendered, queue, opaque=opaque)
        self._slots.append(slot)
        self._burst_frames += 1
        self._burst_size += len(frame)
        if len(self._slots) >= self._window:
            client.put_nowait(frame)
        else:
            client.put(frame)

    async def _connect(self, topic: str) -> "tuple[MessageQueue, RemotingClient]":
        try:
            with trio.fail_after(self._timeout_s):
                return await self._producer.connect(topic)
        except trio.TooSlowError:
            raise RemotingConnectError(topic, NOT_IN_TIME) from None

    async def _let_out(self) -> None:
        """Let what was sent go out, and answers come in."""
        self._burst_frames = self._burst_size = 0
        await trio.lowlevel.checkpoint()

    async def _wait_for(self, slot: _Slot) -> None:
        while slot.outcome is None:
            self._awaited = slot
            await self._completed.park()

    async def _wait_all(self) -> None:
        for slot in tuple(self._slots):
            await self._wait_for(slot)

    def on_completed(self, slot: _Slot) -> None:
        """A send has ended; wake the caller that waits for it."""
        if slot.outcome is not None and slot.queue is not None:
            self._producer.note_outcome(slot.queue.topic, slot.outcome)
        if slot is self._awaited:
            self._awaited = None
            self._completed.unpark()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leaving in peace waits for everything sent; outcomes not taken yet stay to be taken."""
        if error is None:
            await self._wait_all()
