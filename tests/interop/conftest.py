"""Interop tests need Java and Maven: elsewhere they skip and say why; with RMQHA_REQUIRE_ALL=1 that is a failure."""

import os

import pytest

from tests.interop.peers import PeerMissingError, rocketmq_libs


@pytest.fixture(scope="session", autouse=True)
def _rocketmq() -> None:
    try:
        rocketmq_libs()
    except PeerMissingError as missing:
        if os.environ.get("RMQHA_REQUIRE_ALL") == "1":
            raise
        pytest.skip(str(missing))
