#!/usr/bin/env python3
"""How fast what is just being sent reaches consumers; `--peer rocketmq` does the same to RocketMQ, in turns.

One blocking client sends to a SYNC_MASTER with one slave, and pulls from it for so many consumer groups, each on a
connection of its own with a held pull for each queue. So many messages are on their way at any time, from their send
until every group has them. Only ratios of one run mean anything.

    scripts/bench_pull.py --peer rocketmq                          1 and 20 groups
    scripts/bench_pull.py --peer rocketmq --windows 1 --groups 1   the latency of a lone message
"""

import argparse
import re
import selectors
import socket
import sys
import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_client import Case, Ring, read_json, send_for
from scripts.bench_common import Pair, make_pair, print_table
from tests.e2e.processes import reaping

_QUEUES: Final = 4
_FOUND: Final = 0
_RECEIVE_SIZE: Final = 1 << 20
_HEADER: Final = (
    b'{"code":%d,"extFields":{%b},"flag":0,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":399}'
)
_PULL: Final = (
    b'"consumerGroup":"%b","topic":"bench","queueId":"%d","queueOffset":"%d","maxMsgNums":"32","sysFlag":"6",'
    b'"commitOffset":"0","suspendTimeoutMillis":"15000","subscription":"*","subVersion":"0","expressionType":"TAG"'
)
_ANSWER: Final = re.compile(rb'"code":(\d+).*"opaque":(\d+)', re.DOTALL)
_NEXT: Final = re.compile(rb'"nextBeginOffset":"(\d+)"')
_OFFSET: Final = re.compile(rb'"offset":"(\d+)"')


def write_request(code: int, fields: bytes, opaque: int) -> bytes:
    """A whole request."""
    header = _HEADER % (code, fields, opaque)
    return b"%b%b%b" % ((4 + len(header)).to_bytes(4, "big"), len(header).to_bytes(4, "big"), header)


def split_answers(data: bytes) -> tuple[list[bytes], bytes]:
    """The headers of the whole answers, and what is left for the next time."""
    headers, at = [], 0
    while at + 8 <= len(data) and (end := at + 4 + int.from_bytes(data[at : at + 4], "big")) <= len(data):
        headers.append(data[at + 8 : at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")])
        at = end
    return headers, data[at:]


class Run(NamedTuple):
    """One measurement of one pair. CPU is user + system time per message delivered."""

    sent_rate: float
    delivered_rate: float
    p50_ms: float
    p99_ms: float
    master_cpu_us: float
    slave_cpu_us: float


@dataclass
class Flow:
    """What is sent, and how far each queue was when the measurement began."""

    begins: list[int]
    sent_at: list[list[float]]
    latencies_s: list[float]


class Sender:
    """Sends to the queues in turn, so the nth message that was sent to a queue is the nth that lies there."""

    def __init__(self, port: int, case: Case, flow: Flow) -> None:
        self._ring = Ring(case)
        self._flow = flow
        self._rest = b""
        self.sock = connect(port)

    @property
    def sent(self) -> int:
        """How many."""
        return self._ring.sent

    def send(self, messages: int) -> None:
        """Send so many more."""
        first, now = self._ring.sent, perf_counter()
        for number in range(first, first + messages):
            self._flow.sent_at[number % _QUEUES].append(now)
        for piece in self._ring.next(messages):
            self.sock.sendall(piece)

    def receive(self) -> None:
        """Take in answers, all of which have to be SEND_OK."""
        _, refused, self._rest = read_json(self._rest + receive_some(self.sock))
        if refused:
            raise RuntimeError(f"{refused} sends were refused: offsets tell nothing any more")


class Group:
    """A consumer group with one member, which pulls from all queues at the same time."""

    def __init__(self, port: int, name: bytes, flow: Flow) -> None:
        self._name = name
        self._flow = flow
        self._next = [*flow.begins]
        self._rest = b""
        self.delivered = 0
        self.sock = connect(port)
        self.sock.sendall(b"".join(self._pull(queue_id) for queue_id in range(_QUEUES)))

    def _pull(self, queue_id: int) -> bytes:
        return write_request(11, _PULL % (self._name, queue_id, self._next[queue_id]), queue_id)

    def receive(self) -> None:
        """Take in what is delivered, and pull again."""
        headers, self._rest = split_answers(self._rest + receive_some(self.sock))
        now, pulls = perf_counter(), []
        for header in headers:
            code, queue_id = map(int, _ANSWER.search(header).groups())  # type: ignore[union-attr]
            if code == _FOUND:
                self._take(queue_id, int(_NEXT.search(header)[1]), now)  # type: ignore[index]
            pulls.append(self._pull(queue_id))
        self.sock.sendall(b"".join(pulls))

    def _take(self, queue_id: int, end: int, now: float) -> None:
        begin, first = self._flow.begins[queue_id], self._next[queue_id]
        sent_at = self._flow.sent_at[queue_id][first - begin : end - begin]
        self._flow.latencies_s += [now - at for at in sent_at]
        self.delivered += end - first
        self._next[queue_id] = end


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive_some(sock: socket.socket) -> bytes:
    data = sock.recv(_RECEIVE_SIZE)
    if not data:
        raise ConnectionError("the broker hung up")
    return data


def queue_ends(port: int) -> list[int]:
    """The offset that the next message of each queue gets."""
    ends = []
    with closing(connect(port)) as sock:
        for queue_id in range(_QUEUES):
            sock.sendall(write_request(30, b'"topic":"bench","queueId":"%d"' % queue_id, queue_id))
            header = b""
            while not (found := _OFFSET.search(header)):
                header += receive_some(sock)
            ends.append(int(found[1]))
    return ends


def deliver_for(port: int, case: Case, *, groups: int, seconds: float) -> tuple[Flow, int, int, float]:
    """Keep so many messages on their way for a time; returns how many were sent, and delivered, and the time."""
    flow = Flow(queue_ends(port), [[] for _ in range(_QUEUES)], [])
    with ExitStack() as held, selectors.DefaultSelector() as selector:
        consumers = [Group(port, b"bench-group-%d" % number, flow) for number in range(groups)]
        sender = Sender(port, case, flow)
        lines: list[Sender | Group] = [sender, *consumers]
        for line in lines:
            held.enter_context(closing(line.sock))
            selector.register(line.sock, selectors.EVENT_READ, line)
        start = now = perf_counter()
        slowest = 0
        while slowest < sender.sent or now - start < seconds:
            if now - start < seconds and slowest + case.window > sender.sent:
                sender.send(slowest + case.window - sender.sent)
            for key, _ in selector.select():
                key.data.receive()
            now, slowest = perf_counter(), min(group.delivered for group in consumers)
    return flow, sender.sent, sum(consumer.delivered for consumer in consumers), now - start


def measure(pair: Pair, case: Case, *, groups: int, seconds: float) -> Run:
    """Deliver for a while, and put the client's figures beside the processes'."""
    port, before = pair.master.ports.listen, pair.usage()
    flow, sent, delivered, took_s = deliver_for(port, case, groups=groups, seconds=seconds)
    cpu = [(b.cpu_s - a.cpu_s) * 1e6 / delivered for a, b in zip(before, pair.usage(), strict=True)]
    ordered = sorted(flow.latencies_s)
    p50, p99 = (ordered[int(len(ordered) * q)] * 1000 for q in (0.5, 0.99))
    return Run(sent / took_s, delivered / took_s, p50, p99, *cpu)


def measure_in_turns(pairs: list[Pair], case: Case, groups: int, arguments: argparse.Namespace) -> dict[str, Run]:
    runs: dict[str, list[Run]] = {pair.name: [] for pair in pairs}
    for pair in pairs:
        measure(pair, case, groups=groups, seconds=arguments.warm_up)
    for _ in range(arguments.rounds):
        for pair in pairs:
            runs[pair.name].append(measure(pair, case, groups=groups, seconds=arguments.seconds))
    return {name: Run(*map(median, zip(*some, strict=True))) for name, some in runs.items()}


def print_case(case: Case, groups: int, results: dict[str, Run]) -> None:
    print(f"\n{case.size} B, {case.window} on their way, {groups} groups")
    head = ["", "sent/s", "delivered/s", "p50 ms", "p99 ms", "master us/delivered", "slave us/delivered"]
    print_table(head, [[name, *run] for name, run in results.items()])
    if len(results) == 2:
        ours, theirs = results.values()
        cpu = (ours.master_cpu_us + ours.slave_cpu_us) / max(0.01, theirs.master_cpu_us + theirs.slave_cpu_us)
        rate, p99 = ours.delivered_rate / theirs.delivered_rate, ours.p99_ms / theirs.p99_ms
        verdict = "met" if rate >= 1 else "NOT MET"
        print(f"rate {rate:.2f} x RocketMQ (at least 1), p99 {p99:.2f} x, CPU {cpu:.2f} x: {verdict}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["rocketmq"], help="measure a real RocketMQ pair as well (Java, Maven)")
    parser.add_argument("--groups", default="1,20", help="of consumers (default %(default)s)")
    parser.add_argument("--windows", default="1,64,1000", help="messages on their way (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="length of one measurement (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each case (default %(default)s)")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds for each case (default %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="what runs rmqha's brokers (default: this Python)")
    parser.add_argument("--dir", default=None, help="where the stores are made, and removed (default: a temporary one)")
    return parser.parse_args()


async def main() -> None:
    """Start every pair, measure them in turns, print."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="rmqha-bench-") as directory:
        root = Path(directory)
        ours = {"flushDiskType": "ASYNC_FLUSH", "haAck": "written"}
        pairs = [make_pair("rmqha", root / "rmqha", python=arguments.python, **ours)]
        if arguments.peer:
            pairs.append(make_pair(arguments.peer, root / "rocketmq", flushDiskType="ASYNC_FLUSH"))
        with reaping(*(broker for pair in pairs for broker in (pair.master, pair.slave))):
            for pair in pairs:
                await pair.start()
                send_for(pair.master.ports.listen, Case(arguments.size, 1), seconds=0.5)  # makes the topic
            await trio.sleep(1)  # until all that was sent can be seen, where offsets begin
            for window in map(int, arguments.windows.split(",")):
                for groups in map(int, arguments.groups.split(",")):
                    case = Case(arguments.size, window)
                    print_case(case, groups, measure_in_turns(pairs, case, groups, arguments))


if __name__ == "__main__":
    trio.run(main)
