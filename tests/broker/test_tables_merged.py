"""What three brokers know is merged: it does not matter who is asked first, who comes late, and who tells what he had.

Each case was found by an attacker, on real brokers or simulated machines, where one table replaced another.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from copy import deepcopy

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.master_link import MasterLink
from rmqha.broker.slave_synchronize import Merged, SlaveSynchronize
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.cli.verdict import judge
from rmqha.codec import java_json
from rmqha.codec.admin_headers import TopicRequestHeader
from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_READ
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from tests.broker.machines import Machine, ask, pull_request, replication_of, send_request
from tests.broker.producers import seen
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_clock import VirtualClock, WallClock
from tests.sim.sim_disk import Inode, SimDisk
from tests.sim.sim_net import SimNet

MASTER = {"brokerRole": "ASYNC_MASTER"}
OTHER_SLAVE = SLAVE | {"brokerId": "2"}
ONE_PEER = {"haPeers": "10.0.0.2:10912"}
PEERS = {"haPeers": "10.0.0.2:10912,10.0.0.3:10912"}


def three_machines() -> tuple[Machine, Machine, Machine]:
    net = SimNet()
    return Machine(net, "10.0.0.1"), Machine(net, "10.0.0.2"), Machine(net, "10.0.0.3")


async def fill(machine: Machine, count: int, *, topic: str = "t", queues: int = 1) -> None:
    async with machine.client() as client:
        for number in range(count):
            sent = await ask(client, send_request(b"%d" % number, topic=topic, queue_id=number % queues))
            assert sent.code == 0, sent.remark


def decide(broker: BrokerController) -> None:
    """What an operator did, and a group."""
    broker.offsets.commit_offset("g", "t", 0, offset=5)
    broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=7, consume_enable=False))
    broker.topics.update_topic_config(TopicConfig("made", 3, 3))
    broker.topics.update_topic_config(TopicConfig("t", 4, 4, PERM_READ))


async def decided_on(master: Machine, broker: BrokerController) -> None:
    """Slaves have that, too, and the eight messages of before."""
    await trio.sleep(10)
    await fill(master, 8)
    decide(broker)
    await trio.sleep(30)


def decided(broker: BrokerController) -> tuple[int, bool, bool, int | None]:
    """Queues of the topic, what is forbidden, and where the group is."""
    made, topic, group = broker.topics.select("made"), broker.topics.select("t"), broker.groups.select("g")
    is_read_only = topic is not None and topic.perm == PERM_READ
    is_forbidden = group is not None and not group.consume_enable
    return made.queue_nums if made else 0, is_read_only, is_forbidden, broker.offsets.query_offset("g", "t", 0)


DECIDED = (3, True, True, 5)


def lose(machine: Machine, what: str = "config") -> None:
    for name in [name for name in machine.disk.files if what in name]:
        del machine.disk.files[name]


def put_back(machine: Machine, copy: Mapping[str, Inode]) -> None:
    machine.disk = SimDisk(now_ms=WallClock())
    machine.disk.files.update(deepcopy(copy))


@pytest.mark.parametrize("lost", ["config", "the store", "the log's end"])
async def test_what_an_operator_changes_stays_when_a_longer_peer_comes_minutes_later(
    lost: str, virtual_clock: VirtualClock
) -> None:
    master, first, second = three_machines()
    async with master.broker(**MASTER) as broker, second.broker(**OTHER_SLAVE):
        async with first.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 8)
            broker.offsets.commit_offset("g", "t", 0, offset=8)
            broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=7))
            await trio.sleep(30)
        copy = deepcopy(master.disk.files)
        await fill(master, 4)
        await trio.sleep(30)
    put_back(master, {} if lost == "the store" else copy)
    if lost == "config":
        lose(master)
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **PEERS) as broker:
        await trio.sleep(60)
        decide(broker)
        await trio.sleep(120)
        async with second.broker(**OTHER_SLAVE) as longest:
            await trio.sleep(90)
            assert broker.store.next_queue_offset("t", 0) == 12
            assert [decided(broker), decided(slave), decided(longest)] == [DECIDED] * 3


@pytest.mark.parametrize("other", ["new", "without tables"])
@pytest.mark.parametrize("after_s", [20, 200])
async def test_a_slave_that_had_its_tables_from_this_master_tells_nothing(
    other: str, after_s: float, virtual_clock: VirtualClock
) -> None:
    """It took the lost tables over after a minute, told them, and the slave that had the group's lost them."""
    master, first, second = three_machines()
    async with master.broker(**MASTER) as broker, second.broker(**OTHER_SLAVE), first.broker(**SLAVE):
        await decided_on(master, broker)
    lose(master)
    lose(first, "/" if other == "new" else "config")
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **PEERS) as broker:
        await trio.sleep(after_s)
        async with second.broker(**OTHER_SLAVE) as late:
            await trio.sleep(200)
            assert [decided(broker), decided(slave), decided(late)] == [DECIDED] * 3
            assert "/store/tablesLost" not in master.disk.files


async def test_where_a_known_group_is_in_a_queue_that_it_reads_since_an_older_copy(virtual_clock: VirtualClock) -> None:
    """Without an offset there it began at the end, where the first messages had expired."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE):
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            await fill(master, 8)
            await fill(master, 10, topic="other")
            broker.offsets.commit_offset("g", "t", 0, offset=5)
            await trio.sleep(20)
        copy = deepcopy(master.disk.files)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            broker.offsets.commit_offset("g", "other", 0, offset=6)
            await fill(master, 3)
            await trio.sleep(30)
        put_back(master, copy)
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(90)
            assert broker.offsets.query_offset("g", "other", 0) == 6


@pytest.mark.parametrize("apart_s", [0, 3])
async def test_offsets_beyond_the_log_that_two_late_peers_tell_are_cut(
    apart_s: float, virtual_clock: VirtualClock
) -> None:
    """Those of the second were not: the next messages were passed over."""
    master, first, second = three_machines()
    async with master.broker(**MASTER) as broker, second.broker(**OTHER_SLAVE), first.broker(**SLAVE):
        await decided_on(master, broker)
    async with first.broker(**SLAVE) as one, second.broker(**OTHER_SLAVE) as another:
        for slave in (one, another):
            slave.offsets.commit_offset("g", "t", 0, offset=15)
    lose(master)
    async with master.broker(**MASTER, **PEERS) as broker:
        await trio.sleep(60)
        async with first.broker(**SLAVE):
            await trio.sleep(apart_s)
            async with second.broker(**OTHER_SLAVE):
                await trio.sleep(120)
                assert broker.offsets.query_offset("g", "t", 0) == broker.store.next_queue_offset("t", 0) == 8


@pytest.mark.parametrize("peers", ["10.0.0.2:10912,10.0.0.3:10912", "10.0.0.3:10912,10.0.0.2:10912"])
@pytest.mark.parametrize("is_second_start", [False, True])
async def test_which_peer_is_named_first_does_not_matter(
    peers: str, is_second_start: bool, virtual_clock: VirtualClock
) -> None:
    """One was away for long: its old tables were taken, and the other one, which was there, was not asked."""
    master, old, current = three_machines()
    async with master.broker(**MASTER) as broker, current.broker(**OTHER_SLAVE):
        async with old.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 8)
            broker.topics.update_topic_config(TopicConfig("gone", 4, 4))
            broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
            await trio.sleep(30)
        await fill(master, 4)
        decide(broker)
        broker.topics.delete_topic_config("gone", {}, before=broker.store.max_offset)
        await trio.sleep(30)
    lose(master)
    settings = MASTER | {"haPeers": peers}
    if is_second_start:
        async with master.broker(**settings):
            await trio.sleep(30)
    async with old.broker(**SLAVE) as one, current.broker(**OTHER_SLAVE) as other, master.broker(**settings) as broker:
        await trio.sleep(200)
        assert [decided(broker), decided(one), decided(other)] == [DECIDED] * 3
        assert [each.topics.select("gone") for each in (broker, one, other)] == [None] * 3


async def test_a_peer_of_rocketmqs_that_fails_once_has_told_nothing(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked again, and its tables were replaced by what was left here."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    lose(master)
    ask_range, merge, failures = MasterLink._ask_range, SlaveSynchronize.merge, ["timeout"]

    async def as_rocketmq(link: MasterLink, address: str, ha_port: int, *, fields: dict[str, str]) -> LogRange | None:
        there = await ask_range(link, address, ha_port, fields=fields)
        return there and there._replace(checks_reports=False)

    async def fails_once(tables: SlaveSynchronize, address: str, **how: object) -> Merged:
        return Merged(failures.pop()) if failures else await merge(tables, address, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(MasterLink, "_ask_range", as_rocketmq)
    monkeypatch.setattr(SlaveSynchronize, "merge", fails_once)
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(200)
        assert [decided(broker), decided(slave)] == [DECIDED] * 2


async def test_tables_that_are_awaited_are_told_at_each_start_until_all_peers_have_told(
    virtual_clock: VirtualClock,
) -> None:
    """From the second start on the status was "ok"."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    lose(master)
    for _ in range(2):
        async with master.broker(**MASTER, **ONE_PEER), master.client() as client:
            await trio.sleep(90)
            verdict = judge(await status(client))
            assert verdict.level == "degraded"
            assert any("10.0.0.2:10912 of haPeers have yet to tell" in reason for reason in verdict.reasons)
    async with first.broker(**SLAVE), master.broker(**MASTER, **ONE_PEER), master.client() as client:
        await trio.sleep(90)
        assert judge(await status(client)).level == "ok"


async def test_that_tables_are_taken_back_is_forgotten_by_who_follows_meanwhile(virtual_clock: VirtualClock) -> None:
    """Promoted again weeks later it took the slave's tables for its own, and each reset was undone."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER):
        await trio.sleep(10)
        await fill(master, 8)
    master.disk = SimDisk(now_ms=WallClock())
    async with master.broker(**MASTER, **ONE_PEER):
        await trio.sleep(10)
    assert "/store/takesTablesBack" in master.disk.files
    follows = SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    async with first.broker(**MASTER), master.broker(**follows):
        await trio.sleep(60)
        assert "/store/takesTablesBack" not in master.disk.files


@pytest.mark.parametrize("name", ["subscriptionGroup", "consumerOffset"])
@pytest.mark.parametrize("is_second_start", [False, True])
async def test_one_table_alone_that_is_gone_is_missed_and_had_from_the_peer(
    is_second_start: bool, name: str, virtual_clock: VirtualClock
) -> None:
    """Nobody told; the slave took over within seconds that no group is forbidden anything."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await decided_on(master, broker)
    lose(master, name)
    copy = deepcopy(master.disk.files)
    async with master.broker(**MASTER), master.client() as client:
        verdict = judge(await status(client))
        assert any(f"{name}.json was missing when this broker started" in reason for reason in verdict.reasons)
    put_back(master, copy)
    if is_second_start:
        async with master.broker(**MASTER, **ONE_PEER):
            await trio.sleep(30)
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(90)
        assert [decided(broker), decided(slave)] == [DECIDED] * 2
        assert "/store/tablesOlder" not in master.disk.files


async def test_a_group_that_was_forgotten_before_an_older_copy_stays_so(virtual_clock: VirtualClock) -> None:
    """Its old place came back once another group had been made since: messages were passed over."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE) as slave:
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            await fill(master, 8)
            broker.offsets.commit_offset("g", "t", 0, offset=5)
            await trio.sleep(30)
            assert slave.offsets.query_offset("g", "t", 0) == 5
            broker.groups.delete("g")
            await broker.offsets.remove_offset_in_turns("g")
            await trio.sleep(60)
            assert slave.offsets.query_offset("g", "t", 0) is None
        copy = deepcopy(master.disk.files)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            broker.groups.update(SubscriptionGroupConfig("since", retry_max_times=7))
            await fill(master, 1, topic="other")
            await trio.sleep(30)
        put_back(master, copy)
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(60)
            assert broker.offsets.query_offset("g", "t", 0) is None


async def test_what_a_slave_has_learned_from_the_log_counts_for_nothing(virtual_clock: VirtualClock) -> None:
    """Each queue was a change: with one message of a lost tail its older table replaced what its master had saved."""
    master, first, _ = three_machines()
    never = {"flushIntervalCommitLog": "600000", "flushCommitLogThoroughInterval": "600000"}
    async with first.broker(**SLAVE):
        with trio.CancelScope() as life:
            async with master.broker(**MASTER, **never) as broker:
                await trio.sleep(10)
                await fill(master, 8)
                await broker.store.flush_now(broker.store.max_offset)
                await trio.sleep(11)
                broker.topics.update_topic_config(TopicConfig("t", 4, 4, PERM_READ))
                broker.topics.update_topic_config(TopicConfig("new", 8, 8))
                await fill(master, 8, topic="new", queues=4)
                await trio.sleep(0.1)
                await broker.metadata.save()
                life.cancel()
                await trio.sleep_forever()
        master.disk.power_cut()
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(60)
            assert broker.topics.select("t") == TopicConfig("t", 4, 4, PERM_READ)
            assert broker.topics.select("new") == TopicConfig("new", 8, 8)


async def test_what_an_operator_deletes_while_tables_are_awaited_stays_deleted(virtual_clock: VirtualClock) -> None:
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await trio.sleep(10)
        await fill(master, 8)
        await fill(master, 8, topic="gone")
        decide(broker)
        await trio.sleep(30)
    lose(master)
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(60)
        broker.topics.delete_topic_config("gone", {0: 8}, before=broker.store.max_offset)
        broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=2))
        async with first.broker(**SLAVE) as slave:
            await trio.sleep(90)
            for each in (broker, slave):
                assert each.topics.select("gone") is None
                group = each.groups.select("g")
                assert group is not None
                assert group.retry_max_times == 2
            assert replication_of(broker).catch_up.settled() == [MasterAddress("10.0.0.2", 10912)]


async def test_a_topic_that_is_new_here_keeps_its_queues_though_a_peer_has_learned_of_some(
    virtual_clock: VirtualClock,
) -> None:
    """Four queues that clients were told became the one that the peer's log had shown."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await trio.sleep(10)
        await fill(master, 8)
        await trio.sleep(30)
    lose(master)
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(70)
        await fill(master, 3, topic="since")
        queue_nums = _queues_of(broker, "since")
        assert queue_nums > 1
        async with first.broker(**SLAVE) as slave:
            await trio.sleep(120)
            assert [_queues_of(each, "since") for each in (broker, slave)] == [queue_nums] * 2


def _queues_of(broker: BrokerController, topic: str) -> int:
    config = broker.topics.select(topic)
    return config.write_queue_nums if config else 0


@pytest.mark.parametrize("lost", ["the store", "the log's end"])
async def test_a_topic_is_deleted_whole_at_a_master_that_waits_for_another_peer(
    lost: str, virtual_clock: VirtualClock
) -> None:
    """Once all of it is here: the topic was back, with what came after the deletion."""
    master, first, second = three_machines()
    role = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    async with first.broker(**SLAVE), second.broker(**OTHER_SLAVE):
        async with master.broker(**role):
            await trio.sleep(10)
            await fill(master, 4, topic="gone")
            await trio.sleep(20)
        copy = deepcopy(master.disk.files)
        async with master.broker(**role):
            await trio.sleep(10)
            await fill(master, 6, topic="gone")
            await trio.sleep(20)
    put_back(master, {} if lost == "the store" else copy)
    settings = role | PEERS | {"haCatchUpAtStart": "require"}
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=encode_header(TopicRequestHeader("gone")))
    async with first.broker(**SLAVE) as slave:
        async with trio.open_nursery() as nursery:
            broker = master.controller(**settings)
            nursery.start_soon(broker.run)
            await trio.sleep(40)
            assert replication_of(broker).catch_up.refusal
            async with master.client() as client:
                early = await ask(client, delete)
            assert (early.code, "no topic is deleted at present" in (early.remark or "")) == (1, True)
            async with second.broker(**OTHER_SLAVE), master.client() as client:
                await trio.sleep(60)
                assert (await ask(client, delete)).code == 0
                broker.stop()
                await trio.sleep(5)
        async with second.broker(**OTHER_SLAVE), master.broker(**settings) as broker:
            await trio.sleep(30)
            for each in (broker, slave):
                assert each.topics.select("gone") is None
                assert await seen(each, topic="gone") == []


@pytest.mark.parametrize("mode", ["require", "try"])
async def test_a_topic_of_the_lost_end_is_deleted_only_by_who_goes_on_without_it(
    mode: str, virtual_clock: VirtualClock
) -> None:
    """Who still asks its peers would have it back with what they hold; who serves without them waits for nothing."""
    master, first, second = three_machines()
    role = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    async with first.broker(**SLAVE), second.broker(**OTHER_SLAVE):
        async with master.broker(**role):
            await trio.sleep(10)
            await fill(master, 2, topic="kept")
            await trio.sleep(20)
        copy = deepcopy(master.disk.files)
        async with master.broker(**role):
            await trio.sleep(10)
            await fill(master, 2, topic="gone")
    put_back(master, copy)
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=encode_header(TopicRequestHeader("gone")))
    settings = role | PEERS | {"haCatchUpAtStart": mode}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(master.controller(**settings).run)
        await trio.sleep(60)
        async with master.client() as client:
            answer = await ask(client, delete)
        nursery.cancel_scope.cancel()
    assert (answer.code == 0) is (mode == "try")
    assert ("no topic is deleted at present" in (answer.remark or "")) is (mode == "require")


async def test_a_place_beyond_the_log_of_a_late_peer_is_none_though_that_log_goes_on_here(
    virtual_clock: VirtualClock,
) -> None:
    """What was sent since took those places, and the group passed over it."""
    master, first, _ = three_machines()
    async with master.broker(**MASTER) as broker:
        async with first.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 8)
            await trio.sleep(30)
            copy = deepcopy(master.disk.files)
        log = {name: inode for name, inode in deepcopy(first.disk.files).items() if "/config/" not in name}
        async with first.broker(**SLAVE):
            await trio.sleep(5)
            await fill(master, 7)
            broker.offsets.commit_offset("g", "t", 0, offset=15)
            await trio.sleep(30)
    tables = {name: inode for name, inode in first.disk.files.items() if "/config/" in name}
    put_back(first, log | tables)
    put_back(master, {name: inode for name, inode in copy.items() if "/config/" not in name})
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(70)
        await fill(master, 20)
        async with first.broker(**SLAVE):
            await trio.sleep(90)
            assert broker.offsets.query_offset("g", "t", 0) == 8


async def test_an_older_copy_whose_one_question_fails_asks_again(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log came without; nobody asked the other slave, either, and both had their newer tables replaced."""
    master, first, second = three_machines()
    async with first.broker(**SLAVE) as one, second.broker(**OTHER_SLAVE) as other:
        async with master.broker(**MASTER):
            await trio.sleep(10)
            await fill(master, 8)
            await trio.sleep(20)
        copy = deepcopy(master.disk.files)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            await fill(master, 2)
            decide(broker)
            await trio.sleep(30)
        put_back(master, copy)
        merge, failures = SlaveSynchronize.merge, ["reset"]

        async def fails_once(tables: SlaveSynchronize, address: str, **how: object) -> Merged:
            return Merged(failures.pop()) if failures else await merge(tables, address, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(SlaveSynchronize, "merge", fails_once)
        async with master.broker(**MASTER, **PEERS) as broker:
            await trio.sleep(90)
            assert [decided(each) for each in (broker, one, other)] == [DECIDED] * 3


async def test_a_topic_that_was_deleted_before_an_older_copy_and_made_again_since_is_there(
    virtual_clock: VirtualClock,
) -> None:
    master, first, _ = three_machines()
    async with first.broker(**SLAVE) as slave:
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            await fill(master, 8, topic="again")
            broker.topics.delete_topic_config("again", {0: 8}, before=broker.store.max_offset)
            await trio.sleep(20)
        copy = deepcopy(master.disk.files)
        async with master.broker(**MASTER) as broker:
            await trio.sleep(10)
            broker.topics.update_topic_config(TopicConfig("again", 8, 8, PERM_READ))
            await fill(master, 1)
            await trio.sleep(30)
        put_back(master, copy)
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(90)
            for each in (broker, slave):
                assert each.topics.select("again") == TopicConfig("again", 8, 8, PERM_READ)


async def test_a_master_that_lost_its_end_sets_its_slave_back_too(virtual_clock: VirtualClock) -> None:
    """The slave's table had come farther than its log: as a master it passed over what came to those places."""
    master, first, _ = three_machines()
    never = {"flushIntervalCommitLog": "600000", "flushCommitLogThoroughInterval": "600000"}
    async with first.broker(**SLAVE) as slave:
        with trio.CancelScope() as life:
            async with master.broker(**MASTER, **never) as broker:
                await trio.sleep(10)
                await fill(master, 8)
                await broker.store.flush_now(broker.store.max_offset)
                await trio.sleep(11)
                slave.offsets.commit_offset("g", "t", 0, offset=12)  # as its master told before its end was lost
                broker.offsets.commit_offset("g", "t", 0, offset=12)
                await broker.metadata.save()
                life.cancel()
                await trio.sleep_forever()
        master.disk.power_cut()
        await trio.sleep(5)
        async with master.broker(**MASTER) as broker:
            assert broker.offsets.query_offset("g", "t", 0) == 8
            await fill(master, 20)
            await trio.sleep(30)
            assert slave.store.max_offset == broker.store.max_offset
            assert slave.offsets.query_offset("g", "t", 0) == 8


async def test_what_was_deleted_stays_so_where_the_log_begins_earlier_than_that_of_the_peer_who_tells(
    virtual_clock: VirtualClock,
) -> None:
    """The peer's log holds nothing of the topic any more: it remembers no more than that all of it was deleted."""
    master, first, _ = three_machines()
    async with master.broker(**MASTER) as broker, first.broker(**SLAVE):
        await trio.sleep(10)
        await fill(master, 4, topic="gone", queues=2)
        async with master.client() as client:
            fields = encode_header(TopicRequestHeader("gone"))
            deleted = await ask(client, RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields))
            assert deleted.code == 0
            for _ in range(20):
                await ask(client, send_request(b"x" * 4000))
        await trio.sleep(30)
    lose(first, "commitlog/00000000000000000000")
    lose(master)
    async with first.broker(**SLAVE) as slave:
        await trio.sleep(60)
        slave.topics.expire_deleted()
        assert slave.topics.deleted.find("gone") is None
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(120)
            assert broker.topics.select("gone") is None
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(60)
            assert broker.topics.select("gone") is None
            await fill(master, 1, topic="gone")
            await seen(broker, topic="gone")
            assert broker.store.queues.range_of("gone", 0) == (2, 3)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_slave_that_lost_its_log_alone_has_the_tables_that_its_master_lost(
    is_late: bool, virtual_clock: VirtualClock
) -> None:
    """It counted as one that had told its tables, and took over what was left of them on the master.

    Where groups were in messages that it has no more is not told: they have them again.
    """
    master, first, _ = three_machines()
    async with master.broker(**MASTER) as broker, first.broker(**SLAVE):
        await decided_on(master, broker)
    lose(master)
    for directory in ("commitlog", "consumequeue", "index", "checkpoint"):
        lose(first, f"/{directory}")
    if is_late:
        async with master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(90)
            async with first.broker(**SLAVE) as slave:
                await trio.sleep(120)
                assert [decided(each) for each in (broker, slave)] == [(*DECIDED[:3], 0)] * 2
    else:
        async with first.broker(**SLAVE) as slave, master.broker(**MASTER, **ONE_PEER) as broker:
            await trio.sleep(120)
            assert [decided(each) for each in (broker, slave)] == [(*DECIDED[:3], 0)] * 2


@pytest.mark.parametrize("stale_first", [False, True])
@pytest.mark.parametrize("apart_s", [0, 20, 100])
async def test_a_master_that_went_on_in_doubt_without_its_store_hears_each_peer_that_comes(
    apart_s: float, stale_first: bool, virtual_clock: VirtualClock
) -> None:
    """The first that came had missed a deletion, and the other one, whose log was no longer, was not asked for it."""
    master, stale, current = three_machines()
    async with current.broker(**OTHER_SLAVE), master.broker(**MASTER) as broker:
        async with stale.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 8)
            await fill(master, 2, topic="gone")
            await trio.sleep(30)
        decide(broker)
        async with master.client() as client:
            fields = encode_header(TopicRequestHeader("gone"))
            deleted = await ask(client, RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields))
            assert deleted.code == 0
        await trio.sleep(30)
    lose(master, "/")
    slaves = [(stale, SLAVE), (current, OTHER_SLAVE)]
    (first, settings), (second, others) = slaves if stale_first else reversed(slaves)
    async with master.broker(**MASTER, **PEERS) as broker:
        await trio.sleep(100)
        async with first.broker(**settings) as one:
            await trio.sleep(apart_s)
            async with second.broker(**others) as other:
                await trio.sleep(200)
                assert [decided(each) for each in (broker, one, other)] == [DECIDED] * 3
                assert [each.topics.select("gone") for each in (broker, one, other)] == [None] * 3
                assert broker.metadata.lost == []


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_where_a_group_is_since_its_table_was_lost_is_no_word_of_before(
    is_restarted: bool, virtual_clock: VirtualClock
) -> None:
    """A peer knew that the group had been forgotten, long before, and took its place away: it began at the end."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await trio.sleep(10)
        await fill(master, 8)
        broker.offsets.commit_offset("g", "t", 0, offset=5, peer="10.9.9.9:1")
        await trio.sleep(15)
        await broker.offsets.remove_offset_in_turns("g")
        await trio.sleep(30)
    lose(master)
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(70)
        broker.offsets.commit_offset("g", "t", 0, offset=3, peer="10.9.9.9:1")
        if not is_restarted:
            async with first.broker(**SLAVE) as slave:
                await trio.sleep(120)
                assert [each.offsets.query_offset("g", "t", 0) for each in (broker, slave)] == [3, 3]
    if is_restarted:
        async with master.broker(**MASTER, **ONE_PEER) as broker, first.broker(**SLAVE) as slave:
            await trio.sleep(120)
            assert [each.offsets.query_offset("g", "t", 0) for each in (broker, slave)] == [3, 3]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_group_that_a_member_makes_since_its_table_was_lost_forbids_what_a_peer_knows(
    restarts: bool, virtual_clock: VirtualClock
) -> None:
    """As RocketMQ stamps nothing, the table here, with as many changes since, counted: the group consumed again."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await fill(master, 3)
        broker.groups.update(SubscriptionGroupConfig("forbidden", consume_enable=False))
        await trio.sleep(30)
    groups = "/store/config/subscriptionGroup.json"
    table = java_json.loads(first.disk.files[groups].durable)
    del table["changedGroups"]
    data, inode = java_json.dumps(table).encode(), first.disk.files[groups]
    inode.cache[:] = inode.durable[:] = data
    lose(master, "/config/subscriptionGroup.json")
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        broker.groups.find("forbidden")
        broker.groups.find("new")
        await trio.sleep(30)
    async with AsyncExitStack() as stack:
        if not restarts:
            lose(master, "/config/subscriptionGroup.json")
        broker = await stack.enter_async_context(master.broker(**MASTER, **ONE_PEER))
        if not restarts:
            broker.groups.find("forbidden")
            broker.groups.find("new")
        slave = await stack.enter_async_context(first.broker(**SLAVE))
        await trio.sleep(90)
        for one in (broker, slave):
            forbidden, new = one.groups.select("forbidden"), one.groups.select("new")
            assert forbidden is not None
            assert not forbidden.consume_enable
            assert new is not None
        assert not broker.groups.made_since.clear()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_topic_that_is_made_since_its_table_was_lost_keeps_its_queues(
    is_restarted: bool, virtual_clock: VirtualClock
) -> None:
    """A peer knew that one of its name had been deleted before: four queues became one."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await trio.sleep(10)
        await fill(master, 8)
        broker.topics.update_topic_config(TopicConfig("again", 4, 4))
        await trio.sleep(15)
        broker.topics.delete_topic_config("again", {}, before=broker.store.max_offset)
        await trio.sleep(30)
    lose(master)
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(70)
        await fill(master, 1, topic="again")
        queue_nums = _queues_of(broker, "again")
        assert queue_nums > 1
        assert "madeTopics" not in broker.topics.to_json(), "what slaves are told has to fit a frame"
        if not is_restarted:
            async with first.broker(**SLAVE) as slave:
                await trio.sleep(120)
                assert [_queues_of(each, "again") for each in (broker, slave)] == [queue_nums] * 2
    if is_restarted:
        async with master.broker(**MASTER, **ONE_PEER) as broker, first.broker(**SLAVE) as slave:
            await trio.sleep(120)
            assert [_queues_of(each, "again") for each in (broker, slave)] == [queue_nums] * 2
        assert b"madeTopics" not in master.disk.files["/store/config/topics.json"].durable


async def test_a_master_that_lost_its_end_hears_all_that_hold_it(virtual_clock: VirtualClock) -> None:
    """The first of two that were equally long had missed what came without a message."""
    master, stale, current = three_machines()
    async with current.broker(**OTHER_SLAVE):
        async with master.broker(**MASTER) as broker, stale.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master, 4)
            await trio.sleep(30)
        copy = deepcopy(master.disk.files)
        async with master.broker(**MASTER) as broker:
            async with stale.broker(**SLAVE):
                await trio.sleep(10)
                await fill(master, 4)
                await trio.sleep(30)
            decide(broker)
            await trio.sleep(30)
        put_back(master, copy)
        async with stale.broker(**SLAVE) as one:
            await trio.sleep(20)
            async with master.broker(**MASTER, **PEERS) as broker:
                await trio.sleep(120)
                assert [decided(each) for each in (broker, one)] == [DECIDED] * 2
                assert broker.metadata.lost == []
                assert "/store/tablesOlder" not in master.disk.files


@pytest.mark.parametrize("damage", ["missing", "junk"])
async def test_where_silent_queues_end_is_asked_of_peers_if_it_was_lost(
    damage: str, virtual_clock: VirtualClock
) -> None:
    """All else was there, so nobody was asked, and places were given a second time; status and doctor were content."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE) as slave, master.broker(**MASTER) as broker:
        await decided_on(master, broker)
        for each in (broker, slave):
            each.metadata.queue_ends.learn({("silent", 0): 3})
        await trio.sleep(30)
    lose(master, "/config/queueEnds.json")
    if damage == "junk":
        master.disk.files["/store/config/queueEnds.json"] = Inode(0)
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(30)
        assert any("queueEnds.json was" in lost for lost in broker.metadata.lost)
    async with first.broker(**SLAVE), master.broker(**MASTER, **ONE_PEER) as broker, master.client() as client:
        await replication_of(broker).opened.wait()
        sent = await ask(client, send_request(b"4", topic="silent"))
        assert sent.ext_fields["queueOffset"] == "3", "before anything is sent"
        await trio.sleep(60)
        assert broker.metadata.why_awaited() == ""


async def test_what_rocketmq_was_told_on_this_store_since_is_no_older_than_what_a_peer_heard_before(
    virtual_clock: VirtualClock,
) -> None:
    """An operator's word of long ago, at the slave, allowed a group again, and where another one was, was forgotten."""
    master, first, _ = three_machines()
    async with first.broker(**SLAVE), master.broker(**MASTER) as broker:
        await trio.sleep(10)
        await fill(master, 8)
        broker.groups.update(SubscriptionGroupConfig("g"))
        broker.topics.update_topic_config(TopicConfig("made", 8, 8))
        await broker.offsets.remove_offset_in_turns("g")
        await trio.sleep(30)
    await trio.sleep(60)
    disk = master.disk.mount()
    for name, stamps in (
        ("topics", "changedTopics"),
        ("subscriptionGroup", "changedGroups"),
        ("consumerOffset", "changedOffsets"),
    ):
        path = f"/store/config/{name}.json"
        table = java_json.loads(disk.read_bytes(path))
        del table[stamps]
        if name == "consumerOffset":
            table["offsetTable"]["t@g"] = {0: 5}
        else:
            table["dataVersion"] = {"timestamp": master.disk.now_ms(), "counter": table["dataVersion"]["counter"] + 1}
        if name == "topics":
            table["topicConfigTable"]["made"]["perm"] = PERM_READ
        if name == "subscriptionGroup":
            table["subscriptionGroupTable"]["g"]["consumeEnable"] = False
        disk.replace_bytes(path, java_json.dumps(table).encode())
    for _ in range(2):
        master.disk.mount().replace_bytes("/store/config/delayOffset.json", b"damaged")
        lose(master, "delayOffset.json.bak")
        async with master.broker(**MASTER, **ONE_PEER) as broker, first.broker(**SLAVE) as slave:
            await trio.sleep(60)
            for one in (broker, slave):
                made, group = one.topics.select("made"), one.groups.select("g")
                assert made is not None
                assert made.perm == PERM_READ
                assert group is not None
                assert not group.consume_enable
                assert one.offsets.query_offset("g", "t", 0) == 5


async def test_what_was_deleted_in_a_tail_that_is_gone_hides_nothing_that_came_since(
    virtual_clock: VirtualClock,
) -> None:
    """The old master's deletion, in its lost tail, hid acknowledged messages of the new one's, in the same places."""
    old, new, _ = three_machines()
    async with old.broker(**MASTER) as broker:
        async with new.broker(**SLAVE):
            await trio.sleep(10)
            await fill(old, 4)
            await trio.sleep(30)
        copy = deepcopy(old.disk.files)
        await fill(old, 2)
        await trio.sleep(5)
        broker.topics.delete_topic_config("t", {0: 6}, before=broker.store.max_offset)
        await trio.sleep(20)
    tables = {name: inode for name, inode in old.disk.files.items() if "/config/topics.json" in name}
    put_back(old, copy | tables)
    async with new.broker(**MASTER):
        await fill(new, 4)
        await trio.sleep(20)
    new.disk.mount().replace_bytes("/store/config/delayOffset.json", b"damaged")
    lose(new, "delayOffset.json.bak")
    slave_now = SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    async with new.broker(**MASTER, haPeers="10.0.0.1:10912") as broker:
        await trio.sleep(20)
        async with old.broker(**slave_now):
            await trio.sleep(60)
        async with new.client() as client:
            assert (await ask(client, pull_request(4))).code == 0
        assert [message.queue_offset for message in await seen(broker, offset=4)] == [4, 5, 6, 7]
        assert broker.store.running_flags.dispatch_error is None


@pytest.mark.parametrize("sent_before", [0, 1])
async def test_a_topic_that_was_deleted_while_it_was_empty_stays_where_it_is_used_since(
    sent_before: int, virtual_clock: VirtualClock
) -> None:
    """Newer messages were looked for in those queues alone that had some then: eight queues became three."""
    old, new, _ = three_machines()
    async with old.broker(**MASTER) as broker:
        async with new.broker(**SLAVE):
            await trio.sleep(10)
            await fill(old, 1, topic="other")
            broker.topics.update_topic_config(TopicConfig("t", 8, 8))
            await fill(old, sent_before)
            await trio.sleep(30)
        broker.topics.delete_topic_config("t", {0: 1} if sent_before else {}, before=broker.store.max_offset)
        await trio.sleep(5)
    async with new.broker(**MASTER), new.client() as client:
        for queue_id in (1, 2):
            assert (await ask(client, send_request(b"new", queue_id=queue_id))).code == 0
        await trio.sleep(20)
    lose(new, "delayOffset.json")
    slave_now = SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    async with new.broker(**MASTER, haPeers="10.0.0.1:10912") as broker, old.broker(**slave_now):
        await trio.sleep(60)
        assert broker.topics.select("t") == TopicConfig("t", 8, 8)
        async with new.client() as client:
            assert (await ask(client, send_request(b"new", queue_id=7))).code == 0
            assert (await ask(client, pull_request(0, queue_id=2))).code == 0


@pytest.mark.parametrize("has_restarted", [False, True])
async def test_what_clients_go_on_with_while_tables_are_awaited_is_not_what_was_deleted_before(
    has_restarted: bool, virtual_clock: VirtualClock
) -> None:
    """An older copy of each table knew them still: a commit and a send that were answered were undone by the peer."""
    master, first, _ = three_machines()
    names = [f"/store/config/{name}.json" for name in ("topics", "consumerOffset")]
    async with master.broker(**MASTER) as broker, first.broker(**SLAVE) as slave:
        await trio.sleep(10)
        await fill(master, 12)
        await fill(master, 12, topic="v")
        broker.offsets.commit_offset("g", "t", 0, offset=8, peer="1.1.1.1:1")
        await trio.sleep(30)
        copies = {name: deepcopy(master.disk.files[name]) for name in names}
        await broker.offsets.remove_offset_in_turns("g")
        broker.topics.delete_topic_config("v", {0: 12}, before=broker.store.max_offset)
        await trio.sleep(30)
        assert slave.offsets.query_offset("g", "t", 0) is None
    for name, copy in copies.items():
        master.disk.files[f"{name}.bak"] = copy
        del master.disk.files[name]
    async with master.broker(**MASTER, **ONE_PEER) as broker:
        await trio.sleep(90)
        broker.offsets.commit_offset("g", "t", 0, offset=12, peer="1.1.1.1:1")
        await fill(master, 1, topic="v")
        await trio.sleep(20)
        if not has_restarted:
            async with first.broker(**SLAVE):
                await trio.sleep(90)
                assert (broker.offsets.query_offset("g", "t", 0), _queues_of(broker, "v")) == (12, 4)
    async with master.broker(**MASTER, **ONE_PEER) as broker, first.broker(**SLAVE):
        await trio.sleep(90)
        assert (broker.offsets.query_offset("g", "t", 0), _queues_of(broker, "v")) == (12, 4)
