"""A master and a slave: SEND_OK means the slave has it, and the slave serves when the master is gone."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.main import exit_code_of
from rmqha.cli.pages import Page
from rmqha.cli.verdict import judge
from rmqha.client import Message, SendStatus, open_producer
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transfer import encode_report
from rmqha.errors import DivergedLogError, StoreWriteError
from rmqha.exit_codes import EXIT_OK, EXIT_REPLICATION_ENDED, EXIT_STORE_FAILED
from rmqha.ha import ha_client
from rmqha.ha.runtime_info import ClientState
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import (
    UNSET,
    Machine,
    ask,
    ha_client_of,
    pull_request,
    replication_of,
    send_request,
    status_of,
)
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

SLAVE = {
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "haMasterAddress": "10.0.0.1:10912",
    "masterAddress": "10.0.0.1:10911",
}


class Pair:
    def __init__(self, net: SimNet | None = None) -> None:
        self.net = net or SimNet()
        self.master = Machine(self.net, "10.0.0.1", {"brokerRole": "SYNC_MASTER"})
        self.slave = Machine(self.net, "10.0.0.2", SLAVE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[BrokerController, BrokerController]]:
        async with self.master.broker() as master, self.slave.broker() as slave:
            while not replication_of(master).ha_service.is_slave_ok(master.store.max_offset):  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            yield master, slave


@pytest.fixture
def pair() -> Pair:
    return Pair()


async def status(client: RemotingClient) -> dict[str, object]:
    info = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    document: dict[str, object] = json.loads(json.loads(info.body)["table"]["rmqhaStatus"])
    return document


async def test_a_master_tells_that_a_slave_has_no_room(pair: Pair, virtual_clock: VirtualClock) -> None:
    """Of one that follows and cannot make its next file it guessed that its process was stopped."""

    async def check(client: RemotingClient) -> None:
        (told,) = [one for one in judge(await status(client)).reasons if "10.0.0.2:10911 (broker-a/1)" in one]
        assert "takes nothing, and says why: " in told
        assert told.endswith(Page.SLAVE_FULL)

    async with pair.slave.broker() as slave:
        async with pair.master.broker(), pair.master.client() as client:
            await trio.sleep(15)
            pair.slave.disk.faults.full = True
            for number in range(40):
                await ask(client, send_request(b"x" * 4000, queue_id=number % 4))
            await trio.sleep(30)
            await check(client)
            assert ha_client_of(slave).info().state is ClientState.DISK_FULL
        connections = ha_client_of(slave).info().connections
        async with pair.master.broker() as master, pair.master.client() as client:
            await trio.sleep(30)
            await check(client)
            assert replication_of(master).ha_service.live_slaves == 0
            assert ha_client_of(slave).info().connections == connections
            async with pair.slave.client() as slave_client:
                assert any(reason.endswith(Page.SLAVE_FULL) for reason in judge(await status(slave_client)).reasons)
            pair.slave.disk.faults.full = False
            await trio.sleep(30)
            assert judge(await status(client)).level == "ok"


async def test_a_master_tells_that_a_slaves_disk_has_failed(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.running() as (_, slave), pair.master.client() as client:
        slave.store.running_flags.fail(StoreWriteError(OSError(5, "injected"), operation="fdatasync", path="/a"))
        await ask(client, send_request(b"x"))
        await trio.sleep(30)
        assert ha_client_of(slave).info().state is ClientState.FAILED
        (told,) = [one for one in judge(await status(client)).reasons if "10.0.0.2:10911 (broker-a/1)" in one]
        assert "the store is not writable: fdatasync failed on /a: injected" in told


def log_of(machine: Machine) -> dict[str, bytes]:
    return {path: bytes(inode.cache) for path, inode in machine.disk.files.items() if "/commitlog/" in path}


async def test_send_ok_means_the_slave_has_it_on_its_disk(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.running() as (master, slave), pair.master.client() as client:
        for number in range(20):
            answer = await ask(client, send_request(b"%d" % number))
            assert answer.code == ResponseCode.SUCCESS
            assert slave.store.flushed_offset == master.store.max_offset
    assert log_of(pair.slave) == log_of(pair.master)


async def test_without_a_slave_the_message_is_stored_and_says_so(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.master.broker(), pair.master.client() as client:
        assert (await ask(client, send_request(b"alone"))).code == ResponseCode.SLAVE_NOT_AVAILABLE
        answer = await ask(client, pull_request(0, suspend_ms=5_000))
        assert decode_message(answer.body).body == b"alone"


async def test_a_slave_that_stops_answering_costs_exactly_the_slave_timeout(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    async with pair.running(), pair.master.client() as client:
        pair.net.cut("10.0.0.2", "10.0.0.1")
        started = trio.current_time()
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert 3.0 <= trio.current_time() - started < 3.1
        pair.net.heal()


async def test_cleaning_spares_what_a_connected_slave_has_not_acknowledged(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    async with pair.running() as (master, _), pair.master.client() as client:
        await ask(client, send_request(b"x"))
        acknowledged = master.store.max_offset
        await trio.sleep(1)
        pair.net.cut("10.0.0.2", "10.0.0.1")
        await ask(client, send_request(b"x"))
        assert master.replication.kept_from() == acknowledged < master.store.max_offset
        await trio.sleep(60)
        assert master.replication.kept_from() == master.store.max_offset, "nobody is connected"
        pair.net.heal()


async def test_a_client_that_takes_no_answers_holds_nobody_up(virtual_clock: VirtualClock) -> None:
    """#1879: the answers of one client blocked the service that answers all. Here three do not read, two leave."""
    pair = Pair(SimNet(capacity=2_000))
    async with pair.running() as (master, _), pair.master.client() as client, trio.open_nursery() as nursery:
        streams = []
        for number in range(5):
            network = pair.net.host(f"10.9.8.{number}").mount()
            streams.append(await network.connect("10.0.0.1", 10911, timeout_s=1))
            nursery.start_soon(streams[-1].send_all, send_request(b"x").encode() * 100)
        await trio.sleep(1)
        pair.net.cut("10.0.0.2", "10.0.0.1")
        leaving = [
            await pair.net.host(f"10.9.7.{number}").mount().connect("10.0.0.1", 10911, timeout_s=1) for number in (1, 2)
        ]
        for stream in leaving:
            await stream.send_all(send_request(b"x").encode() * 5)
        await trio.sleep(0.5)
        for stream in leaving:
            stream.close()
        await trio.sleep(0.5)
        assert replication_of(master).ha_service.group_transfer.acked.waiting > 0, "they are gone before their answers"
        pair.net.heal()
        for _ in range(20):
            started = trio.current_time()
            assert (await ask(client, send_request(b"y"))).code == ResponseCode.SUCCESS
            assert trio.current_time() - started < 0.1
        assert replication_of(master).ha_service.group_transfer.acked.waiting == 0
        assert master.store.max_offset > 500 * 100, "theirs were stored too"
        nursery.cancel_scope.cancel()


async def test_the_slave_serves_what_was_acknowledged_when_the_master_is_gone(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    async with pair.slave.broker():
        async with pair.master.broker() as master, pair.master.client() as client:
            while not replication_of(master).ha_service.is_slave_ok(0):  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            for number in range(5):
                await ask(client, send_request(b"%d" % number))
        async with pair.slave.client() as client:
            answer = await ask(client, pull_request(0))
            assert answer.code == ResponseCode.SUCCESS
            assert decode_message(answer.body).body == b"0"
            refused = await ask(client, send_request(b"x"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            beyond = await ask(client, pull_request(99))
            assert (beyond.code, beyond.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "99")


async def test_topics_and_consumer_offsets_reach_the_slave(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.running() as (_, slave), pair.master.client() as client:
        await ask(client, send_request(b"x", topic="travels", d="7"))
        commit = {"consumerGroup": "g", "topic": "travels", "queueId": "0", "commitOffset": "1"}
        await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
        slave.offsets.commit_offset("g", "other", 0, offset=5)
        await trio.sleep(15)
        topic = slave.topics.select("travels")
        assert topic is not None
        assert topic.write_queue_nums == 7
        assert slave.offsets.query_offset("g", "travels", 0) == 1
        assert slave.offsets.query_offset("g", "other", 0) == 5


async def test_a_returning_master_takes_no_consumer_back(pair: Pair, virtual_clock: VirtualClock) -> None:
    """#1094: while the master was away consumers went on at the slave; its return costs them nothing there."""

    async def commit(client: RemotingClient, offset: int) -> None:
        fields = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": str(offset)}
        answer = await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields))
        assert answer.code == ResponseCode.SUCCESS

    async with pair.slave.broker() as slave, pair.slave.client() as slave_client:
        async with pair.master.broker() as master, pair.master.client() as client:
            while not replication_of(master).ha_service.is_slave_ok(0):  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            for number in range(9):
                await ask(client, send_request(b"%d" % number))
            await commit(client, 5)
            await trio.sleep(15)
            assert slave.offsets.query_offset("g", "t", 0) == 5
        await commit(slave_client, 9)
        async with pair.master.broker() as master:
            assert master.offsets.query_offset("g", "t", 0) == 5
            await trio.sleep(300)
            assert slave.offsets.query_offset("g", "t", 0) == 9
            master.offsets.commit_offset("g", "t", 0, offset=10)
            await trio.sleep(15)
            assert slave.offsets.query_offset("g", "t", 0) == 10, "it was connected, and a newer one does come"


async def test_a_slave_needs_no_port_but_the_masters_own(pair: Pair, virtual_clock: VirtualClock) -> None:
    """#2819: RocketMQ's slaves ask for topics on listenPort - 2, which firewalls forget."""
    async with pair.running() as (_, slave), pair.master.client() as client:
        pair.net.listeners.pop(("10.0.0.1", 10909))
        await ask(client, send_request(b"x", topic="travels", d="7"))
        await trio.sleep(15)
        topic = slave.topics.select("travels")
        assert topic is not None
        assert topic.write_queue_nums == 7


@pytest.mark.parametrize(
    ("role", "status", "after_s"),
    [
        ("SYNC_MASTER", SendStatus.FLUSH_SLAVE_TIMEOUT, 3.0),
        ("ASYNC_MASTER", SendStatus.FLUSH_DISK_TIMEOUT, 5.0),
    ],
)
async def test_the_default_client_is_told_the_status_before_it_gives_up(
    pair: Pair, role: str, status: SendStatus, after_s: float, virtual_clock: VirtualClock
) -> None:
    """#5657: by default the broker waits up to 5 s for its disk and 3 s for its slave, and RocketMQ's client 3 s."""
    pair.master.settings |= {"flushDiskType": "SYNC_FLUSH", "brokerRole": role}
    network = pair.net.host("10.9.9.200").mount()
    async with pair.running(), open_producer("10.0.0.1:10911", network=network) as producer:
        assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK
        started = trio.current_time()
        if role == "SYNC_MASTER":
            pair.net.cut("10.0.0.2", "10.0.0.1")
        else:
            pair.master.disk.faults.slowness = 1e6  # the device never answers
        assert (await producer.send(Message("t", b"x"))).status is status
        assert after_s <= trio.current_time() - started < after_s + 0.1
        pair.net.heal()
        pair.master.disk.faults.heal()


async def test_a_slave_that_has_only_the_log_says_so(pair: Pair, virtual_clock: VirtualClock) -> None:
    """As behind a firewall that knows only the HA port: it was called ok, and had no offsets when it was needed."""
    async with pair.running(), pair.master.client() as client, pair.slave.client() as slave_client:
        listener = pair.net.listeners.pop(("10.0.0.1", 10911))
        await ask(client, send_request(b"x"))
        await trio.sleep(20)
        verdict = judge(await status(slave_client))
        assert (verdict.level, verdict.in_sync) == ("degraded", False), verdict
        assert [reason.partition(":")[0] for reason in verdict.reasons] == [
            "topics, groups and consumers' offsets are not up to date",
            "it should not be made master",
        ]
        pair.net.listeners["10.0.0.1", 10911] = listener
        await trio.sleep(20)
        assert judge(await status(slave_client)).level == "ok"


async def test_a_slave_that_had_the_tables_says_that_they_are_not_the_newest(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    """It said that they were not taken over, a moment after its master had gone."""
    async with pair.slave.broker(), pair.slave.client() as slave_client:
        async with pair.master.broker():
            await trio.sleep(20)
            assert judge(await status(slave_client)).level == "ok"
        await trio.sleep(20)
        reasons = judge(await status(slave_client)).reasons
    outdated = "topics, groups and consumers' offsets are not up to date:"
    assert [reason.startswith(outdated) for reason in reasons] == [False, True]


@pytest.mark.parametrize("master_address", ["10.0.0.1:10911", UNSET])
async def test_a_slave_is_in_sync_once_it_has_its_masters_tables(
    master_address: str, pair: Pair, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """It was before, for three seconds, and for ever without masterAddress: it could not give its master them back."""
    monkeypatch.setattr(ha_client, "_BEGIN_KNOWN_WITHIN_S", 0.0)  # else it has no log either
    pair.slave.settings = SLAVE | {"masterAddress": master_address}
    async with pair.master.broker() as master, pair.master.client() as client:
        await ask(client, send_request(b"x"))
        listener = pair.net.listeners.pop(("10.0.0.1", 10911))
        async with pair.slave.broker() as slave, pair.slave.client() as slave_client:
            await trio.sleep(0.5)  # where queues end is asked for a second after the start
            assert slave.store.max_offset == master.store.max_offset
            verdict = judge(await status(slave_client))
            assert (verdict.level, verdict.in_sync) == ("degraded", False), verdict
            assert [reason.partition(":")[0] for reason in verdict.reasons] == [
                "topics, groups and consumers' offsets were not taken over"
            ]
            await trio.sleep(3)
            assert not judge(await status(slave_client)).in_sync
            pair.net.listeners["10.0.0.1", 10911] = listener
            with trio.fail_after(3.5):  # and not 10 s, as later
                while not judge(await status(slave_client)).in_sync:  # noqa: ASYNC110 - as an operator asks
                    await trio.sleep(0.1)
            assert slave.topics.to_json()["topicConfigTable"] == master.topics.to_json()["topicConfigTable"]


async def test_tables_are_asked_for_as_soon_as_the_logs_are_joined(pair: Pair, virtual_clock: VirtualClock) -> None:
    """RocketMQ's slaves wait for three seconds; who lost its master before could not give it its tables back."""
    async with pair.master.broker() as master, pair.master.client() as client:
        await ask(client, send_request(b"x"))
        async with pair.slave.broker(), pair.slave.client() as slave_client:
            with trio.fail_after(0.5):
                while not judge(await status(slave_client)).in_sync:  # noqa: ASYNC110 - as an operator asks
                    await trio.sleep(0.01)
        async with pair.slave.broker() as slave:
            await trio.sleep(0.5)
            master.topics.create_topic_in_send_message_back_method("new", queue_nums=3)
            await trio.sleep(9)
            assert slave.topics.select("new") is None, "they were asked for half a second after the start"
            await trio.sleep(1)
            assert slave.topics.select("new") is not None


async def test_status_judges_both_sides(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.running(), pair.master.client() as client, pair.slave.client() as slave_client:
        await ask(client, send_request(b"x"))
        verdict = judge(await status(client))
        assert (verdict.level, verdict.in_sync) == ("ok", True), verdict
        await trio.sleep(1)
        assert judge(await status(slave_client)).level == "ok"
    async with pair.master.broker(), pair.master.client() as client:
        assert judge(await status(client)).level == "degraded"


@pytest.mark.parametrize("master_address", ["10.0.0.1:10911", UNSET])
async def test_a_slave_that_is_gone_stays_in_its_masters_status_by_name(
    master_address: str, pair: Pair, virtual_clock: VirtualClock
) -> None:
    with capture_logs() as logs:
        async with pair.master.broker() as master, pair.master.client() as client:
            async with pair.slave.broker(masterAddress=master_address):
                await trio.sleep(1)
                (there,) = replication_of(master).ha_service.info().connections
                assert there.name == "broker-a/1"
            await trio.sleep(2)
            assert (await ask(client, send_request(b"x"))).code == ResponseCode.SLAVE_NOT_AVAILABLE
            reasons = " ".join(judge(await status(client)).reasons)
            assert "(broker-a/1) left 2 s ago: " in reasons
            async with pair.slave.broker(masterAddress=master_address):
                await trio.sleep(5)
                assert judge(await status(client)).level == "ok"
                assert replication_of(master).ha_service.info().departed == ()
    told = [entry for entry in logs if entry["event"] in ("ha_service.in_sync", "ha_service.not_in_sync")]
    assert [entry["log_level"] for entry in told] == ["info", "warning"] * 2
    assert (told[1]["name"], told[2]["answers_not_send_ok"]) == ("broker-a/1", 1)


async def test_what_no_slave_took_is_seen_once_it_is_flushed(pair: Pair, virtual_clock: VirtualClock) -> None:
    """With ASYNC_FLUSH after 10 s at most, or at once when somebody asks for what the queue has."""
    ends = RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "t", "queueId": "0"})
    async with pair.master.broker(flushDiskType="ASYNC_FLUSH") as master, pair.master.client() as client:
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SLAVE_NOT_AVAILABLE
        await trio.sleep(0.4)
        assert master.store.get_max_offset_in_queue("t", 0) == 0
        await trio.sleep(10.5)
        assert master.store.get_max_offset_in_queue("t", 0) == 1
        await ask(client, send_request(b"x"))
        assert (await ask(client, ends)).ext_fields["offset"] == "2"
        await ask(client, send_request(b"x"))
        assert (await ask(client, pull_request(2))).code == ResponseCode.SUCCESS
        await ask(client, send_request(b"y"))
        sent_at = trio.current_time()
        assert (await ask(client, pull_request(3, suspend_ms=15_000))).code == ResponseCode.SUCCESS
        assert trio.current_time() - sent_at < 1


async def lose_the_masters_tail(pair: Pair) -> int:
    """Send five messages to both, then put the master's disk back to an older state; returns the slave's end."""
    async with pair.running() as (master, _), pair.master.client() as client:
        await ask(client, send_request(b"kept"))
        end = master.store.max_offset
        before = {path: bytes(inode.cache) for path, inode in pair.master.disk.files.items()}
        for number in range(4):
            await ask(client, send_request(b"%d" % number))
        longer = master.store.max_offset
    for path in list(pair.master.disk.files):
        if path not in before:
            del pair.master.disk.files[path]
            continue
        inode = pair.master.disk.files[path]
        inode.cache[:], inode.durable[:] = before[path], before[path]
    assert end < longer
    return longer


async def test_a_slave_ahead_is_recognised_and_acknowledges_nothing(pair: Pair, virtual_clock: VirtualClock) -> None:
    longer = await lose_the_masters_tail(pair)
    async with pair.slave.broker() as slave, pair.master.broker() as master, pair.master.client() as client:
        await trio.sleep(10)
        assert [one.reason for one in replication_of(master).ha_service.info().refused] == ["slave-ahead"], (
            "its status tells"
        )
        assert (await ask(client, send_request(b"new"))).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert slave.store.max_offset == longer
        assert ha_client_of(slave).info().state.value == "ahead"


async def test_a_slave_ahead_keeps_its_own_tables(pair: Pair, virtual_clock: VirtualClock) -> None:
    """Its messages are of topics, and were consumed by groups, of which that master knows nothing any more."""
    await lose_the_masters_tail(pair)
    async with pair.slave.broker() as slave, pair.master.broker() as master, pair.master.client() as client:
        for table in (master.topics, slave.topics):
            table.create_topic_in_send_message_back_method("before", queue_nums=3)
        await trio.sleep(1)
        assert ha_client_of(slave).info().state.value == "ahead"
        await ask(client, send_request(b"new", topic="after"))
        master.topics.delete_topic_config("before", {}, before=0)
        await trio.sleep(60)
        assert ha_client_of(slave).info().state.value == "ahead"
        assert [slave.topics.select(name) is not None for name in ("before", "after")] == [True, False]


async def test_a_returning_master_takes_its_tail_back_before_it_accepts_sends(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    longer = await lose_the_masters_tail(pair)
    async with pair.slave.broker(), pair.master.broker(haPeers="10.0.0.2:10912") as master:
        assert master.store.max_offset == longer
        await trio.sleep(0.1)  # and dispatched
        async with pair.master.client() as client:
            answer = await ask(client, pull_request(0))
            assert decode_message(answer.body).body == b"kept"
            assert answer.ext_fields["maxOffset"] == "5"
            await trio.sleep(10)
            assert (await ask(client, send_request(b"new"))).code == ResponseCode.SUCCESS


async def test_a_slave_that_comes_back_with_more_is_asked_when_it_says_so(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    """haCatchUpAtStart=try does not wait for who is away: ten seconds of sends took the places of acknowledged ones."""
    longer = await lose_the_masters_tail(pair)
    async with pair.master.broker(haPeers="10.0.0.2:10912") as master, pair.master.client() as client:
        await trio.sleep(1)
        async with pair.slave.broker():
            await trio.sleep(0.2)
            assert master.store.max_offset == longer
            await trio.sleep(5)
            assert (await ask(client, send_request(b"new"))).code == ResponseCode.SUCCESS


async def test_a_master_too_full_to_take_its_tail_back_takes_nothing_else_before_it(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    longer = await lose_the_masters_tail(pair)
    pair.master.disk.faults.crowded = True
    async with pair.slave.broker() as slave, pair.master.broker(haPeers="10.0.0.2:10912") as master:
        async with pair.master.client() as client:
            assert decode_message((await ask(client, pull_request(0))).body).body == b"kept"
            master.store.running_flags.set_disk_full(False)  # the moment before it asks again
            refused = await ask(client, send_request(b"new"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "10.0.0.2:10912 holds messages beyond this log's end" in (refused.remark or "")
            assert "nothing can be taken here: the disk is too full" in (refused.remark or "")
            pair.master.disk.faults.heal()
            await trio.sleep(60)
            assert (await ask(client, send_request(b"new"))).code == ResponseCode.SUCCESS
            await trio.sleep(10)
        assert slave.store.max_offset == master.store.max_offset > longer
        queue = master.store.queues.find("t", 0)
        assert queue is not None
        assert queue.max_offset_in_queue == 6, "the five that were, and the new one"


async def test_what_was_consumed_of_the_tail_stays_consumed(pair: Pair, virtual_clock: VirtualClock) -> None:
    """A master cuts consumer offsets beyond its log, but not those that its peers gave it back the messages for."""
    await lose_the_masters_tail(pair)
    table = b'{"offsetTable":{"t@g":{0:5},"t@h":{0:6}}}'
    pair.master.disk.mount().replace_bytes("/store/config/consumerOffset.json", table)
    async with pair.slave.broker(), pair.master.broker(haPeers="10.0.0.2:10912") as master:
        assert master.offsets.query_offset("g", "t", 0) == 5
        assert master.offsets.query_offset("h", "t", 0) == 5, "of five messages"


async def test_a_master_that_must_ask_its_peers_takes_no_sends_without_them(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    """It serves readers meanwhile, and its status says what it waits for."""
    longer = await lose_the_masters_tail(pair)
    required = {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "require"}
    async with pair.master.broker(**required) as master, pair.master.client() as client:
        await trio.sleep(100)
        assert decode_message((await ask(client, pull_request(0))).body).body == b"kept"
        refused = await ask(client, send_request(b"new"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "10.0.0.2:10912" in (refused.remark or "")
        verdict = judge(await status(client))
        assert (verdict.level, "require: 0 peers of haPeers" in verdict.reasons[0]) == ("failed", True)
        answer = await ask(client, pull_request(5))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "5"), (
            "a consumer of the tail is not sent back: it comes again"
        )
        async with pair.slave.broker():
            await trio.sleep(20)
            assert (await ask(client, send_request(b"new"))).code == ResponseCode.SUCCESS
        assert (await ask(client, pull_request(9))).code == ResponseCode.PULL_OFFSET_MOVED
        assert master.store.max_offset > longer
        assert judge(await status(client)).level == "degraded"


async def test_a_slave_asks_nobody(pair: Pair, virtual_clock: VirtualClock) -> None:
    required = {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "require"}
    async with pair.slave.broker(**required) as slave, pair.master.broker(**required) as master:
        await trio.sleep(20)
        assert master.store.refusal() == ""
        assert replication_of(slave).catch_up.opened.is_set()


async def test_a_master_that_asks_its_peers_can_be_stopped_meanwhile(pair: Pair, virtual_clock: VirtualClock) -> None:
    """However much it has to fetch; and nobody is served before it has asked."""
    pair.net.cut("10.0.0.2", "10.0.0.1")
    with capture_logs() as logs:
        async with pair.slave.broker():
            master = pair.master.controller(haPeers="10.0.0.2:10912", haCatchUpAtStart="require")
            with trio.fail_after(0.2):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(master.run)
                    await trio.sleep(0.1)
                    master.stop()
    assert "/store/abort" not in pair.master.disk.files
    assert [entry["role"] for entry in logs if entry["event"] == "broker.started"] == ["SLAVE"]


async def diverge(pair: Pair) -> None:
    for machine, body in ((pair.master, b"mine"), (pair.slave, b"ours")):
        alone = machine.broker(brokerRole="ASYNC_MASTER", brokerId="0", haMasterAddress="", masterAddress="")
        async with alone, machine.client() as client:
            await ask(client, send_request(body))
            await ask(client, send_request(body))


async def test_replication_that_ended_for_good_is_an_exit_code(pair: Pair, virtual_clock: VirtualClock) -> None:
    await diverge(pair)
    async with pair.master.broker() as master, pair.slave.broker() as slave:
        await trio.sleep(10)
    assert exit_code_of(master) == EXIT_OK
    assert exit_code_of(slave) == EXIT_REPLICATION_ENDED
    assert "diverged log at physical offset 8" in str(ha_client_of(slave).final_error)


async def test_a_master_whose_sends_wait_for_nobody_is_told_that_its_slave_has_diverged(
    pair: Pair, virtual_clock: VirtualClock
) -> None:
    """It was "ok", without haPeers: the slave that would take over from it had stopped for good."""
    await diverge(pair)
    with capture_logs() as logs:
        async with pair.master.broker(brokerRole="ASYNC_MASTER"), pair.slave.broker() as slave:
            await trio.sleep(30)
            assert ha_client_of(slave).final_error is not None
            verdict = judge(await status_of(pair.master))
    (line,) = [line for line in logs if line["event"] == "group.slave_takes_nothing"]
    assert line["reason"] == str(ha_client_of(slave).final_error)
    assert verdict.level == "degraded"
    assert any("diverged log at physical offset 8" in told and Page.DIVERGED in told for told in verdict.reasons)


async def test_a_slave_that_only_waits_for_its_master_ends_in_order(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.slave.broker() as slave:
        await trio.sleep(10)
    assert exit_code_of(slave) == EXIT_OK


async def test_a_failed_disk_tells_more_than_the_replication_it_ended(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.running() as (_, slave), pair.master.client() as client:
        pair.slave.disk.faults.sync_errors = 1
        await ask(client, send_request(b"1"))
    assert ha_client_of(slave).final_error is not None
    assert exit_code_of(slave) == EXIT_STORE_FAILED


async def test_a_peer_with_other_bytes_stops_the_start(pair: Pair, virtual_clock: VirtualClock) -> None:
    await diverge(pair)
    async with pair.slave.broker():
        with pytest.RaisesGroup(DivergedLogError, allow_unwrapped=True, flatten_subgroups=True):
            async with pair.master.broker(haPeers="10.0.0.2:10912"):
                pass


async def test_a_slave_keeps_what_was_consumed_beyond_its_log(pair: Pair, virtual_clock: VirtualClock) -> None:
    """The rest of the log may still come; only a master's log is known to be all there is."""
    async with pair.slave.broker() as slave:
        slave.offsets.commit_offset("g", "t", 0, offset=100)
    async with pair.slave.broker() as slave:
        assert slave.offsets.query_offset("g", "t", 0) == 100


async def test_a_slave_that_holds_nothing_yet_needs_all_of_the_log(pair: Pair, virtual_clock: VirtualClock) -> None:
    async with pair.master.broker() as master, pair.master.client() as client:
        await ask(client, send_request(b"x"))
        assert master.replication.kept_from() == master.store.max_offset
        stream = await pair.net.host("10.0.0.2").mount().connect("10.0.0.1", 10912, timeout_s=1)
        await stream.send_all(encode_report(0))
        await trio.sleep(1)
        assert master.replication.kept_from() == 0
