#!/usr/bin/env python3
"""How fast a slave catches up: rmqha's, a bare sendfile -> recv loop over the same files, and `--peer rocketmq`.

A master is filled once for each message size; every slave then copies that same log from its first byte. A second bare
loop writes what it receives to one file: no slave of one thread can be faster. A slave has caught up when the log's
last bytes are in its file. rmqha checks every record's CRC on the way, RocketMQ checks nothing.

    scripts/bench_ha.py --gib 2
    scripts/bench_ha.py --gib 2 --peer rocketmq
    scripts/bench_ha.py --gib 2 --python pypy3        rmqha's brokers run on PyPy
"""

import argparse
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_client import Case, send_for
from scripts.bench_common import MIB, make_broker, print_table
from tests.e2e.commitlog import log_end, segment_files
from tests.e2e.processes import Broker, reaping

GIB = 1 << 30
SEGMENT_BYTES = 256 * MIB
BARE_CHUNK = MIB
POLL_S = 0.002
BARE_RATIO_MIN = {32_768: 0.5, 1_024: 0.25}
PEER_RATIO_MIN = 5


class CatchUp(NamedTuple):
    """One slave's catch-up."""

    bytes_per_s: float
    master_cpu_s_per_gib: float
    slave_cpu_s_per_gib: float
    master_anonymous: int
    slave_anonymous: int


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["rocketmq"], help="let a RocketMQ pair do the same (Java, Maven)")
    parser.add_argument("--python", default=sys.executable, help="what runs rmqha's brokers (default: this Python)")
    parser.add_argument("--gib", type=float, default=2, help="size of the log (default %(default)s)")
    parser.add_argument("--sizes", default="32768,1024", help="body sizes in bytes (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="catch-ups of each kind, in turns (default %(default)s)")
    parser.add_argument("--dir", default=None, help="where the stores are made, and removed (default: a temporary one)")
    return parser.parse_args()


async def fill(master: Broker, *, size: int, total: int) -> int:
    """Fill a master's log, stop it, and return where the log ends."""
    await master.start()
    batch = max(1, 256 * 1024 // size)
    case = Case(size, window=8, batch=batch)
    send_for(master.ports.listen, case, seconds=3_600, messages_max=total // (size + 200))
    await master.stop()
    return log_end(master.store / "commitlog")


def bare_loop(files: list[Path], total: int, copy: Path | None = None) -> float:
    """Bytes per second of one process that sends the files and one that receives and forgets them.

    With ``copy`` it writes them to that file instead, checking nothing: what this machine's page cache allows.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    sender = get_context("fork").Process(target=_send_files, args=(listener, files, total), daemon=True)
    sender.start()
    with socket.create_connection(listener.getsockname()[:2]) as sock:
        listener.close()
        buffer = memoryview(bytearray(BARE_CHUNK))
        received = 0
        with copy.open("wb", buffering=0) if copy else nullcontext() as file:
            start = perf_counter()
            while size := sock.recv_into(buffer):
                received += file.write(buffer[:size]) if file else size
        elapsed = perf_counter() - start
    sender.join()
    assert received == total
    return total / elapsed


def _send_files(listener: socket.socket, files: list[Path], total: int) -> None:
    sock, _ = listener.accept()
    left = total
    for path in files:
        with path.open("rb") as file:
            at = 0
            while left and at < path.stat().st_size:
                sent = os.sendfile(sock.fileno(), file.fileno(), at, min(BARE_CHUNK, left))
                at += sent
                left -= sent
    sock.close()


async def catch_up(master: Broker, slave: Broker, *, start: int, end: int) -> CatchUp:
    """Start a slave beside a running master and time its log from the first byte after ``start`` to ``end``."""
    commitlog = slave.store / "commitlog"
    await slave.start()
    await _wait_bytes(commitlog, start)
    before = master.running.usage(), slave.running.usage()
    started = perf_counter()
    await _wait_bytes(commitlog, end - 8)
    elapsed = perf_counter() - started
    after = master.running.usage(), slave.running.usage()
    gib = (end - start) / GIB
    master_cpu, slave_cpu = ((b.cpu_s - a.cpu_s) / gib for a, b in zip(before, after, strict=True))
    await slave.stop()
    return CatchUp((end - start) / elapsed, master_cpu, slave_cpu, after[0].anonymous_bytes, after[1].anonymous_bytes)


async def _wait_bytes(commitlog: Path, at: int) -> None:
    """Wait until the 8 bytes at a log offset are not all zero; a store's files may be made ahead of their bytes."""
    path = commitlog / f"{at - at % SEGMENT_BYTES:020d}"
    await _wait_until(path.exists)
    with path.open("rb", buffering=0) as file:
        await _wait_until(lambda: os.pread(file.fileno(), 8, at % SEGMENT_BYTES).strip(b"\0") != b"")


async def _wait_until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(600):
        while not condition():  # noqa: ASYNC110 - another process's file offers nothing to wait on
            await trio.sleep(POLL_S)


def seed_with_first_record(master: Broker, slave: Broker) -> int:
    """Give a Java slave the first record: an empty one would begin at the master's last file. Returns its size."""
    first = segment_files(master.store / "commitlog")[0]
    with first.open("rb") as file:
        size = int.from_bytes(file.read(4), "big")
        file.seek(0)
        record = file.read(size)
    (slave.store / "commitlog").mkdir(parents=True)
    with (slave.store / "commitlog" / first.name).open("wb") as file:
        file.write(record)
        file.truncate(SEGMENT_BYTES)
    return size


def brokers_of(peer: str, directory: Path, *, rounds: int, python: str) -> tuple[Broker, list[Broker]]:
    """A master, and a slave for each round; ``python`` runs rmqha's."""
    conf: dict[str, object] = {"mappedFileSizeCommitLog": SEGMENT_BYTES}
    master = make_broker(peer, directory / f"{peer}-master", {"brokerRole": "ASYNC_MASTER", **conf}, python=python)
    slave_conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **conf}
    names = [f"{peer}-slave-{number}" for number in range(rounds)]
    slaves = [make_broker(peer, directory / name, slave_conf, python=python) for name in names]
    return master, slaves


async def measure(directory: Path, *, size: int, arguments: argparse.Namespace) -> dict[str, list[CatchUp]]:
    """Fill one log and let everybody copy it, in turns."""
    kinds = ["rmqha", *([arguments.peer] if arguments.peer else [])]
    rounds, python = arguments.rounds, arguments.python
    pairs = {kind: brokers_of(kind, directory, rounds=rounds, python=python) for kind in kinds}
    results: dict[str, list[CatchUp]] = {"bare loop": [], "bare loop, writing": [], **{kind: [] for kind in kinds}}
    with reaping(*_all_brokers(pairs)):
        ours = pairs["rmqha"][0]
        end = await fill(ours, size=size, total=int(arguments.gib * GIB))
        for kind in kinds[1:]:
            shutil.copytree(ours.store, pairs[kind][0].store)
        for kind in kinds:
            await pairs[kind][0].start()
        for number in range(rounds):
            files, copy = segment_files(ours.store / "commitlog"), directory / "copy"
            results["bare loop"].append(CatchUp(bare_loop(files, end), 0, 0, 0, 0))
            results["bare loop, writing"].append(CatchUp(bare_loop(files, end, copy), 0, 0, 0, 0))
            copy.unlink()
            for kind in kinds:
                master, slaves = pairs[kind]
                start = seed_with_first_record(master, slaves[number]) if kind != "rmqha" else 0
                results[kind].append(await catch_up(master, slaves[number], start=start, end=end))
                shutil.rmtree(slaves[number].store)
    return results


def _all_brokers(pairs: dict[str, tuple[Broker, list[Broker]]]) -> Iterator[Broker]:
    for master, slaves in pairs.values():
        yield master
        yield from slaves


def print_results(size: int, results: dict[str, list[CatchUp]]) -> None:
    print(f"\n{size} B messages")
    best = {name: max(runs) for name, runs in results.items()}
    head = ["best of the rounds", "GB/s", "master CPU s/GiB", "slave CPU s/GiB", "master MiB", "slave MiB"]
    rows = [
        [name, run.bytes_per_s / 1e9, run[1], run[2], run.master_anonymous / MIB, run.slave_anonymous / MIB]
        for name, run in best.items()
    ]
    print_table(head, rows)
    ours = best["rmqha"].bytes_per_s
    _verdict("of the bare loop", ours / best["bare loop"].bytes_per_s, BARE_RATIO_MIN.get(size))
    _verdict("of the bare loop that writes", ours / best["bare loop, writing"].bytes_per_s, None)
    if "rocketmq" in best:
        _verdict("x RocketMQ", ours / best["rocketmq"].bytes_per_s, PEER_RATIO_MIN)


def _verdict(what: str, ratio: float, minimum: float | None) -> None:
    if minimum is None:
        print(f"{ratio:.2f} {what}", flush=True)
    else:
        print(f"{ratio:.2f} {what} (at least {minimum}): {'met' if ratio >= minimum else 'NOT MET'}", flush=True)


async def main() -> None:
    """Measure each message size on a fresh log."""
    arguments = parse_arguments()
    for size in (int(size) for size in arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="rmqha-bench-") as directory:
            print_results(size, await measure(Path(directory), size=size, arguments=arguments))


if __name__ == "__main__":
    trio.run(main)
