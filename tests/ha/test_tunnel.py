"""A tunnel in front of the HA port, as stunnel's or ssh's: its slaves come from one address, which is not theirs."""

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.ha.ha_service import HAService
from tests.fakes import MemoryNetwork
from tests.ha.harness import RawSlave, settle, start_master
from tests.memory_log import MemoryLog, records
from tests.settings import ha_options

DATA = records([b"x" * 100] * 4)
HERE = "127.0.0.1"


async def slave_here(
    nursery: trio.Nursery, network: MemoryNetwork, service: HAService, *, host: str = HERE
) -> RawSlave:
    """Connects from this host, and takes all that there is."""
    network.host = host
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    await slave.report(len(DATA))
    return slave


async def test_a_slave_that_connects_twice_through_a_tunnel_is_one_acknowledgement(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The tunnel keeps the old connection open while the slave is back by another one: SEND_OK was said of one copy."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=3))
    for _ in range(2):
        await slave_here(nursery, network, service)
    assert (service.live_slaves, service.is_slave_ok(len(DATA)), service.group_transfer.acked.value) == (1, False, 0)
    nursery.cancel_scope.cancel()


async def test_slaves_of_one_host_count_as_soon_as_they_have_said_their_names(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Sends that wait are answered then, and the log says that enough slaves are there.

    Who says another name for one of them, from the same host, makes one slave of two until that one says its own again.
    """
    network = MemoryNetwork()
    with capture_logs() as logs:
        service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=3))
        one, two = [await slave_here(nursery, network, service) for _ in range(2)]
        service.name_slave(HERE, one.stream.local_port, "pair/1")
        assert (service.live_slaves, service.group_transfer.acked.value) == (1, 0), "the other one may be it, too"
        service.name_slave(HERE, two.stream.local_port, "pair/2")
        service.name_slave(HERE, two.stream.local_port, "pair/1")
        assert service.live_slaves == 1
        service.name_slave(HERE, two.stream.local_port, "pair/2")
    assert (service.live_slaves, service.group_transfer.acked.value) == (2, len(DATA))
    assert [entry["slaves"] for entry in logs if entry["event"] == "ha_service.in_sync"] == [2, 2]
    nursery.cancel_scope.cancel()


async def test_two_slaves_that_turn_out_to_be_one_are_missed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=3))
    slaves = {host: await slave_here(nursery, network, service, host=host) for host in ("10.0.0.1", "10.0.0.2")}
    assert service.live_slaves == 2
    with capture_logs() as logs:
        for host, slave in slaves.items():
            service.name_slave(host, slave.stream.local_port, "pair/1")
    assert service.live_slaves == 1
    (entry,) = [entry for entry in logs if entry["event"] == "ha_service.not_in_sync"]
    assert (entry["slaves"], entry["name"]) == (1, "pair/1")
    assert "they are one slave" in entry["reason"]
    nursery.cancel_scope.cancel()


async def test_a_slave_of_this_host_may_say_its_name_by_the_other_family(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """``localhost`` is ``::1`` for the one port and 127.0.0.1 for the other: it was never known, nor counted."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=3))
    for number in (1, 2):
        slave = await slave_here(nursery, network, service, host="[::1]")
        service.name_slave(HERE, slave.stream.local_port, f"pair/{number}")
    assert [one.name for one in service.info().connections] == ["pair/1", "pair/2"]
    assert service.group_transfer.acked.value == len(DATA)
    nursery.cancel_scope.cancel()


async def test_of_slaves_behind_a_tunnel_the_last_one_that_goes_is_missed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    one, two = [await slave_here(nursery, network, service) for _ in range(2)]
    one.stream.close()
    await settle()
    assert service.info().departed == ()
    two.stream.close()
    await settle()
    assert [gone.peer for gone in service.info().departed] == [two.peer]
    nursery.cancel_scope.cancel()
