"""Marks the slow tests by their directory, turns skips into failures where nothing may be skipped, keeps logs whole."""

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from rmqha.ha.ha_service import HAService
from rmqha.remoting.client import logger as client_logger
from rmqha.remoting.fence import Fence
from tests.virtual_time import run_on_virtual_clocks, virtual_clock  # noqa: F401 - a fixture

# The same examples on every machine, and no limit on their time: a slow machine is no failure.
settings.register_profile("rmqha", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rmqha")

_HERE = Path(__file__).parent
_MARKED = {"e2e", "interop", "faults", "fuzz"}


def pytest_configure() -> None:
    """Let no test's process inherit that a signal is ignored, as in whatever ``nohup`` or a shell's ``&`` started."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # here nothing changes: exec gives a handler up, and SIG_IGN not


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    run_on_virtual_clocks(items)
    for item in items:
        directory = item.path.relative_to(_HERE).parts[0]
        if directory in _MARKED:
            item.add_marker(directory)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With RMQHA_REQUIRE_ALL=1 (CI) a skipped test is a failed one: its machine must bring what it needs."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("RMQHA_REQUIRE_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, but RMQHA_REQUIRE_ALL=1 allows no skip: {report.longreprtext or report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _no_bug_is_fenced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fence keeps a bug from ending a broker; here it is a failure all the same. Mark: ``meets_bugs``."""
    met: list[Exception] = []

    def on_bug(fence: Fence, error: Exception, **facts: Any) -> str:
        met.append(error)
        return really_on_bug(fence, error, **facts)

    def on_slave_s_bug(service: HAService, error: Exception, peer: str) -> str:
        met.append(error)
        return really_on_slave_s_bug(service, error, peer)

    really_on_bug, really_on_slave_s_bug = Fence.on_bug, HAService.on_bug
    monkeypatch.setattr(Fence, "on_bug", on_bug)
    monkeypatch.setattr(HAService, "on_bug", on_slave_s_bug)
    monkeypatch.setattr(client_logger, "error", lambda *_, exc_info: met.append(exc_info))
    yield
    if met and request.node.get_closest_marker("meets_bugs") is None:
        raise ExceptionGroup("bugs that only a fence kept from ending a broker", met)


@pytest.fixture(autouse=True)
def _structlog_as_before() -> Iterator[None]:
    """Who sets logging up (a command, the simulator) does not silence the log lines that later tests look at."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
