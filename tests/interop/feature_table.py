"""Which of RocketMQ's clients, tools and servers did what with rmqha in the tests that ran."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from tests.interop.peers import VERSION, VERSION_5

WORKS, FAILED, SKIPPED = "works", "FAILED", "skipped"


class Peer(NamedTuple):
    """A column of a table."""

    table: str
    name: str


def java_client(version: str) -> Peer:
    """RocketMQ's client."""
    return Peer("Clients", f"Java {version}")


def mqadmin_of(version: str) -> Peer:
    """RocketMQ's tool; its features are its commands."""
    return Peer("mqadmin", version)


JAVA_CLIENT = java_client(VERSION)
JAVA_CLIENT_5 = java_client(VERSION_5)
CPP_CLIENT = Peer("Clients", "C++ 0.4.4")
JAVASCRIPT_CLIENT = Peer("Clients", "ali-ons 3.12.0")
BROKER = Peer("Servers", f"broker {VERSION}")
BROKER_5 = Peer("Servers", f"broker {VERSION_5}")
NAME_SERVER = Peer("Servers", f"name server {VERSION}")
DLEDGER = Peer("Servers", "DLedger 0.3.1.2")


class Record(Protocol):
    """The fixture ``record``: this test tries these features of a peer."""

    def __call__(self, peer: Peer, *features: str, works: bool | None = None) -> None:
        """``works`` is what came out, where the test's own outcome would not say it."""


class Tried(NamedTuple):
    """One cell of a table."""

    peer: Peer
    feature: str
    outcome: str


def lines_of(tried: Iterable[Tried]) -> Iterator[str]:
    """Tables of what was tried, a row for each feature and a column for each peer; what failed once has failed."""
    tables: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for peer, feature, outcome in tried:
        cells = tables[peer.table][feature]
        cells[peer.name] = max(outcome, cells.get(peer.name, ""), key=["", WORKS, SKIPPED, FAILED].index)
    for title, rows in sorted(tables.items()):
        names = sorted({name for cells in rows.values() for name in cells})
        width = max(map(len, [title, *rows]))
        for first, cells in [(title, {name: name for name in names}), *rows.items()]:
            columns = (f"{cells.get(name, ''):<{max(len(name), len(SKIPPED))}}" for name in names)
            yield f"{first:<{width}}  {'  '.join(columns)}".rstrip()
        yield ""
