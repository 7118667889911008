"""What has changed in a table is yet to be saved, and stays so until it is; what was saved is there after a start."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.deleted_topics import DeletedTopics
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.offset_table import name_of_group, size_of_key
from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.deleted_topic import DeletedTopic
from rmqha.codec.route import AUTO_CREATE_TOPIC_KEY_TOPIC, PERM_INHERIT
from rmqha.errors import RemoteProtocolError
from rmqha.replication.role import Role, RoleKind
from rmqha.store.consume_queue_table import ConsumeQueueTable
from tests.settings import topic_rules
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import running
from tests.store.test_stopped_queues import feed


def as_told(value: dict[str, Any]) -> dict[str, Any]:
    told = java_json.loads(java_json.dumps(value).encode())
    assert isinstance(told, dict)
    return told


def topics_of(now_ms: int = 1000) -> TopicConfigManager:
    return TopicConfigManager(topic_rules(), now_ms=lambda: now_ms)


@pytest.mark.parametrize("is_dirty", [False, True])
async def test_what_finds_nothing_to_change_saves_nothing_and_forgets_no_change(*, is_dirty: bool) -> None:
    """A commit of a moment before would not be saved at all, if nothing else came."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=5)
    offsets.dirty = is_dirty
    assert offsets.cut(lambda *_: 5) == []
    offsets.doubt(lambda *_: 5)
    await offsets.merge_from_master({"t@g": {0: 5}}, is_whole=True, changed={"@other": 0})
    offsets.forget_queue("t", 1)
    await offsets.make_room_for({"t@g": {0: 5}})
    assert offsets.dirty is is_dirty


async def test_that_a_group_was_forgotten_is_saved_though_it_had_nothing_here() -> None:
    """After a restart its places of before would come from a peer that had not heard of it."""
    offsets, master = ConsumerOffsetManager(now_ms=lambda: 5), ConsumerOffsetManager(now_ms=lambda: 9)
    await master.remove_offset_in_turns("gone")
    await offsets.merge_from_master({}, changed=master.changed.to_json())
    name = name_of_group("gone")
    assert (offsets.dirty, offsets.changed.of(name)) == (True, master.changed.of(name))


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_what_a_client_made_since_tables_were_lost_outlives_that_its_group_was_forgotten_before(
    *, is_awaited: bool
) -> None:
    offsets, peer = ConsumerOffsetManager(now_ms=lambda: 5), ConsumerOffsetManager(now_ms=lambda: 9)
    offsets.made_since.are_awaited = lambda: is_awaited
    offsets.commit_offset("g", "t", 0, offset=5)
    await peer.remove_offset_in_turns("g")
    await offsets.merge_from_master({}, changed=peer.changed.to_json())
    assert offsets.query_offset("g", "t", 0) == (5 if is_awaited else None)
    if is_awaited:
        await offsets.merge_from_master({}, changed=peer.changed.to_json())
        peer.commit_offset("g", "t", 0, offset=3)
        assert await peer.not_since({"t@g": {0: 5}}, offsets.changed.to_json()) == {"t@g": {0: 5}}, "it is later there"


async def test_what_was_made_since_is_known_after_a_start_until_all_has_come() -> None:
    def all_of() -> tuple[TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager]:
        groups = SubscriptionGroupManager(Role(RoleKind.MASTER), auto_create=True, now_ms=lambda: 5)
        topics, offsets = topics_of(), ConsumerOffsetManager()
        for made_since in (topics.made_since, groups.made_since, offsets.made_since):
            made_since.are_awaited = lambda: True
        return topics, groups, offsets

    topics, groups, offsets = all_of()
    topics.create_topic_in_send_message_back_method("t", queue_nums=1)
    groups.find("g")
    offsets.commit_offset("g", "t", 0, offset=5)
    topics_again, groups_again, offsets_again = all_of()
    topics_again.replace_from_json(as_told(topics.to_json() | topics.made_since.to_json()))
    groups_again.replace_from_json(as_told(await groups.to_json_in_turns() | groups.made_since.to_json()))
    offsets_again.replace_from_json(as_told(offsets.to_json() | offsets.made_since.to_json()))
    for name, one in (("t", topics_again), ("g", groups_again), ("t@g@0", offsets_again)):
        made_since: MadeSince = one.made_since
        assert name in made_since
        assert [made_since.clear(), made_since.clear(), made_since.to_json()] == [True, False, {}]


def test_what_are_no_names_is_nobodys() -> None:
    made = MadeSince("madeTopics")
    for value in ({}, {"madeTopics": None}, {"madeTopics": {"a": 1}}, {"madeTopics": [1, None]}, {"madeGroups": ["a"]}):
        made.replace_from_json({"madeTopics": ["before"]})
        made.replace_from_json(value)
        assert made.to_json() == {}


def test_a_table_that_is_taken_over_is_to_be_saved() -> None:
    """A slave that was told it, and was started again without its master, would have the one of before."""
    topics, master = topics_of(), topics_of(now_ms=2000)
    master.update_topic_config(TopicConfig("t", 4, 4))
    topics.dirty = False
    assert topics.replace(TopicTable.from_json(as_told(master.to_json())))
    assert topics.dirty
    topics.dirty = False
    assert not topics.replace(TopicTable.from_json(as_told(master.to_json())))
    assert not topics.dirty


def test_the_queues_of_a_deleted_topic_go_when_that_is_saved_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in between would take the deletion back, and leave the topic without its queues."""
    deleted, queues = DeletedTopics(), ConsumeQueueTable(SimDisk(latency_s=(0, 0)).mount(), "/q", file_size=200)
    deleted.connect(queues, log_begins_at=lambda: 0)
    dropped: list[str] = []
    monkeypatch.setattr(deleted, "drop", dropped.append)
    for number, topic in enumerate("abc", 1):
        deleted.add(topic, {0: 5}, before=100, number=number)
    for saved, gone in ((0, []), (1, ["a"]), (1, ["a"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])):
        deleted.note_saved(saved)
        assert dropped == gone, saved


def test_places_beyond_the_log_are_looked_for_by_topic() -> None:
    ends = {("t", 0): 5, ("u", 0): 9}
    for look in (ConsumerOffsetManager.doubt, ConsumerOffsetManager.cut):
        offsets = ConsumerOffsetManager()
        for topic in ("t", "u"):
            offsets.commit_offset("g", topic, 0, offset=8)
        look(offsets, lambda topic, queue_id: ends[topic, queue_id])
        assert offsets.to_json()["offsetTable"] == {"t@g": {0: 5}, "u@g": {0: 8}}
        assert offsets.dirty


async def test_a_masters_long_names_have_room_in_a_table_that_others_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made before it was seen to be full goes, and no more of it."""
    offsets = ConsumerOffsetManager()
    for number in range(40):
        offsets.commit_offset("g" * 40, f"t{number:03}", 0, offset=1)
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.TABLE_SIZE_MAX", offsets._size)
    told = {f"m{number}@{'h' * 200}": {0: 7, 1: 8} for number in range(3)} | {f"t000@{'g' * 40}": {0: 2}}
    await offsets.make_room_for(told)
    await offsets.merge_from_master(told)
    table = offsets.to_json()["offsetTable"]
    assert {key: table.get(key) for key in told} == told
    taken, one = 3 * (size_of_key(f"m0@{'h' * 200}") + 72), size_of_key(f"t001@{'g' * 40}") + 36
    assert len(table) == 40 + 3 - -(-taken // one), "the newest went"
    assert list(table)[:3] == [f"t{number:03}@{'g' * 40}" for number in range(3)]


@pytest.mark.parametrize("is_deleted_there", [False, True])
def test_a_topic_that_was_deleted_here_stays_so_where_a_table_without_stamps_has_it(*, is_deleted_there: bool) -> None:
    """Of one that says it was deleted, and made again, there as well, it counts."""
    topics = topics_of()
    topics.deleted.add("t", {0: 3}, before=100)
    deleted = {"t": DeletedTopic(90, {0: 2})} if is_deleted_there else {}
    topics.merge(TopicTable((5, 9), {"t": TopicConfig("t", 4, 4)}, deleted), log_end=500, is_lost=False)
    assert topics.select("t") == (TopicConfig("t", 4, 4) if is_deleted_there else None)
    assert topics.deleted.find("t") == DeletedTopic(100, {0: 3})


def test_a_send_makes_no_topic_after_one_that_gives_its_permissions_to_none() -> None:
    topics = topics_of()
    topics.update_topic_config(TopicConfig("plain", 4, 4))
    topics.update_topic_config(TopicConfig("template", 3, 3, perm=6 | PERM_INHERIT))

    def made(topic: str, template: str, queue_nums: int) -> TopicConfig | None:
        return topics.create_topic_in_send_message_method(
            topic, default_topic=template, client_default_topic_queue_nums=queue_nums
        )

    assert (made("a", "plain", 4), made("b", "unknown", 4)) == (None, None)
    assert made("c", "template", 9) == TopicConfig("c", 3, 3, perm=6)
    assert made("d", AUTO_CREATE_TOPIC_KEY_TOPIC, 0) == TopicConfig("d", 1, 1, perm=6)
    assert made("plain", "unknown", 9) == TopicConfig("plain", 4, 4)


def test_what_is_deleted_takes_of_the_room_for_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slaves fetch both in one answer."""
    topics = topics_of()
    free = 4000
    room = sum(topic.json_size for topic in topics) + free
    monkeypatch.setattr("rmqha.broker.tables.topic_config_manager.TABLE_SIZE_MAX", room)
    topics.deleted.add("gone", dict.fromkeys(range(50), 7), before=100)
    left, one = free - topics.deleted.json_size, TopicConfig("t00").json_size
    for number in range(left // one):
        topics.create_topic_in_send_message_back_method(f"t{number:02}", queue_nums=1)
    with pytest.raises(RemoteProtocolError, match="slaves can fetch"):
        topics.create_topic_in_send_message_back_method("t99", queue_nums=1)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_host_leaves_others_as_much_of_the_room_as_it_takes(
    monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    topics = topics_of()
    one = TopicConfig("t00").json_size
    monkeypatch.setattr(
        "rmqha.broker.tables.topic_config_manager.TABLE_SIZE_MAX", sum(topic.json_size for topic in topics) + 20 * one
    )
    if is_deleted:
        topics.deleted.add("gone", dict.fromkeys(range(50), 7), before=100)
    room = (20 * one - topics.deleted.json_size) // one
    for number in range(room // 2):
        topics.create_topic_in_send_message_back_method(f"t{number:02}", queue_nums=1, peer="10.0.0.1:1")
    with pytest.raises(RemoteProtocolError, match="clients of one address"):
        topics.create_topic_in_send_message_back_method("t99", queue_nums=1, peer="10.0.0.1:1")
    topics.create_topic_in_send_message_back_method("t98", queue_nums=1, peer="10.0.0.2:1")


async def test_ends_in_a_longer_log_count_once_this_one_has_come_as_far(autojump_clock: MockClock) -> None:
    """Readers would be sent behind the messages that come with it."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        ends = QueueEnds(store)
        await feed(store, 0)
        await ends.learn_later({"queueEnds": {"Empty": {"0": 4}, "Coming": {"0": 3}}}, log_end=store.max_offset + 210)
        for _ in range(2):
            assert (await ends.settle(), store.queues.known_ends) == (False, {})
            await feed(store, 2, topic="Coming")
        assert await ends.settle()
        assert store.queues.known_ends == {("Empty", 0): 4}
        assert ends.dirty
        await trio.lowlevel.checkpoint()
