"""Interop tests need Java and Maven; elsewhere they skip and say what is missing."""

import pytest

from tests.interop.peers import PeerMissingError, rocketmq_libs


@pytest.fixture(scope="session", autouse=True)
def _rocketmq() -> None:
    try:
        rocketmq_libs()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
