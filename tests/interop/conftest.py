"""Interop tests need Java and Maven; elsewhere they skip and say what is missing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.interop.peers import JavaNameServer, PeerMissingError, rocketmq_libs


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
