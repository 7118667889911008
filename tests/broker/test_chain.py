"""A slave of a slave: it follows the broker it copies from, whose log need not begin where the first master's does."""

import trio
from trio.testing import MockClock

from rmqha.cli.pages import Page
from rmqha.cli.verdict import judge
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.group import GroupMember
from rmqha.replication.master_session import LogRange
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_net import SimNet
from tests.store.helpers import commit_log

FILE = 65536
END_OF_CHAIN = SLAVE | {"brokerId": "2", "haMasterAddress": "10.0.0.2:10912"}
"""``masterAddress`` is the first master's: who else would have the topics, and take sends."""


async def test_the_end_of_a_chain_takes_what_only_its_middle_still_has(autojump_clock: MockClock) -> None:
    net = SimNet()
    first, middle = Machine(net, "10.0.0.1", {"brokerRole": "ASYNC_MASTER"}), Machine(net, "10.0.0.2", SLAVE)
    end = Machine(net, "10.0.0.3", END_OF_CHAIN)
    async with first.broker() as master, middle.broker() as slave:
        async with first.client() as client:
            for _ in range(5):
                await ask(client, send_request(bytes(30_000)))
        while slave.store.max_offset < master.store.max_offset:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        await commit_log(master.store).queue.delete_first_in_thread()
        assert (master.store.min_offset, slave.store.min_offset) == (FILE, 0)
        async with end.broker() as last:
            with trio.fail_after(60):
                while last.store.max_offset < master.store.max_offset:  # noqa: ASYNC110 - virtual time
                    await trio.sleep(0.1)
            assert last.store.min_offset == 0


async def test_two_slaves_that_follow_each_other_say_so(autojump_clock: MockClock) -> None:
    """What a bungled failover leaves was "ok, in sync" on both, with every send refused."""
    net = SimNet()
    one = Machine(net, "10.0.0.2", SLAVE | {"haMasterAddress": "10.0.0.3:10912", "masterAddress": "10.0.0.3:10911"})
    other = Machine(net, "10.0.0.3", END_OF_CHAIN | {"masterAddress": "10.0.0.2:10911"})
    async with other.broker():
        async with one.broker():
            await trio.sleep(60)
            for machine in (one, other):
                async with machine.client() as asked:
                    verdict = judge(await status(asked))
                (circle,) = [reason for reason in verdict.reasons if "which this one follows, follows this" in reason]
                assert (verdict.level, verdict.in_sync) == ("failed", False)
                assert circle.endswith(Page.MIXED_UP)
        async with other.client() as client:
            assert (await status(client))["circle"] is None, "it has been stopped"


async def test_the_middle_of_a_chain_follows_no_circle(autojump_clock: MockClock) -> None:
    net = SimNet()
    first, middle = Machine(net, "10.0.0.1", {"brokerRole": "ASYNC_MASTER"}), Machine(net, "10.0.0.2", SLAVE)
    end = Machine(net, "10.0.0.3", END_OF_CHAIN)
    async with first.broker(), middle.broker(), end.broker():
        await trio.sleep(60)
        for machine in (middle, end):
            async with machine.client() as client:
                assert judge(await status(client)).level == "ok"


async def test_a_broker_is_asked_by_the_address_that_is_its_own(autojump_clock: MockClock) -> None:
    net = SimNet()
    first = Machine(net, "10.0.0.1", {"haListenPort": "20912"})
    follower = Machine(net, "10.0.0.2", SLAVE | {"haMasterAddress": "10.0.0.1:20912", "haListenPort": "30000"})
    async with first.broker(), follower.broker() as slave:
        probe = replication_of(slave).master_link.probe
        known = GroupMember("broker-a", 0, FILE, cluster="DefaultCluster")
        by_master_address = await probe(MasterAddress("10.0.0.1", 20912))
        assert by_master_address == LogRange(0, 0, checks_reports=True, member=known)
        assert await probe(MasterAddress("10.0.0.2", 30000)) is None
        assert await probe(MasterAddress("10.0.0.2", 10912)) is None, "who answers there has another HA port"
        assert await probe(MasterAddress("10.0.0.9", 1)) is None
