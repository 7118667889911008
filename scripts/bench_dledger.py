#!/usr/bin/env python3
"""Appends to a group of three DLedger servers on this machine: rmqha's, and with `--peer dledger` Java's 0.3.1.2.

One client, the same for all, keeps so many appends in flight on one connection to the leader; groups take turns, each
started anew, warmed up and stopped. CPU is user + system time of the three members together. What counts are the ratios
of one run. DLedger acknowledges what a majority has written: `written` is like for like, `flushed` is the default.

    scripts/bench_dledger.py
    scripts/bench_dledger.py --peer dledger --rounds 2 --seconds 5 --warm-up 5      some 3.5 minutes
    scripts/bench_dledger.py --peer dledger --seconds 0.5 --warm-up 0.5 --rounds 1  whether it works
"""

import argparse
import re
import socket
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmqha.codec.dledger_usual import encode_append
from rmqha.codec.dledger_wire import AppendEntryRequest, Base, DLedgerRequestCode
from rmqha.codec.remoting import RemotingCommand
from scripts.bench_client import constant_body
from scripts.bench_common import print_table
from tests.e2e.dledger_groups import NAME, Group, running
from tests.interop.dledger_groups import java_argv

WRITTEN, FLUSHED, JAVA = "rmqha, written", "rmqha, flushed", "DLedger 0.3.1.2"
RATE_RATIO_MIN, CPU_RATIO_MAX = 1.2, 0.75
DATA_SIZE, INDEX_SIZE = 256 << 20, 32 << 20
HEART_BEAT_MS = 2000
_OPAQUE_BASE: Final = 100_000_000
_OPAQUE: Final = re.compile(rb'"opaque":([0-9]{9})')
_SUCCESS: Final = b'"code":200,'
_RECEIVE_SIZE: Final = 1 << 20


class Run(NamedTuple):
    """One measurement of one group; CPU of its members together, per acknowledged append."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


class BenchGroup(Group):
    """Three members of one kind, with files of a size for use."""

    def __init__(self, directory: Path, kind: str) -> None:
        super().__init__(directory)
        self._kind = kind

    def argv(self, member_id: str) -> list[str]:
        """The command line of a member."""
        if self._kind == JAVA:
            arguments = (NAME, member_id, self.peers, self.directory, HEART_BEAT_MS, DATA_SIZE, INDEX_SIZE)
            argv = java_argv("Member.java", *arguments, directory=self.directory, jvm=())
            return [argument.replace("-Xmx256m", "-Xmx1g") for argument in argv]
        argv = [sys.executable, "-m", "rmqha", "dledger", "server", "-g", NAME, "-i", member_id, "-p", self.peers]
        settings = {
            "dledgerAck": "written" if self._kind == WRITTEN else "flushed",
            "heartBeatTimeIntervalMs": HEART_BEAT_MS,
            "mappedFileSizeForEntryData": DATA_SIZE,
            "mappedFileSizeForEntryIndex": INDEX_SIZE,
            "diskSpaceRatioToCheckExpired": 0.99,
            "diskSpaceRatioToForceClean": 0.99,
        }
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [*argv, "-s", str(self.directory), *sets]

    def cpu_s(self) -> float:
        """Of all members, so far."""
        return sum(child.usage().cpu_s for child in self.children.values())

    def address(self, member_id: str) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self._ports[member_id].listen


class Client:
    """One connection to the leader; each request is written once, and its opaque stamped on it."""

    def __init__(self, address: tuple[str, int], leader: str, *, size: int) -> None:
        body = encode_append(AppendEntryRequest(constant_body(size)(0)), Base(NAME, leader))
        frame = RemotingCommand(DLedgerRequestCode.APPEND, opaque=_OPAQUE_BASE, body=body).encode()
        found = _OPAQUE.search(frame)
        assert found is not None, "the header is JSON"
        self._head, self._tail = frame[: found.start(1)], frame[found.end(1) :]
        self._next = _OPAQUE_BASE
        self._sent_at: dict[int, float] = {}
        self._rest = b""
        self.sock = socket.create_connection(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, count: int) -> None:
        """Send so many appends."""
        first, self._next = self._next, self._next + count
        self.sock.sendall(b"".join(self._head + b"%d" % opaque + self._tail for opaque in range(first, self._next)))
        self._sent_at.update(dict.fromkeys(range(first, self._next), perf_counter()))

    def receive(self) -> list[float]:
        """Latencies of the answers that have come. Raises RuntimeError: one does not say SUCCESS."""
        received = self.sock.recv(_RECEIVE_SIZE)
        if not received:
            raise RuntimeError("the leader hung up")
        data, at, latencies, now = self._rest + received, 0, list[float](), perf_counter()
        while len(data) - at >= 8 and len(data) - at >= (end := 4 + int.from_bytes(data[at : at + 4], "big")):
            body_at = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
            opaque = _OPAQUE.search(data, at, body_at)
            if opaque is None or _SUCCESS not in data[body_at : at + end]:
                raise RuntimeError(f"an append failed: {data[at : at + end]!r}")
            latencies.append(now - self._sent_at.pop(int(opaque[1])))
            at += end
        self._rest = data[at:]
        return latencies

    def append_for(self, seconds: float, *, window: int) -> tuple[list[float], float]:
        """Keep so many appends in flight; latencies, and the time until the last answer."""
        latencies, start = list[float](), perf_counter()
        self.send(window)
        in_flight = window
        while in_flight:
            answered = self.receive()
            latencies += answered
            if answered and perf_counter() - start < seconds:
                self.send(len(answered))
            else:
                in_flight -= len(answered)
        return latencies, perf_counter() - start


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["dledger"], help="let three of Java's servers do the same (Java, Maven)")
    parser.add_argument("--windows", default="1,64,1000", help="appends in flight (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement (default %(default)s)")
    parser.add_argument("--warm-up", type=float, default=5, help="seconds of appends before (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each group (default %(default)s)")
    parser.add_argument("--dir", default=None, help="where the stores are made, and removed (default: a temporary one)")
    return parser.parse_args()


async def measure(kind: str, arguments: argparse.Namespace) -> dict[int, Run]:
    """One turn of a group of this kind: a run for each window."""
    runs = {}
    with (
        tempfile.TemporaryDirectory(dir=arguments.dir, prefix="rmqha-bench-") as directory,
        running(BenchGroup(Path(directory), kind)) as group,
    ):
        group.start()
        leader = (await group.healthy())["leader"]
        client = Client(group.address(leader), leader, size=arguments.size)
        with closing(client.sock):
            client.append_for(arguments.warm_up, window=64)
            for window in map(int, arguments.windows.split(",")):
                before = group.cpu_s()
                latencies, seconds = client.append_for(arguments.seconds, window=window)
                cpu_s, ordered = group.cpu_s() - before, sorted(latencies)
                p50, p99 = (ordered[int(len(ordered) * q)] * 1000 for q in (0.5, 0.99))
                runs[window] = Run(len(latencies) / seconds, p50, p99, cpu_s * 1e6 / len(latencies))
        await group.stop()
    return runs


def median_run(runs: Sequence[Run]) -> Run:
    return Run(*(statistics.median(column) for column in zip(*runs, strict=True)))


def print_results(results: dict[str, list[dict[int, Run]]], windows: Sequence[int]) -> None:
    for window in windows:
        medians = {kind: median_run([turn[window] for turn in turns]) for kind, turns in results.items()}
        print(f"\nwindow {window}")
        print_table(["median", "appends/s", "p50 ms", "p99 ms", "CPU us"], [[k, *run] for k, run in medians.items()])
        if JAVA in medians:
            for kind in (WRITTEN, FLUSHED):
                print_ratios(kind, medians[kind], medians[JAVA])


def print_ratios(kind: str, ours: Run, java: Run) -> None:
    rate, cpu = ours.rate / java.rate, ours.cpu_us / java.cpu_us
    is_met = "met" if rate >= RATE_RATIO_MIN and cpu <= CPU_RATIO_MAX else "NOT MET"
    wanted = f" (at least {RATE_RATIO_MIN}, at most {CPU_RATIO_MAX}: {is_met})" if kind == WRITTEN else ""
    print(f"{kind}: {rate:.2f} x the appends/s, {cpu:.2f} x the CPU of an append{wanted}", flush=True)


async def main() -> None:
    """Let the groups take turns."""
    arguments = parse_arguments()
    kinds = [WRITTEN, FLUSHED, *([JAVA] if arguments.peer else [])]
    results: dict[str, list[dict[int, Run]]] = {kind: [] for kind in kinds}
    for number in range(arguments.rounds):
        for kind in kinds:
            results[kind].append(await measure(kind, arguments))
            print(f"round {number + 1}: {kind} done", file=sys.stderr, flush=True)
    print(f"{arguments.size} B bodies")
    print_results(results, [int(window) for window in arguments.windows.split(",")])


if __name__ == "__main__":
    trio.run(main)
