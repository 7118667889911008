"""What a master asks its peers before it takes sends (the main road: test_checklist, item 13)."""

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.transfer import encode_frame_header
from rmqha.errors import DivergedLogError, StoreError, StoreReadError, errors_in
from rmqha.ha.catch_up_service import CatchUpService
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress, ProbeMaster
from rmqha.replication.catch_up_plan import UNKNOWN_RANGE
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import PATIENCE_S
from tests.fakes import MemoryNetwork
from tests.ha.harness import FILE, RawMaster, longer_peers_on, note_on, start_catch_up, start_master, until
from tests.ha.java_standin import JavaLog, JavaMaster
from tests.memory_log import MemoryLog, record, records
from tests.settings import ha_options
from tests.sim.sim_disk import SimDisk

BODIES = [bytes([i]) * (i * 31 % 900) for i in range(40)]
DATA = records(BODIES)
PART = records(BODIES[:30])
GONE = MasterAddress("gone", 1)
NOTE = "/store/beganEmpty"


class Peer:
    """What a test's peer answers by remoting."""

    def __init__(self, answer: LogRange | None = None) -> None:
        self.answer = answer

    async def probe(self, _: MasterAddress) -> LogRange | None:
        await trio.lowlevel.checkpoint()
        return self.answer


def states(service: CatchUpService) -> list[object]:
    return [peer["state"] for peer in service.info()]


async def opened_within(service: CatchUpService, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await service.opened.wait()
    return service.opened.is_set()


def asked(peer: RawMaster, number: int) -> bool:
    return len(peer.streams) > number and len(peer.reports()) > 0


def frames(offset: int, data: bytes) -> bytes:
    """None of them crosses the end of a file."""
    sent = b""
    while data:
        size = FILE - offset % FILE
        sent += encode_frame_header(offset, len(data[:size])) + data[:size]
        offset, data = offset + size, data[size:]
    return sent


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


async def test_a_master_that_lost_everything_gets_everything(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log, refusals = MemoryLog(), list[str]()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    peer = MasterAddress("peer", service.port)
    catch_up = start_catch_up(
        nursery, network, log, peer, probe_peer=Peer(LogRange(0, len(DATA))).probe, refuse_puts=refusals.append
    )
    assert await opened_within(catch_up, 1.0), "a peer that says where its log ends costs no time"
    assert (log.content(), log.flushed.value) == (DATA, len(DATA))
    assert (refusals[-1], all(refusals[:-1])) == ("", True), "puts are refused from the beginning until then"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("probed", [True, False])
async def test_a_peer_with_the_same_log_has_answered(
    probed: bool, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    probe = Peer(LogRange(0, len(DATA)) if probed else None).probe
    peer = MasterAddress("peer", service.port)
    catch_up = start_catch_up(nursery, network, MemoryLog.holding(DATA), peer, answers_needed=1, probe_peer=probe)
    assert await opened_within(catch_up, 1.0) == probed
    assert await opened_within(catch_up, 11.0), "two heartbeats in a row prove as much"
    assert states(catch_up) == ["settled"]
    nursery.cancel_scope.cancel()


async def test_an_empty_peer_that_does_not_say_so_proves_itself_by_heartbeats(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await start_master(nursery, network, MemoryLog())
    catch_up = start_catch_up(nursery, network, MemoryLog(), MasterAddress("peer", service.port), answers_needed=1)
    assert await opened_within(catch_up, 11.0)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cut", [len(PART), len(PART) - 10, FILE, 2 * FILE, 50, 93, 0])
async def test_a_shorter_peer_is_compared_where_its_log_ends(
    cut: int, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Wherever that is: a RocketMQ slave's log may end inside a record."""
    service = await start_master(nursery, network, MemoryLog.holding(DATA[:cut]))
    probe = Peer(LogRange(0, cut)).probe
    peer, log = MasterAddress("peer", service.port), MemoryLog.holding(DATA)
    catch_up = start_catch_up(nursery, network, log, peer, answers_needed=1, probe_peer=probe)
    assert await opened_within(catch_up, 1.0)
    assert (states(catch_up), log.content()) == (["settled"], DATA)
    assert service.group_transfer.acked.value < max(cut, 1), "nothing that was compared is acknowledged"
    nursery.cancel_scope.cancel()


async def test_a_peer_that_ends_before_this_log_begins_has_nothing_to_compare(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its last message was cleaned away here long ago: nobody need connect to it for that."""
    log = MemoryLog.holding(DATA)
    for _ in range(3):
        log.delete_first_file()
    probe = Peer(LogRange(0, FILE)).probe
    catch_up = start_catch_up(nursery, network, log, GONE, answers_needed=1, probe_peer=probe)
    assert await opened_within(catch_up, 1.0)
    assert states(catch_up) == ["settled"]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("end", [2 * FILE, 2 * FILE - 700])
async def test_what_was_cleaned_away_here_is_not_compared(
    end: int, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """This log has just been cleaned empty, and the peer does not say by remoting where its own begins and ends."""
    service = await start_master(nursery, network, MemoryLog.holding(DATA[:end]))
    log, peer = MemoryLog(start=2 * FILE), MasterAddress("peer", service.port)
    catch_up = start_catch_up(nursery, network, log, peer, answers_needed=1)
    assert await opened_within(catch_up, 30.0)
    assert (states(catch_up), log.content()) == (["settled"], b"")
    nursery.cancel_scope.cancel()


async def test_a_shorter_peer_with_other_bytes_stops_the_start(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Two masters: the shorter one's messages are nowhere else."""
    theirs = records([*BODIES[:20], b"theirs"])
    service = await start_master(nursery, network, MemoryLog.holding(theirs))
    log, peer = MemoryLog.holding(DATA), MasterAddress("peer", service.port)
    with pytest.RaisesGroup(DivergedLogError, flatten_subgroups=True) as raised:
        async with trio.open_nursery() as starting:
            start_catch_up(starting, network, log, peer, probe_peer=Peer(LogRange(0, len(theirs))).probe)
    (error,) = errors_in(raised.value, DivergedLogError)
    assert f"peer:{service.port} of haPeers, whose log ends at {len(theirs)}, holds other bytes" in str(error)
    assert log.content() == DATA
    nursery.cancel_scope.cancel()


async def test_a_shorter_peer_that_cannot_be_probed_proves_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It ends the connection, as one does whose log begins later. Under ``require`` that is waited for, in words."""
    service = await start_master(nursery, network, MemoryLog.holding(PART))
    peer = MasterAddress("peer", service.port)
    required = start_catch_up(nursery, network, MemoryLog.holding(DATA), peer, answers_needed=1)
    tried = start_catch_up(nursery, network, MemoryLog.holding(DATA), peer)
    assert await opened_within(tried, 60.0), "try goes on without it"
    assert not await opened_within(required, 600.0)
    assert "its remoting port (HA port - 1) does not say where it ends" in required.refusal
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answers_needed", [0, 1])
async def test_a_peer_whose_log_begins_later_stops_the_start(
    answers_needed: int, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It holds more, and nobody can fetch that any more: sends would make another log."""
    peer_log = MemoryLog.holding(DATA)
    for _ in range(3):
        peer_log.delete_first_file()
    service = await start_master(nursery, network, peer_log)
    log, probe = MemoryLog.holding(records(BODIES[:3])), Peer(LogRange(3 * FILE, len(DATA))).probe
    with pytest.RaisesGroup(StoreError, flatten_subgroups=True) as raised:
        async with trio.open_nursery() as starting:
            peer = MasterAddress("peer", service.port)
            start_catch_up(starting, network, log, peer, answers_needed=answers_needed, probe_peer=probe)
    assert "begins at" in str(errors_in(raised.value, StoreError)[0])
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("good", [0, 1])
async def test_every_record_is_checked(
    good: int, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer, log = RawMaster(), MemoryLog()
    await nursery.start(peer.run, network)
    sent = record(0, b"a") * good + b"\xff" * 93
    catch_up = start_catch_up(
        nursery, network, log, MasterAddress("peer", peer.port), probe_peer=Peer(LogRange(0, len(sent))).probe
    )
    await until(lambda: len(peer.streams) == 1)
    await peer.send(frames(1, sent[1:]) if good else frames(0, sent))
    assert not await opened_within(catch_up, 600.0), "it said that it holds more"
    assert log.content() == record(0, b"a") * good
    nursery.cancel_scope.cancel()


async def test_a_full_disk_ends_no_wait(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The master must still serve reads; sends are refused until there is space, and what was lost is back."""
    log = MemoryLog()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    log.space = trio.Event()
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", service.port))
    assert not await opened_within(catch_up, 600.0)
    assert "too full" in catch_up.refusal
    log.space.set()
    assert await opened_within(catch_up, 20.0)
    assert log.content() == DATA
    nursery.cancel_scope.cancel()


# ---- a peer that is known to be longer is waited for


@pytest.mark.parametrize("probed", [True, False])
@pytest.mark.parametrize("answers_needed", [0, 1])
@pytest.mark.parametrize("how", ["silent", "ends", "resets"])
async def test_a_longer_peer_is_waited_for_whatever_happens_to_the_line(
    how: str,
    answers_needed: int,
    probed: bool,
    network: MemoryNetwork,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    """It was stopped for 1.1 s, or restarted, and the master took other messages in the places of its tail."""
    peer, log, probe = RawMaster(), MemoryLog.holding(PART), Peer(LogRange(0, len(DATA)) if probed else None)
    await nursery.start(peer.run, network)
    with capture_logs() as logs:
        catch_up = start_catch_up(
            nursery,
            network,
            log,
            MasterAddress("peer", peer.port),
            answers_needed=answers_needed,
            probe_peer=probe.probe,
        )
        middle = len(records(BODIES[:34]))
        for number in range(1 if probed else 2):  # the first one only compares, unless the peer said that it is longer
            await until(partial(asked, peer, number))
            begin = peer.reports()[0]
            await peer.send(frames(begin, DATA[begin:middle]))
        probe.answer = None
        streams = len(peer.streams)
        {"silent": lambda: None, "ends": peer.streams[-1].close, "resets": network.connections[-1].reset}[how]()
        assert not await opened_within(catch_up, 300.0)
        assert log.content() == DATA[:middle], "what came is kept"
        assert streams + 10 < len(peer.streams) < streams + 100, "it is asked again, and not without a pause"
        assert "holds messages beyond this log's end" in catch_up.refusal
        begin = peer.reports()[0]
        await peer.send(frames(begin, DATA[begin:]))
        await peer.send(2 * encode_frame_header(len(DATA), 0))
        assert await opened_within(catch_up, 30.0)
    assert log.content() == DATA
    assert len([line for line in logs if line["event"] == "catch_up.waiting"]) in range(3, 12), (
        "no flood, and no silence"
    )
    nursery.cancel_scope.cancel()


async def test_silence_shorter_than_twenty_seconds_proves_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Of a peer of which nothing is known. Then ``try`` goes on without it, and ``require`` does not."""
    peer = RawMaster()
    await nursery.start(peer.run, network)
    address = MasterAddress("peer", peer.port)
    tried = start_catch_up(nursery, network, MemoryLog.holding(PART), address)
    required = start_catch_up(nursery, network, MemoryLog.holding(PART), address, answers_needed=1)
    assert not await opened_within(tried, 19.9)
    assert await opened_within(tried, 1.0)
    assert not await opened_within(required, 300.0)
    nursery.cancel_scope.cancel()


async def test_the_first_part_of_a_record_proves_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All was lost here; the peer's log begins later, its remoting port does not answer, the network cuts anywhere."""
    peer, log, begin = RawMaster(), MemoryLog(), 3 * FILE
    sent = frames(begin, DATA[begin:])
    await nursery.start(peer.run, network)
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", peer.port), answers_needed=1)
    await until(lambda: asked(peer, 0))
    await peer.send(sent[:40])
    assert (states(catch_up), catch_up.opened.is_set()) == (["unasked"], False)
    await peer.send(sent[40:])
    await until(lambda: asked(peer, 1))
    assert (states(catch_up), log.max_offset) == (["longer"], 0)
    nursery.cancel_scope.cancel()


async def test_of_a_peer_that_does_not_say_where_its_log_begins_all_is_taken_or_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """RocketMQ's HA port opens before its remoting port, and begins with the last file: consumers passed over the rest.

    So is it with one that refuses by its ACL to say anything.
    """
    peer, log = RawMaster(), MemoryLog()
    await nursery.start(peer.run, network)
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", peer.port))

    async def asked_for(offset: int) -> None:
        await until(lambda: peer.reports()[-1:] == [offset], within_s=90)
        peer.received[-1].clear()

    for number in range(4):
        await asked_for(0)
        await peer.send(frames(3 * FILE, DATA[3 * FILE :]))
        if number:
            await asked_for(1)
            await peer.send(2 * encode_frame_header(1, 0))
            await until(lambda: "does not say where" in catch_up.info()[0]["reason"])
        assert (states(catch_up), catch_up.opened.is_set(), log.max_offset) == (["longer"], False, 0)
    await asked_for(0)
    await peer.send(frames(3 * FILE, DATA[3 * FILE :]))
    await asked_for(1)
    await peer.send(frames(1, DATA[1:]) + 2 * encode_frame_header(len(DATA), 0))
    assert await opened_within(catch_up, 5.0)
    assert (log.min_offset, log.content()) == (0, DATA)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["ours", "RocketMQ's"])
async def test_a_peer_that_was_longer_and_is_rebuilt_empty_is_not_waited_for(
    kind: str, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It does not say where its log begins, and none was found from 0 on: as of one that begins later."""
    java, note = JavaMaster(JavaLog(FILE)), longer_peers_on(SimDisk())
    ours = await start_master(nursery, network, MemoryLog())
    address = MasterAddress("master", ours.port if kind == "ours" else await nursery.start(java.run, network))
    note.look()
    await note.note({str(address): UNKNOWN_RANGE})
    catch_up = start_catch_up(nursery, network, MemoryLog(), address, longer_peers=note)
    await trio.sleep(1.0)
    assert "it said so before this start" in catch_up.refusal
    assert await opened_within(catch_up, 60.0)
    assert (states(catch_up), ours.info().refusals) == (["settled"], {})
    nursery.cancel_scope.cancel()


async def test_a_peer_whose_log_ends_at_the_end_of_a_file_is_no_empty_one(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """RocketMQ begins with its last file, and may have nothing in it yet."""
    peer, log = RawMaster(), MemoryLog()
    await nursery.start(peer.run, network)
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", peer.port))
    await until(lambda: asked(peer, 0))
    await peer.send(2 * encode_frame_header(3 * FILE, 0))
    await until(lambda: asked(peer, 1))
    assert (states(catch_up), catch_up.opened.is_set()) == (["longer"], False)
    nursery.cancel_scope.cancel()


async def test_two_peers_of_whom_neither_says_where_its_log_begins_do_not_wait_for_each_other(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Two slaves of RocketMQ's, whose ACL refuses a master that asks under ``require``."""
    log = MemoryLog()
    services = [await start_master(nursery, network, MemoryLog.holding(DATA)) for _ in range(2)]
    peers = [MasterAddress("peer", service.port) for service in services]
    catch_up = start_catch_up(nursery, network, log, *peers, answers_needed=2)
    assert not await opened_within(catch_up, PATIENCE_S - 1)
    assert log.max_offset == 0
    assert await opened_within(catch_up, 90.0)
    assert log.content() == DATA
    nursery.cancel_scope.cancel()


async def test_so_it_is_of_one_of_ours_which_turns_away_who_asks_for_the_beginning(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What was told of it were the words of a slave that follows a master."""
    theirs, log = MemoryLog.holding(DATA), MemoryLog()
    theirs.delete_first_file()
    service = await start_master(nursery, network, theirs)
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", service.port))
    assert not await opened_within(catch_up, 600.0)
    assert "its log does not begin at 0, and it does not say where" in catch_up.refusal
    nursery.cancel_scope.cancel()


async def test_one_heartbeat_proves_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """RocketMQ sends one in front of the data if it was stopped for a while."""
    peer, log = RawMaster(), MemoryLog.holding(PART)
    await nursery.start(peer.run, network)
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", peer.port))
    for _ in range(2):
        await until(lambda: len(peer.reports()) > 0)
        begin = peer.reports()[0]
        await peer.send(frames(begin, DATA[begin : len(PART)]))
        await peer.send(encode_frame_header(len(PART), 0))
        assert not catch_up.opened.is_set()
        await peer.send(frames(len(PART), DATA[len(PART) :]))
        await trio.sleep(0.1)
    await peer.send(2 * encode_frame_header(len(DATA), 0))
    assert await opened_within(catch_up, 1.0)
    assert log.content() == DATA
    nursery.cancel_scope.cancel()


async def test_heartbeats_without_any_data_prove_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A slave of RocketMQ whose log ends below that place sends them there; nothing of it was compared."""
    peer = RawMaster()
    await nursery.start(peer.run, network)
    catch_up = start_catch_up(
        nursery, network, MemoryLog.holding(DATA), MasterAddress("peer", peer.port), answers_needed=1
    )
    await until(lambda: len(peer.reports()) > 0)
    await peer.send(3 * encode_frame_header(peer.reports()[0], 0))
    await trio.sleep(1.0)
    assert states(catch_up) == ["unknown"]
    assert not catch_up.opened.is_set()
    nursery.cancel_scope.cancel()


async def test_try_goes_on_without_a_peer_that_is_not_there(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    tried = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE)
    required = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE, answers_needed=1)
    assert await opened_within(tried, 6.0)
    assert not await opened_within(required, 600.0)
    assert "require: 0 peers of haPeers have shown what they hold, but 1 are needed" in required.refusal
    nursery.cancel_scope.cancel()


async def test_an_empty_log_that_goes_on_without_its_peers_doubts_until_each_was_heard(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer, log = Peer(), MemoryLog()
    with capture_logs() as logs:
        alone = start_catch_up(nursery, network, log, GONE, probe_peer=peer.probe)
        assert alone.unheard == [], "sends are refused meanwhile, with the reason"
        assert await opened_within(alone, 6.0)
    (entry,) = [entry for entry in logs if entry["event"] == "catch_up.began_empty"]
    assert entry["log_level"] == "warning"
    assert "this log began empty, and what gone:1 of haPeers may hold is unknown" in entry["reason"]
    assert alone.unheard == ["gone:1"]
    log.extend(PART)
    assert alone.unheard == ["gone:1"], "what was sent since proves nothing"
    service = await start_master(nursery, network, MemoryLog())
    heard = start_catch_up(
        nursery, network, MemoryLog(), MasterAddress("peer", service.port), probe_peer=Peer(LogRange(0, 0)).probe
    )
    full = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE)
    assert await opened_within(heard, 6.0)
    assert await opened_within(full, 6.0)
    assert (heard.unheard, full.unheard) == ([], [])
    nursery.cancel_scope.cancel()


async def test_the_doubt_of_a_log_that_began_empty_outlives_a_restart(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The next process found messages, and took its log for the group's."""
    disk, log, accepted = SimDisk(), MemoryLog(), list[bool]()

    def note_refusal(refusal: str) -> None:
        if not refusal:
            accepted.append(NOTE in disk.files)

    async with trio.open_nursery() as first:
        alone = start_catch_up(first, network, log, GONE, refuse_puts=note_refusal, began_empty=note_on(disk))
        assert await opened_within(alone, 6.0)
        await trio.sleep(1.0)
        first.cancel_scope.cancel()
    assert all(accepted)
    assert accepted, "it is noted before the first send"
    log.extend(PART)
    disk.power_cut()
    peer, service = Peer(), await start_master(nursery, network, MemoryLog.holding(PART))
    async with trio.open_nursery() as second:
        address = MasterAddress("peer", service.port + 1)
        again = start_catch_up(second, network, log, address, probe_peer=peer.probe, began_empty=note_on(disk))
        assert await opened_within(again, 6.0)
        assert again.unheard == [str(address)]
        second.cancel_scope.cancel()
    third = start_catch_up(nursery, network, log, MasterAddress("peer", service.port), began_empty=note_on(disk))
    assert await opened_within(third, 60.0)
    assert third.unheard == []
    disk.power_cut()
    assert NOTE not in disk.files
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_peers", [False, True])
async def test_the_doubt_ends_with_what_a_peer_gives_or_where_nobody_is_to_be_asked(
    has_peers: bool, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    note, log = note_on(SimDisk()), MemoryLog.holding(PART)
    note.make()
    peer = MasterAddress("peer", (await start_master(nursery, network, MemoryLog.holding(DATA))).port)
    peers = [peer, GONE] if has_peers else []
    catch_up = start_catch_up(nursery, network, log, *peers, began_empty=note)
    assert await opened_within(catch_up, 60.0)
    assert (log.content() == DATA, catch_up.unheard, note.look()) == (has_peers, [], False)
    nursery.cancel_scope.cancel()


async def test_the_doubt_outlives_a_restart_although_the_peer_was_heard_to_hold_other_bytes(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Not only may it hold what this log has lost: it does."""
    disk, log, theirs = SimDisk(), MemoryLog(), records([*BODIES[:20], b"theirs"])
    peer, address = Peer(), MasterAddress("peer", 20000)
    async with trio.open_nursery() as first:
        alone = start_catch_up(first, network, log, address, probe_peer=peer.probe, began_empty=note_on(disk))
        assert await opened_within(alone, 6.0)
        log.extend(PART)
        await start_master(first, network, MemoryLog.holding(theirs), ha_options(ha_listen_port=20000))
        peer.answer = LogRange(0, len(theirs))
        await until(lambda: states(alone) == ["unfit"])
        await trio.sleep(60.0)
        assert (alone.refusal, alone.unheard) == ("", [])
        first.cancel_scope.cancel()
    disk.power_cut()
    again = start_catch_up(nursery, network, log, GONE, began_empty=note_on(disk))
    assert await opened_within(again, 6.0)
    assert again.unheard == ["gone:1"]
    nursery.cancel_scope.cancel()


async def test_no_send_is_taken_while_the_doubt_cannot_be_noted(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    disk, refusals = SimDisk(), list[str]()
    disk.faults.full = True
    catch_up = start_catch_up(
        nursery, network, MemoryLog(), GONE, refuse_puts=refusals.append, began_empty=note_on(disk)
    )
    assert not await opened_within(catch_up, 60.0)
    assert "that this log began empty cannot be noted, and is tried again" in refusals[-1]
    disk.faults.full = False
    assert await opened_within(catch_up, 6.0)
    assert (refusals[-1], catch_up.unheard) == ("", ["gone:1"])
    nursery.cancel_scope.cancel()


async def test_a_note_that_cannot_be_removed_holds_up_nothing(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    disk = SimDisk()
    note_on(disk).make()
    disk.faults.read_only = True
    service = await start_master(nursery, network, MemoryLog.holding(PART))
    peer = MasterAddress("peer", service.port)
    catch_up = start_catch_up(nursery, network, MemoryLog.holding(PART), peer, began_empty=note_on(disk))
    assert await opened_within(catch_up, 60.0)
    disk.faults.read_only = False
    await until(lambda: NOTE not in disk.files)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("brought", [DATA, PART], ids=["all", "nothing"])
async def test_where_the_log_ends_is_told_whenever_sends_are_about_to_go_on(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock, brought: bytes
) -> None:
    """What groups have committed beyond it is taken back, also where a peer came late and brought something.

    Or nothing: it has lost its end meanwhile, and its tables, which come with the comparison, tell of more.
    """
    peer, log, told = Peer(), MemoryLog.holding(PART), list[tuple[int, str]]()
    address, refusals = MasterAddress("peer", 20000), list[str]()
    catch_up = start_catch_up(
        nursery,
        network,
        log,
        address,
        probe_peer=peer.probe,
        refuse_puts=refusals.append,
        on_open=lambda: told.append((log.max_offset, refusals[-1])),
    )
    assert await opened_within(catch_up, 60.0)
    peer.answer = LogRange(0, len(DATA))
    await trio.sleep(60.0)
    assert (len(told), "holds messages beyond" in refusals[-1]) == (1, True)
    await start_master(nursery, network, MemoryLog.holding(brought), ha_options(ha_listen_port=20000))
    peer.answer = LogRange(0, len(brought))
    await trio.sleep(60.0)
    assert (log.content(), refusals[-1]) == (brought, "")
    assert [end for end, _ in told] == [len(PART), len(brought)]
    assert all(refusal for _, refusal in told), "before, not after"
    nursery.cancel_scope.cancel()


async def test_a_peer_that_is_starting_is_waited_for(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Both machines lost power, and the slave takes longer to recover."""
    log, is_starting = MemoryLog.holding(PART), True

    async def probe(_: MasterAddress) -> LogRange | None:
        await trio.lowlevel.checkpoint()
        if is_starting:
            raise BrokerStartingError("the broker at peer:19999 is starting: recovering")
        return LogRange(0, len(DATA))

    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", 20000), probe_peer=probe)
    assert not await opened_within(catch_up, 600.0)
    await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(ha_listen_port=20000))
    is_starting = False
    assert await opened_within(catch_up, 6.0)
    assert log.content() == DATA
    nursery.cancel_scope.cancel()


async def test_a_peer_that_was_starting_and_is_gone_is_not(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    is_starting = True

    async def probe(_: MasterAddress) -> LogRange | None:
        await trio.lowlevel.checkpoint()
        if is_starting:
            raise BrokerStartingError("the broker at gone:0 is starting: recovering")
        return None

    catch_up = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE, probe_peer=probe)
    assert not await opened_within(catch_up, 60.0)
    is_starting = False
    assert await opened_within(catch_up, 6.0)
    nursery.cancel_scope.cancel()


# ---- in life


async def returned(
    nursery: trio.Nursery,
    network: MemoryNetwork,
    log: MemoryLog,
    *,
    holds: bytes,
    probe: ProbeMaster,
    refuse_puts: Callable[[str], None] = lambda _reason: None,
    on_taken: Callable[[], None] = lambda: None,
) -> CatchUpService:
    """A master that started without its peer, which is there now."""
    peer = MasterAddress("peer", 20000)
    catch_up = start_catch_up(nursery, network, log, peer, probe_peer=probe, refuse_puts=refuse_puts, on_taken=on_taken)
    assert await opened_within(catch_up, 6.0)
    await start_master(nursery, network, MemoryLog.holding(holds), ha_options(ha_listen_port=20000))
    return catch_up


@pytest.mark.parametrize("probed", [True, False])
async def test_a_peer_that_returns_with_more_ends_the_sends_until_that_is_fetched(
    probed: bool, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log, peer, refusals = MemoryLog.holding(PART), Peer(), list[str]()
    catch_up = await returned(nursery, network, log, holds=DATA, probe=peer.probe, refuse_puts=refusals.append)
    assert refusals[-1] == ""
    del refusals[:]
    peer.answer = LogRange(0, len(DATA)) if probed else None
    await until(lambda: states(catch_up) == ["settled"])
    assert "holds messages beyond this log's end" in refusals[-2]
    assert (log.content(), refusals[-1]) == (DATA, "")
    nursery.cancel_scope.cancel()


async def test_when_a_slave_reports_more_the_peers_are_asked_at_once(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It may have stored what was under way when it was asked, or have been away until now."""
    log, peer = MemoryLog.holding(PART), Peer()
    catch_up = await returned(nursery, network, log, holds=DATA, probe=peer.probe)
    peer.answer = LogRange(0, len(DATA))
    await trio.sleep(2.0)
    assert log.content() == PART, "this peer's turn is later"
    catch_up.on_slave_ahead()
    await until(lambda: log.content() == DATA, within_s=0.1)
    nursery.cancel_scope.cancel()


async def test_no_peer_s_answer_ends_what_a_slave_that_is_ahead_has_begun(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Sends would take the places of what that slave holds, which no peer of haPeers has shown."""
    refusals = list[str]()
    catch_up = start_catch_up(nursery, network, MemoryLog(), GONE, probe_peer=Peer().probe, refuse_puts=refusals.append)
    assert await opened_within(catch_up, 6.0)
    assert refusals[-1] == ""
    catch_up.on_slave_ahead()
    told = len(refusals)
    await trio.sleep(15.0)
    assert len(refusals) > told, "the peer was asked, and is not there"
    assert refusals[-1].startswith("this log began empty")
    nursery.cancel_scope.cancel()


async def test_strangers_that_report_more_have_the_peers_asked_once_a_second(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    questions = 0

    async def probe(_: MasterAddress) -> None:
        nonlocal questions
        questions += 1
        await trio.lowlevel.checkpoint()

    catch_up = start_catch_up(nursery, network, MemoryLog.holding(PART), GONE, probe_peer=probe)
    assert await opened_within(catch_up, 6.0)
    before = questions
    for _ in range(1000):
        catch_up.on_slave_ahead()
        await trio.sleep(0.01)
    assert questions - before == 10
    nursery.cancel_scope.cancel()


async def test_what_is_fetched_in_life_is_told_before_the_next_send(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The queues' next offsets change with it: a send would be given one that is taken."""
    log, peer, told = MemoryLog.holding(PART), Peer(), list[str]()

    def refuse_puts(reason: str) -> None:
        told.append("refused" if reason else "accepted")

    catch_up = await returned(
        nursery,
        network,
        log,
        holds=DATA,
        probe=peer.probe,
        refuse_puts=refuse_puts,
        on_taken=lambda: told.append(f"taken up to {log.max_offset}"),
    )
    peer.answer = LogRange(0, len(DATA))
    await until(lambda: states(catch_up) == ["settled"])
    assert told[-3:] == ["refused", f"taken up to {len(DATA)}", "accepted"]
    nursery.cancel_scope.cancel()


async def test_a_peer_that_ends_where_this_log_does_ends_no_sends(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log, peer, refusals = MemoryLog.holding(PART), Peer(), list[str]()
    catch_up = await returned(nursery, network, log, holds=PART, probe=peer.probe, refuse_puts=refusals.append)
    peer.answer = LogRange(0, len(PART))
    del refusals[:]
    await until(lambda: states(catch_up) == ["settled"])
    await trio.sleep(100.0)
    assert set(refusals) == {""}
    nursery.cancel_scope.cancel()


async def test_a_peer_that_sends_less_than_it_says_to_hold_is_asked_again(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It cut its log between the two questions, say. Heartbeats alone kept the asking from ever going on."""
    peer, log = RawMaster(), MemoryLog.holding(PART)
    await nursery.start(peer.run, network)

    async def heartbeat() -> None:
        while True:
            if peer.streams and peer.reports():
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await peer.send(encode_frame_header(peer.reports()[0], 0))
            await trio.sleep(1.0)

    nursery.start_soon(heartbeat)
    catch_up = start_catch_up(
        nursery,
        network,
        log,
        MasterAddress("peer", peer.port),
        answers_needed=1,
        probe_peer=Peer(LogRange(0, len(PART))).probe,
    )
    await trio.sleep(60.0)
    assert len(peer.streams) > 3
    assert (states(catch_up), catch_up.opened.is_set()) == (["unknown"], False)
    nursery.cancel_scope.cancel()


async def test_a_peer_that_holds_more_than_it_sends_does_not_keep_the_others_from_being_asked(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A slave whose disk failed sends what is durable, and heartbeats, while its log ends behind that."""
    log, told = MemoryLog.holding(PART), list[str]()
    failed, well = RawMaster(), await start_master(nursery, network, MemoryLog.holding(DATA))
    await nursery.start(failed.run, network)

    async def send_what_is_durable() -> None:
        for number in count():
            while number >= len(failed.streams) or not failed.reports(number):  # noqa: ASYNC110 - a fake without events
                await trio.sleep(0.1)
            begin = failed.reports(number)[0]
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await failed.send(encode_frame_header(begin, len(PART) - begin) + PART[begin:])
                while failed.ended_at[number] is None:
                    await failed.send(encode_frame_header(len(PART), 0))
                    await trio.sleep(1.0)

    async def probe(peer: MasterAddress) -> LogRange:
        return LogRange(0, len(DATA) + (500 if peer.port == failed.port else 0))

    nursery.start_soon(send_what_is_durable)
    peers = [MasterAddress("peer", failed.port), MasterAddress("peer", well.port)]
    start_catch_up(nursery, network, log, *peers, probe_peer=probe, refuse_puts=told.append)
    await until(lambda: log.content() == DATA)
    await until(lambda: f"it sends nothing beyond {len(PART)}" in told[-1])
    assert f"(up to {len(DATA) + 500})" in told[-1]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("probed", [True, False])
async def test_a_peer_that_drips_keeps_neither_sends_waiting_nor_the_others_from_being_asked(
    probed: bool, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It is never silent, and never done: a byte now and then, of a frame that is to be compared."""
    log, dripping = MemoryLog.holding(PART), RawMaster()
    await nursery.start(dripping.run, network)

    async def drip() -> None:
        for number in count():
            await until(partial(asked, dripping, number), within_s=600.0, step_s=0.1)
            begin = dripping.reports(number)[0]
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                for byte in frames(begin, DATA[begin : len(PART)]):
                    await dripping.send(bytes([byte]))
                    await trio.sleep(10.0)

    async def probe(peer: MasterAddress) -> LogRange | None:
        return LogRange(0, len(PART)) if probed and peer.port == dripping.port else None

    nursery.start_soon(drip)
    peers = [MasterAddress("peer", dripping.port), MasterAddress("peer", 20000)]
    catch_up = start_catch_up(nursery, network, log, *peers, probe_peer=probe)
    assert await opened_within(catch_up, 120.0)
    await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(ha_listen_port=20000))
    await until(lambda: states(catch_up) == ["unknown", "settled"], within_s=300.0)
    assert log.content() == DATA
    assert "to compare" in str(catch_up.info()[0]["reason"])
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stood_s", [50.0, 100.0])
async def test_a_peer_is_not_called_silent_for_time_in_which_this_process_stood_still(
    stood_s: float, network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer, there = RawMaster(), Peer(LogRange(0, len(PART)))
    await nursery.start(peer.run, network)
    at = MasterAddress("peer", peer.port)
    catch_up = start_catch_up(nursery, network, MemoryLog.holding(PART), at, probe_peer=there.probe)
    await until(partial(asked, peer, 0))
    autojump_clock.jump(stood_s)
    await until(lambda: bool(catch_up.info()[0]["reason"]))
    assert "this process stood still for " in str(catch_up.info()[0]["reason"])
    nursery.cancel_scope.cancel()


async def test_what_a_peer_held_that_is_gone_may_come_from_another(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It said where its log ends, and was lost before it had sent that."""
    log, told, answers = MemoryLog.holding(PART), list[str](), [LogRange(0, len(DATA))]
    well = await start_master(nursery, network, MemoryLog.holding(DATA))

    async def probe(peer: MasterAddress) -> LogRange | None:
        return LogRange(0, len(DATA)) if peer != GONE else answers.pop() if answers else None

    peers = [GONE, MasterAddress("peer", well.port)]
    catch_up = start_catch_up(nursery, network, log, *peers, probe_peer=probe, refuse_puts=told.append)
    assert await opened_within(catch_up, 60.0)
    assert (log.content(), told[-1]) == (DATA, "")
    assert states(catch_up) == ["unknown", "settled"]
    nursery.cancel_scope.cancel()


class BusyLog(MemoryLog):
    """For a while none of its files can be opened: the process has no descriptor left."""

    reads_from_s = 0.0

    def view_range(self, offset: int, size: int) -> memoryview:
        if trio.current_time() < self.reads_from_s:
            raise StoreReadError(OSError(errno.EMFILE, "Too many open files"), operation="open", path="memory")
        return super().view_range(offset, size)


async def test_a_log_that_cannot_be_read_for_a_while_is_compared_later(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It ended the asking: sends were refused until a restart, or a peer that returned with more was never seen."""
    log, peer = BusyLog.holding(PART), Peer()
    assert isinstance(log, BusyLog)
    catch_up = await returned(nursery, network, log, holds=DATA, probe=peer.probe)
    peer.answer, log.reads_from_s = LogRange(0, len(DATA)), trio.current_time() + 60.0
    await until(lambda: "Too many open files" in catch_up.refusal)
    await until(lambda: states(catch_up) == ["settled"], within_s=100.0)
    assert (log.content(), catch_up.refusal) == (DATA, "")
    nursery.cancel_scope.cancel()


async def test_what_was_taken_and_cannot_be_read_for_a_while_is_read_later(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It ended the asking, with sends refused as if the peer still held more."""
    log, peer, told, read_to = MemoryLog.holding(PART), Peer(), list[str](), list[int]()

    def on_taken() -> None:
        if trio.current_time() < opens_at:
            raise StoreReadError(OSError(errno.EMFILE, "Too many open files"), operation="open", path="commitlog")
        read_to.append(log.max_offset)

    catch_up = await returned(
        nursery, network, log, holds=DATA, probe=peer.probe, refuse_puts=told.append, on_taken=on_taken
    )
    opens_at = trio.current_time() + 60.0
    peer.answer = LogRange(0, len(DATA))
    await until(lambda: "cannot be read, and is tried again: open failed" in told[-1])
    assert catch_up.opened.is_set()
    await until(lambda: not told[-1], within_s=100.0)
    assert read_to == [len(DATA)], "or sends would be given queue offsets that are taken"
    peer.answer = LogRange(0, len(DATA) + 1)
    await until(lambda: "holds messages beyond this log's end" in told[-1], within_s=100.0)
    nursery.cancel_scope.cancel()


async def _refusals_until(catch_up: CatchUpService, condition: Callable[[], bool]) -> set[str]:
    refusals = set()
    with trio.fail_after(60.0):
        while not condition():
            refusals.add(catch_up.refusal)
            await trio.sleep(0.001)
    return refusals - {""}


async def test_a_longer_peer_with_other_bytes_ends_the_sends_in_life(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Two masters find each other: the shorter one takes no more, and lives on for its readers and its operator."""
    theirs = records([*BODIES[:20], *[b"theirs" * 100] * 30])
    log, peer = MemoryLog.holding(PART), Peer()
    catch_up = await returned(nursery, network, log, holds=theirs, probe=peer.probe)
    peer.answer = LogRange(0, len(theirs))
    await until(lambda: states(catch_up) == ["unfit"])
    assert "holds other bytes than this log" in catch_up.refusal
    assert log.content() == PART
    nursery.cancel_scope.cancel()


async def test_a_shorter_peer_with_other_bytes_is_told_of_in_life(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    theirs = records([*BODIES[:20], b"theirs"])
    log, peer = MemoryLog.holding(PART), Peer()
    catch_up = await returned(nursery, network, log, holds=theirs, probe=peer.probe)
    peer.answer = LogRange(0, len(theirs))
    with capture_logs() as logs:
        await until(lambda: states(catch_up) == ["unfit"])
    assert [line["log_level"] for line in logs if line["event"] == "catch_up.answered"] == ["error"]
    assert catch_up.refusal == ""
    nursery.cancel_scope.cancel()


async def test_a_peer_that_follows_is_no_peer_that_holds_more(
    network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """While sends go on: what it holds beyond the end at which it was asked came from here."""
    log = MemoryLog.holding(PART)
    peer_log = MemoryLog.holding(PART)
    catch_up = start_catch_up(nursery, network, log, MasterAddress("peer", 20000))
    assert await opened_within(catch_up, 6.0)
    await start_master(nursery, network, peer_log, ha_options(ha_listen_port=20000))

    async def go_on() -> None:
        for body in BODIES[30:]:
            end = log.max_offset
            rolled = records([body], start=end)
            log.extend(rolled)
            await trio.sleep(0.05)
            peer_log.extend(rolled)
            await trio.sleep(1.0)

    nursery.start_soon(go_on)
    refusals = await _refusals_until(catch_up, lambda: states(catch_up) == ["settled"])
    assert refusals == set()
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("held", [(PART, DATA), (DATA, PART)])
async def test_two_peers_are_asked_until_the_longest_log_is_here(
    held: tuple[bytes, bytes], network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    log, taken_up_to = MemoryLog.holding(records(BODIES[:10])), list[int]()
    ports = [(await start_master(nursery, network, MemoryLog.holding(data))).port for data in held]
    peers = [MasterAddress("peer", port) for port in ports]
    catch_up = start_catch_up(nursery, network, log, *peers, on_taken=lambda: taken_up_to.append(log.max_offset))
    assert await opened_within(catch_up, 120.0)
    assert log.content() == DATA
    assert taken_up_to == [len(DATA)], "whichever of them brought it, the store is told before the first send"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_an_empty_log_begins_like_the_longest(
    order: tuple[int, int], network: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The other peer ends where the longest no longer reaches: what begins like that one cannot go on.

    The start ended, and asked for an empty store, which then began in the same way: for ever.
    """
    long = MemoryLog.holding(DATA)
    for _ in range(3):
        long.delete_first_file()
    held = [MemoryLog.holding(records(BODIES[:3])), long]
    ranges = {
        (await start_master(nursery, network, log)).port: LogRange(log.min_offset, log.max_offset) for log in held
    }
    peers = [MasterAddress("peer", list(ranges)[number]) for number in order]

    async def probe(peer: MasterAddress) -> LogRange:
        return ranges[peer.port]

    log = MemoryLog()
    catch_up = start_catch_up(nursery, network, log, *peers, answers_needed=2, probe_peer=probe)
    assert await opened_within(catch_up, 1.0)
    assert (log.min_offset, log.content()) == (3 * FILE, DATA[3 * FILE :])
    nursery.cancel_scope.cancel()
