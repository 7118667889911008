"""strace on a broker: at its start, or attached to one that runs, so that a fault meets it in the middle of work."""

import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tests.e2e.processes import Broker, Child
from tests.faults.sweep import DISK, SOCKETS, Injection

_AHEAD: Final = 60
"""So many files of the log, and of each queue, that do not exist yet are traced."""


def options(injection: Injection, broker: Broker, *, report: Path, topics: Sequence[str]) -> list[str]:
    """The command; ``report`` gets a line for each call. ``topics``: those of which queues may come."""
    inject = f"inject={injection.call}:error={injection.error}:when={injection.when}"
    command = ["strace", "-o", str(report), "-e", f"trace={injection.call}", "-e", inject]
    if injection.call in DISK:
        return [*command, "-f", *(f"--trace-path={path}" for path in _store_paths(broker, topics))]
    if injection.call in SOCKETS and injection.phase == "running":
        return [*command, *(f"--trace-path={name}" for name in _connections(broker.running.pid))]
    return command


def at_start(injection: Injection, broker: Broker, *, report: Path, topics: Sequence[str]) -> list[str]:
    """The command prefix; the process keeps its pid."""
    fast = ["--seccomp-bpf"] if injection.call in DISK else []
    return [*options(injection, broker, report=report, topics=topics), "-D", "-qq", *fast]


@asynccontextmanager
async def attached(injection: Injection, broker: Broker, *, report: Path, topics: Sequence[str]) -> AsyncIterator[None]:
    """Inside, calls of the running broker fail."""
    command = [*options(injection, broker, report=report, topics=topics), "-p", str(broker.running.pid)]
    tracer = Child(command, log=report.with_suffix(".tracer"))
    try:
        await tracer.wait_output("attached", timeout_s=60)
        yield
        tracer.signal(signal.SIGINT)
        await tracer.wait_exit()
    finally:
        tracer.reap()


def injected(report: Path) -> int:
    """How many calls really failed by our hand."""
    return report.read_text(errors="replace").count("(INJECTED)") if report.exists() else 0


def _store_paths(broker: Broker, topics: Sequence[str]) -> Iterator[str]:
    """Everything it may touch in the next seconds: what does not exist yet is traced by its name."""
    store = str(broker.store)
    yield store
    yield from (f"{store}/{name}" for name in ("lock", "abort", "checkpoint", "config", "commitlog", "consumequeue"))
    for name in ("topics", "consumerOffset", "subscriptionGroup"):
        yield from (f"{store}/config/{name}.json{suffix}" for suffix in ("", ".tmp", ".bak"))
    yield from _files(f"{store}/commitlog", int(str(broker.conf["mappedFileSizeCommitLog"])))
    for topic in topics:
        yield f"{store}/consumequeue/{topic}"
        for queue in (f"{store}/consumequeue/{topic}/{queue_id}" for queue_id in range(4)):
            yield queue
            yield from _files(queue, int(str(broker.conf["mappedFileSizeConsumeQueue"])))


def _files(directory: str, size: int) -> Iterator[str]:
    """The newest files and those to come; of a directory that is not there, the first."""
    newest = -1
    if Path(directory).is_dir():
        newest = max(map(int, os.listdir(directory)), default=-1)
    if newest < 0:
        yield f"{directory}/{0:020}"
        return
    yield from (f"{directory}/{at:020}" for at in range(max(newest - 3 * size, 0), newest + _AHEAD * size, size))


def _connections(pid: int) -> Iterator[str]:
    """A process's TCP connections, as its descriptors name them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = {f"socket:[{row[9]}]" for row in rows if row[3] == "01"}
    names = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.add(str(path.readlink()))
    yield from sorted(established & names)
