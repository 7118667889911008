"""What a broker on a DLedger group does while it is not master: whom it follows, what it keeps, how it stops."""

from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
import trio

from rmqha.broker.dledger.dledger_tables import DLedgerTables
from rmqha.broker.master_link import MasterLink
from rmqha.broker.name_servers import NameServers
from rmqha.broker.tables.queue_ends_client import QueueEndsClient
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.cli.verdict import Verdict, judge
from rmqha.codec.codes import ResponseCode
from rmqha.codec.dledger_properties import decode_check_point
from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.dledger.dledger_client import DLedgerClient
from rmqha.dledger.dledger_commit_log import DLedgerCommitLog
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.errors import RemoteProtocolError
from rmqha.metrics.readiness import what_passes, why_not_ready
from rmqha.remoting.client import RemotingClient, open_remoting_client
from tests.broker.dledger_brokers import BrokerGroup, Node
from tests.broker.machines import send_request
from tests.broker.test_dledger_broker import asked, bodies, group_of
from tests.broker.test_pair import status
from tests.sim.sim_clock import VirtualClock

SOON_S = 3


def ledger_of(node: Node) -> DLedgerMmapFileStore:
    log: Any = node.running.store.commit_log
    assert isinstance(log, DLedgerCommitLog)
    return log.ledger


async def judged(node: Node) -> Verdict:
    """As `rmqha status` says of its broker."""
    network = node.group.net.host(f"10.8.8.{len(node.group.net.hosts)}").mount()
    async with open_remoting_client(network, f"{node.group.addresses[node.name]}:10911") as client:
        return judge(await status(client))


async def followers_of(group: BrokerGroup) -> list[Node]:
    """Once they know who is master."""
    followers = [node for node in group.nodes.values() if node is not group.nodes[group.masters[0]]]
    await group.wait(lambda: all(node.running.role.master for node in followers))
    return followers


async def test_a_follower_whose_disk_is_full_stores_nothing_until_it_has_room(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(b"0")
        follower = (await followers_of(group))[0]
        follower.disk.faults.crowded = True
        await group.wait(lambda: ledger_of(follower).room.refusal != "")
        end = ledger_of(follower).ledger_end_index
        await group.send(*bodies(10))
        await group.wait(lambda: follower.replication.facts()["dledger"]["lacks"] == 10)
        assert ledger_of(follower).ledger_end_index == end
        follower.disk.faults.crowded = False
        await group.wait_same()
        assert follower.replication.facts()["dledger"]["lacks"] == 0


async def test_a_follower_without_room_serves_what_it_holds(virtual_clock: VirtualClock) -> None:
    """As a slave: it was "failed", though nobody has to do more than make room, and ready."""
    async with group_of() as group:
        await group.send(b"0")
        follower = (await followers_of(group))[0]
        await trio.sleep(SOON_S)
        assert (await judged(follower)).level == "ok"
        assert what_passes(follower.running) == []
        follower.disk.faults.crowded = True
        await group.wait(lambda: ledger_of(follower).room.refusal != "")
        for reason in [*(await judged(follower)).reasons, *what_passes(follower.running)]:
            assert reason.startswith("it serves what it holds, and goes on by itself when this has passed: the ")
        assert (await judged(follower)).level == "degraded"
        assert why_not_ready(follower.running) == []
        assert len(what_passes(follower.running)) == 1
        follower.disk.faults.crowded = False
        await group.wait(lambda: ledger_of(follower).room.refusal == "")
        assert (await judged(follower)).level == "ok"


async def test_who_has_no_leader_says_so_and_lacks_nothing_that_it_knows_of(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(b"0")
        alone, other = await followers_of(group)
        assert "a slave" in alone.replication.refusal()
        alone.disk.faults.crowded = True
        await group.wait(lambda: ledger_of(alone).room.refusal != "")
        await group.send(*bodies(10))
        await group.wait(lambda: alone.replication.facts()["dledger"]["lacks"] == 10)
        for node in (other, await group.wait_master()):
            node.kill()
        await group.wait(lambda: alone.replication.facts()["role"] == "CANDIDATE")
        assert alone.replication.refusal() == "the group has no leader yet: try again"
        assert alone.replication.facts()["dledger"]["lacks"] == 0


async def test_another_leader_is_followed_though_there_was_one_all_the_time(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(b"0")
        one, other = await followers_of(group)
        state = ledger_of(one).member_state
        state.curr_term += 1
        state.change_to_follower(state.curr_term, other.name)
        one.replication.on_role()
        assert (one.running.role.term, one.running.role.master) == (state.curr_term, "")
        address = f"{group.addresses[other.name]}:10911"
        await group.wait(lambda: one.running.role.master == address or not state.is_follower, limit_s=SOON_S)
        assert one.running.role.master == address


async def test_who_finds_a_leader_too_late_does_not_follow_it(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, found = DLedgerTables.find_broker, trio.Event()

    async def find_slowly(tables: DLedgerTables, leader_id: str) -> str:
        address = await find(tables, leader_id)
        if not found.is_set():
            found.set()
            with trio.CancelScope(shield=True):
                await trio.sleep(10)
        return address

    async with group_of() as group:
        await group.send(b"0")
        former = await group.wait_master()
        late = (await followers_of(group))[0]
        await late.stop()
        monkeypatch.setattr(DLedgerTables, "find_broker", find_slowly)
        await late.start()
        await found.wait()
        seen = list[str]()
        late.running.role.subscribe(lambda: seen.append(late.running.role.master))
        former.kill()
        await trio.sleep(15)
        await group.wait_master()
        assert f"{group.addresses[former.name]}:10911" not in seen


async def test_a_name_server_that_names_a_former_master_is_not_believed(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader of RocketMQ's does not say where its broker is."""
    metadata, seen = DLedgerClient.metadata, list[str]()

    async def as_rocketmq(client: DLedgerClient, member_id: str, *, timeout_s: float) -> MetadataResponse:
        return replace(await metadata(client, member_id, timeout_s=timeout_s), rmqha_status=None)

    async with group_of() as group:
        await group.send(b"0")
        master, node = await group.wait_master(), (await followers_of(group))[0]
        right = f"{group.addresses[master.name]}:10911"
        named = chain(["", "10.0.0.9:10911"], repeat(right))

        async def find_master(_names: NameServers) -> str:
            return next(named)

        async def is_member(_link: MasterLink, address: str, self_id: str, group_name: str) -> bool:
            assert (self_id, group_name) == (master.name, "g")
            return address == right

        await node.stop()
        monkeypatch.setattr(DLedgerClient, "metadata", as_rocketmq)
        monkeypatch.setattr(NameServers, "find_master", find_master)
        monkeypatch.setattr(MasterLink, "is_member", is_member)
        await node.start()
        node.running.role.subscribe(lambda: seen.append(node.running.role.master))
        await group.wait(lambda: node.running.role.master != "")
        assert set(seen) <= {"", right}


async def test_followers_learn_where_queues_ended_whose_messages_are_gone(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(b"0")
        master, late = await group.wait_master(), (await followers_of(group))[0]
        await late.stop()
        master.running.queue_ends.learn({("gone", 0): 7})
        await late.start()
        await group.wait(lambda: ("gone", 0) in set(late.running.queue_ends), limit_s=SOON_S)
        table = await late.running.queue_ends.to_json_in_turns()
        assert table["queueEnds"]["gone"] == {0: 7}


async def test_a_log_that_begins_anew_while_its_leader_is_asked_where_queues_ended_asks_again(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was about what lay before the old beginning: places in queues would be given a second time."""
    run, asked = QueueEndsClient.run, list[QueueEndsClient]()
    async with group_of() as group:
        await group.send(b"0")
        late = (await followers_of(group))[0]
        await trio.sleep(SOON_S)  # the other follower has asked
        await late.stop()

        async def run_meanwhile(ends: QueueEndsClient) -> None:
            asked.append(ends)
            await run(ends)
            if len(asked) == 1:
                log: Any = late.running.store.commit_log
                log.beginnings += 1

        monkeypatch.setattr(QueueEndsClient, "run", run_meanwhile)
        await late.start()
        await group.wait(lambda: len(asked) > 1, limit_s=SOON_S)


async def test_a_follower_says_what_it_could_not_get_from_its_leader_s_broker(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replicates all the same, and may be the next leader: consumers would begin anew."""
    check_group, is_reached = MasterLink.check_group, False

    async def check_if_reached(link: MasterLink, client: RemotingClient) -> TablesOrigin:
        if not is_reached:
            raise RemoteProtocolError("not reached")
        return await check_group(link, client)

    async with group_of() as group:
        await group.send(b"0")
        late = (await followers_of(group))[0]
        await late.stop()
        monkeypatch.setattr(MasterLink, "check_group", check_if_reached)
        await late.start()
        await group.wait(lambda: len(late.replication.facts()["not_learned"]) == 2, limit_s=SOON_S)
        for told in late.replication.facts()["not_learned"]:
            assert told.endswith(": not reached")
        is_reached = True
        await group.wait(lambda: late.replication.facts()["not_learned"] == [], limit_s=15)


async def test_a_follower_that_has_its_leader_s_listen_port_for_a_member_s_says_so(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the address of its leader's broker is unknown, and sent an operator to namesrvAddr."""
    async with group_of() as group:
        await group.send(b"0")
        late = (await followers_of(group))[0]
        await late.stop()
        leader = group.masters[0]
        ports = {name: "10911" if name == leader else "20911" for name in group.addresses}
        peers = ";".join(f"{name}-{address}:{ports[name]}" for name, address in group.addresses.items())
        monkeypatch.setattr(late, "controller", partial(late.controller, dLegerPeers=peers))
        await late.start()
        await trio.sleep(SOON_S)
        verdict = await judged(late)
        assert f"at {group.addresses[leader]}:10911: what answers there is no member" in verdict.reasons[0]
        assert not any("namesrvAddr" in one for one in verdict.reasons)
        assert verdict.level == "degraded"


async def test_followers_follow_tables_if_they_find_the_leader_s_broker(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients are told of topics that the log alone knows."""
    metadata, is_there = DLedgerClient.metadata, False

    async def says_nothing(client: DLedgerClient, member_id: str, **words: Any) -> MetadataResponse:
        if not is_there:
            raise RemoteProtocolError("a server without a broker")
        return await metadata(client, member_id, **words)

    monkeypatch.setattr(DLedgerClient, "metadata", says_nothing)
    async with group_of() as group:
        await group.wait_master()
        await group.wait(lambda: not any(node.replication.follows_tables for node in group.nodes.values()))
        is_there = True
        followers = await followers_of(group)
        assert all(node.replication.follows_tables for node in followers)
        assert not group.nodes[group.masters[0]].replication.follows_tables


async def test_who_begins_anew_learns_where_queues_ended_that_it_never_had(virtual_clock: VirtualClock) -> None:
    """A disk that was full for so long that the leader has deleted meanwhile what this follower lacks."""
    async with group_of(fileReservedTime="0", cleanFileForciblyEnable="false") as group:
        master, late = await group.wait_master(), (await followers_of(group))[0]

        async def send(topic: str, count: int, size: int) -> None:
            for _ in range(count):
                assert (await asked(master, send_request(bytes(size), topic=topic))).code == ResponseCode.SUCCESS

        await send("rare", 3, 10)
        await group.wait_same()
        await trio.sleep(SOON_S)
        late.disk.faults.crowded = True
        await group.wait(lambda: ledger_of(late).room.refusal != "")
        await send("rare", 7, 10)
        await send("often", 30, 4000)
        master.running.store.cleaner.execute_delete_files_manually()
        assert await master.running.store.cleaner.clean()
        assert master.running.store.queues.range_of("rare", 0) == (10, 10)
        late.disk.faults.crowded = False
        await group.wait(lambda: late.running.store.min_offset > 0)
        await group.wait(lambda: late.running.store.queues.range_of("rare", 0) == (10, 10), limit_s=SOON_S)


async def test_a_stop_leaves_all_durable_and_the_checkpoint_says_so(virtual_clock: VirtualClock) -> None:
    """Its start shows what was committed before it has a leader."""
    async with group_of(dledgerAck="written", flushFileInterval="5000") as group:
        await group.send(*bodies(10))
        follower = (await followers_of(group))[0]
        await group.wait_same()
        end = ledger_of(follower).committed_index
        await follower.stop()
        checkpoint = decode_check_point(bytes(follower.disk.files[f"/store/dledger-{follower.name}/checkpoint"].cache))
        assert (checkpoint.committed_index, checkpoint.end_index) == (end, end)
        dirty = {path.split("/")[3] for path, _sector in follower.disk.dirty_sectors() if "/dledger-" in path}
        assert dirty <= {"lock"}


async def test_a_leader_that_tells_the_address_of_another_is_told_of(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where brokerIP1 was copied with the file: followers waited for ever for a master that was another, or they."""
    async with group_of() as group:
        leader, follower = await group.wait_master(), (await followers_of(group))[0]
        await follower.stop()
        right = DLedgerTables._ask

        async def ask_wrong(_tables: DLedgerTables, _member: str) -> str | None:
            return f"{group.addresses[follower.name]}:10911"

        with monkeypatch.context() as wrong:
            wrong.setattr(DLedgerTables, "_ask", ask_wrong)
            await follower.start()
            await trio.sleep(30)
            (told,) = follower.replication.facts()["not_learned"]
            assert f"{leader.name} leads, and says that its broker is at" in told
            assert f"where {follower.name} is: topics, groups and offsets stay there alone" in told
            assert not follower.replication.follows_tables
        monkeypatch.setattr(DLedgerTables, "_ask", right)
        await follower.stop()
        await follower.start()
        await group.wait(lambda: follower.replication.facts()["not_learned"] == [])
