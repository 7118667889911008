"""The table of docs/recovery.md: what a master has back of its tables, by what it lost and by whom it has beside it.

The page is read, and each of its cells tried: with the peers there before the master, or after it, in both orders.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Final

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.admin_headers import TopicRequestHeader
from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_READ
from tests.broker.machines import Machine, ask
from tests.broker.test_heard_brokers import as_rocketmqs, start
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import MASTER, fill, lose, put_back, three_machines
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_disk import Inode

PAGE: Final = Path(__file__).parents[2] / "docs/recovery.md"
LOST: Final = {
    "its store": "/",
    "`config`": "config",
    "`topics.json`": "topics.json",
    "`consumerOffset.json`": "consumerOffset.json",
    "`subscriptionGroup.json`": "subscriptionGroup.json",
    "a copy of before is put back": "",
}
RMQHA, ROCKETMQ, NOBODY = "rmqha", "RocketMQ", ""
PEERS: Final = {
    0: [(RMQHA, NOBODY), (RMQHA, RMQHA), (RMQHA, ROCKETMQ)],
    1: [(ROCKETMQ, NOBODY)],
    2: [(ROCKETMQ, RMQHA), (ROCKETMQ, ROCKETMQ)],
    3: [(NOBODY, RMQHA), (NOBODY, ROCKETMQ)],
}
"""By column: who followed to the end, and who had been away."""
ORDERS: Final = ("there, away, master", "away, master, there", "master, away, there")
NUMBERS: Final = {"there": 2, "away": 3}
LIVED_S: Final = 200
LIVED: Final[dict[tuple[str, ...], tuple[list[dict[str, Inode]], dict[str, Inode]]]] = {}


def promised(lost: str, column: int) -> frozenset[str]:
    """What may not be as it was, as the page says."""
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {lost} |"))
    cell = row.strip("| ").split(" | ")[1 + column]
    return frozenset(filter(None, re.sub("^all( but )?", "", cell).split(", ")))


AGAIN: Final = [
    ("`config`", "master, again, there, away"),
    ("`topics.json`", "master, again, there, away"),
    ("`topics.json`", "away, master, again, there"),
    ("`consumerOffset.json`", "master, away, again, again, there"),
    ("`consumerOffset.json`", "away, master, again, there"),
]


class Group:
    """A master, and its slaves, of which one may have been away while operators and clients went on."""

    def __init__(self, there: str, away: str) -> None:
        self.kinds = {"there": there, "away": away}
        self.master, *others = three_machines()
        self.machines = dict(zip(NUMBERS, others, strict=True))
        self.copy: dict[str, Inode] = {}

    async def start(self, who: str, nursery: trio.Nursery) -> list[BrokerController]:
        if not self.kinds[who]:
            return []
        broker = await start(self.machines[who], nursery, **SLAVE | {"brokerId": str(NUMBERS[who])})
        if self.kinds[who] == ROCKETMQ:
            as_rocketmqs(broker)
        return [broker]

    async def live(self) -> None:
        """Once for all tests: what the others do begins with the same disks."""
        kinds, machines = tuple(self.kinds.values()), [self.master, *self.machines.values()]
        if kinds not in LIVED:
            await self._live()
            LIVED[kinds] = deepcopy([dict(machine.disk.files) for machine in machines]), self.copy
        await trio.sleep(LIVED_S)  # the clocks that stamped them begin anew with each test
        disks, self.copy = deepcopy(LIVED[kinds])
        for machine, files in zip(machines, disks, strict=True):
            put_back(machine, files)

    async def _live(self) -> None:
        async with trio.open_nursery() as nursery, self.master.broker(**MASTER) as broker:
            await self.start("there", nursery)
            async with trio.open_nursery() as inner:
                slaves = await self.start("away", inner)
                await trio.sleep(10)
                await use(self.master, broker)
                await trio.sleep(40)
                self.copy = deepcopy(dict(self.master.disk.files))
                for slave in slaves:
                    slave.stop()
                await trio.sleep(15)
            await decide(self.master, broker)
            await trio.sleep(60)
            nursery.cancel_scope.cancel()

    async def lose(self, what: str) -> None:
        if what:
            lose(self.master, what)
        else:
            put_back(self.master, self.copy)

    async def start_again(self, order: str) -> set[str]:
        """What differs on any of them in the end."""
        addresses = [f"10.0.0.{number}:10912" for who, number in NUMBERS.items() if self.kinds[who]]
        brokers = list[BrokerController]()
        async with trio.open_nursery() as nursery:
            for who in order.split(", "):
                if who == "again":
                    brokers.pop(0).stop()
                    await trio.sleep(10)
                if who in {"master", "again"}:
                    brokers.insert(0, await start(self.master, nursery, **MASTER, haPeers=",".join(addresses)))
                    await trio.sleep(40)
                else:
                    brokers += await self.start(who, nursery)
            await trio.sleep(120)
            found = [differing(broker) for broker in brokers]
            for broker in brokers:
                broker.stop()
        return set[str]().union(*found)


async def use(machine: Machine, broker: BrokerController) -> None:
    """All slaves know that."""
    for topic in ("made", "shut", "gone"):
        broker.topics.update_topic_config(TopicConfig(topic, 3, 3))
    await fill(machine, 60)
    for topic in ("gone", "silent"):
        await fill(machine, 3, topic=topic)
    for group, times in (("kept", 7), ("deleted", 9)):
        broker.groups.update(SubscriptionGroupConfig(group, retry_max_times=times))
    for group in ("g", "back", "forgotten"):
        broker.offsets.commit_offset(group, "t", 0, offset=40, peer="1.1.1.1:1")
    broker.offsets.commit_offset("lags", "t", 0, offset=10, peer="1.1.1.1:1")


async def decide(machine: Machine, broker: BrokerController) -> None:
    """The one that had been away does not know that."""
    broker.topics.update_topic_config(TopicConfig("shut", 3, 3, PERM_READ))
    broker.topics.update_topic_config(TopicConfig("made", 5, 5))
    async with machine.client() as client:
        request = RemotingCommand(
            RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=encode_header(TopicRequestHeader("gone"))
        )
        assert (await ask(client, request)).code == 0
    broker.groups.delete("deleted")
    broker.groups.update(SubscriptionGroupConfig("kept", retry_max_times=3))
    await fill(machine, 40)
    broker.offsets.commit_offset("g", "t", 0, offset=90, peer="1.1.1.1:1")
    broker.offsets.commit_offset("lags", "t", 0, offset=50, peer="1.1.1.1:1")
    broker.offsets.commit_offset("back", "t", 0, offset=10)
    await broker.offsets.remove_offset_in_turns("forgotten")


def differing(broker: BrokerController) -> set[str]:
    """In the page's words."""
    topics = {name: broker.topics.select(name) for name in ("made", "shut", "gone")}
    made, shut = topics["made"], topics["shut"]
    kept, deleted = broker.groups.select("kept"), broker.groups.select("deleted")
    places = {group: broker.offsets.query_offset(group, "t", 0) for group in ("g", "lags", "back", "forgotten")}
    ends = broker.store.queues.range_of("t", 0), broker.store.next_queue_offset("silent", 0)
    is_same = {
        "topics": made is not None and shut is not None and (made.queue_nums, shut.perm) == (5, PERM_READ),
        "deleted topics": topics["gone"] is None,
        "groups": kept is not None and kept.retry_max_times == 3,
        "deleted groups": deleted is None or deleted.retry_max_times != 9,
        "places": (places["g"], places["lags"]) == (90, 50),
        "resets": places["back"] == 10,
        "forgotten places": places["forgotten"] is None,
        "messages": ends == ((0, 100), 3),
    }
    return {name for name, same in is_same.items() if not same}


@pytest.mark.parametrize("column", PEERS)
@pytest.mark.parametrize("lost", LOST)
async def test_what_a_master_has_back_is_what_the_page_says(
    lost: str, column: int, virtual_clock: VirtualClock
) -> None:
    found = set[str]()
    for there, away in PEERS[column]:
        for order in ORDERS if there and away else ORDERS[::2]:
            group = Group(there, away)
            await group.live()
            await group.lose(LOST[lost])
            found |= await group.start_again(order)
    assert found == promised(lost, column)


@pytest.mark.parametrize(("lost", "order"), AGAIN)
async def test_a_master_that_is_started_again_before_all_have_told_has_no_less_back(
    lost: str, order: str, virtual_clock: VirtualClock
) -> None:
    """What the start before had of one that had been away, or had made itself, counted as what was never lost."""
    group = Group(ROCKETMQ, RMQHA)
    await group.live()
    await group.lose(LOST[lost])
    assert await group.start_again(order) <= promised(lost, 2)
