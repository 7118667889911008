"""One question to a peer, and what it says to those that go on without its answer."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.ha.catch_up import PeerAsker, TakeTables
from rmqha.ha.ha_client import MasterAddress, ProbeMaster
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import PeerState
from tests.fakes import MemoryNetwork
from tests.ha.harness import start_master
from tests.memory_log import MemoryLog, records
from tests.settings import ha_client_options

DATA = records([b"x" * 100] * 4)
GONE = MasterAddress("gone", 1)


async def nothing(*_: object, **__: object) -> None:
    await trio.lowlevel.checkpoint()


def asker_of(probe: ProbeMaster, take_tables: TakeTables = nothing) -> PeerAsker:
    """Of a log that holds ``DATA``; nothing is connected to."""
    return PeerAsker(
        MemoryLog.holding(DATA),
        MemoryNetwork(),
        options=ha_client_options(),
        probe_peer=probe,
        before_taking=nothing,
        take_tables=take_tables,
    )


@pytest.mark.parametrize(
    ("known", "takes", "state", "end"),
    [
        (PeerState.LONGER, True, PeerState.LONGER, None),
        (PeerState.LONGER, False, PeerState.UNKNOWN, len(DATA)),
        (PeerState.UNKNOWN, True, PeerState.UNKNOWN, len(DATA)),
        (PeerState.UNKNOWN, False, PeerState.UNKNOWN, len(DATA)),
    ],
)
async def test_who_says_that_it_is_longer_no_more_is_waited_for_only_where_its_tables_are_to_be_taken(
    known: PeerState, takes: bool, state: PeerState, end: int | None
) -> None:
    """It says so by remoting, and its HA port is not there to be compared with."""

    async def probe(_: MasterAddress) -> LogRange:
        await trio.lowlevel.checkpoint()
        return LogRange(0, len(DATA))

    asker = asker_of(probe)
    answer = await asker.ask(GONE, known=known, takes=takes, are_sends_refused=True)
    assert (answer.state, answer.end, answer.taken_bytes) == (state, end, 0)


@pytest.mark.parametrize("are_sends_refused", [True, False])
@pytest.mark.parametrize("end", [0, len(DATA)])
async def test_who_has_no_log_tells_its_tables_before_the_first_send_alone(
    end: int, *, are_sends_refused: bool
) -> None:
    """They would undo what clients have decided since."""
    told = list[MasterAddress]()

    async def probe(_: MasterAddress) -> LogRange:
        await trio.lowlevel.checkpoint()
        return LogRange(0, end)

    async def take_tables(peer: MasterAddress, *_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        told.append(peer)

    asker = asker_of(probe, take_tables)
    await asker.ask(GONE, known=PeerState.SETTLED, takes=False, are_sends_refused=are_sends_refused)
    assert told == ([GONE] if are_sends_refused and end == 0 else [])


async def test_what_was_taken_is_counted_from_where_the_log_begins(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, log, begin = MemoryNetwork(), MemoryLog(), 3 * MemoryLog().file_size
    data = records([b"x"] * 4, start=begin)
    service = await start_master(nursery, network, MemoryLog.holding(data, start=begin))

    async def probe(_: MasterAddress) -> LogRange:
        await trio.lowlevel.checkpoint()
        return LogRange(begin, begin + len(data))

    options = ha_client_options()
    asker = PeerAsker(log, network, options=options, probe_peer=probe, before_taking=nothing, take_tables=nothing)
    peer = MasterAddress("peer", service.port)
    answer = await asker.ask(peer, known=PeerState.LONGER, takes=True, are_sends_refused=True)
    assert (answer.taken_bytes, log.min_offset, log.content()) == (len(data), begin, data)
    nursery.cancel_scope.cancel()
