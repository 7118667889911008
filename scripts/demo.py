"""What rmqha promises, shown with real processes.

A SYNC_MASTER and a slave; 10,000 messages; both logs compared byte by byte; the master killed with SIGKILL; every
acknowledged message read back from the slave; the slave's log replayed with Spark into Parquet; counts compared.
"""

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

TOPICS: Final = {"orders": 0.5, "payments": 0.3, "clicks": 0.2}
SEGMENT_SIZE: Final = 4 << 20
PR_SET_PDEATHSIG: Final = 1
RMQHA: Final = [sys.executable, "-m", "rmqha"]
START_S_MAX: Final = 120

Receipt = dict[str, Any]
Position = tuple[str, int, int]  # topic, queue, queue offset


class DemoError(Exception):
    """Something is not as promised."""


def main() -> int:
    """Run all steps; 0 if everything held."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cast("TextIOWrapper", sys.stdout).reconfigure(
        line_buffering=True
    )  # what the commands write comes in its place, also into a file
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            _show(_kept(arguments.keep) if arguments.keep else _temporary(stack), arguments.count, stack)
    except DemoError as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    print(f"\nEverything held. {time.monotonic() - started:.1f} s")
    return 0


def _show(work: Path, count: int, stack: ExitStack) -> None:
    step("A SYNC_MASTER and a slave (real processes, loopback)")
    master_port, slave_port = free_ports(2)
    sizes = ["--set", f"mappedFileSizeCommitLog={SEGMENT_SIZE}", "--set", "brokerName=demo"]
    sizes += ["--set", "diskSpaceWarningLevelRatio=99", "--set", "diskSpaceCleanForciblyRatio=99"]
    role = ["--set", "brokerRole=SYNC_MASTER", "--set", "slaveTimeout=10000"]
    master = stack.enter_context(broker(work, "master", master_port, [*role, *sizes]))
    stack.enter_context(broker(work, "slave", slave_port, ["--ha-master", f"127.0.0.1:{master_port + 1}", *sizes]))
    print(rmqha("status", "--broker", at(master_port), "--wait", "in-sync"))

    step(f"{count:,} messages with sync replication")
    receipts = send_all(work, master_port, count)

    step("Both logs, byte by byte")
    rmqha("status", "--broker", at(slave_port), "--wait", "in-sync")
    compare_logs(work / "master", work / "slave")
    wait_dispatched(slave_port)

    step("The master dies (SIGKILL); every acknowledged message is read from the slave")
    master.kill()
    master.wait()
    read = read_all(slave_port, receipts)

    step("Spark replays the slave's log, while it runs, into Parquet")
    rmqha("replay", str(work / "slave"), "--out", str(work / "lake"), to_terminal=True)
    step("By topic")
    print_table(receipts, read, parquet_counts(work / "lake"))


def send_all(work: Path, port: int, count: int) -> list[Receipt]:
    """Send ``count`` messages to all topics; print the statuses and times; return what the broker answered."""
    receipts: list[Receipt] = []
    seconds = 0.0
    for topic, share in TOPICS.items():
        path = work / f"{topic}.receipts.jsonl"
        size = ["--count", str(round(count * share)), "--size", "512"]
        told = rmqha("send", topic, "--broker", at(port), *size, "--receipts", str(path), "--format", "json")
        seconds += json.loads(told)["elapsedSeconds"]
        receipts += [json.loads(line) for line in path.read_text().splitlines()]
    latencies = sorted(receipt["latencyMs"] for receipt in receipts)
    for status, number in Counter(receipt["status"] for receipt in receipts).items():
        print(f"{status:<22}{number:>8,}")
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    print(f"p50 {p50:.1f} ms   p99 {p99:.1f} ms   {len(receipts) / seconds:,.0f} msg/s   (64 unanswered at a time)")
    if len(receipts) != count or any(receipt["status"] != "SEND_OK" for receipt in receipts):
        raise DemoError(f"not all of {count} messages were answered SEND_OK")
    return receipts


def compare_logs(master: Path, slave: Path) -> None:
    """Print both digests; the logs must hold the same bytes (a file made in advance is all zero)."""
    names = sorted({path.name for store in (master, slave) for path in (store / "commitlog").iterdir()})
    digests = []
    for store in (master, slave):
        digest = hashlib.sha256()
        for name in names:
            path = store / "commitlog" / name
            digest.update(path.read_bytes() if path.exists() else bytes(SEGMENT_SIZE))
        digests.append(digest.hexdigest())
        print(f"{store.name:<8}{len(names)} files of {SEGMENT_SIZE >> 20} MiB  sha256 {digests[-1]}")
    if digests[0] != digests[1]:
        raise DemoError("the two logs differ")
    print("identical")


def wait_dispatched(port: int) -> None:
    """Return when consumers are shown all that the broker at ``port`` has: a moment after it has it."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        status = json.loads(rmqha("status", "--broker", at(port), "--format", "json"))
        if status["dispatched_offset"] >= status["max_offset"]:
            return
    raise DemoError(f"not everything is dispatched: {status}")


def read_all(port: int, receipts: list[Receipt]) -> Counter[str]:
    """Read all topics from the broker at ``port``; every receipt's message must be there with its own body."""
    found: dict[Position, str] = {}
    for topic in TOPICS:
        for line in rmqha("tail", topic, "--broker", at(port), "--from", "start", "--format", "json").splitlines():
            message = json.loads(line)
            found[topic, message["queueId"], message["queueOffset"]] = message["bodySha256"]
    lost = [
        receipt
        for receipt in receipts
        if found.get((receipt["topic"], receipt["queueId"], receipt["queueOffset"])) != receipt["bodySha256"]
    ]
    if lost:
        raise DemoError(f"{len(lost)} acknowledged messages are not on the slave, the first: {lost[0]}")
    print(f"{len(receipts):,} of {len(receipts):,} acknowledged messages are there, bodies equal")
    return Counter(topic for topic, _, _ in found)


def parquet_counts(lake: Path) -> Counter[str]:
    """Count what Spark wrote, by topic."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - brought by the virtual environment

    files = [str(path) for path in lake.rglob("*.parquet")]
    table = ds.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(lake)).to_table(["topic"])
    return Counter(table.column("topic").to_pylist())


def print_table(receipts: list[Receipt], read: Counter[str], parquet: Counter[str]) -> None:
    """Print the counts of every step by topic; they must all match."""
    acknowledged = Counter(receipt["topic"] for receipt in receipts)
    print(f"{'topic':<12}{'SEND_OK':>10}{'on slave':>10}{'Parquet':>10}")
    for topic in (*TOPICS, "all"):
        row = [sum(counts.values()) if topic == "all" else counts[topic] for counts in (acknowledged, read, parquet)]
        print(f"{topic:<12}" + "".join(f"{number:>10,}" for number in row))
        if len(set(row)) != 1:
            raise DemoError(f"the counts of {topic} do not match")


# Processes


def rmqha(*arguments: str, to_terminal: bool = False) -> str:
    """Run one command of rmqha to its end; return its stdout."""
    print(f"$ rmqha {' '.join(arguments)}")
    done = subprocess.run(
        [*RMQHA, *arguments],
        stdout=None if to_terminal else subprocess.PIPE,
        text=True,
        check=False,
        preexec_fn=_die_with_parent,
    )
    if done.returncode != 0:
        raise DemoError(f"rmqha {arguments[0]} ended with exit code {done.returncode}\n{done.stdout or ''}")
    return (done.stdout or "").rstrip("\n")


@contextmanager
def broker(work: Path, role: str, port: int, options: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """One broker, until the block ends: SIGTERM, and SIGKILL when that takes more than 20 s."""
    command = [role, "--store", str(work / role), "--listen", at(port), *options]
    print(f"$ rmqha {' '.join(command)} &")
    log = work / f"{role}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen([*RMQHA, *command], stderr=stderr, preexec_fn=_die_with_parent)  # noqa: PLW1509 - there are none
    try:
        wait_started(process, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_started(process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the broker serves.

    Raises:
        DemoError: it ended, or does not within START_S_MAX; with the end of its log.
    """
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if "broker.started" in log.read_text():
            return
        time.sleep(0.05)
    raise DemoError(f"the broker did not start:\n{log.read_text()[-2000:]}")


def _die_with_parent() -> None:
    """Nothing outlives the demo, however it ends (Linux; elsewhere the clean-up above must do)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(number: int) -> list[int]:
    """Ports of which the two below and the one above are free as well, below those given to outgoing connections."""
    candidates = range(20_000 + os.getpid() * 8 % 10_000, 32_000, 8)
    groups = (port for port in candidates if all(_is_free(port + distance) for distance in (-2, 0, 1)))
    return list(islice(groups, number))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _temporary(stack: ExitStack) -> Path:
    path = Path(tempfile.mkdtemp(prefix="rmqha-demo-"))
    stack.callback(shutil.rmtree, path, ignore_errors=True)
    return path


def _kept(directory: str) -> Path:
    path = Path(directory).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise DemoError(f"{path} is not empty; name another directory, or remove it")
    return path


def at(port: int) -> str:
    """Write the address of a port here."""
    return f"127.0.0.1:{port}"


def step(title: str) -> None:
    """Begin the next part of the story."""
    print(f"\n== {title}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="messages to send (default 10000)")
    parser.add_argument("--keep", metavar="DIR", help="work in DIR, which must be empty, and leave everything there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
