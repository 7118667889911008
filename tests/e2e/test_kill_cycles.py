"""kill -9 under load, again and again: every acknowledged message is there, and the logs end up byte-identical.

RMQHA_KILL_CYCLES sets how often (5 unless told; a release is tested with 84, times six kinds).
"""

import os

import pytest
import trio

from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size

CYCLES = int(os.environ.get("RMQHA_KILL_CYCLES", "5"))
MESSAGES_A_CYCLE = 300
pytestmark = pytest.mark.timeout(300 + 120 * CYCLES)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("victims", ["master", "slave", "master slave"])
async def test_no_kill_loses_an_acknowledged_message(pair: Pair, victims: str, flush: str) -> None:
    """After each kill both logs hold everything acknowledged so far; in the end they are equal."""
    for broker in pair.brokers:
        broker.conf["flushDiskType"] = flush
    killed = [broker for broker in pair.brokers if broker.directory.name in victims.split()]
    held = {broker: HeldMessages(broker.store / "commitlog", "orders") for broker in pair.brokers}
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
    await pair.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for _ in range(CYCLES):
            await load.wait_acknowledged(MESSAGES_A_CYCLE)
            for broker in killed:
                await broker.kill()
            acknowledged = set(load.acknowledged)
            for broker in pair.brokers:
                missing = acknowledged - held[broker].read(torn=True)
                assert not missing, f"the {broker.directory.name} lacks acknowledged {sorted(missing)[:5]}"
            for broker in killed:
                await broker.start()
        await load.wait_acknowledged(MESSAGES_A_CYCLE)
        nursery.cancel_scope.cancel()
    assert load.unexpected == []
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    assert [await broker.stop() for broker in pair.brokers] == [0, 0]
    for broker in pair.brokers:
        assert load.acknowledged <= HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
