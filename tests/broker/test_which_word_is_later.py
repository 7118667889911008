"""Of what brokers tell a master that lost its tables, what was said last counts.

Some say when that was, and those that RocketMQ wrote do not (decision 20).
"""

import json
from copy import deepcopy

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig, SubscriptionGroupTable
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.codec.route import PERM_READ
from rmqha.errors import errors_in
from tests.broker.machines import Machine, replication_of
from tests.broker.test_change_stamps import as_told, groups_of, of_rocketmqs, topics_of
from tests.broker.test_heard_brokers import as_rocketmqs, start, start_rocketmqs
from tests.broker.test_how_late_tables_are import CLIENT, READ_ONLY, Refusing
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import MASTER, OTHER_SLAVE, fill, lose, three_machines
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import VirtualClock

OPEN = TopicConfig("t", 4, 4)
NOTE = "/store/config/tablesOrigin.json"


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
        heard.note(TablesOrigin(), log_end, has_stamps=table.changed is not None)
    group = groups_here.select("g")
    assert (here.select("t"), group is not None and group.consume_enable) == (READ_ONLY, False)


def peers(*numbers: int, **more: str) -> dict[str, str]:
    return MASTER | {"haPeers": ",".join(f"10.0.0.{number}:10912" for number in numbers)} | more


async def open_then(master: Machine, broker: BrokerController) -> None:
    """Who is there knows of an open topic, a group that consumes, and that it was set back and went on to 40."""
    await trio.sleep(10)
    await fill(master, 60)
    for topic in (READ_ONLY, OPEN):
        broker.topics.update_topic_config(topic)
    broker.groups.update(SubscriptionGroupConfig("g"))
    for at in (20, 10, 40):
        broker.offsets.commit_offset("g", "t", 0, offset=at, peer=CLIENT)
    await trio.sleep(30)


async def close_later(master: Machine, broker: BrokerController) -> None:
    """One change each, and the last."""
    await fill(master, 10)
    broker.topics.update_topic_config(READ_ONLY)
    broker.groups.update(SubscriptionGroupConfig("g", consume_enable=False))
    broker.offsets.commit_offset("g", "t", 0, offset=3)
    await trio.sleep(60)


def is_closed(broker: BrokerController) -> tuple[bool, bool, int | None]:
    group = broker.groups.select("g")
    is_forbidden = group is not None and not group.consume_enable
    return broker.topics.select("t") == READ_ONLY, is_forbidden, broker.offsets.query_offset("g", "t", 0)


CLOSED = True, True, 3


@pytest.mark.parametrize("order", ["older first", "newer first", "newer, restart, older"])
async def test_one_change_is_enough_to_be_later(order: str, virtual_clock: VirtualClock) -> None:
    """Both are slaves of RocketMQ's. What is merged here counts as a change, and the newer table had just as many."""
    master, old, new = three_machines()
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(new, nursery)
        async with master.broker(**MASTER) as broker:
            async with old.broker(**SLAVE) as other:
                as_rocketmqs(other)
                await open_then(master, broker)
            await close_later(master, broker)
        nursery.cancel_scope.cancel()
    lose(master)
    async with trio.open_nursery() as nursery:
        if order == "newer, restart, older":
            await start_rocketmqs(new, nursery)
            async with master.broker(**peers(3, 2, haCatchUpAtStart="try")):
                await trio.sleep(60)
            nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        as_rocketmqs(await start(old, nursery, **SLAVE))
        if "restart" not in order:
            await start_rocketmqs(new, nursery)
        first, second = (3, 2) if order == "newer first" else (2, 3)
        async with master.broker(**peers(first, second, haCatchUpAtStart="try")) as broker:
            await trio.sleep(100)
            assert is_closed(broker) == CLOSED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_current", [True, False])
async def test_who_tells_after_a_restart_is_later_unless_it_may_have_followed(
    virtual_clock: VirtualClock, *, is_current: bool
) -> None:
    """The older one's word stayed. What has followed the master of before is no proof, however far the log goes."""
    master, ours, theirs = three_machines()
    async with trio.open_nursery() as nursery, master.broker(**MASTER) as broker:
        (late, early) = (theirs, ours) if is_current else (ours, theirs)
        other = await start(late, nursery, **(OTHER_SLAVE if is_current else SLAVE))
        async with early.broker(**(SLAVE if is_current else OTHER_SLAVE)) as first:
            as_rocketmqs(other if is_current else first)
            await open_then(master, broker)
        await close_later(master, broker)
        nursery.cancel_scope.cancel()
    lose(master)
    async with trio.open_nursery() as nursery:
        await start(ours, nursery, **SLAVE)
        async with master.broker(**peers(2, 3, 4, haCatchUpAtStart="try")) as broker:
            await trio.sleep(60)
            if not is_current:
                await start_rocketmqs(theirs, nursery)
                await trio.sleep(30)
        if is_current:
            await start_rocketmqs(theirs, nursery)
        async with master.broker(**peers(3, 2, 4, haCatchUpAtStart="try")) as broker:
            await trio.sleep(100)
            assert is_closed(broker) == CLOSED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_what_a_slave_of_a_rocketmq_master_has_is_as_late_as_its_table_whoever_comes_later(
    virtual_clock: VirtualClock, *, is_restarted: bool
) -> None:
    """It was heard first, and the topic's stamp of before, which a slave had that was away, opened it again."""
    master, old, new = three_machines()
    async with master.broker(**MASTER) as broker, old.broker(**SLAVE):
        await open_then(master, broker)
    async with master.broker(**MASTER) as broker, new.broker(**OTHER_SLAVE) as latest:
        as_rocketmqs(broker)
        await trio.sleep(30)
        await close_later(master, broker)
        assert latest.topics.select("t") == READ_ONLY
    lose(master, "/")
    async with trio.open_nursery() as nursery:
        await start(new, nursery, **OTHER_SLAVE)
        if is_restarted:
            async with master.broker(**peers(2, 3, haCatchUpAtStart="try")):
                await trio.sleep(60)
        await start(old, nursery, **SLAVE)
        async with master.broker(**peers(2, 3, haCatchUpAtStart="try")) as broker:
            await trio.sleep(100)
            assert is_closed(broker)[:2] == CLOSED[:2]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("what", "is_current"),
    [
        *((name, False) for name in ("consumerOffset", "subscriptionGroup", "delayOffset", "tablesOrigin", "topics")),
        ("consumerOffset", True),
        ("subscriptionGroup", True),
    ],
)
async def test_a_slave_that_lost_one_table_is_no_later_for_that(
    what: str, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock, *, is_current: bool
) -> None:
    """It counted as late as its log: if it was refused tables, and where it is current and knows nothing of one."""
    master, ours, theirs = three_machines()
    away = Machine(master.net, "10.0.0.4")
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(theirs, nursery)
        kept = await start(ours, nursery, **SLAVE)
        async with master.broker(**MASTER) as broker:
            async with away.broker(**SLAVE | {"brokerId": "3"}):
                await open_then(master, broker)
            if not is_current:
                monkeypatch.setattr(replication_of(kept).slave_synchronize, "_link", Refusing())
                await trio.sleep(100)
            await close_later(master, broker)
        nursery.cancel_scope.cancel()
    lose(master)
    lose(ours, f"{what}.json")
    async with trio.open_nursery() as nursery:
        await start(ours, nursery, **SLAVE)
        await start_rocketmqs(theirs, nursery)
        await start(away, nursery, **SLAVE | {"brokerId": "3"})
        async with master.broker(**peers(2, 3, 4, haCatchUpAtStart="try")) as broker:
            await trio.sleep(100)
            assert is_closed(broker) == CLOSED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_in_step", [True, False])
async def test_a_note_of_before_rocketmq_ran_on_a_store_says_nothing_of_how_late_it_is(
    monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock, *, is_in_step: bool
) -> None:
    """It knows nothing of that file. An older slave of RocketMQ's undid what this one had had since."""
    master, ours, old = three_machines()
    async with master.broker(**MASTER) as broker, old.broker(**OTHER_SLAVE) as other:
        as_rocketmqs(other)
        async with ours.broker(**SLAVE) as kept:
            await open_then(master, broker)
            if not is_in_step:
                monkeypatch.setattr(replication_of(kept).slave_synchronize, "_link", Refusing())
                await trio.sleep(40)
        await fill(master, 100)
        await trio.sleep(30)
    noted = deepcopy(ours.disk.files[NOTE])
    async with master.broker(**MASTER) as broker, ours.broker(**SLAVE) as rocketmqs:
        as_rocketmqs(rocketmqs)
        await trio.sleep(10)
        await close_later(master, broker)
    ours.disk.files[NOTE] = noted
    lose(master)
    async with trio.open_nursery() as nursery:
        await start(ours, nursery, **SLAVE)
        await start_rocketmqs(old, nursery)
        async with master.broker(**peers(2, 3, haCatchUpAtStart="try")) as broker:
            await trio.sleep(100)
            assert is_closed(broker) == CLOSED
        nursery.cancel_scope.cancel()


async def killed_once_it_is_told(master: Machine, **conf: str) -> None:
    """Of the tables, which are saved before the first byte of the log comes."""
    broker, scope = master.controller(**conf), trio.CancelScope()

    async def run() -> None:
        with scope:
            try:
                await broker.run()
            except (NodeDied, BaseExceptionGroup) as raised:
                errors_in(raised, NodeDied)

    def log_end() -> int:
        note = master.disk.files.get(NOTE)
        return int(json.loads(bytes(note.durable) or b"{}").get("log_end", 0)) if note is not None else 0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.fail_after(60):
            while log_end() <= 0:  # noqa: ASYNC110 - a simulated disk's file
                await trio.sleep(0.001)
        scope.cancel()
        master.disk.kill()
        master.net.host(master.address).kill()
    assert broker.store.max_offset == 0
    await trio.sleep(1)


async def test_who_is_heard_once_the_log_comes_for_the_second_time_has_not_followed_meanwhile(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master never served in between: its log of then, empty, was taken for one that others had followed since."""
    master, ours, theirs = three_machines()
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(theirs, nursery)
        kept = await start(ours, nursery, **SLAVE)
        async with master.broker(**MASTER) as broker:
            await open_then(master, broker)
            monkeypatch.setattr(replication_of(kept).slave_synchronize, "_link", Refusing())
            await trio.sleep(40)
            await close_later(master, broker)
        nursery.cancel_scope.cancel()
    lose(master, "/")
    async with trio.open_nursery() as nursery:
        await start(ours, nursery, **SLAVE)
        await killed_once_it_is_told(master, **peers(2, 3))
        await start_rocketmqs(theirs, nursery)
        async with master.broker(**peers(2, 3)) as broker:
            await trio.sleep(100)
            assert is_closed(broker) == CLOSED
        nursery.cancel_scope.cancel()


async def test_a_master_that_nobody_has_told_is_told_by_the_first_however_often_it_was_started(
    virtual_clock: VirtualClock,
) -> None:
    """What an operator said of something else was taken for a peer's word, and the first peer's for an older one."""
    master, slave, _ = three_machines()
    shut = TopicConfig("q", 3, 3, PERM_READ)
    async with trio.open_nursery() as nursery:
        as_rocketmqs(await start(slave, nursery, **SLAVE))
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            await fill(master, 60)
            broker.topics.update_topic_config(shut)
            await trio.sleep(60)
        nursery.cancel_scope.cancel()
    lose(master)
    for number in range(3):
        async with master.broker(**peers(2, haCatchUpAtStart="try")) as broker:
            await trio.sleep(60)
            if number == 0:
                for topic in (*"abcde", "q"):
                    await fill(master, 1, topic=topic)
                broker.groups.update(SubscriptionGroupConfig("other", consume_enable=False))
            await trio.sleep(30)
    async with trio.open_nursery() as nursery:
        as_rocketmqs(await start(slave, nursery, **SLAVE))
        async with master.broker(**peers(2, haCatchUpAtStart="try")) as broker:
            await trio.sleep(100)
            topic = broker.topics.select("q")
            assert topic is not None
            assert topic.perm == PERM_READ
        nursery.cancel_scope.cancel()
