"""What a member that cannot store says of itself, and does when it is to lead."""

import errno
from collections.abc import MutableMapping, Sequence
from typing import Any

import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.role_log import RoleLog
from rmqha.errors import StoreWriteError
from tests.dledger.members import LEADER, follow, opened
from tests.dledger.servers import ServerGroup
from tests.sim.sim_disk import SimDisk


async def test_who_cannot_store_what_its_leader_sends_says_so(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Else the group's verdict is good while one that can store fewer is all it has left."""
    group = ServerGroup(nursery)
    await group.start()
    leader = await group.wait_leader()
    follower = group.members[next(name for name in group.members if name != leader)].running
    assert follower.status().write_error is None
    follower.pusher.handler.misfit = "is mappedFileSizeForEntryData the same?"
    assert follower.status().write_error == "is mappedFileSizeForEntryData the same?"


async def test_a_leader_that_cannot_read_what_another_one_lacks_says_so(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """That one lacked three entries, and would for ever: "ok" was the verdict of the group, and "in sync"."""
    group = ServerGroup(nursery)
    await group.start()
    leader = group.members[await group.wait_leader()].running
    away = next(member for member in group.members.values() if member.running is not leader)
    await group.append(b"one")
    await group.wait_same()
    away.kill()
    await group.append(b"two", b"three", b"four")
    leader.store.recent.clear()
    data = leader.store.data_file_list.mapped_files[0].file()
    place, size = leader.store.get(2).pos, 8
    whole = bytes(data.view()[place : place + size])
    data.pwrite([bytes(size)], place)
    await away.start()
    await group.wait(lambda: leader.status().damage is not None)
    assert f"it cannot read what {away.name} lacks: DISK_ERROR: " in (leader.status().damage or "")
    data.pwrite([whole], place)
    await group.wait_same()
    assert leader.status().damage is None


async def test_who_cannot_lead_any_more_says_so_at_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Its leader refuses appends for as long as it waits."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"one")
    leader = await group.wait_leader()
    other = next(name for name in group.members if name != leader)
    await group.wait_same()
    failed = group.members[other].running.store
    failed.fail(StoreWriteError(OSError(errno.EIO, "it is broken"), operation="fdatasync", path="/store"))
    began_at, term = trio.current_time(), failed.member_state.curr_term
    answer = await group.client.transfer_leadership(leader, other, term=term)
    assert answer.code == DLedgerResponseCode.TAKE_LEADERSHIP_FAILED
    assert trio.current_time() < began_at + 1
    assert group.leaders == [leader]


async def test_for_how_long_nobody_has_led_does_not_begin_anew_with_each_term(autojump_clock: MockClock) -> None:
    """Elections that lead to nothing follow one another, each in a term of its own."""
    store, log = opened(SimDisk(latency_s=(0, 0)).mount()), RoleLog("n0")
    log.tell(store)
    began_at = trio.current_time()
    for term in (2, 3, 4):
        await trio.sleep(5)
        store.member_state.curr_term = term
        log.tell(store)
    assert log.leader_since == began_at
    follow(store, 4)
    log.tell(store)
    assert (store.member_state.leader_id, log.leader_since) == (LEADER, began_at + 15)


def warned(logs: Sequence[MutableMapping[str, Any]]) -> list[tuple[str, str]]:
    return [(line["event"], line["id"]) for line in logs if line["event"] == "dledger.no_leader"]


async def test_that_nobody_leads_is_a_warning_and_its_end_is_told(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """An election that is done within seconds is none."""
    structlog.configure(wrapper_class=structlog.BoundLogger)
    group = ServerGroup(nursery)
    with capture_logs() as logs:
        await group.start()
        await group.wait_leader()
        await trio.sleep(20)
        assert warned(logs) == []
        leader = await group.wait_leader()
        others = [name for name in group.members if name != leader]
        for name in others:
            group.members[name].kill()
        await trio.sleep(60)
        assert warned(logs) == [("dledger.no_leader", leader)]
        for name in others:
            await group.members[name].start()
        await group.wait_leader()
        await trio.sleep(20)
    ended = [line for line in logs if line["event"] == "dledger.led_again" and line["id"] == leader]
    assert [50 < line["leaderless_s"] < 70 for line in ended] == [True]
