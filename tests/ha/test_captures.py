"""The recorded replication of RocketMQ 4.9.8, in both directions: its slave drives our master, its master our slave."""

from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rmqha.choices import HaStartFrom
from rmqha.codec.transfer import encode_report
from rmqha.ha.ha_connection import HAConnection
from rmqha.replication.master_session import Refusal
from rmqha.replication.overlap import StreamStart
from rmqha.replication.slave_session import AppendChunk, SlaveSession
from tests.fakes import MemoryNetwork
from tests.ha.captures import Capture, capture, hashes_of, sha256
from tests.ha.harness import RawMaster, RawSlave, settle, start_master, start_slave, until
from tests.memory_log import MemoryLog
from tests.settings import ha_options

COMPLETE = [
    ("fresh-onefile", 1),
    ("fresh-multifile", 1),
    ("idle", 1),
    ("rollover", 1),
    ("reconnect", 1),
    ("reconnect", 2),
    ("restart-midrecord", 1),
    ("restart-midrecord", 2),
]


async def replay_slave(
    nursery: trio.Nursery, recorded: Capture, number: int
) -> tuple[RawSlave, HAConnection, MemoryLog]:
    """Let the recorded slave say what it said, when it said it, to our master, whose log grows as recorded."""
    network = MemoryNetwork()
    start, data = recorded.master_log()
    ends = [(t, end) for t, end in recorded.ends(number) if end <= start + len(data)]
    log = MemoryLog.holding(data[: ends[1][1] - start] if ends[1:] else data, file_size=recorded.file_size, start=start)
    service = await start_master(nursery, network, log, ha_options(ha_start_from=HaStartFrom.LAST))
    slave = await RawSlave.connect(nursery, network, service.port)
    await settle()
    (connection,) = service.connections.values()
    began = trio.current_time()
    events = [(t, end, b"") for t, end in ends] + [
        (step.t + 0.02, 0, step.data) for step in recorded.steps(number, "slave_to_master")
    ]
    for t, end, report in sorted(events):
        await trio.sleep_until(began + t)
        log.extend(data[log.max_offset - start : end - start])
        if report and not slave.is_cut:
            await slave.send(report)
    await trio.sleep_until(max(began + recorded.ended_at(number) - 0.05, trio.current_time()))
    return slave, connection, log


@pytest.mark.parametrize(("name", "number"), COMPLETE)
async def test_a_recorded_slave_gets_the_same_bytes_from_our_master(
    name: str, number: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    recorded = capture(name)
    slave, connection, log = await replay_slave(nursery, recorded, number)
    expected = recorded.connection(number)
    assert not slave.is_cut, "an honest slave is never cut off"
    first = next(frame for frame in slave.reader.frames if frame.data)
    assert first.offset == expected["firstDataOffset"]
    size = expected["endOfData"] - expected["firstDataOffset"]  # of `reconnect` the last frame was cut by the relay
    assert sha256(slave.reader.data[:size]) == expected["dataSha256"]
    assert len(slave.reader.data) - size < 32768
    assert connection.session.slave_ack_offset == expected["lastReport"]
    for frame in slave.reader.frames:
        assert frame.offset // log.file_size == (frame.offset + max(len(frame.data), 1) - 1) // log.file_size
    nursery.cancel_scope.cancel()


async def test_an_empty_slave_gets_all_files_by_default_and_not_only_the_last(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """We differ on purpose: RocketMQ starts at its last file (spec: ha §9, §15 row 5)."""
    recorded = capture("fresh-multifile")
    network = MemoryNetwork()
    start, data = recorded.master_log()
    log = MemoryLog.holding(data, file_size=recorded.file_size, start=start)
    service = await start_master(nursery, network, log)
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(0)
    await until(lambda: len(slave.reader.data) == len(data))
    assert (start, slave.reader.data) == (0, data)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_the_recorded_slave_that_is_ahead_is_closed_and_not_counted(
    number: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """We differ on purpose: RocketMQ counts the first report and heartbeats until the second (spec: ha §10)."""
    slave, connection, _ = await replay_slave(nursery, capture("ahead"), number)
    assert (slave.is_cut, slave.reader.frames) == (True, [])
    assert connection.refusal is not None
    assert (connection.refusal.refusal, connection.session.slave_ack_offset) == (Refusal.AHEAD, -1)
    nursery.cancel_scope.cancel()


async def test_the_recorded_slave_below_the_minimum_is_closed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """We differ on purpose: RocketMQ heartbeats for ever (spec: ha §9)."""
    slave, connection, _ = await replay_slave(nursery, capture("below-min"), 1)
    assert (slave.is_cut, slave.reader.frames) == (True, [])
    assert connection.refusal is not None
    assert connection.refusal.refusal is Refusal.BELOW_MIN
    nursery.cancel_scope.cancel()


async def test_the_recorded_idle_pair_exchanges_heartbeats_at_the_same_pace(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    recorded = capture("idle")
    slave, _, _ = await replay_slave(nursery, recorded, 1)
    ours = [frame.t for frame in slave.reader.heartbeats]
    assert abs(len(ours) - recorded.connection(1)["heartbeats"]) <= 1
    assert all(4.99 < later - earlier < 6.0 for earlier, later in pairwise(ours))
    nursery.cancel_scope.cancel()


def receive(session: SlaveSession, wire: bytes, log: bytearray, *, sizes: list[int]) -> None:
    """Give a session the wire's bytes in pieces of the given sizes, over and over."""
    at = number = 0
    while at < len(wire):
        space = session.space()
        count = min(len(space), len(wire) - at, sizes[number % len(sizes)])
        space[:count] = wire[at : at + count]
        session.on_received(count)
        while (chunk := session.next_chunk()) is not None:
            if isinstance(chunk, AppendChunk):
                log += chunk.data
            else:
                begin = chunk.phy_offset
                assert bytes(chunk.data) == log[begin : begin + len(chunk.data)]
        at, number = at + count, number + 1


SIZES = st.lists(st.integers(1, 70_000), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 2000)


@pytest.mark.parametrize("name", ["fresh-onefile", "fresh-multifile", "idle", "rollover"])
@settings(max_examples=10, deadline=None)
@given(sizes=SIZES)
def test_our_slave_rebuilds_the_files_from_what_the_recorded_master_sent(name: str, sizes: list[int]) -> None:
    recorded = capture(name)
    session, log = SlaveSession(StreamStart(0), file_size=recorded.file_size), bytearray()
    receive(session, recorded.sent(1, "master_to_slave"), log, sizes=sizes)
    begins = recorded.connection(1)["firstDataOffset"]
    assert hashes_of(log, start=begins, file_size=recorded.file_size) == recorded.file_hashes("slaveFiles")
    assert session.boundary_offset == recorded.expected["slaveMaxOffset"]


@pytest.mark.parametrize("name", ["reconnect", "restart-midrecord"])
@settings(max_examples=5, deadline=None)
@given(sizes=SIZES)
def test_our_slave_goes_on_with_a_second_connection_that_overlaps(name: str, sizes: list[int]) -> None:
    """The second recorded connection starts before our end, in one case inside a record: compared, then continued."""
    recorded = capture(name)
    log = bytearray()
    receive(
        SlaveSession(StreamStart(0), file_size=recorded.file_size),
        recorded.sent(1, "master_to_slave"),
        log,
        sizes=sizes,
    )
    first = recorded.connection(2)["firstReport"]
    assert 0 < first <= len(log) < recorded.connection(1)["endOfData"] + 1
    session = SlaveSession(StreamStart(first, *(len(log),) * 3), file_size=recorded.file_size)
    receive(session, recorded.sent(2, "master_to_slave"), log, sizes=sizes)
    assert hashes_of(log, start=0, file_size=recorded.file_size) == recorded.file_hashes("slaveFiles")


@pytest.mark.parametrize("name", ["ahead", "below-min"])
def test_heartbeats_alone_change_nothing(name: str) -> None:
    recorded = capture(name)
    end = recorded.expected["slaveMaxOffset"]
    session, log = SlaveSession(StreamStart(end, end, end, end), file_size=recorded.file_size), bytearray()
    receive(session, recorded.sent(1, "master_to_slave"), log, sizes=[5])
    assert (bytes(log), session.position) == (b"", end)


@pytest.mark.parametrize("name", ["fresh-onefile", "fresh-multifile", "idle", "rollover"])
async def test_our_client_follows_the_recorded_master(
    name: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The whole HAClient, fed what was recorded, when it was recorded: same files, durable, and acknowledged."""
    recorded = capture(name)
    master, log = RawMaster(), MemoryLog(recorded.file_size)
    network = MemoryNetwork()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port)
    await until(lambda: master.reports() == [0])
    began = trio.current_time()
    for step in recorded.steps(1, "master_to_slave"):
        await trio.sleep_until(began + step.t)
        await master.send(step.data)
    begins = recorded.connection(1)["firstDataOffset"]
    assert hashes_of(log.content(), start=begins, file_size=log.file_size) == recorded.file_hashes("slaveFiles")
    assert master.reports()[-1] == log.flushed.value == recorded.expected["slaveMaxOffset"]
    assert master.reports() == sorted(master.reports())
    assert client.info().reported_offset == log.max_offset
    assert bytes(master.received[0]).startswith(encode_report(0))
    assert master.ended_at == [None]
    nursery.cancel_scope.cancel()
