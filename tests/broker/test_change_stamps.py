"""Of two brokers' tables what an operator said last counts, in whatever order they are merged."""

import random
from collections.abc import Callable
from itertools import count, permutations
from typing import Any

import pytest

from rmqha.broker.tables.change_stamps import ChangeStamps, decode_stamps
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.offset_table import decode_changed_offsets, decode_offsets
from rmqha.broker.tables.subscription_group_manager import (
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    SubscriptionGroupTable,
)
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.limits import STAMPS_SIZE_MAX
from rmqha.replication.role import Role, RoleKind
from tests.settings import topic_rules

Clock = Callable[[], int]


def topics_of(now_ms: Clock) -> TopicConfigManager:
    return TopicConfigManager(topic_rules(), now_ms=now_ms)


def groups_of(now_ms: Clock) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(Role(RoleKind.MASTER), auto_create=True, now_ms=now_ms)


def as_told(value: dict[str, Any]) -> dict[str, Any]:
    """As it is read from a file, or an answer."""
    told = java_json.loads(java_json.dumps(value).encode())
    assert isinstance(told, dict)
    return told


def merge_topics(here: TopicConfigManager, there: TopicConfigManager, *, is_lost: bool = False) -> None:
    here.merge(TopicTable.from_json(as_told(there.to_json())), log_end=10**9, is_lost=is_lost)


async def merge_offsets(here: ConsumerOffsetManager, there: ConsumerOffsetManager) -> None:
    """As a master does with a peer's."""
    told, changed = decode_offsets(there.to_json()), decode_changed_offsets(there.to_json())
    assert changed is not None
    await here.merge_from_master(await here.not_since(told, changed), changed=changed)


def test_a_stamp_is_later_than_all_that_are_known_whatever_the_clock_says() -> None:
    stamps = ChangeStamps(lambda: 5)
    stamps.note("a")
    stamps.note("b")
    stamps.replace({"c": 900})
    stamps.note("a")
    assert [stamps.of(name) for name in "abcd"] == [901, 0, 900, 0]


def test_where_there_are_too_many_the_oldest_go() -> None:
    stamps = ChangeStamps(count(1).__next__)
    for number in range(5000):
        stamps.note(f"{number:0200}")
    kept = stamps.to_json()
    assert decode_stamps(kept) == kept
    assert STAMPS_SIZE_MAX // 240 < len(kept) < STAMPS_SIZE_MAX // 200
    assert f"{4999:0200}" in kept
    assert f"{0:0200}" not in kept
    stamps.note("x" * STAMPS_SIZE_MAX)
    assert stamps.to_json() == kept, "nothing is called that"


@pytest.mark.parametrize(
    ("told", "unknown"),
    [
        ({"a": 10, "b": 20, "c": 30}, []),
        ({"a": 11, "b": 21, "c": 31}, []),
        ({"a": 10, "b": 19, "c": 30}, ["b"]),
        ({"b": 20, "c": 30}, []),  # that one has lost its oldest
        ({"a": 10, "c": 30}, ["b"]),
        ({"": 20}, ["c"]),  # all that it has, and has not any more, was said until then
        ({"": 30, "a": 9}, ["a"]),
        ({}, ["a", "b", "c"]),
        (None, []),  # RocketMQ's do not say
    ],
)
def test_what_was_said_here_later_than_another_broker_knows_of(told: dict[str, int] | None, unknown: list[str]) -> None:
    stamps = ChangeStamps(lambda: 5)
    stamps.replace({"a": 10, "b": 20, "c": 30})
    assert stamps.unknown_to(told) == unknown


def test_what_is_said_of_again_stays_as_long_as_what_is_new() -> None:
    """It went with those of its first time, as if nobody had said anything since: an older table would have counted."""
    stamps = ChangeStamps(count(1).__next__)
    for number in range(5000):
        stamps.note(f"{number:0200}")
    oldest, next_oldest, *_ = stamps.to_json()
    stamps.note(oldest)
    stamps.note(f"{5000:0200}")
    assert (stamps.of(oldest), stamps.of(next_oldest)) == (5001, 0)


@pytest.mark.parametrize("value", [[], "x", {"a": 0}, {"a": -1}, {"a": 1.5}, {"a": True}, {"a": 2**62}, {1: 1}])
def test_what_are_no_stamps_is_refused(value: object) -> None:
    with pytest.raises((AttributeError, TypeError, ValueError)):
        decode_stamps(value)


def test_a_deletion_and_what_is_forbidden_count_though_the_other_table_has_had_more_changes() -> None:
    here, there = topics_of(lambda: 1000), topics_of(lambda: 900)
    for one in (here, there):
        one.update_topic_config(TopicConfig("gone", 4, 4))
        one.update_topic_config(TopicConfig("closed", 4, 4))
    for number in range(50):
        there.create_topic_in_send_message_back_method(f"made{number}", queue_nums=1)
    here.delete_topic_config("gone", {0: 7}, before=500)
    here.update_topic_config(TopicConfig("closed", 4, 4, perm=4))
    merge_topics(here, there)
    assert here.select("gone") is None
    assert here.select("closed") == TopicConfig("closed", 4, 4, perm=4)
    assert here.select("made49") is not None
    merge_topics(there, here)
    assert [there.select("gone"), there.select("closed")] == [None, here.select("closed")]
    deleted = there.deleted.find("gone")
    assert deleted is not None
    assert (deleted.before, dict(deleted.ends)) == (500, {0: 7})


def test_a_topic_that_a_send_makes_again_after_it_was_deleted_is_there() -> None:
    here, there = topics_of(lambda: 1000), topics_of(lambda: 1000)
    for one in (here, there):
        one.update_topic_config(TopicConfig("t", 4, 4))
        one.delete_topic_config("t", {}, before=0)
    merge_topics(there, here)
    here.create_topic_in_send_message_back_method("t", queue_nums=2)
    merge_topics(there, here)
    assert there.select("t") == here.select("t")


def test_what_was_deleted_hides_nothing_that_comes_behind_the_end_of_the_log_that_told_it() -> None:
    here, there = topics_of(lambda: 1), topics_of(lambda: 1)
    there.update_topic_config(TopicConfig("t", 1, 1))
    there.delete_topic_config("t", {0: 9}, before=900)
    here.merge(TopicTable.from_json(as_told(there.to_json())), log_end=300, is_lost=False)
    deleted = here.deleted.find("t")
    assert deleted is not None
    assert deleted.before == 300


def test_a_table_without_stamps_counts_where_it_has_had_more_changes_and_nobody_has_changed_the_entry_here() -> None:
    """As RocketMQ's."""
    here = topics_of(lambda: 1000)
    here.create_topic_in_send_message_back_method("made", queue_nums=2)
    here.update_topic_config(TopicConfig("set", 3, 3))
    told = {name: TopicConfig(name, 8, 8) for name in ("made", "set", "new")}
    here.merge(TopicTable((5, 1), told), log_end=0, is_lost=False)
    assert [here.select(name) for name in ("made", "set", "new")] == [
        TopicConfig("made", 2, 2),
        TopicConfig("set", 3, 3),
        TopicConfig("new", 8, 8),
    ]
    here.merge(TopicTable((5, 99), told), log_end=0, is_lost=False)
    assert [here.select(name) for name in ("made", "set")] == [TopicConfig("made", 8, 8), TopicConfig("set", 3, 3)]


async def test_offsets_that_were_set_back_or_forgotten_stay_so() -> None:
    here, there = ConsumerOffsetManager(now_ms=lambda: 9), ConsumerOffsetManager(now_ms=lambda: 5)
    for one in (here, there):
        one.commit_offset("g", "t", 0, offset=50)
        one.commit_offset("gone", "t", 0, offset=50)
    here.commit_offset("g", "t", 0, offset=10)
    await here.remove_offset_in_turns("gone")
    there.commit_offset("other", "t", 0, offset=3)
    for one, other in ((here, there), (there, here)):
        await merge_offsets(one, other)
        assert [one.query_offset(name, "t", 0) for name in ("g", "gone", "other")] == [10, None, 3]
    there.commit_offset("g", "t", 0, offset=20)
    there.commit_offset("gone", "t", 0, offset=1)
    await merge_offsets(here, there)
    assert [here.query_offset(name, "t", 0) for name in ("g", "gone")] == [20, 1]


async def test_a_slave_goes_back_where_its_master_was_set_back() -> None:
    master, slave = ConsumerOffsetManager(now_ms=lambda: 9), ConsumerOffsetManager(now_ms=lambda: 5)
    for offset in (50, 10, 12):
        master.commit_offset("g", "t", 0, offset=offset)
        await slave.merge_from_master(
            decode_offsets(master.to_json()), changed=decode_changed_offsets(master.to_json())
        )
        assert slave.query_offset("g", "t", 0) == offset
    again = ConsumerOffsetManager()
    again.replace_from_json(slave.to_json())
    assert again.to_json() == slave.to_json()


@pytest.mark.parametrize("seed", range(40))
async def test_any_order_of_merging_ends_in_the_same_tables(seed: int) -> None:
    """Three brokers, with clocks that differ, each told something else; then each has had all, in its own order."""
    rng = random.Random(seed)
    nodes = []
    for _ in range(3):
        clock = count(rng.randrange(1000), rng.randrange(1, 5)).__next__
        nodes.append((topics_of(clock), groups_of(clock), ConsumerOffsetManager(now_ms=clock)))
    for _ in range(rng.randrange(30)):
        topics, groups, offsets = rng.choice(nodes)
        name, number = rng.choice("abc"), rng.randrange(1, 9)
        what = rng.randrange(6)
        if what == 0:
            topics.update_topic_config(TopicConfig(name, number, number))
        elif what == 1:
            topics.delete_topic_config(name, {}, before=0)
        elif what == 2:
            groups.update(SubscriptionGroupConfig(name, retry_max_times=number))
        elif what == 3:
            groups.delete(name)
        elif what == 4:
            offsets.commit_offset(name, "t", 0, offset=number)
        else:
            await offsets.remove_offset_in_turns(name)
    told = [(topics.to_json(), await groups.to_json_in_turns(), offsets.to_json()) for topics, groups, offsets in nodes]
    ends = set[str]()
    for order in permutations(range(3)):
        clock = count(1).__next__
        topics, groups, offsets = topics_of(clock), groups_of(clock), ConsumerOffsetManager(now_ms=clock)
        for number in (*order, order[0]):
            topics_there, groups_there, offsets_there = told[number]
            topics.merge(TopicTable.from_json(as_told(topics_there)), log_end=1, is_lost=False)
            groups.merge(SubscriptionGroupTable.from_json(as_told(groups_there)), is_lost=False)
            changed = decode_changed_offsets(offsets_there) or {}
            table = await offsets.not_since(decode_offsets(offsets_there), changed)
            await offsets.merge_from_master(table, changed=changed)
        ends.add(
            repr(
                (
                    [topics.select(name) for name in "abc"],
                    [groups.select(name) for name in "abc"],
                    [offsets.query_offset(name, "t", 0) for name in "abc"],
                )
            )
        )
    assert len(ends) == 1


def test_what_a_table_that_is_taken_over_has_seen_does_not_set_the_clock_back() -> None:
    now = [1000]
    stamps = ChangeStamps(lambda: now[0])
    stamps.note("a")
    now[0] = 5
    stamps.replace({"b": 3})
    stamps.note("c")
    assert stamps.of("c") > 1000


def test_what_is_said_of_a_table_that_is_dated_as_a_whole_is_later_though_the_clock_is_set_back() -> None:
    """As of offsets, whose file has no time of its own; what an operator said then counted for less than the file."""
    now = [1000]
    stamps = ChangeStamps(lambda: now[0])
    stamps.date_all(900)
    now[0] = 5
    stamps.note("a")
    assert stamps.of("a") == stamps.latest("a") > 900


def test_a_topic_that_another_broker_tells_is_unsaved_as_one_that_is_made() -> None:
    """Sends to it were answered before it was in the file: the simulator's seed 1526, on a full disk."""
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    topics.merge(TopicTable((5, 1), {"told": TopicConfig("told", 2, 2)}), log_end=0, is_lost=False)
    assert topics.unsaved == {"told": topics.made}
    topics.merge(TopicTable((5, 2), {"told": TopicConfig("told", 4, 4)}), log_end=0, is_lost=True)
    topics.saved.advance(topics.made)
    assert topics.unsaved == {}


def of_rocketmqs(value: dict[str, Any], stamps: str) -> dict[str, Any]:
    """As RocketMQ writes it again: it keeps no member that it does not know."""
    return {name: member for name, member in as_told(value).items() if name != stamps}


def test_what_a_table_says_that_rocketmq_wrote_since_is_as_late_as_the_table() -> None:
    """A stamp of months ago, at a peer, took back what an operator had said to RocketMQ on this store since."""
    here, there = topics_of(lambda: 50), topics_of(lambda: 50)
    for one in (here, there):
        one.update_topic_config(TopicConfig("closed", 4, 4))
        one.update_topic_config(TopicConfig("gone", 4, 4))
    written = topics_of(lambda: 90)
    written.replace_from_json(of_rocketmqs(here.to_json(), "changedTopics"))
    written.delete_topic_config("gone", {}, before=0)
    written.create_topic_in_send_message_back_method("closed2", queue_nums=1)
    rocketmqs = of_rocketmqs(written.to_json(), "changedTopics")
    rocketmqs["topicConfigTable"]["closed"]["perm"] = 4
    again = topics_of(lambda: 200)
    again.replace_from_json(rocketmqs)
    saved = topics_of(lambda: 210)
    saved.replace_from_json(as_told(again.to_json()))
    for one in (again, saved):
        merge_topics(one, there)
        assert [one.select("closed"), one.select("gone")] == [TopicConfig("closed", 4, 4, perm=4), None]
    there.update_topic_config(TopicConfig("closed", 8, 8))
    assert there.changed.of("closed") < 90
    merge_topics(there, saved)
    assert there.select("closed") == TopicConfig("closed", 4, 4, perm=4)
    late = topics_of(lambda: 300)
    late.update_topic_config(TopicConfig("closed", 2, 2))
    merge_topics(saved, late)
    assert saved.select("closed") == TopicConfig("closed", 2, 2), "but what was said after that is later"


@pytest.mark.parametrize(("changes", "queue_nums"), [(1, 4), (9, 1)])
def test_what_nobody_has_said_anything_of_is_compared_by_the_changes_of_the_tables(
    changes: int, queue_nums: int
) -> None:
    """Clients made it here, and there as well: that RocketMQ wrote that table since is no word about this topic."""
    here, there = topics_of(lambda: 200), topics_of(lambda: 200)
    for name in ("t", "u", "v"):
        here.create_topic_in_send_message_back_method(name, queue_nums=4)
    there.create_topic_in_send_message_back_method("t", queue_nums=1)
    written = of_rocketmqs(there.to_json(), "changedTopics")
    written["dataVersion"] = {"timestamp": 90, "counter": changes}
    there.replace_from_json(written)
    assert there.changed.latest("t") == 90
    merge_topics(here, there)
    assert here.select("t") == TopicConfig("t", queue_nums, queue_nums)


async def test_what_a_table_of_groups_says_that_rocketmq_wrote_since_is_as_late_as_the_table() -> None:
    here, there = groups_of(lambda: 50), groups_of(lambda: 50)
    for one in (here, there):
        one.update(SubscriptionGroupConfig("g"))
    rocketmqs = of_rocketmqs(await here.to_json_in_turns(), "changedGroups")
    rocketmqs["dataVersion"] = {"timestamp": 90, "counter": 7}
    rocketmqs["subscriptionGroupTable"]["g"]["consumeEnable"] = False
    again = groups_of(lambda: 200)
    again.replace_from_json(rocketmqs)
    for one, other in ((again, there), (there, again)):
        told = SubscriptionGroupTable.from_json(as_told(await other.to_json_in_turns()))
        one.merge(told, is_lost=False)
        assert one.select("g") == SubscriptionGroupConfig("g", consume_enable=False)


def test_a_table_that_a_broker_of_rocketmqs_has_just_begun_says_nothing() -> None:
    """It has the time of its start, and no change."""
    here, there = topics_of(lambda: 200), topics_of(lambda: 50)
    here.replace_from_json({"dataVersion": {"timestamp": 150, "counter": 0}, "topicConfigTable": {}})
    there.update_topic_config(TopicConfig("t", 4, 4))
    merge_topics(here, there)
    assert here.select("t") == TopicConfig("t", 4, 4)


def test_no_table_is_later_than_the_clock() -> None:
    here, there = topics_of(lambda: 100), topics_of(lambda: 200)
    here.replace_from_json({"dataVersion": {"timestamp": 2**60, "counter": 3}, "topicConfigTable": {}})
    there.update_topic_config(TopicConfig("t", 4, 4))
    merge_topics(here, there)
    assert here.select("t") == TopicConfig("t", 4, 4)


async def test_offsets_that_rocketmq_wrote_since_are_as_late_as_their_file() -> None:
    """A group that was forgotten long ago, and has consumed since, lost where it was."""
    there = ConsumerOffsetManager(now_ms=lambda: 50)
    await there.remove_offset_in_turns("g")
    there.commit_offset("back", "t", 0, offset=9)
    there.commit_offset("back", "t", 0, offset=3)
    here = ConsumerOffsetManager(now_ms=lambda: 200)
    here.replace_from_json({"offsetTable": {"t@g": {"0": 7}, "t@back": {"0": 8}}})
    here.changed.date_all(90)
    saved = ConsumerOffsetManager(now_ms=lambda: 210)
    saved.replace_from_json(as_told(here.to_json()))
    for one in (here, saved):
        await merge_offsets(one, there)
        assert [one.query_offset(name, "t", 0) for name in ("g", "back")] == [7, 8]
        there.commit_offset("back", "t", 0, offset=20)
        await merge_offsets(one, there)
        assert one.query_offset("back", "t", 0) == 20, "what was consumed goes forward"
        there.commit_offset("back", "t", 0, offset=3)


def test_what_a_slave_of_rocketmqs_has_of_a_master_that_lost_its_table_is_no_later_word() -> None:
    """Its copy of what was left was as of a moment ago: what operators had said before was thrown away."""
    there, left, here = topics_of(lambda: 50), topics_of(lambda: 90), topics_of(lambda: 95)
    there.update_topic_config(TopicConfig("made", 3, 3))
    there.update_topic_config(TopicConfig("closed", 4, 4, perm=4))
    left.create_topic_in_send_message_back_method("closed", queue_nums=4)
    copy = TopicTable.from_json(of_rocketmqs(left.to_json(), "changedTopics"))
    for is_lost in (True, False):
        here.merge(copy, log_end=0, is_lost=is_lost)
        merge_topics(here, there)
    here.merge(copy, log_end=0, is_lost=False)
    assert here.select("made") == TopicConfig("made", 3, 3)
    assert here.select("closed") == TopicConfig("closed", 4, 4, perm=4)


def test_a_full_table_of_stamps_with_the_time_of_the_whole_can_be_read_again() -> None:
    """Else the next start would find no table of topics."""
    stamps = ChangeStamps(count(1).__next__)
    stamps.date_all(1)
    for number in range(STAMPS_SIZE_MAX // 64 + 9):
        stamps.note(f"{number:044}")
    kept = stamps.to_json()
    assert decode_stamps(kept) == kept
    assert kept[""] == 1
