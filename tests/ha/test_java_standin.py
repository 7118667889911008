"""The stand-ins of RocketMQ 4.9.8 behave as the captures of the real one do."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.transfer import decode_frame_header, encode_report
from tests.fakes import MemoryNetwork
from tests.ha.captures import Capture, capture, hashes_of, sha256
from tests.ha.harness import RawMaster, RawSlave, settle, until
from tests.ha.java_standin import JavaLog, JavaMaster, JavaSlave


def reports(recorded: Capture, number: int) -> list[int]:
    wire = recorded.sent(number, "slave_to_master")
    return [int.from_bytes(wire[at : at + 8], "big") for at in range(0, len(wire), 8)]


@pytest.mark.parametrize("name", ["fresh-onefile", "fresh-multifile", "idle", "rollover"])
async def test_the_slave_reports_what_the_real_one_reported(
    name: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    recorded, network, master = capture(name), MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)
    slave = JavaSlave(network, master.port, JavaLog(recorded.file_size))
    nursery.start_soon(slave.run)
    await until(lambda: master.reports() == [0])
    ahead = trio.current_time() - recorded.steps(1, "slave_to_master")[0].t
    for step in recorded.steps(1, "master_to_slave"):
        await trio.sleep_until(step.t + ahead)
        await master.send(step.data)
    await trio.sleep_until(recorded.ended_at(1) + ahead)
    assert set(master.reports()) == set(reports(recorded, 1))
    assert abs(len(master.reports()) - len(reports(recorded, 1))) <= 1
    begins = recorded.connection(1)["firstDataOffset"]
    assert hashes_of(slave.log.content(), start=begins, file_size=recorded.file_size) == recorded.file_hashes(
        "slaveFiles"
    )
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("name", "number"), [("reconnect", 2), ("restart-midrecord", 2), ("ahead", 1), ("below-min", 1)]
)
async def test_the_master_sends_what_the_real_one_sent(
    name: str, number: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    recorded, network = capture(name), MemoryNetwork()
    start, data = recorded.master_log()
    master = JavaMaster(JavaLog.holding(data, file_size=recorded.file_size, start=start))
    slave = await RawSlave.connect(nursery, network, await nursery.start(master.run, network))
    for step in recorded.steps(number, "slave_to_master"):
        await trio.sleep_until(step.t)
        if not slave.is_cut:
            await slave.send(step.data)
    await trio.sleep_until(recorded.ended_at(number))
    expected = recorded.connection(number)
    assert master.first_reports == [expected["firstReport"]]
    if expected["dataSha256"] is not None:
        size = expected["endOfData"] - expected["firstDataOffset"]
        assert sha256(slave.reader.data[:size]) == expected["dataSha256"]
    else:
        offset, _ = decode_frame_header(recorded.sent(number, "master_to_slave"))
        assert {(frame.offset, frame.data) for frame in slave.reader.frames} == {(offset, b"")}
        assert abs(len(slave.reader.frames) - expected["heartbeats"]) <= 1
    assert slave.is_cut == (name == "ahead")
    nursery.cancel_scope.cancel()


async def test_the_master_believes_any_first_report(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The hole that ours closes: 8 bytes, and every later put counts as replicated."""
    network, master = MemoryNetwork(), JavaMaster(JavaLog.holding(b"x" * 100, file_size=4096))
    slave = await RawSlave.connect(nursery, network, await nursery.start(master.run, network))
    await slave.send(encode_report(2**63 - 1))
    await settle()
    assert master.push2_slave_max_offset == 2**63 - 1
    nursery.cancel_scope.cancel()
