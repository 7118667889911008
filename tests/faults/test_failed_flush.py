"""A failed fdatasync is final: whatever the next one says, the pages may be gone (#2706, #4588, "fsyncgate")."""

import pytest
import trio

from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.faults.conftest import failing


@pytest.mark.parametrize("when", ["60", "60+"], ids=["once", "from then on"])
@pytest.mark.parametrize("victim", ["master", "slave"])
async def test_no_send_ok_follows_a_failed_flush(strace_pair: Pair, victim: str, when: str) -> None:
    """Even if only one call fails: no SEND_OK afterwards, and nothing acknowledged is lost by a restart."""
    pair = strace_pair
    broker = pair.master if victim == "master" else pair.slave
    broker.prefix = failing("fdatasync", error="EIO", when=when)
    pair.master.conf["slaveTimeout"] = 500
    await pair.start()
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await broker.running.wait_output("fdatasync failed")
        await load.wait_refused(100)
        final = len(load.acknowledged)
        await load.wait_refused(100)
        assert len(load.acknowledged) == final
        nursery.cancel_scope.cancel()
    assert await broker.stop() != 0
    for each in pair.brokers:
        await each.kill()
    broker.prefix = ()
    await pair.slave.start()
    await pair.master.start()
    await wait_in_sync(pair.master.ports.listen)
    await wait_identical(*(each.store / "commitlog" for each in pair.brokers))
    for each in pair.brokers:
        assert load.acknowledged <= HeldMessages(each.store / "commitlog", "orders").read(torn=True)
