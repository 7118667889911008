"""That peers hold more than a master's log outlives the master's process."""

from collections.abc import Mapping
from contextlib import suppress

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.transfer import encode_frame_header
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.longer_peers import LongerPeers
from rmqha.replication.master_session import LogRange
from tests.fakes import MemoryNetwork
from tests.ha.harness import RawMaster, longer_peers_on, start_catch_up, start_master, until
from tests.ha.test_catch_up import BODIES, DATA, GONE, PART, Peer, opened_within, states
from tests.memory_log import MemoryLog, records
from tests.sim.sim_disk import SimDisk

NOTE = "/store/longerPeers"
LONGER = LogRange(0, len(DATA))


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.mark.parametrize("begun", [b"", records(BODIES[:5])], ids=["empty", "tail-lost"])
async def test_a_log_that_is_half_taken_back_takes_no_sends_after_a_restart(
    begun: bytes, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its peer was away then, and it began with the half: in the places of messages that it knew of before."""
    disk, log = SimDisk(), MemoryLog.holding(begun)
    async with trio.open_nursery() as first:
        service = await start_master(first, network, MemoryLog.holding(PART))  # all that it sends of what it has
        address, probe = MasterAddress("peer", service.port), Peer(LONGER).probe
        start_catch_up(first, network, log, address, probe_peer=probe, longer_peers=longer_peers_on(disk))
        await until(lambda: log.content() == PART)
        first.cancel_scope.cancel()
    disk.power_cut()
    refusals = list[str]()
    again = start_catch_up(
        nursery, network, log, address, longer_peers=longer_peers_on(disk), refuse_puts=refusals.append
    )
    assert not await opened_within(again, 3600.0)
    assert all(refusals)
    assert f"(up to {len(DATA)})" in again.refusal
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("told_by", [(), (str(GONE),)], ids=["", "tables are taken of it"])
async def test_another_that_is_longer_stays_noted_while_one_is_taken_from(
    told_by: tuple[str, ...], network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """That may take hours; and the next start, if the other one is away then, would not wait for it.

    With where its log begins and ends, though its tables would be waited for without that.
    """
    disk, log = SimDisk(), MemoryLog.holding(records(BODIES[:5]))
    await longer_peers_on(disk).note({str(GONE): LogRange(0, 1 << 40)})
    service = await start_master(nursery, network, MemoryLog.holding(PART))
    address, probe = MasterAddress("peer", service.port), Peer(LONGER).probe
    start_catch_up(
        nursery,
        network,
        log,
        address,
        GONE,
        probe_peer=probe,
        tables_from=lambda: told_by,
        longer_peers=longer_peers_on(disk),
    )
    await until(lambda: log.content() == PART)
    disk.power_cut()
    assert longer_peers_on(disk).look() == {str(address): LONGER, str(GONE): LogRange(0, 1 << 40)}
    nursery.cancel_scope.cancel()


async def test_what_was_noted_ends_when_the_peer_is_heard(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All that it held comes; or it has been made anew, and holds nothing."""
    for there in (DATA, b""):
        disk, log = SimDisk(), MemoryLog.holding(PART)
        service = await start_master(nursery, network, MemoryLog.holding(there))
        address = MasterAddress("peer", service.port)
        await longer_peers_on(disk).note({str(address): LONGER})
        probe = Peer(LogRange(0, len(there))).probe
        catch_up = start_catch_up(nursery, network, log, address, probe_peer=probe, longer_peers=longer_peers_on(disk))
        assert await opened_within(catch_up, 60.0)
        assert log.content() == (there or PART)
        await until(lambda disk=disk: NOTE not in disk.files)  # type: ignore[misc]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("noted", [{}, {"other:1": LogRange(0, 1 << 40)}, {"other:1": LogRange(-1, -1)}])
async def test_only_peers_that_are_asked_count(
    noted: dict[str, LogRange], network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An operator takes one out of haPeers whose log is lost."""
    disk = SimDisk()
    await longer_peers_on(disk).note(noted)
    with capture_logs() as logs:
        catch_up = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE, longer_peers=longer_peers_on(disk))
        assert await opened_within(catch_up, 6.0)
    assert NOTE not in disk.files
    left_out = [entry["peer"] for entry in logs if entry["event"] == "catch_up.left_out"]
    assert left_out == [*noted], "it may only have another name"
    nursery.cancel_scope.cancel()


async def test_one_whose_log_is_all_here_is_waited_for(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It was about to tell what it knows beside its log: else the note would be gone."""
    disk = SimDisk()
    await longer_peers_on(disk).note({str(GONE): LogRange(0, len(PART))})
    catch_up = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE, longer_peers=longer_peers_on(disk))
    assert not await opened_within(catch_up, 60.0)
    nursery.cancel_scope.cancel()


async def test_one_that_sends_nothing_of_what_it_still_holds_is_waited_for(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It says that its log ends where this one does by now; what it knows beside that may be needed all the same."""
    disk, peer = SimDisk(), RawMaster()
    await nursery.start(peer.run, network)
    address, probe = MasterAddress("peer", peer.port), Peer(LogRange(0, len(PART))).probe
    await longer_peers_on(disk).note({str(address): LONGER})

    async def heartbeat() -> None:
        while True:
            if peer.streams and peer.reports():
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await peer.send(encode_frame_header(peer.reports()[0], 0))
            await trio.sleep(1.0)

    nursery.start_soon(heartbeat)
    other = MasterAddress("peer", (await start_master(nursery, network, MemoryLog.holding(PART))).port)
    log, notes = MemoryLog.holding(PART), longer_peers_on(disk)
    catch_up = start_catch_up(nursery, network, log, address, other, probe_peer=probe, longer_peers=notes)
    assert not await opened_within(catch_up, 120.0)
    assert len(peer.streams) > 3
    assert states(catch_up) == ["longer", "settled"], "that one's word counts for its own log alone"
    assert NOTE in disk.files
    nursery.cancel_scope.cancel()


async def test_a_start_that_asks_nobody_forgets(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    disk = SimDisk()
    await longer_peers_on(disk).note({str(GONE): LONGER})
    assert await opened_within(start_catch_up(nursery, network, MemoryLog(), longer_peers=longer_peers_on(disk)), 1.0)
    assert NOTE not in disk.files
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b'{"gone:1": "x"}', b'{"gone:1": Infinity}', b'{"gone:1": {"end": 1}}', b"\xff"]
)
async def test_a_note_that_cannot_be_understood_stands_for_every_peer(
    content: bytes, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    disk = SimDisk()
    await longer_peers_on(disk).note({str(GONE): LogRange(0, 1)})
    disk.mount().replace_bytes(NOTE, content)
    with capture_logs() as logs:
        catch_up = start_catch_up(nursery, network, MemoryLog(), GONE, longer_peers=longer_peers_on(disk))
        assert not await opened_within(catch_up, 600.0)
    assert "longer_peers.unreadable" in [entry["event"] for entry in logs]
    assert states(catch_up) == ["longer"]
    nursery.cancel_scope.cancel()


async def test_a_note_that_cannot_be_understood_goes_when_each_peer_was_heard(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Else each start would wait for all of them, though nobody holds more."""
    disk = SimDisk()
    longer_peers_on(disk)
    disk.mount().replace_bytes(NOTE, b"[1]")
    service = await start_master(nursery, network, MemoryLog.holding(PART))
    address, probe = MasterAddress("peer", service.port), Peer(LogRange(0, len(PART))).probe
    notes, log = longer_peers_on(disk), MemoryLog.holding(PART)
    with capture_logs():
        catch_up = start_catch_up(nursery, network, log, address, probe_peer=probe, longer_peers=notes)
        assert await opened_within(catch_up, 60.0)
    await until(lambda: NOTE not in disk.files)
    nursery.cancel_scope.cancel()


async def test_nothing_is_taken_while_it_cannot_be_noted(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    disk, log = SimDisk(), MemoryLog()
    notes = longer_peers_on(disk)
    disk.faults.full = True
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    address, probe = MasterAddress("peer", service.port), Peer(LONGER).probe
    catch_up = start_catch_up(nursery, network, log, address, probe_peer=probe, longer_peers=notes)
    assert not await opened_within(catch_up, 60.0)
    assert log.content() == b""
    assert "that it holds more cannot be noted here" in catch_up.refusal
    disk.faults.full = False
    assert await opened_within(catch_up, 60.0)
    assert log.content() == DATA
    nursery.cancel_scope.cancel()


async def test_sends_are_refused_before_it_is_noted(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A disk may take its time, and what is sent meanwhile would take the places of what the peer holds."""

    class Slow(LongerPeers):
        async def note(self, logs: Mapping[str, LogRange]) -> None:
            if logs:
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()

    refusals = list[str]()
    peer = Peer(None)
    catch_up = start_catch_up(
        nursery,
        network,
        MemoryLog.holding(PART),
        GONE,
        probe_peer=peer.probe,
        longer_peers=Slow(SimDisk().mount(), "/longerPeers"),
        refuse_puts=refusals.append,
    )
    assert await opened_within(catch_up, 60.0)
    assert refusals[-1] == ""
    peer.answer = LONGER
    await trio.sleep(60)
    assert "holds messages beyond" in refusals[-1]
    nursery.cancel_scope.cancel()


def test_what_an_older_version_noted_is_understood() -> None:
    """Where a log ends, and not where it begins."""
    disk = SimDisk()
    longer_peers_on(disk)
    disk.mount().replace_bytes(NOTE, b'{"gone:1": 7, "other:1": -1}')
    assert longer_peers_on(disk).look() == {"gone:1": LogRange(-1, 7), "other:1": LogRange(-1, -1)}
