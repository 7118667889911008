"""Thousands of slow and garbage connections; an honest producer and an honest slave notice nothing."""

import os

import pytest
import trio

from tests.e2e.commitlog import wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.strangers import Strangers, many_descriptors

STRANGERS = int(os.environ.get("RMQHA_HOSTILE_CONNECTIONS", "2000"))
DURATION_S = float(os.environ.get("RMQHA_HOSTILE_SECONDS", "14"))
BASE_BYTES_MAX = 64 << 20
STRANGER_BYTES_MAX = 48 << 10
LOG_BYTES_MAX = 1 << 20
pytestmark = pytest.mark.timeout(300 + 2 * DURATION_S)


async def test_strangers_disturb_nobody(pair: Pair) -> None:
    """No send fails while they come, sit, drip and come again; memory and log stay within their bounds."""
    master = pair.master
    master.conf["slaveTimeout"] = 20_000  # a busy machine is no failure
    with many_descriptors(STRANGERS + 4096):
        await pair.start()
        await wait_in_sync(master.ports.listen)
        load = LoadProducer(master.ports.listen, Sends("orders", body=body_of_size(500)), window=8)
        strangers = Strangers(master.ports.listen, master.ports.ha, STRANGERS)
        before = master.running.usage().anonymous_bytes
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(100)
            nursery.start_soon(strangers.run)
            peak = 0
            until = trio.current_time() + DURATION_S
            while trio.current_time() < until or strangers.made < STRANGERS:
                await load.wait_acknowledged(10)
                peak = max(peak, master.running.usage().anonymous_bytes)
            connected = strangers.connected
            await load.wait_acknowledged(100)
            nursery.cancel_scope.cancel()
        assert load.refused == 0, load.codes
        assert load.connections == 1, "the honest producer was never dropped"
        grown = peak - before
        assert grown < BASE_BYTES_MAX + STRANGER_BYTES_MAX * STRANGERS, f"{grown} bytes for {connected} strangers"
        assert len(master.running.output()) < LOG_BYTES_MAX
        await wait_in_sync(master.ports.listen)
        assert await master.stop() == 0
        assert await pair.slave.stop() == 0
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))


async def test_a_slave_gets_in_where_strangers_hold_every_place(pair: Pair) -> None:
    """All of maxHaConnections is held by peers that never acknowledge anything, and come again when dropped."""
    master = pair.master
    master.conf |= {"maxHaConnections": 16}
    await master.start()
    strangers = Strangers(master.ports.listen, master.ports.ha, 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(strangers.run)
        await trio.sleep(1)
        await pair.slave.start()
        await wait_in_sync(master.ports.listen)
        await trio.sleep(2)
        await wait_in_sync(master.ports.listen)
        nursery.cancel_scope.cancel()
