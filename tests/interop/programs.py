"""Programs that are clients of RocketMQ's, and the broker of either kind that they talk to, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import Broker, Child
from tests.interop.dledger_groups import java_argv
from tests.interop.peers import VERSION, tools_libs
from tests.interop.test_live_pairs import KINDS


class Telling:
    """A process that writes a line for each thing that happens."""

    def __init__(self, running: Child) -> None:
        self.running = running

    def told(self, word: str) -> list[list[str]]:
        """The lines that begin with ``word``, without it, word by word."""
        lines = self.running.output().split("\n")[:-1]
        return [line.split()[1:] for line in lines if line.startswith(f"{word} ")]


class Program(Telling):
    """A running Java file of this folder; ``version`` is that of its client."""

    def __init__(
        self, source: str, directory: Path, name: str, *words: object, version: str = VERSION, **properties: str
    ) -> None:
        (directory / name).mkdir(parents=True)
        argv = java_argv(source, *words, directory=directory / name, libs=tools_libs(version))
        argv[1:1] = [f"-D{key}={value}" for key, value in properties.items()]
        super().__init__(Child(argv, log=directory / name / f"{name}.log"))


@contextmanager
def programs(*running: Telling) -> Iterator[None]:
    """They end with the block."""
    try:
        yield
    finally:
        for one in running:
            one.running.reap()


def broker_of(kind: str, directory: Path, conf: dict[str, object], name_server: str) -> Broker:
    """A broker of this kind, not started, which registers at the name server."""
    return KINDS[kind](directory, conf | {"namesrvAddr": name_server, "registerNameServerPeriod": 10_000})


def names_of(kind: str, broker: Broker, name_server: str) -> str:
    """Where clients look for it: ours answers for itself."""
    return broker.address if kind == "rmqha" else name_server
