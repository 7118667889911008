"""A master whose ``storePathRootDir`` is an older copy than its log: what its peers know later counts.

The log is on a disk of its own, and the root was put back, or not mounted for a while.
"""

from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.master_link import MasterLink
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.cli.verdict import judge
from rmqha.codec.codes import ResponseCode
from rmqha.codec.route import PERM_READ
from rmqha.errors import RemotingTimeoutError
from rmqha.remoting.client import RemotingClient
from rmqha.replication.master_session import LogRange
from tests.broker.machines import Machine, ask, replication_of, send_request, status_of
from tests.broker.test_pair import SLAVE
from tests.broker.test_tables_merged import three_machines
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_inode import Inode
from tests.sim.sim_net import SimNet

MASTER = {"brokerRole": "ASYNC_MASTER"}
PEERS = MASTER | {"haPeers": "10.0.0.2:10912"}
OTHER_SLAVE = SLAVE | {"brokerId": "2"}
OLDER_NOTE = "/store/tablesOlder"
UNDONE = "master_link.later_changes_undone"
DECIDED = (False, PERM_READ, 7, 5)
UNDECIDED = (True, 6, 16, 30)


def pair() -> tuple[Machine, Machine]:
    net = SimNet()
    return Machine(net, "10.0.0.1"), Machine(net, "10.0.0.2")


async def begin(master: Machine, broker: BrokerController) -> None:
    """There are messages and topics, and a group is somewhere in them."""
    await trio.sleep(10)
    async with master.client() as client:
        for _ in range(40):
            await ask(client, send_request(b"x"))
    for name in ("gone", "closed"):
        broker.topics.update_topic_config(TopicConfig(name, 4, 4))
    broker.offsets.commit_offset("billing", "t", 0, offset=30)
    await trio.sleep(30)


async def decide(broker: BrokerController) -> None:
    """An operator does, and the slaves that are there are told."""
    broker.topics.delete_topic_config("gone", {}, before=broker.store.max_offset)
    broker.topics.update_topic_config(TopicConfig("closed", 4, 4, perm=PERM_READ))
    broker.groups.update(SubscriptionGroupConfig("billing", retry_max_times=7))
    broker.offsets.commit_offset("billing", "t", 0, offset=5)
    await trio.sleep(30)


def tables_of(broker: BrokerController) -> tuple[bool, int | None, int | None, int | None]:
    """Whether one topic is there, what may be done with the other, how often the group may try, and where it is."""
    closed, group = broker.topics.select("closed"), broker.groups.select("billing")
    is_there, retries = broker.topics.select("gone") is not None, group.retry_max_times if group else None
    return is_there, closed.perm if closed else None, retries, broker.offsets.query_offset("billing", "t", 0)


def put_back(master: Machine, copy: dict[str, Inode]) -> None:
    log = {path: file for path, file in master.disk.files.items() if path.startswith("/store/commitlog")}
    master.disk = SimDisk(now_ms=WallClock())
    master.disk.files.update(deepcopy(copy) | log)


async def older_copy(master: Machine, *, is_clean: bool = True) -> None:
    """The slave runs, and knows what was decided since the copy, which is of a stopped or of a running broker."""
    async with master.broker(**PEERS) as broker:
        await begin(master, broker)
        await trio.sleep(60)
        running = deepcopy(master.disk.files)
    copy = deepcopy(master.disk.files) if is_clean else running
    async with master.broker(**PEERS) as broker:
        await trio.sleep(10)
        async with master.client() as client:
            await ask(client, send_request(b"since"))
        await trio.sleep(0 if is_clean else 900)
        async with master.client() as client:
            for _ in range(20):
                await ask(client, send_request(bytes(4000)))
        await decide(broker)
        assert tables_of(broker) == DECIDED
    put_back(master, copy)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("mode", ["try", "require"])
async def test_what_a_peer_knows_later_is_taken_before_the_first_send(
    mode: str, *, is_clean: bool, autojump_clock: MockClock
) -> None:
    """The logs were equal, so nobody looked: the copy's word counted, and the slave took it, too."""
    master, slave = pair()
    async with slave.broker(**SLAVE) as peer:
        await older_copy(master, is_clean=is_clean)
        assert tables_of(peer) == DECIDED
        with capture_logs() as logs:
            async with master.broker(haCatchUpAtStart=mode, **PEERS) as broker:
                await replication_of(broker).opened.wait()
                assert tables_of(broker) == DECIDED
                await trio.sleep(40)
                assert [tables_of(broker), tables_of(peer)] == [DECIDED, DECIDED]
                assert OLDER_NOTE not in master.disk.files
                for machine in (master, slave):
                    assert judge(await status_of(machine)).level == "ok"
        told = next(log for log in logs if log["event"] == "master_link.tables_awaited")
        assert "10.0.0.2" in told["reason"]


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_peer_that_stands_still_for_a_moment_is_asked_again_before_the_first_send(
    mode: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Its HA port answered, late, and that was enough: places of queues that had expired since were given again."""
    master, slave = pair()
    ask_range, open_link = MasterLink._ask_range, MasterLink.open

    async def late(link: MasterLink, *how: Any, **named: Any) -> LogRange | None:
        return await ask_range(link, *how, **named) if trio.current_time() >= stands_still_to else None

    def late_link(link: MasterLink, address: str) -> AbstractAsyncContextManager[RemotingClient]:
        if trio.current_time() < stands_still_to:
            raise RemotingTimeoutError(address, "no answer within 3 s")
        return open_link(link, address)

    async with slave.broker(**SLAVE):
        await older_copy(master)
        stands_still_to = trio.current_time() + 10.5  # behind the first comparison
        monkeypatch.setattr(MasterLink, "_ask_range", late)
        monkeypatch.setattr(MasterLink, "open", late_link)
        async with master.broker(haCatchUpAtStart=mode, **PEERS) as broker:
            await replication_of(broker).opened.wait()
            async with master.client() as client:
                for _ in range(1000):
                    if (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS:
                        break
                    await trio.sleep(0.01)
            assert trio.current_time() >= stands_still_to
            assert tables_of(broker) == DECIDED


async def test_what_a_peer_knows_that_comes_once_sends_are_taken_counts_too(autojump_clock: MockClock) -> None:
    """Nobody could be asked at the start. What was decided on the master meanwhile stays."""
    master, slave = pair()
    async with slave.broker(**SLAVE):
        await older_copy(master)
    async with master.broker(**PEERS) as broker, master.client() as client:
        await trio.sleep(60)
        await ask(client, send_request(b"since"))
        broker.topics.update_topic_config(TopicConfig("closed", 4, 4, perm=0))
        async with slave.broker(**SLAVE) as peer:
            await trio.sleep(60)
            there, _, *others = DECIDED
            expected = (there, 0, *others)
            assert [tables_of(broker), tables_of(peer)] == [expected, expected]
            for machine in (master, slave):
                assert judge(await status_of(machine)).level == "ok", judge(await status_of(machine))


async def test_a_start_that_is_interrupted_leaves_what_it_found_to_the_next(autojump_clock: MockClock) -> None:
    """It had made all else as late as the log."""
    master, slave = pair()
    async with slave.broker(**SLAVE) as peer:
        await older_copy(master)
        interrupted = master.controller(**PEERS)
        interrupted.metadata.load()
        await interrupted.store.load_in_thread()
        interrupted.store.close()
        async with master.broker(**PEERS) as broker:
            assert broker.store.root_as_of is None
            await replication_of(broker).opened.wait()
            await trio.sleep(40)
            assert [tables_of(broker), tables_of(peer)] == [DECIDED, DECIDED]


async def test_a_slave_whose_copy_is_older_asks_its_peers_if_it_is_made_master(autojump_clock: MockClock) -> None:
    """Its master is gone, and cannot give it the later ones; but another slave has them."""
    master, first, second = three_machines()
    async with master.broker(**MASTER) as broker, second.broker(**OTHER_SLAVE):
        async with first.broker(**SLAVE):
            await begin(master, broker)
            await trio.sleep(60)
        copy = deepcopy(first.disk.files)
        async with first.broker(**SLAVE):
            await trio.sleep(10)
            async with master.client() as client:
                for _ in range(20):
                    await ask(client, send_request(bytes(4000)))
            await decide(broker)
    put_back(first, copy)
    async with first.broker(**SLAVE):
        await trio.sleep(5)
        assert judge(await status_of(first)).level == "degraded"
    its_slave = OTHER_SLAVE | {"haMasterAddress": "10.0.0.2:10912", "masterAddress": "10.0.0.2:10911"}
    new_master = MASTER | {"brokerId": "0", "haPeers": "10.0.0.3:10912"}
    async with second.broker(**its_slave) as other, first.broker(**new_master) as broker:
        await trio.sleep(60)
        assert [tables_of(broker), tables_of(other)] == [DECIDED, DECIDED]


async def test_an_ordinary_start_asks_for_no_tables_and_no_slave_waits(autojump_clock: MockClock) -> None:
    """Neither what was decided while a slave was away, nor what it knows as well, is an older copy."""
    master, slave = pair()
    async with slave.broker(**SLAVE), master.broker(**PEERS) as broker:
        await begin(master, broker)
    with capture_logs() as logs:
        async with master.broker(**PEERS) as broker:
            await decide(broker)
        async with slave.broker(**SLAVE) as peer, master.broker(**PEERS) as broker:
            await replication_of(broker).opened.wait()
            assert not broker.metadata.why_awaited()
            await trio.sleep(12)
            assert tables_of(broker) == DECIDED
            assert tables_of(peer) == DECIDED
        async with slave.broker(**SLAVE) as peer, master.broker(**PEERS) as broker:
            await trio.sleep(40)
            assert [tables_of(broker), tables_of(peer)] == [DECIDED, DECIDED]
    assert not {"master_link.tables_awaited", UNDONE} & {log["event"] for log in logs}


async def test_what_a_consumer_commits_back_on_a_slave_alone_is_no_later_word(autojump_clock: MockClock) -> None:
    """A group that is far beyond that on the master would read all again."""
    master, slave = pair()
    async with slave.broker(**SLAVE) as peer:
        async with master.broker(**PEERS) as broker:
            await begin(master, broker)
        peer.offsets.commit_offset("billing", "t", 0, offset=3)
        async with master.broker(**PEERS) as broker:
            await trio.sleep(40)
            assert broker.offsets.query_offset("billing", "t", 0) == 30
            assert peer.offsets.query_offset("billing", "t", 0) == 30


async def test_a_copy_of_the_whole_store_beside_an_equal_log_counts_and_its_slave_tells_what_it_undoes(
    autojump_clock: MockClock,
) -> None:
    """Nobody can tell by the logs. Each change is named once; an ordinary start of either side names none."""
    master, slave = pair()
    async with slave.broker(**SLAVE) as peer:
        async with master.broker(**PEERS) as broker:
            await begin(master, broker)
        copy = deepcopy(master.disk.files)
        with capture_logs() as before:
            async with master.broker(**PEERS) as broker:
                await decide(broker)
        assert tables_of(peer)[:3] == DECIDED[:3]
        master.disk = SimDisk(now_ms=WallClock())
        master.disk.files.update(copy)
        with capture_logs() as logs:
            async with master.broker(**PEERS) as broker:
                await trio.sleep(60)
                assert [tables_of(one)[:3] for one in (broker, peer)] == [UNDECIDED[:3]] * 2
    told = [log for log in logs if log["event"] == UNDONE]
    assert [(log["table"], sorted(log["names"]), log["count"]) for log in told] == [
        ("topics.json", ["closed", "gone"], 2),
        ("subscriptionGroup.json", ["billing"], 1),
    ]
    assert {(log["log_level"], log["address"]) for log in told} == {("warning", "10.0.0.1:10911")}
    assert UNDONE not in {log["event"] for log in before}
