"""Of which group a store is, and who its members were: with others a majority need not have what was acknowledged."""

import json
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.dledger.dledger_options import server_options
from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.membership import Membership, find_other_group
from rmqha.dledger.other_members import OtherMembers
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import StoreWriteError
from rmqha.store.os_disk import OsDisk
from tests.dledger.servers import Member, ServerGroup
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_mount import SimMount


def options_of(base: Path, *members: str, group: str = "g") -> ServerOptions:
    (base / "dledger-n0").mkdir(parents=True, exist_ok=True)
    peers = {member: f"127.0.0.1:{20911 + number}" for number, member in enumerate(members)}
    return server_options(load_dledger_settings({}), group, "n0", peers=peers, store_base_dir=str(base))


def note(base: Path, *members: str) -> None:
    (base / "dledger-n0").mkdir(parents=True, exist_ok=True)
    (base / "dledger-n0" / "members").write_text(json.dumps({"group": "g", "members": members}))


def found_after(base: Path, before: str, now: str) -> OtherMembers | None:
    note(base, *before.split())
    return find_other_group(options_of(base, *now.split()), OsDisk())


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("n0", "n0 n1"),
        ("n0 n1", "n0 n1 n2"),
        ("n0 n1 n2", "n2 n1 n0"),
        ("n0 n1 n2", "n0 n1 n2 n3"),
        ("n0 n1 n2 n3", "n0 n1 n2 n3 n4"),
        ("n0 n1 n2 n3", "n0 n1 n2"),
        ("n0 n1 n2", "n0 n1"),
    ],
)
def test_one_member_may_come_or_go(before: str, now: str, tmp_path: Path) -> None:
    assert found_after(tmp_path, before, now) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [("n0 n1 n2", "n0 n1 n2 n3 n4"), ("n0 n1 n2 n3 n4", "n0 n1 n2"), ("n0 n1 n2", "n0"), ("n0 n1 n2", "n0 n1 n3")],
)
def test_not_so_many_that_majorities_need_not_meet(before: str, now: str, tmp_path: Path) -> None:
    """Sixty acknowledged messages were out of service, and their places given again."""
    others = found_after(tmp_path, before, now)
    assert others is not None
    assert f"the members were {', '.join(before.split())} and are to be {', '.join(now.split())}" in others.what
    assert others.next.startswith("start with the list before this one until all are in sync (")
    assert f"remove {tmp_path}/dledger-n0/members" in others.next


def test_the_store_of_another_group_is_refused(tmp_path: Path) -> None:
    """It led a healthy group, by what it had of the other one."""
    note(tmp_path, "n0", "n1", "n2")
    others = find_other_group(options_of(tmp_path, "n0", "n1", "n2", group="h"), OsDisk())
    assert others is not None
    assert "is the store of a member of group g, and this is group h" in others.what


@pytest.mark.parametrize("noted", [None, "", "[]", "{}", '{"group": 7, "members": "n0"}'])
def test_where_nothing_is_noted_nothing_is_refused(noted: str | None, tmp_path: Path) -> None:
    """As in a store of Java's."""
    options = options_of(tmp_path, "n0", "n1", "n2")
    path = tmp_path / "dledger-n0" / "members"
    if noted is not None:
        path.write_text(noted)
    with capture_logs():
        assert find_other_group(options, OsDisk()) is None


# ---- when they are noted


def noted_by(member: Member) -> list[str] | None:
    file = member.disk.files.get(f"/store/dledger-{member.name}/members")
    return json.loads(bytes(file.cache))["members"] if file is not None else None


async def test_members_are_noted_once_they_have_committed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery)
    await group.start()
    await trio.sleep(30)
    assert [noted_by(member) for member in group.members.values()] == [None] * 3, "nothing is at stake yet"
    await group.append(b"first")
    await trio.sleep(5)
    assert [noted_by(member) for member in group.members.values()] == [["n0", "n1", "n2"]] * 3


async def test_a_list_that_was_tried_in_vain_is_not_noted(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Three became four, of whom two came, and then five without asking those that had what was acknowledged."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    for member in group.members.values():
        member.kill()
    group.addresses["n3"] = "10.0.0.4"
    await group.start("n0", "n1")
    await trio.sleep(60)
    assert noted_by(group.members["n0"]) == ["n0", "n1", "n2"]
    await group.start("n2")
    await trio.sleep(30)
    noted = [noted_by(member) for member in group.members.values()]
    assert noted == [["n0", "n1", "n2", "n3"]] * 3, "without an append of a client's"


async def test_a_leader_whose_list_nobody_can_commit_appends_one_entry(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It looks each second whether it has committed; by an entry each time its log would grow for as long."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    for member in group.members.values():
        member.kill()
    group.addresses["n3"] = "10.0.0.4"
    await group.start()
    leader = await group.wait_leader()
    for name in {*group.members} - {leader}:
        group.members[name].disk.faults.full = True
    await trio.sleep(60)
    assert group.leaders == [leader]
    store = group.members[leader].running.store
    assert (store.committed_index, store.ledger_end_index) == (0, 1)


async def test_a_list_that_comes_by_a_rolling_restart_is_noted_by_all(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Who was restarted within its leader's term kept the former one: 5 -> 3 went on where 2 of them had been away."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    group.addresses["n3"] = "10.0.0.4"
    group.members["n3"] = Member("n3", group)
    leader = await group.wait_leader()
    for name in [*sorted({"n0", "n1", "n2"} - {leader}), leader, "n3"]:
        if group.members[name].server is not None:
            group.members[name].kill()
        await group.members[name].start()
        await group.wait_leader()
        await trio.sleep(20)
    await group.append(b"second")
    await trio.sleep(10)
    assert [noted_by(member) for member in group.members.values()] == [["n0", "n1", "n2", "n3"]] * 4


def former_of(group: ServerGroup) -> list[tuple[str, ...] | None]:
    return [member.running.status().former_members for member in group.members.values()]


async def with_a_fourth(group: ServerGroup) -> None:
    """Three that have committed become four, the list of whom nobody has noted yet."""
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    assert former_of(group) == [None] * 3
    for member in group.members.values():
        member.kill()
    group.addresses["n3"] = "10.0.0.4"
    group.members["n3"] = Member("n3", group)
    await group.start()
    await group.wait_leader()


async def test_a_member_says_that_the_former_list_counts_until_it_has_noted_the_present_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The next member was taken away as soon as all were in sync, and no start was left that was not refused."""
    group = ServerGroup(nursery)
    await with_a_fourth(group)
    former = former_of(group)
    assert (former[:3], former[3] or ()) == ([("n0", "n1", "n2")] * 3, ())
    await trio.sleep(5)
    assert former_of(group) == [None] * 4
    assert [noted_by(member) for member in group.members.values()] == [["n0", "n1", "n2", "n3"]] * 4


async def test_a_member_that_missed_it_notes_the_list_in_a_group_without_appends(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its leader had noted the list, and had nothing to commit: the former list counted there for hours."""
    group = ServerGroup(nursery)
    await with_a_fourth(group)
    await trio.sleep(5)
    late = "n1"
    for member in group.members.values():
        member.kill()
    note_file = group.members[late].disk.files[f"/store/dledger-{late}/members"]
    note_file.cache[:] = json.dumps({"group": "g", "members": ["n0", "n1", "n2"]}).encode()
    await group.start(*sorted(set(group.members) - {late}))
    await group.wait_leader()
    await trio.sleep(30)
    await group.start(late)
    await trio.sleep(10)
    assert noted_by(group.members[late]) == ["n0", "n1", "n2", "n3"]
    assert former_of(group) == [None] * 4


async def test_a_member_that_was_emptied_notes_its_group_in_one_without_appends(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It never did, was in sync, and took any list at its next start."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    for member in group.members.values():
        member.kill()
    await group.start("n0", "n1")
    await group.wait_leader()
    await trio.sleep(30)
    emptied = group.members["n2"]
    emptied.disk.files.clear()
    await group.start("n2")
    await trio.sleep(10)
    assert noted_by(emptied) == ["n0", "n1", "n2"]
    assert former_of(group) == [None] * 3


async def test_a_member_that_is_emptied_once_all_had_noted_notes_its_group_in_the_same_term(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its leader had asked it before, in a term without an entry: it was never in sync until somebody sent."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    former = await group.wait_leader()
    group.members[former].kill()
    await trio.sleep(10)
    leader = await group.wait_leader()
    await group.start(former)
    await trio.sleep(10)
    assert former_of(group) == [None] * 3
    store = group.members[leader].running.store
    assert store.ledger_end_term < group.members[leader].running.member_state.curr_term, "its term has no entry"
    emptied = group.members[former]
    emptied.kill()
    emptied.disk.files.clear()
    await group.start(former)
    await trio.sleep(10)
    assert (noted_by(emptied), former_of(group)) == (["n0", "n1", "n2"], [None] * 3)
    assert group.leaders == [leader]


async def test_a_member_says_that_it_has_noted_nobody(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery, size=1)
    await group.start()
    await trio.sleep(10)
    assert former_of(group) == [None], "nothing is at stake yet"

    async def refuse(_mount: SimMount, to: str, _data: bytes) -> None:
        raise StoreWriteError(OSError(ENOSPC, "full"), operation="replace", path=to)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimMount, "replace_bytes_in_thread", refuse)
        await group.append(b"first")
        await trio.sleep(10)
        assert former_of(group) == [()]


async def test_a_member_is_asked_until_it_runs_with_the_list_of_an_idle_leader(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It had noted the list that it ran with, and was restarted with the new one in the same term."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"first")
    await trio.sleep(5)
    group.addresses["n3"] = "10.0.0.4"
    group.members["n3"] = Member("n3", group)
    for name in ("n0", "n1", "n3"):
        if group.members[name].server is not None:
            group.members[name].kill()
    await group.start("n0", "n1", "n3")
    await trio.sleep(30)
    group.members["n2"].kill()
    await group.start("n2")
    await trio.sleep(10)
    assert former_of(group) == [None] * 4
    assert [noted_by(member) for member in group.members.values()] == [["n0", "n1", "n2", "n3"]] * 4


async def test_a_note_that_the_disk_refuses_is_tried_again(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery, size=1)
    await group.start()
    member = group.members["n0"]
    path = "/store/dledger-n0/members"
    replace_bytes, refused = SimMount.replace_bytes_in_thread, [path] * 3

    async def refuse(mount: SimMount, to: str, data: bytes) -> None:
        if to in refused:
            refused.remove(to)
            raise StoreWriteError(OSError(ENOSPC, "full"), operation="replace", path=to)
        await replace_bytes(mount, to, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimMount, "replace_bytes_in_thread", refuse)
        await group.append(b"first")
        await trio.sleep(10)
    assert (refused, noted_by(member)) == ([], ["n0"])


async def does_note(base: Path, *, led_by: str | None = "n1", committed_term: int = 2) -> bool:
    """Whether a follower of n1 in term 2 notes its members; who is asked says that ``led_by`` leads it."""
    options, asked = options_of(base, "n0", "n1", "n2"), list[str]()
    disk = SimDisk()
    disk.mount().makedirs(options.store.default_path)
    state = SimpleNamespace(self_id="n0", leader_id="n1", curr_term=2)
    store = SimpleNamespace(
        member_state=state,
        committed_index=5,
        ledger_begin_index=0,
        get=lambda _index: SimpleNamespace(term=committed_term),
    )

    def ask(member: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        asked.append(member)
        on_answer(MetadataResponse(leader_id=led_by, peers=dict.fromkeys(options.peers, "h:1")))

    pusher: Any = SimpleNamespace(checker=None)
    membership = Membership(
        options,
        disk.mount(),
        cast(DLedgerMmapFileStore, store),
        pusher,
        "1",
        connections={},
        ask=ask,
        append_barrier=asked.clear,
    )
    with trio.move_on_after(5):
        await membership.run()
    assert {*asked} == {"n1"}
    return f"{options.store.default_path}/members" in disk.files


@pytest.mark.parametrize(("led_by", "is_noted"), [(None, False), ("n2", False), ("n1", True)])
async def test_only_who_still_leads_says_by_whose_list_entries_are_committed(
    led_by: str | None, is_noted: bool, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Restarted meanwhile, it may have another list than that by which it led."""
    assert await does_note(tmp_path, led_by=led_by) == is_noted


async def test_what_was_committed_in_an_earlier_term_was_so_by_a_list_that_nobody_knows(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The present list may have been tried in vain: it would be noted, and the next one be judged by it."""
    assert not await does_note(tmp_path, committed_term=1)


async def test_a_leader_is_asked_for_its_list_anew_in_each_term(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Elected again after a restart, it may run with another one: the former would be noted as what has committed."""
    options, disk = options_of(tmp_path, "n0", "n1", "n2"), SimDisk()
    disk.mount().makedirs(options.store.default_path)
    state = SimpleNamespace(self_id="n0", leader_id="n1", curr_term=2)
    entry, questions = SimpleNamespace(term=1), list[Callable[[MetadataResponse | None], None]]()
    store: Any = SimpleNamespace(
        member_state=state, committed_index=5, ledger_begin_index=0, ledger_end_index=5, get=lambda _index: entry
    )

    def ask(_member: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        questions.append(on_answer)

    def answer(*members: str) -> None:
        questions.pop()(MetadataResponse(leader_id="n1", peers=dict.fromkeys(members, "h:1")))

    parts: Any = (options, disk.mount(), store, SimpleNamespace(checker=None), "1")
    nursery.start_soon(Membership(*parts, connections={}, ask=ask, append_barrier=lambda: None).run)
    await trio.sleep(0.5)
    answer("n0", "n1", "n2")
    state.curr_term = entry.term = 3
    await trio.sleep(2)
    path = f"{options.store.default_path}/members"
    assert path not in disk.files, "nobody has said yet with whom that term is led"
    answer("n0", "n1", "n2", "n3")
    await trio.sleep(2)
    assert json.loads(bytes(disk.files[path].cache))["members"] == ["n0", "n1", "n2", "n3"]
    nursery.cancel_scope.cancel()


async def test_who_follows_one_process_and_finds_another_at_its_address_says_so(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A group that was led from another address than all lists have was well, but for a member that lacked all."""
    options, disk = options_of(tmp_path, "n0", "n1", "n2"), SimDisk().mount()
    state = SimpleNamespace(self_id="n0", leader_id="n1", curr_term=2)
    store: Any = SimpleNamespace(member_state=state, committed_index=-1, ledger_begin_index=0, ledger_end_index=-1)
    answers = [None, "n0", "n1"]

    def ask(_member: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        on_answer(MetadataResponse(leader_id=answers[0], peers=dict.fromkeys(options.peers, "h:1")))

    nobody: Any = SimpleNamespace(checker=None)
    parts = (options, disk, store, nobody, "1")
    membership = Membership(*parts, connections={}, ask=ask, append_barrier=lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(membership.run)
        await trio.sleep(5.5)
        assert membership.troubles() == [], "it may have just ended"
        del answers[0]
        await trio.sleep(5)
        (trouble,) = membership.told_in(MemberStatus()).rivals or ()
        assert trouble.startswith("two processes are n1: it follows one, and that at ")
        assert membership.troubles() == [trouble]
        state.curr_term = 3
        await trio.sleep(5)
        assert membership.troubles() == []
        await trio.sleep(5)
        assert len(membership.troubles()) == 1
        del answers[0]
        await trio.sleep(2)
        assert membership.troubles() == []
        nursery.cancel_scope.cancel()


class Idle:
    """A leader of three whose term has no entry, with two members that are asked by the test."""

    def __init__(self, base: Path) -> None:
        self.options = options_of(base, "n0", "n1", "n2")
        disk = SimDisk().mount()
        disk.makedirs(self.options.store.default_path)
        noted = json.dumps({"group": "g", "members": ["n0", "n1", "n2"]}).encode()
        disk.replace_bytes(f"{self.options.store.default_path}/members", noted)
        self.state = SimpleNamespace(self_id="n0", leader_id="n0", curr_term=2)
        store: Any = SimpleNamespace(
            member_state=self.state, ledger_end_term=1, ledger_end_index=5, committed_index=-1, ledger_begin_index=0
        )
        pusher: Any = SimpleNamespace(checker=object())
        self.barriers = list[int]()
        """The terms of those that were appended."""
        self.questions = list[Callable[[MetadataResponse | None], None]]()

        def append() -> None:
            self.barriers.append(self.state.curr_term)
            store.ledger_end_term = self.state.curr_term

        self.membership = Membership(
            self.options, disk, store, pusher, "1", connections={}, ask=self.ask, append_barrier=append
        )

    def ask(self, _member: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        self.questions.append(on_answer)

    def answer(self, former: tuple[str, ...] | None) -> None:
        """What all that was asked so far is answered."""
        questions, self.questions = self.questions, []
        peers = dict.fromkeys(self.options.peers, "h:1")
        for on_answer in questions:
            on_answer(MetadataResponse(peers=peers, rmqha_status=MemberStatus(end_index=5, former_members=former)))


async def test_what_was_told_in_an_earlier_term_counts_no_more(
    nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Entries were appended since, in the term of another leader: all may have noted their members by them."""
    idle = Idle(tmp_path)
    nursery.start_soon(idle.membership.run)
    await trio.sleep(0.5)
    late, idle.questions = idle.questions, []
    idle.state.curr_term = 3
    await trio.sleep(1)
    idle.questions, present = late, idle.questions
    idle.answer(former=("n0", "n1"))
    await trio.sleep(1)
    assert idle.barriers == []
    idle.questions = present
    idle.answer(former=())
    await trio.sleep(1)
    assert idle.barriers == [3]
    idle.state.curr_term = 4
    await trio.sleep(1)
    idle.answer(former=None)
    await trio.sleep(5)
    assert idle.barriers == [3], "all have noted them"
    idle.answer(former=())
    await trio.sleep(1)
    assert idle.barriers == [3, 4], "one was emptied since"
    nursery.cancel_scope.cancel()
