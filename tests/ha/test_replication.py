"""Master and slave together, over an in-memory network."""

import trio
from trio.testing import MockClock

from rmqha.ha.ha_client import HAClient
from rmqha.ha.ha_service import HAService
from rmqha.ha.options import HAClientOptions, HAOptions
from rmqha.waiting import wait_reached
from tests.fakes import MemoryNetwork
from tests.memory_log import MemoryLog, records


async def test_a_slave_gets_everything(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    data = records([bytes([i % 250]) * (i * 7 % 900) for i in range(100)], file_size=4096, blank_rest=b"junk")
    master, slave = MemoryLog.holding(data), MemoryLog()
    service = HAService(master, network, HAOptions())
    port = await nursery.start(service.run)
    client = HAClient(slave, network, options=HAClientOptions(), chance=lambda: 0.0)
    nursery.start_soon(client.run)
    client.update_master_address("10.0.0.1", port)
    with trio.fail_after(60):
        assert await wait_reached(service.group_transfer.acked, len(data))
    assert slave.content() == data
    assert slave.flushed.value == len(data)
    nursery.cancel_scope.cancel()
