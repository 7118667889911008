#!/usr/bin/env python3
"""How fast a SYNC_MASTER with one slave acknowledges sends; `--peer rocketmq` does the same to RocketMQ, in turns.

One blocking client on one connection drives every server, so that figures of one run compare. Only ratios of one run
mean anything: machines differ by a factor of three from day to day.

    scripts/bench_send.py                              all of rmqha's modes
    scripts/bench_send.py --peer rocketmq --rounds 3   like for like, and the durable modes beside it
    scripts/bench_send.py --python pypy3 --warm-up 20  rmqha's brokers run on PyPy, which compiles while it runs
    scripts/bench_send.py --only written --beside messageIndexEnable=false --beside metricsListen=127.0.0.1:0
    scripts/bench_send.py --dialect java-json,java-binary,other-json --windows 1000 --keys --connections 1,10,100

A master makes as many topics as it is sent to: the first run of a case with many is its warm-up.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_client import Case
from scripts.bench_common import MIB, Pair, Run, make_pair, median_run, print_table
from tests.e2e.dialects import DIALECTS
from tests.e2e.processes import reaping

LIKE_FOR_LIKE = ("rmqha async written", "rocketmq async")
FIRST_WARM_UP = 4
"""Times ``--warm-up``, under the heaviest of the loads, before anything is measured."""


class Goal(NamedTuple):
    """In multiples of RocketMQ's."""

    rate_min: float
    cpu_max: float


GOALS = {1: Goal(1.2, 0.9), 64: Goal(1.5, 0.5), 1000: Goal(1.5, 0.4)}
"""By requests in flight, with headers as Java writes them."""
GOAL_OTHER_JSON = Goal(1.2, 0.7)
GOAL_BATCHES = Goal(1.5, 1.0)


def goal_of(case: Case) -> Goal:
    """What this case is measured by."""
    if case.batch > 1:
        return GOAL_BATCHES
    return GOAL_OTHER_JSON if case.dialect == "other-json" and case.window > 1 else GOALS.get(case.window, GOALS[64])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["rocketmq"], help="measure a real RocketMQ pair as well (Java, Maven)")
    parser.add_argument("--seconds", type=float, default=4, help="length of one measurement (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each case (default %(default)s)")
    parser.add_argument("--warm-up", type=float, default=5, help="seconds for each case (default %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="what runs rmqha's brokers (default: this Python)")
    parser.add_argument("--sizes", default="1024,100", help="body sizes in bytes (default %(default)s)")
    parser.add_argument("--windows", default="1,64,1000", help="requests in flight (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="messages of a batch, 0 for none (default %(default)s)")
    parser.add_argument("--dialect", default="java-json", help=f"of {', '.join(DIALECTS)}, or several (%(default)s)")
    parser.add_argument("--connections", default="1", help="of the client, or several (default %(default)s)")
    parser.add_argument("--topics", default="1", help="so many, in turn, or several (default %(default)s)")
    parser.add_argument("--keys", action="store_true", help="let KEYS and TAGS be another in each message")
    parser.add_argument("--only", default="", help="only pairs whose name contains this, e.g. async")
    parser.add_argument(
        "--beside", action="append", default=[], metavar="KEY=VALUE", help="one more pair, with this in its files, too"
    )
    parser.add_argument("--dir", default=None, help="where the stores are made, and removed (default: a temporary one)")
    return parser.parse_args()


def make_pairs(directory: Path, python: str, peer: str | None, beside: list[str]) -> list[Pair]:
    """Make them; a client's next thousand connections may come before the brokers know that its last ones are gone."""
    pairs = [
        make_pair(
            "rmqha", directory / name, python=python, flushDiskType=flush, haAck=ack, maxConnectionsPerAddress=4096
        )
        for name, flush, ack in (
            ("rmqha async written", "ASYNC_FLUSH", "written"),
            ("rmqha async durable", "ASYNC_FLUSH", "durable"),
            ("rmqha sync durable", "SYNC_FLUSH", "durable"),
        )
    ]
    for setting in beside:
        key, _, value = setting.partition("=")
        conf = {"flushDiskType": "ASYNC_FLUSH", "haAck": "written", key: value}
        pairs.append(make_pair("rmqha", directory / f"rmqha async written {key}", python=python, **conf))
    if peer:
        pairs.append(make_pair(peer, directory / "rocketmq async", flushDiskType="ASYNC_FLUSH"))
        pairs.append(make_pair(peer, directory / "rocketmq sync", flushDiskType="SYNC_FLUSH"))
    return pairs


def cases(arguments: argparse.Namespace) -> list[Case]:
    sizes, windows, connections, topics = (
        [int(text) for text in option.split(",")]
        for option in (arguments.sizes, arguments.windows, arguments.connections, arguments.topics)
    )
    loads = [(size, window, 1) for size in sizes for window in windows]
    loads += [(size, 16, arguments.batch) for size in sizes if arguments.batch > 1]
    return [
        Case(*load, dialect=dialect, connections=connection, topics=topic, keys=arguments.keys)
        for dialect in arguments.dialect.split(",")
        for connection in connections
        for topic in topics
        for load in loads
    ]


def measure_case(case: Case, pairs: list[Pair], arguments: argparse.Namespace) -> dict[str, Run]:
    runs: dict[str, list[Run]] = {pair.name: [] for pair in pairs}
    for pair in pairs:
        pair.measure(case, seconds=arguments.warm_up)
    for _ in range(arguments.rounds):
        for pair in pairs:  # in turns, so that a slow minute hits all of them
            runs[pair.name].append(pair.measure(case, seconds=arguments.seconds))
    return {name: median_run(measured) for name, measured in runs.items()}


def print_case(case: Case, results: dict[str, Run]) -> None:
    print(f"\n{case}")
    head = ["", "msg/s", "p50 ms", "p99 ms", "master us/msg", "slave us/msg", "not OK"]
    print_table(head, [[name, *run] for name, run in results.items()])
    ours, theirs = (results.get(name) for name in LIKE_FOR_LIKE)
    if ours and theirs:
        rate = ours.rate / theirs.rate
        cpu = (ours.master_cpu_us + ours.slave_cpu_us) / max(0.01, theirs.master_cpu_us + theirs.slave_cpu_us)
        goal = goal_of(case)
        verdict = "met" if rate >= goal.rate_min and cpu <= goal.cpu_max else "NOT MET"
        print(
            f"like for like: rate {rate:.2f} x RocketMQ (at least {goal.rate_min}), "
            f"CPU per message {cpu:.2f} x (at most {goal.cpu_max}): {verdict}",
            flush=True,
        )


def print_memory(pairs: list[Pair]) -> None:
    print("\nanonymous memory at the end, MiB (rmqha: at most 150 a broker)")
    usages = [(pair.name, *pair.usage()) for pair in pairs]
    rows = [[name, *(use.anonymous_bytes / MIB for use in both)] for name, *both in usages]
    print_table(["", "master", "slave"], rows)


async def main() -> None:
    """Start every pair, measure them in turns, print."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="rmqha-bench-") as directory:
        pairs = make_pairs(Path(directory), arguments.python, arguments.peer, arguments.beside)
        pairs = [pair for pair in pairs if arguments.only in pair.name]
        with reaping(*(broker for pair in pairs for broker in (pair.master, pair.slave))):
            for pair in pairs:
                await pair.start()
            measured = cases(arguments)
            busiest = max(measured, key=lambda case: case.window * case.batch)
            for pair in pairs:  # a JVM that has just begun is slower, whatever the first case is
                pair.measure(busiest, seconds=FIRST_WARM_UP * arguments.warm_up)
            for case in measured:
                print_case(case, measure_case(case, pairs, arguments))
            print_memory(pairs)


if __name__ == "__main__":
    trio.run(main)
