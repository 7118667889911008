"""Of a slave, and of a former master, that tells a master its tables: as late as its log when it had them last."""

import json
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.taken_tables import TABLES_NOT_TAKEN, TakenTables
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.tables_origin import TablesOrigin, origin_of
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.route import PERM_READ
from rmqha.store.disk import Disk
from rmqha.store.store_note import StoreNote
from tests.broker.machines import Machine, replication_of
from tests.broker.test_heard_brokers import as_rocketmqs, start, start_rocketmqs
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import MASTER, OTHER_SLAVE, PEERS, fill, lose, three_machines
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_disk import SimDisk

CLIENT = "1.1.1.1:1"
READ_ONLY = TopicConfig("t", 4, 4, PERM_READ)


def how_late(broker: BrokerController) -> TablesOrigin:
    return replication_of(broker)._tables_origin()


async def goes_on(master: Machine, broker: BrokerController, latest: BrokerController) -> None:
    """A hundred messages, and where the groups are by then."""
    await fill(master, 100)
    for group in ("reset", "removed"):
        broker.offsets.commit_offset(group, "t", 0, offset=150, peer=CLIENT)
    await trio.sleep(60)
    assert latest.offsets.query_offset("reset", "t", 0) == 150


async def decide(master: Machine, broker: BrokerController) -> None:
    await trio.sleep(10)
    await fill(master, 60)
    for group in ("reset", "removed"):
        broker.offsets.commit_offset(group, "t", 0, offset=40, peer=CLIENT)
    broker.offsets.commit_offset("reset", "t", 0, offset=5)
    await broker.offsets.remove_offset_in_turns("removed")
    await trio.sleep(30)


def places(broker: BrokerController) -> list[int | None]:
    return [broker.offsets.query_offset(group, "t", 0) for group in ("reset", "removed")]


@pytest.mark.parametrize("what", ["/", "config"])
async def test_a_slave_that_was_cut_off_is_no_later_for_following_again(what: str, virtual_clock: VirtualClock) -> None:
    """It was not started again: what it had decided an hour ago undid where the groups were."""
    master, old, new = three_machines()
    net = master.net
    async with trio.open_nursery() as nursery:
        latest = await start_rocketmqs(new, nursery)
        await start(old, nursery, **SLAVE)
        async with master.broker(**MASTER) as broker:
            await decide(master, broker)
            for other in (master.address, new.address):
                net.cut(old.address, other)
                net.cut(other, old.address)
                net.reset_between(old.address, other)
            await trio.sleep(3600)
            await goes_on(master, broker, latest)
        lose(master, what)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(60)
            net.heal()
            await trio.sleep(200)
            assert places(broker) == [150, 150]
        nursery.cancel_scope.cancel()


class Refusing:
    """Asks nobody."""

    asked = None

    def open(self, _address: str) -> Any:
        raise OSError("refused")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_slave_whose_log_went_on_alone_is_no_later_for_that(
    monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock, *, is_restarted: bool
) -> None:
    """Its account was refused for a day. So it is over a start of its own, and where its master comes first."""
    master, old, new = three_machines()
    async with trio.open_nursery() as nursery:
        latest = await start_rocketmqs(new, nursery)
        kept = await start(old, nursery, **SLAVE)
        async with master.broker(**MASTER) as broker:
            await decide(master, broker)
            had = kept.store.max_offset
            assert (how_late(kept).log_end, how_late(kept).is_in_step) == (had, True)
            monkeypatch.setattr(replication_of(kept).slave_synchronize, "_link", Refusing())
            await trio.sleep(300)
            await goes_on(master, broker, latest)
            assert (how_late(kept).log_end, how_late(kept).is_in_step) == (had, False)
            assert kept.store.max_offset > had
        nursery.cancel_scope.cancel()
    lose(master)
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(new, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(60 if is_restarted else 0)
            kept = await start(old, nursery, **SLAVE)
            assert how_late(kept).log_end == had
            await trio.sleep(200)
            assert places(broker) == [150, 150]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["/", "config"])
async def test_what_a_slave_without_stamps_told_outlives_a_restart(what: str, virtual_clock: VirtualClock) -> None:
    """The older slave that came after it opened a topic again, and let a group consume."""
    master, old, new = three_machines()
    async with trio.open_nursery() as nursery, master.broker(**MASTER) as broker:
        latest = await start_rocketmqs(new, nursery)
        async with old.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 60)
            for topic in (READ_ONLY, TopicConfig("t", 4, 4)):
                broker.topics.update_topic_config(topic)
            broker.groups.update(SubscriptionGroupConfig("g", consume_enable=True))
            await trio.sleep(30)
        await fill(master, 10)
        broker.topics.update_topic_config(READ_ONLY)
        broker.groups.update(SubscriptionGroupConfig("g", consume_enable=False))
        await trio.sleep(60)
        assert latest.topics.select("t") == READ_ONLY
        nursery.cancel_scope.cancel()
    lose(master, what)
    async with trio.open_nursery() as nursery:
        await start_rocketmqs(new, nursery)
        async with master.broker(**MASTER, **PEERS):
            await trio.sleep(90)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(60)
            await start(old, nursery, **SLAVE)
            await trio.sleep(120)
            group = broker.groups.select("g")
            assert (broker.topics.select("t"), group is not None and group.consume_enable) == (READ_ONLY, False)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["/", "config"])
async def test_a_slave_knows_what_a_master_decided_that_awaited_others(what: str, virtual_clock: VirtualClock) -> None:
    """That one lost its tables a second time, and a slave of RocketMQ's that was away undid what was decided since."""
    master, ours, theirs = three_machines()
    async with master.broker(**MASTER) as broker, theirs.broker(**OTHER_SLAVE) as other:
        as_rocketmqs(other)
        async with ours.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 60)
            broker.offsets.commit_offset("g", "t", 0, offset=40, peer=CLIENT)
            await trio.sleep(30)
        await fill(master, 20)
        await trio.sleep(30)
    lose(master)
    async with trio.open_nursery() as nursery:
        kept = await start(ours, nursery, **SLAVE)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(120)
            assert how_late(kept).log_end < kept.store.max_offset, "nobody has decided anything since"
            await fill(master, 50)
            broker.offsets.commit_offset("g", "t", 0, offset=3)
            broker.topics.update_topic_config(READ_ONLY)
            await trio.sleep(3600)
        lose(master, what)
        await start_rocketmqs(theirs, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(200)
            assert (broker.offsets.query_offset("g", "t", 0), broker.topics.select("t")) == (3, READ_ONLY)
        nursery.cancel_scope.cancel()


async def test_a_former_master_that_awaited_others_is_as_late_as_its_log(virtual_clock: VirtualClock) -> None:
    """It said that what it had decided was as late as what it had lost."""
    master, other, theirs = three_machines()
    async with master.broker(**MASTER) as broker, theirs.broker(**OTHER_SLAVE), other.broker(**SLAVE):
        await trio.sleep(10)
        await fill(master, 60)
        broker.offsets.commit_offset("g", "t", 0, offset=40, peer=CLIENT)
        await trio.sleep(30)
    lose(master)
    async with other.broker(**SLAVE), master.broker(**MASTER, **PEERS) as broker:
        await trio.sleep(90)
        await fill(master, 100)
        broker.offsets.commit_offset("g", "t", 0, offset=3)
        await trio.sleep(60)
        end = broker.store.max_offset
    to_nobody = {"masterAddress": "10.0.0.9:10911", "haMasterAddress": "10.0.0.9:10912"}
    async with master.broker(**SLAVE | to_nobody) as former:
        await trio.sleep(1)
        assert how_late(former).log_end == end


async def test_a_slave_that_lost_its_log_alone_has_tables_as_late_as_before(virtual_clock: VirtualClock) -> None:
    master, ours, _ = three_machines()
    async with master.broker(**MASTER), ours.broker(**SLAVE) as kept:
        await trio.sleep(10)
        await fill(master, 60)
        await trio.sleep(30)
        end = kept.store.max_offset
    for part in ("/commitlog", "/consumequeue", "/index", "/checkpoint"):
        lose(ours, part)
    async with ours.broker(**SLAVE) as kept:
        await trio.sleep(30)
        assert (kept.store.max_offset, how_late(kept).log_end) == (0, end)


@pytest.mark.parametrize("is_ours_first", [True, False])
async def test_what_a_slave_that_lost_its_log_alone_has_is_later_than_what_one_has_that_was_away(
    virtual_clock: VirtualClock, *, is_ours_first: bool
) -> None:
    """37 messages were passed over. Where groups are in what it has no more is not told: they have that again."""
    master, ours, theirs = three_machines()
    async with trio.open_nursery() as nursery, master.broker(**MASTER) as broker:
        kept = await start(ours, nursery, **SLAVE)
        async with theirs.broker(**OTHER_SLAVE) as other:
            as_rocketmqs(other)
            await trio.sleep(10)
            await fill(master, 60)
            broker.offsets.commit_offset("g", "t", 0, offset=40, peer=CLIENT)
            await trio.sleep(30)
        await fill(master, 100)
        broker.offsets.commit_offset("g", "t", 0, offset=3)
        broker.topics.update_topic_config(READ_ONLY)
        await trio.sleep(60)
        assert kept.offsets.query_offset("g", "t", 0) == 3
        nursery.cancel_scope.cancel()
    lose(master)
    for part in ("/commitlog", "/consumequeue", "/index", "/checkpoint"):
        lose(ours, part)
    async with trio.open_nursery() as nursery:
        if is_ours_first:
            await start(ours, nursery, **SLAVE)
        else:
            await start_rocketmqs(theirs, nursery)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(40)
            if is_ours_first:
                await start_rocketmqs(theirs, nursery)
            else:
                await start(ours, nursery, **SLAVE)
            await trio.sleep(200)
            assert (broker.offsets.query_offset("g", "t", 0), broker.topics.select("t")) == (0, READ_ONLY)
        nursery.cancel_scope.cancel()


def test_a_file_of_before_says_how_late_tables_were_as_it_did() -> None:
    for value, log_end in (({"term": -1, "log_end": 70, "heard_to": 5}, 70), ({"term": -1}, -1)):
        origin = origin_of(json.loads(json.dumps(value)))
        assert (origin.log_end, origin.is_in_step, origin.topics_to, origin.groups_to) == (log_end, False, 0, 0)
        assert origin.heard_to == value.get("heard_to", 0)


@dataclass
class Rounds:
    """A slave's, and its log."""

    disk: Disk = field(default_factory=lambda: SimDisk().mount())
    max_offset: int = 0
    taken_at: float = -inf
    taken_to: int = -1

    async def run(self, each_s: float) -> None:
        """One takes so long; ten seconds later comes the next."""
        while True:
            begun_at = trio.current_time()
            await trio.sleep(each_s)
            self.taken_at, self.taken_to = begun_at, self.max_offset
            await trio.sleep(10)


@pytest.mark.parametrize("each_s", [0.1, 6.0, 25.0])
async def test_tables_that_take_long_to_come_are_as_late_as_the_log_all_the_while(
    each_s: float, virtual_clock: VirtualClock
) -> None:
    """They were behind it for a while of each round, and said so in a file each time."""
    rounds = Rounds()
    tables = TakenTables("/store", rounds, None, rounds, is_slave=True)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rounds.run, each_s)
        await trio.sleep(60)
        for _ in range(300):
            await trio.sleep(1)
            rounds.max_offset += 1
            assert (tables.origin.is_in_step, tables.origin.log_end) == (True, rounds.max_offset)
        nursery.cancel_scope.cancel()
    await trio.sleep(20 + 3 * each_s)
    rounds.max_offset += 1
    assert (tables.origin.is_in_step, tables.origin.log_end) == (False, rounds.max_offset - 1)


@pytest.mark.parametrize(
    ("lacks_some", "found", "log_end"),
    [
        (False, TablesOrigin(log_end=-1), 500),
        (True, TablesOrigin(log_end=-1), 0),
        (True, TablesOrigin(log_end=70), 70),
        (True, TablesOrigin(log_end=70, is_in_step=True), 500),
    ],
    ids=["never said", "lacks some, and what said since when is gone", "says since when", "in step"],
)
async def test_tables_of_which_some_were_lacking_are_not_as_late_as_the_log_at_a_start(
    virtual_clock: VirtualClock, found: TablesOrigin, log_end: int, *, lacks_some: bool
) -> None:
    """They would outdo those of a slave that has all of them."""
    slave = Rounds(max_offset=500)
    slave.disk.makedirs("/store")
    if lacks_some:
        StoreNote(slave.disk, f"/store/{TABLES_NOT_TAKEN}").make()
    metadata = SimpleNamespace(found=found, had_topics=True, files=SimpleNamespace(lost={}))
    tables = TakenTables("/store", slave, metadata, slave, is_slave=True)  # type: ignore[arg-type]
    await tables.begin(were_lost=False)
    assert tables.origin.log_end == log_end
