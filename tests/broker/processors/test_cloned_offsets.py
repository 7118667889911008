"""Whose subscriptions say which of a group's offsets another one takes over: those of the group that has them."""

import pytest
from trio.testing import MockClock

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.heartbeat import SubscriptionData
from tests.broker.group_members import consuming, member_of
from tests.broker.machines import Machine, ask
from tests.broker.processors.test_admin import commit, request, send_some


@pytest.mark.parametrize(
    ("group", "cloned"),
    [("h", 2), ("g", None)],
    ids=["members of the group that goes on there", "members of the group that has them"],
)
async def test_only_the_topics_that_the_source_s_members_subscribe_to_are_cloned(
    machine: Machine, group: str, cloned: int | None, autojump_clock: MockClock
) -> None:
    """Members that subscribe to another topic only."""
    async with machine.broker() as broker, machine.client() as client, member_of(machine, "a") as member:
        await send_some(client, 3)
        await commit(client, 2)
        await member.heartbeat(consuming(group, SubscriptionData("another")))
        fields = {"srcGroup": "g", "destGroup": "h", "topic": "t"}
        assert (await ask(client, request(RequestCode.CLONE_GROUP_OFFSET, **fields))).code == ResponseCode.SUCCESS
        assert broker.offsets.query_offset("h", "t", 0) == cloned
