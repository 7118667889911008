"""The conformance checklist of the replication protocol (spec: ha §18), one test or more for each item.

The peers are byte-exact stand-ins of RocketMQ 4.9.8 (java_standin.py, held to the captures by test_java_standin.py)
or connections made by hand. Item 16, metadata, is the broker's: tests/broker and tests/interop.
"""

import errno
from itertools import pairwise

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.choices import HaAck
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transfer import BODY_SIZE_MAX, encode_frame_header, encode_report
from rmqha.errors import DivergedLogError, errors_in
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.runtime_info import ClientState, ConnectionState
from rmqha.replication.master_session import LogRange
from tests.fakes import MemoryNetwork
from tests.ha.harness import FILE, RawMaster, RawSlave, settle, start_catch_up, start_master, start_slave, until
from tests.ha.java_standin import JavaLog, JavaMaster, JavaSlave
from tests.memory_log import MemoryLog, record, records
from tests.settings import ha_client_options, ha_options

DATA = records([bytes([i]) * (i * 31 % 900) for i in range(40)], blank_rest=b"stale")
assert len(DATA) > 4 * FILE


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


# ---- 1, 2, 3: beginnings, heartbeats, silence


async def test_checklist_01_a_slave_silent_for_six_seconds_gets_the_log_from_a_file_boundary(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA)
    log.delete_first_file()
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await trio.sleep(6.0)
    assert (slave.is_cut, slave.reader.frames) == (False, []), "nothing is sent before the first report"
    await slave.report(0)
    await until(lambda: len(slave.reader.data) == len(DATA) - FILE)
    assert slave.reader.frames[0].offset == FILE
    assert slave.reader.data == DATA[FILE:]
    nursery.cancel_scope.cancel()


async def test_checklist_01_a_java_slave_gets_everything(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = JavaSlave(network, service.port, JavaLog(FILE))
    nursery.start_soon(slave.run)
    await until(lambda: slave.log.content() == DATA)
    assert 5.0 <= trio.current_time() <= 6.1, "a Java slave speaks after 5 to 6 s"
    await until(lambda: service.group_transfer.acked.value == len(DATA))
    nursery.cancel_scope.cancel()


async def test_checklist_02_an_idle_pair_heartbeats_every_five_to_six_seconds_for_ten_minutes(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log)
    slave = JavaSlave(network, service.port, JavaLog(FILE))
    nursery.start_soon(slave.run)
    watched = await RawSlave.connect(nursery, network, service.port)
    await watched.report(len(DATA))
    for _ in range(60):
        await trio.sleep(10.0)
        await watched.report(len(DATA))
    assert len(slave.connections) == 1
    assert not watched.is_cut
    beats = [frame.t for frame in watched.reader.heartbeats]
    assert {frame.offset for frame in watched.reader.heartbeats} == {len(DATA)}
    assert all(4.99 < later - earlier < 6.0 for earlier, later in pairwise(beats))
    assert len(beats) > 100
    nursery.cancel_scope.cancel()


async def test_checklist_02_our_slave_heartbeats_at_least_every_five_seconds(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    master = JavaMaster(JavaLog.holding(DATA, file_size=FILE))
    port = await nursery.start(master.run, network)
    log = MemoryLog()
    client = start_slave(nursery, network, log, port, probe_master=holding(0, len(DATA)))
    await until(lambda: log.content() == DATA)
    await trio.sleep(600.0)
    assert client.info().connections == 1
    assert master.closes == []
    assert master.push2_slave_max_offset == len(DATA)
    nursery.cancel_scope.cancel()


async def test_checklist_03_a_master_closes_after_twenty_seconds_without_a_report(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    silent = await RawSlave.connect(nursery, network, service.port)
    reporting = await RawSlave.connect(nursery, network, service.port)
    await trio.sleep(6.0)  # as late as a RocketMQ slave
    await reporting.report(0)
    reported_at = trio.current_time()
    await until(lambda: reporting.is_cut)
    assert silent.reader.ended_at == pytest.approx(10.0, abs=0.05)
    assert reporting.reader.ended_at == pytest.approx(reported_at + 20.0, abs=0.05)
    nursery.cancel_scope.cancel()


async def test_checklist_03_a_slave_closes_after_twenty_seconds_without_a_frame(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    master = RawMaster()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, MemoryLog(), master.port)
    await trio.sleep(19.9)
    assert master.ended_at == [None]
    assert len(master.reports()) >= 4
    await trio.sleep(0.2)
    assert master.ended_at[0] == pytest.approx(20.0, abs=0.05)
    assert "not even a heartbeat" in client.info().last_error
    nursery.cancel_scope.cancel()


# ---- 4, 5, 6, 7: bytes


@pytest.mark.parametrize("size", [1, 32 * 1024, 160 * 1024, 4 * 1024 * 1024])
async def test_checklist_04_records_of_all_sizes_arrive_byte_identical_in_both_directions(
    size: int, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    file_size = 10 << 20
    data = records([bytes([i % 251]) * size for i in range(3)], file_size=file_size)
    service = await start_master(nursery, network, MemoryLog.holding(data, file_size=file_size))
    slave = JavaSlave(network, service.port, JavaLog(file_size))
    nursery.start_soon(slave.run)
    port = await nursery.start(JavaMaster(JavaLog.holding(data, file_size=file_size)).run, network)
    ours = MemoryLog(file_size)
    start_slave(nursery, network, ours, port, probe_master=holding(0, len(data)))
    await until(lambda: len(slave.log.content()) == len(data) == ours.max_offset)
    assert slave.log.content() == data
    assert ours.content() == data
    nursery.cancel_scope.cancel()


async def test_checklist_05_blanks_arrive_no_frame_crosses_and_a_restart_at_the_boundary_goes_on(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    watched = await RawSlave.connect(nursery, network, service.port)
    await watched.report(0)
    ours = MemoryLog()
    async with trio.open_nursery() as first_life:
        start_slave(first_life, network, ours, service.port)
        await until(lambda: ours.flushed.value == FILE)
        first_life.cancel_scope.cancel()
    assert ours.content() == DATA[:FILE], "the blank is there to its last, stale byte"
    again = ours.crash()
    start_slave(nursery, network, again, service.port)
    await settle()
    log.extend(DATA[FILE:])
    await until(lambda: again.max_offset == len(DATA))
    assert again.content() == DATA
    assert all(f.offset // FILE == (f.offset + len(f.data) - 1) // FILE for f in watched.reader.frames if f.data)
    nursery.cancel_scope.cancel()


async def test_checklist_06_reports_may_come_in_pieces_and_in_any_number(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.send(encode_report(0)[:1])
    await slave.send(encode_report(0)[1:])
    await until(lambda: len(slave.reader.data) == len(DATA))
    await slave.report(100, 200, 300)
    assert service.push2_slave_max_offset == 300
    many = b"".join(encode_report(300 + i // 64) for i in range(140_000))
    for at in range(0, len(many), 100_003):
        await slave.send(many[at : at + 100_003])
    assert service.push2_slave_max_offset == 300 + 139_999 // 64
    assert not slave.is_cut
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("step", [1, 11, 12, 13, 700])
async def test_checklist_07_frames_may_be_cut_anywhere(
    step: int, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Two frames in a segment, header alone, body later; every cut position: tests/replication/test_slave_session."""
    master = RawMaster()
    await nursery.start(master.run, network)
    log = MemoryLog()
    start_slave(nursery, network, log, master.port)
    await settle()
    data = DATA[:1500]
    wire = b"".join(
        encode_frame_header(at, len(data[at : at + 400])) + data[at : at + 400] for at in range(0, 1500, 400)
    )
    for at in range(0, len(wire), step):
        await master.streams[0].send_all(wire[at : at + step])
        if at % 5 == 0:
            await settle()
    await settle()
    assert DATA.startswith(log.content())
    assert len(log.content()) > 800
    assert master.reports()[-1] == log.max_offset
    nursery.cancel_scope.cancel()


# ---- 8, 9, 10: what must not be believed


@pytest.mark.parametrize("beyond", [1, 2**63 - 1 - len(DATA)])
async def test_checklist_08_a_first_report_beyond_the_end_is_closed_and_counts_nowhere(
    beyond: int, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log)
    with capture_logs() as logs:
        slave = await RawSlave.connect(nursery, network, service.port)
        await slave.report(len(DATA) + beyond)
        assert slave.is_cut
        for _ in range(5):  # it comes again and again: said once
            again = await RawSlave.connect(nursery, network, service.port)
            await again.report(len(DATA) + beyond)
            await trio.sleep(2.0)
            assert again.is_cut
    assert not service.is_slave_ok(len(DATA) + 100), "a put is answered SLAVE_NOT_AVAILABLE"
    assert service.group_transfer.acked.value == 0
    assert service.push2_slave_max_offset == 0
    assert [entry["refusal"] for entry in logs if entry["event"] == "ha_connection.refused"] == ["slave-ahead"]
    (refused,) = service.info().refused
    assert (refused.reason, refused.count, refused.offset) == ("slave-ahead", 6, len(DATA) + beyond)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"12345678", "text"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"nineteen characters", "text"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "TLS"),
        (bytes.fromhex("00000001000000000000000000000002"), "controller mode"),
        (b"\xff" * 8, "negative"),
    ],
)
async def test_checklist_09_strangers_have_no_effect_on_acknowledgement(
    sent: bytes, reason: str, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    answered: list[bool] = []
    service.group_transfer.acked.add(len(DATA), 30.0, lambda reached, _: answered.append(reached))
    stranger = await RawSlave.connect(nursery, network, service.port)
    await stranger.send(sent)
    assert (stranger.is_cut, answered, service.is_slave_ok(len(DATA))) == (True, [], False)
    assert reason in service.info().refused[0].message
    await trio.sleep(31.0)
    assert answered == [False]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("piece", [1, 3, 8, 9])
@pytest.mark.parametrize("sent", [RemotingCommand(105).encode(), bytes.fromhex("00000001000000000000000000000002")])
async def test_checklist_09_strangers_are_recognised_wherever_the_network_cuts(
    sent: bytes, piece: int, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    stranger = await RawSlave.connect(nursery, network, service.port)
    for at in range(0, 16, piece):
        if not stranger.is_cut:
            await stranger.send(sent[at : min(at + piece, 16)])
            await trio.sleep(0.01)
    assert stranger.is_cut
    (refused,) = service.info().refused
    assert refused.reason == "stranger"
    nursery.cancel_scope.cancel()


async def test_checklist_09_a_report_that_may_be_a_strangers_is_judged_a_moment_later(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(1 << 32)
    await trio.sleep(0.9)
    assert not slave.is_cut
    await trio.sleep(0.2)
    assert slave.is_cut
    (refused,) = service.info().refused
    assert refused.reason == "slave-ahead"
    nursery.cancel_scope.cancel()


async def test_checklist_09_less_than_a_report_is_cut_after_ten_seconds(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    stranger = await RawSlave.connect(nursery, network, service.port)
    await stranger.send(b"ping")
    await until(lambda: stranger.is_cut)
    assert stranger.reader.ended_at == pytest.approx(10.0, abs=0.1)
    nursery.cancel_scope.cancel()


async def test_checklist_10_the_largest_frame_is_taken(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    file_size = 5 << 20
    first = record(0, b"a" * (3 << 20))
    data = first + record(len(first), b"b" * (BODY_SIZE_MAX - len(first) - 92))
    assert len(data) == BODY_SIZE_MAX
    master, log = RawMaster(), MemoryLog(file_size)
    await nursery.start(master.run, network)
    start_slave(nursery, network, log, master.port)
    await settle()
    await master.send(encode_frame_header(0, BODY_SIZE_MAX) + data)
    assert log.content() == data
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "header",
    [
        (0).to_bytes(8, "big") + (BODY_SIZE_MAX + 1).to_bytes(4, "big"),
        (0).to_bytes(8, "big") + b"\xff\xff\xff\xff",
        encode_frame_header(1, 92),
        encode_frame_header(0, FILE + 1),
    ],
)
async def test_checklist_10_an_impossible_frame_is_refused_and_nothing_stored(
    header: bytes, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    master, log = RawMaster(), MemoryLog()
    await nursery.start(master.run, network)
    start_slave(nursery, network, log, master.port)
    await settle()
    await master.send(encode_frame_header(0, 0) + header + DATA[: FILE + 1])
    assert log.max_offset == 0
    assert master.ended_at[0] is not None
    assert master.reports(0) == [0]
    nursery.cancel_scope.cancel()


# ---- 11, 12, 13, 14, 15: failures


async def test_checklist_11_a_slave_that_leaves_takes_its_acknowledgement_along(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    fast = await RawSlave.connect(nursery, network, service.port)
    slow = await RawSlave.connect(nursery, network, service.port)
    await fast.report(FILE)
    await slow.report(500)
    fast.stream.close()
    await settle()
    assert service.push2_slave_max_offset == 500
    log.extend(DATA[FILE : 2 * FILE])
    answered: list[float] = []
    service.group_transfer.acked.add(2 * FILE, 100.0, lambda reached, _: answered.append(trio.current_time() * reached))
    await trio.sleep(1.0)
    assert answered == []
    await slow.report(2 * FILE)
    assert answered == [pytest.approx(1.0, abs=0.1)]
    nursery.cancel_scope.cancel()


async def test_checklist_12_what_a_slave_acknowledged_survives_its_power_cut(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA)
    service = await start_master(
        nursery, network, log, ha_options(ha_transfer_size_max=1024, ha_transfer_batch_size=512)
    )
    slave = MemoryLog(flush_s=0.5)
    async with trio.open_nursery() as life:
        start_slave(life, network, slave, service.port)
        await until(lambda: slave.max_offset == len(DATA))
        assert service.push2_slave_max_offset < len(DATA), "written, but not yet durable"
        await until(lambda: service.push2_slave_max_offset > 0)
        acked = service.push2_slave_max_offset
        after = slave.crash()
        life.cancel_scope.cancel()
    assert acked <= after.max_offset
    assert after.content() == DATA[: after.max_offset]
    assert slave.flushes < 5, "frames share a flush"
    nursery.cancel_scope.cancel()


def holding(start: int, end: int) -> "ProbeAnswer":
    return ProbeAnswer(LogRange(start, end))


class ProbeAnswer:
    """What code 28 answers."""

    def __init__(self, answer: LogRange) -> None:
        self.answer = answer

    async def __call__(self, _: MasterAddress) -> LogRange:
        await trio.lowlevel.checkpoint()
        return self.answer


@pytest.mark.parametrize("probed", [True, False])
async def test_checklist_13_a_slave_ahead_keeps_its_tail_and_raises_an_alarm(
    probed: bool, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The master lost its unflushed tail; nothing is acknowledged by the slave's, and nothing is cut."""
    lost = len(DATA) // FILE * FILE + 150
    lost = next(end for n in range(40) if (end := len(records([bytes([i]) * (i * 31 % 900) for i in range(n)]))) > lost)
    assert lost < len(DATA)
    master, slave = MemoryLog.holding(DATA[:lost]), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, master)
    answer = holding(0, lost)
    with capture_logs() as logs:
        client = (
            start_slave(nursery, network, slave, service.port, probe_master=answer)
            if probed
            else start_slave(nursery, network, slave, service.port, options=ha_client_options(overlap_size=3000))
        )
        await trio.sleep(120.0)
    assert client.info().state is ClientState.AHEAD
    assert slave.content() == DATA
    assert service.group_transfer.acked.value <= lost
    assert len([entry for entry in logs if entry["event"] == "ha_client.disconnected"]) == 1, "no flood"
    assert service.info().refused == (), "RocketMQ's master would count what the slave reports"
    answer.answer = LogRange(0, lost, checks_reports=True)
    if probed:
        await until(lambda: [one.reason for one in service.info().refused] == ["slave-ahead"], within_s=10.0)
    assert service.group_transfer.acked.value <= lost
    master.extend(DATA[lost:])  # as catch-up does it
    answer.answer = LogRange(0, len(DATA), checks_reports=True)
    await until(lambda: client.info().state is ClientState.TRANSFER, within_s=30.0)
    await until(lambda: service.group_transfer.acked.value == len(DATA))
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_java", [True, False])
async def test_checklist_13_catch_up_at_start_restores_the_tail(
    is_java: bool, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    lost = len(records([bytes([i]) * (i * 31 % 900) for i in range(37)]))
    if is_java:
        port = await nursery.start(JavaMaster(JavaLog.holding(DATA, file_size=FILE)).run, network)
    else:
        port = (await start_master(nursery, network, MemoryLog.holding(DATA))).port
    master = MemoryLog.holding(DATA[:lost])
    peers = [MasterAddress("gone", 1), MasterAddress("slave", port)]
    catch_up = start_catch_up(nursery, network, master, *peers)
    with trio.fail_after(30.0):
        await catch_up.opened.wait()
    assert [peer["state"] for peer in catch_up.info()] == ["unknown", "settled"]
    assert master.content() == DATA
    assert master.flushed.value == len(DATA)
    nursery.cancel_scope.cancel()


async def test_checklist_14_diverged_logs_of_equal_length_are_found_by_the_overlap(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    bodies = [b"common"] * 20
    master = MemoryLog.holding(records([*bodies, b"ours 1", b"ours 2"]))
    slave = MemoryLog.holding(records([*bodies, b"lost 1", b"lost 2"]))
    before = slave.content()
    assert master.max_offset == slave.max_offset
    service = await start_master(nursery, network, master)
    with capture_logs() as logs:
        client = start_slave(nursery, network, slave, service.port)
        await trio.sleep(60.0)
    info = client.info()
    common = len(records(bodies))
    assert info.state is ClientState.DIVERGED
    assert client.is_apart, "that master's tables are none of this log's"
    assert info.diverged_at == common + 8, "the first byte that differs is the first one's body CRC"
    assert slave.content() == before, "nothing was cut"
    assert info.connections == 1, "and it does not try again"
    assert [entry["log_level"] for entry in logs if entry["event"] == "ha_client.stopped"] == ["error"]
    with pytest.RaisesGroup(DivergedLogError, flatten_subgroups=True) as raised:
        async with trio.open_nursery() as catching_up:
            start_catch_up(catching_up, network, slave, MasterAddress("peer", service.port))
    assert [getattr(error, "offset", None) for error in errors_in(raised.value, DivergedLogError)] == [common + 8]
    nursery.cancel_scope.cancel()


async def test_checklist_15_a_slave_below_the_minimum_is_refused_clearly(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    master = MemoryLog.holding(DATA)
    for _ in range(3):
        master.delete_first_file()
    slave = MemoryLog.holding(records([b"x" * 50] * 5))
    service = await start_master(nursery, network, master)
    client = start_slave(nursery, network, slave, service.port)
    await trio.sleep(5.0)
    assert "ended the connection when asked for offset 1: its log may end" in client.info().last_error
    knowing = start_slave(
        nursery, network, slave, service.port, probe_master=holding(master.min_offset, master.max_offset)
    )
    await trio.sleep(5.0)
    assert knowing.info().state is ClientState.BELOW_MIN
    assert f"begins at {master.min_offset}" in knowing.info().last_error
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("checks_reports", [True, False], ids=["our-master", "java-master"])
async def test_a_log_that_ends_where_the_master_s_begins_is_not_joined_unseen(
    checks_reports: bool, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Nothing of it is left there to compare with: it may be the same history, or that of another master."""
    master = MemoryLog.holding(DATA)
    slave = MemoryLog.holding(records([b"another"] * 60)[:FILE])
    before = slave.content()
    assert slave.max_offset == FILE
    master.delete_first_file()
    assert master.min_offset == FILE
    service = await start_master(nursery, network, master)

    async def probe(_address: MasterAddress) -> LogRange:
        return LogRange(master.min_offset, master.max_offset, checks_reports)

    client = start_slave(nursery, network, slave, service.port, probe_master=probe)
    await trio.sleep(30.0)
    assert slave.content() == before, "two histories in one log"
    assert client.info().state is ClientState.BELOW_MIN
    assert "nothing of it is left there to compare" in client.info().last_error
    assert service.group_transfer.acked.value == 0
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("deleted", [0, 2])
async def test_checklist_15_an_empty_slave_gets_full_history_from_a_java_master(
    deleted: int, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """By the tricks of spec: ha §9: "1" and byte 0 supplied, or the master's minOffset by name."""
    start = deleted * FILE
    java = JavaMaster(JavaLog.holding(DATA[start:], file_size=FILE, start=start))
    port = await nursery.start(java.run, network)
    slave = MemoryLog()
    client = start_slave(nursery, network, slave, port, probe_master=holding(start, len(DATA)))
    await until(lambda: client.info().reported_offset == len(DATA))
    assert slave.content() == DATA[start:]
    assert slave.min_offset == start
    assert java.first_reports == [start or 1]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("begins_after_s", [0.0, 60.0])
@pytest.mark.parametrize("answers_after_s", [12.0, 1e9])
async def test_checklist_15_a_java_master_that_does_not_say_yet_where_its_log_begins_is_asked_for_a_while(
    answers_after_s: float,
    begins_after_s: float,
    nursery: trio.Nursery,
    network: MemoryNetwork,
    autojump_clock: MockClock,
) -> None:
    """Its HA port opens before its remoting port; with an account that it refuses it never says so, which is told."""
    java = JavaMaster(JavaLog.holding(DATA, file_size=FILE))
    port = await nursery.start(java.run, network)
    listener = network.listeners.pop(port)

    async def probe(_address: MasterAddress) -> LogRange | None:
        return LogRange(0, len(DATA)) if trio.current_time() >= begins_after_s + answers_after_s else None

    slave = MemoryLog()
    with capture_logs() as logs:
        client = start_slave(nursery, network, slave, port, probe_master=probe)
        await trio.sleep(begins_after_s)
        network.listeners[port] = listener
        await trio.sleep(10)
        assert (slave.max_offset, java.first_reports) == (0, [])
        assert "request 28" in client.info().last_error
        await until(lambda: client.info().reported_offset == len(DATA))
    warned = [entry for entry in logs if entry["event"] == "ha_client.begin_unknown"]
    if answers_after_s < 20:
        assert (slave.content(), java.first_reports, warned) == (DATA, [1], [])
    else:
        last_file = len(DATA) // FILE * FILE
        assert (slave.min_offset, java.first_reports, len(warned)) == (last_file, [0], 1)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_another", [False, True])
async def test_checklist_15_the_wait_for_a_java_master_begins_anew_with_its_ha_port(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock, *, is_another: bool
) -> None:
    """One that was restarted meanwhile, or another one that takes over, has its remoting port open as late as ever."""
    masters = [JavaMaster(JavaLog.holding(DATA, file_size=FILE)) for _ in range(2)]
    ports = [await nursery.start(java.run, network) for java in masters]

    async def probe(_address: MasterAddress) -> None:
        await trio.lowlevel.checkpoint()

    client = start_slave(nursery, network, MemoryLog(), ports[0], probe_master=probe)
    await trio.sleep(10)
    if is_another:
        client.update_master_address("master", ports[1])
    else:
        listener = network.listeners.pop(ports[0])
        await trio.sleep(10)
        network.listeners[ports[0]] = listener
    await trio.sleep(15)
    assert [java.first_reports for java in masters] == [[], []]
    assert "request 28" in client.info().last_error
    await trio.sleep(30)
    assert [java.first_reports for java in masters] == ([[], [0]] if is_another else [[0], []])
    nursery.cancel_scope.cancel()


# ---- 17: broken disks


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.ENOSPC])
async def test_checklist_17_a_slave_whose_flush_fails_stops_acknowledging_for_good(
    error: int, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = MemoryLog()
    client = start_slave(nursery, network, slave, service.port)
    await until(lambda: service.push2_slave_max_offset == FILE)
    slave.flush_error = OSError(error, "injected")
    log.extend(DATA[FILE:])
    await trio.sleep(60.0)
    assert client.info().state is ClientState.FAILED
    assert "fdatasync failed" in client.info().last_error
    assert service.connections == {}
    assert service.group_transfer.acked.value == FILE
    assert client.info().connections == 1
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("ack", list(HaAck))
async def test_checklist_17_a_slave_whose_write_fails_stops_and_acknowledges_nothing_more(
    ack: HaAck, nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = MemoryLog()
    client = start_slave(nursery, network, slave, service.port, options=ha_client_options(ha_ack=ack))
    await until(lambda: service.push2_slave_max_offset == FILE)
    slave.write_error = OSError(errno.EROFS, "injected")
    log.extend(DATA[FILE:])
    await settle()
    assert client.info().state is ClientState.FAILED
    assert service.group_transfer.acked.value == FILE
    nursery.cancel_scope.cancel()


async def test_checklist_17_a_slave_with_a_full_disk_stops_reading_and_goes_on_later(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    network.capacity = 1024
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = MemoryLog()
    client = start_slave(nursery, network, slave, service.port)
    await until(lambda: service.push2_slave_max_offset == FILE)
    slave.space = trio.Event()
    log.extend(DATA[FILE:])
    await trio.sleep(15.0)
    assert client.info().state is ClientState.DISK_FULL
    assert slave.max_offset < 2 * FILE
    slave.space.set()
    await until(lambda: service.push2_slave_max_offset == len(DATA))
    assert slave.content() == DATA
    assert client.info().connections == 1
    nursery.cancel_scope.cancel()


async def test_checklist_17_a_slave_that_goes_on_without_room_leaves(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Its master's buffers may take hours to fill: until then each send waited for it in vain."""
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log)
    slave = MemoryLog()
    client = start_slave(nursery, network, slave, service.port)
    await until(lambda: service.push2_slave_max_offset == FILE)
    slave.space = trio.Event()
    log.extend(DATA[FILE:])
    await trio.sleep(30.0)
    assert service.live_slaves == 0
    assert (client.info().state, client.info().connections) == (ClientState.DISK_FULL, 1)
    assert "too full" in client.info().last_error
    slave.space.set()
    await until(lambda: service.push2_slave_max_offset == len(DATA), within_s=10.0)
    assert client.info().connections == 2
    nursery.cancel_scope.cancel()


async def test_checklist_17_a_slave_that_lacks_room_for_a_moment_stays(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """However long it was there before: only how long it goes on without room counts, each time anew."""
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = MemoryLog()
    client = start_slave(nursery, network, slave, service.port)
    for _ in range(3):
        await trio.sleep(3600.0)
        slave.space = trio.Event()
        await trio.sleep(3.0)
        slave.space.set()
    await until(lambda: slave.content() == DATA)
    assert (service.live_slaves, client.info().connections) == (1, 1)
    nursery.cancel_scope.cancel()


async def test_checklist_17_a_slave_whose_disk_stays_full_does_not_come_and_go(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A master gives up on who does not read. It was back at once, each time, and was counted on in between."""
    network.capacity = 1024
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = MemoryLog()
    slave.space = trio.Event()
    with capture_logs() as logs:
        client = start_slave(nursery, network, slave, service.port)
        await trio.sleep(300.0)
        assert (client.info().state, client.info().connections) == (ClientState.DISK_FULL, 0)
        assert not client.is_apart, "its tables go on to be taken over"
        assert "too full" in client.info().last_error
        assert len([line for line in logs if line["event"].startswith("ha_client.")]) == 1
        slave.space.set()
        await until(lambda: slave.content() == DATA, within_s=10.0)
    assert client.info().connections == 1
    nursery.cancel_scope.cancel()


async def test_checklist_17_a_master_sends_only_what_is_durable_if_so_told(
    nursery: trio.Nursery, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Its flush may still fail: then no slave knows what it forgets (spec: commitlog §6.3)."""
    log = MemoryLog.holding(DATA[:FILE])
    service = await start_master(nursery, network, log, ha_options(ha_send_durable_only=True))
    slave = MemoryLog()
    start_slave(nursery, network, slave, service.port)
    await until(lambda: slave.max_offset == FILE)
    log.extend(DATA[FILE:], flush=False)
    await trio.sleep(10.0)
    assert slave.max_offset == FILE
    log.flushed.advance(len(DATA))
    await until(lambda: slave.content() == DATA, within_s=1.0)
    (connection,) = service.info().connections
    assert connection.state is ConnectionState.IN_SYNC
    nursery.cancel_scope.cancel()
