"""The tables of topics, groups and offsets by themselves: what was decided stays, and nothing else changes with it."""

from collections.abc import Callable
from typing import Any

import pytest

from rmqha.broker.tables.change_stamps import stamps_of_version
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.offset_table import decode_offsets, with_ends
from rmqha.broker.tables.subscription_group_manager import (
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    SubscriptionGroupTable,
)
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.transaction.half_message import CONSUMER_GROUP
from rmqha.codec import java_json
from rmqha.codec.consume_queue import UNIT
from rmqha.codec.deleted_topic import DeletedQueue, DeletedTopic
from rmqha.errors import RemoteProtocolError
from rmqha.replication.role import Role, RoleKind
from rmqha.store.consume_queue_table import ConsumeQueueTable
from tests.settings import topic_rules
from tests.sim.sim_disk import SimDisk

CLIENT = "1.1.1.1:1"


def topics_of(now_ms: int = 1000, *, max_queues: int = 1000) -> TopicConfigManager:
    return TopicConfigManager(topic_rules(max_queues=max_queues), now_ms=lambda: now_ms)


def groups_of(now_ms: int = 1000) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(Role(RoleKind.MASTER), auto_create=True, now_ms=lambda: now_ms)


def as_told(value: dict[str, Any]) -> dict[str, Any]:
    told = java_json.loads(java_json.dumps(value).encode())
    assert isinstance(told, dict)
    return told


def merge_topics(here: TopicConfigManager, there: TopicConfigManager, *, log_end: int = 10**9) -> None:
    here.merge(TopicTable.from_json(as_told(there.to_json())), log_end=log_end, is_lost=False)


async def merge_groups(here: SubscriptionGroupManager, there: SubscriptionGroupManager) -> None:
    here.merge(SubscriptionGroupTable.from_json(as_told(await there.to_json_in_turns())), is_lost=False)


def test_what_comes_back_changes_nothing_of_its_topic() -> None:
    """A retry topic that an operator had changed was as a new one with the next message that was sent back."""
    topics = topics_of()
    made = topics.create_topic_in_send_message_back_method("%RETRY%g", queue_nums=1)
    decided = TopicConfig("%RETRY%g", 4, 8, perm=4)
    topics.update_topic_config(decided)
    before = topics.data_version, topics.made
    assert made != topics.create_topic_in_send_message_back_method("%RETRY%g", queue_nums=1) == decided
    assert topics.select("%RETRY%g") == decided
    assert (topics.data_version, topics.made) == before


def test_a_topic_that_is_changed_takes_the_room_of_one() -> None:
    """Otherwise sends are refused new topics some day, though there are few."""
    topics = topics_of(max_queues=8)
    for number in range(100):
        topics.update_topic_config(TopicConfig("t", 4, 4, perm=4 + 2 * (number % 2)))
    topics.create_topic_in_send_message_back_method("u", queue_nums=4)
    with pytest.raises(RemoteProtocolError, match="maxQueues"):
        topics.create_topic_in_send_message_back_method("v", queue_nums=1)
    topics.update_topic_config(TopicConfig("t", 2, 2))
    topics.create_topic_in_send_message_back_method("v", queue_nums=2)
    with pytest.raises(RemoteProtocolError, match="maxQueues"):
        topics.update_topic_config(TopicConfig("t", 2, 3))


def test_a_topic_grows_and_keeps_what_else_was_decided() -> None:
    topics = topics_of()
    topics.update_topic_config(TopicConfig("t", 6, 2, perm=4, order=True))
    before = topics.data_version
    for queue_nums in (1, 2):
        topics.grow("t", queue_nums)
    topics.grow("unknown", 3)
    assert (topics.data_version, topics.select("unknown")) == (before, None)
    for queue_nums, read in ((3, 6), (7, 7)):
        topics.grow("t", queue_nums)
        assert topics.select("t") == TopicConfig("t", read, queue_nums, perm=4, order=True)


@pytest.mark.parametrize(("is_there", "before", "is_noted"), [(True, 100, True), (True, 0, False), (False, 100, False)])
def test_what_waits_in_the_log_of_a_topic_that_shows_no_message_is_deleted_with_it(
    before: int, *, is_there: bool, is_noted: bool
) -> None:
    topics = topics_of()
    if is_there:
        topics.update_topic_config(TopicConfig("t", 4, 4))
    topics.delete_topic_config("t", {}, before=before)
    assert topics.deleted.find("t") == (DeletedTopic(before, {}) if is_noted else None)


def forgotten_there(before: int) -> TopicConfigManager:
    """A broker that has deleted ``gone``, of which its log holds nothing any more; ``kept`` is there."""
    there = topics_of(now_ms=2000)
    there.update_topic_config(TopicConfig("kept", 4, 4))
    there.update_topic_config(TopicConfig("gone", 4, 4))
    there.delete_topic_config("gone", {0: 9}, before=before)
    there.deleted.connect(
        ConsumeQueueTable(SimDisk(latency_s=(0, 0)).mount(), "/q", file_size=200), log_begins_at=lambda: before
    )
    there.expire_deleted()
    assert there.to_json()["deletedBefore"] == before
    return there


@pytest.mark.parametrize(("deleted_before", "log_end"), [(250, 1000), (1000, 250)])
def test_what_a_peer_has_forgotten_of_a_deleted_topic_hides_its_messages_and_no_others(
    deleted_before: int, log_end: int
) -> None:
    """Those behind its log's end, or behind the deletion, came later; and what is not deleted stays to be read."""
    here = topics_of()
    queues = ConsumeQueueTable(SimDisk(latency_s=(0, 0)).mount(), "/queues", file_size=200)
    here.deleted.connect(queues, log_begins_at=lambda: 0)
    for topic in ("gone", "kept"):
        here.update_topic_config(TopicConfig(topic, 2, 2))
        for queue_id, first in ((0, 0), (1, 300)):
            queue = queues.find_or_create(topic, queue_id)
            queue.create_file()
            queue.append(memoryview(b"".join(UNIT.pack(first + 100 * number, 50, 0) for number in range(5))))
    merge_topics(here, forgotten_there(deleted_before), log_end=log_end)
    assert queues.deleted == {("gone", 0): DeletedQueue(3, 250), ("gone", 1): DeletedQueue(0, 250)}
    assert [queues.range_of(*key) for key in (("gone", 0), ("gone", 1), ("kept", 0))] == [(3, 5), (0, 5), (0, 5)]
    assert here.select("gone") is None


def test_what_was_deleted_by_a_broker_whose_log_is_empty_hides_nothing() -> None:
    """All that comes here comes later than that."""
    here, there = topics_of(), topics_of(now_ms=2000)
    there.update_topic_config(TopicConfig("t", 4, 4))
    there.delete_topic_config("t", {0: 8}, before=500)
    merge_topics(here, there, log_end=0)
    assert (here.deleted.find("t"), here.deleted.queue_count) == (None, 0)


async def test_a_table_that_says_nothing_new_is_no_change() -> None:
    """Slaves would fetch all of it again, and it would be written, each time that a peer is asked."""
    topics, groups, later_topics, later_groups = topics_of(), groups_of(), topics_of(), groups_of()
    for number in range(3):
        for one in (topics, later_topics):
            one.create_topic_in_send_message_back_method(f"t{number}", queue_nums=1)
        for other in (groups, later_groups):
            other.find(f"g{number}")
    for _ in range(9):  # more changes, which are undone
        later_topics.learn_queue("u", 0)
        later_topics.delete_topic_config("u", {}, before=0)
        later_topics.changed.drop("u")
        later_groups.find("u")
        later_groups.delete("u")
        later_groups.changed.drop("u")
    topics.dirty = groups.dirty = False
    before = topics.data_version, groups.data_version
    for _ in range(2):
        merge_topics(topics, later_topics)
        await merge_groups(groups, later_groups)
    assert (topics.dirty, groups.dirty, (topics.data_version, groups.data_version)) == (False, False, before)


async def test_a_group_that_a_member_makes_again_after_it_was_deleted_is_there() -> None:
    here, there = groups_of(), groups_of()
    for one in (here, there):
        one.update(SubscriptionGroupConfig("g", retry_max_times=3))
        one.delete("g")
    await merge_groups(there, here)
    here.find("g")
    await merge_groups(there, here)
    table = (await there.to_json_in_turns())["subscriptionGroupTable"]
    assert table["g"] == SubscriptionGroupConfig("g")


async def test_each_change_of_the_groups_is_a_new_version_that_is_to_be_saved() -> None:
    """A slave, and a file, would have a group that was deleted for good."""
    groups = groups_of()
    changes: tuple[Callable[[], object], ...] = (
        lambda: groups.find("g"),
        lambda: groups.update(SubscriptionGroupConfig("g", consume_enable=False)),
        lambda: groups.delete("g"),
        lambda: groups.delete("g"),
    )
    for change in changes:
        groups.dirty, version, made = False, groups.data_version, groups.made
        change()
        assert (groups.dirty, groups.made) == (True, made + 1)
        assert groups.data_version[1] == version[1] + 1


def test_an_entry_without_members_is_as_rocketmqs_defaults() -> None:
    assert SubscriptionGroupConfig.from_json("g", {}) == SubscriptionGroupConfig("g")
    assert TopicConfig.from_json("t", {}) == TopicConfig("t")
    empty = TopicTable.from_json({"topicConfigTable": {}})
    assert (empty.data_version, empty.changed, empty.deleted_before) == ((0, 0), None, 0)
    assert SubscriptionGroupTable.from_json({}) == SubscriptionGroupTable((0, 0), {})
    assert decode_offsets({}) == decode_offsets({"offsetTable": None}) == {}


def test_a_table_has_a_date_from_its_first_change_on() -> None:
    assert [stamps_of_version(None, (500, changes)) for changes in (0, 1, 2)] == [{}, {"": 500}, {"": 500}]
    assert stamps_of_version(None, (0, 9)) == {}
    assert stamps_of_version({}, (500, 9)) == {}, "it says itself when that was"


def test_where_some_places_are_doubted_all_others_are_told() -> None:
    """The file of a slave held no other group's places, and a start without its master began with that."""
    table = {"t@g": {0: 5, 1: 6}, "t@h": {0: 7}, "u@h": {0: 8}}
    told = with_ends(table, {("t@g", 1): 4, ("u@h", 0): 3})
    assert told == {"t@g": {0: 5, 1: 4}, "t@h": {0: 7}, "u@h": {0: 3}}
    assert table == {"t@g": {0: 5, 1: 6}, "t@h": {0: 7}, "u@h": {0: 8}}, "until the master has told its own"


def test_while_places_are_unknown_here_no_client_makes_one_and_the_broker_may() -> None:
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("known", "t", 0, offset=4, peer=CLIENT)
    offsets.why_unknown = lambda: "the master has yet to tell"
    with pytest.raises(RemoteProtocolError, match="the master has yet to tell"):
        offsets.commit_offset("g", "t", 0, offset=5, peer=CLIENT)
    offsets.commit_offset("known", "t", 0, offset=5, peer=CLIENT)
    offsets.commit_offset("own", "t", 0, offset=6)
    assert [offsets.query_offset(group, "t", 0) for group in ("g", "known", "own")] == [None, 5, 6]


def test_no_client_says_how_far_the_broker_itself_is() -> None:
    """Transactions would never be asked for, or be asked for again and again."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset(CONSUMER_GROUP, "t", 0, offset=4)
    with pytest.raises(RemoteProtocolError, match="no client's group"):
        offsets.commit_offset(CONSUMER_GROUP, "t", 0, offset=9, peer=CLIENT)
    assert offsets.query_offset(CONSUMER_GROUP, "t", 0) == 4


@pytest.mark.parametrize("is_elected", [False, True])
@pytest.mark.parametrize("changed", [None, {"t@g@0": 5000}])
async def test_what_is_no_place_in_a_masters_table_sets_nobody_back(
    changed: dict[str, int] | None, *, is_elected: bool
) -> None:
    offsets = ConsumerOffsetManager(now_ms=lambda: 1000)
    if is_elected:
        offsets.elect(Role(RoleKind.SLAVE))
    offsets.commit_offset("g", "t", 0, offset=5)
    offsets.doubt(lambda *_: 3)
    await offsets.merge_from_master({"t@g": {0: -1, 1: -1}}, is_whole=True, changed=changed)
    assert offsets.query_offsets("g", "t") == {0: 5}
