#!/usr/bin/env python3
"""How long producers are without a master when the leader of a group of three brokers is killed: kill to next SEND_OK.

    scripts/bench_failover.py                      ten kills (SIGKILL), RocketMQ's heartbeat of 2 s
    scripts/bench_failover.py --kills 100          for a p99: some six minutes on two cores
    scripts/bench_failover.py --kills 3 --hang     the leader's process stands still (SIGSTOP), as a host that vanishes
    scripts/bench_failover.py --heartbeat-ms 500

A killed process is noticed by its port, a host that vanishes only by three heartbeats that are missing. Each kill comes
at another moment between two heartbeats, and votes are spread at random: what repeats are the figures of many. An
interrupted run tells those that it has.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmqha.client import SendStatus
from rmqha.client.message import Message
from rmqha.client.producer import Producer, ProducerOptions, open_producer
from rmqha.errors import RmqhaError
from tests.e2e.dledger_brokers import BrokerGroup

TRY_S = 1.0
"""How long a producer waits for an answer before it asks who is master."""


async def send(producer: Producer, body: bytes) -> None:
    """Until it is SEND_OK."""
    while True:
        with suppress(RmqhaError):
            if (await producer.send(Message("failover", body), retries=100)).status is SendStatus.SEND_OK:
                return


def rank(ordered: Sequence[float], part: float) -> float:
    """The least that is not below so many of ``ordered``: the p99 of fewer than a hundred is their greatest."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


async def measure(group: BrokerGroup, arguments: argparse.Namespace, took: list[float]) -> None:
    """Add the seconds from each kill to the next SEND_OK; before each, all three are there."""
    options = ProducerOptions(timeout_s=TRY_S, connect_timeout_s=TRY_S)
    async with open_producer(group.addresses, options=options) as producer:
        for number in range(arguments.kills):
            await group.healthy()
            await send(producer, b"before %d" % number)
            victim = group.brokers[await group.master()]
            victim.running.signal(signal.SIGSTOP if arguments.hang else signal.SIGKILL)
            begun_at = trio.current_time()
            await send(producer, b"after %d" % number)
            took.append(trio.current_time() - begun_at)
            print(f"{took[-1]:.2f} s", flush=True)
            await victim.kill()
            await victim.start()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of the leader (default %(default)s)")
    parser.add_argument("--hang", action="store_true", help="stop the leader's process instead of killing it")
    parser.add_argument("--heartbeat-ms", type=int, default=2000, help="heartBeatTimeIntervalMs (default %(default)s)")
    arguments = parser.parse_args()
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rmqha-failover-") as directory:
        group = BrokerGroup(Path(directory), heartBeatTimeIntervalMs=arguments.heartbeat_ms)
        try:
            await group.start()
            await measure(group, arguments, took)
        except* KeyboardInterrupt:
            print("interrupted")
        finally:
            group.close()
    if took:
        ordered = sorted(took)
        told = ", ".join(f"{name} {rank(ordered, part):.2f} s" for name, part in (("p50", 0.5), ("p99", 0.99)))
        print(f"{told}, longest {ordered[-1]:.2f} s, of {len(ordered)}")


if __name__ == "__main__":
    trio.run(main)
