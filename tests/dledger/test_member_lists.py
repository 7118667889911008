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

from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.codec.host import is_same_address
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.member_lists import MemberLists, majorities_meet, members_of
from rmqha.dledger.membership import find_other_group
from rmqha.dledger.rival_members import Rival, RivalMembers
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


async def test_a_member_whose_list_was_forgotten_says_so_and_loses_nothing_where_it_leads(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All were called in sync. Majorities of three and four meet: what it acknowledges as a leader, the others have."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as lines:
        await grow(group)
    leader, n2 = group.leaders[0], group.members["n2"].running
    (own,) = n2.membership.troubles()
    assert own.startswith(f"it runs with n0, n1, n2, and its leader {leader} runs with n0, n1, n2, n3: correct dLe")
    assert (n2.status().not_to_lead, n2.status().former_members) == (None, tuple(FOUR))
    (told,) = group.members[leader].running.membership.troubles()
    assert told.startswith(f"n2 runs with n0, n1, n2, and {leader}, which leads, runs with n0, n1, n2, n3: correct")
    assert {line["reason"] for line in lines if line["event"] == "dledger_membership.other_list"} >= {own, told}
    assert noted_by(group.members["n2"]) == FOUR

    answer = await group.client.transfer_leadership(leader, "n2", term=n2.member_state.curr_term)
    assert (answer.code, group.leaders) == (DLedgerResponseCode.SUCCESS, ["n2"])
    await group.append(b"second")
    group.members["n2"].kill()
    await group.wait(lambda: bool({*group.leaders} - {"n2"}))
    await group.append(b"third")

    stop(group)
    group.lists.clear()
    await group.start()
    await group.append(b"fourth")
    await trio.sleep(5)
    assert [member.running.membership.troubles() for member in group.members.values()] == [[]] * 4
    assert [member.running.status().former_members for member in group.members.values()] == [None] * 4
    await group.wait_same()


async def test_a_member_that_missed_two_changes_does_not_lead_and_is_refused_at_its_next_start(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It was made leader, and two of five acknowledged what the others never had; its own note fitted its own list."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    await grow(group)
    await grow(group)
    await group.append(b"second")
    await trio.sleep(5)
    leader, n2 = group.leaders[0], group.members["n2"]
    (own,) = n2.running.membership.troubles()
    assert own.startswith(
        f"it runs with n0, n1, n2, and its leader {leader} has committed with n0, n1, n2, n3, n4: maj"
    )
    assert n2.running.status().not_to_lead == own
    answer = await group.client.transfer_leadership(leader, "n2", term=n2.running.member_state.curr_term)
    assert answer.code == DLedgerResponseCode.TAKE_LEADERSHIP_FAILED
    group.members[leader].kill()
    await trio.sleep(60)
    assert "n2" not in group.leaders
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


@pytest.mark.parametrize("is_leader_lost", [False, True])
async def test_a_list_that_is_to_be_shorter_comes_by_a_rolling_restart(
    is_leader_lost: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The leader is the last one; where its machine was lost before, a majority that agreed had no leader for ever."""
    group = ServerGroup(nursery, size=4)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    leader = await group.wait_leader()
    gone = "n3" if leader != "n3" else "n0"
    group.members[gone].kill()
    staying = sorted({*group.members} - {gone})
    group.lists = dict.fromkeys(staying, staying)
    early = [name for name in staying if name != leader]
    for name in early:
        group.members[name].kill()
        await group.members[name].start()
        await trio.sleep(5)
        running = group.members[name].running
        assert (len(running.membership.troubles()), running.membership.not_to_lead) == (1, "")
    group.members[leader].kill()
    await group.append(b"second")
    if not is_leader_lost:
        await group.members[leader].start()
        early = staying
    await trio.sleep(5)
    assert [group.members[name].running.membership.troubles() for name in early] == [[]] * len(early)
    assert [noted_by(group.members[name]) for name in early] == [staying] * len(early)
    await group.wait_same()


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


def troubles_of(group: ServerGroup, name: str) -> list[str]:
    return group.members[name].running.membership.troubles()


async def test_one_id_at_two_addresses_is_told_by_the_member_and_the_leader(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All were called in sync: two processes were n2, each counted by another one: acknowledged entries were lost."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    leader = await group.wait_leader()
    forgotten, moved = sorted({*group.members} - {leader})
    group.places[forgotten] = {moved: "10.0.0.9"}
    group.members[forgotten].kill()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as lines:
        await group.start(forgotten)
        await trio.sleep(10)
    there, here = "10.0.0.9:20911", f"{group.addresses[moved]}:20911"
    (own,), (told,) = troubles_of(group, forgotten), troubles_of(group, leader)
    assert own.startswith(
        f"it has {moved} at {there}, and its leader {leader} has {moved} at {here}: correct dLegerPee"
    )
    assert told.startswith(
        f"{forgotten} has {moved} at {there}, and {leader}, which leads, has {moved} at {here}: corr"
    )
    assert {line["reason"] for line in lines if line["event"] == "dledger_membership.other_list"} >= {own, told}
    assert troubles_of(group, moved) == []
    await group.append(b"second")
    await group.wait_same()


async def test_a_member_that_has_moved_says_who_looks_for_it_elsewhere(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its status said that nobody leads: the others led, and did not find it."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    leader = await group.wait_leader()
    others = sorted({*group.members} - {"n0"})
    group.members["n0"].kill()
    group.addresses["n0"] = "10.0.0.9"
    group.members["n0"] = Member("n0", group)
    await group.start("n0")
    await trio.sleep(10)
    told = [f"it has n0 at 10.0.0.9:20911, and {peer} has n0 at 10.0.0.1:20911: correct" for peer in others]
    troubles = troubles_of(group, "n0")
    assert [trouble[: len(start)] for trouble, start in zip(troubles, told, strict=True)] == told
    for name in sorted(others, key=lambda name: name == leader):
        group.members[name].kill()
        await group.start(name)
        await trio.sleep(10)
    await group.append(b"second")
    await trio.sleep(5)
    assert [troubles_of(group, name) for name in group.members] == [[]] * 3
    await group.wait_same()


async def test_of_two_processes_with_one_id_no_vote_counts(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """One's majority acknowledged what the other's never had, and led without."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await group.wait_leader()
    old = group.members["n2"]
    group.addresses["n2"] = "10.0.0.9"
    new = group.members["n2"] = Member("n2", group)
    await group.start("n2")
    group.members["n1"].kill()
    await group.start("n1")
    await trio.sleep(10)
    there, here = "10.0.0.3:20911", "10.0.0.9:20911"
    told = {name: troubles_of(group, name)[0].partition(" until ")[0] for name in ("n0", "n1", "n2")}
    assert told == {
        "n0": f"two processes are n2, at {there} as it has it, and at {here} as n1 has it: no vote of n2 counts here",
        "n1": f"two processes are n2, at {here} as it has it, and at {there} as n0 has it: no vote of n2 counts here",
        "n2": f"two processes are n2, at {here} as it has it, and at {there} as n0 has it: it is not elected",
    }
    assert [len(group.members[name].running.status().rivals or ()) for name in ("n0", "n1", "n2")] == [1, 1, 1]

    group.members["n0"].kill()
    await trio.sleep(60)
    assert (group.leaders, old.running.pusher.checker) == ([], None), "n0 may have acknowledged with the old one"
    await group.start("n0")
    await trio.sleep(10)
    assert [len(troubles_of(group, name)) for name in ("n0", "n1")] == [0, 0]
    old.kill()
    await group.append(b"second")
    await group.wait_same()
    assert new.running.store.ledger_end_index > 0


def leads_and_may(server: DLedgerServer) -> tuple[bool, bool]:
    return server.pusher.checker is not None, server.membership.may_lead


async def test_a_leader_that_is_told_of_its_rival_gives_leadership_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It led for good, and its majorities and the other process's need not meet."""
    group = ServerGroup(nursery)
    await group.start("n1", "n2")
    await group.wait_leader()
    await group.append(b"first")
    await trio.sleep(5)
    if group.leaders == ["n1"]:
        term = group.members["n1"].running.member_state.curr_term
        answer = await group.client.transfer_leadership("n1", "n2", term=term)
        assert answer.code == DLedgerResponseCode.SUCCESS
    old = group.members["n2"].running
    assert leads_and_may(old) == (True, True)
    group.addresses["n2"] = "10.0.0.9"
    group.members["n2"] = Member("n2", group)
    await group.start("n2", "n0")
    await trio.sleep(10)
    assert leads_and_may(old) == (False, False)
    assert len(old.status().rivals or ()) == 1
    group.members["n0"].kill()
    await trio.sleep(60)
    assert leads_and_may(old) == (False, False)
    answer = await group.client.transfer_leadership("n1", "n2", term=old.member_state.curr_term)
    assert answer.code != DLedgerResponseCode.SUCCESS
    group.members["n2"].kill()
    group.places["n0"] = {"n2": "10.0.0.3"}
    await group.start("n0")
    await group.wait(lambda: old.membership.may_lead)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("10.0.0.1:20911", "10.0.0.1:20911", True),
        ("Host-1:20911", "host-1:20911", True),
        ("0.0.0.0:20911", "10.0.0.1:20911", True),
        ("[::]:20911", "[fd00::1]:20911", True),
        ("0.0.0.0:20911", "10.0.0.1:20912", False),
        ("host-1:20911", "10.0.0.1:20911", False),
        ("10.0.0.1:20911", "10.0.0.1:20912", False),
    ],
)
def test_two_addresses_of_one_member(one: str, other: str, *, is_same: bool) -> None:
    """Where it listens at all of its machine's, its own list says so; of two names for a host nobody knows that."""
    assert (is_same_address(one, other), is_same_address(other, one)) == (is_same, is_same)


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
        own = dict.fromkeys(THREE, "h:1")
        self.lists = MemberLists("n0", own, connections, lambda _, on: self.questions.append(on), process="1")

    def answers(self, *members: str, code: int = 200) -> None:
        self.questions.pop(0)(MetadataResponse(code, peers=dict.fromkeys(members, "h:1")))


def test_a_member_of_another_kind_that_names_nobody_votes_as_ever() -> None:
    peer = Peer()
    assert not peer.lists.may_vote_for_this("n1"), "before it has told"
    peer.answers()
    assert peer.lists.may_vote_for_this("n1")
    assert (peer.lists.of("n1"), peer.lists.differences()) == (None, [])


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
    assert (peer.lists.of("n1"), peer.questions) == (("n0", "n1"), [])
    peer.connection.is_connected, peer.connection.since = False, 2.0
    peer.lists.ask("n1")
    assert (peer.lists.of("n1"), peer.questions) == (None, [])
    peer.connection.is_connected, peer.connection.since = True, 3.0
    peer.lists.ask("n1")
    peer.questions.pop(0)(None)
    assert not peer.lists.may_vote_for_this("n1"), "and it is asked again"
    peer.answers("n0", "n1", "n2")
    assert (peer.lists.of("n1"), peer.lists.differences()) == (("n0", "n1", "n2"), [])


def test_whose_address_of_a_member_is_another_one_votes_all_the_same() -> None:
    """Its host may be named in two ways."""
    peer = Peer()
    peer.lists.ask("n1")
    peer.questions.pop(0)(MetadataResponse(peers={"n0": "h:1", "n1": "H:1", "n2": "10.0.0.3:1", "n3": "h:4"}))
    members, places = peer.lists.differences()
    assert members == ("n1", "runs with n0, n1, n2, n3", "runs with n0, n1, n2")
    assert places == ("n1", "has n2 at 10.0.0.3:1", "has n2 at h:1")
    assert peer.lists.may_vote_for_this("n1")


@pytest.mark.parametrize(
    "peers",
    [None, {}, {str(number): "h:1" for number in range(101)}, {"n" * 256: "h:1"}, {"n1": "h" * 300}],
)
def test_what_is_no_group_s_list_is_none(peers: dict[str, str] | None) -> None:
    """It is noted, and named in the status and in each line of the log: a hostile member's may be of any size."""
    assert members_of(MetadataResponse(peers=peers)) is None
    assert members_of(MetadataResponse(peers={"n1": "h:1", "n0": "h:2"})) == ("n0", "n1")


def test_one_process_that_is_named_in_two_ways_is_no_rival() -> None:
    """Nor is one that has ended since, or of which nothing is known."""
    rivals = RivalMembers("n0", "100", {"n0": "a:1", "n1": "b:1", "n2": "c:1"})
    addresses = {"n0": "a:1", "n1": "10.0.0.2:1", "n2": "c:1"}

    def told(**counted: str) -> Rival | None:
        rivals.note("n2", addresses, MemberStatus(process="300", counted=counted))
        return rivals.of("n1")

    assert told(n1="201") is None, "nobody was found here"
    rivals.note("n1", {}, MemberStatus(process="200"))
    assert (told(n1="200"), told(), told(n1="201")) == (None, None, Rival("n2", "10.0.0.2:1"))
    rivals.note("n1", {}, MemberStatus(process="201"))
    assert (told(n1="200"), told(n1="201"), rivals.process_of("n1")) == (None, None, "201")
    assert (told(n0="99"), rivals.of("n0"), rivals.troubles({})) == (None, None, []), "it was started again"
    rivals.note("n2", addresses | {"n0": "z:1"}, MemberStatus(counted={"n0": "101"}))
    assert rivals.of("n0") == Rival("n2", "z:1")


def test_a_rival_is_known_until_its_teller_counts_another_or_looks_for_it_elsewhere() -> None:
    """A teller that was started again counts nobody yet: who had been told of its rival was elected, and led for good.

    Nor does one tell anything that does not answer as a member of rmqha's, or whose list is none.
    """
    own = {"n0": "a:1", "n1": "b:1", "n2": "c:1"}
    rivals, moved = RivalMembers("n2", "300", own), own | {"n2": "z:1"}
    rivals.note("n0", moved, MemberStatus(process="100", counted={"n2": "301"}))
    known = Rival("n0", "z:1")
    for addresses, status in (
        (moved, MemberStatus(process="101", counted={})),
        (moved, MemberStatus(process="101", counted={"n1": "200"})),
        (moved, None),
        ({}, None),
        (moved, MemberStatus(process="102", counted={"n2": "302"})),
    ):
        rivals.note("n0", addresses, status)
        assert rivals.of("n2") == known
    rivals.note("n0", moved, MemberStatus(counted={"n2": "300"}))
    assert rivals.of("n2") is None
    for other in (own, own | {"n2": "y:1"}, {"n0": "a:1", "n1": "b:1"}):
        rivals.note("n0", moved, MemberStatus(counted={"n2": "301"}))
        assert rivals.of("n2") == known
        rivals.note("n0", other, MemberStatus(counted={}))
        assert rivals.of("n2") is None
        rivals.note("n0", moved, MemberStatus(counted={}))
        assert rivals.of("n2") is None, "and is not remembered"


def test_one_whose_process_has_ended_here_may_have_moved() -> None:
    """In a documented move all who were not started again yet told of two processes, and there was one."""
    rivals = RivalMembers("n1", "200", {"n1": "b:1", "n2": "c:1"})
    rivals.note("n2", {}, MemberStatus(process="300"))
    rivals.note("n0", {"n1": "b:1", "n2": "z:1"}, MemberStatus(counted={"n2": "301"}))
    (told,) = rivals.troubles({"n2": "300"})
    assert told.startswith("two processes are n2, at c:1 as it has it, and at z:1 as n0 has it: no vote of n2 counts")
    (told,) = rivals.troubles({})
    assert told.startswith("it does not find n2 at c:1, where its list has it, and n0 has it at z:1: no vote of n2 cou")


OWN = {"n0": "n0h:1", "n1": "n1h:1", "n2": "n2h:1"}


def told_often(rivals: RivalMembers, times: int = 20, teller: str = "n0", **counted: str) -> None:
    for _ in range(times):
        rivals.note(teller, OWN, MemberStatus(counted=counted))


def test_two_processes_behind_one_name_are_two() -> None:
    """A pod's own name leads to itself, that of the new one elsewhere: the old one was elected, and all was well."""
    rivals = RivalMembers("n2", "300", OWN)
    told_often(rivals, 19, n2="301")
    assert rivals.of("n2") is None, "it may not know of this process yet"
    told_often(rivals, 1, n2="301")
    assert rivals.of("n2") == Rival("n0", "n2h:1")
    (told,) = rivals.troubles({})
    assert told.startswith("two processes are n2, at n2h:1, which leads n0 to the other one: it is not elected until ")
    told_often(rivals, 1)
    assert rivals.of("n2") is not None, "n0 may have acknowledged with it"
    told_often(rivals, 1, n2="300")
    assert (rivals.of("n2"), rivals.troubles({})) == (None, [])


def test_a_process_that_has_ended_is_remembered_however_often_the_next_one_tells() -> None:
    """It tells for as long as it runs; who has not asked again yet, or was away, still counts the one before."""
    rivals = RivalMembers("n0", "100", OWN)
    for process in ("200", *["201"] * 500):
        rivals.note("n1", OWN, MemberStatus(process=process))
    told_often(rivals, teller="n2", n1="200")
    assert (rivals.of("n1"), rivals.counts_unknown("n2"), rivals.process_of("n1")) == (None, False, "201")
    rivals.note("n2", OWN | {"n1": "z:1"}, MemberStatus(counted={"n1": "200"}))
    assert rivals.of("n1") is None


def test_who_is_not_found_any_more_by_its_teller_is_no_rival_though_it_was() -> None:
    """This member was started again, and cannot be reached there since."""
    rivals = RivalMembers("n2", "300", OWN)
    told_often(rivals, 1, n2="299")
    told_often(rivals, 30)
    assert rivals.of("n2") is None


def test_of_a_member_behind_one_name_that_is_found_as_two_no_vote_counts() -> None:
    rivals = RivalMembers("n0", "100", OWN)
    rivals.note("n2", OWN, MemberStatus(process="300"))
    told_often(rivals, teller="n1", n2="301")
    assert rivals.of("n2") == Rival("n1", "n2h:1")
    (told,) = rivals.troubles({"n2": "300"})
    assert told.startswith("two processes are n2, at n2h:1, which leads n1 to the other one: no vote of n2 counts here")
    assert rivals.troubles({}) == [], "it ended, and who is there now has not been asked yet"
    rivals.note("n2", OWN, MemberStatus(process="301"))
    assert rivals.of("n2") is None, "it was started again"


def test_who_counts_other_processes_is_asked_until_it_does_not_and_all_are_now_and_then() -> None:
    peer = Peer()
    peer.lists.ask_all()
    status = MemberStatus(process="7", counted={"n0": "8"})
    peer.questions.pop(0)(MetadataResponse(peers=dict.fromkeys(THREE, "h:1"), rmqha_status=status))
    peer.lists.ask_all()
    peer.questions.pop(0)(MetadataResponse(peers=dict.fromkeys(THREE, "h:1"), rmqha_status=MemberStatus()))
    peer.lists.ask_all()
    status = MemberStatus(counted={"n0": "1"})
    peer.questions.pop(0)(MetadataResponse(peers=dict.fromkeys(THREE, "h:1"), rmqha_status=status))
    peer.lists.ask_all()
    assert peer.questions == []
    peer.lists.ask_all(again=True)
    assert len(peer.questions) == 1


async def test_all_are_asked_again_every_ten_seconds(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is gone says nothing of its end: its process counted for as long as nothing was sent there."""
    asked = list[float]()
    ask_all = MemberLists.ask_all

    def note_again(lists: MemberLists, *, again: bool = False) -> None:
        if again:
            asked.append(trio.current_time())
        ask_all(lists, again=again)

    monkeypatch.setattr(MemberLists, "ask_all", note_again)
    group = ServerGroup(nursery)
    await group.start("n0")
    await trio.sleep(35)
    assert len(asked) == 3


def test_what_a_member_tells_of_processes_is_kept_within_bounds() -> None:
    addresses = {"n0": "10.0.0.1:1", "n1": "10.0.0.2:1"}
    rivals = RivalMembers("n0", "1", addresses)
    long = "x" * 1_000_000
    for number in range(200):
        counted = {"n0": long} | {f"{number}-{other}": "7" for other in range(100)}
        rivals.note("n1", addresses | {"n0": "10.0.0.9:1"}, MemberStatus(process=f"{number}{long}", counted=counted))
    assert rivals.process_of("n1") is None
    assert rivals.of("n0") is None
    rivals.note("n1", addresses | {"n0": "10.0.0.9:1"}, MemberStatus(process="5", counted={"n0": "7"}))
    assert rivals.process_of("n1") == "5"
    assert rivals.of("n0") is not None
