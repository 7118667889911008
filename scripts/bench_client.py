"""The benchmarks' client: keeps so many sends in flight on blocking sockets, with little work of its own.

Requests are written once, and before each use only what has to differ is stamped on them: opaque, unique key, and
KEYS and TAGS if these change. Of an answer only its code and its opaque are looked for. So a message costs the client
some two microseconds beside the kernel's, and it is the brokers that are measured.
"""

import re
import selectors
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import inf, lcm
from time import perf_counter
from typing import Final, NamedTuple

from tests.e2e.load import OPAQUE_BASE, SEND_OK, Sends

_RING_MIN: Final = 256
_RECEIVE_SIZE: Final = 1 << 20
_JSON_OPAQUE: Final = re.compile(rb'"opaque":([0-9]{9})')
_JSON_OK: Final = b'"code":%d,' % SEND_OK
_BINARY_ANSWER: Final = struct.Struct(">iIhBhi")
_INT32: Final = struct.Struct(">i")
_DIGITS: Final = re.compile(rb"[0-9]{3,}")


class Flow(NamedTuple):
    """What the client itself saw."""

    messages: int
    refused: int
    seconds: float
    latencies_s: list[float]


@dataclass(frozen=True)
class Case:
    """What is sent, and how; ``window`` requests are in flight on all connections together."""

    size: int
    window: int
    batch: int = 1
    dialect: str = "java-json"
    connections: int = 1
    topics: int = 1
    keys: bool = False

    def sends(self) -> Sends:
        """The requests of one connection."""
        topics = ["bench", *(f"bench-{number:05d}" for number in range(1, self.topics))]
        body = constant_body(self.size)
        return Sends(*topics, body=body, batch=self.batch, dialect=self.dialect, keys=self.keys)

    def __str__(self) -> str:
        batch = f", batches of {self.batch}" if self.batch > 1 else ""
        connections = f", {self.connections} connections" if self.connections > 1 else ""
        topics = f", {self.topics} topics" if self.topics > 1 else ""
        keys = ", changing keys and tags" if self.keys else ""
        return f"{self.size} B, window {self.window}{batch}, {self.dialect}{connections}{topics}{keys}"


def constant_body(size: int) -> Callable[[int], bytes]:
    """The same bytes for every message."""
    body = bytes(i % 251 for i in range(size))
    return lambda _number: body


class Ring:
    """One connection's requests, written once, one behind the other; :meth:`next` stamps them anew."""

    def __init__(self, case: Case) -> None:
        sends = case.sends()
        self.is_json: Final = sends.serialize == 0
        round_size = lcm(sends.head_count, 2)
        count = round_size * -(-max(2 * case.window, _RING_MIN) // (round_size * case.connections))
        self._count: Final = count
        self._starts: Final = [0]
        self._places: Final[list[list[tuple[int, int]]]] = []
        frames = []
        for number in range(count):
            frame = sends.frame(number % sends.head_count, 0)
            frames.append(frame)
            at = self._starts[-1]
            self._places.append([(at + begin, at + end) for begin, end in self._changing(sends, number)])
            self._starts.append(at + len(frame))
        self._frames: Final = bytearray().join(frames)
        self.sent = 0

    def _changing(self, sends: Sends, number: int) -> list[tuple[int, int]]:
        """Where the digits are that differ between two requests of one head."""
        head = number % sends.head_count
        one, other = sends.frame(head, 0), sends.frame(head, 111_111_111)
        header_end = 8 + int.from_bytes(one[5:8], "big")
        runs = [run.span() for run in _DIGITS.finditer(one, 8, header_end)]
        changing = [(begin, end) for begin, end in runs if one[begin:end] != other[begin:end]]
        return [(end - (9 if end - begin >= 9 else 3), end) for begin, end in changing]

    def next(self, requests: int) -> list[memoryview]:
        """So many requests, in at most two pieces; they hold until the ring comes round."""
        frames, places, count, first = self._frames, self._places, self._count, self.sent
        for number in range(first, first + requests):
            slot, opaque = number % count, OPAQUE_BASE + number
            text = b"%d" % opaque
            for begin, end in places[slot]:
                frames[begin:end] = text[begin - end :]
            if not self.is_json:
                _INT32.pack_into(frames, self._starts[slot] + 13, opaque)
        self.sent += requests
        begin, end = first % count, first % count + requests
        view, starts = memoryview(frames), self._starts
        pieces = [view[starts[begin] : starts[min(end, count)]]]
        return pieces if end <= count else [*pieces, view[: starts[end - count]]]


def read_json(data: bytes) -> tuple[list[int], int, bytes]:
    """The opaques of the answers, how many are not SEND_OK, and what is left for the next time.

    Both servers write the code first; what is behind an opaque says nothing more.
    """
    end, opaques = 0, []
    for match in _JSON_OPAQUE.finditer(data):
        opaques.append(int(match[1]))
        end = match.end()
    return opaques, len(opaques) - data.count(_JSON_OK, 0, end), data[end:]


def read_binary(data: bytes) -> tuple[list[int], int, bytes]:
    """As :func:`read_json`."""
    at, opaques, refused = 0, [], 0
    while len(data) - at >= _BINARY_ANSWER.size:
        size, _, code, _, _, opaque = _BINARY_ANSWER.unpack_from(data, at)
        if at + 4 + size > len(data):
            break
        opaques.append(opaque)
        refused += code != SEND_OK
        at += 4 + size
    return opaques, refused, data[at:]


class _Line:
    """One connection, and when what is in flight on it was sent."""

    def __init__(self, port: int, case: Case) -> None:
        self._ring = Ring(case)
        self._sent_at: dict[int, float] = {}
        self._rest = b""
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, requests: int, now: float) -> None:
        first = OPAQUE_BASE + self._ring.sent
        for piece in self._ring.next(requests):
            self.sock.sendall(piece)
        self._sent_at.update(dict.fromkeys(range(first, first + requests), now))

    def receive(self, latencies: list[float]) -> tuple[int, int]:
        """Take in answers; returns how many, and how many of them are not SEND_OK."""
        data = self.sock.recv(_RECEIVE_SIZE)
        if not data:
            raise ConnectionError("the broker hung up")
        read = read_json if self._ring.is_json else read_binary
        opaques, refused, self._rest = read(self._rest + data)
        now, sent_at = perf_counter(), self._sent_at.pop
        latencies += [now - sent_at(opaque) for opaque in opaques]
        return len(opaques), refused


def send_for(port: int, case: Case, *, seconds: float, messages_max: float = inf) -> Flow:
    """Keep the case's requests in flight for a time; answers in flight at the end count too."""
    latencies: list[float] = []
    sent = refused = 0
    with ExitStack() as lines, selectors.DefaultSelector() as selector:
        for _ in range(case.connections):
            line = _Line(port, case)
            lines.enter_context(closing(line.sock))
            selector.register(line.sock, selectors.EVENT_READ, line)
        start = now = perf_counter()
        for number, key in enumerate([*selector.get_map().values()]):
            requests = case.window // case.connections + (number < case.window % case.connections)
            key.data.send(requests, now)
            sent += requests
        in_flight = sent
        while in_flight:
            for key, _ in selector.select():
                answered, not_ok = key.data.receive(latencies)
                refused += not_ok
                now = perf_counter()
                if now - start < seconds and sent * case.batch < messages_max:
                    key.data.send(answered, now)
                    sent += answered
                else:
                    in_flight -= answered
    return Flow(len(latencies) * case.batch, refused * case.batch, now - start, latencies)
