"""A master that lost its tables, a slave of RocketMQ's that was there to the end, and one that had been away."""

from dataclasses import replace
from typing import Any

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.change_stamps import ChangeStamps
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from tests.broker.machines import Machine, replication_of
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import MASTER, ONE_PEER, OTHER_SLAVE, PEERS, fill, lose, three_machines
from tests.sim.sim_clock import VirtualClock

_STAMPS = ("changedTopics", "changedOffsets", "changedGroups", "deletedTopics", "deletedBefore", "learnedTopics")


def as_rocketmqs(broker: BrokerController) -> None:
    """It writes and tells its tables without stamps, and does not say how late they are."""
    for table in (broker.offsets, broker.topics, broker.groups):
        whole = table.to_json_in_turns

        async def without_stamps(whole: Any = whole) -> dict[str, Any]:
            value = dict(await whole())
            return {member: value[member] for member in value.keys() - set(_STAMPS)}

        table.to_json_in_turns = without_stamps  # type: ignore[method-assign]
    replication = replication_of(broker)
    origin = replication._tables_origin
    replication._tables_origin = lambda: replace(origin(), log_end=-1)  # type: ignore[method-assign]


async def start(machine: Machine, nursery: trio.Nursery, **settings: str) -> BrokerController:
    broker = machine.controller(**settings)
    await nursery.start(broker.run)
    return broker


async def start_rocketmqs(machine: Machine, nursery: trio.Nursery) -> BrokerController:
    broker = await start(machine, nursery, **OTHER_SLAVE)
    as_rocketmqs(broker)
    return broker


@pytest.mark.parametrize("order", ["old first", "new first", "new, restart, old"])
@pytest.mark.parametrize("was_stamped", [False, True])
async def test_a_group_that_was_set_back_stays_where_an_older_slave_comes(
    order: str, *, was_stamped: bool, virtual_clock: VirtualClock
) -> None:
    """The larger place of before the reset counted, and 47 messages were passed over."""
    master, old, new = three_machines()
    async with trio.open_nursery() as nursery, master.broker(**MASTER) as broker:
        latest = await start_rocketmqs(new, nursery)
        async with old.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 60)
            for offset, peer in ((40, "1.1.1.1:1"), (20, "" if was_stamped else "1.1.1.1:1"), (50, "1.1.1.1:1")):
                broker.offsets.commit_offset("g", "t", 0, offset=offset, peer=peer)
            await trio.sleep(30)
        await fill(master, 10)
        broker.offsets.commit_offset("g", "t", 0, offset=3)
        await trio.sleep(60)
        assert latest.offsets.query_offset("g", "t", 0) == 3
        nursery.cancel_scope.cancel()
    lose(master, "/")
    async with trio.open_nursery() as nursery:
        if order == "old first":
            await start(old, nursery, **SLAVE)
        else:
            await start_rocketmqs(new, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(90)
            if order == "old first":
                await start_rocketmqs(new, nursery)
            elif order == "new first":
                await start(old, nursery, **SLAVE)
            await trio.sleep(120)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(60)
            if order == "new, restart, old":
                await start(old, nursery, **SLAVE)
            await trio.sleep(120)
            found = broker.offsets.query_offset("g", "t", 0), broker.store.next_queue_offset("t", 0)
            assert (*found, broker.metadata.lost) == (3, 70, [])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("late_s", [0, 90])
@pytest.mark.parametrize("what", ["/", "config"])
async def test_what_a_slave_knew_before_it_was_away_is_no_later_for_its_following_again(
    what: str, late_s: float, virtual_clock: VirtualClock
) -> None:
    """Its log was as long as all others' a second after it had come, and its stamps of long ago counted again."""
    master, old, new = three_machines()
    async with trio.open_nursery() as nursery:
        latest = await start_rocketmqs(new, nursery)
        async with master.broker(**MASTER) as broker:
            async with old.broker(**SLAVE):
                await trio.sleep(10)
                await fill(master, 60)
                for group in ("reset", "removed"):
                    broker.offsets.commit_offset(group, "t", 0, offset=40, peer="1.1.1.1:1")
                broker.offsets.commit_offset("reset", "t", 0, offset=5)
                await broker.offsets.remove_offset_in_turns("removed")
                await trio.sleep(30)
            await fill(master, 100)
            for group in ("reset", "removed"):
                broker.offsets.commit_offset(group, "t", 0, offset=150, peer="1.1.1.1:1")
            await trio.sleep(60)
            assert latest.offsets.query_offset("reset", "t", 0) == 150
        nursery.cancel_scope.cancel()
    lose(master, what)
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(new, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(late_s)
            await start(old, nursery, **SLAVE)
            await trio.sleep(200)
            assert [broker.offsets.query_offset(group, "t", 0) for group in ("reset", "removed")] == [150, 150]
        nursery.cancel_scope.cancel()


async def next_round(broker: BrokerController) -> None:
    """Of a slave that takes its master's tables over."""
    tables = replication_of(broker).slave_synchronize
    rounds = tables.rounds
    while tables.rounds == rounds:  # noqa: ASYNC110 - a look from outside
        await trio.sleep(0.1)


@pytest.mark.parametrize("is_ours_first", [True, False])
async def test_a_slave_of_rocketmqs_that_is_a_round_behind_undoes_nothing(
    virtual_clock: VirtualClock, *, is_ours_first: bool
) -> None:
    """Both logs end alike: who tells how late its tables were ten seconds ago is no earlier for that."""
    master, ours, theirs = three_machines()
    async with trio.open_nursery() as nursery:
        latest = await start_rocketmqs(theirs, nursery)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(5)
            kept = await start(ours, nursery, **SLAVE)
            await trio.sleep(10)
            await fill(master, 60)
            broker.offsets.commit_offset("g", "t", 0, offset=40, peer="1.1.1.1:1")
            await trio.sleep(30)
            await next_round(latest)

            async def later(*_: object, **__: object) -> None:
                """Its next round is some seconds away."""

            replication_of(latest).slave_synchronize.synchronize = later  # type: ignore[method-assign]
            broker.offsets.commit_offset("g", "t", 0, offset=3)
            await next_round(kept)
            await fill(master, 5)
            await trio.sleep(1)
            assert [one.offsets.query_offset("g", "t", 0) for one in (latest, kept)] == [40, 3]
        nursery.cancel_scope.cancel()
    lose(master, "config")
    async with trio.open_nursery() as nursery:
        if is_ours_first:
            await start(ours, nursery, **SLAVE)
        else:
            await start_rocketmqs(theirs, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(30)
            if is_ours_first:
                await start_rocketmqs(theirs, nursery)
            else:
                await start(ours, nursery, **SLAVE)
            await trio.sleep(100)
            assert broker.offsets.query_offset("g", "t", 0) == 3
        nursery.cancel_scope.cancel()


async def test_offsets_that_are_here_a_slave_of_rocketmqs_does_not_set_back(virtual_clock: VirtualClock) -> None:
    """The table of topics alone was lost."""
    master, first, _ = three_machines()
    async with trio.open_nursery() as nursery:
        latest = await start(first, nursery, **SLAVE)
        as_rocketmqs(latest)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            await fill(master, 60)
            broker.offsets.commit_offset("g", "t", 0, offset=40, peer="1.1.1.1:1")
            await trio.sleep(30)
            await next_round(latest)
            broker.offsets.commit_offset("g", "t", 0, offset=60, peer="1.1.1.1:1")
        nursery.cancel_scope.cancel()
    assert latest.offsets.query_offset("g", "t", 0) == 40
    lose(master, "topics.json")
    async with trio.open_nursery() as nursery:
        as_rocketmqs(await start(first, nursery, **SLAVE))
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(60)
            assert broker.offsets.query_offset("g", "t", 0) == 60
        nursery.cancel_scope.cancel()


async def test_a_former_master_says_nothing_of_when_it_was_a_slave(virtual_clock: VirtualClock) -> None:
    """What it decided as a master counted as older than it was."""
    master, ours, _ = three_machines()
    async with master.broker(**MASTER):
        async with ours.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 20)
            await trio.sleep(60)
        await fill(master, 20)
        async with ours.broker(**SLAVE | {"masterAddress": "10.0.0.9:10911"}):
            await trio.sleep(20)  # its log goes on, and it has no tables: that is noted
    async with ours.broker(**MASTER) as broker:
        await fill(ours, 300)
        broker.offsets.commit_offset("g", "t", 0, offset=40, peer="1.1.1.1:1")
        await trio.sleep(60)
        end = broker.store.max_offset
    async with ours.broker(**SLAVE) as slave:
        await trio.sleep(1)
        assert replication_of(slave)._tables_origin().log_end == end


async def test_a_former_master_that_was_away_knows_no_more_than_its_log_did(virtual_clock: VirtualClock) -> None:
    """It follows within a second, and has never said as a slave how late its tables are."""
    master, former, theirs = three_machines()
    follows = {"masterAddress": "10.0.0.2:10911", "haMasterAddress": "10.0.0.2:10912", "brokerId": "3"}
    async with former.broker(**MASTER) as broker, master.broker(**SLAVE | follows):
        await trio.sleep(10)
        await fill(former, 60)
        for offset, peer in ((40, "1.1.1.1:1"), (5, ""), (50, "1.1.1.1:1")):
            broker.offsets.commit_offset("g", "t", 0, offset=offset, peer=peer)
        await trio.sleep(60)
    async with trio.open_nursery() as nursery:
        latest = await start_rocketmqs(theirs, nursery)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(30)
            await fill(master, 100)
            broker.offsets.commit_offset("g", "t", 0, offset=10)
            await trio.sleep(60)
            assert latest.offsets.query_offset("g", "t", 0) == 10
        nursery.cancel_scope.cancel()
    lose(master, "config")
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(theirs, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await start(former, nursery, **SLAVE)
            await trio.sleep(200)
            assert broker.offsets.query_offset("g", "t", 0) == 10
        nursery.cancel_scope.cancel()


async def test_a_slave_of_rocketmqs_that_was_away_and_follows_again_sets_nobody_back(
    virtual_clock: VirtualClock,
) -> None:
    """One of rmqha's that was there to the end has told, and the master's log has gone on since."""
    master, ours, theirs = three_machines()
    async with trio.open_nursery() as nursery, master.broker(**MASTER) as broker:
        await start(ours, nursery, **SLAVE)
        async with theirs.broker(**OTHER_SLAVE) as old:
            as_rocketmqs(old)
            await trio.sleep(10)
            await fill(master, 60)
            for group in ("g", "reset"):
                broker.offsets.commit_offset(group, "t", 0, offset=40, peer="1.1.1.1:1")
            await trio.sleep(30)
        await fill(master, 100)
        broker.offsets.commit_offset("g", "t", 0, offset=150, peer="1.1.1.1:1")
        broker.offsets.commit_offset("reset", "t", 0, offset=20)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    lose(master, "config")
    async with trio.open_nursery() as nursery:
        await start(ours, nursery, **SLAVE)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(90)
            await fill(master, 10)
            await start_rocketmqs(theirs, nursery)
            await trio.sleep(60)
            assert [broker.offsets.query_offset(group, "t", 0) for group in ("g", "reset")] == [150, 20]
        nursery.cancel_scope.cancel()


def test_the_time_of_a_table_is_one_stamp_and_none_that_no_clock_has() -> None:
    """A stamp for each of its topics left no room for those of operators."""
    heard, stamps = HeardLogs(), ChangeStamps(lambda: 1000)
    stamps.note("deleted")
    topics = {
        name: TopicConfig(name) for name in (f"a-topic-of-thirty-characters-{number:06d}" for number in range(12000))
    }
    for timestamp in (500, 1 << 60):
        told = heard.topics_by_now(10, TopicTable((timestamp, 7), topics), topics.get)
        stamps.adopt_newer(stamps.of_told(told.topics, told.changed or {}))
        assert stamps.to_json() == {"deleted": 1000}
        assert bool(told.changed) == (timestamp == 500)
