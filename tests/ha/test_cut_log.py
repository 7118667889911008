"""A log whose tail is cut under its readers: no slave keeps old bytes for new ones, none is counted for these."""

from math import inf

import pytest
import trio
from trio.testing import MockClock

from rmqha.ha.ha_service import HAService
from rmqha.ha.runtime_info import ConnectionState
from tests.fakes import MemoryNetwork
from tests.ha.harness import RawSlave, settle, start_master
from tests.memory_log import MemoryLog, records
from tests.settings import ha_options

DATA = records([bytes([i]) * 100 for i in range(10)])
CUT = len(records([bytes([i]) * 100 for i in range(4)]))
OTHER = records([bytes([i]) * 100 for i in range(4)] + [b"of this term"] * 9)[CUT:]


class Master:
    """A master, two slaves that hold all of its log, and who waits for them."""

    def __init__(self, nursery: trio.Nursery, *, send_durable_only: bool = False) -> None:
        self.nursery = nursery
        self.log = MemoryLog.holding(DATA)
        self.network = MemoryNetwork()
        self.options = ha_options(in_sync_replicas=2, ha_send_durable_only=send_durable_only)
        self.answers: list[tuple[bool, int]] = []

    async def start(self) -> HAService:
        return await start_master(self.nursery, self.network, self.log, self.options)

    async def follow(self, service: HAService, *, host: str, up_to: int, begin: int = 0) -> RawSlave:
        self.network.host = host
        slave = await RawSlave.connect(self.nursery, self.network, service.port)
        await slave.report(begin)
        await slave.report(up_to)
        return slave

    def wait_held(self, service: HAService, offset: int) -> None:
        service.group_transfer.acked.add(offset, inf, lambda reached, value: self.answers.append((reached, value)))


@pytest.mark.parametrize("send_durable_only", [False, True])
async def test_a_slave_that_was_sent_what_is_cut_compares_again(
    nursery: trio.Nursery, autojump_clock: MockClock, send_durable_only: bool
) -> None:
    master = Master(nursery, send_durable_only=send_durable_only)
    service = await master.start()
    slave = await master.follow(service, host="10.0.0.1", up_to=len(DATA))
    assert slave.reader.data == DATA
    master.log.truncate(CUT)
    master.log.extend(OTHER)
    await settle()
    assert (slave.is_cut, slave.reader.data) == (True, DATA), "no byte of the new tail follows the old one"
    again = await master.follow(service, host="10.0.0.1", begin=CUT, up_to=CUT)
    assert again.reader.data == OTHER
    assert [info.reason for info in service.info().departed] == []
    nursery.cancel_scope.cancel()


async def test_what_a_slave_acknowledged_before_a_cut_counts_for_nothing_behind_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    master = Master(nursery)
    service = await master.start()
    await master.follow(service, host="10.0.0.1", up_to=len(DATA))
    acked = service.group_transfer.acked
    assert acked.value == len(DATA)
    master.wait_held(service, len(DATA) + 100)
    master.log.truncate(CUT)
    assert (acked.value, master.answers) == (CUT, [(False, CUT)])
    master.log.extend(OTHER)
    master.wait_held(service, CUT + 1)
    late = await master.follow(service, host="10.0.0.2", up_to=CUT)
    assert (acked.value, len(master.answers)) == (CUT, 1), "the first slave's word is not for these bytes"
    await late.report(CUT + len(OTHER))
    assert (acked.value, master.answers[1:]) == (CUT + len(OTHER), [(True, CUT + len(OTHER))])
    nursery.cancel_scope.cancel()


async def test_a_slave_that_was_sent_nothing_of_what_is_cut_goes_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    master = Master(nursery)
    service = await master.start()
    slave = await master.follow(service, host="10.0.0.1", up_to=len(DATA))
    silent = await RawSlave.connect(nursery, master.network, service.port)
    master.log.truncate(len(DATA))
    await settle()
    assert (slave.is_cut, silent.is_cut) == (False, False)
    await silent.report(0)
    master.log.extend(b"x")
    await settle()
    assert slave.reader.data == silent.reader.data == DATA + b"x"
    assert {info.state for info in service.info().connections} <= {ConnectionState.IN_SYNC, ConnectionState.CATCH_UP}
    nursery.cancel_scope.cancel()


async def test_a_slave_that_does_not_read_is_not_sent_two_tails(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Half of a frame is on its way when the log is cut: its connection ends, whatever the line still takes."""
    master = Master(nursery)
    master.network = MemoryNetwork(capacity=CUT + 50)
    service = await master.start()
    stream = await master.network.connect("master", service.port, timeout_s=1.0)
    slave = RawSlave(stream)
    await slave.report(0)
    master.log.truncate(CUT)
    master.log.extend(OTHER)
    nursery.start_soon(slave.reader.run)
    await settle()
    assert slave.is_cut
    assert DATA.startswith(slave.reader.data)
    nursery.cancel_scope.cancel()
