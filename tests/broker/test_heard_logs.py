"""HeardLogs by itself: whose word about topics, groups and offsets counts, by how far the logs go."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.heard_offsets import cut_at, later_offsets
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig, SubscriptionGroupTable
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.store.config_files import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS

NO_TIME = 1 << 52


def topics_told(heard: HeardLogs, log_end: int, table: TopicTable, *, known: str = "") -> tuple[Any, Any]:
    told = heard.topics_by_now(log_end, table, known.split().__contains__)
    return sorted(told.topics), told.changed


def groups_told(heard: HeardLogs, log_end: int, table: TopicTable, *, known: str = "") -> tuple[Any, Any]:
    groups = {name: SubscriptionGroupConfig(name) for name in table.topics}
    told = heard.groups_by_now(
        log_end, SubscriptionGroupTable(table.data_version, groups, table.changed), known.split().__contains__
    )
    return sorted(told.groups), told.changed


BOTH = pytest.mark.parametrize(("tell", "kept_to"), [(topics_told, "topics_to"), (groups_told, "groups_to")])


def table(names: str, *, at: int = 500, changes: int = 7, changed: dict[str, int] | None = None) -> TopicTable:
    return TopicTable((at, changes), {name: TopicConfig(name) for name in names.split()}, changed=changed)


def origin_of(heard: HeardLogs) -> TablesOrigin:
    return heard.origin(has_decided=False, begun_to=-1)


@BOTH
@pytest.mark.parametrize("log_end", [99, 100])
def test_a_table_without_stamps_of_a_log_that_goes_no_farther_has_no_date(
    tell: Any, kept_to: str, log_end: int
) -> None:
    """It would count as late as it was written, and undo what an operator said since to the one that was heard."""
    heard = HeardLogs(100)
    assert tell(heard, log_end, table("a b")) == (["a", "b"], None)
    assert (getattr(origin_of(heard), kept_to), heard.dated_to) == (0, 0)


@BOTH
def test_one_of_a_log_that_goes_farther_is_as_late_as_it_was_written(tell: Any, kept_to: str) -> None:
    heard = HeardLogs(100)
    assert tell(heard, 101, table("a b")) == (["a", "b"], {"": 500})
    assert (getattr(origin_of(heard), kept_to), heard.dated_to) == (500, 101)
    assert tell(heard, 101, table("a b", changes=0)) == (["a", "b"], {}), "of none that has never changed"
    assert getattr(origin_of(heard), kept_to) == 500


@BOTH
@pytest.mark.parametrize("at", [NO_TIME, NO_TIME + 1, 1 << 62])
def test_a_time_that_no_clock_has_is_none(tell: Any, kept_to: str, at: int) -> None:
    heard = HeardLogs(100)
    assert tell(heard, 200, table("a", at=at)) == (["a"], None)
    assert (getattr(origin_of(heard), kept_to), heard.dated_to) == (0, 0)


@BOTH
def test_the_farther_logs_date_stays_the_later_one(tell: Any, kept_to: str) -> None:
    """A table that RocketMQ wrote, and rmqha read since, has one stamp of all."""
    heard = HeardLogs(100)
    tell(heard, 300, table("a", at=700))
    assert tell(heard, 400, table("a", changed={"": 600})) == (["a"], {"": 600})
    assert (getattr(origin_of(heard), kept_to), heard.dated_to) == (700, 400)
    tell(heard, 50, table("a", changed={"": 900}))
    assert (getattr(origin_of(heard), kept_to), heard.dated_to) == (700, 400), "nor is an earlier log's word"
    tell(heard, 500, table("a", changed={"": 900}))
    assert (getattr(origin_of(heard), kept_to), heard.dated_to) == (900, 500)


@BOTH
@pytest.mark.parametrize("log_end", [299, 300, 301])
def test_stamps_of_an_earlier_log_say_nothing_of_what_is_here_from_a_later_one(
    tell: Any, kept_to: str, log_end: int
) -> None:
    heard = HeardLogs(100)
    tell(heard, 300, table("a b", at=700))
    assert getattr(origin_of(heard), kept_to) == 700
    stamps = {"a": 650, "b": 701, "new": 600, "gone": 690, "elsewhere": 690}
    told = tell(heard, log_end, table("a b new", changed=stamps), known="a b gone")
    if log_end >= 300:
        assert told == (["a", "b", "new"], stamps)
    else:
        assert told == (["b", "new"], {"b": 701, "new": 600, "elsewhere": 690})


def test_each_table_is_as_late_as_those_that_told_it() -> None:
    heard = HeardLogs(100)
    lost = TablesOrigin(log_end=250, lost=(SUBSCRIPTION_GROUP,))
    heard.note(lost, 900, has_stamps=True)
    ends = [heard.end_of(name) for name in (TOPICS, CONSUMER_OFFSET, SUBSCRIPTION_GROUP)]
    assert (ends, heard.end, heard.heard_to) == ([250, 250, 100], 250, 0)
    heard.note(TablesOrigin(), 200, may_be_later=800, has_stamps=False)
    assert (heard.heard_to, heard.told_to) == (0, 800), "that one was no later"
    heard.note(TablesOrigin(), 260, has_stamps=False)
    assert (heard.heard_to, heard.told_to, heard.end) == (260, 800, 260)
    heard.note(TablesOrigin(), 240, has_stamps=True)
    assert [heard.end_of(name) for name in (TOPICS, CONSUMER_OFFSET, SUBSCRIPTION_GROUP)] == [260, 260, 260]


def test_a_start_in_between_goes_on_with_what_was_heard() -> None:
    heard = HeardLogs(100)
    topics_told(heard, 300, table("a", at=700))
    groups_told(heard, 310, table("a", at=800))
    assert HeardLogs.go_on(origin_of(heard), offsets_end=310) is None, "nobody has told anything"
    heard.note(TablesOrigin(), 310, may_be_later=350, has_stamps=False)
    found = origin_of(heard)
    assert (found.log_end, found.heard_to, found.told_to, found.topics_to, found.groups_to) == (310, 310, 350, 700, 800)
    assert HeardLogs.go_on(replace(found, log_end=-1), offsets_end=310) is None, "it has decided since"
    decided = heard.origin(has_decided=True, begun_to=5)
    assert asdict(decided) == asdict(found) | {"log_end": -1, "begun_to": 5}
    again = HeardLogs.go_on(found, offsets_end=310)
    assert again is not None
    assert (again.was_told, again.is_told, heard.was_told) == (True, True, False)
    assert asdict(origin_of(again)) == asdict(found) | {"log_end": 350}, "who may have followed is no later than that"
    heard_only = HeardLogs.go_on(replace(found, log_end=200, told_to=0), offsets_end=0)
    assert heard_only is not None
    assert origin_of(heard_only).log_end == 310, "what is here is as late as all that were heard"


def test_a_log_that_ends_at_its_begin_is_heard_as_any_other() -> None:
    again = HeardLogs.go_on(TablesOrigin(log_end=0, are_told=True), offsets_end=0)
    assert again is not None
    assert (again.end, HeardLogs.go_on(TablesOrigin(log_end=0), offsets_end=0)) == (0, None)


@pytest.mark.parametrize(
    ("log_end", "stamps", "is_later"), [(100, None, False), (101, None, True), (101, {"": 5}, True)]
)
@pytest.mark.parametrize("more", [{}, {"a": 7}])
def test_a_table_is_rocketmqs_if_all_of_it_has_one_date(
    log_end: int, stamps: dict[str, int] | None, more: dict[str, int], *, is_later: bool
) -> None:
    told = None if stamps is None else stamps | more
    assert HeardLogs(100).is_later(TOPICS, log_end, told) == (is_later and not (told and more))
    assert not HeardLogs(100).is_later(TOPICS, 101, {})


async def test_no_offset_counts_beyond_the_end_of_its_queue() -> None:
    """A group that went on there would pass over what comes to those places."""
    told = {"t@g": {0: 5, 1: 5, 2: 5}, "u@g": {0: 5}}
    assert await cut_at(told, {("t", 0): 3, ("t", 1): 9, ("u", 0): 5}) == {"t@g": {0: 3, 1: 5, 2: 0}, "u@g": {0: 5}}


@pytest.mark.parametrize("sets_back", [False, True])
@pytest.mark.parametrize("log_end", [99, 100, 101])
async def test_a_smaller_offset_of_rocketmqs_counts_if_its_log_goes_farther_and_nothing_is_this_brokers_own(
    log_end: int, *, sets_back: bool
) -> None:
    offsets = ConsumerOffsetManager(now_ms=lambda: 9)
    for queue_id in (0, 1, 2):
        offsets.commit_offset("g", "t", queue_id, offset=40)
    told, changed = await later_offsets(
        {"t@g": {0: 3, 1: 40, 2: 41}, "t@new": {0: 1}}, None, offsets, log_end, HeardLogs(100), sets_back=sets_back
    )
    await offsets.merge_from_master(told, changed=changed)
    first = 3 if sets_back and log_end > 100 else 40
    assert offsets.query_offsets("g", "t") == {0: first, 1: 40, 2: 41}
    assert offsets.query_offset("new", "t", 0) == 1


def decided_here() -> ConsumerOffsetManager:
    """A broker that lost its tables: what groups did since, and what operators decided, is its own."""
    offsets = ConsumerOffsetManager(now_ms=lambda: 900)
    offsets.made_since.are_awaited = lambda: True
    for offset in (40, 20):
        offsets.commit_offset("reset", "t", 0, offset=offset)
    offsets.commit_offset("made", "t", 0, offset=30)
    offsets.made_since.are_awaited = lambda: False
    for offset in (50, 40):
        offsets.commit_offset("before", "t", 0, offset=offset)
    offsets.commit_offset("told", "t", 0, offset=40)
    return offsets


@pytest.mark.parametrize("sets_back", [False, True])
async def test_what_was_decided_here_since_no_word_of_before_changes(*, sets_back: bool) -> None:
    """Of those that were here before a later log tells; what clients only made goes forward, and not back."""
    offsets, told = decided_here(), {f"t@{group}": {0: 60} for group in ("reset", "made", "before", "told", "new")}
    counts, changed = await later_offsets(told, None, offsets, 101, HeardLogs(100), sets_back=sets_back)
    assert {key for key, queues in counts.items() if queues} == {"t@made", "t@before", "t@told", "t@new"}
    assert changed == {}
    smaller = {key: {0: 3} for key in told}
    counts, changed = await later_offsets(smaller, None, offsets, 101, HeardLogs(100), sets_back=sets_back)
    stamps = {"t@before@0": offsets.changed.of("t@before@0") + 1, "t@told@0": 1}
    assert changed == (stamps if sets_back else {})
    same, changed = await later_offsets({"t@told": {0: 40}}, None, offsets, 101, HeardLogs(100), sets_back=sets_back)
    assert (same, changed) == ({"t@told": {0: 40}}, {}), "nobody was set back"


def heard_to(log_end: int) -> HeardLogs:
    """Of a broker of RocketMQ's."""
    heard = HeardLogs(100)
    heard.note(TablesOrigin(), log_end, has_stamps=False)
    return heard


async def test_nor_does_one_without_stamps_count_before_a_log_whose_tables_had_a_date() -> None:
    heard = HeardLogs(100)
    topics_told(heard, 400, table("a"))
    heard.note(TablesOrigin(), 400, has_stamps=True)
    counts, _ = await later_offsets({"t@told": {0: 60, 1: 7}}, None, decided_here(), 399, heard, sets_back=True)
    assert counts == {"t@told": {1: 7}}


@pytest.mark.parametrize("log_end", [299, 300, 301])
@pytest.mark.parametrize("changed", [None, {"t@told@0": 5000, "t@new@0": 4000, "@told": 4500, "@gone": 3000}])
async def test_of_an_earlier_log_only_what_nobody_has_told_counts(changed: dict[str, int] | None, log_end: int) -> None:
    """Its place of before the reset, and that a group had been removed before it began again, would count."""
    offsets = decided_here()
    told = {"t@told": {0: 60, 1: 7}, "t@new": {0: 60}}
    counts, stamps = await later_offsets(told, changed, offsets, log_end, heard_to(300), sets_back=False)
    of_all = {key: queues for key, queues in counts.items() if queues}
    if log_end < 300:
        assert of_all == {"t@told": {1: 7}, "t@new": {0: 60}}
        assert stamps == ({} if changed is None else {"t@new@0": 4000, "@gone": 3000})
    else:
        assert of_all == told
        assert stamps == (changed or {})


@pytest.mark.parametrize(
    ("heard", "log_end", "sets_back", "changed", "is_set_back"),
    [
        (300, 301, True, {"": 800}, True),
        (300, 301, False, {"": 800}, False),
        (300, 300, True, {"": 800}, False),
        (0, 301, True, {"": 800}, False),
        (300, 301, True, {"": 800, "t@x@0": 9}, False),
    ],
    ids=["later", "not these", "no later", "others have told", "not rocketmqs"],
)
async def test_a_table_that_rocketmq_wrote_last_sets_back_what_only_rocketmqs_have_told(
    heard: int, log_end: int, changed: dict[str, int], *, sets_back: bool, is_set_back: bool
) -> None:
    logs = heard_to(heard) if heard else HeardLogs(100)
    counts, stamps = await later_offsets(
        {"t@told": {0: 3}}, changed, decided_here(), log_end, logs, sets_back=sets_back
    )
    assert counts == {"t@told": {0: 3}}
    assert stamps == changed | ({"t@told@0": 1} if is_set_back else {})
