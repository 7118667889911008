"""Marks the slow tests by their directory, and turns skips into failures where nothing may be skipped."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_MARKED = {"e2e", "interop", "faults", "fuzz"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
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
