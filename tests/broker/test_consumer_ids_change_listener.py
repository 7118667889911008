"""ConsumerIdsChangeListener: what is left to be told is bounded, and told in turns."""

from typing import Any

import trio
from trio.testing import MockClock

from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.consumer_ids_change_listener import ConsumerIdsChangeListener
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.untold_topics import UntoldTopics
from rmqha.codec.heartbeat import ConsumerData
from rmqha.codec.remoting import RemotingCommand
from rmqha.replication.role import Role
from rmqha.replication.watermark import Watermark
from tests.reachable import count_entries


class Deaf:
    """A connection; it counts how often it was told."""

    def __init__(self) -> None:
        self.told = 0

    def notify(self, _request: RemotingCommand) -> bool:
        self.told += 1
        return True


def listening(saved: Watermark | None = None, **untold: int) -> tuple[ConsumerManager, ConsumerIdsChangeListener]:
    """The retry topics of these groups are ``untold``, each till so many topics are saved."""
    consumers, groups = ConsumerManager(), SubscriptionGroupManager(Role(), auto_create=True, now_ms=lambda: 0)
    topics = UntoldTopics(saved or Watermark(), save=lambda: None)
    topics.numbers = {RETRY_GROUP_TOPIC_PREFIX + group: number for group, number in untold.items()}
    return consumers, ConsumerIdsChangeListener(consumers, groups, topics, is_enabled=True)


def test_groups_that_are_gone_are_not_kept_to_be_told() -> None:
    """Somebody who comes with ever new groups, and goes, filled the memory while the task had no turn."""
    consumers, listener = listening()
    empty = count_entries(listener)
    for number in range(1000):
        member: Any = Deaf()
        consumers.register(ConsumerData(f"g{number}"), ClientChannelInfo(member, "c"))
        consumers.forget_member(member)
    assert count_entries(listener) == empty


async def test_members_that_come_together_are_told_together(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A thousand of them would be told half a million times."""
    consumers, listener = listening()
    members: list[Any] = [Deaf() for _ in range(1000)]
    nursery.start_soon(listener.run)
    for member in members:
        consumers.register(ConsumerData("g"), ClientChannelInfo(member, "c"))
    await trio.sleep(1)
    assert {member.told for member in members} == {1}
    consumers.forget_member(members.pop())
    await trio.sleep(1)
    assert {member.told for member in members} == {2}


async def test_who_comes_in_the_pause_after_the_others_were_told_is_told_of(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Nothing is told then, and the members would find out within 20 s."""

    class Slow(Deaf):
        def notify(self, request: RemotingCommand) -> bool:
            autojump_clock.jump(0.1)
            return super().notify(request)

    consumers, listener = listening()
    first: Any = Slow()
    second: Any = Deaf()
    nursery.start_soon(listener.run)
    consumers.register(ConsumerData("g"), ClientChannelInfo(first, "first"))
    await trio.sleep(0.2)
    assert first.told == 1
    consumers.register(ConsumerData("g"), ClientChannelInfo(second, "second"))
    await trio.sleep(1)
    assert (first.told, second.told) == (2, 1)


async def test_a_group_that_its_first_member_left_at_once_is_told_of_those_who_come(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Nobody was there any more when its retry topic was known: it counted as waiting for that for ever."""
    saved = Watermark()
    consumers, listener = listening(saved, g=1)
    nursery.start_soon(listener.run)
    members: list[Any] = [Deaf() for _ in range(3)]
    consumers.register(ConsumerData("g"), ClientChannelInfo(members[0], "c"))
    consumers.forget_member(members[0])
    saved.advance(1)
    for member in members[1:]:
        consumers.register(ConsumerData("g"), ClientChannelInfo(member, "c"))
        await trio.sleep(1)
    assert [member.told for member in members] == [0, 2, 1]
