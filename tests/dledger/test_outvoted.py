"""A member with another group's log, longer than this group's, and without the note that would tell."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from rmqha.dledger.outvoted_note import OUTVOTED_FILE, OutvotedNote
from tests.dledger.servers import STORE, Member, ServerGroup


async def member_with_a_foreign_log(nursery: trio.Nursery) -> tuple[ServerGroup, Member]:
    """A group of three, one of them down; its disk is then one of another group's member."""
    foreign = ServerGroup(nursery, network="10.9.0.")
    await foreign.start()
    await foreign.append(*[b"foreign"] * 60)
    await foreign.wait_same()
    group = ServerGroup(nursery)
    await group.start()
    leader = await group.wait_leader()
    member = next(member for name, member in group.members.items() if name != leader)
    member.kill()
    for one in foreign.members.values():
        one.running.stop()
    await foreign.wait(lambda: all(one.server is None for one in foreign.members.values()))
    member.disk = foreign.members[member.name].disk
    mount = member.disk.mount()
    for path in [path for path in member.disk.files if path.endswith("/members")]:
        mount.unlink(path)
    return group, member


async def test_it_does_not_lead_two_that_agree(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """It would be elected, as its log is longer, and the two would take nothing from it."""
    group, member = await member_with_a_foreign_log(nursery)
    await group.append(*[b"ours"] * 5)
    await member.start()
    await group.wait(lambda: member.running.pusher.handler.diverged is not None)
    await group.append(b"and more")
    await group.wait(lambda: member.running.pusher.handler.is_outvoted)
    leader = group.members[await group.wait_leader()]
    leader.kill()
    await trio.sleep(30)
    assert group.leaders == [], "one alone is no majority, and a log that differs is none to lead with"
    await leader.start()
    await group.append(b"again")
    assert await group.wait_leader() != member.name


async def outvoted(group: ServerGroup, member: Member) -> None:
    """It starts, and has found out, and noted, that its log is not the group's."""
    await group.append(*[b"ours"] * 5)
    await member.start()
    await group.wait(lambda: member.running.pusher.handler.diverged is not None)
    await group.append(b"and more")
    await group.wait(lambda: note_of(member) in member.disk.files)
    assert member.running.pusher.handler.is_outvoted


def note_of(member: Member) -> str:
    return f"{STORE}/dledger-{member.name}/{OUTVOTED_FILE}"


async def test_it_knows_so_after_a_restart(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Its leader died meanwhile, and a second one: it would be elected by its longer log, and hold the group up."""
    group, member = await member_with_a_foreign_log(nursery)
    await outvoted(group, member)
    leader = group.members[await group.wait_leader()]
    member.kill()
    leader.kill()
    await member.start()
    reason = str(member.running.pusher.handler.diverged)
    assert "up to index 59 it is committed here" in reason
    assert f"(noted before this start in {note_of(member)}: remove that file if" in reason
    await trio.sleep(30)
    assert group.leaders == []
    await leader.start()
    await group.append(b"again")
    assert await group.wait_leader() != member.name
    member.kill()
    await member.start()
    assert str(member.running.pusher.handler.diverged) == reason, "the same words, however often it is started"


async def test_an_emptied_directory_is_another_log(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The operator moved the log away, and not what is noted of it: this member follows, and the note goes."""
    group, member = await member_with_a_foreign_log(nursery)
    await outvoted(group, member)
    member.kill()
    mount = member.disk.mount()
    for path in [path for path in member.disk.files if path != note_of(member)]:
        mount.unlink(path)
    await member.start()
    assert member.running.pusher.handler.diverged is None
    await group.wait_same()
    await group.wait(lambda: note_of(member) not in member.disk.files)


async def test_a_note_goes_once_the_log_is_found_to_be_the_leader_s(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group, member = await member_with_a_foreign_log(nursery)
    await outvoted(group, member)
    for other in group.members.values():
        if other is not member:
            other.kill()
    member.running.pusher.handler.diverged = None
    await group.wait(lambda: note_of(member) not in member.disk.files)


@pytest.mark.parametrize(
    "noted", [b"", b"[1]", b'{"index": "5"}', b'{"index": 99999}', b'{"index": 3}', b"[" * 100_000]
)
async def test_a_damaged_note_says_nothing(noted: bytes, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery)
    await group.start()
    await group.append(*[b"ours"] * 5)
    await group.wait_same()
    member = group.members["n1"]
    member.kill()
    member.disk.mount().replace_bytes(note_of(member), noted)
    await member.start()
    assert member.running.pusher.handler.diverged is None
    await group.append(b"again")
    await group.wait_same()
    await group.wait(lambda: note_of(member) not in member.disk.files)


async def test_what_cannot_be_noted_at_first_is_noted_later(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The last committed entry could not be read for a moment: nothing was noted, and never would have been."""
    group, member = await member_with_a_foreign_log(nursery)
    await group.append(*[b"ours"] * 5)
    await member.start()
    note, entry = member.running._outvoted_note, OutvotedNote._entry
    note._entry = lambda _index: None  # type: ignore[method-assign, assignment]
    await group.wait(lambda: member.running.pusher.handler.diverged is not None)
    await group.append(b"and more")
    await group.wait(lambda: member.running.pusher.handler.is_outvoted)
    await trio.sleep(5)
    assert note_of(member) not in member.disk.files
    note._entry = partial(entry, note)  # type: ignore[method-assign]
    await group.wait(lambda: note_of(member) in member.disk.files)
