"""A master that lost its tables, a slave of RocketMQ's that was there to the end, and one that had been away."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from tests.broker.machines import Machine
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import MASTER, OTHER_SLAVE, PEERS, fill, lose, three_machines

_STAMPS = ("changedTopics", "changedOffsets", "changedGroups", "deletedTopics", "deletedBefore", "learnedTopics")


def as_rocketmqs(broker: BrokerController) -> None:
    """It writes and tells its tables without stamps."""
    for table in (broker.offsets, broker.topics, broker.groups):
        whole = table.to_json_in_turns

        async def without_stamps(whole: Any = whole) -> dict[str, Any]:
            value = dict(await whole())
            return {member: value[member] for member in value.keys() - set(_STAMPS)}

        table.to_json_in_turns = without_stamps  # type: ignore[method-assign]


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
    order: str, *, was_stamped: bool, autojump_clock: MockClock
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
    what: str, late_s: float, autojump_clock: MockClock
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
