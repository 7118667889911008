"""A slave that has more than its master: recognised, never counted, and its tail is not lost."""

import shutil
import signal

import trio

from tests.e2e.commitlog import HeldMessages, log_end, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import SEND_OK, LoadProducer, Sends, body_of_size, wait_in_sync


async def _lose_the_tail_of_the_master(pair: Pair) -> set[int]:
    """Go back to an earlier copy of the master's store, as if its last writes had not reached the disk."""
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(1_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(300)
        nursery.cancel_scope.cancel()
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    await pair.master.stop()
    shutil.copytree(pair.master.store, pair.master.directory / "earlier")
    await pair.master.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(300)
        nursery.cancel_scope.cancel()
    for broker in pair.brokers:
        await broker.kill()
    shutil.rmtree(pair.master.store)
    (pair.master.directory / "earlier").rename(pair.master.store)
    assert log_end(pair.master.store / "commitlog") < log_end(pair.slave.store / "commitlog")
    return load.acknowledged


async def test_a_slave_ahead_is_not_counted_as_a_replica(pair: Pair) -> None:
    """No SEND_OK while the only slave is ahead; the slave keeps its tail and both say what is wrong."""
    acknowledged = await _lose_the_tail_of_the_master(pair)
    before = log_end(pair.slave.store / "commitlog")
    await pair.start()
    await pair.master.running.wait_output("ahead")
    load = LoadProducer(pair.master.ports.listen, Sends("later", body=body_of_size(100)), window=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_refused(1)
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert SEND_OK not in load.codes, f"answers by code: {load.codes}"
    await pair.slave.kill()
    assert log_end(pair.slave.store / "commitlog") == before
    assert acknowledged <= HeldMessages(pair.slave.store / "commitlog", "orders").read(torn=False)


async def test_a_master_takes_its_lost_tail_back_from_its_peer(pair: Pair) -> None:
    """With haPeers the master fetches what the slave has beyond its own end before it takes sends."""
    acknowledged = await _lose_the_tail_of_the_master(pair)
    pair.master.conf["haPeers"] = pair.slave.ha_address
    await pair.slave.start()
    await pair.master.start()
    await wait_in_sync(pair.master.ports.listen)
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    await pair.master.kill()
    assert acknowledged <= HeldMessages(pair.master.store / "commitlog", "orders").read(torn=False)


async def test_a_peer_that_stands_still_for_a_while_is_waited_for(pair: Pair) -> None:
    """The master started after a second of silence, and gave the places of the slave's messages to others."""
    acknowledged = await _lose_the_tail_of_the_master(pair)
    pair.master.conf["haPeers"] = pair.slave.ha_address
    await pair.slave.start()
    pair.slave.running.signal(signal.SIGSTOP)
    load = LoadProducer(pair.master.ports.listen, Sends("later", body=body_of_size(100)), window=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.master.start)
        nursery.start_soon(load.run)
        await trio.sleep(6)
        pair.slave.running.signal(signal.SIGCONT)
        await load.wait_acknowledged(10)
        nursery.cancel_scope.cancel()
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    await pair.master.kill()
    assert acknowledged <= HeldMessages(pair.master.store / "commitlog", "orders").read(torn=False)
