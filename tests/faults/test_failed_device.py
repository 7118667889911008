"""A device that answers every call with EIO: under writes that is a refusal, under a read of a mapped page SIGBUS."""

import os
import signal

import trio

from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import Broker
from tests.e2e.pulling import Pulling
from tests.faults.conftest import MakePair
from tests.faults.proofs import all_there, all_there_after_restart, ends_acknowledgement, lost


async def test_a_device_that_fails_under_writes_is_an_honest_end(pair_on_image: MakePair) -> None:
    """Refused and said; with the device repaired nothing acknowledged is missing."""
    pair, image = pair_on_image("master", slaveTimeout=2_000)
    acknowledged = await ends_acknowledgement(
        pair,
        pair.master,
        breaks=image.fail,
        reason="Input/output error|Read-only file system",
        makes_readable=image.recover,
    )
    image.repair()
    await all_there_after_restart(pair, acknowledged)


async def test_a_page_that_cannot_be_read_ends_the_process_and_loses_nothing(pair_on_image: MakePair) -> None:
    """SIGBUS, with the place in the log; the slave has everything, and so has the master on a repaired device."""
    pair, image = pair_on_image("master")
    acknowledged = await _fill(pair)
    await pair.master.stop()
    await pair.master.start()
    await wait_in_sync(pair.master.ports.listen)
    _forget_pages(pair.master)
    image.fail()
    with trio.move_on_after(120):
        await _pull_the_oldest(pair.master)
    assert await pair.master.running.wait_exit() == -signal.SIGBUS
    assert "Bus error" in pair.master.running.output()
    assert not lost(acknowledged, pair.slave)
    image.recover()
    image.repair()
    await pair.master.start()
    await all_there(pair, acknowledged)


async def _fill(pair: Pair) -> set[int]:
    """Several segments, so that a start reads none of the first."""
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(20_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        nursery.cancel_scope.cancel()
    return load.acknowledged


def _forget_pages(broker: Broker) -> None:
    """The kernel lets go of the pages that nobody has touched since the start."""
    for path in broker.segments().values():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


async def _pull_the_oldest(broker: Broker) -> None:
    """A consumer from the beginning; the connection breaks."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", broker.ports.listen) as stream:
            await Pulling(stream).whole_queue("orders", 0)
    except (AssertionError, trio.BrokenResourceError):
        return
    raise AssertionError("the oldest messages were still in memory")
