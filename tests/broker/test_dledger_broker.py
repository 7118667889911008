"""Brokers on a DLedger group: who is master, what SEND_OK means, and what clients see of a failover."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import decode_route
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.errors import CorruptLogError, StoreReadError, StoreWriteError
from rmqha.remoting.client import open_remoting_client
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.dledger_brokers import TOPIC, BrokerGroup, Node, shown_by
from tests.broker.machines import ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.store.helpers import Clock, message, put, running


@asynccontextmanager
async def group_of(size: int = 3, *, start: bool = True, **settings: str) -> AsyncIterator[BrokerGroup]:
    async with trio.open_nursery() as nursery:
        group = BrokerGroup(nursery, size=size, **settings)
        if start:
            await group.start()
            await group.wait_master()
        yield group
        nursery.cancel_scope.cancel()


async def asked(node: Node, request: RemotingCommand) -> RemotingCommand:
    network = node.group.net.host(f"10.8.8.{len(node.group.net.hosts)}").mount()
    async with open_remoting_client(network, f"{node.group.addresses[node.name]}:10911") as client:
        return await ask(client, request)


def bodies(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


async def test_send_ok_means_that_a_majority_has_it(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(*bodies(20))
        master = await group.wait_master()
        for node in group.nodes.values():
            assert node.replication.final_error is None
        assert master.replication.acked.value == master.running.store.max_offset
        assert sorted(await group.wait_same()) == sorted(bodies(20))
        assert sorted(await group.consume(count=20)) == sorted(bodies(20))


async def test_without_a_majority_nothing_is_acknowledged_nor_seen(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        master = await group.wait_master()
        for node in group.nodes.values():
            if node is not master:
                node.kill()
        answer = await asked(master, send_request(b"alone"))
        assert answer.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}
        assert master.running.store.reput_from_offset == 0
        await group.wait(lambda: not master.is_master)
        refused = await asked(master, send_request(b"later"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_one_that_waits_when_its_leader_loses_the_others_is_told_so(virtual_clock: VirtualClock) -> None:
    async with group_of(maxWaitAckTimeMs="60000") as group:
        master, answers = await group.wait_master(), list[RemotingCommand]()
        for node in group.nodes.values():
            if node is not master:
                node.kill()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                answers.append(await asked(master, send_request(b"alone")))

            nursery.start_soon(send)
            await group.wait(lambda: not master.is_master)
            await trio.sleep(0.1)
            assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
            assert "send it again" in (answers[0].remark or "")


async def test_a_late_majority_is_no_flush_slave_timeout(virtual_clock: VirtualClock) -> None:
    """Spec: dledger §6.6: a status that producers take for stored is not what is known."""
    async with group_of(maxWaitAckTimeMs="50") as group:
        master = await group.wait_master()
        for node in group.nodes.values():
            if node is not master:
                node.kill()
        answer = await asked(master, send_request(b"alone"))
        assert (answer.code, "no majority" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_what_is_sent_back_without_a_majority_is_not_told_to_be_stored(virtual_clock: VirtualClock) -> None:
    """The consumer would count it as consumed; told this, it sends the message itself."""
    async with group_of(maxWaitAckTimeMs="100") as group:
        master = await group.wait_master()
        assert (await asked(master, send_request(b"to come again"))).code == ResponseCode.SUCCESS
        consumed = decode_message((await asked(master, pull_request(0, suspend_ms=5000))).body)
        offset = str(consumed.physical_offset)
        fields = {"offset": offset, "group": "g", "delayLevel": "0", "unitMode": "false", "originTopic": TOPIC}
        send_back = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
        assert (await asked(master, send_back)).code == ResponseCode.SUCCESS
        for node in group.nodes.values():
            if node is not master:
                node.kill()
        answer = await asked(master, send_back)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "OS_PAGECACHE_BUSY")


async def test_followers_refuse_at_once_and_name_the_master(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(*bodies(8))
        master = await group.wait_master()
        await group.wait_same()
        followers = [node for node in group.nodes.values() if node is not master]
        await group.wait(lambda: all(node.running.role.master for node in followers))
        await group.wait(lambda: all(TOPIC not in node.running.topics.learned for node in followers))  # nor told of
        for node in followers:
            answer = await asked(node, send_request(b"to a follower"))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            route = await asked(node, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "t"}))
            (broker,) = decode_route(route.body).broker_datas
            number = int(node.name[1:])
            assert node.replication.facts()["broker_id"] == number + 1
            assert broker.broker_name == "g"
            assert broker.broker_addrs == {
                0: f"{group.addresses[master.name]}:10911",
                number + 1: f"{group.addresses[node.name]}:10911",
            }
            assert (await asked(node, pull_request(0))).code == ResponseCode.SUCCESS
        route = await asked(master, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "t"}))
        assert decode_route(route.body).broker_datas[0].broker_addrs == {0: f"{group.addresses[master.name]}:10911"}
        assert master.replication.facts()["broker_id"] == 0


async def test_a_leader_that_cannot_read_its_log_for_a_moment_takes_over_later(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor was left, say: the broker ended, and so did the next one that was elected."""
    failures_left, learn = 0, DefaultMessageStore.recover_topic_queue_table

    async def recover_topic_queue_table(store: DefaultMessageStore) -> None:
        nonlocal failures_left
        if failures_left:
            failures_left -= 1
            raise StoreReadError(OSError(errno.EMFILE, "Too many open files"), operation="open", path="data")
        await learn(store)

    monkeypatch.setattr(DefaultMessageStore, "recover_topic_queue_table", recover_topic_queue_table)
    async with group_of() as group:
        failures_left, master = 3, await group.wait_master()
        master.kill()
        await group.send(b"0")
        assert (failures_left, [node.broker is None for node in group.nodes.values()].count(True)) == (0, 1)


async def test_a_leader_whose_log_is_damaged_lets_another_take_over(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of its index is missing, say: the broker ended."""
    learn, damaged = DefaultMessageStore.recover_topic_queue_table, list[DefaultMessageStore]()

    async def recover_topic_queue_table(store: DefaultMessageStore) -> None:
        damaged[:] = damaged or [store]
        if store in damaged:
            raise CorruptLogError(0, "of the test")
        await learn(store)

    async with group_of() as group:
        former = await group.wait_master()
        monkeypatch.setattr(DefaultMessageStore, "recover_topic_queue_table", recover_topic_queue_table)
        former.kill()
        await group.send(b"0")
        assert [node.broker is None for node in group.nodes.values()].count(True) == 1
        assert (await group.wait_master()).running.store is not damaged[0]


@pytest.mark.parametrize("how", ["kill", "cut_power"])
async def test_a_producer_goes_on_with_the_next_leader_and_nothing_is_lost(
    virtual_clock: VirtualClock, how: str
) -> None:
    async with group_of() as group:
        for turn in range(4):
            master = await group.wait_master()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.send, *bodies(60, f"{turn}-"))
                await trio.sleep(0.05)
                getattr(master, how)()
            await group.wait_master()
            await master.start()
        await group.send(b"last")
        shown = await group.wait_same()
        assert set(group.sent) <= set(shown)
        consumed = await group.consume(count=len(shown))
        assert sorted(consumed) == sorted(shown)


async def test_a_tail_that_no_majority_had_goes_and_its_place_in_the_queue_is_another_s(
    virtual_clock: VirtualClock,
) -> None:
    async with group_of() as group:
        await group.send(*bodies(5))
        former = await group.wait_master()
        others = [node for node in group.nodes.values() if node is not former]
        for node in others:
            group.net.cut(group.addresses[former.name], group.addresses[node.name])
            group.net.cut(group.addresses[node.name], group.addresses[former.name])
        answers = list[RemotingCommand]()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                answers.append(await asked(former, send_request(b"of the former leader")))

            nursery.start_soon(send)
            await group.wait(lambda: any(node.is_master for node in others))
        assert answers[0].code == ResponseCode.SYSTEM_ERROR
        assert former.running.store.max_offset > others[0].running.store.max_offset
        group.net.heal()
        await group.send(*bodies(5, "new-"))
        shown = await group.wait_same()
        assert sorted(shown) == sorted([*bodies(5), *bodies(5, "new-")])


async def test_a_leader_is_master_only_when_what_it_inherited_is_seen(virtual_clock: VirtualClock) -> None:
    """Spec: dledger §6.5, §7.4: an idle new leader commits it by an entry of its own, which is in no queue."""
    async with group_of() as group:
        await group.send(*bodies(10))
        (await group.wait_master()).kill()
        master = await group.wait_master()
        store = master.running.store
        assert store.reput_from_offset == store.max_offset
        assert master.replication.confirmed_offset() == store.max_offset
        topics = {topic for topic, _ in store.queues.next_offsets()}
        assert topics == {"t"}


async def test_a_clean_stop_and_start_of_all_goes_on_where_it_was(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(*bodies(10))
        await group.wait_same()
        for node in group.nodes.values():
            await node.stop()
            assert not node.disk.mount().exists("/store/abort")
        await group.start()
        await group.wait_master()
        await group.send(b"10")
        assert sorted(await group.wait_same()) == sorted(bodies(11))


async def test_followers_have_topics_and_offsets_from_the_leader(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(b"0")
        master = await group.wait_master()
        master.running.offsets.commit_offset("group", "t", 0, offset=1)
        followers = [node.running for node in group.nodes.values() if node is not master]
        await group.wait(lambda: all(one.offsets.query_offset("group", "t", 0) == 1 for one in followers))
        topic = master.running.topics.select("t")
        assert topic is not None
        late = next(node for node in group.nodes.values() if node is not master)
        late.cut_power()
        master.running.offsets.commit_offset("group", "t", 0, offset=2)
        await late.start()
        await group.wait(lambda: late.running.role.master != "")
        await group.wait(lambda: late.running.offsets.query_offset("group", "t", 0) == 2, limit_s=1)
        await group.wait(lambda: all(one.running.topics.select("t") == topic for one in group.nodes.values()))
        followers = [node.running for node in group.nodes.values() if node is not master]
        assert all(one.topics.select("t") == topic for one in followers)


async def test_a_preferred_leader_takes_over_and_producers_go_on(virtual_clock: VirtualClock) -> None:
    async with group_of(preferredLeaderId="n2") as group:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.send, *bodies(100))
            await group.wait(lambda: group.masters == ["n2"])
        assert set(group.sent) <= set(await group.wait_same())


async def test_a_client_cannot_append_what_is_no_message(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        peers = {name: f"{address}:20911" for name, address in group.addresses.items()}
        async with open_dledger_client(group="g", peers=peers, network=group.net.host("10.7.7.7").mount()) as client:
            assert (await client.append(b"no message")).code == DLedgerResponseCode.UNSUPPORTED
        await group.send(b"0")
        assert await group.wait_same() == [b"0"]


async def test_a_group_of_one_serves_its_log(virtual_clock: VirtualClock) -> None:
    async with group_of(1) as group:
        await group.send(*bodies(3))
        await group.nodes["n0"].stop()
        await group.start()
        await group.send(b"3")
        assert sorted(await group.wait_same()) == sorted(bodies(4))


async def test_a_disk_that_fails_costs_a_leader_its_leadership_and_no_message(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(*bodies(3))
        former = await group.wait_master()
        former.disk.faults.sync_errors = 1000
        await group.send(*bodies(5, "after-"))
        assert former.running.store.write_error is not None
        assert not former.is_master
        master = await group.wait_master()
        assert master is not former
        store = master.running.store
        await group.wait(lambda: store.reput_from_offset == store.max_offset)
        assert set(group.sent) <= set(await group.consume(count=len(shown_by(master.running))))


async def test_a_master_whose_disk_is_full_lets_another_be_master(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(*bodies(3))
        former = await group.wait_master()
        former.disk.faults.crowded = True
        await group.wait(lambda: group.masters not in ([former.name], []))
        await group.send(*bodies(20, "after-"))
        master = await group.wait_master()
        assert former.running.replication.facts()["dledger"]["write_error"] == "the disk is too full"
        former.disk.faults.crowded = False
        await group.wait_same()
        assert group.masters == [master.name], "it has room again, and nobody prefers it"


async def test_a_master_that_cannot_make_its_queues_files_lets_another_be_master(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses every send until it can dispatch again."""
    async with group_of() as group:
        await group.send(*bodies(3))
        former = await group.wait_master()
        flags = former.running.store.running_flags
        error = StoreWriteError(OSError(errno.ENOSPC, "No space left on device"), operation="create", path="/x")
        flags.hold_dispatch(error)
        monkeypatch.setattr(flags, "release_dispatch", lambda: None)
        await group.send(*bodies(3, "after-"))
        assert group.masters != [former.name]


async def test_who_cannot_dispatch_does_not_lead(virtual_clock: VirtualClock) -> None:
    """Its log is good, and goes on counting; what it took nobody would see."""
    async with group_of() as group:
        await group.send(*bodies(3))
        former = await group.wait_master()
        former.running.store.running_flags.fail_dispatch(CorruptLogError(0, "of the test"))
        await group.send(*bodies(3, "after-"))
        master = await group.wait_master()
        assert master is not former
        await group.wait(lambda: former.running.store.max_offset == master.running.store.max_offset)


async def a_classic_broker_was_on(node: Node, *old: bytes) -> None:
    """The same as on others, if its messages were."""
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 2000}
    async with running(node.disk.mount(), now_ms=Clock(), **sizes) as store:
        await put(store, *[message(body, topic=TOPIC) for body in old])


async def test_a_group_goes_on_behind_the_log_of_a_classic_broker(virtual_clock: VirtualClock) -> None:
    """Its leader dies, one is started again, and consumers read all of it in order."""
    old = [b"old-%d" % number + b"." * 1000 for number in range(100)]
    async with group_of(start=False) as group:
        for node in group.nodes.values():
            await a_classic_broker_was_on(node, *old)
        await group.start()
        leader = await group.wait_master()
        divided = leader.replication.confirmed_offset()
        assert divided > 2 << 16
        await group.send(*bodies(20))
        assert shown_by(leader.running)[: len(old)] == old
        assert [body for body in await group.consume(count=120) if body in old] == old
        leader.kill()
        await group.send(*bodies(20, "after-"))
        await leader.start()
        assert set(await group.wait_same()) == {*old, *group.sent}
        for node in group.nodes.values():
            assert node.running.store.min_offset == 0
            await node.stop()
        await group.start()
        await group.send(b"last")
        assert set(await group.wait_same()) == {*old, *group.sent}


@pytest.mark.parametrize("theirs", [(), (b"another",), (b"1", b"2", b"3")])
async def test_who_lacks_the_old_log_of_the_others_follows_nobody(
    virtual_clock: VirtualClock, theirs: tuple[bytes, ...]
) -> None:
    """It would lead some day, and its consumers would never see those messages."""
    async with group_of(start=False) as group:
        for name, has in (("n0", (b"1", b"2")), ("n1", (b"1", b"2")), ("n2", theirs)):
            if has:
                await a_classic_broker_was_on(group.nodes[name], *has)
        await group.start("n0", "n1")
        await group.send(b"new")
        await group.start("n2")
        odd = group.nodes["n2"]
        await group.wait(lambda: odd.replication.final_error is not None)
        assert "no member copies such a log" in str(odd.replication.final_error)
        await group.send(b"newer")
        assert shown_by(odd.running) == [*theirs]
        assert odd.running.store.wrote.value in (0, 1 << 16)


async def test_a_group_whose_first_leader_has_another_old_log_stores_nothing_until_that_is_stopped(
    virtual_clock: VirtualClock,
) -> None:
    async with group_of(start=False, minVoteIntervalMs="5000", maxVoteIntervalMs="6000") as group:
        for name, has in (("n0", (b"1", b"2")), ("n1", (b"1", b"2")), ("n2", (b"1",))):
            await a_classic_broker_was_on(group.nodes[name], *has)
        await group.start("n0", "n1")
        group.settings.clear()
        await group.start("n2")
        nodes = [*group.nodes.values()]
        await group.wait(lambda: any(node.replication.final_error is not None for node in nodes))
        await trio.sleep(5)
        odd = group.nodes["n2"]
        assert [node.replication.final_error is None for node in nodes] == [False, False, True], "it leads the others"
        assert group.masters == []
        odd.kill()
        await group.send(b"new")
        master = await group.wait_master()
        await group.wait(lambda: shown_by(master.running) == [b"1", b"2", b"new"])
        await odd.start()
        await group.wait(lambda: odd.replication.final_error is not None)
        assert shown_by(odd.running) == [b"1"]
