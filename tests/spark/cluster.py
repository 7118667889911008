"""A standalone cluster of Spark, of pyspark's own jars: a master and workers, processes on loopback."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

WAIT_S: Final = 600
_SPARK: Final = "org.apache.spark.deploy."


def spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@dataclass
class Process:
    """In a process group of its own, with what it starts."""

    popen: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, pattern: str) -> str:
        """The first group of what its log says."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = re.findall(pattern, self.log.read_text(errors="replace"))
            return bool(found)

        self.wait_until(is_there)
        return found[0]

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """While it lives."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert self.popen.poll() is None or holds(), self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to the group; Python workers of executors end by themselves."""
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@dataclass
class Cluster:
    url: str
    workers: list[Process]


def start(command: list[str], log: Path, **environ: str) -> Process:
    with log.open("wb") as file:
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environ}
        popen = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, env=environment)
    return Process(popen, log)


@contextmanager
def cluster(directory: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Of one core and one executor each."""
    directory.mkdir()
    spark_class = str(spark_home() / "bin" / "spark-class")
    ports = ["--port", "0", "--webui-port", "0"]
    master = [spark_class, f"{_SPARK}master.Master", "--host", "127.0.0.1", *ports]
    started = [start(master, directory / "master.log")]
    try:
        url = started[0].wait_for(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            place = directory / f"worker{number}"
            sizes = ["--cores", "1", "--memory", "600m", "--work-dir", str(place)]
            host = f"127.0.0.{number + 2}"  # Spark repeats a slow task on other hosts only
            command = [spark_class, f"{_SPARK}worker.Worker", "--host", host, *ports, *sizes, url]
            started.append(start(command, directory / f"worker{number}.log", SPARK_LOCAL_IP=host))
        for process in started[1:]:
            process.wait_for(r"(Successfully registered with master)")
        yield Cluster(url, started[1:])
    finally:
        for process in reversed(started):
            process.kill()
