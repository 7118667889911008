"""A slave behind a network that loses, delays, or carries in one direction only (#3484, #1118, #153).

The slave lives in a network namespace of its own; the test carries every packet to and from it. Clients reach the
master all the time: the bad case, as the master could answer them SEND_OK for what nobody else has.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import wait_status
from tests.e2e.conftest import Pair
from tests.e2e.load import FLUSH_SLAVE_TIMEOUT, SEND_OK, LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import reaping
from tests.faults.conftest import make_pair
from tests.faults.links import Link, RemoteBroker, linked_namespace, why_no_links
from tests.faults.proofs import all_there, lost, no_send_ok_any_more

MakeRemotePair = Callable[..., tuple[Pair, Link]]
IMPATIENT = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 1_000}
CUTS = [(True, True), (True, False), (False, True)]
CUT_NAMES = ["both", "to the slave", "to the master"]


@pytest.fixture
def remote_pair(tmp_path: Path) -> Iterator[MakeRemotePair]:
    """``make(**master's conf)``: a pair whose slave is reached over the link only, and no more patient."""
    if reason := why_no_links():
        pytest.skip(reason)
    with ExitStack() as stack:

        def make(**conf: object) -> tuple[Pair, Link]:
            link = stack.enter_context(linked_namespace())
            patience = {key: conf.get(key, value) for key, value in IMPATIENT.items()}
            pair = make_pair(tmp_path, **patience)
            slave = RemoteBroker(pair.slave.directory, pair.slave.conf, ports=pair.slave.ports)
            slave.move_to(link)
            slave.conf["haMasterAddress"] = f"{link.here}:{pair.master.ports.ha}"
            peers = f"{link.there}:{slave.ports.ha}"
            pair.master.conf |= {"haBindAddress": link.here, "allowInsecure": "true", "haPeers": peers, **conf}
            stack.enter_context(reaping(pair.master, slave))
            return Pair(pair.master, slave), link

        yield make


async def _started(pair: Pair) -> LoadProducer:
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    return LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))


@pytest.mark.parametrize(("out", "back"), CUTS, ids=CUT_NAMES)
async def test_a_partition_ends_send_ok_and_healing_brings_it_back(
    remote_pair: MakeRemotePair, out: bool, back: bool
) -> None:
    """Timeouts at first, then "no slave"; status and log say so; the slave has what was acknowledged all the time."""
    pair, link = remote_pair(slaveTimeout=300)
    load = await _started(pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        link.cut(out=out, back=back)
        await no_send_ok_any_more(load)
        assert not lost(load.acknowledged, pair.slave)
        await pair.master.running.wait_output("ha_connection.closed")
        await no_send_ok_any_more(load)
        await wait_status(pair.master, 1, says="slaves in sync: 0 of 0")
        link.heal()
        await load.wait_acknowledged(500)
        nursery.cancel_scope.cancel()
    assert load.unexpected == []
    await all_there(pair, load.acknowledged)


async def test_control_a_master_that_does_not_wait_loses_what_it_acknowledged(remote_pair: MakeRemotePair) -> None:
    """If this fails, the test above shows nothing: SEND_OK goes on, and the slave has nothing of it."""
    pair, link = remote_pair(brokerRole="ASYNC_MASTER")
    load = await _started(pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        link.cut()
        await load.wait_acknowledged(500)
        nursery.cancel_scope.cancel()
    assert load.refused == 0
    assert lost(load.acknowledged, pair.slave)


async def test_a_slave_that_lost_its_power_comes_back_beside_its_old_connection(remote_pair: MakeRemotePair) -> None:
    """No FIN and no RST: for the master the old connection stands on. The slave counts once, by the new one."""
    pair, link = remote_pair(slaveTimeout=300, haHousekeepingInterval=300_000)
    load = await _started(pair)
    port = int((await pair.master.running.wait_output(rf"{link.there}:(\d+)\".*transfer_started")).group(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        link.forget_connection(port)
        await pair.slave.kill()
        await no_send_ok_any_more(load)
        await pair.slave.start()
        await load.wait_acknowledged(500)
        await wait_status(pair.master, 1, says="slaves in sync: 1 of 2 connected")
        nursery.cancel_scope.cancel()
    assert load.unexpected == []
    await all_there(pair, load.acknowledged)


async def test_a_delay_beyond_the_slave_timeout_is_a_timeout_and_the_message_arrives(
    remote_pair: MakeRemotePair,
) -> None:
    """600 ms each way against a slaveTimeout of 1 s: every answer says so; with less delay they are SEND_OK again."""
    pair, link = remote_pair(slaveTimeout=1_000, haHousekeepingInterval=300_000)
    load = await _started(pair)
    link.out.delay_s = link.back.delay_s = 0.6
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_refused(100)
        assert load.codes.keys() == {FLUSH_SLAVE_TIMEOUT}
        link.out.delay_s = link.back.delay_s = 0.01
        await load.wait_acknowledged(100)
        nursery.cancel_scope.cancel()
    await all_there(pair, load.acknowledged)
    assert len(lost(set(range(load.sends.sent)), pair.slave)) <= load.window  # these were not even answered


async def test_a_slow_and_lossy_network_costs_time_and_nothing_else(remote_pair: MakeRemotePair) -> None:
    """20 ms each way and every tenth packet lost: SEND_OK for all, and equal logs."""
    pair, link = remote_pair(slaveTimeout=60_000, haHousekeepingInterval=300_000)
    load = await _started(pair)
    for way in (link.out, link.back):
        way.delay_s, way.lose_every = 0.02, 10
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        nursery.cancel_scope.cancel()
    assert load.codes.keys() == {SEND_OK}
    assert link.out.lost + link.back.lost > 10
    await all_there(pair, load.acknowledged)


async def test_a_flapping_network_loses_nothing(remote_pair: MakeRemotePair) -> None:
    """Cut in every way, for moments and for longer than anybody waits, under load."""
    pair, link = remote_pair(slaveTimeout=200)
    load = await _started(pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        for length_s in (0.05, 1.2):
            for out, back in CUTS:
                link.cut(out=out, back=back)
                await trio.sleep(length_s)
                link.heal()
                await load.wait_acknowledged(50)
        nursery.cancel_scope.cancel()
    assert load.unexpected == []
    await all_there(pair, load.acknowledged)
