"""A member that runs with another list than its group: it must not lead, and all say so."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.member_lists import MemberLists, majorities_meet, members_of
from rmqha.dledger.membership import find_other_group
from tests.dledger.servers import Member, ServerGroup

THREE, FOUR, FIVE = ["n0", "n1", "n2"], ["n0", "n1", "n2", "n3"], ["n0", "n1", "n2", "n3", "n4"]


def noted_by(member: Member) -> list[str] | None:
    file = member.disk.files.get(f"/store/dledger-{member.name}/members")
    return json.loads(bytes(file.cache))["members"] if file is not None else None


def stop(group: ServerGroup) -> None:
    for member in group.members.values():
        if member.server is not None:
            member.kill()


async def grow(group: ServerGroup, *, forgotten: str = "n2") -> None:
    """One member more is to be there, and the file of ``forgotten`` was not changed; it is started last."""
    stop(group)
    number = len(group.addresses)
    group.addresses[f"n{number}"] = f"10.0.0.{number + 1}"
    group.members[f"n{number}"] = Member(f"n{number}", group)
    group.lists[forgotten] = THREE
    await group.start(*sorted(set(group.members) - {forgotten}))
    await group.wait_leader()
    await trio.sleep(5)
    await group.start(forgotten)
    await trio.sleep(10)


async def test_a_member_whose_list_was_forgotten_neither_leads_nor_is_silent(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All were called in sync; it was made leader, and two of five acknowledged what the others never had."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as lines:
        await grow(group)
    leader, n2 = group.leaders[0], group.members["n2"].running
    (own,) = n2.membership.troubles()
    assert own.startswith(f"it runs with n0, n1, n2, and its leader {leader} has committed with n0, n1, n2, n3: it")
    assert n2.status().not_to_lead == own
    (told,) = group.members[leader].running.membership.troubles()
    assert told.startswith(f"n2 runs with n0, n1, n2, and {leader}, which leads, with n0, n1, n2, n3: correct dLeger")
    assert {line["reason"] for line in lines if line["event"] == "dledger_membership.other_list"} >= {own, told}
    answer = await group.client.transfer_leadership(leader, "n2", term=n2.member_state.curr_term)
    assert answer.code == DLedgerResponseCode.TAKE_LEADERSHIP_FAILED
    assert noted_by(group.members["n2"]) == FOUR

    group.members[leader].kill()
    await trio.sleep(60)
    assert "n2" not in group.leaders

    stop(group)
    group.lists.clear()
    await group.start()
    await group.append(b"second")
    await trio.sleep(5)
    assert [member.running.membership.troubles() for member in group.members.values()] == [[]] * 4
    assert [member.running.status().former_members for member in group.members.values()] == [None] * 4


async def test_a_member_that_missed_two_changes_is_refused_at_its_next_start(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its own note fitted its own list: it was taken for one that nothing had been changed for."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    await grow(group)
    await grow(group)
    await group.append(b"second")
    n2 = group.members["n2"]
    assert n2.running.membership.not_to_lead
    n2.kill()
    others = find_other_group(group.options_of("n2"), n2.disk.mount())
    assert others is not None
    assert "the members were n0, n1, n2, n3, n4 and are to be n0, n1, n2" in others.what


async def test_votes_of_those_whose_majorities_need_not_meet_its_own_are_not_asked_for(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It has followed nobody yet, so it cannot know what was committed; those whom it asks run with other lists."""
    group = ServerGroup(nursery, size=5)
    group.lists["n2"] = THREE
    await group.start("n1", "n2")
    await trio.sleep(60)
    assert group.leaders == []
    await group.start("n0")
    await trio.sleep(30)
    assert group.leaders in (["n0"], ["n1"]), "by a majority of five"


async def test_a_list_that_is_to_be_shorter_counts_once_its_leader_is_started_with_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """In a rolling restart the leader is the last one, and those before it run with less than it committed by."""
    group = ServerGroup(nursery, size=4)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    leader = await group.wait_leader()
    group.members["n3" if leader != "n3" else "n0"].kill()
    gone = next(name for name, member in group.members.items() if member.server is None)
    staying = sorted(set(group.members) - {gone})
    group.lists = dict.fromkeys(staying, staying)
    for name in [name for name in staying if name != leader]:
        group.members[name].kill()
        await group.members[name].start()
        await trio.sleep(5)
        assert group.members[name].running.membership.not_to_lead
    group.members[leader].kill()
    await trio.sleep(20)
    assert group.leaders == []
    await group.members[leader].start()
    await group.append(b"second")
    await trio.sleep(5)
    assert [group.members[name].running.membership.troubles() for name in staying] == [[]] * 3
    assert [noted_by(group.members[name]) for name in staying] == [staying] * 3


@pytest.mark.parametrize("last", ["n0", "n1", "n2"])
async def test_a_longer_list_comes_live_whoever_is_started_with_it_last(
    last: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    group.addresses["n3"] = "10.0.0.4"
    group.members["n3"] = Member("n3", group)
    for name in [*sorted({"n0", "n1", "n2"} - {last}), last, "n3"]:
        if group.members[name].server is not None:
            group.members[name].kill()
        await group.members[name].start()
        await group.wait_leader()
        await trio.sleep(20)
    await group.append(b"second")
    await trio.sleep(5)
    assert [noted_by(member) for member in group.members.values()] == [FOUR] * 4
    assert [member.running.membership.troubles() for member in group.members.values()] == [[]] * 4


async def test_a_member_leads_again_once_a_leader_has_committed_by_its_own_list(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Five were tried, and taken back: of two that agree only one could ever lead."""
    group = ServerGroup(nursery, size=5)
    group.lists["n2"] = THREE
    await group.start("n0", "n1", "n2")
    await group.append(b"first")
    await trio.sleep(5)
    former, n2 = await group.wait_leader(), group.members["n2"].running
    assert f"its leader {former} has committed with n0, n1, n2, n3, n4: " in n2.membership.not_to_lead
    for name in ("n0", "n1"):
        group.members[name].kill()
    (other,) = {"n0", "n1"} - {former}
    group.lists[other] = THREE
    await group.start(other)
    await group.append(b"second")
    await trio.sleep(5)
    assert (group.leaders, n2.membership.not_to_lead) == ([other], "")
    answer = await group.client.transfer_leadership(other, "n2", term=n2.member_state.curr_term)
    assert (answer.code, group.leaders) == (DLedgerResponseCode.SUCCESS, ["n2"])


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("n0 n1 n2", "n0 n1 n2", True),
        ("n0 n1 n2", "n0 n1 n2 n3", True),
        ("n0 n1 n2", "n0 n1 n2 n3 n4", False),
        ("n0 n1 n2", "n0 n1 n3", False),
    ],
)
def test_majorities_that_must_meet(one: str, other: str, *, meet: bool) -> None:
    assert majorities_meet(one.split(), other.split()) is meet


class Peer:
    """One other member, n1, and what it answers."""

    def __init__(self) -> None:
        self.connection = SimpleNamespace(is_connected=True, since=1.0)
        self.questions: list[Callable[[MetadataResponse | None], None]] = []
        connections: Any = {"n1": self.connection}
        self.lists = MemberLists(("n0", "n1", "n2"), connections, lambda _peer, on: self.questions.append(on))

    def answers(self, *members: str, code: int = 200) -> None:
        self.questions.pop(0)(MetadataResponse(code, peers=dict.fromkeys(members, "h:1")))


def test_a_member_of_another_kind_that_names_nobody_votes_as_ever() -> None:
    peer = Peer()
    assert not peer.lists.may_vote_for_this("n1"), "before it has told"
    peer.answers()
    assert peer.lists.may_vote_for_this("n1")
    assert (peer.lists.of("n1"), peer.lists.others()) == (None, {})


def test_who_refuses_to_say_is_asked_for_its_vote() -> None:
    """It says there that this member is none of its group's, which is logged."""
    peer = Peer()
    peer.lists.ask("n1")
    peer.answers("n1", "n7", "n8", code=401)
    assert peer.lists.may_vote_for_this("n1")


@pytest.mark.parametrize(
    ("told", "may_vote"),
    [("n0 n1 n2", True), ("n0 n1 n2 n3", True), ("n1", True), ("n0 n1 n2 n3 n4", False), ("n0 n1 n9", False)],
)
def test_whose_vote_counts(told: str, *, may_vote: bool) -> None:
    peer = Peer()
    peer.lists.ask_all()
    peer.answers(*told.split())
    assert peer.lists.may_vote_for_this("n1") is may_vote


def test_a_list_is_known_for_as_long_as_the_connection() -> None:
    """The next process may run with another one."""
    peer = Peer()
    peer.lists.ask("n1")
    peer.answers("n0", "n1")
    peer.lists.ask("n1")
    assert (peer.lists.others(), peer.questions) == ({"n1": ("n0", "n1")}, [])
    peer.connection.is_connected, peer.connection.since = False, 2.0
    peer.lists.ask("n1")
    assert (peer.lists.of("n1"), peer.questions) == (None, [])
    peer.connection.is_connected, peer.connection.since = True, 3.0
    peer.lists.ask("n1")
    peer.questions.pop(0)(None)
    assert not peer.lists.may_vote_for_this("n1"), "and it is asked again"
    peer.answers("n0", "n1", "n2")
    assert (peer.lists.of("n1"), peer.lists.others()) == (("n0", "n1", "n2"), {})


@pytest.mark.parametrize("peers", [None, {}, {str(number): "h:1" for number in range(101)}, {"n" * 256: "h:1"}])
def test_what_is_no_group_s_list_is_none(peers: dict[str, str] | None) -> None:
    """It is noted, and named in the status and in each line of the log: a hostile member's may be of any size."""
    assert members_of(MetadataResponse(peers=peers)) is None
    assert members_of(MetadataResponse(peers={"n1": "h:1", "n0": "h:2"})) == ("n0", "n1")
