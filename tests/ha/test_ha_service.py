"""The serving side: who may come in, what an operator sees, and how it ends."""

import errno
from typing import NoReturn

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.errors import StoreReadError
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.runtime_info import ConnectionState
from rmqha.replication.watermark import Complete
from rmqha.transport import Network
from rmqha.waiting import wait_reached
from tests.fakes import MemoryNetwork, MemoryStream
from tests.ha.harness import FILE, RawSlave, settle, start_catch_up, start_master, start_slave, until
from tests.ha.java_standin import JavaLog, JavaSlave
from tests.memory_log import MemoryLog, records
from tests.settings import ha_client_options, ha_options

DATA = records([bytes([i]) * (i * 31 % 900) for i in range(40)])


async def connect_from(host: str, nursery: trio.Nursery, network: MemoryNetwork, port: int) -> RawSlave:
    network.host = host
    return await RawSlave.connect(nursery, network, port)


async def test_only_allowed_networks_get_in(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog(), ha_options(ha_allow=("10.1.0.0/16", "fd00::/8")))
    with capture_logs() as logs:
        slaves = [
            await connect_from(host, nursery, network, service.port)
            for host in ("10.1.2.3", "10.2.0.1", "10.2.0.1", "[fd00::5]", "127.0.0.1", "unknown")
        ]
        await settle()
    assert [slave.is_cut for slave in slaves] == [False, True, True, False, True, True]
    assert len([entry for entry in logs if entry["event"] == "accept_socket_service.refused"]) == 3, "once an address"
    assert {(info.address, info.count) for info in service.info().refused} == {
        ("10.2.0.1", 2),
        ("127.0.0.1", 1),
        ("unknown", 1),
    }
    nursery.cancel_scope.cancel()


async def test_connections_are_limited_overall_and_per_address(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(
        nursery, network, MemoryLog(), ha_options(max_ha_connections=3, max_ha_connections_per_address=2)
    )
    slaves = []
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"):
        slaves.append(await connect_from(host, nursery, network, service.port))
        await settle()
        if not slaves[-1].is_cut:
            await slaves[-1].report(0)
    assert [slave.is_cut for slave in slaves] == [False, False, True, False, True]
    slaves[0].stream.close()
    await settle()
    late = await connect_from("10.0.0.1", nursery, network, service.port)
    await settle()
    assert not late.is_cut
    nursery.cancel_scope.cancel()


async def test_who_has_proven_nothing_gives_way_to_a_slave(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Strangers take every place, some of them with a first report that fits; a slave gets in, and stays."""
    network = MemoryNetwork()
    log = MemoryLog.holding(DATA)
    service = await start_master(
        nursery, network, log, ha_options(max_ha_connections=4, ha_housekeeping_interval_s=60.0)
    )
    strangers = [await connect_from(f"10.0.9.{number}", nursery, network, service.port) for number in range(4)]
    for stranger in strangers[:2]:
        await stranger.report(0)  # a report that fits, and then nothing is acknowledged
    await trio.sleep(9.0)
    network.host = "10.0.0.1"
    start_slave(nursery, network, MemoryLog(), service.port)
    await settle()
    assert [stranger.is_cut for stranger in strangers] == [False, False, True, False], "the oldest that never reported"
    assert service.push2_slave_max_offset == len(DATA)
    await trio.sleep(0.5)
    for number in range(20):
        await connect_from(f"10.0.8.{number}", nursery, network, service.port)
        await settle()
    assert service.live_slaves == 3, "a slave that reported had ten seconds to acknowledge something"
    await trio.sleep(1.0)
    for number in range(20):
        await connect_from(f"10.0.8.{number}", nursery, network, service.port)
        await settle()
    assert [stranger.is_cut for stranger in strangers] == [True] * 4
    assert (service.live_slaves, service.push2_slave_max_offset) == (1, len(DATA))
    assert len(service.connections) == 4
    nursery.cancel_scope.cancel()


async def test_a_slave_on_its_way_back_does_not_give_way_to_strangers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its TLS handshake takes a while, and several hundred strangers a second let it out each time before its end."""
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log, ha_options(max_ha_connections=4))
    slave = await connect_from("10.0.0.1", nursery, network, service.port)
    await slave.report(1)
    await slave.report(len(DATA))
    slave.stream.close()
    back = await connect_from("10.0.0.1", nursery, network, service.port)
    for number in range(20):
        await connect_from(f"10.0.8.{number}", nursery, network, service.port)
        await settle()
    assert not back.is_cut
    await back.report(1)
    await back.report(len(DATA))
    assert service.push2_slave_max_offset == len(DATA)
    nursery.cancel_scope.cancel()


async def test_the_first_slave_after_a_start_does_not_give_way_to_strangers_if_it_is_a_peer(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Master and slave were started again, and no slave had come from anywhere: until the strangers left none could."""
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log, ha_options(max_ha_connections=4))
    start_catch_up(nursery, network, log, MasterAddress("10.0.0.1", 9)).watch_slaves(service)
    slave = await connect_from("10.0.0.1", nursery, network, service.port)
    for number in range(20):
        await connect_from(f"10.0.8.{number}", nursery, network, service.port)
        await settle()
    assert not slave.is_cut
    nursery.cancel_scope.cancel()


async def test_an_ipv4_peer_of_an_ipv6_listener_is_allowed_as_what_it_is(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog(), ha_options(ha_allow=("10.1.0.0/16",)))
    mapped = await connect_from("[::ffff:10.1.2.3]", nursery, network, service.port)
    other = await connect_from("[::ffff:10.2.2.3]", nursery, network, service.port)
    await settle()
    assert (mapped.is_cut, other.is_cut) == (False, True)
    nursery.cancel_scope.cancel()


async def test_stop_closes_the_port_and_connections_and_answers_who_waits(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    answers: list[bool] = []
    service.group_transfer.acked.add(len(DATA), 1000.0, lambda reached, _: answers.append(reached))
    service.stop()
    await settle()
    assert (slave.is_cut, answers, service.connections) == (True, [False], {})
    with pytest.raises(OSError, match="nobody listens"):
        await network.connect("master", service.port, timeout_s=1.0)


async def test_waiters_expire_each_at_his_own_deadline(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """None waits behind another one (spec: ha §15 row 17)."""
    service = await start_master(nursery, MemoryNetwork(), MemoryLog.holding(DATA))
    answered: list[tuple[str, float]] = []

    def note(name: str) -> Complete:
        return lambda _reached, _value: answered.append((name, trio.current_time()))

    for name, deadline in (("slow", 3.0), ("quick", 0.5)):
        service.group_transfer.acked.add(len(DATA), deadline, note(name))
    await trio.sleep(5.0)
    assert answered == [("quick", 0.5), ("slow", 3.0)]
    nursery.cancel_scope.cancel()


async def test_with_one_replica_nobody_waits_for_slaves(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    service = await start_master(nursery, MemoryNetwork(), MemoryLog(), ha_options(in_sync_replicas=1))
    answers: list[bool] = []
    service.group_transfer.acked.add(12345, 1.0, lambda reached, _: answers.append(reached))
    assert (service.is_slave_ok(12345), answers) == (True, [True])
    nursery.cancel_scope.cancel()


async def test_with_three_replicas_two_slaves_must_acknowledge(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=3))
    first = await connect_from("10.0.0.1", nursery, network, service.port)
    second = await connect_from("10.0.0.2", nursery, network, service.port)
    await first.report(500)
    await first.report(len(DATA))
    assert (service.group_transfer.acked.value, service.is_slave_ok(len(DATA)), service.live_slaves) == (0, False, 1)
    await second.report(400)
    assert service.group_transfer.acked.value == 0, "it may find that its log is another one"
    await second.report(500)
    assert (service.group_transfer.acked.value, service.is_slave_ok(len(DATA)), service.live_slaves) == (500, True, 2)
    assert service.info().replicated_offset == 500
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("at", [0, 1, 300, len(DATA)])
async def test_a_first_report_said_again_acknowledges_nothing(
    at: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """As a heartbeat, by a slave that has not compared the logs, or by anybody: nothing that was sent was taken."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(at, at)
    await slave.report(at)
    await trio.sleep(5.0)
    await slave.report(at)
    assert service.group_transfer.acked.value == (1 if at == 1 else 0), "byte 0 is the same in every log"
    assert not slave.is_cut
    nursery.cancel_scope.cancel()


async def test_a_slave_that_comes_back_confirms_what_it_is_sent_from_then_on(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """RocketMQ's slave asks from its end, so nobody knows what lies before that; what comes next is known at once."""
    network, log = MemoryNetwork(), MemoryLog()
    service = await start_master(nursery, network, log)
    transfer = service.group_transfer
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    log.extend(DATA[:1000], flush=False)
    await slave.report(400)
    slave.stream.close()
    await settle()
    again = await RawSlave.connect(nursery, network, service.port)
    await again.report(1000)
    await again.report(1000)
    assert (transfer.acked_from, transfer.acked.value, transfer.held_offset) == (0, 400, 400)
    assert service.is_slave_ok(1200)
    log.extend(DATA[1000:1200], flush=False)
    await again.report(1200)
    assert (transfer.acked_from, transfer.acked.value) == (1000, 1200)
    assert transfer.held_offset == 400, "consumers must not see what nobody is known to hold"
    log.flushed.advance(1000)
    assert transfer.held_offset == 1200
    nursery.cancel_scope.cancel()


async def test_cleaning_spares_what_the_slowest_slave_needs(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Not what the fastest needs; a connection that asked for nothing yet needs nothing."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    fast = await connect_from("10.0.0.1", nursery, network, service.port)
    slow = await connect_from("10.0.0.2", nursery, network, service.port)
    await connect_from("10.0.0.3", nursery, network, service.port)
    for slave, offset in ((fast, len(DATA)), (slow, 500)):
        await slave.report(500)
        await slave.report(offset)
    assert service.oldest_needed_offset() == 500
    await slow.report(900)
    assert service.oldest_needed_offset() == 900
    nursery.cancel_scope.cancel()


async def test_a_slave_that_has_just_come_and_lacks_what_was_there_before_is_not_in_sync(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It was for a second, and who waited for it at once, as scripts do behind a restart, went on 60 s too early."""
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(500)
    (info,) = service.info().connections
    assert (info.state, info.lag_bytes) == (ConnectionState.CATCH_UP, len(DATA) - 500)
    await slave.report(len(DATA))
    (info,) = service.info().connections
    assert (info.state, info.lag_bytes) == (ConnectionState.IN_SYNC, 0)
    nursery.cancel_scope.cancel()


async def test_what_an_operator_sees_of_a_connection(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    assert service.oldest_needed_offset() is None
    slave = await RawSlave.connect(nursery, network, service.port)
    await settle()
    (info,) = service.info().connections
    assert (info.state, info.slave_ack_offset, info.lag_bytes) == (ConnectionState.FIRST_REPORT_AWAITED, -1, FILE)
    await slave.report(FILE)
    (info,) = service.info().connections
    assert (info.state, info.lag_bytes, info.lag_s, info.eta_s) == (ConnectionState.IN_SYNC, 0, 0.0, 0.0)
    log.extend(DATA[FILE : FILE + 1000])
    await trio.sleep(4.0)
    (info,) = service.info().connections
    assert (info.state, info.lag_bytes, info.eta_s) == (ConnectionState.CATCH_UP, 1000, None)
    assert info.lag_s == pytest.approx(4.0, abs=0.1)
    assert info.next_transfer_from_where == FILE + 1000
    assert service.oldest_needed_offset() == FILE
    await slave.report(FILE + 500)
    (info,) = service.info().connections
    assert info.rate_bytes_s == pytest.approx(500 / 4.0, rel=0.1)
    assert info.eta_s == pytest.approx(4.0, rel=0.1)
    nursery.cancel_scope.cancel()


async def test_a_slave_of_old_history_lags_at_least_as_long_as_it_is_connected(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(100)
    await trio.sleep(10.0)
    (info,) = service.info().connections
    assert info.lag_s == pytest.approx(10.0, abs=0.1)
    nursery.cancel_scope.cancel()


async def test_a_slave_that_does_not_read_is_cut(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork(capacity=100)
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    stream = await network.connect("master", service.port, timeout_s=1.0)
    await stream.send_all(bytes(8))
    for _ in range(3):
        await trio.sleep(9.0)
        if not stream.incoming.ended:
            await stream.send_all(bytes(8))
    await settle()
    assert service.connections == {}
    assert "did not take a frame" in service.info().departed[0].reason
    nursery.cancel_scope.cancel()


async def test_a_slave_that_the_cleaning_overtakes_is_cut(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, log = MemoryNetwork(capacity=100), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log)
    slave = RawSlave(await network.connect("master", service.port, timeout_s=1.0))
    await slave.report(0)
    log.delete_first_file()
    log.delete_first_file()
    nursery.start_soon(slave.reader.run)
    await until(lambda: slave.is_cut)
    assert "too slow for the cleaning" in service.info().refused[0].message
    nursery.cancel_scope.cancel()


async def test_a_refusal_is_forgotten_when_the_slave_was_served(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    ahead = await RawSlave.connect(nursery, network, service.port)
    await ahead.report(len(DATA) + 1)
    assert len(service.info().refused) == 1
    again = await RawSlave.connect(nursery, network, service.port)
    await again.report(0)
    assert again.reader.frames == [], "it was ahead just now: not looked at for a second"
    await trio.sleep(1.0)
    assert again.reader.data == DATA
    again.stream.close()
    await settle()
    assert service.info().refused == ()
    nursery.cancel_scope.cancel()


async def test_a_refusal_is_not_forgotten_when_a_stranger_leaves(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    ahead = await RawSlave.connect(nursery, network, service.port)
    await ahead.report(len(DATA) + 1)
    stranger = await RawSlave.connect(nursery, network, service.port)
    await trio.sleep(2.0)
    stranger.stream.close()
    await settle()
    assert [info.reason for info in service.info().refused] == ["slave-ahead"]
    nursery.cancel_scope.cancel()


async def test_who_is_shown_out_before_he_was_looked_at_is_closed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    ahead = await RawSlave.connect(nursery, network, service.port)
    await ahead.report(len(DATA) + 1)
    waiting = await RawSlave.connect(nursery, network, service.port)
    await settle()
    service.stop()
    await settle()
    assert waiting.is_cut
    nursery.cancel_scope.cancel()


async def test_a_report_in_pieces_must_be_whole_in_time(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Later ones, too: each byte says that somebody is there, and acknowledges nothing."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    await trio.sleep(10.0)
    for _ in range(5):
        await slave.send(b"\0")
        await trio.sleep(4.0)
    assert slave.reader.ended_at == pytest.approx(30.0, abs=0.5)
    nursery.cancel_scope.cancel()


async def test_a_large_frame_is_sent_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Not again with the heartbeat after the small ones that followed it."""
    file_size = 1 << 20
    data = records([bytes([i]) * 90_000 for i in range(4)] + [b"small"] * 4, file_size=file_size)
    network, log = MemoryNetwork(), MemoryLog(file_size)
    service = await start_master(nursery, network, log, ha_options(ha_transfer_batch_size=file_size))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    await trio.sleep(6.0)
    log.extend(data[:300_000])
    await trio.sleep(1.0)
    for at in range(300_000, len(data), 10_000):
        log.extend(data[at : at + 10_000])
    await slave.report(0)
    await trio.sleep(15.0)
    assert slave.reader.data == data
    nursery.cancel_scope.cancel()


async def test_who_is_sent_data_needs_no_heartbeat(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(FILE)
    for at in range(FILE, FILE + 1000, 100):
        log.extend(DATA[at : at + 100])
        await trio.sleep(2.0)
    assert slave.reader.data == DATA[FILE : FILE + 1000]
    assert slave.reader.heartbeats == []
    nursery.cancel_scope.cancel()


class UnreadableLog(MemoryLog):
    """Cannot be read for a moment: no descriptor is left."""

    is_readable = True

    def view_range(self, offset: int, size: int) -> memoryview:
        if not self.is_readable:
            raise StoreReadError(OSError(errno.EMFILE, "too many open files"), operation="open", path="memory")
        return super().view_range(offset, size)


async def test_what_cannot_be_read_at_once_is_not_left_out(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A slave of RocketMQ's would take what follows for it, and acknowledge both."""
    network, log = MemoryNetwork(), UnreadableLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(FILE)
    assert isinstance(log, UnreadableLog)
    log.is_readable = False
    log.extend(DATA[FILE : FILE + 100])
    log.is_readable = True
    log.extend(DATA[FILE + 100 : FILE + 200])
    await settle()
    assert slave.reader.data == DATA[FILE : FILE + 200][: len(slave.reader.data)]
    assert slave.is_cut or len(slave.reader.data) == 200
    nursery.cancel_scope.cancel()


async def test_a_slave_that_is_back_is_not_turned_away(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """It stood still until its connection was given up. That says nothing against the one it has now."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    frozen = await RawSlave.connect(nursery, network, service.port)
    await frozen.report(0)
    await trio.sleep(25.0)
    assert ["no report for 20 s" in info.reason for info in service.info().departed] == [True]
    back = await RawSlave.connect(nursery, network, service.port)
    await settle()
    assert len(service.info().departed) == 1, "it has not said yet what it holds"
    await back.report(0)
    assert (service.info().departed, service.info().refused) == ((), ())
    again = await RawSlave.connect(nursery, network, service.port)
    await again.report(len(DATA) + 1)
    assert [(info.reason, info.count) for info in service.info().refused] == [("slave-ahead", 1)], "that one is not"
    nursery.cancel_scope.cancel()


async def test_an_old_connection_given_up_says_nothing_against_the_new_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    lost = await RawSlave.connect(nursery, network, service.port)
    await lost.report(0)
    await trio.sleep(10.0)
    new = await RawSlave.connect(nursery, network, service.port)
    for _ in range(4):
        await new.report(0)
        await trio.sleep(5.0)
    assert (lost.is_cut, new.is_cut) == (True, False)
    assert (service.info().departed, service.info().refused) == ((), ())
    network.host = "10.0.0.9"
    other = await RawSlave.connect(nursery, network, service.port)
    await other.report(0)
    for _ in range(5):
        await new.report(0)
        await trio.sleep(5.0)
    assert [info.peer for info in service.info().departed] == [other.peer], "nobody has come back from there"
    nursery.cancel_scope.cancel()


async def test_slaves_chain(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A slave serves its log to slaves of its own, and new bytes go all the way down."""
    network: MemoryNetwork = MemoryNetwork()
    _: Network = network
    logs = [MemoryLog.holding(DATA[:FILE]), MemoryLog(), MemoryLog()]
    services = [await start_master(nursery, network, log) for log in logs]
    for upper, lower in ((0, 1), (1, 2)):
        start_slave(nursery, network, logs[lower], services[upper].port, options=ha_client_options())
    await until(lambda: logs[2].max_offset == FILE)
    logs[0].extend(DATA[FILE:])
    with trio.fail_after(1.0):
        assert await wait_reached(services[1].group_transfer.acked, len(DATA))
    assert logs[2].content() == DATA
    nursery.cancel_scope.cancel()


async def test_what_keeps_up_is_sent_before_the_append_returns(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = RawSlave(await network.connect("master", service.port, timeout_s=1.0))
    await slave.report(FILE)
    log.extend(DATA[FILE : FILE + 300])
    assert isinstance(slave.stream, MemoryStream)
    assert slave.stream.incoming.size == 12 + 300
    log.extend(DATA[FILE + 300 : 2 * FILE + 50])
    assert slave.stream.incoming.size == 12 + 300 + 12 + (FILE - 300) + 12 + 50
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("capacity", [5, 12, 100])
async def test_what_a_full_line_does_not_take_at_once_follows_in_order(
    capacity: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = RawSlave(await network.connect("master", service.port, timeout_s=1.0))
    await slave.report(FILE)
    assert isinstance(slave.stream, MemoryStream)
    slave.stream.incoming.capacity = capacity
    for at in range(FILE, len(DATA), 1000):
        log.extend(DATA[at : at + 1000])
    nursery.start_soon(slave.reader.run)
    await until(lambda: len(slave.reader.data) == len(DATA) - FILE)
    assert slave.reader.data == DATA[FILE:]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("room", [0, 12, 1000, 1 << 20])
async def test_what_came_in_several_frames_is_followed_by_what_comes_next(
    room: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """After an append of several frames and a heartbeat's pause, another one, into a line that takes so much of it."""
    file_size = 1 << 20
    data = records([bytes([i]) * 90_000 for i in range(8)], file_size=file_size)
    network, log = MemoryNetwork(), MemoryLog(file_size)
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    log.extend(data[:40_000])
    await trio.sleep(6.0)
    assert isinstance(slave.stream, MemoryStream)
    slave.stream.incoming.capacity = room
    log.extend(data[40_000:500_000])
    slave.stream.incoming.capacity = 1 << 20
    slave.stream.incoming.wake()
    await settle()
    log.extend(data[500_000:])
    await settle()
    assert slave.reader.data == data
    nursery.cancel_scope.cancel()


async def test_a_slave_that_checks_nothing_acknowledges_nothing_else_than_what_is_here(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """RocketMQ's slaves store whatever follows a frame's header: a frame that is cut short would be taken for held."""
    file_size = 1 << 20
    data = records([bytes([i]) * 90_000 for i in range(4)], file_size=file_size)
    network, log = MemoryNetwork(), MemoryLog(file_size)
    service = await start_master(nursery, network, log)
    slave = JavaSlave(network, service.port, JavaLog(file_size))
    nursery.start_soon(slave.run)
    await until(lambda: service.live_slaves == 1)
    log.extend(data[:40_000])
    await trio.sleep(6.0)
    network.connections[0].incoming.capacity = 1000
    log.extend(data[40_000:])
    await settle()
    held = service.group_transfer.acked.value
    assert slave.log.content()[:held] == data[:held]
    nursery.cancel_scope.cancel()


async def test_much_at_once_is_left_to_the_sending_task(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    file_size = 1 << 20
    data = records([bytes([i]) * 100_000 for i in range(8)], file_size=file_size)
    network, log = MemoryNetwork(), MemoryLog(file_size)
    service = await start_master(nursery, network, log, ha_options(ha_transfer_batch_size=file_size))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    log.extend(data)
    await until(lambda: slave.reader.data == data)
    nursery.cancel_scope.cancel()


async def test_a_line_that_breaks_inside_an_append_ends_only_its_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = RawSlave(await network.connect("master", service.port, timeout_s=1.0))
    await slave.report(FILE)
    slave.stream.close()
    log.extend(DATA[FILE:])
    await settle()
    assert service.connections == {}
    nursery.cancel_scope.cancel()


class BuggySession:
    """Stands for any method of a session: nobody raises this on purpose."""

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise ZeroDivisionError("a bug")


@pytest.mark.meets_bugs
@pytest.mark.parametrize("method", ["on_report", "next_action", "on_sent", "on_read"])
async def test_a_bug_met_by_one_connection_ends_that_one_alone(
    method: str, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    other = await connect_from("10.0.0.2", nursery, network, service.port)
    await other.report(FILE)
    unlucky = await connect_from("10.0.0.1", nursery, network, service.port)
    await settle()
    (connection,) = [one for one in service.connections.values() if one.peer.startswith("10.0.0.1:")]
    monkeypatch.setattr(connection.session, method, BuggySession())
    with capture_logs() as logs:
        await unlucky.report(0)
        log.extend(DATA[FILE : FILE + 500])
        await settle()
    assert (unlucky.is_cut, other.is_cut, other.reader.data) == (True, False, DATA[FILE : FILE + 500])
    assert service.info().connections_broken == 1
    (told,) = [entry for entry in logs if entry["event"] == "ha_connection.broken"]
    assert (told["log_level"], told["reason"]) == ("error", "ZeroDivisionError('a bug')")
    assert told["exc_info"].__traceback__ is not None
    nursery.cancel_scope.cancel()


@pytest.mark.meets_bugs
async def test_a_bug_met_while_an_append_sends_is_not_the_append_s(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(FILE)
    (connection,) = service.connections.values()
    monkeypatch.setattr(connection.session, "next_action", BuggySession())
    log.extend(DATA[FILE : FILE + 500])
    assert not slave.is_cut
    await settle()
    assert (slave.is_cut, service.bugs, log.max_offset) == (True, 1, FILE + 500)
    nursery.cancel_scope.cancel()


async def test_two_connections_from_one_port_are_two(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    old = await RawSlave.connect(nursery, network, service.port)
    await old.report(0)
    network.next_port -= 1
    new = await RawSlave.connect(nursery, network, service.port)
    await new.report(0)
    assert [info.peer for info in service.info().connections] == ["10.0.0.1:20002"] * 2
    old.stream.close()
    await settle()
    await new.report(len(DATA))
    assert (len(service.connections), service.group_transfer.acked.value) == (1, len(DATA))
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_told_late", [True, False])
async def test_an_empty_slave_of_rocketmq_is_not_spoilt_while_it_is_not_known_where_the_log_begins(
    is_told_late: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It made its file 0 by a heartbeat, and appended there what begins later: it had to be emptied a second time."""
    network, log, java = MemoryNetwork(), MemoryLog(), JavaLog(FILE)
    service = await start_master(nursery, network, log)
    service.is_begin_awaited = lambda: is_told_late and log.max_offset == 0
    nursery.start_soon(JavaSlave(network, service.port, java).run)
    await trio.sleep(50)
    assert (java.files == {}) is is_told_late
    data = records([bytes(100)] * 40)
    begin = FILE if is_told_late else 0
    log.start_at(begin)
    log.append_raw(memoryview(data)[begin : begin + FILE], begin)
    await trio.sleep(50)
    assert (java.min_offset, java.content()) == (begin, log.content())
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("in_sync_replicas", [1, 2])
async def test_what_a_slave_took_is_proven_when_it_has_left_too(
    in_sync_replicas: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """One slave at least, where sends wait for none. What it says first proves nothing."""
    network = MemoryNetwork()
    service = await start_master(
        nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=in_sync_replicas)
    )
    slave = await connect_from("10.0.0.1", nursery, network, service.port)
    await slave.report(500)
    assert service.info().proven_offset == 0
    await slave.report(600)
    assert service.info().proven_offset == 600
    slave.stream.close()
    await settle()
    assert (service.info().proven_offset, service.info().push2_slave_max_offset) == (600, 0)
    service.group_transfer.cut(550)
    assert service.info().proven_offset == 550
    nursery.cancel_scope.cancel()
