"""ConsumerManager: whose subscription counts, and who is a member."""

from collections.abc import Callable
from typing import Any

import pytest

from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.codec.heartbeat import ConsumerData, SubscriptionData
from tests.reachable import count_entries


class Heartbeats:
    """Members by name, and the groups that changed."""

    def __init__(self) -> None:
        self.consumers = ConsumerManager()
        self.changed: list[str] = []
        self.consumers.on_changed = self.changed.append

    def hear(self, member: Any, *subscriptions: SubscriptionData, client_id: str = "c") -> None:
        consumer = ConsumerData("g", subscription_data_set=subscriptions)
        self.consumers.register(consumer, ClientChannelInfo(member, client_id))

    def subscriptions(self) -> dict[str, str]:
        group = self.consumers.find_group("g")
        assert group is not None
        return {topic: one.sub_string for topic, one in group.subscriptions.items()}


@pytest.fixture
def heartbeats() -> Heartbeats:
    return Heartbeats()


def test_of_two_subscriptions_the_newer_one_counts(heartbeats: Heartbeats) -> None:
    """Trap 26: versions are int64, and those of Go's clients nanoseconds."""
    heartbeats.hear("a", SubscriptionData("t", "new", sub_version=1_700_000_000_000_000_001))
    heartbeats.hear("b", SubscriptionData("t", "old", sub_version=1_700_000_000_000_000_000))
    assert heartbeats.subscriptions() == {"t": "new"}
    heartbeats.hear("b", SubscriptionData("t", "newest", sub_version=1_700_000_000_000_000_002))
    assert heartbeats.subscriptions() == {"t": "newest"}


def test_of_two_of_one_version_the_one_that_is_known_counts(heartbeats: Heartbeats) -> None:
    """Java's broker takes a newer one alone; what a group is filtered by would change with each heartbeat."""
    for member, text in (("a", "first"), ("b", "other"), ("a", "first"), ("b", "other")):
        heartbeats.hear(member, SubscriptionData("t", text, sub_version=5))
        assert heartbeats.subscriptions() == {"t": "first"}


def test_a_heartbeat_brings_topics_and_takes_others_away(heartbeats: Heartbeats) -> None:
    heartbeats.hear("a", SubscriptionData("t"), SubscriptionData("u"))
    heartbeats.hear("a", SubscriptionData("u"), SubscriptionData("v"))
    assert heartbeats.subscriptions() == {"u": "*", "v": "*"}
    heartbeats.hear("a")
    assert heartbeats.subscriptions() == {}


def test_of_one_topic_named_twice_the_newer_one_counts(heartbeats: Heartbeats) -> None:
    heartbeats.hear("a", SubscriptionData("t", "2", sub_version=2), SubscriptionData("t", "1", sub_version=1))
    assert heartbeats.subscriptions() == {"t": "2"}


def test_only_changes_are_told(heartbeats: Heartbeats) -> None:
    told = []
    steps: tuple[Callable[[], None], ...] = (
        lambda: heartbeats.hear("a", SubscriptionData("t")),
        lambda: heartbeats.hear("a", SubscriptionData("t")),
        lambda: heartbeats.hear("a", SubscriptionData("t", "newer", sub_version=1)),
        lambda: heartbeats.hear("a", SubscriptionData("u")),
        lambda: heartbeats.hear("a", SubscriptionData("u"), client_id="renamed"),
        lambda: heartbeats.hear("b", SubscriptionData("u")),
        lambda: heartbeats.consumers.unregister("g", stranger),
        lambda: heartbeats.consumers.forget_member(stranger),
    )
    for step in steps:
        before = len(heartbeats.changed)
        step()
        told.append(len(heartbeats.changed) > before)
    assert told == [True, False, False, True, True, True, False, False]


def test_it_is_told_that_a_topic_is_not_subscribed_to_any_more(heartbeats: Heartbeats) -> None:
    """Others of the group may have its queues to give back."""
    heartbeats.hear("a", SubscriptionData("t"), SubscriptionData("u"))
    heartbeats.changed.clear()
    heartbeats.hear("a", SubscriptionData("u"))
    assert heartbeats.changed == ["g"]


stranger: Any = "stranger"


def test_trap_13_a_member_is_a_connection(heartbeats: Heartbeats) -> None:
    """Of two with one id one may go, and the client stays."""
    members: list[Any] = ["main", "vip"]
    for member in members:
        heartbeats.hear(member, client_id="same")
    group = heartbeats.consumers.find_group("g")
    assert group is not None
    assert group.client_ids == b'{"consumerIdList":["same"]}'
    heartbeats.consumers.forget_member(members[0])
    assert group.client_ids == b'{"consumerIdList":["same"]}'
    heartbeats.consumers.forget_member(members[1])
    assert heartbeats.consumers.find_group("g") is None


def test_a_client_is_asked_by_its_newest_connection(heartbeats: Heartbeats) -> None:
    """The one before may be dead, and is known to be only after two minutes without a heartbeat."""
    members: list[Any] = ["first", "second", "third"]
    for member, client_id in zip(members, ("same", "same", "other"), strict=True):
        heartbeats.hear(member, client_id=client_id)
    found = heartbeats.consumers.find_client("g", "same")
    assert found is not None
    assert found.connection == members[1]
    heartbeats.consumers.forget_member(members[1])
    found = heartbeats.consumers.find_client("g", "same")
    assert found is not None
    assert found.connection == members[0]
    assert heartbeats.consumers.find_client("g", "nobody") is None


def test_nothing_is_left_of_who_has_left(heartbeats: Heartbeats) -> None:
    """Neither of members nor on their hosts' accounts: the last to tell has that of what the group subscribes to."""
    consumers = heartbeats.consumers
    members: list[Any] = [("10.0.0.1:1", "a"), ("10.0.0.1:2", "b"), ("10.0.0.2:1", "c")]
    for client_ids in ("first", "a longer one"):
        for member in members:
            group = ConsumerData("g", subscription_data_set=(SubscriptionData(member[1] * 9),))
            consumers.register(group, ClientChannelInfo(member, client_ids, peer=member[0]))
    consumers.unregister("g", members[0])
    for member in members:
        consumers.forget_member(member)
    assert not any(map(consumers.is_member, members))
    assert count_entries(consumers) == count_entries(ConsumerManager())


def test_a_member_that_calls_itself_otherwise_is_listed_so(heartbeats: Heartbeats) -> None:
    """Or those of its group would divide the queues among members that are not there (38)."""
    heartbeats.hear("a", client_id="former")
    group = heartbeats.consumers.find_group("g")
    assert group is not None
    assert group.client_ids == b'{"consumerIdList":["former"]}'
    heartbeats.hear("a", client_id="present")
    assert group.client_ids == b'{"consumerIdList":["present"]}'
