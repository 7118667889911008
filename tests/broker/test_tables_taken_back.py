"""A master that lost its store has the tables of its peer with the log, or waits, whatever comes in between."""

from contextlib import nullcontext

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic import takes_tables_back
from rmqha.broker.master_link import MasterLink
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.cli.verdict import judge
from rmqha.codec.codes import ResponseCode
from rmqha.errors import RemoteProtocolError
from rmqha.ha.catch_up import PeerAsker
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.broker.producers import seen
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_clock import VirtualClock, WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

PEERS = {"haPeers": "10.0.0.2:10912"}
ROLES = [{"brokerRole": "ASYNC_MASTER"}, {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}]
NOTE = "/store/takesTablesBack"


async def _pair_of_which_the_master_lost_its_disk(role: dict[str, str]) -> tuple[Machine, Machine]:
    """Ten delayed messages are delivered; a group has settings and an offset of its own."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    async with slave.broker(**SLAVE), master.broker(**role) as broker, master.client() as client:
        await trio.sleep(10)
        for number in range(10):
            sent = await ask(client, send_request(b"%d" % number, topic="t", properties="DELAY\x011"))
            assert sent.code == 0, sent.remark
        for _ in range(30):
            await ask(client, send_request(bytes(4000), topic="more"))
        broker.offsets.commit_offset("g", "t", 0, offset=2)
        broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=7))
        await trio.sleep(90)
    master.disk = SimDisk(now_ms=WallClock())
    return master, slave


async def _check_whole(broker: BrokerController) -> None:
    """Its peer has told all, and no delayed message is delivered once more."""
    await replication_of(broker).opened.wait()
    await trio.sleep(60)
    group = broker.groups.select("g")
    assert (group and group.retry_max_times, broker.offsets.query_offset("g", "t", 0)) == (7, 2)
    assert sorted(message.body for message in await seen(broker)) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("when", ["the log is here", "sends are accepted"])
async def test_ended_before_they_are_saved_it_waits_for_them_at_its_next_start(
    role: dict[str, str], when: str, virtual_clock: VirtualClock
) -> None:
    """It began without what was delivered, as its log was whole, and never asked again: all came twice."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)
    async with slave.broker(**SLAVE) as peer, trio.open_nursery() as nursery:
        broker = master.controller(**role, **PEERS)
        nursery.start_soon(broker.run)
        while broker.store.max_offset < peer.store.max_offset:  # noqa: ASYNC110 - a look from outside
            await trio.sleep(0.001)
        if when == "sends are accepted":
            await replication_of(broker).opened.wait()
        nursery.cancel_scope.cancel()
    master.disk.power_cut()
    assert NOTE in master.disk.files
    async with master.broker(**role, **PEERS) as broker:
        await trio.sleep(60)
        assert "10.0.0.2:10912" in replication_of(broker).catch_up.refusal
        async with slave.broker(**SLAVE):
            await _check_whole(broker)
            assert not {NOTE, "/store/longerPeers"} & {*master.disk.files}
    async with master.broker(**role, **PEERS) as broker:
        await _check_whole(broker)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_peer_that_gives_its_log_and_tells_nothing_is_waited_for(
    role: dict[str, str], mode: str, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """As one whose listenPort is not beside its HA port, or that wants an account: the log came without the tables."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)

    async def unanswered(_self: MasterLink, _address: str, _ha_port: int, *, fields: dict[str, str]) -> LogRange | None:
        assert fields
        return None

    async with slave.broker(**SLAVE):
        with monkeypatch.context() as refusing:
            refusing.setattr(MasterLink, "_ask_range", unanswered)
            async with master.broker(haCatchUpAtStart=mode, **role, **PEERS) as broker:
                await trio.sleep(120)
                assert broker.store.max_offset == 0
                assert "could not be taken over: nothing answers at" in replication_of(broker).catch_up.refusal
        async with master.broker(haCatchUpAtStart=mode, **role, **PEERS) as broker:
            await _check_whole(broker)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mode", ["try", "require"])
async def test_what_a_waiting_master_saves_is_not_what_the_store_had(
    role: dict[str, str], mode: str, virtual_clock: VirtualClock
) -> None:
    """A heartbeat made a group's retry topic, and the next start took topics.json for the lost store's."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)
    async with master.broker(haCatchUpAtStart=mode, **role, **PEERS) as broker:
        await trio.sleep(20)
        broker.topics.create_topic_in_send_message_back_method("%RETRY%g", queue_nums=1)
        refused = pytest.raises(RemoteProtocolError, match="not known here")
        with refused if mode == "require" else nullcontext():
            broker.offsets.commit_offset("g", "t", 0, offset=0, peer="10.9.9.9:1")
        await trio.sleep(20)
    assert "/store/config/topics.json" in master.disk.files
    async with slave.broker(**SLAVE), master.broker(haCatchUpAtStart=mode, **role, **PEERS) as broker:
        await _check_whole(broker)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_peer_that_comes_later_is_asked_before_delayed_messages_are_delivered(
    role: dict[str, str], mode: str, virtual_clock: VirtualClock
) -> None:
    """With ``try`` they were delivered by now from the beginning of each level, while the log came."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)
    async with master.broker(haCatchUpAtStart=mode, **role, **PEERS) as broker:
        await trio.sleep(60)
        async with slave.broker(**SLAVE):
            await trio.sleep(60)
            await _check_whole(broker)
            async with master.client() as client:
                await ask(client, send_request(b"next", topic="t", properties="DELAY\x011"))
            await trio.sleep(30)
            assert [message.body for message in await seen(broker)].count(b"next") == 1


@pytest.mark.parametrize("peers", ["10.0.0.2:10912,10.0.0.3:10912", "10.0.0.3:10912,10.0.0.2:10912"])
@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_second_start_asks_the_peer_that_told_the_first(
    peers: str, mode: str, virtual_clock: VirtualClock
) -> None:
    """The one that was asked first told how far delayed messages were delivered when it was last there."""
    net = SimNet()
    first, second, third = (Machine(net, f"10.0.0.{number}") for number in (1, 2, 3))
    other = SLAVE | {"brokerId": "2"}
    async with second.broker(**SLAVE), first.broker(brokerRole="ASYNC_MASTER"), first.client() as client:
        async with third.broker(**other):
            await ask(client, send_request(b"first", topic="t", properties="DELAY\x011"))
            await trio.sleep(20)
        for number in range(10):
            await ask(client, send_request(b"%d" % number, topic="t", properties="DELAY\x011"))
        await trio.sleep(60)
    first.disk = SimDisk(now_ms=WallClock())
    settings = {"brokerRole": "ASYNC_MASTER", "haPeers": peers, "haCatchUpAtStart": mode}
    async with second.broker(**SLAVE), third.broker(**other):
        async with trio.open_nursery() as nursery:
            broker = first.controller(**settings)
            nursery.start_soon(broker.run)
            await replication_of(broker).opened.wait()
            nursery.cancel_scope.cancel()
        async with first.broker(**settings) as broker:
            await replication_of(broker).opened.wait()
            await trio.sleep(30)
            assert len(await seen(broker)) == 11


@pytest.mark.parametrize("role", ROLES)
async def test_a_new_group_waits_for_nothing(role: dict[str, str], virtual_clock: VirtualClock) -> None:
    """A slave that is new, too, has no tables to tell, and is told this master's."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    for mode in ("try", "require"):
        async with slave.broker(**SLAVE) as copy, master.broker(haCatchUpAtStart=mode, **role, **PEERS) as broker:
            with trio.fail_after(15):
                await replication_of(broker).opened.wait()
            await trio.sleep(30)
            async with master.client() as client:
                assert (await ask(client, send_request(b"x", topic="t"))).code == 0
            await trio.sleep(30)
            assert NOTE not in master.disk.files
            assert copy.topics.select("t") is not None


@pytest.mark.parametrize("mode", ["try", "require"])
async def test_a_peer_that_has_lost_its_store_as_well_is_not_waited_for(mode: str, virtual_clock: VirtualClock) -> None:
    """It comes back with an empty log, and has nothing to tell any more."""
    role = ROLES[0] | {"haCatchUpAtStart": mode}
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)
    async with slave.broker(**SLAVE), trio.open_nursery() as nursery:
        broker = master.controller(**role, **PEERS)
        nursery.start_soon(broker.run)
        while not broker.store.max_offset:  # noqa: ASYNC110 - a look from outside
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    slave.disk = SimDisk(now_ms=WallClock())
    async with slave.broker(**SLAVE), master.broker(**role, **PEERS) as broker:
        with trio.fail_after(60):
            await replication_of(broker).opened.wait()
        await trio.sleep(60)
        assert not {NOTE, "/store/longerPeers"} & {*master.disk.files}


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_late_peer_told_is_asked_for_until_it_counts(
    role: dict[str, str], monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """The log was empty when sends were taken, and the note went as soon as the peer was heard."""
    monkeypatch.setattr(takes_tables_back, "_SAVED_AGAIN_S", 0.001)
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(master.controller(**role, **PEERS).run)
        await trio.sleep(60)
        async with slave.broker(**SLAVE):
            while NOTE in master.disk.files:  # noqa: ASYNC110 - a look from outside
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    master.disk.power_cut()
    async with master.broker(**role, **PEERS) as broker:
        await _check_whole(broker)


@pytest.mark.parametrize("peers", ["10.0.0.2:10912,10.0.0.3:10912", "10.0.0.3:10912,10.0.0.2:10912"])
async def test_an_older_peer_is_not_asked_once_the_longest_has_told(peers: str, virtual_clock: VirtualClock) -> None:
    """It had told all before a restart, and waited in the note: its tables came once more, over the newer ones."""
    net = SimNet()
    first, second, third = (Machine(net, f"10.0.0.{number}") for number in (1, 2, 3))
    other_slave = SLAVE | {"brokerId": "2"}
    async with second.broker(**SLAVE), first.broker(**ROLES[1]) as broker, first.client() as client:
        async with third.broker(**other_slave):
            await trio.sleep(10)
            await ask(client, send_request(b"0", topic="t", properties="DELAY\x011"))
            await trio.sleep(30)
        for number in range(1, 10):
            await ask(client, send_request(b"%d" % number, topic="t", properties="DELAY\x011"))
        broker.offsets.commit_offset("g", "t", 0, offset=2)
        broker.groups.update(SubscriptionGroupConfig("g", retry_max_times=7))
        await trio.sleep(60)
    first.disk = SimDisk(now_ms=WallClock())
    settings = ROLES[1] | {"haPeers": peers, "haCatchUpAtStart": "require"}
    async with third.broker(**other_slave):
        async with first.broker(**settings):
            await trio.sleep(20)
        async with second.broker(**SLAVE), first.broker(**settings) as broker:
            await _check_whole(broker)


@pytest.mark.parametrize("role", ROLES)
async def test_a_master_that_waits_tells_no_slave_its_empty_tables(
    role: dict[str, str], monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Which took them, where its HA connection did not come about, so that it was not known to be ahead."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)

    async def unanswered(_self: MasterLink, _address: str, _ha_port: int, *, fields: dict[str, str]) -> LogRange | None:
        assert fields
        return None

    monkeypatch.setattr(MasterLink, "_ask_range", unanswered)
    async with master.broker(haCatchUpAtStart="try", **role, **PEERS) as broker:
        await trio.sleep(60)
        assert not replication_of(broker).catch_up.refusal
        async with slave.broker(**SLAVE | {"haMasterAddress": "10.0.0.1:10999"}) as peer:
            await trio.sleep(60)
            assert "could not be taken over" in replication_of(broker).catch_up.refusal
            group = peer.groups.select("g")
            assert (group and group.retry_max_times, peer.offsets.query_offset("g", "t", 0)) == (7, 2)


async def test_what_an_operator_changes_while_the_log_comes_stays(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken line was enough: with the next question the peer's tables came once more."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(ROLES[0])
    asked, take = 0, PeerAsker._take

    async def fails_at_first(asker: PeerAsker, peer: MasterAddress, there: LogRange | None) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            replication_of(broker)._metadata.groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
            raise RemoteProtocolError("the line is broken")
        await take(asker, peer, there)

    monkeypatch.setattr(PeerAsker, "_take", fails_at_first)
    async with slave.broker(**SLAVE), trio.open_nursery() as nursery:
        broker = master.controller(**ROLES[0], **PEERS)
        nursery.start_soon(broker.run)
        await trio.sleep(90)
        group = broker.groups.select("g")
        assert (asked, group and group.retry_max_times, broker.offsets.query_offset("g", "t", 0)) == (2, 3, 2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("role", ROLES)
async def test_a_log_that_began_empty_takes_nothing_while_a_slave_holds_more(
    role: dict[str, str], virtual_clock: VirtualClock
) -> None:
    """As where haPeers names another port of it: sends took the places of what the slave had shown to hold."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(role)
    wrong = {"haPeers": "10.0.0.2:10999"}
    async with master.broker(**role, **wrong) as broker, slave.broker(**SLAVE), master.client() as client:
        await trio.sleep(60)
        for _ in range(3):
            refused = await ask(client, send_request(b"in its place", topic="t"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "have haPeers name that slave's HA port" in (refused.remark or "")
            told = judge(await status(client))
            assert told.level == "failed"
            assert told.reasons[0].startswith("sends are refused: this log began empty"), "where operators look"
            await trio.sleep(60)
        assert broker.store.max_offset == 0
    async with slave.broker(**SLAVE), master.broker(**role, **PEERS) as broker:
        await _check_whole(broker)


async def test_an_empty_slave_that_follows_shows_nothing_of_what_another_one_reports(
    virtual_clock: VirtualClock,
) -> None:
    """As one that is started since the first is told to be unheard: as many followed as there are peers."""
    master, slave = await _pair_of_which_the_master_lost_its_disk(ROLES[0])
    empty = Machine(master.net, "10.0.0.3")
    wrong, second = {"haPeers": "10.0.0.2:10999"}, SLAVE | {"brokerId": "2"}
    async with master.broker(**ROLES[0], **wrong) as broker, empty.broker(**second), master.client() as client:
        async with slave.broker(**SLAVE):
            await trio.sleep(60)
            assert replication_of(broker).ha_service.live_slaves == 1
            assert broker.replication.doubt()
            refused = await ask(client, send_request(b"in its place", topic="t"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(90)
        assert broker.replication.doubt(), "it is away, and what it holds is not"
        assert judge(await status(client)).level == "degraded"


async def test_a_report_of_more_stops_no_log_of_which_a_peer_has_shown_what_it_holds(
    virtual_clock: VirtualClock,
) -> None:
    """Anybody may report anything: in a group one of whose peers was never built, each such report cost 30 s."""
    net = SimNet()
    master, slave = (Machine(net, f"10.0.0.{number}") for number in (1, 2))
    peers = {"haPeers": "10.0.0.2:10912,10.0.0.3:10912"}
    async with slave.broker(**SLAVE), master.broker(**ROLES[0], **peers) as broker, master.client() as client:
        await trio.sleep(60)
        catch_up = replication_of(broker).catch_up
        catch_up.on_slave_ahead()
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SERVICE_NOT_AVAILABLE, "an empty log"
        await trio.sleep(60)
        assert (await ask(client, send_request(b"x"))).code == 0
        catch_up.on_slave_ahead()
        assert (await ask(client, send_request(b"x"))).code == 0
