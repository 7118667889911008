"""A full disk is an error of a call: refused with a status, never SIGBUS, never a half-written store (#3511, #1790)."""

import pytest
import trio

from tests.e2e.commitlog import HeldMessages
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.faults.conftest import MakePair


@pytest.mark.parametrize("warning_level", [90, 99])
async def test_a_master_on_a_full_disk_refuses_and_loses_nothing(pair_on_image: MakePair, warning_level: int) -> None:
    """Refused by the disk ratio as by ENOSPC itself; the broker lives, and what it acknowledged is there."""
    pair, _ = pair_on_image("master", size_mib=24, diskSpaceWarningLevelRatio=warning_level)
    pair.master.conf["slaveTimeout"] = 20_000  # refused is what the disk cannot take
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(8_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_refused(100)
        nursery.cancel_scope.cancel()
    assert len(load.acknowledged) > 1_000
    assert pair.master.running.returncode is None
    await pair.master.stop()
    await pair.slave.stop()
    for broker in pair.brokers:
        assert load.acknowledged <= HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
    await pair.slave.start()
    await pair.master.start()


async def test_a_slave_on_a_full_disk_stops_reading_and_loses_nothing(pair_on_image: MakePair) -> None:
    """The master says so at each send, and serves on; the slave lives."""
    pair, _ = pair_on_image("slave", size_mib=24)
    pair.master.conf["slaveTimeout"] = 500
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(8_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_refused(100)
        nursery.cancel_scope.cancel()
    assert pair.master.running.returncode is None
    await pair.master.stop()
    await pair.slave.stop()
    for broker in pair.brokers:
        assert load.acknowledged <= HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
