"""What a group consumes and has committed nothing of is told to who asks for it, and to nobody else."""

from typing import Any

import pytest
import trio

from rmqha.broker.processors import consume_admin_processor
from rmqha.broker.transaction.half_message import CONSUMER_GROUP
from rmqha.codec import java_json
from rmqha.codec.codes import NOT_COMMITTED_FIELD, RequestCode, ResponseCode
from rmqha.codec.headers import UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.heartbeat import SubscriptionData
from rmqha.codec.message_queue import message_queue_key
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from tests.broker.group_members import consuming, member_of
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock

HOUR_S = 3600


async def told(client: RemotingClient, code: RequestCode, *, with_all: bool = True, **fields: str) -> dict[Any, Any]:
    fields |= {NOT_COMMITTED_FIELD: "true"} if with_all else {}
    answer = await ask(client, RemotingCommand(code, ext_fields=fields))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    value: dict[Any, Any] = java_json.loads(answer.body)
    return value


async def lag_of_all(client: RemotingClient, *, with_all: bool = True) -> dict[str, int]:
    stats = await told(client, RequestCode.GET_BROKER_CONSUME_STATS, with_all=with_all, isOrder="false")
    return {
        group: sum(
            one["brokerOffset"] - one["consumerOffset"] for topic in topics for one in topic["offsetTable"].values()
        )
        for by_group in stats["consumeStatsList"]
        for group, topics in by_group.items()
        if group != CONSUMER_GROUP
    }


async def send_three(client: RemotingClient) -> None:
    for _ in range(3):
        await ask(client, send_request(b"x"))
    await ask(client, pull_request(2, suspend_ms=1000))


async def test_members_that_have_committed_nothing_lack_what_is_there(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as one:
        await send_three(client)
        await one.heartbeat("stuck")
        stats = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="stuck")
        assert len(stats["offsetTable"]) == 4
        assert stats["offsetTable"][message_queue_key("t", 0, broker_name="broker-a")] == {
            "brokerOffset": 3, "consumerOffset": 0, "lastTimestamp": 0, "notCommitted": True,
        }  # fmt: skip
        assert await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="stuck", topic="t") == stats
        other = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="stuck", topic="BenchmarkTest")
        assert other["offsetTable"] == {}
        assert (await lag_of_all(client))["stuck"] == 3
        header = UpdateConsumerOffsetRequestHeader("stuck", "t", 0, 1)
        await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header)))
        assert await lag_of_all(client) == {"stuck": 2, "consumers": 3}


async def test_who_does_not_ask_for_them_is_answered_as_before(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Mqadmin, and RocketMQ's exporter."""
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as one:
        await send_three(client)
        await one.heartbeat("stuck")
        stats = await told(client, RequestCode.GET_CONSUME_STATS, with_all=False, consumerGroup="stuck")
        assert stats["offsetTable"] == {}
        assert await lag_of_all(client, with_all=False) == {}


async def test_broadcasting_members_lack_nothing(machine: Machine, virtual_clock: VirtualClock) -> None:
    """They keep their places themselves; so they pull, too."""
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as one:
        await send_three(client)
        await one.heartbeat(consuming("consumers", model="BROADCASTING"))
        assert await lag_of_all(client) == {}


async def test_topics_that_are_not_there_are_left_out(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as one:
        await send_three(client)
        await one.heartbeat(consuming("g", SubscriptionData("t"), SubscriptionData("gone")))
        assert (await lag_of_all(client))["g"] == 3


async def test_who_pulls_without_being_a_member_lacks_what_is_there_until_an_hour_later(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """As rmqha's consumers do, and who hangs at the first messages pulls no more."""
    async with machine.broker():
        async with machine.client() as client:
            await send_three(client)
            assert await lag_of_all(client) == {"consumers": 3}
        await trio.sleep(50 * 60)
        async with machine.client() as client:
            assert await lag_of_all(client) == {"consumers": 3}
        await trio.sleep(HOUR_S)
        async with machine.client() as client:
            assert await lag_of_all(client) == {}


async def test_a_group_that_is_deleted_lacks_nothing(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        await send_three(client)
        fields = {"groupName": "consumers", "removeOffset": "true"}
        await ask(client, RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields))
        assert await lag_of_all(client) == {}


async def test_what_does_not_fit_an_answer_is_left_out(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members may name as many topics as they like."""
    monkeypatch.setattr(consume_admin_processor, "ENTRIES_MAX", 7)
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as one:
        await send_three(client)
        topics = SubscriptionData("t"), SubscriptionData("BenchmarkTest")
        await one.heartbeat("f", consuming("g", *topics), "h")
        assert len(await lag_of_all(client)) == 1
        stats = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
        assert len(stats["offsetTable"]) == 4


@pytest.mark.parametrize("by_group", [False, True])
async def test_what_was_there_before_the_first_message_is_not_lacking(
    machine: Machine, by_group: bool, virtual_clock: VirtualClock
) -> None:
    """A topic that was deleted, and made again, goes on behind the places of what it had."""
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as one:
        await send_three(client)
        fields = {"topic": "t"}
        await ask(client, RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields))
        await ask(client, send_request(b"again"))
        await ask(client, pull_request(3, suspend_ms=1000))
        await one.heartbeat("stuck")
        if by_group:
            stats = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="stuck")
            queue = stats["offsetTable"][message_queue_key("t", 0, broker_name="broker-a")]
            assert (queue["consumerOffset"], queue["brokerOffset"]) == (3, 4)
        else:
            assert (await lag_of_all(client))["stuck"] == 1
