"""The seed case: a file system turns read-only under its writer (reported against RocketMQ as #2706, #3129, #3484).

RocketMQ 4.9.7 answered SEND_OK on, 20,377 times, over such a disk.
"""

import re

import trio

from rmqha.exit_codes import EXIT_STORE_FAILED
from tests.e2e.commands import rmqha
from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.pulling import Pulling
from tests.faults.conftest import MakePair

_DISK_FAILED = r"Read-only file system|Input/output error"  # the first flush after the flip may say the latter


async def _served(port: int) -> set[int]:
    """The numbers of the messages that consumers still get."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        pulling = Pulling(stream)
        return {
            int(record.properties["UNIQ_KEY"])
            for queue_id in range(4)
            for record in await pulling.whole_queue("orders", queue_id)
        }


async def _all_there_after_restart(pair: Pair, acknowledged: set[int]) -> None:
    await pair.slave.start()
    await pair.master.start()
    await wait_in_sync(pair.master.ports.listen)
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    for broker in pair.brokers:
        await broker.kill()
        missing = acknowledged - HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
        assert not missing, f"the {broker.directory.name} lacks acknowledged {sorted(missing)[:5]}"


async def test_a_master_on_a_disk_turned_read_only_acknowledges_nothing_more(pair_on_image: MakePair) -> None:
    """No SEND_OK from then on, refusals that say why, the reason in the log and the exit code, and no loss."""
    pair, image = pair_on_image("master")
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(1_000)
        image.turn_read_only()
        await load.wait_refused(100)
        final = len(load.acknowledged)
        await load.wait_refused(100)
        assert len(load.acknowledged) == final
        nursery.cancel_scope.cancel()
    await pair.master.running.wait_output(_DISK_FAILED)
    code, out, _ = await rmqha("status", "-b", pair.master.address)
    assert code == 1
    assert re.search(_DISK_FAILED, out)
    assert len(await _served(pair.master.ports.listen)) > 100  # the last ones may be missing in the queues' files
    assert await pair.master.stop() == EXIT_STORE_FAILED
    held = HeldMessages(pair.slave.store / "commitlog", "orders").read(torn=True)
    assert load.acknowledged <= held
    await pair.slave.stop()
    image.repair()
    await _all_there_after_restart(pair, load.acknowledged)


async def test_a_slave_on_a_disk_turned_read_only_stops_acknowledging(pair_on_image: MakePair) -> None:
    """The master says at each send that no slave has it; nothing acknowledged is lost."""
    pair, image = pair_on_image("slave")
    pair.master.conf["slaveTimeout"] = 500
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(1_000)
        image.turn_read_only()
        await load.wait_refused(100)
        final = len(load.acknowledged)
        await load.wait_refused(100)
        assert len(load.acknowledged) == final
        nursery.cancel_scope.cancel()
    await pair.slave.running.wait_output(_DISK_FAILED)
    assert await pair.slave.stop() == EXIT_STORE_FAILED
    assert await pair.master.stop() == 0
    image.repair()
    await _all_there_after_restart(pair, load.acknowledged)
