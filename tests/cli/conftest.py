"""Fixtures of the commands' tests."""

import logging
from collections.abc import Iterator

import pytest

from tests.cli.fake_brokers import fake_brokers

__all__ = ["fake_brokers"]


@pytest.fixture(autouse=True)
def _warnings_of_the_client() -> Iterator[None]:
    """What a command does to them in its process it does to other tests here."""
    logger = logging.getLogger("rmqha.client")
    level = logger.level
    yield
    logger.setLevel(level)
