"""A load of sends on one connection, written against the protocol and not against rmqha's own client.

So it is a second witness of what a broker answered, and the same client for rmqha and RocketMQ. :class:`Sends` holds
no socket: tests drive it with trio (:class:`LoadProducer`), the benchmarks with a blocking socket.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import trio

from tests.e2e.dialects import DIALECTS, Template, read_answer

SEND_OK: Final = 0
FLUSH_DISK_TIMEOUT: Final = 10
SLAVE_NOT_AVAILABLE: Final = 11
FLUSH_SLAVE_TIMEOUT: Final = 12
_EXPECTED: Final = (FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT)

OPAQUE_BASE: Final = 100_000_000  # always nine digits, so that every header has the same length
_BATCH_ENTRY: Final = struct.Struct(">iiiii")


class Answer(NamedTuple):
    """What the broker said about request ``number``; ``text`` has it in full if it is not SEND_OK."""

    number: int
    code: int
    text: str = ""


def body_of_size(*sizes: int) -> Callable[[int], bytes]:
    """Bodies of these sizes in turn; each differs from its neighbours by its number."""
    padding = bytes(i % 251 for i in range(max(sizes)))
    return lambda number: (b"%016d" % number + padding)[: sizes[number % len(sizes)]]


class Sends:
    """Requests, numbered from 0, and their answers. With ``batch`` > 1 a request carries that many messages.

    They go to the topics, and in each to its queues, in turn. With ``keys`` KEYS and TAGS are another in each message.
    """

    def __init__(
        self,
        *topics: str,
        body: Callable[[int], bytes],
        queue_nums: int = 4,
        batch: int = 1,
        dialect: str = "java-json",
        keys: bool = False,
    ) -> None:
        self._body = body
        self._batch = batch
        self._rest = b""
        self.serialize, self._write = DIALECTS[dialect]
        self._keys = keys
        self._heads = [self._head(topic, queue_id) for queue_id in range(queue_nums) for topic in topics]
        self.sent = 0

    def _head(self, topic: str, queue_id: int) -> Template:
        """A header, with places for the unique key (single messages only) and the opaque number."""
        properties = "UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02TAGS\x01load"
        if self._keys:
            properties = "KEYS\x01{KEYS}\x02UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02TAGS\x01{TAG}"
        if self._batch > 1:
            properties = "WAIT\x01true"
        fields = {"a": "load", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1700000000000"}
        fields |= {"h": "0", "i": properties, "j": "0", "k": "false", "m": "true" if self._batch > 1 else "false"}
        return self._write(320 if self._batch > 1 else 310, fields)

    def request(self) -> bytes:
        """The next request, as a whole frame."""
        number = self.sent
        self.sent += 1
        return self.frame(number % self.head_count, number)

    @property
    def head_count(self) -> int:
        """How many requests differ by more than their numbers."""
        return len(self._heads)

    def frame(self, head: int, number: int) -> bytes:
        """Request ``number``, as it would be with this head."""
        header = self._heads[head](number, OPAQUE_BASE + number)
        body = self._body(number) if self._batch == 1 else self._batch_body(number)
        prefix = (4 + len(header) + len(body)) << 32 | self.serialize << 24 | len(header)
        return b"%b%b%b" % (prefix.to_bytes(8, "big"), header, body)

    def _batch_body(self, number: int) -> bytes:
        parts = []
        for index in range(number * self._batch, (number + 1) * self._batch):
            body = self._body(index)
            properties = b"UNIQ_KEY\1%032d" % index
            size = _BATCH_ENTRY.size + len(body) + 2 + len(properties)
            parts.append(_BATCH_ENTRY.pack(size, 0, 0, 0, len(body)) + body)
            parts.append(len(properties).to_bytes(2, "big") + properties)
        return b"".join(parts)

    def receive(self, data: bytes) -> list[Answer]:
        """Take in what came off the wire; returns the answers that are now complete."""
        data = self._rest + data
        answers = []
        at = 0
        while at + 8 <= len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            header_end = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
            code, opaque = read_answer(data[at + 8 : header_end], self.serialize)
            text = "" if code == SEND_OK else data[at + 8 : end].decode(errors="replace")
            answers.append(Answer(opaque - OPAQUE_BASE, code, text))
            at = end
        self._rest = data[at:]
        return answers

    def forget_partial_answer(self) -> None:
        """The connection broke: whatever of an answer had come is worth nothing."""
        self._rest = b""


@dataclass
class LoadProducer:
    """Keeps ``window`` requests in flight until stopped, over as many connections as it takes.

    Invariant: ``acknowledged`` holds the numbers answered SEND_OK; each other number's fate is unknown or refused.
    """

    port: int
    sends: Sends
    window: int = 64
    acknowledged: set[int] = field(default_factory=set)
    codes: dict[int, int] = field(default_factory=dict)
    connections: int = 0
    unexpected: list[str] = field(default_factory=list)
    _progress: trio.Event = field(default_factory=trio.Event)
    _is_ending: bool = False

    async def send(self, more: int) -> None:
        """Until ``more`` messages are acknowledged, and all others answered: none is stored later."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run)
            await self.wait_acknowledged(more)
            self.stop()

    def stop(self) -> None:
        """Send no more: :meth:`run` ends when what was sent is answered, or its connection is broken."""
        self._is_ending = True

    async def run(self) -> None:
        """Send until cancelled or stopped; a broken or refused connection is made again."""
        while not self._is_ending:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            except OSError:
                await trio.sleep(0.05)
                continue
            self.connections += 1
            try:
                async with stream:
                    await self._keep_window_full(stream)
            except trio.BrokenResourceError:
                pass
            self.sends.forget_partial_answer()

    async def _keep_window_full(self, stream: trio.SocketStream) -> None:
        unanswered = 0
        while unanswered or not self._is_ending:
            if not self._is_ending:
                await stream.send_all(b"".join(self.sends.request() for _ in range(self.window - unanswered)))
                unanswered = self.window
            data = await stream.receive_some(262_144)
            if not data:
                return
            answers = self.sends.receive(data)
            unanswered -= len(answers)
            self._note(answers)
            if any(answer.code != SEND_OK for answer in answers):
                await trio.sleep(0.02)  # refusals come at once; without a pause they would fill the log

    def _note(self, answers: list[Answer]) -> None:
        for answer in answers:
            self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
            if answer.code == SEND_OK:
                self.acknowledged.add(answer.number)
            elif answer.code not in _EXPECTED and "the broker is starting" not in answer.text:
                self.unexpected.append(answer.text)
        self._progress.set()
        self._progress = trio.Event()

    @property
    def refused(self) -> int:
        """How many requests got another answer than SEND_OK."""
        return sum(count for code, count in self.codes.items() if code != SEND_OK)

    async def wait_acknowledged(self, more: int, *, timeout_s: float = 120) -> None:
        """Wait until ``more`` further messages are acknowledged."""
        await self._wait_more(lambda: len(self.acknowledged), more, timeout_s=timeout_s)

    async def wait_refused(self, more: int, *, timeout_s: float = 120) -> None:
        """Wait until ``more`` further requests are refused."""
        await self._wait_more(lambda: self.refused, more, timeout_s=timeout_s)

    async def _wait_more(self, figure: Callable[[], int], more: int, *, timeout_s: float) -> None:
        goal = figure() + more
        with trio.move_on_after(timeout_s):
            while figure() < goal:
                await self._progress.wait()
        assert figure() >= goal, (
            f"only {figure() - goal + more} of {more} answers within {timeout_s} s; "
            f"all answers by code: {self.codes}; unexpected: {self.unexpected[-3:]}"
        )


async def wait_in_sync(port: int, *, timeout_s: float = 120) -> None:
    """Wait until the broker on ``port`` answers a send with SEND_OK. Few and small messages: the log hardly grows."""
    sends = Sends("warm-up", body=body_of_size(16))
    answers: list[Answer] = []
    with trio.move_on_after(timeout_s):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            while not answers or answers[-1].code != SEND_OK:
                await trio.sleep(0.2 if answers else 0)
                await stream.send_all(sends.request())
                while len(answers) < sends.sent:
                    data = await stream.receive_some(65_536)
                    assert data, f"port {port} hung up after {[answer.text for answer in answers]}"
                    answers += sends.receive(data)
            return
    raise AssertionError(f"no SEND_OK from port {port} within {timeout_s} s: {[a.text for a in answers[-3:]]}")
