"""Which of its peers' logs an empty one begins like, where the longest no longer holds all that another one does."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.errors import RemoteProtocolError, StoreError, errors_in
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import PATIENCE_S
from tests.fakes import MemoryNetwork
from tests.ha.harness import FILE, RawMaster, longer_peers_on, start_catch_up, start_master, until
from tests.ha.test_catch_up import asked, frames, opened_within
from tests.memory_log import MemoryLog, records
from tests.settings import ha_options
from tests.sim.sim_disk import SimDisk

BODIES = [bytes([i]) * (i * 31 % 900) for i in range(40)]
DATA = records(BODIES)
PART = records(BODIES[:30])
ORDERS = pytest.mark.parametrize("order", [(0, 1), (1, 0)])


def beginning_at(file: int) -> MemoryLog:
    """The longest log: its broker had no room, and deleted what had not expired."""
    log = MemoryLog.holding(DATA)
    for _ in range(file):
        log.delete_first_file()
    return log


@dataclass
class Peers:
    """What each of them says of its log, and in which order haPeers names them."""

    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    ranges: dict[int, LogRange] = field(default_factory=dict)
    starting: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)

    async def add(self, nursery: trio.Nursery, log: MemoryLog) -> None:
        service = await start_master(nursery, self.network, log)
        self.ranges[service.port] = LogRange(log.min_offset, log.max_offset)

    def named(self, order: tuple[int, ...]) -> list[MasterAddress]:
        return [MasterAddress("master", list(self.ranges)[number]) for number in order]

    async def probe(self, peer: MasterAddress) -> LogRange | None:
        await trio.lowlevel.checkpoint()
        if peer.port in self.away:
            return None
        if peer.port in self.starting:
            raise BrokerStartingError("it is starting")
        return self.ranges[peer.port]


@ORDERS
async def test_an_empty_log_begins_like_the_peer_whose_log_begins_first(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The longest had no room, and deleted what had not expired; the other one reaches to where it begins."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog.holding(PART))
    await peers.add(nursery, beginning_at(1))
    assert len(PART) > FILE, "they overlap"
    named = peers.named(order)
    catch_up = start_catch_up(nursery, peers.network, log, *named, answers_needed=2, probe_peer=peers.probe)
    assert await opened_within(catch_up, 60.0)
    assert (log.min_offset, log.content()) == (0, DATA)
    assert [peer["begin"] for peer in catch_up.info()] == [peers.ranges[peer.port].min_offset for peer in named]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("needed", "comes_after_s", "is_heard_first"), [(2, 300, True), (0, 10, True), (0, 60, False)])
@ORDERS
async def test_who_comes_late_is_waited_for_as_long_as_sends_wait(
    order: tuple[int, int],
    needed: int,
    comes_after_s: float,
    is_heard_first: bool,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    """Who was there had deleted what had not expired. Where the other comes too late it is told what may be missing."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, beginning_at(1))
    first = 10912
    peers.ranges[first] = LogRange(0, len(PART))
    peers.away.add(first)
    with capture_logs() as lines:
        catch_up = start_catch_up(
            nursery, peers.network, log, *peers.named(order), answers_needed=needed, probe_peer=peers.probe
        )
        await trio.sleep(comes_after_s)
        assert (log.max_offset == 0) is is_heard_first
        await start_master(nursery, peers.network, MemoryLog.holding(PART), ha_options(ha_listen_port=first))
        peers.away.clear()
        assert await opened_within(catch_up, 60.0)
        await trio.sleep(60.0)
    told = [line for line in lines if line["event"] == "catch_up.begins_earlier"]
    if is_heard_first:
        assert (log.min_offset, log.content(), told) == (0, DATA, [])
    else:
        assert (log.min_offset, log.max_offset) == (FILE, len(DATA))
        (line,) = told
        assert (line["peer"], line["begin"], line["this_began"]) == (f"master:{first}", 0, FILE)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("data", [b"", DATA[: 2 * FILE]])
@ORDERS
async def test_who_has_said_where_its_log_begins_has_nothing_that_is_missing(
    order: tuple[int, int], data: bytes, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Of one without a log, or with one that only touches, it was told that what it holds could be had by a restart."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog.holding(data) if data else MemoryLog())
    await peers.add(nursery, beginning_at(2))
    with capture_logs() as lines:
        catch_up = start_catch_up(nursery, peers.network, log, *peers.named(order), probe_peer=peers.probe)
        assert await opened_within(catch_up, 60.0)
        await trio.sleep(60.0)
    assert log.min_offset == 2 * FILE
    assert "catch_up.begins_earlier" not in {line["event"] for line in lines}
    nursery.cancel_scope.cancel()


@ORDERS
async def test_one_that_comes_late_and_empty_lacks_nothing(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog())
    await peers.add(nursery, beginning_at(2))
    peers.away.add(empty := min(peers.ranges))
    with capture_logs() as lines:
        catch_up = start_catch_up(nursery, peers.network, log, *peers.named(order), probe_peer=peers.probe)
        assert await opened_within(catch_up, 60.0)
        peers.away.remove(empty)
        await trio.sleep(60.0)
    assert "catch_up.begins_earlier" not in {line["event"] for line in lines}
    nursery.cancel_scope.cancel()


@ORDERS
async def test_logs_that_only_touch_are_not_joined(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A full disk ends a log where a file ends. With all of it here nothing could be compared: each start ended."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog.holding(DATA[: 2 * FILE]))
    await peers.add(nursery, beginning_at(2))
    catch_up = start_catch_up(nursery, peers.network, log, *peers.named(order), probe_peer=peers.probe)
    assert await opened_within(catch_up, 60.0)
    assert (log.min_offset, log.max_offset) == (2 * FILE, len(DATA))
    nursery.cancel_scope.cancel()


class BrokenLine:
    """A peer to which the line breaks when so much has been sent."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sends_up_to = FILE
        self.peer = RawMaster()

    async def serve(self) -> None:
        for number in count():
            await until(partial(asked, self.peer, number), within_s=7200.0)
            at, stream = self.peer.reports(number)[0], self.peer.streams[number]
            await stream.send_all(frames(at, self.data[at : self.sends_up_to]))
            await trio.sleep(1.0)
            stream.close()


@pytest.mark.parametrize("is_restarted", [False, True])
@ORDERS
async def test_what_a_broken_line_leaves_half_goes_on_though_the_longest_begins_behind(
    order: tuple[int, int], is_restarted: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The longest was asked next, which begins behind what was here: that ended the start, and each one after it."""
    first, peers, log = BrokenLine(PART), Peers(), MemoryLog()
    await nursery.start(first.peer.run, peers.network)
    nursery.start_soon(first.serve)
    peers.ranges[first.peer.port] = LogRange(0, len(PART))
    await peers.add(nursery, beginning_at(3))
    assert FILE < 3 * FILE < len(PART)
    named = peers.named(order)
    async with trio.open_nursery() as starting:
        catch_up = start_catch_up(starting, peers.network, log, *named, probe_peer=peers.probe)
        assert not await opened_within(catch_up, 120.0)
        assert (log.min_offset, log.max_offset) == (0, FILE)
        awaited = f"(up to {len(DATA)}): its log begins at {3 * FILE}, and what lies before that is awaited of master:"
        assert awaited in catch_up.refusal
        if is_restarted:
            starting.cancel_scope.cancel()
        first.sends_up_to = len(PART)
        if not is_restarted:
            assert await opened_within(catch_up, 60.0)
            starting.cancel_scope.cancel()
    if is_restarted:
        catch_up = start_catch_up(nursery, peers.network, log, *named, probe_peer=peers.probe)
        assert await opened_within(catch_up, 60.0)
    assert (log.min_offset, log.content()) == (0, DATA)
    nursery.cancel_scope.cancel()


@ORDERS
async def test_a_gap_that_nobody_fills_ends_the_start(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Neither waits for the other: both begin behind this log's end."""
    peers, log = Peers(), MemoryLog.holding(DATA[:FILE])
    await peers.add(nursery, beginning_at(2))
    await peers.add(nursery, beginning_at(3))
    with pytest.RaisesGroup(StoreError, flatten_subgroups=True) as raised:
        async with trio.open_nursery() as starting:
            start_catch_up(starting, peers.network, log, *peers.named(order), probe_peer=peers.probe)
    assert "Move this store away and start empty" in str(errors_in(raised.value, StoreError)[0])
    nursery.cancel_scope.cancel()


@ORDERS
async def test_the_peer_that_is_waited_for_is_so_after_a_restart_too(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Where its log begins was not noted: the next start took the longest, and what that one lacks was passed over."""
    peers, log, disk = Peers(), MemoryLog(), SimDisk()
    await peers.add(nursery, MemoryLog.holding(PART))
    await peers.add(nursery, beginning_at(1))
    (first, *_), named = peers.ranges, peers.named(order)

    async def goes_away(_peer: MasterAddress, _there: LogRange | None, *, is_longer: bool) -> None:
        await trio.lowlevel.checkpoint()
        peers.starting.add(first)
        raise RemoteProtocolError("it is gone")

    async with trio.open_nursery() as starting:
        notes = longer_peers_on(disk)
        catch_up = start_catch_up(
            starting, peers.network, log, *named, probe_peer=peers.probe, longer_peers=notes, take_tables=goes_away
        )
        assert not await opened_within(catch_up, 60.0)
        starting.cancel_scope.cancel()
    disk.power_cut()
    notes = longer_peers_on(disk)
    catch_up = start_catch_up(nursery, peers.network, log, *named, probe_peer=peers.probe, longer_peers=notes)
    assert not await opened_within(catch_up, 600.0)
    assert log.max_offset == 0
    peers.starting.clear()
    assert await opened_within(catch_up, 60.0)
    assert (log.min_offset, log.content()) == (0, DATA)
    nursery.cancel_scope.cancel()


@dataclass
class Tables:
    """Which peers do not tell their tables; one without a log has nothing to tell."""

    untold: set[int]
    told: list[int] = field(default_factory=list)
    on_untold: Callable[[], object] = lambda: None

    async def take(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        await trio.lowlevel.checkpoint()
        if peer.port in self.untold:
            if trio.current_time() > PATIENCE_S:  # by now others are asked for theirs
                self.on_untold()
            raise RemoteProtocolError("not known here yet")
        self.told.append(peer.port)


@ORDERS
async def test_the_tables_of_the_longest_do_not_count_if_it_lost_its_log_since(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It may have lost them, too: this log began without any."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog.holding(PART))
    await peers.add(nursery, beginning_at(1))
    first, long = peers.ranges
    tables = Tables({first}, on_untold=lambda: peers.ranges.update({long: LogRange(0, 0)}))
    named = peers.named(order)
    catch_up = start_catch_up(nursery, peers.network, log, *named, probe_peer=peers.probe, take_tables=tables.take)
    assert not await opened_within(catch_up, 600.0)
    assert (log.max_offset, peers.ranges[long].max_offset) == (0, 0)
    assert "not known here yet" in catch_up.refusal
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
async def test_tables_are_had_of_another_if_the_longest_is_away(
    order: tuple[int, ...], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Two of them end alike, and one of these alone was asked: the one that is named first."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog.holding(PART))
    await peers.add(nursery, beginning_at(1))
    await peers.add(nursery, beginning_at(1))
    first, here, away = peers.ranges
    tables, named = Tables({first}, on_untold=lambda: peers.starting.add(away)), peers.named(order)
    catch_up = start_catch_up(nursery, peers.network, log, *named, probe_peer=peers.probe, take_tables=tables.take)
    assert await opened_within(catch_up, 120.0)
    assert (log.min_offset, log.content(), set(tables.told)) == (0, DATA, {here})
    nursery.cancel_scope.cancel()


@ORDERS
async def test_tables_come_with_a_log_that_continues_this_one(
    order: tuple[int, int], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Those of the longest were taken for another one's that tells none, whatever its log held."""
    peers, log = Peers(), MemoryLog.holding(DATA[:FILE])
    await peers.add(nursery, MemoryLog.holding(PART))
    first = next(iter(peers.ranges))
    peers.ranges[1] = LogRange(0, len(DATA))  # nobody listens at its HA port
    tables, named = Tables({first}), peers.named(order)
    catch_up = start_catch_up(nursery, peers.network, log, *named, probe_peer=peers.probe, take_tables=tables.take)
    assert not await opened_within(catch_up, 600.0)
    assert (log.content(), tables.told) == (PART, [])
    nursery.cancel_scope.cancel()


async def test_a_peer_that_told_its_tables_in_between_is_given_all_its_time_again(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log broke off then; that it tells nothing for a moment now is no reason to do without."""
    peers, log = Peers(), MemoryLog()
    await peers.add(nursery, MemoryLog.holding(PART))
    first = next(iter(peers.ranges))
    peers.starting.add(first)
    tables = Tables({first})
    catch_up = start_catch_up(
        nursery, peers.network, log, *peers.named((0,)), probe_peer=peers.probe, take_tables=tables.take
    )

    async def has_told(_peer: str, _end: int) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    monkeypatch.setattr(catch_up._plan, "no_shorter", lambda *_: ["another"])
    monkeypatch.setattr(catch_up, "_has_told_tables", has_told)
    (address,), there = catch_up._addresses.values(), LogRange(0, len(PART))
    for tables.untold in ({first}, set[int](), {first}):
        with nullcontext() if not tables.untold else pytest.raises(RemoteProtocolError):
            await catch_up._take_tables(address, there, is_longer=True)
        await trio.sleep(PATIENCE_S)
    await catch_up._take_tables(address, there, is_longer=True)
    nursery.cancel_scope.cancel()
