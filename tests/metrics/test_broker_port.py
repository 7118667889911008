"""What a broker tells monitoring is true, from before its recovery to its end."""

import gc
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha import certificates
from rmqha.certificates import Certificates, TlsOptions
from rmqha.cli.pages import Page
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreWriteError
from rmqha.remoting.client import RemotingClient
from tests.broker.acl.files import account, home_with
from tests.broker.group_members import member_of
from tests.broker.machines import Machine, ask, ha_client_of, pull_request, replication_of, send_request
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_pair import Pair
from tests.fakes import MemoryNetwork
from tests.sim.sim_clock import WallClock
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.metrics.http_server import HttpServer
from rmqha.metrics.port import MetricsPort, open_port
from tests.metrics.scrapes import scraped, settings, value

trustme = pytest.importorskip("trustme", reason="trustme is in the extra [dev]")

LISTEN = settings()


def watched_pair() -> Pair:
    pair = Pair()
    pair.master.settings |= LISTEN
    pair.slave.settings |= LISTEN
    return pair


async def commit(client: RemotingClient, offset: int, *, group: str, topic: str, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header)))


async def test_before_it_serves_it_lives_and_is_not_ready(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    broker = machine.controller()
    async with scraped(broker, machine.net) as monitoring:
        broker.store.recovery.begin("checking records", 1000, done=lambda: 250)
        assert (await monitoring.get("/livez")).status == 200
        assert await monitoring.readyz() == (503, "recovering: checking records, 250 of 1000 bytes\n")
        samples = await monitoring.scrape()
        assert value(samples, "rmqha_ready") == 0
        assert value(samples, "rmqha_recovering") == 1
        assert value(samples, "rmqha_recovered_bytes") == 250
        assert value(samples, "rmqha_to_recover_bytes") == 1000
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            assert await monitoring.readyz() == (200, "ready\n")
            broker.stop()
            assert await monitoring.readyz() == (503, "stopping\n")
        assert (await monitoring.get("/livez")).status == 200
        assert value(await monitoring.scrape(), "rmqha_ready") == 0


async def test_a_port_that_ends_does_not_end_its_broker(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError("the listener is broken")

    monkeypatch.setattr(HttpServer, "serve", fail)
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    with capture_logs() as logs:
        async with machine.broker() as broker, machine.client() as client, scraped(broker, machine.net):
            assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
    assert "metrics.ended" in [line["event"] for line in logs]


async def test_sends_pulls_and_the_log_are_counted(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client, scraped(broker, machine.net) as monitoring:
        for number in range(3):
            await ask(client, send_request(b"%d" % number))
        await ask(client, send_request(b"x", queue_id=99))
        await ask(client, pull_request(2, suspend_ms=1000))
        await ask(client, pull_request(9))
        await trio.sleep(15)
        samples = await monitoring.scrape()
        assert value(samples, "rmqha_sends_total", status="SEND_OK") == 3
        assert value(samples, "rmqha_sends_total", status="REFUSED") == 1
        assert value(samples, "rmqha_put_messages_total") == 3
        assert value(samples, "rmqha_put_bytes_total") == broker.store.max_offset
        assert value(samples, "rmqha_send_latency_seconds_count") == 3
        assert value(samples, "rmqha_pulls_total", result="found") == 1
        assert value(samples, "rmqha_pulls_total", result="missed") == 2
        assert value(samples, "rmqha_log_offset_bytes", point="max") == broker.store.max_offset
        assert value(samples, "rmqha_flush_lag_bytes") == value(samples, "rmqha_dispatch_lag_bytes") == 0
        assert 0 < value(samples, "rmqha_disk_used_ratio", disk="commitlog") < 1
        assert value(samples, "rmqha_connections") == 1
        assert value(samples, "rocketmq_producer_offset", topic="t", broker="broker-a") == 3
        assert value(samples, "rmqha_topic_messages_total", topic="t") == 3
        assert value(samples, "rocketmq_brokeruntime_putmessage_times_total") == 3
        assert value(samples, "rocketmq_brokeruntime_put_tps60") > 0
        assert value(samples, "rocketmq_broker_tps", broker="broker-a") > 0


async def test_a_master_is_ready_while_a_send_is_answered_send_ok(autojump_clock: MockClock) -> None:
    pair = watched_pair()
    async with pair.master.broker() as master, scraped(master, pair.net) as monitoring:
        below = "below the in-sync threshold: 0 of the 1 slaves that a send needs are connected\n"
        assert await monitoring.readyz() == (503, below)
        async with pair.slave.broker() as slave, pair.master.client() as client:
            while (await monitoring.readyz())[0] != 200:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.5)
            await ask(client, send_request(b"x"))
            await trio.sleep(3)
            samples = await monitoring.scrape()
            assert value(samples, "rmqha_slaves_needed") == value(samples, "rmqha_slaves_live") == 1
            assert value(samples, "rmqha_slave_connected", slave="broker-a/1") == 1
            assert value(samples, "rmqha_slave_in_sync", slave="broker-a/1") == 1
            assert value(samples, "rmqha_slave_lag_bytes", slave="broker-a/1") == 0
            async with scraped(slave, pair.net, number=2) as other:
                assert await other.readyz() == (200, "ready\n")
                told = await other.scrape()
                assert value(told, "rmqha_follower_state", state="transfer") == 1
                assert value(told, "rmqha_follower_offset_bytes", point="durable") == master.store.max_offset
                assert value(told, "rmqha_put_messages_total") == 1
        async with pair.master.client() as client:
            await ask(client, send_request(b"alone"))
        await trio.sleep(3)
        assert await monitoring.readyz() == (503, below)
        samples = await monitoring.scrape()
        assert value(samples, "rmqha_slaves_live") == 0
        assert value(samples, "rmqha_slave_connected", slave="broker-a/1") == 0
        assert value(samples, "rmqha_slave_in_sync", slave="broker-a/1") == 0
        assert value(samples, "rmqha_slave_lag_bytes", slave="broker-a/1") > 0
        assert value(samples, "rmqha_slave_lag_seconds", slave="broker-a/1") >= 3
        assert value(samples, "rmqha_sends_total", status="SLAVE_NOT_AVAILABLE") == 1


async def test_a_master_whose_slave_is_connected_and_silent_is_not_ready(autojump_clock: MockClock) -> None:
    """It counts as there for 20 s, and its sends are answered FLUSH_SLAVE_TIMEOUT."""
    pair = watched_pair()
    async with pair.running() as (master, _), scraped(master, pair.net) as monitoring, pair.master.client() as client:
        assert await monitoring.readyz() == (200, "ready\n")
        pair.net.cut("10.0.0.2", "10.0.0.1")
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await trio.sleep(1)
        status, text = await monitoring.readyz()
        assert (status, "slaves do not acknowledge within slaveTimeout" in text) == (503, True)
        pair.net.heal()
        await trio.sleep(30)
        assert await monitoring.readyz() == (200, "ready\n")


async def test_an_empty_master_whose_peers_are_away_is_not_ready_and_says_so(autojump_clock: MockClock) -> None:
    """One line of the log said so, and it took sends in the places of what its peers held."""
    pair = watched_pair()
    settings = {"haPeers": "10.0.0.2:10912", "brokerRole": "ASYNC_MASTER"}
    async with pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
        await trio.sleep(15)
        status, text = await monitoring.readyz()
        assert (status, "what 10.0.0.2:10912 of haPeers may hold is unknown" in text) == (503, True)
        async with pair.master.client() as client:
            info = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
            verdict = judge(json.loads(json.loads(info.body)["table"]["rmqhaStatus"]))
        assert (verdict.level, verdict.reasons) == ("degraded", (f"{text.strip()}; see {Page.AHEAD}",))
        async with pair.slave.broker():
            while (await monitoring.readyz())[0] != 200:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            assert replication_of(master).ha_service.live_slaves == 1
    async with pair.slave.broker(), pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
        assert await monitoring.readyz() == (200, "ready\n")


async def test_an_empty_master_that_was_started_again_with_messages_is_still_not_ready(
    autojump_clock: MockClock,
) -> None:
    """It was ready after that, as if a restart had proved what its peers hold."""
    pair = watched_pair()
    settings = {"haPeers": "10.0.0.2:10912", "brokerRole": "ASYNC_MASTER"}
    for _ in range(2):
        async with pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
            async with pair.master.client() as client:
                assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
            status, text = await monitoring.readyz()
            assert (status, "this log began empty, and what 10.0.0.2:10912 of haPeers may hold" in text) == (503, True)
    async with pair.slave.broker(), pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
        assert await monitoring.readyz() == (200, "ready\n"), "it was heard before the first send"
    async with pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
        assert await monitoring.readyz() == (200, "ready\n")


async def test_a_new_group_is_ready_once_its_empty_slave_is_there_as_well(autojump_clock: MockClock) -> None:
    """Whichever of them is installed first: a peer that says that it has nothing has been heard."""
    pair = watched_pair()
    settings = {"haPeers": "10.0.0.2:10912", "brokerRole": "ASYNC_MASTER"}
    async with pair.slave.broker() as slave:
        ha_client_of(slave).update_master_address("10.0.0.9", 10912)
        async with pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
            assert await monitoring.readyz() == (200, "ready\n")
            assert replication_of(master).ha_service.live_slaves == 0
    pair = watched_pair()
    async with pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
        assert (await monitoring.readyz())[0] == 503
        async with pair.slave.broker() as slave:
            ha_client_of(slave).update_master_address("10.0.0.9", 10912)
            await trio.sleep(10.0)
            assert await monitoring.readyz() == (200, "ready\n"), "it is asked every ten seconds"
            assert replication_of(master).ha_service.live_slaves == 0


async def test_a_slave_that_follows_says_nothing_of_another_peer_that_is_away(autojump_clock: MockClock) -> None:
    """It was heard itself, and counted as the one that was not."""
    pair = watched_pair()
    settings = {"haPeers": "10.0.0.2:10912;10.0.0.3:10912", "brokerRole": "ASYNC_MASTER"}
    async with (
        pair.master.broker(**settings) as master,
        scraped(master, pair.net) as monitoring,
        pair.slave.broker(),
    ):
        await trio.sleep(40)
        assert replication_of(master).ha_service.live_slaves == 1
        status, text = await monitoring.readyz()
        assert (status, "what 10.0.0.3:10912 of haPeers may hold is unknown" in text) == (503, True)


async def test_a_master_whose_slave_was_heard_and_went_away_doubts_nothing(autojump_clock: MockClock) -> None:
    """It was not ready, as what  of haPeers may hold was unknown: of no peer at all."""
    pair = watched_pair()
    settings = {"haPeers": "10.0.0.2:10912", "brokerRole": "ASYNC_MASTER"}
    async with pair.slave.broker(), pair.master.broker(**settings) as master:
        while not replication_of(master).ha_service.live_slaves:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        async with pair.master.client() as client:
            assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
    async with pair.master.broker(**settings) as master, scraped(master, pair.net) as monitoring:
        assert replication_of(master).ha_service.live_slaves == 0
        assert await monitoring.readyz() == (200, "ready\n")
        assert replication_of(master).doubt() == ""


@pytest.mark.parametrize("peer", ["10.0.0.2:10911", "10.0.0.9:10912"])
async def test_a_peer_that_nobody_hears_is_a_reason_while_slaves_follow(peer: str, autojump_clock: MockClock) -> None:
    """A slave's listenPort in haPeers, or nobody's address, was ok, and what a crash takes could not be had back."""
    pair = watched_pair()
    pair.master.settings |= {"haPeers": peer}
    async with pair.running() as (master, slave), scraped(master, pair.net) as monitoring, pair.master.client() as one:
        await trio.sleep(45)
        assert judge(await status_of(one)).level == "ok", "it may be just starting"
        await trio.sleep(45)
        verdict = judge(await status_of(one))
        assert (verdict.level, len(verdict.reasons)) == ("degraded", 1)
        assert f"{peer} of haPeers does not show" in verdict.reasons[0]
        assert verdict.reasons[0].endswith(Page.PEER_UNHEARD)
        assert value(await monitoring.scrape(), "rmqha_trouble", kind="peers_unheard") == 1
        slave.stop()
        await trio.sleep(45)
        assert (await status_of(one))["peers_unheard"] == [], "who is away is told by others"


async def test_tables_that_a_peer_has_yet_to_tell_are_a_trouble_at_each_start(autojump_clock: MockClock) -> None:
    """Only the first one finds their files missing."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x"))
    for name in [name for name in machine.disk.files if "/config/" in name]:
        del machine.disk.files[name]
    for number in (1, 2):
        async with (
            machine.broker(haPeers="10.0.0.2:10912") as broker,
            machine.client() as client,
            scraped(broker, machine.net, number=number) as monitoring,
        ):
            await trio.sleep(30)
            assert "10.0.0.2:10912 of haPeers" in (await status_of(client))["lost_tables"]
            assert value(await monitoring.scrape(), "rmqha_trouble", kind="lost_tables") == 1


async def test_a_slaves_lag_grows_until_it_has_caught_up_whether_it_is_connected_or_not(
    autojump_clock: MockClock,
) -> None:
    """It fell to nothing when a silent slave was dropped, and again when it came back."""
    pair = watched_pair()
    async with pair.running() as (master, slave), scraped(master, pair.net) as monitoring, pair.master.client() as one:
        pair.net.cut("10.0.0.2", "10.0.0.1")
        await ask(one, send_request(b"x"))
        lags, connected = list[float](), list[float]()
        for _ in range(12):
            await trio.sleep(5)
            samples = await monitoring.scrape()
            lags.append(value(samples, "rmqha_slave_lag_seconds", slave="broker-a/1"))
            connected.append(value(samples, "rmqha_slave_connected", slave="broker-a/1"))
        assert set(connected) == {0.0, 1.0}, "it was dropped meanwhile"
        assert [round(after - before) for before, after in pairwise(lags)] == [5] * 11
        pair.net.heal()
        while slave.store.flushed_offset < master.store.max_offset:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        await trio.sleep(3)
        assert value(await monitoring.scrape(), "rmqha_slave_lag_seconds", slave="broker-a/1") == 0


async def test_a_slave_is_ready_without_its_master_and_not_when_a_person_has_to_decide(
    autojump_clock: MockClock,
) -> None:
    pair = watched_pair()
    async with pair.slave.broker() as slave, scraped(slave, pair.net) as monitoring:
        await trio.sleep(3)
        assert await monitoring.readyz() == (200, "ready\n")
    lonely = Machine(pair.net, "10.0.0.1", LISTEN)
    lonely.disk = pair.slave.disk
    async with lonely.broker() as broker, lonely.client() as client:
        await ask(client, send_request(b"of another history"))
        assert broker.store.max_offset
    async with pair.master.broker(), pair.slave.broker() as slave, scraped(slave, pair.net) as monitoring:
        await trio.sleep(10)
        status, text = await monitoring.readyz()
        assert (status, "holds more than its master" in text) == (503, True)
        assert value(await monitoring.scrape(), "rmqha_follower_state", state="ahead") == 1


async def test_a_full_disk_is_a_reason(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        broker.store.running_flags.set_disk_full(True)
        status, text = await monitoring.readyz()
        assert (status, "sends are refused" in text, "disk" in text) == (503, True, True)
        assert value(await monitoring.scrape(), "rmqha_writes_refused") == 1


async def test_a_slave_without_room_is_ready_for_consumers_and_says_what_it_lacks(autojump_clock: MockClock) -> None:
    """It was not ready, as it cannot write: consumers were kept from what it serves."""
    pair = watched_pair()
    async with pair.running() as (_, slave), scraped(slave, pair.net) as monitoring, pair.slave.client() as one:
        flags = slave.store.running_flags
        flags.set_disk_full(True)
        status, text = await monitoring.readyz()
        assert (status, text.splitlines()[0]) == (200, "ready")
        assert "goes on by itself when this has passed: the disk is too full" in text
        assert value(await monitoring.scrape(), "rmqha_ready") == 1
        assert (await status_of(one))["ha_client"]["state"] == "disk-full"
        assert judge(await status_of(one)).level == "degraded"
        flags.set_disk_full(False)
        assert await monitoring.readyz() == (200, "ready\n")
        flags.fail(StoreWriteError(OSError(5, "injected"), operation="fdatasync", path="/a"))
        status, text = await monitoring.readyz()
        assert (status, "it cannot write: " in text) == (503, True)
        assert judge(await status_of(one)).level == "failed"


async def test_members_of_a_group(autojump_clock: MockClock) -> None:
    async with group_of(metricsListen="10.8.8.1:9100") as group:
        await group.send(b"x")
        await group.wait_same()
        master = await group.wait_master()
        follower = next(node for node in group.nodes.values() if node is not master)
        async with (
            scraped(master.running, group.net) as leading,
            scraped(follower.running, group.net, number=2) as other,
        ):
            assert (await leading.readyz(), await other.readyz()) == ((200, "ready\n"), (200, "ready\n"))
            samples, told = await leading.scrape(), await other.scrape()
            assert (value(samples, "rmqha_dledger_master"), value(told, "rmqha_dledger_master")) == (1, 0)
            assert value(samples, "rmqha_dledger_member_connected", member=follower.name) == 1
            assert value(samples, "rmqha_dledger_member_lacks_entries", member=follower.name) == 0
            assert value(told, "rmqha_dledger_role", role="FOLLOWER") == 1
            assert value(told, "rmqha_dledger_index", point="committed") >= 0
            for node in group.nodes.values():
                if node is not master:
                    node.kill()
            await group.wait(lambda: not master.is_master)
            await trio.sleep(5)
            status, text = await leading.readyz()
            assert (status, "no leader" in text) == (503, True)
            assert value(await leading.scrape(), "rmqha_dledger_has_leader") == 0


async def test_topics_and_groups_beyond_the_limit_are_summed(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN | {"metricsTopicsMax": "2"})
    async with machine.broker() as broker, machine.client() as client, member_of(machine, "c") as member:
        await member.heartbeat("g")
        for number in range(5):
            await ask(client, send_request(b"x", topic=f"t{number}"))
            for group in ("g1", "g2"):
                await commit(client, 0, group=group, topic=f"t{number}")
        await ask(client, pull_request(0, topic="t4", suspend_ms=1000))
        await trio.sleep(15)
        async with scraped(broker, machine.net) as monitoring:
            samples = await monitoring.scrape()
            assert value(samples, "rocketmq_producer_offset", topic="t0") == 1
            assert value(samples, "rocketmq_producer_offset", topic="(other)") == 3
            assert value(samples, "rocketmq_group_diff", topic="t0", group="g1") == 1
            assert value(samples, "rocketmq_group_diff", topic="(other)", group="(other)") == 8
            assert value(samples, "rmqha_subscriptions") == 10
            assert value(samples, "rmqha_topics") == sum(1 for _ in broker.topics)
            for name in ("rocketmq_producer_offset", "rocketmq_group_diff", "rmqha_topic_messages_total"):
                assert sum(one == name for one, _ in samples) <= 3
            await ask(client, send_request(b"x", topic="t0"))
            await trio.sleep(2)
            assert value(await monitoring.scrape(), "rocketmq_producer_offset", topic="t0") == 1, "not looked at again"
            await trio.sleep(10)
            assert value(await monitoring.scrape(), "rocketmq_producer_offset", topic="t0") == 2


async def test_a_groups_lag_and_its_members(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client, member_of(machine, "c") as member:
        for number in range(4):
            await ask(client, send_request(b"%d" % number))
        await member.heartbeat("g")
        await commit(client, 3, group="g", topic="t")
        await commit(client, 3, group="g", topic="unsubscribed")
        await ask(client, pull_request(3, suspend_ms=1000))
        async with scraped(broker, machine.net) as monitoring:
            samples = await monitoring.scrape()
        assert value(samples, "rocketmq_group_diff", topic="t", group="g") == 1
        assert value(samples, "rocketmq_consumer_offset", topic="t", group="g") == 4
        assert value(samples, "rocketmq_group_consume_total_offset", topic="t", group="g") == 3
        assert value(samples, "rmqha_group_members", topic="t", group="g") == 1


async def test_a_queue_consumed_beyond_its_end_hides_no_lag_of_another(autojump_clock: MockClock) -> None:
    """A queue that was cut ends before the place to which its group has come."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client:
        for queue_id in (0, 0, 0, 1):
            await ask(client, send_request(b"x", queue_id=queue_id))
        await commit(client, 0, group="g", topic="t")
        await commit(client, 5, group="g", topic="t", queue_id=1)
        await trio.sleep(15)  # till they are flushed, and seen
        async with scraped(broker, machine.net) as monitoring:
            samples = await monitoring.scrape()
        assert value(samples, "rocketmq_consumer_offset", topic="t", group="g") == 4
        assert value(samples, "rocketmq_group_consume_total_offset", topic="t", group="g") == 5
        assert value(samples, "rocketmq_group_diff", topic="t", group="g") == 3


async def test_strangers_are_counted_by_port(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        network = machine.net.host("10.7.7.7").mount()
        for port in (10911, 10912):
            stream = await network.connect("10.0.0.1", port, timeout_s=5)
            await stream.send_all(b"GET / HTTP/1.1\r\n\r\n" * 4)
            await trio.sleep(5)
        samples = await monitoring.scrape()
        assert value(samples, "rmqha_refused_peers_total", port="clients", reason="protocol") == 1
        assert sum(number for (name, has), number in samples.items() if ("port", "ha") in has) >= 1


async def test_what_a_full_disk_cost_is_told_by_metric_and_status(autojump_clock: MockClock) -> None:
    """Of a broker on a group, too, whose log the same cleaner deletes."""
    name = "rmqha_unexpired_segments_deleted_total"
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring, machine.client() as client:
        assert value(await monitoring.scrape(), name) == 0
        assert (await status_of(client))["deleted_early"] is None
        broker.store.cleaner.early.note(now=trio.current_time() - 7)
        await trio.sleep(2)
        assert value(await monitoring.scrape(), name) == 1
        assert (await status_of(client))["deleted_early"] == {"segments": 1, "last_s_ago": pytest.approx(9, abs=1)}
    async with group_of(metricsListen="10.8.8.1:9100") as group:
        member = (await group.wait_master()).running
        member.store.cleaner.early.note(now=trio.current_time())
        async with scraped(member, group.net) as monitoring:
            assert value(await monitoring.scrape(), name) == 1


@pytest.mark.parametrize("kind", ["plain_acl.yml", "aclCredentialsPath"])
async def test_accounts_that_could_not_be_read_again_are_a_reason_until_they_can(
    kind: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An account that was taken out sent on, the log alone said why, once, and the next restart failed."""
    home = home_with(tmp_path, "accounts:\n" + account("leaver-app") + account("monitoring", "admin: true"))
    signs = tmp_path / "tools.yml"
    signs.write_text("accessKey: monitoring\nsecretKey: 12345678\n")
    settings = LISTEN | {"aclEnable": "true", "rocketmqHome": home, "aclCredentialsPath": str(signs)}
    path = signs if kind == "aclCredentialsPath" else Path(home) / "conf" / kind
    good = path.read_text()
    machine = Machine(SimNet(), "10.0.0.1", settings | {"allowInsecure": "true"})
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        levels = list[float]()
        for text in (good, "accounts: [", good + "\n"):
            path.write_text(text)
            for _ in range(3):
                if broker.access.permissions is not None:
                    broker.access.permissions.look_again()
            signed = replication_of(broker).master_link.credentials
            assert signed is not None
            signed.sign(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
            await trio.sleep(2)
            levels.append(value(await monitoring.scrape(), "rmqha_trouble", kind="accounts"))
        assert levels == [0, 1, 0]


async def test_certificates_that_could_not_be_read_again_are_a_reason_until_they_can(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log alone had it, once, and the next restart failed."""
    reason = "TLS: /a.key cannot be used: Permission denied"
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring, machine.client() as client:
        assert value(await monitoring.scrape(), "rmqha_trouble", kind="certificates") == 0
        monkeypatch.setattr(certificates._last_reading, "why_kept", reason)
        await trio.sleep(2)
        assert value(await monitoring.scrape(), "rmqha_trouble", kind="certificates") == 1
        verdict = judge(await status_of(client))
    assert verdict.level == "degraded"
    assert any(reason in told and Page.CERTIFICATES in told for told in verdict.reasons)


async def test_a_certificate_that_is_not_valid_yet_is_a_reason(tmp_path: Path, autojump_clock: MockClock) -> None:
    """As where the clock of who made it is ahead: nobody trusts it, and the broker alone takes it for good."""
    path, begins = str(tmp_path / "early.pem"), datetime.now(tz=UTC) + timedelta(days=2, hours=1)
    issued = trustme.CA().issue_cert("a", not_before=begins, not_after=begins + timedelta(days=90))
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    ended = str(tmp_path / "ended.pem")
    years = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    old = trustme.CA().issue_cert("b", not_before=years[0], not_after=years[1])
    old.private_key_and_cert_chain_pem.write_to_path(ended)
    shown = [Certificates(TlsOptions(one, one)) for one in (path, ended)]
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring, machine.client() as client:
        assert value(await monitoring.scrape(), "rmqha_trouble", kind="certificates") == 1
        verdict = judge(facts := await status_of(client))
        begins_in_s = begins.timestamp() - WallClock()() / 1000
        assert facts["early_certificate"]["begins_in_s"] == pytest.approx(begins_in_s, abs=5)
        expires_in_s = years[1].timestamp() - WallClock()() / 1000
        assert facts["certificate"] == {"path": ended, "expires_in_s": pytest.approx(expires_in_s, abs=5)}
        shown.clear()
        gc.collect()
        await trio.sleep(2)
        assert value(await monitoring.scrape(), "rmqha_trouble", kind="certificates") == 0
        facts = await status_of(client)
        assert facts["certificate"] is facts["early_certificate"] is None
    assert verdict.level == "degraded"
    (reason,) = [told for told in verdict.reasons if path in told]
    assert "only: nobody trusts it" in reason
    assert Page.CERTIFICATES in reason
    assert any(f"{ended} ended " in told for told in verdict.reasons), "one does not hide the other"


async def test_a_store_that_failed_for_good_says_that_it_needs_a_restart(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client:
        assert (await status_of(client))["needs_restart"] is False
        broker.store.running_flags.fail(StoreWriteError(OSError(5, "I/O error"), operation="fdatasync", path="/s"))
        assert (await status_of(client))["needs_restart"] is True


async def status_of(client: RemotingClient) -> dict[str, Any]:
    info = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    told: dict[str, Any] = json.loads(json.loads(info.body)["table"]["rmqhaStatus"])
    return told


async def test_a_port_that_is_taken_names_its_key() -> None:
    network = MemoryNetwork()
    await network.listen("10.0.0.1", 9913)
    with pytest.raises(OSError, match=r"metricsListen: .* or change metricsListen"):
        async with open_port(cast("MetricsPort", None), network, listen="10.0.0.1:9913"):
            pass
