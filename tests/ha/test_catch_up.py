"""What a returning master takes back from its slaves (the main road: test_checklist, item 13)."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.transfer import encode_frame_header
from rmqha.ha.catch_up import CatchUpResult, catch_up_at_start
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.options import HAClientOptions
from rmqha.replication.master_session import LogRange
from tests.fakes import MemoryNetwork
from tests.ha.harness import FILE, RawMaster, start_master
from tests.memory_log import MemoryLog, record, records

BODIES = [bytes([i]) * (i * 31 % 900) for i in range(40)]
DATA = records(BODIES)


async def catch_up(log: MemoryLog, network: MemoryNetwork, port: int, answer: LogRange | None = None) -> CatchUpResult:
    async def probe(_: MasterAddress) -> LogRange | None:
        await trio.lowlevel.checkpoint()
        return answer

    (result,) = await catch_up_at_start(
        log, network, [MasterAddress("peer", port)], options=HAClientOptions(), probe_peer=probe
    )
    return result


async def test_a_master_that_lost_everything_gets_everything(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, log = MemoryNetwork(), MemoryLog()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    result = await catch_up(log, network, service.port)
    assert (result.taken_bytes, result.is_answered, log.content()) == (len(DATA), True, DATA)
    nursery.cancel_scope.cancel()


async def test_a_peer_with_the_same_log_gives_nothing_and_has_answered(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    result = await catch_up(MemoryLog.holding(DATA), network, service.port)
    assert (result.taken_bytes, result.is_answered, result.error) == (0, True, "")
    nursery.cancel_scope.cancel()


async def test_a_shorter_peer_has_answered_if_it_said_so(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog())
    log = MemoryLog.holding(DATA)
    told = await catch_up(log, network, service.port, LogRange(0, 0))
    assert (told.is_answered, told.taken_bytes) == (True, 0)
    untold = await catch_up(log, network, service.port)
    assert not untold.is_answered
    nursery.cancel_scope.cancel()


async def test_a_peer_that_begins_later_cannot_help(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, peer = MemoryNetwork(), MemoryLog.holding(DATA)
    for _ in range(3):
        peer.delete_first_file()
    service = await start_master(nursery, network, peer)
    log = MemoryLog.holding(records(BODIES[:3]))
    result = await catch_up(log, network, service.port, LogRange(3 * FILE, len(DATA)))
    assert (result.is_answered, result.taken_bytes) == (False, 0)
    assert "begins at" in result.error
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("good", [0, 1])
async def test_every_record_is_checked(good: int, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, peer, log = MemoryNetwork(), RawMaster(), MemoryLog()
    await nursery.start(peer.run, network)
    results: list[CatchUpResult] = []

    async def run() -> None:
        results.append(await catch_up(log, network, peer.port))

    async with trio.open_nursery() as asking:
        asking.start_soon(run)
        await trio.sleep(0.1)
        records_sent = record(0, b"a") * good + b"\xff" * 93
        await peer.send(encode_frame_header(0, len(records_sent)) + records_sent)
    assert results[0].taken_bytes == good * 93
    assert "no record" in results[0].error
    assert log.content() == record(0, b"a") * good
    nursery.cancel_scope.cancel()


async def test_a_full_disk_ends_the_catch_up_and_not_the_start(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The master must still serve reads; sends are refused anyhow, and the slave that is ahead is not counted."""
    network, log = MemoryNetwork(), MemoryLog()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    log.space = trio.Event()
    with trio.fail_after(60):
        result = await catch_up(log, network, service.port)
    assert (result.is_answered, result.taken_bytes) == (False, 0)
    assert "full" in result.error
    nursery.cancel_scope.cancel()
