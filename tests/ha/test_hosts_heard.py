"""HAService.hosts_heard: from where those come to the HA port that may be slaves."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import MemoryNetwork
from tests.ha.harness import RawSlave, settle, start_master
from tests.memory_log import MemoryLog


async def test_who_says_something_is_heard_until_half_a_minute_after_it_left(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A slave that cannot follow shows that it is there; it counts as none."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog())
    network.host = "10.0.0.2"
    slave = await RawSlave.connect(nursery, network, service.port)
    await settle()
    assert service.hosts_heard() == set(), "a bare connection says nothing, nor that TLS lets it in"
    await slave.send(bytes(1))
    assert (service.hosts_heard(), service.live_slaves) == ({"10.0.0.2"}, 0)
    slave.stream.close()
    await trio.sleep(29)
    assert service.hosts_heard() == {"10.0.0.2"}
    assert (service.info().refused, service.info().departed) == ((), ())
    await trio.sleep(2)
    assert service.hosts_heard() == set()
    nursery.cancel_scope.cancel()


async def test_a_slave_that_follows_is_heard_while_it_does(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog())
    network.host = "10.0.0.2"
    slave = await RawSlave.connect(nursery, network, service.port)
    for _ in range(20):
        await slave.report(0)
        await trio.sleep(5)
    assert service.hosts_heard() == {"10.0.0.2"}
    nursery.cancel_scope.cancel()


async def test_strangers_that_speak_something_else_are_not_heard_and_few_hosts_are_kept(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog())
    stranger = await RawSlave.connect(nursery, network, service.port)
    await stranger.send(b"GET / HTTP/1.1\r\n\r\n")
    assert (stranger.is_cut, service.hosts_heard()) == (True, set())
    for number in range(300):
        network.host = f"10.0.{number // 100}.{number % 100}"
        slave = await RawSlave.connect(nursery, network, service.port)
        await slave.send(bytes(1))
        slave.stream.close()
        await settle()
    assert len(service.hosts_heard()) == 256
    nursery.cancel_scope.cancel()


async def test_the_host_that_spoke_the_longest_time_ago_is_forgotten_first(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that comes again and again was forgotten for strangers that came once."""
    monkeypatch.setattr("rmqha.ha.ha_service._HOSTS_MAX", 2)
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog())
    for number in (1, 2, 1, 3):
        network.host = f"10.0.0.{number}"
        slave = await RawSlave.connect(nursery, network, service.port)
        await slave.send(bytes(1))
        slave.stream.close()
        await settle()
    assert service.hosts_heard() == {"10.0.0.1", "10.0.0.3"}
    nursery.cancel_scope.cancel()
