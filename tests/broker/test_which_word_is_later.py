"""Of what brokers tell a master that lost its tables, what was said last counts.

Some say when that was, and those that RocketMQ wrote do not (decision 20).
"""

import pytest

from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig, SubscriptionGroupTable
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from tests.broker.test_change_stamps import as_told, groups_of, of_rocketmqs, topics_of
from tests.broker.test_how_late_tables_are import READ_ONLY

OPEN = TopicConfig("t", 4, 4)


@pytest.mark.parametrize("is_older_first", [True, False])
async def test_what_is_decided_once_a_clock_is_set_right_is_later_also_where_only_the_table_has_a_time(
    *, is_older_first: bool
) -> None:
    """It was ahead by a minute when a topic was opened, and a slave of RocketMQ's knows that it was closed since."""
    now = [100_000]
    topics, groups = topics_of(lambda: now[0]), groups_of(lambda: now[0])
    topics.update_topic_config(OPEN)
    groups.update(SubscriptionGroupConfig("g"))
    older = 10, as_told(topics.to_json()), as_told(await groups.to_json_in_turns())
    now[0] -= 60_000
    topics.update_topic_config(READ_ONLY)
    groups.update(SubscriptionGroupConfig("g", consume_enable=False))
    told_groups = of_rocketmqs(await groups.to_json_in_turns(), "changedGroups")
    later = 20, of_rocketmqs(topics.to_json(), "changedTopics"), told_groups
    here, groups_here, heard = topics_of(lambda: now[0]), groups_of(lambda: now[0]), HeardLogs()
    for is_lost, (log_end, topics_told, groups_told) in zip(
        (True, False), (older, later) if is_older_first else (later, older), strict=True
    ):
        table, group_table = TopicTable.from_json(topics_told), SubscriptionGroupTable.from_json(groups_told)
        here.merge(heard.topics_by_now(log_end, table, here.select), log_end=log_end, is_lost=is_lost)
        groups_here.merge(heard.groups_by_now(log_end, group_table, groups_here.select), is_lost=is_lost)
        heard.note(log_end, has_stamps=table.changed is not None)
    group = groups_here.select("g")
    assert (here.select("t"), group is not None and group.consume_enable) == (READ_ONLY, False)
