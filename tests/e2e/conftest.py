"""Brokers by the command line, a pair or a group, each in its own directory, on free ports of loopback."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.dledger_brokers import BrokerGroup
from tests.e2e.processes import Broker, RmqhaBroker, reaping

SEGMENT_BYTES = 1 << 20


class Pair(NamedTuple):
    """A SYNC_MASTER and its slave; not started yet."""

    master: RmqhaBroker
    slave: RmqhaBroker

    async def start(self) -> None:
        """Start both."""
        await self.master.start()
        await self.slave.start()

    @property
    def brokers(self) -> tuple[Broker, Broker]:
        """Both."""
        return self.master, self.slave


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    common = {"mappedFileSizeCommitLog": SEGMENT_BYTES}
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **common})
    slave_conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **common}
    slave = RmqhaBroker(tmp_path / "slave", slave_conf)
    with reaping(master, slave):
        yield Pair(master, slave)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[BrokerGroup]:
    group = BrokerGroup(tmp_path)
    try:
        yield group
    finally:
        group.close()
