"""A leader whose disk is full lets a member lead that has room; three DLedgerServers in one event loop."""

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_rpc_service import DLedgerRpcService
from rmqha.errors import StoreWriteError
from tests.dledger.servers import ServerGroup

Code = DLedgerResponseCode
SOON_S = 3.0


@pytest.fixture
async def group(nursery: trio.Nursery, autojump_clock: MockClock) -> ServerGroup:
    made = ServerGroup(nursery)
    await made.start()
    await made.append(*[b"before"] * 5)
    await made.wait_same()
    return made


def crowd(group: ServerGroup, *names: str, full: bool = True) -> None:
    """The disks of these are above the ratio, or have room again."""
    for name in names:
        group.members[name].disk.faults.crowded = full


def term_of(group: ServerGroup) -> int:
    return max(member.running.member_state.curr_term for member in group.members.values() if member.server)


async def test_who_has_room_takes_over_and_appends_go_on(group: ServerGroup, autojump_clock: MockClock) -> None:
    """§7.3 row 18, of a full disk: DLedger's leader stays, and the group takes nothing."""
    old, term = await group.wait_leader(), term_of(group)
    crowd(group, old)
    await group.wait(lambda: group.leaders not in ([old], []), limit_s=SOON_S)
    begun_at = trio.current_time()
    await group.append(*[b"after"] * 20)
    assert trio.current_time() - begun_at < SOON_S
    assert term_of(group) == term + 1, "it was handed over, and not fought for"
    crowd(group, old, full=False)
    await group.wait_same()


async def test_so_it_does_when_the_next_file_cannot_be_made(group: ServerGroup, autojump_clock: MockClock) -> None:
    """There is not even space for its vote: it goes on once there is, and says nothing before."""
    old = await group.wait_leader()
    server, faults = group.members[old].running, group.members[old].disk.faults
    faults.full = True
    error = StoreWriteError(OSError(errno.ENOSPC, "No space left on device"), operation="create", path="/x")
    assert server.store.room.take_for_lacking(error)
    await group.wait(lambda: group.leaders not in ([old], []), limit_s=SOON_S)
    await group.append(b"after")
    assert "No space left on device" in (server.status().write_error or "")
    faults.full = False
    await group.wait_same()
    assert server.status().write_error is None


async def test_where_all_are_full_the_leader_stays_and_says_so_once(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    old, term = await group.wait_leader(), term_of(group)
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        crowd(group, *group.members)
        await trio.sleep(120)
    assert (group.leaders, term_of(group)) == ([old], term)
    told = [line for line in logs if line["event"] in {"dledger.no_room", "dledger.gave_way"}]
    assert [line["event"] for line in told] == ["dledger.no_room"]
    assert told[0]["others"] == dict.fromkeys(set(group.members) - {old}, "the disk is too full")
    assert (await group.client.append(b"no")).code == Code.DISK_FULL
    crowd(group, *group.members, full=False)
    await group.append(b"after")
    assert group.leaders == [old]


async def test_where_no_majority_has_room_the_leader_stays(group: ServerGroup, autojump_clock: MockClock) -> None:
    """One member with room could store, but not commit: who sends would wait in vain, not knowing the outcome."""
    old = await group.wait_leader()
    away, there = [name for name in group.members if name != old]
    group.members[away].kill()
    crowd(group, old)
    await trio.sleep(30)
    assert group.leaders == [old]
    await group.members[away].start()
    await group.wait(lambda: group.leaders not in ([old], []), limit_s=SOON_S)
    crowd(group, there)
    await group.append(b"after")


async def test_disks_at_their_limits_do_not_send_the_leadership_round(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """Each leader's disk is full at once, and has room again as soon as it leads no more."""
    term, begun_at = term_of(group), trio.current_time()
    while trio.current_time() < begun_at + 60:
        for name in group.members:
            crowd(group, name, full=name in group.leaders)
        await trio.sleep(0.05)
    assert 3 <= term_of(group) - term <= 20
    crowd(group, *group.members, full=False)
    await group.append(b"after")
    await group.wait_same()


async def test_who_had_no_room_takes_over_again_when_it_has(group: ServerGroup, autojump_clock: MockClock) -> None:
    old = await group.wait_leader()
    crowd(group, old)
    await group.wait(lambda: group.leaders not in ([old], []), limit_s=SOON_S)
    await group.append(b"after")
    (leader,) = group.leaders
    term = term_of(group)
    crowd(group, old, full=False)
    await trio.sleep(5)
    answer = await group.client.transfer_leadership(leader, old, term=term)
    assert answer.code == Code.TAKE_LEADERSHIP_FAILED, "it may be full again in a moment"
    await trio.sleep(10)
    answer = await group.client.transfer_leadership(leader, old, term=term)
    assert answer.code == Code.SUCCESS
    await group.append(b"more")
    await group.wait_same()


async def test_a_full_member_that_alone_has_all_leads_until_another_has_it(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """Nobody may be elected without what is committed: who is full hands on what it has."""
    old = await group.wait_leader()
    late, _other = [name for name in group.members if name != old]
    group.members[late].kill()
    await group.append(*[b"more"] * 30)
    for member in group.members.values():
        member.kill()
    crowd(group, old)
    await group.members[old].start()
    await group.members[late].start()
    await group.wait(lambda: group.leaders == [old])
    await group.wait(lambda: group.members[late].running.store.ledger_end_index == 34)
    await trio.sleep(5)
    assert group.leaders == [old]
    await group.members[_other].start()
    await group.wait(lambda: group.leaders not in ([old], []), limit_s=SOON_S)
    await group.append(b"after")
    crowd(group, old, full=False)
    await group.wait_same()


async def test_one_that_refuses_is_passed_over(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have filled up since it was asked; one of Java's does not say."""
    ask = DLedgerRpcService.ask_metadata

    def as_java_s(service: DLedgerRpcService, peer: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        ask(service, peer, lambda told: on_answer(told and replace(told, rmqha_status=None)))

    monkeypatch.setattr(DLedgerRpcService, "ask_metadata", as_java_s)
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"before")
    old = await group.wait_leader()
    full, able = [name for name in group.members if name != old]
    crowd(group, old, full)
    await group.wait(lambda: group.leaders == [able], limit_s=SOON_S)
    await trio.sleep(30)
    assert group.leaders == [able]


async def test_a_group_of_one_stays(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery, size=1)
    await group.start()
    await group.append(b"one")
    crowd(group, "n0")
    await trio.sleep(10)
    assert (await group.client.append(b"no")).code == Code.DISK_FULL
    crowd(group, "n0", full=False)
    await group.append(b"two")
