"""A slave that never had its master's tables: it knows that after a restart, and as a master, too."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from errno import ENOSPC
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.taken_tables import TakenTables
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.cli.pages import Page
from rmqha.cli.verdict import Verdict, judge
from rmqha.codec.route import PERM_READ
from rmqha.errors import StoreWriteError
from rmqha.store.store_note import StoreNote
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

MASTER = {"brokerRole": "ASYNC_MASTER"}
NOTE = "/store/tablesNotTaken"
NOBODY = {"masterAddress": "10.0.0.1:10999"}
NEVER_HAD = "a slave's that had not taken over all of its group's topics, groups and consumers' offsets"


class Group:
    def __init__(self) -> None:
        net = SimNet()
        self.master = Machine(net, "10.0.0.1", MASTER)
        self.lacking = Machine(net, "10.0.0.2", SLAVE)
        self.whole = Machine(net, "10.0.0.3", SLAVE | {"brokerId": "2"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[BrokerController]:
        """The master, at which a group has consumed; both slaves have its log, and one its tables."""
        async with self.master.broker() as master, self.whole.broker(), self.lacking.broker(**NOBODY):
            async with self.master.client() as client:
                for _ in range(5):
                    await ask(client, send_request(b"x"))
            master.offsets.commit_offset("group", "t", 0, offset=3)
            await trio.sleep(30)
            yield master


async def verdict_of(machine: Machine) -> Verdict:
    async with machine.client() as client:
        return judge(await status(client))


def lose_config(machine: Machine) -> None:
    for name in [name for name in machine.disk.files if "/config/" in name]:
        del machine.disk.files[name]


async def lack_of(machine: Machine) -> object:
    async with machine.client() as client:
        return (await status(client))["tables_not_taken"]


@pytest.fixture
def group() -> Group:
    return Group()


async def test_a_store_whose_slave_never_had_tables_says_so_as_a_master(
    group: Group, autojump_clock: MockClock
) -> None:
    async with group.running():
        assert not (await verdict_of(group.lacking)).in_sync
    async with group.lacking.broker(**NOBODY):
        await trio.sleep(30)
    with capture_logs() as logs:
        async with group.lacking.broker(**MASTER, brokerId="0", haMasterAddress="", masterAddress=""):
            verdict = await verdict_of(group.lacking)
    assert verdict.level == "degraded"
    (reason,) = [one for one in verdict.reasons if NEVER_HAD in one]
    assert reason.endswith(Page.LOST_TABLES)
    assert "tables.never_had" in [line["event"] for line in logs]
    async with group.lacking.broker(**MASTER, brokerId="0", haMasterAddress="", masterAddress=""):
        assert (await verdict_of(group.lacking)).level == "ok", "its operator has decided"


async def test_as_a_master_it_asks_its_peers_for_what_it_never_had(group: Group, autojump_clock: MockClock) -> None:
    async with group.running():
        pass
    master = MASTER | {"brokerId": "0", "haMasterAddress": "", "masterAddress": "", "haPeers": "10.0.0.3:10912"}
    async with group.lacking.broker(**master):
        await trio.sleep(90)
        assert "10.0.0.3:10912 of haPeers have yet to tell" in str((await verdict_of(group.lacking)).reasons)
    async with group.lacking.broker(**master) as broker, group.whole.broker():
        await trio.sleep(60)
        assert broker.offsets.query_offset("group", "t", 0) == 3


async def test_a_slave_that_has_its_masters_tables_notes_nothing(group: Group, autojump_clock: MockClock) -> None:
    async with group.running():
        assert (await verdict_of(group.whole)).in_sync
        assert await lack_of(group.whole) is None
        assert "as a master it might begin with what its log tells" in str(await lack_of(group.lacking))
    async with group.master.broker(), group.lacking.broker():
        await trio.sleep(30)
        assert (await verdict_of(group.lacking)).in_sync
        assert await lack_of(group.lacking) is None
    for machine in (group.whole, group.lacking):
        assert not machine.disk.mount().exists(NOTE)
    async with group.lacking.broker(**MASTER, brokerId="0", haMasterAddress="", masterAddress="") as broker:
        assert (await verdict_of(group.lacking)).level == "ok"
        assert broker.offsets.query_offset("group", "t", 0) == 3


async def test_an_empty_store_of_a_slave_lacks_nothing_as_a_master(group: Group, autojump_clock: MockClock) -> None:
    async with group.lacking.broker(**NOBODY):
        await trio.sleep(30)
    async with group.lacking.broker(**MASTER, brokerId="0", haMasterAddress="", masterAddress=""):
        assert (await verdict_of(group.lacking)).level == "ok"
    assert not group.lacking.disk.mount().exists(NOTE)


async def test_a_slave_of_a_slave_that_lost_its_tables_keeps_its_own(group: Group, autojump_clock: MockClock) -> None:
    """It took those that the log tells of for its master's: what operators had decided was gone from all that live."""
    async with group.running() as master:
        master.topics.update_topic_config(TopicConfig("made", 3, 3, PERM_READ))
        master.topics.delete_topic_config("t", {0: 5}, before=master.store.max_offset)
        master.groups.update(SubscriptionGroupConfig("forbidden", consume_enable=False))
        await trio.sleep(30)
    chained = {"masterAddress": "10.0.0.2:10911", "haMasterAddress": "10.0.0.2:10912"}
    async with group.lacking.broker(**NOBODY), group.whole.broker(**chained) as slave:
        for _ in range(2):
            await trio.sleep(90)
            made, forbidden = slave.topics.select("made"), slave.groups.select("forbidden")
            assert made == TopicConfig("made", 3, 3, PERM_READ)
            assert forbidden is not None
            assert not forbidden.consume_enable
            assert slave.topics.select("t") is None
            assert slave.offsets.query_offset("group", "t", 0) == 3
        assert not (await verdict_of(group.whole)).in_sync
    async with group.master.broker(), group.lacking.broker(), group.whole.broker(**chained) as slave:
        await trio.sleep(60)
        assert await lack_of(group.lacking) is None
        assert await lack_of(group.whole) is None


async def test_what_a_master_lost_stays_lost_where_it_was_a_slave_of_nobody_meanwhile(
    group: Group, autojump_clock: MockClock
) -> None:
    """A start as a slave, whose master was away, forgot it: as a master again it was well, and its peer's were gone."""
    async with group.running() as master:
        master.groups.update(SubscriptionGroupConfig("forbidden", consume_enable=False))
        await trio.sleep(30)
    lose_config(group.master)
    alone = {"haPeers": "10.0.0.3:10912"}
    async with group.master.broker(**alone):
        await trio.sleep(30)
    slave = SLAVE | {"haMasterAddress": "10.0.0.3:10912", "masterAddress": "10.0.0.3:10911", "haPeers": ""}
    async with group.master.broker(**slave):
        await trio.sleep(30)
        assert not (await verdict_of(group.master)).in_sync
    async with group.master.broker(**alone) as broker:
        await trio.sleep(30)
        assert (await verdict_of(group.master)).level == "degraded"
        async with group.whole.broker() as other:
            await trio.sleep(90)
            for one in (broker, other):
                forbidden = one.groups.select("forbidden")
                assert forbidden is not None
                assert not forbidden.consume_enable
                assert one.offsets.query_offset("group", "t", 0) == 3


async def test_notes_stay_where_a_slave_cannot_note_that_it_lacks_tables(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """What says so already is all there is."""

    async def no_room(_: StoreNote) -> None:
        raise StoreWriteError(OSError(ENOSPC, "no room"), operation="create", path=NOTE)

    machine = Machine(SimNet(), "10.0.0.2", SLAVE | NOBODY)
    disk = machine.disk.mount()
    disk.makedirs("/store")
    disk.create("/store/tablesLost", 0).close()
    monkeypatch.setattr(StoreNote, "make_in_thread", no_room)
    async with machine.broker():
        await trio.sleep(5)
    assert machine.disk.mount().exists("/store/tablesLost")


async def test_the_note_stays_until_what_was_taken_is_saved(
    group: Group, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group.running():
        pass
    with monkeypatch.context() as patch:
        patch.setattr(MetadataService, "trouble", "config/*.json cannot be saved at present")
        async with group.master.broker(), group.lacking.broker() as slave:
            await trio.sleep(30)
            assert slave.offsets.query_offset("group", "t", 0) == 3
            assert await lack_of(group.lacking)
    async with group.master.broker(), group.lacking.broker():
        await trio.sleep(30)
        assert await lack_of(group.lacking) is None


async def test_a_slave_that_lost_one_table_alone_notes_that(group: Group, autojump_clock: MockClock) -> None:
    async with group.running():
        pass
    for name in [name for name in group.whole.disk.files if "/config/consumerOffset.json" in name]:
        del group.whole.disk.files[name]
    async with group.whole.broker(**NOBODY):
        await trio.sleep(5)
        assert await lack_of(group.whole)


@pytest.mark.parametrize("role", [MASTER | {"brokerId": "0", "haMasterAddress": "", "masterAddress": ""}, NOBODY])
async def test_what_was_made_since_a_loss_is_nothing_special_where_nobody_is_asked(
    group: Group, role: dict[str, str], autojump_clock: MockClock
) -> None:
    """Deletions of these topics that peers know of would not be taken any more."""
    async with group.whole.broker(**NOBODY) as broker:
        for table in (broker.topics, broker.offsets, broker.groups):
            table.made_since.are_awaited = lambda: True
            table.made_since.note("made")
            table.dirty = True
        await trio.sleep(30)
    async with group.whole.broker(**role) as broker:
        await trio.sleep(30)
        for table in (broker.topics, broker.offsets, broker.groups):
            assert "made" not in table.made_since


async def test_that_nothing_can_be_noted_is_logged_once(
    group: Group, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_room(_: StoreNote) -> None:
        raise StoreWriteError(OSError(ENOSPC, "no room"), operation="create", path=NOTE)

    async with group.running():
        pass
    monkeypatch.setattr(StoreNote, "make_in_thread", no_room)
    with capture_logs() as logs:
        async with group.master.broker(), group.whole.broker(**NOBODY):
            await trio.sleep(300)
    assert [line["event"] for line in logs].count("tables.not_noted") == 1


@pytest.mark.parametrize("also_whole", [False, True])
async def test_a_master_that_has_its_tables_from_a_slave_that_lacks_some_says_so(
    group: Group, also_whole: bool, autojump_clock: MockClock
) -> None:
    """It took them for its group's, was well, and the slave's note went: what operators had decided was gone."""
    async with group.running():
        pass
    third = group.lacking
    async with group.master.broker() as master, group.whole.broker(**NOBODY), third.broker():
        master.groups.update(SubscriptionGroupConfig("forbidden", consume_enable=False))
        await trio.sleep(90)
    group.master.disk.files.clear()
    peers = {"haPeers": "10.0.0.3:10912" + (",10.0.0.2:10912" if also_whole else "")}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(group.whole.broker())
        if also_whole:
            await stack.enter_async_context(third.broker())
        broker = await stack.enter_async_context(group.master.broker(**peers))
        await trio.sleep(90)
        verdict, forbidden = await verdict_of(group.master), broker.groups.select("forbidden")
        if not also_whole:
            assert "10.0.0.3:10911 has not had all of its master's" in str(verdict.reasons)
            assert verdict.level == "degraded"
            return
        assert verdict.level == "ok"
        assert forbidden is not None
        assert not forbidden.consume_enable


async def test_a_slave_that_waited_for_its_masters_lost_tables_gives_all_of_them_back(
    group: Group, autojump_clock: MockClock
) -> None:
    """It notes that its master lacks some; what it has itself is all of its group's."""
    async with group.running():
        pass
    async with group.whole.broker():
        lose_config(group.master)
        async with group.master.broker(haPeers="10.0.0.3:10912,10.0.0.2:10912"):
            await trio.sleep(120)
            assert await lack_of(group.whole), "another peer has yet to tell"
        lose_config(group.master)
        async with group.master.broker(haPeers="10.0.0.3:10912") as broker:
            await trio.sleep(90)
            assert broker.offsets.query_offset("group", "t", 0) == 3
            assert "has not had all of its master's" not in str((await verdict_of(group.master)).reasons)
            assert await lack_of(group.whole) is None


async def test_so_does_one_that_was_started_again_meanwhile(group: Group, autojump_clock: MockClock) -> None:
    """It had forgotten why it said so: a peer that is gone was taken out of haPeers, and the master was degraded."""
    async with group.running():
        pass
    lose_config(group.master)
    async with group.master.broker(haPeers="10.0.0.3:10912,10.0.0.2:10912"), group.whole.broker():
        await trio.sleep(120)
        assert await lack_of(group.whole)
    lose_config(group.master)
    async with group.whole.broker(), group.master.broker(haPeers="10.0.0.3:10912"):
        await trio.sleep(90)
        assert "has not had all of its master's" not in str((await verdict_of(group.master)).reasons)
        assert await lack_of(group.whole) is None
    assert not [name for name in group.whole.disk.files if name.endswith("TablesLost")]


async def test_short_times_without_the_masters_tables_do_not_add_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """What was missed came with the next round: only after a whole minute tables are of before."""
    disk = SimDisk(latency_s=(0, 0)).mount()
    disk.makedirs("/store")
    taken = SimpleNamespace(taken_at=-inf, failure="", are_its_lost=False, rounds=0)
    tables = TakenTables("/store", SimpleNamespace(disk=disk), None, taken, is_slave=True)  # type: ignore[arg-type]
    nursery.start_soon(tables.run, lambda: True)
    for _ in range(3):
        for taken.failure in ("the master is busy", ""):
            await trio.sleep(40)
            assert not tables.lack
    taken.failure = "the master is busy"
    await trio.sleep(70)
    assert tables.lack
    nursery.cancel_scope.cancel()


async def test_a_line_that_breaks_again_and_again_makes_no_slave_s_tables_newer(
    group: Group, autojump_clock: MockClock
) -> None:
    """Each break of the HA connection began its minute anew: tables of days ago were promoted."""
    async with group.running():
        pass
    async with group.master.broker(), group.whole.broker(**NOBODY) as slave:
        client = replication_of(slave).ha_client
        assert client is not None
        for _ in range(4):
            await trio.sleep(25)
            assert client.is_joined
            client.update_master_address("10.0.0.1", 10999)
            await trio.sleep(10)
            client.update_master_address("10.0.0.1", 10912)
        assert await lack_of(group.whole)


@pytest.mark.parametrize("is_slave_first", [False, True])
@pytest.mark.parametrize("is_apart", [False, True])
async def test_a_new_pair_lacks_nothing(
    group: Group, is_slave_first: bool, is_apart: bool, autojump_clock: MockClock
) -> None:
    """A slave that was there before its master said that it has had no table, and the master was degraded for good."""
    master = {"haPeers": "10.0.0.3:10912"}
    async with AsyncExitStack() as stack:
        if is_slave_first:
            await stack.enter_async_context(group.whole.broker())
            await trio.sleep(30 if is_apart else 0)
            await stack.enter_async_context(group.master.broker(**master))
        else:
            await stack.enter_async_context(group.master.broker(**master))
            await trio.sleep(90 if is_apart else 0)
            async with group.master.client() as client:
                await client.invoke(send_request(b"x"), timeout_s=30)
            await stack.enter_async_context(group.whole.broker())
        await trio.sleep(30)
        verdicts = [await verdict_of(group.master), await verdict_of(group.whole)]
        assert [(verdict.level, verdict.in_sync) for verdict in verdicts] == [("ok", True)] * 2, verdicts


def of_a_slave(*, failure: str = "") -> TakenTables:
    """Whose store is on a disk of its own, with a table of topics."""
    mount = SimDisk(latency_s=(0, 0)).mount()
    mount.makedirs("/store")
    store: Any = SimpleNamespace(disk=mount, max_offset=100)
    metadata: Any = SimpleNamespace(had_topics=True, files=SimpleNamespace(lost={}), found=TablesOrigin())
    taken: Any = SimpleNamespace(
        failure=failure, are_its_lost=False, rounds=0, taken_at=-inf, taken_to=0, origin=TablesOrigin()
    )
    return TakenTables("/store", store, metadata, taken, is_slave=True)


@pytest.mark.parametrize("is_joined", [True, False])
async def test_tables_that_cannot_be_had_are_missed_where_the_log_goes_on_without_them(
    nursery: trio.Nursery, autojump_clock: MockClock, *, is_joined: bool
) -> None:
    """A slave whose master is away has all that this one had."""
    taken_tables = of_a_slave(failure="nothing answers")
    nursery.start_soon(taken_tables.run, lambda: is_joined)
    await trio.sleep(55)
    assert not taken_tables.lack
    await trio.sleep(10)
    assert bool(taken_tables.lack) == is_joined
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("were_lost", [True, False])
async def test_a_slave_that_notes_itself_what_was_lost_needs_no_other_note(*, were_lost: bool) -> None:
    """The other one stayed when it had its master's tables, and counted at each start."""
    taken_tables = of_a_slave()
    assert await taken_tables.begin(were_lost=were_lost)
    assert bool(taken_tables.lack) == were_lost
