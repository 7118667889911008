"""A process that stands still (SIGSTOP): its machine goes on acknowledging TCP segments, but it does nothing."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import wait_status
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import reaping
from tests.faults.conftest import make_pair
from tests.faults.proofs import all_there, lost, no_send_ok_any_more

IMPATIENT = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 1_000}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = make_pair(tmp_path, **IMPATIENT)
    pair.master.conf["slaveTimeout"] = 300
    with reaping(*pair.brokers):
        yield pair


async def _loaded(pair: Pair, nursery: trio.Nursery) -> LoadProducer:
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
    nursery.start_soon(load.run)
    await load.wait_acknowledged(500)
    return load


async def test_a_paused_slave_ends_send_ok_until_it_goes_on(pair: Pair) -> None:
    """A timeout each, then "no slave", and status says so; it has all that was acknowledged; then it catches up."""
    async with trio.open_nursery() as nursery:
        load = await _loaded(pair, nursery)
        pair.slave.running.signal(signal.SIGSTOP)
        await no_send_ok_any_more(load)
        assert not lost(load.acknowledged, pair.slave)
        await pair.master.running.wait_output("ha_connection.closed")
        await no_send_ok_any_more(load)
        await wait_status(pair.master, 1, says="slaves in sync: 0 of 0")
        pair.slave.running.signal(signal.SIGCONT)
        await load.wait_acknowledged(500)
        nursery.cancel_scope.cancel()
    assert load.unexpected == []
    await all_there(pair, load.acknowledged)
    await wait_status(pair.master, 0)  # the slave is back, and nothing is the matter


async def test_control_a_master_that_does_not_wait_runs_ahead_of_a_paused_slave(pair: Pair) -> None:
    """If this fails, the test above shows nothing."""
    pair.master.conf["brokerRole"] = "ASYNC_MASTER"
    async with trio.open_nursery() as nursery:
        load = await _loaded(pair, nursery)
        pair.slave.running.signal(signal.SIGSTOP)
        await load.wait_acknowledged(500)
        nursery.cancel_scope.cancel()
    assert lost(load.acknowledged, pair.slave)


async def test_a_paused_master_is_noticed_and_goes_on_where_it_stood(pair: Pair) -> None:
    """The slave gives its connection up and says so; what the master answers afterwards is true."""
    async with trio.open_nursery() as nursery:
        load = await _loaded(pair, nursery)
        pair.master.running.signal(signal.SIGSTOP)
        await pair.slave.running.wait_output("the master sent nothing for 1 s")
        assert not lost(load.acknowledged, pair.slave)
        await wait_status(pair.slave, 1)
        pair.master.running.signal(signal.SIGCONT)
        await load.wait_acknowledged(500)
        assert not lost(set(load.acknowledged), pair.slave)
        nursery.cancel_scope.cancel()
    assert load.unexpected == []
    await all_there(pair, load.acknowledged)


async def test_pauses_of_both_in_turn_lose_nothing(pair: Pair) -> None:
    """Shorter and longer than anybody waits, under load."""
    async with trio.open_nursery() as nursery:
        load = await _loaded(pair, nursery)
        for length_s in (0.02, 0.5, 1.2):
            for broker in pair.brokers:
                broker.running.signal(signal.SIGSTOP)
                await trio.sleep(length_s)
                assert not lost(set(load.acknowledged), pair.slave)
                broker.running.signal(signal.SIGCONT)
                await load.wait_acknowledged(50)
        nursery.cancel_scope.cancel()
    await all_there(pair, load.acknowledged)
