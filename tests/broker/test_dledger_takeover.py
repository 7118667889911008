"""Between an election and the first send: what a broker on a DLedger group waits for before it is master."""

import json
from copy import deepcopy

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.dledger.dledger_replication import DLedgerReplication
from rmqha.broker.dledger.dledger_tables import DLedgerTables
from rmqha.broker.master_link import MasterLink
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.queue_ends_client import QueueEndsClient
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.codec.codes import ResponseCode
from rmqha.codec.dledger_properties import TermVote
from rmqha.codec.route import MASTER_ID
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.term_file import TermFile
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.dledger_brokers import BrokerGroup, Node
from tests.broker.machines import send_request
from tests.broker.test_dledger_broker import asked, group_of
from tests.broker.test_dledger_followers import followers_of, ledger_of
from tests.sim.sim_clock import VirtualClock


def let_lead_first(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    """All others wait for a minute before they ask for votes."""
    vote_at = DLedgerLeaderElector._vote_at

    def vote_later(elector: DLedgerLeaderElector, now: float, extra_s: float = 0.0) -> None:
        vote_at(elector, now, extra_s if elector._state.self_id == node.name else 60)

    monkeypatch.setattr(DLedgerLeaderElector, "_vote_at", vote_later)


async def test_who_learns_too_late_that_it_leads_no_more_is_no_master(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read in a thread goes on though nobody waits for it any more."""
    learn, learning = DefaultMessageStore.recover_topic_queue_table, trio.Event()

    async def learn_slowly(store: DefaultMessageStore) -> None:
        await learn(store)
        learning.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    async with group_of() as group:
        former = await group.wait_master()
        monkeypatch.setattr(DefaultMessageStore, "recover_topic_queue_table", learn_slowly)
        former.kill()
        await learning.wait()
        next_one, other = [node for node in group.nodes.values() if node.broker]
        if next_one.replication.facts()["role"] != "LEADER":
            next_one, other = other, next_one
        other.kill()
        await group.wait(lambda: next_one.replication.facts()["role"] == "CANDIDATE")
        await trio.sleep(11)
        assert not next_one.is_master
        monkeypatch.undo()
        await other.start()
        await group.send(b"0")


async def test_a_leader_waits_for_its_queues(virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers would be told that their queues end where they do not."""
    behind, real = 1, DefaultMessageStore.reput_from_offset

    async with group_of() as group:
        await group.send(b"0")
        await group.wait_same()
        monkeypatch.setattr(
            DefaultMessageStore,
            "reput_from_offset",
            property(lambda store: real.fget(store) - behind),  # type: ignore[attr-defined]
        )
        (await group.wait_master()).kill()
        await trio.sleep(10)
        assert "LEADER" in [node.replication.facts()["role"] for node in group.nodes.values() if node.broker]
        assert group.masters == []
        behind = 0
        await group.wait_master()


async def test_a_master_that_stood_still_does_not_register_as_one(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may lead by now, and the name server would send producers to who came last."""
    async with group_of() as group:
        master = await group.wait_master()
        await group.send(b"0")
        number = int(master.name[1:])
        assert master.replication._identity().broker_id == MASTER_ID
        monkeypatch.setattr(DLedgerLeaderElector, "is_surely_leading", lambda _elector, *, now: False)
        assert master.is_master
        assert master.replication._identity().broker_id == number + 1


async def never(_ends: QueueEndsClient) -> None:
    await trio.sleep_forever()


async def send(node: Node, topic: str, *, count: int = 1, size: int = 10) -> list[str]:
    """So many messages; where in their queue each is."""
    places = list[str]()
    for _ in range(count):
        answer = await asked(node, send_request(bytes(size), topic=topic))
        assert answer.code == ResponseCode.SUCCESS
        places.append(answer.ext_fields["queueOffset"])
    return places


async def begin_anew(group: BrokerGroup) -> tuple[Node, Node]:
    """A leader has deleted what a follower lacks, all of a queue among it; returns both."""
    leader, late = await group.wait_master(), (await followers_of(group))[0]
    late.disk.faults.crowded = True
    await group.wait(lambda: ledger_of(late).room.refusal != "")
    await send(leader, "rare", count=7)
    await send(leader, "often", count=30, size=4000)
    leader.running.store.cleaner.execute_delete_files_manually()
    assert await leader.running.store.cleaner.clean()
    late.disk.faults.crowded = False
    await group.wait(lambda: ledger_of(late).ledger_end_index == ledger_of(leader).ledger_end_index)
    assert late.running.store.min_offset > 0
    assert late.running.store.queues.range_of("rare", 0)[1] < 7
    await trio.sleep(11)  # until then it does not take over: it had no room
    return leader, late


async def hand_over(leader: Node, to: Node) -> None:
    addresses = leader.group.addresses
    network = leader.group.net.host(f"10.8.8.{len(leader.group.net.hosts)}").mount()
    peers = {name: f"{address}:20911" for name, address in addresses.items()}
    server = to.replication._server
    assert server is not None
    await leader.group.wait(lambda: server._standing.may_stand(now=trio.current_time()))
    await trio.sleep(0.1)  # who hears the leader's heartbeat right then follows it again, and says so
    async with open_dledger_client(group="g", peers=peers, network=network) as client:
        term = ledger_of(leader).member_state.curr_term
        answer = await client.transfer_leadership(leader.name, to.name, term=term)
        assert answer.code == DLedgerResponseCode.SUCCESS


async def test_who_begins_anew_and_leads_at_once_asks_the_others_where_queues_ended(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that consumers have passed would be given again, to messages that they would never see."""
    monkeypatch.setattr(QueueEndsClient, "run", never)
    async with group_of(fileReservedTime="0", cleanFileForciblyEnable="false") as group:
        leader, late = await begin_anew(group)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert await send(late, "rare") == ["7"]


async def test_so_does_one_that_was_told_where_they_ended_before_its_log_began_anew(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knew where queues ended before its former log, and the new one begins far behind that."""
    async with group_of(fileReservedTime="0", cleanFileForciblyEnable="false") as group:
        await group.send(b"0")
        tables = (await followers_of(group))[0].replication._tables
        await group.wait(lambda: tables._ends_known_of == tables._beginnings())
        monkeypatch.setattr(QueueEndsClient, "run", never)
        leader, late = await begin_anew(group)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert await send(late, "rare") == ["7"]


async def test_so_does_one_that_was_restarted_since(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueEndsClient, "run", never)
    async with group_of(fileReservedTime="0", cleanFileForciblyEnable="false") as group:
        leader, late = await begin_anew(group)
        late.kill()
        await late.start()
        await group.wait(lambda: late.running.role.master != "")
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert await send(late, "rare") == ["7"]


async def test_where_nobody_answers_it_leads_all_the_same(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some seconds, and says so: a group that takes nothing would be worse."""
    asked_before = list[int]()

    async def learns_nothing(_ends: QueueEndsClient, *, before: int) -> bool:
        asked_before.append(before)
        return False

    monkeypatch.setattr(QueueEndsClient, "run", never)
    async with group_of(fileReservedTime="0", cleanFileForciblyEnable="false") as group:
        monkeypatch.setattr(QueueEndsClient, "learn", learns_nothing)
        leader, late = await begin_anew(group)
        await hand_over(leader, late)
        await trio.sleep(4)
        assert not late.is_master
        await group.wait(lambda: late.is_master, limit_s=2)
        assert late.running.store.min_offset in asked_before


async def takes_nothing_over(_tables: SlaveSynchronize, _address: str, **_: object) -> None:
    await trio.sleep_forever()


async def make_topic_without(group: BrokerGroup, late: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The leader has a topic that ``late``, which was away, has not heard of; returns the leader."""
    await group.send(b"0")
    await group.wait_same()
    await late.stop()
    leader = await group.wait_master()
    topics = leader.running.topics
    topics.create_topic_in_send_message_back_method("made", queue_nums=7)
    other = next(node for node in group.nodes.values() if node not in {leader, late})
    await group.wait(lambda: queues_of(other, "made") == 7 and other.replication._tables._slave_synchronize.has_taken)
    monkeypatch.setattr(SlaveSynchronize, "run", takes_nothing_over)
    await late.start()
    await group.wait(lambda: late.running.role.master != "")
    await group.wait_same()
    assert queues_of(late, "made") == 0
    return leader


def queues_of(node: Node, topic: str) -> int:
    config = node.running.topics.select(topic)
    return 0 if config is None else config.write_queue_nums


async def test_who_leads_before_it_has_its_leader_s_tables_has_them_from_it_first(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all would take over its own, from which is missing what was made while it was away."""
    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert queues_of(late, "made") == 7


async def names_no_broker(_tables: DLedgerTables, _member_id: str) -> str:
    return ""


async def test_who_could_have_nobody_s_tables_says_so_when_it_leads(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found a leader, and never where its broker is: all others will have its tables, however old."""
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.send(b"0")
        await late.stop()
        monkeypatch.setattr(DLedgerTables, "_ask", names_no_broker)
        await late.start()
        await group.wait(lambda: ledger_of(late).member_state.leader_id == leader.name)
        with capture_logs() as logs:
            await hand_over(leader, late)
            await group.wait(lambda: late.is_master)
    assert [log["leader"] for log in logs if log["event"] == "dledger_tables.not_taken_over"] == [leader.name]


async def test_nobody_has_tables_of_a_leader_that_is_not_yet_master(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks what the others have, and asks them for it: they would drop theirs before they are asked."""
    learn, may_learn = DLedgerTables.learn_as_leader, trio.Event()

    async def learn_late(tables: DLedgerTables) -> None:
        await may_learn.wait()
        await learn(tables)

    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        monkeypatch.undo()
        monkeypatch.setattr(DLedgerTables, "learn_as_leader", learn_late)
        await hand_over(leader, late)
        await trio.sleep(15)
        assert [queues_of(node, "made") for node in group.nodes.values() if node is not late] == [7, 7]
        may_learn.set()
        await group.wait(lambda: late.is_master, limit_s=1)
        late.running.topics.create_topic_in_send_message_back_method("later", queue_nums=3)
        await group.wait(lambda: queues_of(leader, "later") == 3)
        assert [queues_of(node, "made") for node in group.nodes.values()] == [7, 7, 7]


async def test_a_topic_made_just_before_keeps_all_its_queues(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leads next has heard of it from the log alone, which tells of queues that have a message."""
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.wait(lambda: late.replication._tables._slave_synchronize.has_taken)
        monkeypatch.setattr(SlaveSynchronize, "has_news", False)  # it is asked for sooner than followers ask again
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        await send(leader, "made")
        await group.wait(lambda: queues_of(late, "made") == 1, limit_s=1)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert queues_of(late, "made") == 7
        await trio.sleep(15)
        assert [queues_of(node, "made") for node in group.nodes.values()] == [7, 7, 7]


async def test_what_clients_were_told_just_before_a_leader_hands_over_is_there(virtual_clock: VirtualClock) -> None:
    """The next one had asked for tables seconds ago, and the one before has its tables from it then."""
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.wait(lambda: late.replication._tables._slave_synchronize.has_taken)
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        leader.running.offsets.commit_offset("g", "made", 0, offset=4)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert queues_of(late, "made") == 7
        assert late.running.offsets.query_offset("g", "made", 0) == 4
        await trio.sleep(15)
        assert [queues_of(node, "made") for node in group.nodes.values()] == [7, 7, 7]


@pytest.mark.parametrize("to_itself", [False, True])
async def test_nor_is_it_lost_between_two_changes_at_once(virtual_clock: VirtualClock, *, to_itself: bool) -> None:
    """Who leads after the second may have noticed nothing of the first, and then asks who was master before that."""
    async with group_of() as group:
        first, (second, other) = await group.wait_master(), await followers_of(group)
        third = first if to_itself else other
        await group.wait(lambda: all(node.replication._tables._slave_synchronize.has_taken for node in (second, other)))
        await hand_over(first, second)
        await group.wait(lambda: second.is_master)
        assert third.replication._tables._followed_term < second.running.role.term
        second.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        second.running.offsets.commit_offset("g", "made", 0, offset=4)
        await hand_over(second, third)
        await group.wait(lambda: third.is_master, limit_s=1)
        assert queues_of(third, "made") == 7
        assert third.running.offsets.query_offset("g", "made", 0) == 4
        await trio.sleep(15)
        assert [queues_of(node, "made") for node in group.nodes.values()] == [7, 7, 7]


async def test_nor_is_it_lost_when_the_leader_is_stopped(virtual_clock: VirtualClock) -> None:
    """It hands over first: what it had told clients since the others had asked was gone, also when it was back."""
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.wait(lambda: late.replication._tables._slave_synchronize.has_taken)
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        leader.running.offsets.commit_offset("g", "made", 0, offset=4)
        begun_at = trio.current_time()
        await leader.stop()
        assert trio.current_time() - begun_at < 3
        assert group.masters != [], "nobody has to be elected"
        await leader.start()
        await trio.sleep(15)
        assert [queues_of(node, "made") for node in group.nodes.values()] == [7, 7, 7]
        assert [node.running.offsets.query_offset("g", "made", 0) for node in group.nodes.values()] == [4, 4, 4]


async def test_a_preferred_leader_that_stops_does_not_take_over_again(virtual_clock: VirtualClock) -> None:
    async with group_of(preferredLeaderId="n0") as group:
        preferred = group.nodes["n0"]
        await group.wait(lambda: preferred.is_master)
        await preferred.stop()
        assert group.masters != []
        await preferred.start()
        await group.wait(lambda: preferred.is_master, limit_s=60)


async def test_all_stop_at_once(virtual_clock: VirtualClock) -> None:
    """Nobody waits for another that stops, too."""
    async with group_of() as group:
        await group.wait_master()
        begun_at = trio.current_time()
        with capture_logs() as logs:
            async with trio.open_nursery() as nursery:
                for node in group.nodes.values():
                    nursery.start_soon(node.stop)
        assert trio.current_time() - begun_at < 3
        assert len([log for log in logs if log["event"] == "dledger_tables.not_handed_over"]) == 1


async def test_who_stops_and_could_tell_nobody_says_so(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one was master, without what this one had been told last: that it followed it proved nothing."""

    async def fails(tables: SlaveSynchronize, _address: str, **_: object) -> None:
        await trio.lowlevel.checkpoint()
        tables.failure = "its listenPort is not reached"

    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.wait(lambda: late.replication._tables._slave_synchronize.has_taken)
        leader.running.offsets.commit_offset("g", "t", 0, offset=4)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", fails)
        with capture_logs() as logs:
            await leader.stop()
        assert group.masters != []
        assert "dledger_tables.not_handed_over" in [log["event"] for log in logs]


async def test_unless_it_was_restarted_meanwhile(virtual_clock: VirtualClock) -> None:
    """Its tables may be older than those that the others have had of it, or none."""
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        await group.wait(lambda: queues_of(late, "made") == 7)
        tables = late.replication._tables
        await leader.stop()
        leader.disk.files.clear()
        await group.wait_master()
        await leader.start()
        await tables._take_last_changes()
        assert queues_of(late, "made") == 7


@pytest.mark.parametrize("is_back", [False, True])
async def test_nor_when_it_hands_over_before_it_is_master(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, *, is_back: bool
) -> None:
    """Who leads next has those of the last master, or is that one."""
    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        other = next(node for node in group.nodes.values() if node not in {leader, late})
        to = leader if is_back else other
        learn = DLedgerTables.learn_as_leader
        monkeypatch.setattr(DLedgerTables, "learn_as_leader", never_learn)
        await hand_over(leader, late)
        await trio.sleep(1)
        assert group.masters == []
        monkeypatch.setattr(DLedgerTables, "learn_as_leader", learn)
        await hand_over(late, to)
        await group.wait(lambda: to.is_master, limit_s=1)
        assert queues_of(to, "made") == 7


async def never_learn(_tables: DLedgerTables) -> None:
    await trio.sleep_forever()


async def test_or_from_the_others_if_that_one_does_not_answer(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one at a time: those of the next would lie over them, and may be older."""
    synchronize, asked_for, begun = SlaveSynchronize.synchronize, list[str](), list[str]()

    async def synchronize_with_others(tables: SlaveSynchronize, address: str, **_: object) -> None:
        asked_for.append(address)
        begun.append(address)
        assert begun == [address]
        await trio.sleep(0.1)
        if address != asked_for[0]:
            await synchronize(tables, address)
        begun.remove(address)

    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", synchronize_with_others)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=5)
        assert asked_for[0] == f"{group.addresses[leader.name]}:10911"
        assert queues_of(late, "made") == 7


async def test_and_of_one_alone_though_several_answer(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the second would lie over them, and may be older."""
    asked_for = list[str]()

    async def only_the_second_time(tables: SlaveSynchronize, address: str, **_: object) -> None:
        asked_for.append(address)
        await trio.sleep(0.1)
        tables.rounds += len(asked_for) > 1

    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", only_the_second_time)
        await hand_over(leader, late)
        await group.wait(lambda: late.is_master, limit_s=5)
        assert len(asked_for) == 2


async def test_who_led_and_was_no_master_does_not_have_the_newest(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again when it leads once more."""
    asked_for = list[str]()

    async def fails(tables: SlaveSynchronize, address: str, **_: object) -> None:
        del tables
        asked_for.append(address)

    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", fails)
        monkeypatch.setattr(DLedgerReplication, "_is_ready", lambda *_: False)
        await hand_over(leader, late)
        await group.wait(lambda: len(asked_for) > 1)
        await trio.sleep(10)
        assert group.masters == []
        asked_for.clear()
        await hand_over(late, leader)
        await group.wait(lambda: leader.replication.facts()["role"] == "LEADER")
        await hand_over(leader, late)
        await group.wait(lambda: late.replication.facts()["role"] == "LEADER")
        await trio.sleep(10)
        assert f"{group.addresses[leader.name]}:10911" in asked_for


async def test_who_has_the_tables_of_one_leader_keeps_them_if_the_next_is_gone_at_once(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the others may be older."""

    async def fails(tables: SlaveSynchronize, address: str, **_: object) -> None:
        del tables
        asked_for.append(address)

    asked_for = list[str]()
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await trio.sleep(1)  # they take the tables over
        monkeypatch.setattr(SlaveSynchronize, "run", takes_nothing_over)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", fails)
        other = next(node for node in group.nodes.values() if node not in {leader, late})
        await hand_over(leader, other)
        await group.wait(lambda: other.is_master)
        await group.wait(lambda: late.running.role.master == f"{group.addresses[other.name]}:10911")
        await trio.sleep(0.5)  # it has heard that this one is master
        asked_for.clear()
        await hand_over(other, late)
        await group.wait(lambda: late.is_master, limit_s=1)
        assert set(asked_for) == {f"{group.addresses[other.name]}:10911"}


async def test_who_was_master_has_the_newest_though_it_had_none_of_the_one_before(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads again, and has followed nobody since: what it would be given lacks what it made as master."""

    async def fails(_tables: SlaveSynchronize, _address: str, **_: object) -> None:
        await trio.sleep(0.1)

    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(SlaveSynchronize, "synchronize", fails)
            await hand_over(leader, late)
            await group.wait(lambda: late.is_master)
        late.running.topics.create_topic_in_send_message_back_method("later", queue_nums=3)
        others = [node for node in group.nodes.values() if node is not late]
        for node in others:
            node.kill()
        await asked(late, send_request(b"0"))  # it alone has this, so it leads next
        await group.wait(lambda: late.replication.facts()["role"] == "CANDIDATE")
        for node in others:
            await node.start()
        await group.wait(lambda: late.is_master)
        assert (queues_of(late, "later"), queues_of(leader, "later")) == (3, 0)


async def test_who_leads_right_after_its_start_has_the_tables_of_who_led_before(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had stood for a later term: it asks for votes before it has followed anybody, and its tables are old."""
    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.send(b"0")
        await group.wait_same()
        await trio.sleep(1)  # the others have the tables of so far
        await late.stop()
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        leader.running.offsets.commit_offset("g", "made", 3, offset=5)
        other = next(node for node in group.nodes.values() if node not in {leader, late})
        assert queues_of(other, "made") == 0, "it asks every ten seconds"
        term = ledger_of(leader).member_state.curr_term
        monkeypatch.setattr(TermFile, "load", lambda _file, *, ledger_end_term: TermVote(term + 1, late.name))
        let_lead_first(monkeypatch, late)
        await late.start()
        await group.wait(lambda: late.is_master, limit_s=5)
        assert queues_of(late, "made") == 7
        assert late.running.offsets.query_offset("g", "made", 3) == 5
        await group.wait(lambda: queues_of(other, "made") == 7)


async def test_whose_tables_a_broker_has_it_is_asked_again_if_it_does_not_say_so_at_once(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member answers long before it does, as where all were started at once."""
    ask_origin, starting = MasterLink.ask_tables_origin, set[str]()

    async def starts_first(link: MasterLink, address: str) -> TablesOrigin | None:
        if address in starting:
            return await ask_origin(link, address)
        starting.add(address)
        return None

    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        await group.send(b"0")
        await group.wait_same()
        await late.stop()
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        term = ledger_of(leader).member_state.curr_term
        monkeypatch.setattr(TermFile, "load", lambda _file, *, ledger_end_term: TermVote(term + 1, late.name))
        monkeypatch.setattr(MasterLink, "ask_tables_origin", starts_first)
        let_lead_first(monkeypatch, late)
        await late.start()
        await group.wait(lambda: late.is_master, limit_s=10)
        assert (len(starting), queues_of(late, "made")) == (2, 7)


async def test_a_master_that_was_killed_and_leads_at_once_keeps_what_the_others_had_of_it_before(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topics are on its disk before anybody hears of them; the others ask for its tables every ten seconds."""
    async with group_of() as group:
        leader = await group.wait_master()
        await group.send(b"0")
        await group.wait_same()
        await trio.sleep(1)  # the others have the tables of so far
        other, away = await followers_of(group)
        away.kill()
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        await group.wait(lambda: not leader.running.topics.unsaved)
        assert queues_of(other, "made") == 0, "it asks every ten seconds"
        let_lead_first(monkeypatch, leader)
        leader.kill()
        await leader.start()
        await group.wait(lambda: leader.is_master, limit_s=5)
        assert queues_of(leader, "made") == 7
        await group.wait(lambda: queues_of(other, "made") == 7)


@pytest.mark.parametrize("what", ["old", "old, and it does not say so", "missing"])
async def test_a_former_master_whose_own_tables_are_not_the_newest(
    what: str, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk took nothing for a while, was put back, or lost one: it leads first, and all will have what it has."""
    async with group_of() as group:
        leader = await group.wait_master()
        await group.send(b"0", b"1", b"2")
        leader.running.offsets.commit_offset("g", "t", 0, offset=0)
        await trio.sleep(30)
        config = {path: deepcopy(file) for path, file in leader.disk.files.items() if "/config/" in path}
        leader.running.offsets.commit_offset("g", "t", 0, offset=1)
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        await trio.sleep(30)
        others = await followers_of(group)
        assert [node.running.offsets.query_offset("g", "t", 0) for node in others] == [1, 1]
        for node in group.nodes.values():
            node.kill()
        if what == "missing":
            config = {path: file for path, file in leader.disk.files.items() if "/config/" in path}
        gone = {"old": "nothing", "missing": "consumerOffset"}.get(what, "tablesOrigin")
        for path in [path for path in leader.disk.files if "/config/" in path]:
            del leader.disk.files[path]
        leader.disk.files.update({path: file for path, file in config.items() if gone not in path})
        let_lead_first(monkeypatch, leader)
        for node in (leader, *others):
            await node.start()
        await group.wait(lambda: leader.is_master, limit_s=20)
        await trio.sleep(15)
        assert [node.running.offsets.query_offset("g", "t", 0) for node in group.nodes.values()] == [1, 1, 1]
        assert [queues_of(node, "made") for node in group.nodes.values()] == [7, 7, 7]


@pytest.mark.parametrize("term", [None, 900])
async def test_a_former_master_whose_own_tables_are_old_takes_all_of_the_others(
    term: int | None, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that was set back meanwhile; and whose note is of a term that is yet to come, of another history."""
    async with group_of() as group:
        leader = await group.wait_master()
        await group.send(*[b"%d" % number for number in range(12)])
        leader.running.offsets.commit_offset("g", "t", 0, offset=2)
        await trio.sleep(30)
        config = {path: deepcopy(file) for path, file in leader.disk.files.items() if "/config/" in path}
        leader.running.offsets.commit_offset("g", "t", 0, offset=1)
        await trio.sleep(150)
        others = await followers_of(group)
        assert [node.running.offsets.query_offset("g", "t", 0) for node in others] == [1, 1]
        for node in group.nodes.values():
            node.kill()
        for path in [path for path in leader.disk.files if "/config/" in path]:
            del leader.disk.files[path]
        leader.disk.files.update(config)
        if term is not None:
            note = next(file for path, file in leader.disk.files.items() if path.endswith("tablesOrigin.json"))
            content = json.dumps(json.loads(bytes(note.durable)) | {"term": term}).encode()
            note.cache, note.durable, note.size = bytearray(content), bytearray(content), len(content)
        let_lead_first(monkeypatch, leader)
        for node in (leader, *others):
            await node.start()
        await group.wait(lambda: leader.is_master, limit_s=20)
        await trio.sleep(15)
        assert [node.running.offsets.query_offset("g", "t", 0) for node in group.nodes.values()] == [1, 1, 1]


async def test_nothing_is_taken_of_a_leader_whose_broker_still_starts(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not say yet that it is no master; three seconds later it was asked, and its old tables were taken."""

    async def says_nothing(_link: MasterLink, _address: str) -> None:
        await trio.lowlevel.checkpoint()

    async def never_learns(_tables: DLedgerTables) -> None:
        await trio.sleep_forever()

    async with group_of() as group:
        late = (await followers_of(group))[0]
        leader = await make_topic_without(group, late, monkeypatch)
        monkeypatch.undo()
        monkeypatch.setattr(MasterLink, "who_is_no_master_yet", says_nothing)
        monkeypatch.setattr(DLedgerTables, "learn_as_leader", never_learns)
        await hand_over(leader, late)
        await trio.sleep(15)
        assert [queues_of(node, "made") for node in group.nodes.values() if node is not late] == [7, 7]


async def test_who_could_not_take_newer_tables_that_it_knows_of_says_so(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had followed nobody in its process, and became master with its own old ones without a word."""

    async def fails(tables: SlaveSynchronize, _address: str, **_: object) -> None:
        await trio.lowlevel.checkpoint()
        tables.failure = "its listenPort is not reached"

    async with group_of() as group:
        leader = await group.wait_master()
        await group.send(b"0")
        late, other = await followers_of(group)
        await trio.sleep(20)
        late.kill()
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        await group.wait(lambda: queues_of(other, "made") == 7)
        await trio.sleep(20)
        leader.kill()
        let_lead_first(monkeypatch, late)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", fails)
        with capture_logs() as logs:
            await late.start()
            await group.wait(lambda: late.is_master, limit_s=60)
        assert "dledger_tables.not_taken_over" in [log["event"] for log in logs]


async def test_a_group_that_was_started_anew_goes_on_with_what_its_disks_have(virtual_clock: VirtualClock) -> None:
    """Nobody has newer tables; and who is away is not waited for."""
    async with group_of() as group:
        leader = await group.wait_master()
        await group.send(b"0")
        leader.running.topics.create_topic_in_send_message_back_method("made", queue_nums=7)
        await trio.sleep(20)
        for node in group.nodes.values():
            await node.stop()
        for node in list(group.nodes.values())[:2]:
            await node.start()
        await group.wait(lambda: group.masters != [], limit_s=10)
        assert queues_of(await group.wait_master(), "made") == 7
        await group.send(b"1")
