"""How long a peer has been silent, told long before its connection is given up."""

import pytest
import trio
from trio.testing import MockClock

from tests.fakes import MemoryNetwork
from tests.ha.harness import RawSlave, settle, start_master, start_slave
from tests.memory_log import MemoryLog
from tests.settings import ha_client_options, ha_options


async def test_a_master_tells_when_it_last_heard_an_idle_slave(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(
        nursery, network, MemoryLog(), ha_options(ha_send_heartbeat_interval_s=5.0, ha_housekeeping_interval_s=20.0)
    )
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    await trio.sleep(7)
    info = service.info()
    (connection,) = info.connections
    assert info.heartbeat_s == 5.0
    assert connection.heard_s_ago == pytest.approx(7, abs=0.1)
    await slave.report(0)
    await settle()
    assert [one.heard_s_ago < 1 for one in service.info().connections] == [True]
    nursery.cancel_scope.cancel()


async def test_a_slave_tells_when_it_last_heard_its_master(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen("127.0.0.1", 0)
    client = start_slave(
        nursery, network, MemoryLog(), listener.port, options=ha_client_options(ha_housekeeping_interval_s=20.0)
    )
    assert client.info().heard_s_ago is None, "it has no connection"
    await listener.accept()
    await trio.sleep(7)
    assert client.info().heard_s_ago == pytest.approx(7, abs=0.1)
    await trio.sleep(14)
    assert (client.info().heard_s_ago or 0) < 2, "it has given that connection up"
    nursery.cancel_scope.cancel()
