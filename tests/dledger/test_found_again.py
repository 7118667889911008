"""A member is found as one process, as another, and as the first again: a name led elsewhere for some seconds."""

from typing import Final

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.dledger_wire import MemberStatus
from rmqha.dledger.rival_members import RivalMembers
from tests.dledger.servers import Member, ServerGroup

LIST: Final = {"n0": "n0h:1", "n1": "n1h:1", "n2": "n2h:1"}


@pytest.mark.parametrize("found", ["AB", "ABA", "ABAB", "ABCA", "ABCB", "AABBAA"])
def test_the_process_that_was_found_last_counts(found: str) -> None:
    rivals = RivalMembers("n0", "100", LIST)
    for process in found:
        rivals.note("n1", LIST, MemberStatus(process=process))
    assert rivals.process_of("n1") == found[-1]
    for process in found:
        rivals.note("n2", LIST, MemberStatus(counted={"n1": process}))
        assert rivals.of("n1") is None, "each of them was found here"


def test_however_often_two_take_turns_no_other_is_forgotten() -> None:
    rivals = RivalMembers("n0", "100", LIST)
    for process in ("first", *["A", "B"] * 200):
        rivals.note("n1", LIST, MemberStatus(process=process))
    for _ in range(30):
        rivals.note("n2", LIST, MemberStatus(counted={"n1": "first"}))
    assert rivals.of("n1") is None


async def test_a_group_whose_name_led_elsewhere_for_a_while_is_whole_again(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had found the other process told of it for the rest of its life: no vote of that member counted any more.

    Without the leader the two that were left elected nobody.
    """
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await group.wait_leader()
    await trio.sleep(15)
    old, other = group.members["n2"], group.addresses["n2"]
    group.addresses["n2"] = "10.0.0.9"
    new = group.members["n2"] = Member("n2", group)
    await group.start("n2")
    group.addresses["n2"] = other
    way = group.members["n0"].running.rpc.connections["n2"]
    there = way._address
    monkeypatch.setattr(way, "_address", "10.0.0.9:20911")
    assert way._client is not None
    way._client.close()
    await trio.sleep(15)
    assert any(group.members[name].running.membership.troubles() for name in ("n0", "n1"))
    monkeypatch.setattr(way, "_address", there)
    new.kill()
    group.members["n2"] = old
    await trio.sleep(60)
    assert [list(member.running.membership.troubles()) for member in group.members.values()] == [[], [], []]
    group.members["n0"].kill()
    await trio.sleep(30)
    assert [name for name in group.leaders if name != "n0"]
