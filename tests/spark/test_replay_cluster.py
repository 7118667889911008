"""The replay on a cluster of two workers whose processes are killed: the same messages as were written, each once."""

import os
import random
import signal
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rmqha.spark.java import use_java
from tests.spark.cluster import WAIT_S, Cluster, Process, cluster, start
from tests.spark.logs import LogWriter

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DRIVER = """
import sys
from rmqha.spark.replay import ReplayOptions, job, replay
job._TASK_BYTES_MIN = job._TASK_BYTES_MAX = 1 << 16
store, master, *outs = sys.argv[1:]

for out in outs:
    report = replay(ReplayOptions(store, out, master=master), lambda now: print(now, flush=True))
    print("ENDED", report.messages, report.master, flush=True)
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.2",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.executor.memory": "512m",
}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    use_java()
    with cluster(tmp_path_factory.mktemp("spark") / "cluster") as started:
        yield started


def write(store: Path) -> tuple[LogWriter, list[tuple[int, str, int]]]:
    """A log of some 64 tasks, and what it holds: offset, topic, CRC of the body."""
    log, chance, messages = LogWriter(store, file_size=1 << 20), random.Random(3), list[tuple[int, str, int]]()
    while log.end < 4 << 20:
        body, topic = chance.randbytes(chance.randint(0, 4000)), f"t{chance.randrange(5)}"
        messages.append((log.append(body, topic=topic.encode()), topic, zlib.crc32(body)))
    return log, messages


def read(out: Path) -> list[tuple[int, str, int]]:
    files = [str(path) for path in out.glob("topic=*/*.parquet")]
    rows = ds.dataset(files, partitioning="hive", partition_base_dir=str(out)).to_table().to_pylist()
    return sorted((row["physicalOffset"], row["topic"], zlib.crc32(row["body"])) for row in rows)


def drive(log: Path, *arguments: object) -> Process:
    conf = [f"--conf {name}={value}" for name, value in SPECULATION.items()]
    submit = " ".join([*conf, "pyspark-shell"])
    command = [sys.executable, "-c", DRIVER, *map(str, arguments)]
    return start(command, log, PYSPARK_SUBMIT_ARGS=submit)


def attempts(out: Path) -> int:
    return sum(1 for _ in out.glob("_rmqha/staging-*/*"))


def children(process: Process, name: str) -> list[int]:
    """Processes of its descent whose command has this name."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue

    def descends(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == process.popen.pid:
                return True
        return False

    return [pid for pid, command in commands.items() if name in command and descends(pid)]


@contextmanager
def stopped_processes(pids: list[int]) -> Iterator[None]:
    """Spark may end them meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_faults_of_a_cluster_lose_and_repeat_nothing(two_workers: Cluster, tmp_path: Path) -> None:
    """A worker that hangs, a worker and a driver that are killed: one cluster and two drivers for all, to save time."""
    log, messages = write(tmp_path / "store")
    outs = [tmp_path / f"out{number}" for number in range(3)]
    driver = drive(tmp_path / "driver.log", log.root, two_workers.url, *outs)
    try:
        driver.wait_until(lambda: attempts(outs[0]) > 6)
        stopped = children(two_workers.workers[0], "pyspark.daemon")
        assert stopped
        with stopped_processes(stopped):
            driver.wait_until(lambda: "ENDED" in driver.log.read_text())
        assert read(outs[0]) == messages

        driver.wait_until(lambda: attempts(outs[1]) > 6)
        two_workers.workers[0].kill()
        driver.wait_until(lambda: driver.log.read_text().count("ENDED") == 2)
        assert read(outs[1]) == messages

        driver.wait_until(lambda: attempts(outs[2]) > 6)
    finally:
        driver.kill()
    assert not list(outs[2].glob("topic=*"))
    again = drive(tmp_path / "again.log", log.root, two_workers.url, outs[2], *outs[:2])
    try:
        assert again.popen.wait(WAIT_S) == 0, again.log.read_text()[-3000:]
    finally:
        again.kill()
    assert read(outs[2]) == messages
    assert f"ENDED {len(messages)} {two_workers.url}" in again.log.read_text()
    for out in outs:  # what an attempt that was not needed wrote too late, the next run has removed
        assert not list(out.glob("_rmqha/staging-*"))
