"""A slave that lacks what a consumer asks for: who reads from it goes on where the message is."""

from typing import Final

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.codec.codes import ResponseCode
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.replication.role import RoleKind
from tests.broker.machines import ask, pull_request, send_request
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_dledger_followers import followers_of
from tests.broker.test_pair import Pair
from tests.store.helpers import commit_log


@pytest.mark.parametrize(("is_master_there", "held_s"), [(True, 0.1), (False, 15.0)])
async def test_the_consumer_is_sent_to_a_master_that_lives(
    is_master_there: bool, held_s: float, autojump_clock: MockClock
) -> None:
    """It was held for 15 s, and got a batch of the master's once in that time; RocketMQ's slave answers at once.

    Where the master is gone there is nobody else to ask: the consumer would come again without a pause.
    """
    pair = Pair()
    async with pair.slave.broker(), pair.slave.client() as client:
        async with pair.master.broker(), pair.master.client() as producer:
            await trio.sleep(5)
            assert (await ask(producer, send_request(b"x"))).code == ResponseCode.SUCCESS
            await trio.sleep(12)
            if is_master_there:
                await asks_beyond_the_end(client, held_s)
        if not is_master_there:
            await trio.sleep(12)
            await asks_beyond_the_end(client, held_s)


FAR: Final = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}


async def test_who_reads_from_a_slave_stays_there_as_long_as_it_is_far_behind(autojump_clock: MockClock) -> None:
    """A slave has what it gave out, and no slave of its own: it sent each back to the master, which sent it here."""
    pair = Pair()
    pair.master.settings = pair.master.settings | FAR
    pair.slave.settings = pair.slave.settings | FAR
    async with pair.running(), pair.master.client() as producer, pair.slave.client() as client:
        for _ in range(2):
            assert (await ask(producer, send_request(bytes(9000)))).code == ResponseCode.SUCCESS
        await trio.sleep(20)
        for reader in (producer, client):
            answer = await ask(reader, pull_request(0, max_num=1))
            assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, "1")


async def test_who_reads_what_the_slave_s_log_begins_behind_stays_at_the_master(autojump_clock: MockClock) -> None:
    """It went to and fro, a batch at the master and a tenth of a second at the slave each time."""
    pair = Pair()
    pair.master.settings = pair.master.settings | FAR
    async with pair.running() as (_, slave), pair.master.client() as producer:
        for _ in range(24):
            assert (await ask(producer, send_request(bytes(9000)))).code == ResponseCode.SUCCESS
        await trio.sleep(20)
        assert await suggested_at(producer, 0) == "1"
        await commit_log(slave.store).queue.delete_first_in_thread()
        await trio.sleep(20)
        first = slave.store.min_offset // 9000
        assert [await suggested_at(producer, at) for at in (0, first - 2, first + 2)] == ["0", "0", "1"]


async def suggested_at(client: RemotingClient, offset: int) -> str:
    answer = await ask(client, pull_request(offset, max_num=1))
    assert answer.code == ResponseCode.SUCCESS
    return answer.ext_fields["suggestWhichBrokerId"]


@pytest.mark.parametrize(("is_master_there", "held_s", "broker_id"), [(True, 0.1, "0"), (False, 15.0, "1")])
async def test_a_group_that_reads_from_the_slave_alone_has_what_that_lacks_from_the_master(
    is_master_there: bool, held_s: float, broker_id: str, autojump_clock: MockClock
) -> None:
    """It was told to come again to the slave, ten times a second, until that had it."""
    pair = Pair()
    pair.slave.settings = pair.slave.settings | FAR
    async with pair.slave.broker() as slave, pair.slave.client() as client:
        async with pair.master.broker() as master, pair.master.client() as producer:
            await trio.sleep(5)
            master.groups.update(SubscriptionGroupConfig("consumers", broker_id=1))
            assert (await ask(producer, send_request(b"x"))).code == ResponseCode.SUCCESS
            await trio.sleep(12)
            if is_master_there:
                await asks_beyond_the_end(client, held_s, broker_id)
        if not is_master_there:
            await trio.sleep(12)
            await asks_beyond_the_end(client, held_s, broker_id)
        assert slave.groups.find("consumers") == master.groups.find("consumers")


async def test_without_a_leader_there_is_no_master_that_lives(autojump_clock: MockClock) -> None:
    """A consumer that was farther than this member asked ten times a second, for as long as the group had none."""
    async with group_of() as group:
        await group.send(b"x")
        left, other = await followers_of(group)
        await group.wait(lambda: left.running.topics.select("t") is not None)
        for node in (group.nodes[group.masters[0]], other):
            node.kill()
        await group.wait(lambda: left.running.role.kind is RoleKind.CANDIDATE)
        network = group.net.host("10.8.8.8").mount()
        async with open_remoting_client(network, f"{group.addresses[left.name]}:10911") as client:
            await asks_beyond_the_end(client, 15.0)


async def asks_beyond_the_end(client: RemotingClient, held_s: float, broker_id: str = "0") -> None:
    begun_at = trio.current_time()
    answer = await ask(client, pull_request(9, suspend_ms=15_000))
    assert held_s <= trio.current_time() - begun_at < held_s + 0.2
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (answer.ext_fields["nextBeginOffset"], answer.ext_fields["suggestWhichBrokerId"]) == ("9", broker_id)
