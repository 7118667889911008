"""What the benchmarks share: pairs of brokers, /proc readings, tables."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scripts.bench_client import Case, send_for
from tests.e2e.load import wait_in_sync
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
    java.jvm = ("-Xms512m", "-Xmx1g")
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
