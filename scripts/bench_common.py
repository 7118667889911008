"""What the benchmarks share: one blocking client for every server, pairs of brokers, /proc readings, tables."""

import selectors
import socket
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tests.e2e.load import SEND_OK, Answer, Sends, wait_in_sync
from tests.e2e.processes import Broker, RmqhaBroker, Usage
from tests.interop.peers import JavaBroker

MIB = 1 << 20


class Run(NamedTuple):
    """One measurement of one pair. CPU is user + system time per acknowledged message."""

    rate: float
    p50_ms: float
    p99_ms: float
    master_cpu_us: float
    slave_cpu_us: float
    refused: int


class Flow(NamedTuple):
    """What the client itself saw."""

    messages: int
    refused: int
    seconds: float
    latencies_s: list[float]


def constant_body(size: int) -> Callable[[int], bytes]:
    """The same bytes for every message: the client's own work is kept small."""
    body = bytes(i % 251 for i in range(size))
    return lambda _number: body


class Case(NamedTuple):
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


class _Line:
    """One connection, and what is in flight on it."""

    def __init__(self, port: int, sends: Sends) -> None:
        self.sends = sends
        self.sent_at: dict[int, float] = {}
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, requests: int, now: float) -> None:
        first = self.sends.sent
        self.sock.sendall(b"".join([self.sends.request() for _ in range(requests)]))
        self.sent_at.update(dict.fromkeys(range(first, self.sends.sent), now))

    def receive(self) -> list[Answer]:
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker hung up")
        return self.sends.receive(data)


def send_for(port: int, case: Case, *, seconds: float, messages_max: float = inf) -> Flow:
    """Keep the case's requests in flight for a time; answers in flight at the end count too."""
    latencies: list[float] = []
    sent = refused = 0
    with ExitStack() as lines, selectors.DefaultSelector() as selector:
        start = now = perf_counter()
        for number in range(case.connections):
            line = _Line(port, case.sends())
            lines.enter_context(closing(line.sock))
            selector.register(line.sock, selectors.EVENT_READ, line)
            line.send(case.window // case.connections + (number < case.window % case.connections), now)
            in_flight = sent = sent + line.sends.sent
        while in_flight:
            for key, _ in selector.select():
                line = key.data
                answers: list[Answer] = line.receive()
                now = perf_counter()
                for answer in answers:
                    latencies.append(now - line.sent_at.pop(answer.number))
                    refused += answer.code != SEND_OK
                if now - start < seconds and sent * case.batch < messages_max:
                    line.send(len(answers), now)
                    sent += len(answers)
                else:
                    in_flight -= len(answers)
    return Flow(len(latencies) * case.batch, refused * case.batch, now - start, latencies)


@dataclass
class Pair:
    """A master and its slave, both running."""

    name: str
    master: Broker
    slave: Broker

    async def start(self) -> None:
        """Start both and wait until the first message is acknowledged."""
        await self.master.start()
        await self.slave.start()
        await wait_in_sync(self.master.ports.listen)

    def usage(self) -> tuple[Usage, Usage]:
        """Master's and slave's resources so far."""
        return self.master.running.usage(), self.slave.running.usage()

    def measure(self, case: Case, *, seconds: float) -> Run:
        """Send for a while, and put the client's figures beside the processes'."""
        port = self.master.ports.listen
        send_for(port, case, seconds=min(1.0, seconds))
        before = self.usage()
        flow = send_for(port, case, seconds=seconds)
        after = self.usage()
        good = max(1, flow.messages - flow.refused)
        cpu = [(b.cpu_s - a.cpu_s) * 1e6 / good for a, b in zip(before, after, strict=True)]
        ordered = sorted(flow.latencies_s)
        p50, p99 = (ordered[int(len(ordered) * q)] * 1000 for q in (0.5, 0.99))
        return Run(good / flow.seconds, p50, p99, cpu[0], cpu[1], flow.refused)


def median_run(runs: Sequence[Run]) -> Run:
    """The median of every figure; refused messages are summed."""
    rate, p50, p99, master, slave, _ = (statistics.median(column) for column in zip(*runs, strict=True))
    return Run(rate, p50, p99, master, slave, sum(run.refused for run in runs))


def make_broker(peer: str, directory: Path, conf: dict[str, object], *, python: str = sys.executable) -> Broker:
    """Make, but do not start, a broker of ``rocketmq``, or of ``rmqha`` run by ``python``."""
    if peer == "rmqha":
        broker = RmqhaBroker(directory, conf)
        broker.python = python
        return broker
    java = JavaBroker(directory, conf)
    java.heap = ("-Xms512m", "-Xmx1g")
    return java


def make_pair(peer: str, directory: Path, *, python: str = sys.executable, **conf: object) -> Pair:
    """Make, but do not start, a SYNC_MASTER and its slave."""
    master = make_broker(peer, directory / "master", {"brokerRole": "SYNC_MASTER", **conf}, python=python)
    slave_conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **conf}
    return Pair(directory.name, master, make_broker(peer, directory / "slave", slave_conf, python=python))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns: the first to the left, figures to the right."""
    texts = [list(head), *[[_text(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    for row in texts:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip(), flush=True)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell >= 100 else f"{cell:.2f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
