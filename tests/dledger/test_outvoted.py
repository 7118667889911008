"""A member with another group's log, longer than this group's, and without the note that would tell."""

import trio
from trio.testing import MockClock

from tests.dledger.servers import Member, ServerGroup


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
