"""Members of a group whose tables are gone beside their log say so; who begins empty has lost nothing here."""

import trio
from structlog.testing import capture_logs

from tests.broker.dledger_brokers import BrokerGroup, Node
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_dledger_followers import followers_of, judged
from tests.sim.sim_clock import VirtualClock

_SETTLED_S = 30
"""Tables are taken over, saved and noted."""
TOLD = "/store/config/topics.json was missing when this broker started, though the log holds messages"


async def start_again(group: BrokerGroup, *nodes: Node, gone: str) -> list[dict[str, object]]:
    """After a stop of these, without the files whose path has ``gone`` in it; returns what they logged of tables."""
    for node in nodes:
        await node.stop()
        for path in [path for path in node.disk.files if gone in path]:
            del node.disk.files[path]
    with capture_logs() as logs:
        for node in nodes:
            await node.start()
        await group.wait_master()
        await trio.sleep(_SETTLED_S)
    return [dict(entry) for entry in logs if entry["event"].startswith("config_file.")]


async def test_members_that_all_lost_their_tables_say_so_until_their_next_start(virtual_clock: VirtualClock) -> None:
    """All were "ok", and groups without an offset: their consumers began anew."""
    async with group_of() as group:
        await group.send(b"0")
        (await group.wait_master()).running.offsets.commit_offset("g", "t", 0, offset=1)
        await trio.sleep(_SETTLED_S)
        members = [*group.nodes.values()]
        logs = await start_again(group, *members, gone="/config/")
        told = {"event": "config_file.missing", "path": "/store/config/topics.json", "log_level": "warning"}
        assert logs == [told] * 3
        for node in members:
            verdict = await judged(node)
            assert verdict.level == "degraded"
            assert [TOLD in reason for reason in verdict.reasons] == [True]
            assert "docs/operations.md, 'A table that is lost'" in verdict.reasons[0]
        assert await start_again(group, *members, gone="nothing") == []
        assert [(await judged(node)).level for node in members] == ["ok"] * 3


async def test_a_follower_that_lost_its_tables_has_its_leaders_and_says_so(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(b"0")
        (await group.wait_master()).running.offsets.commit_offset("g", "t", 0, offset=1)
        await trio.sleep(_SETTLED_S)
        follower, other = await followers_of(group)
        assert len(await start_again(group, follower, gone="/config/")) == 1
        assert follower.running.offsets.query_offset("g", "t", 0) == 1
        (reason,) = (await judged(follower)).reasons
        assert TOLD in reason
        assert "those that the log tells of, or another broker of this group" in reason
        assert (await judged(other)).level == "ok"


async def test_a_member_that_begins_empty_has_lost_no_tables(virtual_clock: VirtualClock) -> None:
    """A new one, or one that was emptied: its log comes from its leader, and then its tables."""
    async with group_of() as group:
        await group.send(b"0")
        assert [node.running.metadata.lost for node in group.nodes.values()] == [[]] * 3
        follower = (await followers_of(group))[0]
        assert await start_again(group, follower, gone="/store/") == []
        assert await group.wait_same() == [b"0"]
        assert (await judged(follower)).level == "ok"
        follower.kill()
        await follower.start()
        assert follower.running.metadata.lost == []


async def test_a_new_group_that_is_started_again_before_anything_was_sent_has_lost_none(
    virtual_clock: VirtualClock,
) -> None:
    async with group_of() as group:
        for node in group.nodes.values():
            node.kill()
        await group.start()
        await group.wait_master()
        assert [node.running.metadata.lost for node in group.nodes.values()] == [[]] * 3
