"""RocketMQ's clients of other versions and languages, all driven to do the same (``Exchange.java`` says what)."""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from tests.e2e.processes import Child
from tests.interop.dledger_groups import java_argv
from tests.interop.feature_table import CPP_CLIENT, JAVASCRIPT_CLIENT, Peer, java_client
from tests.interop.fetched import LOCKS, PeerMissingError, fetched, run_fetching
from tests.interop.peers import client_libs, tools_libs
from tests.interop.programs import Telling

HERE = Path(__file__).parent
EVERY_WAY: Mapping[str, int] = {
    "oneway": 100,
    "sync": 500,
    "async": 200,
    "batch": 100,
    "ordered": 60,
    "large": 10,
    "delayed": 10,
    "again": 10,
}
"""How many messages are sent in each way: 1,000 with the committed ones of clients that have transactions."""
PUSH_AND_PULL = ("concurrent", "orderly", "pull")


@cache
def cpp_client() -> Path:
    """Where the Python module with the library is. Raises PeerMissingError."""
    lock = LOCKS / "cpp-client.txt"

    def fetch(directory: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes")
        run_fetching([*pip, "--target", str(directory), "-r", str(lock)], cwd=directory, what="the C++ client")

    return fetched("rocketmq-cpp-0.4.4", fetch)


@cache
def javascript_client() -> Path:
    """Where ``node_modules`` is. Raises PeerMissingError."""

    def fetch(directory: Path) -> None:
        shutil.copytree(LOCKS / "javascript-client", directory, dirs_exist_ok=True)
        npm = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        run_fetching(npm, cwd=directory, what="the JavaScript client")

    for command in ("node", "npm"):
        if shutil.which(command) is None:
            raise PeerMissingError(f"no `{command}` on the PATH: install Node.js and npm")
    return fetched("ali-ons-3.12.0", fetch)


@dataclass(frozen=True)
class Kind:
    """A kind of client: how many messages it sends in which ways, and which consumers each of its programs has."""

    name: str
    peer: Peer
    install: Callable[[], Path]
    programs: Mapping[str, tuple[str, ...]]
    ways: Mapping[str, int]

    @property
    def topic(self) -> str:
        """Where all of its messages are."""
        return f"from-{self.name}"

    @property
    def sender(self) -> str:
        """The program that sends."""
        return next(iter(self.programs))

    def start(self, program: str, directory: Path, name_servers: str, *words: str) -> Telling:
        """Run one of the programs; ``words`` begin with what it is to do."""
        home = directory / f"{self.name}-{words[0]}-{program}"
        home.mkdir(parents=True)
        argv = self._argv(program, home, name_servers, self.name, *words)
        installed = self.install()
        env = {"HOME": str(home), "PYTHONPATH": str(installed), "NODE_PATH": str(installed / "node_modules")}
        return Telling(Child(argv, log=home / f"{home.name}.log", env=env))

    def _argv(self, program: str, home: Path, *words: str) -> list[str]:
        if program.endswith(".java"):
            argv = java_argv(program, *words, directory=home, libs=self.install())
            return [*argv[:1], f"-Duser.home={home}", *argv[1:]]
        return ["node" if program.endswith(".js") else sys.executable, str(HERE / program), *words]


def _java(version: str, libs: Callable[[], Path], **more: tuple[str, ...]) -> Kind:
    """``more`` programs than one with consumers that every version has."""
    programs = {"Exchange.java": PUSH_AND_PULL} | {f"{name}.java": consumers for name, consumers in more.items()}
    return Kind("java" + version.replace(".", ""), java_client(version), libs, programs, {**EVERY_WAY, "commit": 10})


_LITE = ("lite", "assign")
KINDS = (
    _java("4.4.0", partial(client_libs, "4.4.0")),
    *(_java(version, partial(tools_libs, version), LitePull=_LITE) for version in ("4.9.7", "4.9.8", "5.3.3")),
    Kind(
        "cpp",
        CPP_CLIENT,
        cpp_client,
        {"exchange_cpp.py": PUSH_AND_PULL},
        {**EVERY_WAY, "sync": 510},
    ),
    Kind(
        "javascript",
        JAVASCRIPT_CLIENT,
        javascript_client,
        {"exchange.js": ("concurrent",)},
        {"sync": 910, "ordered": 60, "large": 10, "delayed": 10, "again": 10},
    ),
)
