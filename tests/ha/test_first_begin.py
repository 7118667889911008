"""Which of its peers' logs an empty one begins like, where the longest no longer holds all that another one does."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from tests.fakes import MemoryNetwork
from tests.ha.harness import FILE, start_catch_up, start_master
from tests.memory_log import MemoryLog, records

BODIES = [bytes([i]) * (i * 31 % 900) for i in range(40)]
DATA = records(BODIES)
PART = records(BODIES[:30])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_an_empty_log_begins_like_the_peer_whose_log_begins_first(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The longest had no room, and deleted what had not expired; the other one reaches to where it begins."""
    network, long = MemoryNetwork(), MemoryLog.holding(DATA)
    long.delete_first_file()
    assert long.min_offset == FILE < len(PART), "they overlap"
    ranges = {
        (await start_master(nursery, network, log)).port: LogRange(log.min_offset, log.max_offset)
        for log in (MemoryLog.holding(PART), long)
    }
    peers = [MasterAddress("peer", list(ranges)[number]) for number in order]

    async def probe(peer: MasterAddress) -> LogRange:
        await trio.lowlevel.checkpoint()
        return ranges[peer.port]

    log = MemoryLog()
    catch_up = start_catch_up(nursery, network, log, *peers, answers_needed=2, probe_peer=probe)
    with trio.fail_after(60.0):
        await catch_up.opened.wait()
    assert (log.min_offset, log.content()) == (0, DATA)
    assert [peer["begin"] for peer in catch_up.info()] == [ranges[peer.port].min_offset for peer in peers]
    nursery.cancel_scope.cancel()
