"""A load of sends on one connection, written against the protocol and not against rmqha's own client.

So it is a second witness of what a broker answered, and the same client for rmqha and RocketMQ. :class:`Sends` holds
no socket: tests drive it with trio (:class:`LoadProducer`), the benchmarks with a blocking socket.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import trio

SEND_OK: Final = 0
FLUSH_DISK_TIMEOUT: Final = 10
SLAVE_NOT_AVAILABLE: Final = 11
FLUSH_SLAVE_TIMEOUT: Final = 12

_OPAQUE_BASE: Final = 100_000_000  # always nine digits, so that every header has the same length
_BATCH_ENTRY: Final = struct.Struct(">iiiii")


class Answer(NamedTuple):
    """What the broker said about request ``number``; ``text`` has it in full if it is not SEND_OK."""

    number: int
    code: int
    text: str = ""


def body_of_size(size: int) -> Callable[[int], bytes]:
    """Bodies of ``size`` bytes that begin with the message's number."""
    padding = bytes(i % 251 for i in range(size))
    return lambda number: (b"%016d" % number + padding)[:size]


class Sends:
    """Requests, numbered from 0, and their answers. With ``batch`` > 1 a request carries that many messages."""

    def __init__(self, topic: str, body: Callable[[int], bytes], *, queue_nums: int = 4, batch: int = 1) -> None:
        self._body = body
        self._batch = batch
        self._rest = b""
        self._heads = [self._head(topic, queue_id, batch) for queue_id in range(queue_nums)]
        self.sent = 0

    @staticmethod
    def _head(topic: str, queue_id: int, batch: int) -> tuple[bytes, bytes]:
        fields = dict.fromkeys("fhj", "0") | dict.fromkeys("k", "false")
        fields |= {"a": "load", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "g": "1700000000000"}
        fields |= {"i": "WAIT\x01true\x02TAGS\x01load", "m": "true" if batch > 1 else "false"}
        header = {"code": 320 if batch > 1 else 310, "extFields": fields, "flag": 0, "language": "JAVA"}
        header |= {"opaque": _OPAQUE_BASE, "serializeTypeCurrentRPC": "JSON", "version": 395}
        before, after = json.dumps(header, separators=(",", ":")).encode().split(b"%d" % _OPAQUE_BASE)
        return before, after

    def request(self) -> bytes:
        """The next request, as a whole frame."""
        number = self.sent
        self.sent += 1
        before, after = self._heads[number % len(self._heads)]
        body = self._body(number) if self._batch == 1 else self._batch_body(number)
        header_size = len(before) + 9 + len(after)
        sizes = (4 + header_size + len(body) << 32 | header_size).to_bytes(8, "big")
        return b"%b%b%d%b%b" % (sizes, before, _OPAQUE_BASE + number, after, body)

    def _batch_body(self, number: int) -> bytes:
        parts = []
        for index in range(number * self._batch, (number + 1) * self._batch):
            body = self._body(index)
            parts.append(_BATCH_ENTRY.pack(_BATCH_ENTRY.size + len(body) + 2, 0, 0, 0, len(body)))
            parts.append(body + b"\0\0")
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
            digits = data.index(b'"opaque":', at, end) + 9
            number = int(data[digits : digits + 9]) - _OPAQUE_BASE
            code = data.index(b'"code":', at, end) + 7
            if data[code : code + 2] == b"0,":
                answers.append(Answer(number, SEND_OK))
            else:
                header = data[at + 8 : end].decode(errors="replace")
                answers.append(Answer(number, int(header[code - at - 8 :].split(",")[0]), header))
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

    async def run(self) -> None:
        """Send until cancelled; a broken or refused connection is made again."""
        while True:
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
        missing = self.window
        while True:
            await stream.send_all(b"".join(self.sends.request() for _ in range(missing)))
            data = await stream.receive_some(262_144)
            if not data:
                return
            answers = self.sends.receive(data)
            missing = len(answers)
            self._note(answers)

    def _note(self, answers: list[Answer]) -> None:
        for answer in answers:
            self.codes[answer.code] = self.codes.get(answer.code, 0) + 1
            if answer.code == SEND_OK:
                self.acknowledged.add(answer.number)
            elif answer.code not in (FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT):
                self.unexpected.append(answer.text)
        self._progress.set()
        self._progress = trio.Event()

    async def wait_acknowledged(self, more: int, *, timeout_s: float = 60) -> None:
        """Wait until ``more`` further messages are acknowledged."""
        goal = len(self.acknowledged) + more
        with trio.move_on_after(timeout_s):
            while len(self.acknowledged) < goal:
                await self._progress.wait()
        assert len(self.acknowledged) >= goal, (
            f"only {len(self.acknowledged) - goal + more} of {more} acknowledged within {timeout_s} s; "
            f"answers by code: {self.codes}; unexpected: {self.unexpected[-3:]}"
        )


async def wait_in_sync(port: int, *, timeout_s: float = 60) -> None:
    """Wait until the broker on ``port`` answers a send with SEND_OK. Few and small messages: the log hardly grows."""
    sends = Sends("warm-up", body_of_size(16))
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
