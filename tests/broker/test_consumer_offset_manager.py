"""Consumer offsets: a commit sets them, forwards or back; only a slave keeps the larger one, of its master's."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import trio

from rmqha.broker.tables import offset_table
from rmqha.broker.tables.consumer_offset_manager import ENTRIES_MAX, ConsumerOffsetManager
from rmqha.broker.tables.offset_table import decode_changed_offsets, decode_offsets
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import PullSysFlag, UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import FRAME_SIZE_MAX, RemotingCommand
from rmqha.errors import RemoteProtocolError
from rmqha.replication.role import Role, RoleKind
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet


def test_a_commit_may_go_back() -> None:
    offsets = ConsumerOffsetManager()
    for offset in (10, 3, 7, 0):
        offsets.dirty = False
        offsets.commit_offset("g", "t", 0, offset=offset)
        assert offsets.query_offset("g", "t", 0) == offset
        assert offsets.dirty
    again = ConsumerOffsetManager()
    again.replace_from_json(offsets.to_json())
    assert again.query_offset("g", "t", 0) == 0


@pytest.mark.parametrize("offset", [-(2**63), 2**63 - 1])
async def test_whatever_a_client_commits_can_be_read_again(offset: int, virtual_clock: VirtualClock) -> None:
    """An offset that no table may have made the whole file unreadable, and with the second save its backup, too."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
        broker.offsets.commit_offset("others", "t", 0, offset=1)
        header = UpdateConsumerOffsetRequestHeader("g", "u", -(2**31), offset)
        commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header))
        assert (await ask(client, commit)).code == ResponseCode.SUCCESS
        assert decode_offsets(broker.offsets.to_json())["u@g"] == {-(2**31): offset}  # as a slave does
    async with machine.broker() as broker:
        assert broker.offsets.query_offset("others", "t", 0) == 1


async def test_topics_and_groups_are_found_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are looked at, then everybody else has a turn."""
    monkeypatch.setattr(offset_table, "_SPLIT_AT_ONCE", 3)
    offsets = ConsumerOffsetManager()
    for number in range(7):
        offsets.commit_offset(f"g{number}", f"t{number % 2}", 0, offset=1)
        offsets.commit_offset("g", f"t{number}", 0, offset=1)
    assert await offsets.topics_of_in_turns("g") == [f"t{number}" for number in range(7)]
    assert sorted(await offsets.groups_of_in_turns("t1")) == ["g", "g1", "g3", "g5"]
    await offsets.remove_offset_in_turns("g")
    assert await offsets.groups_of_in_turns("t6") == []
    assert len(await offsets.topics_by_group_in_turns()) == 7


async def test_a_group_is_forgotten_in_turns(virtual_clock: VirtualClock) -> None:
    offsets = ConsumerOffsetManager()
    for number in range(2000):
        offsets.commit_offset("gone", f"t{number}", 0, offset=number + 1)
    offsets.commit_offset("kept", "t1", 0, offset=5)
    offsets.dirty = False
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await offsets.remove_offset_in_turns("gone")
        nursery.cancel_scope.cancel()
    assert turns > 3
    assert offsets.to_json()["offsetTable"] == {"t1@kept": {0: 5}}
    assert offsets.dirty


@pytest.mark.parametrize("how", ["the group is removed", "its queues begin anew", "the master has others"])
@pytest.mark.parametrize("limit", ["ENTRIES_MAX", "TABLE_SIZE_MAX"])
async def test_what_is_forgotten_is_on_no_hosts_account(limit: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed there until a restart: a host whose groups came and went was kept out while the table was empty."""
    limits = {"ENTRIES_MAX": 12, "TABLE_SIZE_MAX": 500}
    monkeypatch.setattr(f"rmqha.broker.tables.consumer_offset_manager.{limit}", limits[limit])
    offsets, added = ConsumerOffsetManager(), list[int]()
    for _ in range(3):
        added.append(0)
        with suppress(RemoteProtocolError):
            for queue_id in range(limits[limit]):
                offsets.commit_offset("g", f"t{queue_id % 2}", queue_id // 2, offset=1, peer="10.0.0.1:5")
                added[-1] += 1
        with pytest.raises(RemoteProtocolError, match=f"clients of 10.0.0.1 have added those of {added[-1]} queues"):
            offsets.commit_offset("g", "t0", 1000, offset=1, peer="10.0.0.1:5")
        offsets.commit_offset("other", "t0", 5, offset=1, peer="10.0.0.2:5")
        if how == "the group is removed":
            for group in ("g", "other"):
                await offsets.remove_offset_in_turns(group)
        elif how == "its queues begin anew":
            for queue_id in range(20):
                offsets.forget_queue(f"t{queue_id % 2}", queue_id // 2)
        else:
            monkeypatch.setattr(f"rmqha.broker.tables.consumer_offset_manager.{limit}", 0)
            await offsets.make_room_for({})
            monkeypatch.setattr(f"rmqha.broker.tables.consumer_offset_manager.{limit}", limits[limit])
        assert offsets.to_json()["offsetTable"] == {}
    assert added[0] > 2
    assert added == [added[0]] * 3


async def test_what_the_master_has_as_well_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a group committed here is farther than the master knows: it would go on at the master's place."""
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.ENTRIES_MAX", 3)
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("here", "t", 0, offset=5)
    offsets.commit_offset("g", "t", 0, offset=9)
    told = {"t@g": {0: 7}, "u@g": {0: 1, 1: 1}}
    await offsets.make_room_for(told)
    await offsets.merge_from_master(told)
    assert offsets.to_json()["offsetTable"] == {"t@g": {0: 9}, "u@g": {0: 1, 1: 1}}


@pytest.mark.parametrize("how", ["the group is removed", "its queues begin anew"])
@pytest.mark.parametrize("limit", ["ENTRIES_MAX", "TABLE_SIZE_MAX"])
async def test_what_is_forgotten_gives_back_its_room(limit: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators remove groups where the table is full; what counts on would keep others out until a restart."""
    queues, limits = 10, {"ENTRIES_MAX": 10, "TABLE_SIZE_MAX": 350}
    monkeypatch.setattr(f"rmqha.broker.tables.consumer_offset_manager.{limit}", limits[limit])
    offsets = ConsumerOffsetManager()
    for _ in range(3):
        for queue_id in range(queues):
            offsets.commit_offset("g", "t", queue_id, offset=1)
        with pytest.raises(RemoteProtocolError):
            offsets.commit_offset("g", "t", queues, offset=1)
        if how == "the group is removed":
            await offsets.remove_offset_in_turns("g")
        for queue_id in range(queues):
            offsets.forget_queue("t", queue_id)


async def test_a_slave_that_is_told_of_a_group_that_is_being_removed_forgets_the_rest_afterwards(
    virtual_clock: VirtualClock,
) -> None:
    """What it was told then has the same stamp as the removal's begin."""
    clock = iter(range(1000, 2000))
    master, slave = ConsumerOffsetManager(now_ms=lambda: next(clock)), ConsumerOffsetManager(now_ms=lambda: 0)
    for queue_id in range(1500):
        master.commit_offset("g", "t", queue_id, offset=1)

    async def follow() -> None:
        table, changed = decode_offsets(master.to_json()), decode_changed_offsets(master.to_json())
        await slave.merge_from_master(table, changed=changed)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(master.remove_offset_in_turns, "g")
        while len(master.query_offsets("g", "t")) == 1500:
            await trio.lowlevel.checkpoint()
        await follow()
        assert slave.query_offsets("g", "t")
    await follow()
    assert (master.query_offsets("g", "t"), slave.query_offsets("g", "t")) == ({}, {})


async def test_a_slave_keeps_the_larger_of_its_own_and_its_masters() -> None:
    offsets, master = ConsumerOffsetManager(), ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=5)
    for offset, kept in ((3, 5), (8, 8), (7, 8)):
        master.commit_offset("g", "t", 0, offset=offset)
        await offsets.merge_from_master(decode_offsets(master.to_json()))
        assert offsets.query_offset("g", "t", 0) == kept
    offsets.commit_offset("g", "t", 0, offset=1)
    assert offsets.query_offset("g", "t", 0) == 1, "what a consumer commits here counts, too"


@pytest.mark.parametrize(("committed", "kept"), [(None, 4), (6, 6), (8, 8)])
async def test_what_was_committed_since_the_log_lost_its_tail_is_the_clients_word(
    committed: int | None, kept: int
) -> None:
    """Only what was committed before that may be of messages that nobody has."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=10)
    offsets.doubt(lambda _topic, _queue_id: 7)
    if committed is not None:
        offsets.commit_offset("g", "t", 0, offset=committed)
    await offsets.merge_from_master({"t@g": {0: 4}})
    assert offsets.query_offset("g", "t", 0) == kept


async def test_a_master_s_word_ends_a_doubt() -> None:
    """It is what others are told from then on, and no smaller one counts after it."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=10)
    offsets.doubt(lambda _topic, _queue_id: 7)
    for told in (4, 3):
        await offsets.merge_from_master({"t@g": {0: told}})
        assert offsets.to_json()["offsetTable"] == {"t@g": {0: 4}}


async def test_what_is_doubted_is_saved_and_forgotten_with_its_queue() -> None:
    """A table told of queues that it does not have any more cannot be told."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=10)
    offsets.commit_offset("g", "t", 1, offset=5)
    offsets.dirty = False
    offsets.doubt(lambda _topic, _queue_id: 7)
    assert offsets.dirty
    assert offsets.to_json()["offsetTable"] == {"t@g": {0: 7, 1: 5}}
    offsets.forget_queue("t", 0)
    assert offsets.to_json()["offsetTable"] == {"t@g": {1: 5}}
    offsets.dirty = False
    offsets.doubt(lambda _topic, _queue_id: 7)
    assert not offsets.dirty


PEER = "10.0.0.9:5"


def elected(kind: RoleKind = RoleKind.SLAVE) -> tuple[ConsumerOffsetManager, Role]:
    """What was saved before this process, of a broker whose group elects."""
    offsets, role = ConsumerOffsetManager(), Role(kind)
    offsets.replace_from_json({"offsetTable": {"t@g": {0: 5, 1: 5, 2: 5}, "t@h": {0: 7, 1: 7}}})
    offsets.elect(role)
    return offsets, role


async def test_what_a_master_sets_back_or_deletes_goes_unless_somebody_has_committed_here() -> None:
    offsets, _ = elected()
    offsets.commit_offset("g", "t", 1, offset=6, peer=PEER)
    offsets.commit_offset("h", "t", 1, offset=8, peer=PEER)
    await offsets.merge_from_master({"t@g": {0: 2, 1: 2, 2: 9}}, is_whole=True)
    assert offsets.query_offsets("g", "t") == {0: 2, 1: 6, 2: 9}
    assert offsets.query_offsets("h", "t") == {1: 8}


async def test_nor_does_it_go_where_a_master_may_lack_it() -> None:
    """As one that has just started, or one that nobody elects: what is here may be the newer."""
    offsets, _ = elected()
    classic = ConsumerOffsetManager()
    classic.replace_from_json({"offsetTable": {"t@g": {0: 5}}})
    for one, is_whole in ((offsets, False), (classic, True)):
        before = one.query_offsets("g", "t"), one.query_offsets("h", "t")
        await one.merge_from_master({"t@g": {0: 2}}, is_whole=is_whole)
        assert (one.query_offsets("g", "t"), one.query_offsets("h", "t")) == before


@pytest.mark.parametrize("told", [6, 7])
async def test_what_a_master_has_reached_it_may_set_back(told: int) -> None:
    """It is no more what came here alone."""
    offsets, _ = elected()
    offsets.commit_offset("g", "t", 1, offset=6, peer=PEER)
    for table in ({"t@g": {1: told}}, {"t@g": {1: 2}}):
        await offsets.merge_from_master(table, is_whole=True)
    assert offsets.query_offsets("g", "t") == {1: 2}


@pytest.mark.parametrize("kind", RoleKind)
async def test_what_a_master_was_told_is_not_what_came_to_a_follower_alone(kind: RoleKind) -> None:
    """The next master has it from this one; and what this one had been told before it was master."""
    offsets, role = elected(kind)
    offsets.commit_offset("g", "t", 1, offset=6, peer=PEER)
    role.become(RoleKind.MASTER)
    offsets.commit_offset("g", "t", 0, offset=6, peer=PEER)
    role.become(RoleKind.SLAVE)
    await offsets.merge_from_master({"t@g": {0: 2}}, is_whole=True)
    assert offsets.query_offsets("g", "t") == {0: 2}


async def test_who_has_no_master_remembers_what_came_to_it_alone() -> None:
    offsets, role = elected(RoleKind.MASTER)
    role.become(RoleKind.CANDIDATE)
    offsets.commit_offset("g", "t", 1, offset=6, peer=PEER)
    role.become(RoleKind.SLAVE)
    await offsets.merge_from_master({"t@g": {0: 2}}, is_whole=True)
    assert offsets.query_offsets("g", "t") == {0: 2, 1: 6}


async def test_what_was_deleted_here_is_not_what_came_here() -> None:
    offsets, _ = elected()
    offsets.commit_offset("g", "t", 1, offset=6, peer=PEER)
    await offsets.remove_offset_in_turns("g")
    for table in ({"t@g": {1: 3}}, {"t@g": {1: 2}}):
        await offsets.merge_from_master(table, is_whole=True)
    assert offsets.query_offsets("g", "t") == {1: 2}


async def test_how_far_the_broker_itself_is_with_transactions_comes_by_another_way() -> None:
    offsets, _ = elected()
    offsets.commit_offset(CONSUMER_GROUP, HALF_TOPIC, 0, offset=3)
    await offsets.merge_from_master({}, is_whole=True)
    assert offsets.to_json()["offsetTable"] == {f"{HALF_TOPIC}@{CONSUMER_GROUP}": {0: 3}}


def test_what_was_saved_counts_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.ENTRIES_MAX", 3)
    offsets = ConsumerOffsetManager()
    offsets.replace_from_json({"offsetTable": {"t@a": {0: 1, 1: 2}, "t@b": {0: 3}}})
    with pytest.raises(RemoteProtocolError, match="the limit"):
        offsets.commit_offset("c", "t", 0, offset=1)
    offsets.commit_offset("a", "t", 1, offset=5)


def test_the_bytes_of_what_was_saved_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they did before the restart: names, which take most of them, too."""
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.TABLE_SIZE_MAX", 2000)
    before, after = ConsumerOffsetManager(), ConsumerOffsetManager()
    for number in range(13):
        before.commit_offset("g" * 100, f"t{number}", 0, offset=1)
    with pytest.raises(RemoteProtocolError, match="slaves can fetch"):
        before.commit_offset("g" * 100, "one-more", 0, offset=1)
    after.replace_from_json(before.to_json())
    with pytest.raises(RemoteProtocolError, match="slaves can fetch"):
        after.commit_offset("g" * 100, "one-more", 0, offset=1)


def test_what_was_cut_is_saved() -> None:
    offsets = ConsumerOffsetManager()
    offsets.replace_from_json({"offsetTable": {"t@g": {0: 7, 1: 7}}})
    assert offsets.cut(lambda _topic, queue_id: 7 - queue_id) == ["t@g/1"]
    assert (offsets.query_offset("g", "t", 0), offsets.query_offset("g", "t", 1), offsets.dirty) == (7, 6, True)


async def test_what_the_master_says_is_saved_and_not_again() -> None:
    offsets, master = ConsumerOffsetManager(), ConsumerOffsetManager()
    for offset, is_news in ((0, True), (0, False), (7, True), (7, False), (3, False)):
        master.commit_offset("g", "t", 0, offset=offset)
        offsets.dirty = False
        await offsets.merge_from_master(decode_offsets(master.to_json()))
        assert offsets.dirty is is_news


class Queues:
    """One queue that ends at ``end``; a store that has queues that begin anew calls ``on_begun_again``."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.on_begun_again: Callable[[str, int], None] = lambda _topic, _queue_id: None

    def range_of(self, topic: str, queue_id: int) -> tuple[int, int]:
        assert (topic, queue_id) == ("t", 0)
        return 0, self.end


@pytest.mark.parametrize(("end", "expected"), [(5, 2), (10, 10), (12, 10)])
async def test_where_nothing_is_nobody_has_consumed(end: int, expected: int) -> None:
    """The queue began anew at the master, where the group went on at its beginning: the slave takes that over."""
    offsets, master = ConsumerOffsetManager(), ConsumerOffsetManager()
    offsets.connect(Queues(end))  # type: ignore[arg-type]
    offsets.commit_offset("g", "t", 0, offset=10)
    master.commit_offset("g", "t", 0, offset=2)
    for is_news in (expected != 10, False):
        offsets.dirty = False
        await offsets.merge_from_master(decode_offsets(master.to_json()))
        assert (offsets.query_offset("g", "t", 0), offsets.dirty) == (expected, is_news)


async def test_a_queue_that_begins_anew_has_been_consumed_by_nobody() -> None:
    """The table says so at once: it may have more messages than before when the master is heard of next."""
    offsets, master, queues = ConsumerOffsetManager(), ConsumerOffsetManager(), Queues(12)
    offsets.connect(queues)  # type: ignore[arg-type]
    for topic, queue_id in (("t", 0), ("t", 1), ("tt", 0)):
        offsets.commit_offset("g", topic, queue_id, offset=10)
    queues.on_begun_again("t", 0)
    found = [offsets.query_offset("g", topic, queue_id) for topic, queue_id in (("t", 0), ("t", 1), ("tt", 0))]
    assert found == [None, 10, 10]
    master.commit_offset("g", "t", 0, offset=2)
    await offsets.merge_from_master(decode_offsets(master.to_json()))
    assert offsets.query_offset("g", "t", 0) == 2


async def test_room_for_the_masters_is_made_by_what_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fills the table comes after the groups that were there: these kept where they were at the slave alone."""
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.ENTRIES_MAX", 8)
    offsets = ConsumerOffsetManager()
    for topic in ("a", "b", "odd1", "odd2"):
        for queue_id in range(2):
            offsets.commit_offset("g", topic, queue_id, offset=1)
    await offsets.make_room_for({"a@g": {0: 5}, "c@g": {0: 5, 1: 5, 2: 5}})
    kept = {topic: offsets.query_offsets("g", topic) for topic in ("a", "b", "odd1", "odd2")}
    assert (kept["a"], kept["b"], kept["odd2"]) == ({0: 1, 1: 1}, {0: 1, 1: 1}, {})
    assert len(kept["odd1"]) == 1


async def test_two_that_make_room_at_one_time_forget_each_offset_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.ENTRIES_MAX", 3000)
    offsets = ConsumerOffsetManager()
    for number in range(3000):
        offsets.commit_offset("g", f"t{number // 300}", number % 300, offset=1)
    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(offsets.make_room_for, {f"{name}{number}@g": {0: 1} for number in range(2000)})
    assert sum(map(len, offsets.to_json()["offsetTable"].values())) == 1000


async def test_what_came_from_the_master_counts_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.ENTRIES_MAX", 3)
    offsets, master = ConsumerOffsetManager(), ConsumerOffsetManager()
    for queue_id in range(2):
        master.commit_offset("g", "t", queue_id, offset=5)
        await offsets.merge_from_master(decode_offsets(master.to_json()))
    offsets.commit_offset("g", "t", 2, offset=1)
    with pytest.raises(RemoteProtocolError, match="the offsets of 3 queues are kept, the limit"):
        offsets.commit_offset("g", "t", 3, offset=1)
    offsets.commit_offset("g", "t", 1, offset=1)
    master.commit_offset("g", "t", 0, offset=6)
    master.commit_offset("g", "t", 9, offset=6)
    with pytest.raises(RemoteProtocolError, match="1 of the master's consumer offsets are not taken"):
        await offsets.merge_from_master(decode_offsets(master.to_json()))
    assert offsets.query_offset("g", "t", 9) is None
    assert offsets.query_offset("g", "t", 0) == 6, "what is known already goes on"


@pytest.mark.parametrize("size", ["ENTRIES_MAX", "TABLE_SIZE_MAX"])
async def test_what_fills_a_slaves_table_takes_no_room_from_its_masters(
    size: str, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Made master, the slave would not know how far the groups are whose offsets it had no room for."""
    monkeypatch.setattr(f"rmqha.broker.tables.consumer_offset_manager.{size}", 20 if size == "ENTRIES_MAX" else 1500)
    net = SimNet()
    group = {"masterAddress": "10.0.0.1:10911", "haMasterAddress": "10.0.0.1:10912"}
    other = Machine(net, "10.0.0.2", group | {"brokerRole": "SLAVE", "brokerId": "1"})
    async with Machine(net, "10.0.0.1").broker() as master, other.broker() as slave:
        for queue_id in range(3):
            slave.offsets.commit_offset("g", "t", queue_id, offset=1 + queue_id)
        for host in range(40):
            with suppress(RemoteProtocolError):
                for queue_id in range(20):
                    slave.offsets.commit_offset("odd", f"t{host}", queue_id, offset=1, peer=f"10.9.0.{host}:1")
        for queue_id in range(1, 12):
            master.offsets.commit_offset("g", "t", queue_id, offset=9)
        await trio.sleep(15)
        assert slave.offsets.query_offsets("g", "t") == {0: 1} | dict.fromkeys(range(1, 12), 9)


@pytest.mark.parametrize("groups", [1, 20_000])
async def test_while_a_large_table_is_merged_consumers_commit(groups: int) -> None:
    """A full one took a second, in which a slave acknowledged nothing."""
    offsets, entries = ConsumerOffsetManager(), 20_000
    table = {f"t@g{group}": dict.fromkeys(range(entries // groups), 5) for group in range(groups)}
    last = f"g{groups - 1}", "t", entries // groups - 1
    turns = 0

    async def commit_in_each_turn() -> None:
        nonlocal turns
        while offsets.query_offset(*last) != 5:
            turns += 1
            offsets.commit_offset("mine", "t", turns, offset=turns)
            offsets.commit_offset("g0", "t", 1 - turns % 2, offset=7 + turns)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit_in_each_turn)
        await trio.lowlevel.checkpoint()
        await offsets.merge_from_master(table)
    assert turns > entries // 2000
    assert [offsets.query_offset("mine", "t", turn) for turn in range(1, turns + 1)] == list(range(1, turns + 1))
    assert {offsets.query_offset("g0", "t", 0), offsets.query_offset("g0", "t", 1)} == {6 + turns, 7 + turns}
    assert sum(map(len, offsets.to_json()["offsetTable"].values())) == entries + turns + (groups > 1)


async def test_a_commit_back_is_there_after_a_restart(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client:
        for number in range(5):
            await ask(client, send_request(b"%d" % number))
        for offset in (5, 3):
            header = UpdateConsumerOffsetRequestHeader("g", "t", 0, offset)
            request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header))
            assert (await ask(client, request)).code == ResponseCode.SUCCESS
            assert broker.offsets.query_offset("g", "t", 0) == offset
    async with machine.broker() as broker:
        assert broker.offsets.query_offset("g", "t", 0) == 3


def test_no_commit_makes_the_table_too_large_to_be_fetched() -> None:
    """A slave asks for it in one frame; names may have escapes, and count as they are written."""
    offsets, number = ConsumerOffsetManager(), 0
    with suppress(RemoteProtocolError):
        for number in range(ENTRIES_MAX):
            offsets.commit_offset(f"{number:0200}\n", "t" * 127, 0, offset=2**62)
    with pytest.raises(RemoteProtocolError, match="slaves can fetch"):
        offsets.commit_offset(f"{number:0200}\n", "t" * 127, 0, offset=1)
    body = java_json.dumps(offsets.to_json()).encode()
    assert FRAME_SIZE_MAX * 2 // 3 < len(body) < FRAME_SIZE_MAX
    offsets.commit_offset(f"{0:0200}\n", "t" * 127, 0, offset=1)  # what is known goes on


def test_nor_do_negative_numbers() -> None:
    """Each takes a byte more, which for 37,000 groups with two queues each was too much."""
    offsets = ConsumerOffsetManager()
    with suppress(RemoteProtocolError):
        for number in range(ENTRIES_MAX):
            for queue_id in (-(2**31), -(2**31) + 1):
                offsets.commit_offset(f"{number:0255}", "t" * 127, queue_id, offset=-(2**63))
    assert len(java_json.dumps(offsets.to_json()).encode()) < FRAME_SIZE_MAX - 1000


async def test_who_cannot_commit_any_more_goes_on_consuming(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's consumers commit with each pull: one client that fills the table kept all other groups from pulling."""
    monkeypatch.setattr("rmqha.broker.tables.consumer_offset_manager.ENTRIES_MAX", 0)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
        pull = pull_request(0, suspend_ms=5000)
        flags = int(pull.ext_fields["sysFlag"]) | PullSysFlag.COMMIT_OFFSET
        pull.ext_fields.update(sysFlag=str(int(flags)), commitOffset="1")
        assert (await ask(client, pull)).code == ResponseCode.SUCCESS
        assert broker.offsets.query_offset("consumers", "t", 0) is None


def test_a_commit_of_the_same_place_is_no_operators_word() -> None:
    """Consumers commit every five seconds: it would count as later than what was consumed elsewhere."""
    offsets = ConsumerOffsetManager(now_ms=lambda: 5)
    for offset in (3, 3, 4):
        offsets.commit_offset("g", "t", 0, offset=offset)
    assert not offsets.changed
    offsets.commit_offset("g", "t", 0, offset=3)
    assert offsets.changed.of("t@g@0") == 5


async def test_what_rocketmq_was_told_on_the_masters_store_is_later_than_what_its_slave_was_told_before() -> None:
    """The slave's larger offset stayed, and the group passed over what lies between once that was promoted."""
    slave = ConsumerOffsetManager(now_ms=lambda: 1_000)
    slave.commit_offset("g", "t", 0, offset=50)
    slave.commit_offset("g", "t", 0, offset=10)
    for group in ("g", "untouched"):
        slave.commit_offset(group, "t", 0, offset=100)
    table = {"t@g": {0: 5}, "t@untouched": {0: 5}}
    assert await slave.not_since(table, {"": 2_000}) == table
    assert await slave.not_since(table, {"": 500}) == {"t@untouched": {0: 5}}
    await slave.merge_from_master(table, changed={"": 2_000})
    assert [slave.query_offset(group, "t", 0) for group in ("g", "untouched")] == [5, 100]
