"""Thousands of starts in these tests: their log lines are not for stdout."""

import pytest

from tests.sim import campaign


@pytest.fixture(autouse=True)
def _quiet() -> None:
    campaign.quiet()
