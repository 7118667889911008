"""A broker whose dLegerSelfId is another member's does not begin anew in that member's store."""

import pytest
from trio.testing import MockClock

from rmqha.errors import ConfigError
from tests.broker.test_dledger_broker import group_of


async def test_brokers_with_each_other_s_ids_do_not_start(autojump_clock: MockClock) -> None:
    """They began empty, elected one of them, and what a majority had acknowledged was out of service."""
    async with group_of() as group:
        await group.send(*(b"%d" % number for number in range(10)))
        await group.wait_same()
        for node in group.nodes.values():
            await node.stop()
        for name, other in (("n0", "n1"), ("n1", "n0")):
            node, files = group.nodes[name], set(group.nodes[name].disk.files)
            with pytest.raises(ConfigError, match=f"/store is the store of member {name}, and {other} has none there"):
                node.controller(dLegerSelfId=other)
            assert set(node.disk.files) == files
        await group.start()
        assert len(await group.wait_same()) == 10


async def test_a_member_may_begin_empty(autojump_clock: MockClock) -> None:
    """As one that is rebuilt: what it has of its broker tells nothing of another member."""
    async with group_of() as group:
        await group.send(b"0")
        node = group.nodes["n0"]
        await node.stop()
        for path in [path for path in node.disk.files if "/dledger-n0/" in path]:
            del node.disk.files[path]
        await node.start()
        assert await group.wait_same() == [b"0"]
