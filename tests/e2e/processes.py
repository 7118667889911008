"""Real broker processes for tests and benchmarks: started, watched, stopped or killed, and always reaped.

A :class:`Child` writes its output to a file. If the test process itself dies, the kernel kills its children
(``setpriv --pdeathsig``), so nothing is left behind even then.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, cycle
from pathlib import Path
from typing import Final, NamedTuple

import trio

CHECKOUT = Path(__file__).resolve().parents[2]
_POLL_S = 0.02  # another process's log file and ports offer nothing to wait on
_FIRST_PORT, _LAST_PORT, _PORTS_OF_A_GROUP = 20_000, 32_000, 8
_begin = _FIRST_PORT + os.getpid() * 1009 % 1500 * _PORTS_OF_A_GROUP  # far from those of a run begun at the same time
_ports = cycle(chain(range(_begin, _LAST_PORT, _PORTS_OF_A_GROUP), range(_FIRST_PORT, _begin, _PORTS_OF_A_GROUP)))
_claims: dict[int, socket.socket] = {}
"""By the port of a group that a broker listens on: another port of the group, which this process holds meanwhile."""

_IN_A_TERMINAL = """import os, pty, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, perhaps, by what runs the tests
os.setsid()
master, slave = pty.openpty()
os.open(os.ttyname(slave), os.O_RDWR)
os.set_inheritable(master, True)
os.execvp(sys.argv[1], sys.argv[1:])"""
IN_A_TERMINAL: Final = (sys.executable, "-c", _IN_A_TERMINAL)
"""Before a command line: the process has a terminal, of its own."""
WITHOUT_TERMINAL: Final = ("setsid",)
"""Before a command line: as a service has none, whatever started the tests."""

ON_ANY_DISK: Final[Mapping[str, object]] = {
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceWarningLevelRatio": 99,
    "cleanFileForciblyEnable": "false",
}
"""However full the disk is that the tests run on, nothing is refused, or deleted, for that."""


class ProcessFailedError(AssertionError):
    """A process did not do what the test waits for. The text ends with the last lines it wrote."""


class Usage(NamedTuple):
    """What a process has used so far."""

    cpu_s: float
    anonymous_bytes: int
    resident_bytes: int


class Ports(NamedTuple):
    """A broker's ports: RocketMQ takes ``listen - 2`` and ``listen + 1`` as well."""

    listen: int
    ha: int


def free_ports() -> Ports:
    """Find a group of free ports below the range that the kernel gives to outgoing connections.

    Another run does not find the same, even before anybody listens on them, until :func:`give_back`.
    """
    for listen in _ports:
        if listen in _claims or (claim := _bound(listen + 3)) is None:
            continue
        if all(_is_free(port) for port in (listen - 2, listen, listen + 1)):
            _claims[listen] = claim
            return Ports(listen, listen + 1)
        claim.close()
    raise AssertionError("unreachable: the cycle has no end")


def give_back(ports: Ports) -> None:
    """Nobody will listen on these any more. Idempotent."""
    if claim := _claims.pop(ports.listen, None):
        claim.close()


@contextmanager
def nobody_listens(port: int = 0) -> Iterator[int]:
    """A port on which connections are refused, as long as the block runs: not even a connection's other end gets it."""
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", port))
        yield int(silent.getsockname()[1])


def _bound(port: int) -> socket.socket | None:
    claim = socket.socket()
    try:
        claim.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return None
    return claim


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def has_ipv6() -> bool:
    """Whether ``::1`` can be listened on."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class Child:
    """One process. Its maker must call :meth:`reap`; ``children()`` does it for all of a block."""

    def __init__(self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.name = log.stem
        guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*guard, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=CHECKOUT,  # `python -m rmqha` finds the checkout also where it is not installed
                env=None if env is None else {**os.environ, **env},
            )
        self.pid = self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """What this process has written so far."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def failed(self, what: str) -> ProcessFailedError:
        """Make the error that says ``what`` went wrong and shows the end of the log."""
        tail = "\n".join(self.output().splitlines()[-40:])
        return ProcessFailedError(f"{self.name} (pid {self.pid}, exit code {self.returncode}): {what}\n{tail}")

    async def wait_output(self, pattern: str, *, timeout_s: float = 120) -> re.Match[str]:
        """Wait until the output holds ``pattern``.

        Raises:
            ProcessFailedError: it ended, or the time is over, without.
        """
        with trio.move_on_after(timeout_s):
            while True:
                ended = self.returncode is not None
                if found := re.search(pattern, self.output()):
                    return found
                if ended:
                    raise self.failed(f"ended before it wrote {pattern!r}")
                await trio.sleep(_POLL_S)
        raise self.failed(f"did not write {pattern!r} within {timeout_s} s")

    async def wait_exit(self, *, timeout_s: float = 120) -> int:
        """Wait for the end and return the exit code."""
        with trio.move_on_after(timeout_s):
            while self._popen.poll() is None:  # noqa: ASYNC110 - a tracer has to let go of it first
                await trio.sleep(_POLL_S)
        if (code := self._popen.poll()) is None:
            raise self.failed(f"did not end within {timeout_s} s")
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens to a process that has ended."""
        self._popen.send_signal(number)

    async def stop(self, *, timeout_s: float = 120) -> int:
        """SIGTERM, and wait for the end."""
        self.signal(signal.SIGTERM)
        return await self.wait_exit(timeout_s=timeout_s)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.reap()
        await trio.lowlevel.checkpoint()

    def reap(self) -> None:
        """Kill it if it still runs, and collect it. Idempotent."""
        self._popen.kill()
        self._popen.wait()

    def usage(self) -> Usage:
        """CPU time and memory so far, from /proc."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        status = Path(f"/proc/{self.pid}/status").read_text()
        kib = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB", status, re.MULTILINE)}
        return Usage(ticks / os.sysconf("SC_CLK_TCK"), kib["RssAnon"] * 1024, kib["VmRSS"] * 1024)


class Broker(ABC):
    """A broker on loopback with its own directory; it can be started again after it ended.

    ``conf`` holds RocketMQ's keys and is written to ``broker.conf`` at each start, so a test may change it between.
    """

    def __init__(self, directory: Path, conf: Mapping[str, object], *, ports: Ports | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ports = ports or free_ports()
        self.store = directory / "store"
        self.conf: dict[str, object] = {
            "brokerName": "pair",
            "brokerClusterName": "cluster",
            "brokerId": 0,
            "listenPort": self.ports.listen,
            "haListenPort": self.ports.ha,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            **ON_ANY_DISK,
            **conf,
        }
        self.prefix: Sequence[str] = ()
        self.child: Child | None = None

    def move_store(self, store: Path) -> None:
        """Keep the store somewhere else; only before the first start."""
        self.store = store
        self.conf |= {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.ports.listen}"

    @property
    def ha_address(self) -> str:
        """Where slaves connect."""
        return f"127.0.0.1:{self.ports.ha}"

    @property
    def conf_file(self) -> Path:
        """The file that the broker reads."""
        return self.directory / "broker.conf"

    @property
    def running(self) -> Child:
        """The process; the broker must have been started."""
        assert self.child is not None, f"{self.directory.name} was never started"
        return self.child

    @abstractmethod
    def argv(self) -> list[str]:
        """The command line."""

    @abstractmethod
    async def wait_ready(self) -> None:
        """Wait until it serves."""

    def prepare(self) -> None:
        """Write the files that the process reads at its start."""
        self.conf_file.write_text("".join(f"{key}={value}\n" for key, value in self.conf.items()))

    async def start(self) -> None:
        """Start the process and wait until it serves."""
        self.launch()
        await self.wait_ready()

    def launch(self) -> Child:
        """Start the process, without waiting."""
        assert self.child is None or self.child.returncode is not None, "it still runs"
        self.prepare()
        self.child = Child([*self.prefix, *self.argv()], log=self.directory / f"{self.directory.name}.log")
        return self.child

    async def stop(self, *, timeout_s: float = 120) -> int:
        """SIGTERM, and wait for the end."""
        return await self.running.stop(timeout_s=timeout_s)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        await self.running.kill()

    def reap(self) -> None:
        """Leave nothing behind."""
        if self.child is not None:
            self.child.reap()

    def segments(self) -> dict[str, Path]:
        """The commitlog's files by name."""
        return {path.name: path for path in sorted((self.store / "commitlog").iterdir()) if path.name.isdigit()}


class RmqhaBroker(Broker):
    """Our own broker, by its command line; ``python`` is the interpreter that runs it."""

    python = sys.executable

    def argv(self) -> list[str]:
        """``rmqha master`` or ``rmqha slave``, as the role says."""
        command = "slave" if self.conf.get("brokerRole") == "SLAVE" else "master"
        return [self.python, "-m", "rmqha", command, "-c", str(self.conf_file)]

    async def wait_ready(self) -> None:
        """The client port is open before; until then it only says how far the broker is."""
        await self.running.wait_output("broker.started")


@contextmanager
def reaping(*brokers: Broker) -> Iterator[None]:
    """Whatever happens inside, no process of these brokers is left."""
    try:
        yield
    finally:
        for broker in brokers:
            broker.reap()
            give_back(broker.ports)
