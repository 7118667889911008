"""Interop tests need Java and Maven, one of them Node.js; elsewhere they skip and say what is missing.

After them a table says which of RocketMQ's clients, tools and servers did what with rmqha.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.feature_table import FAILED, SKIPPED, WORKS, Peer, Record, Tried, lines_of
from tests.interop.fetched import PeerMissingError
from tests.interop.peers import JavaNameServer, rocketmq_libs


@pytest.fixture(scope="session", autouse=True)
def _rocketmq() -> None:
    try:
        rocketmq_libs()
    except PeerMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def java_name_server(tmp_path: Path) -> AsyncIterator[str]:
    """The address of RocketMQ's name server."""
    name_server = JavaNameServer(tmp_path / "namesrv")
    try:
        await name_server.running.wait_output("boot success")
        yield name_server.address
    finally:
        name_server.close()


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Record:
    """See :class:`Record`. Where a test's outcome says it all, the mark ``tries`` is enough."""

    def record_all(peer: Peer, *features: str, works: bool | None = None) -> None:
        for feature in features:
            record_property("rmqha", (tuple(peer), feature, works))  # it goes from a worker to pytest's own process

    return record_all


@pytest.fixture(autouse=True)
def _marked(request: pytest.FixtureRequest, record: Record) -> None:
    for marker in request.node.iter_markers("tries"):
        record(*marker.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a table for clients, one for mqadmin, one for servers."""
    tried = list(_tried(terminalreporter.stats))
    if tried:
        terminalreporter.section("real RocketMQ and rmqha")
        for line in lines_of(tried):
            terminalreporter.line(line)


def _tried(reports: Mapping[str, list[Any]]) -> Iterator[Tried]:
    for category, outcome in (("passed", WORKS), ("failed", FAILED), ("skipped", SKIPPED)):
        for report in reports.get(category, ()):
            for name, value in getattr(report, "user_properties", ()):  # of a module that was skipped there are none
                if name == "rmqha":
                    peer, feature, works = value
                    yield Tried(Peer(*peer), feature, outcome if works is None else WORKS if works else FAILED)
