"""A member with another group's log, longer than this group's, and without the note that would tell."""

import errno
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from rmqha.dledger.outvoted_note import OUTVOTED_FILE, OutvotedNote
from rmqha.errors import DivergedLogError, StoreWriteError
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


async def test_elected_at_its_first_start_it_gives_way(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Nobody had told it anything: the two keep what they have committed, and elect one of themselves."""
    group, member = await member_with_a_foreign_log(nursery)
    await group.append(*[b"ours"] * 5)
    sound = [one for one in group.members.values() if one is not member]
    await trio.sleep(10)  # what is committed is noted
    for one in sound:
        one.kill()
    await member.start()
    await trio.sleep(15)  # it listens first, and hears nobody
    await sound[0].start()
    await group.wait(lambda: group.leaders == [member.name])
    await sound[1].start()
    await group.wait(lambda: member.running._standing._is_away)
    await group.wait(lambda: group.leaders in ([sound[0].name], [sound[1].name]))
    await group.append(b"again")
    await group.wait(lambda: note_of(member) in member.disk.files)
    assert await group.wait_leader() != member.name


async def test_a_leader_of_whom_one_is_left_stays_beside_one_that_differs(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Who is down may have what it has: it is the one that differs who is to be mended."""
    group, member = await member_with_a_foreign_log(nursery)
    await group.append(*[b"ours"] * 5)
    leader = await group.wait_leader()
    await member.start()
    await group.wait(lambda: member.running.pusher.handler.diverged is not None)
    for one in group.members.values():
        if one is not member and one.name != leader:
            one.kill()
    await trio.sleep(30)
    assert group.leaders == [leader]


async def test_who_has_entries_and_no_note_lets_others_go_first(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group, member = await member_with_a_foreign_log(nursery)
    await group.append(*[b"ours"] * 5)
    await member.start()
    for _ in range(100):
        await trio.sleep(0.1)
        assert member.name not in group.leaders
    await group.append(b"again")


class Blocked:
    """A disk with one file, which can be neither read as a note, nor replaced or removed for some time."""

    def __init__(self) -> None:
        self.file: bytes | None = b"{"
        self.is_blocked = True

    def exists(self, _path: str) -> bool:
        return self.file is not None

    def read_bytes(self, _path: str) -> bytes:
        assert self.file is not None
        return self.file

    async def unlink_in_thread(self, path: str) -> None:
        await self.replace_bytes_in_thread(path, None)

    async def replace_bytes_in_thread(self, path: str, data: bytes | None) -> None:
        if self.is_blocked:
            raise StoreWriteError(OSError(errno.EISDIR, "it is a directory"), operation="rename", path=path)
        self.file = data


class Handler:
    """One whose log differs, or does not."""

    def __init__(self, *, is_outvoted: bool) -> None:
        self.is_outvoted = is_outvoted
        self.diverged = DivergedLogError(0, "committed here") if is_outvoted else None


@pytest.mark.parametrize("is_outvoted", [False, True])
async def test_a_note_in_the_way_is_replaced_once_it_can_be(
    is_outvoted: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It can neither be read nor removed at the start: what is found out later was never noted."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"ours")
    await group.wait_same()
    disk, handler = Blocked(), Handler(is_outvoted=is_outvoted)
    note = OutvotedNote(disk, "/d", group.members["n1"].running.store, handler)  # type: ignore[arg-type]
    nursery.start_soon(note.run)
    await trio.sleep(5)
    assert disk.file == b"{"
    disk.is_blocked = False
    await trio.sleep(5)
    assert (disk.file is not None) == is_outvoted
    assert not is_outvoted or b"committed here" in (disk.file or b"")
