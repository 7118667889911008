"""A broker whose dLegerSelfId is another member's does not begin anew in that member's store."""

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.cli.dledger_status import ask_members
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.errors import ConfigError
from tests.broker.test_dledger_broker import group_of
from tests.sim.sim_clock import VirtualClock


async def test_brokers_with_each_other_s_ids_do_not_start(virtual_clock: VirtualClock) -> None:
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


async def test_a_member_may_begin_empty(virtual_clock: VirtualClock) -> None:
    """As one that is rebuilt: what it has of its broker tells nothing of another member."""
    async with group_of() as group:
        await group.send(b"0")
        node = group.nodes["n0"]
        await node.stop()
        for path in [path for path in node.disk.files if "/dledger-n0/" in path]:
            del node.disk.files[path]
        await node.start()
        assert await group.wait_same() == [b"0"]


async def test_the_group_is_told_of_segments_that_a_broker_s_full_disk_cost(virtual_clock: VirtualClock) -> None:
    """It was told by that broker alone: `rmqha dledger status` was ok."""
    async with group_of() as group:
        await group.send(b"0")
        node = group.nodes["n0"]
        node.running.store.cleaner.early.note(now=trio.current_time() - 5)
        peers = {name: f"{address}:20911" for name, address in group.addresses.items()}
        network = group.net.host("10.0.1.9").mount()
        async with open_dledger_client(group="g", peers=peers, network=network) as client:
            told = {member["id"]: member["deletedEarlyS"] for member in await ask_members(client)}
        assert told == {"n0": 5, "n1": None, "n2": None}


async def test_a_member_that_is_rebuilt_from_a_damaged_leader_says_so(virtual_clock: VirtualClock) -> None:
    """It took and acknowledged the damaged record without a word, in place of the sound one that it had."""
    async with group_of() as group:
        await group.send(*(b"body %d" % number for number in range(10)))
        await group.wait_same()
        for node in group.nodes.values():
            await node.stop()
        await trio.sleep(60)
        *damaged, rebuilt = group.nodes.values()
        for node in damaged:
            data = node.disk.files[f"/store/dledger-{node.name}/data/{0:020}"].cache
            data[bytes(data).index(b"body 4")] ^= 1
            await node.start()
        await group.send(b"last")
        rebuilt.disk.files.clear()
        with capture_logs() as lines:
            await rebuilt.start()
            end = damaged[0].running.store.max_offset
            await group.wait(lambda: rebuilt.running.store.reput_from_offset >= end)
        (told,) = [line for line in lines if line["event"] == "commit_log.record_damaged"]
        assert "BODYCRC" in told["reason"]
        assert "a record is damaged in its log, the first at" in rebuilt.replication.damage
        peers = {name: f"{address}:20911" for name, address in group.addresses.items()}
        network = group.net.host("10.0.1.9").mount()
        async with open_dledger_client(group="g", peers=peers, network=network) as client:
            (facts,) = [member for member in await ask_members(client) if member["id"] == rebuilt.name]
        assert facts["damage"] == rebuilt.replication.damage
