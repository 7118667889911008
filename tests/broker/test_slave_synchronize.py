"""SlaveSynchronize: what a slave takes over of its master's tables."""

import json
import threading
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker import questions
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.offset_table import CHANGED_OFFSETS, OffsetTable, decode_offsets
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC, OP_TOPIC
from rmqha.codec import java_json
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.store.consume_queue_table import QueueKey
from tests.broker.machines import Machine, ask
from tests.broker.test_master_link import SLAVE, answering, link_with
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_large_table_is_read_in_a_thread(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read it takes seconds, during which a slave would acknowledge nothing. Real ones: a thread knows no others."""
    read_by: set[bool] = set()
    json_of = questions.json_of

    def note_thread() -> None:
        read_by.add(threading.current_thread() is threading.main_thread())

    def noticed_json_of(answer: RemotingCommand) -> dict[str, Any]:
        if b"offsetTable" in answer.body:
            note_thread()
        return json_of(answer)

    def noticed_decode_offsets(value: dict[str, Any]) -> OffsetTable:
        note_thread()
        return decode_offsets(value)

    monkeypatch.setattr(questions, "json_of", noticed_json_of)
    monkeypatch.setattr("rmqha.broker.slave_synchronize.decode_offsets", noticed_decode_offsets)
    net = SimNet()
    group = {"masterAddress": "10.0.0.1:10911", "haMasterAddress": "10.0.0.1:10912"}
    machine = Machine(net, "10.0.0.1")
    other = Machine(net, "10.0.0.2", group | {"brokerRole": "SLAVE", "brokerId": "1"})
    async with machine.broker() as master, other.broker() as slave:
        for number in range(5000 if is_large else 5):
            master.offsets.commit_offset(f"group{number}", "t", 0, offset=number)
        merged, merge = trio.Event(), slave.offsets.merge_from_master

        async def merge_from_master(table: OffsetTable, **how: Any) -> None:
            await merge(table, **how)
            merged.set()

        monkeypatch.setattr(slave.offsets, "merge_from_master", merge_from_master)
        await merged.wait()
        assert slave.offsets.query_offset("group4", "t", 0) == 4
    assert read_by == {not is_large}


def synchronize_with(net: SimNet, host: str, broker: BrokerController) -> SlaveSynchronize:
    """As ``broker`` on ``host`` has one."""
    return SlaveSynchronize(link_with(net, host, broker.config), broker.metadata)


KEPT = {
    RequestCode.GET_ALL_DELAY_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{3:17}}'),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: RemotingCommand(
        0,
        body=b'{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3}}}',
    ),
}
ENDS_AT_0 = {"commitLogMaxOffset": "0"}


async def test_an_error_in_place_of_a_table_is_said_and_the_other_table_is_taken(virtual_clock: VirtualClock) -> None:
    net = SimNet()
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    slave.topics.learn_queue("kept", 0)
    others = {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(1, remark="No topic config in this broker"),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{"t@group":{0:7}}}'),
        **KEPT,
    }
    with capture_logs() as logs:
        async with answering(net, ENDS_AT_0, others), trio.open_nursery() as nursery:
            tables = synchronize_with(net, "10.0.0.2", slave)
            nursery.start_soon(tables.run, SLAVE["masterAddress"])
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
    told = [line["reason"] for line in logs if line["event"] == "master_link.not_synchronized"]
    assert told == ["request 21 (GET_ALL_TOPIC_CONFIG) is answered with error 1: No topic config in this broker"]
    assert slave.topics.select("kept") is not None
    assert slave.offsets.query_offset("group", "t", 0) == 7


async def test_of_a_master_that_is_about_to_begin_no_table_is_taken(virtual_clock: VirtualClock) -> None:
    """It said that it starts, and a moment later told the tables of an older copy, as if it lacked none."""
    net = SimNet()
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    starting: dict[str, Any] = {"broker_name": "broker-a", "broker_id": 0, "role": "ASYNC_MASTER", "starting": {}}
    table = ENDS_AT_0 | {STATUS_KEY: json.dumps(starting)}
    async with answering(net, table, told_by_a_peer(b'{"offsetTable":{}}')):
        tables = synchronize_with(net, "10.0.0.2", slave)
        await tables.synchronize("10.0.0.1:10911")
        assert "starting" in tables.failure
        group = slave.groups.select("g")
        assert group is None or group.retry_max_times == 16, "not that master's"
        assert "starting" in (await tables.merge("10.0.0.1:10911", is_lost=True, next_offset=None)).failure


async def test_a_table_that_is_not_taken_over_undoes_nothing(virtual_clock: VirtualClock) -> None:
    """It says nothing, at each round: no change of operators is told to be undone by it."""
    net, code = SimNet(), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    slave.groups.update(SubscriptionGroupConfig("g", retry_max_times=7))
    nothing = RemotingCommand(0, body=b'{"subscriptionGroupTable":{},"changedGroups":{"other":1}}')
    with capture_logs() as logs:
        async with answering(net, dict(ENDS_AT_0), told_by_a_peer(b'{"offsetTable":{}}') | {code: nothing}):
            tables = synchronize_with(net, "10.0.0.2", slave)
            for _ in range(3):
                await tables.synchronize("10.0.0.1:10911")
    group = slave.groups.select("g")
    assert group is not None
    assert group.retry_max_times == 7
    assert "master_link.later_changes_undone" not in {log["event"] for log in logs}


async def test_what_a_master_of_rocketmq_s_says_is_kept_and_handed_on(virtual_clock: VirtualClock) -> None:
    """How far delayed messages are, and the settings of groups; who is told that there are none drops its own."""
    net = SimNet()
    machine = Machine(net, "10.0.0.2", SLAVE)
    others = {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{}}'),
    }
    delays, groups = RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    async with answering(net, ENDS_AT_0, others | KEPT), machine.broker(), machine.client() as client:
        assert (await ask(client, RemotingCommand(delays))).code == ResponseCode.SYSTEM_BUSY
        await trio.sleep(20)
    for code in KEPT:
        others[code] = RemotingCommand(0, body=b'{"offsetTable":{},"subscriptionGroupTable":{}}')
    async with answering(net, ENDS_AT_0, others), machine.broker(), machine.client() as client:
        await trio.sleep(20)
        answer = await ask(client, RemotingCommand(delays))
        assert java_json.loads(answer.body) == java_json.loads(KEPT[delays].body)
        table = java_json.loads((await ask(client, RemotingCommand(groups))).body)
        assert table["dataVersion"] == {"counter": 1, "timestamp": 2}
        assert table["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3


async def test_a_slave_counts_no_delivery_that_its_log_does_not_have(virtual_clock: VirtualClock) -> None:
    """Its master is ahead: had it believed the master's offsets, it would never deliver what its log lacks."""
    net = SimNet()
    machine = Machine(net, "10.0.0.2", SLAVE)
    others = {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{}}'),
    }
    async with answering(net, {"commitLogMaxOffset": "1"}, others | KEPT), machine.broker(), machine.client() as client:
        await trio.sleep(60)
        answer = await ask(client, RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET))
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_masters_log_is_asked_for_after_what_it_delivered(virtual_clock: VirtualClock) -> None:
    """It may deliver in between: asked for before, the log's end would vouch for a delivery that lies behind it."""
    net = SimNet()
    machine, table = Machine(net, "10.0.0.2", SLAVE), dict(ENDS_AT_0)
    others = {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{}}'),
        **KEPT,
    }

    def deliver(code: RequestCode) -> None:
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            table["commitLogMaxOffset"] = "1"

    async with answering(net, table, others, on_asked=deliver), machine.broker(), machine.client() as client:
        await trio.sleep(60)
        assert table != ENDS_AT_0
        answer = await ask(client, RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET))
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_each_time_a_master_has_lost_its_tables_it_is_given_a_minute(virtual_clock: VirtualClock) -> None:
    """The second time, hours later, its slaves took the empty ones over at once, and nobody had others any more."""
    net, table = SimNet(), dict(ENDS_AT_0)
    tables = synchronize_with(net, "10.0.0.2", Machine(net, "10.0.0.2").controller(**SLAVE))

    async def refused_for_s(*, are_awaited: bool) -> float:
        status = {"broker_name": "broker-a", "broker_id": 0, "tables": {"term": -1, "are_awaited": are_awaited}}
        table[STATUS_KEY] = json.dumps(status)
        begun_at = trio.current_time()
        while True:
            await tables.synchronize(SLAVE["masterAddress"])
            if "its tables were lost" not in tables.failure:
                return trio.current_time() - begun_at
            await trio.sleep(1)

    async with answering(net, table, told_by_a_peer(b"{}")):
        for _ in range(2):
            assert await refused_for_s(are_awaited=True) == pytest.approx(60, abs=2)
            assert await refused_for_s(are_awaited=False) < 1
            await trio.sleep(3600)


async def test_what_a_former_master_said_of_half_messages_does_not_count(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its log, which it spoke of, may be cut: other half messages lie there in the next master's."""
    is_settled = False
    monkeypatch.setattr(DelayOffsets, "is_settled", lambda _self, _log_end: is_settled)
    net = SimNet()
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    tables = synchronize_with(net, "10.0.0.2", slave)
    topics = {RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'), **KEPT}
    for told in (7, 3):
        offsets = json.dumps({"offsetTable": {f"{HALF_TOPIC}@{CONSUMER_GROUP}": {"0": told}}}).encode()
        others = topics | {RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=offsets)}
        async with answering(net, {"commitLogMaxOffset": "1000"}, others):
            with trio.move_on_after(20):
                await tables.run(SLAVE["masterAddress"])
        assert slave.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == (3 if is_settled else None)
        is_settled = True


async def test_how_far_half_messages_are_is_known_though_the_master_s_log_grows_from_round_to_round(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that is always a little behind never knew, and asked about all of them once it was promoted."""
    net, settled_to = SimNet(), 0
    monkeypatch.setattr(DelayOffsets, "is_settled", lambda _self, log_end: log_end <= settled_to)
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    tables, table = synchronize_with(net, "10.0.0.2", slave), {"commitLogMaxOffset": "1000"}
    others = KEPT | {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(1, remark="later"),
    }
    found = []
    async with answering(net, table, others):
        for told in range(1, 4):
            offsets = json.dumps({"offsetTable": {f"{HALF_TOPIC}@{CONSUMER_GROUP}": {"0": told}}}).encode()
            others[RequestCode.GET_ALL_CONSUMER_OFFSET] = RemotingCommand(0, body=offsets)
            table["commitLogMaxOffset"], settled_to = str(1000 * told), 1000 * (told - 1)
            await tables.synchronize(SLAVE["masterAddress"])
            found.append(slave.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0))
    assert found == [None, 1, 1]


def told_by_a_peer(offsets: bytes) -> dict[RequestCode, RemotingCommand]:
    return KEPT | {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=offsets),
    }


async def test_deliveries_of_a_peer_count_once_the_log_reaches_its_end_of_afterwards(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have come to its log since that was asked for."""
    net, table = SimNet(), {"commitLogMaxOffset": "500"}
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    taken = list[tuple[dict[int, int], int]]()

    def take_newer(offsets: dict[int, int], *, log_end: int) -> None:
        taken.append((offsets, log_end))

    def deliver(code: RequestCode) -> None:
        if code is RequestCode.GET_ALL_DELAY_OFFSET:
            table["commitLogMaxOffset"] = "600"

    monkeypatch.setattr(master.metadata.delay_offsets, "take_newer", take_newer)
    async with answering(net, table, told_by_a_peer(b'{"offsetTable":{}}'), on_asked=deliver):
        tables = synchronize_with(net, "10.0.0.2", master)
        assert (await tables.merge("10.0.0.1:10911", is_lost=True, next_offset=None)).failure == ""
    assert taken == [({3: 17}, 600)]


async def test_how_far_a_peer_was_with_half_messages_does_not_count(virtual_clock: VirtualClock) -> None:
    """The log tells that; half messages that are to come from there, or were put here since, would not be checked."""
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    own = {f"{topic}@{CONSUMER_GROUP}": {"0": 7} for topic in (HALF_TOPIC, OP_TOPIC)}
    offsets = json.dumps({"offsetTable": own | {"t@g": {"0": 5}}}).encode()
    async with answering(net, ENDS_AT_0, told_by_a_peer(offsets)):
        tables = synchronize_with(net, "10.0.0.2", master)
        assert (await tables.merge("10.0.0.1:10911", is_lost=True, next_offset=None)).failure == ""
    assert master.offsets.to_json()["offsetTable"] == {"t@g": {0: 5}}


async def test_of_a_rocketmq_peer_only_what_was_consumed_behind_this_log_is_new(virtual_clock: VirtualClock) -> None:
    """A group may have been set back here since."""
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    for queue_id in range(2):
        master.offsets.commit_offset("g", "t", queue_id, offset=3)
    async with answering(net, ENDS_AT_0, told_by_a_peer(b'{"offsetTable":{"t@g":{0:5,1:6}}}')):
        tables = synchronize_with(net, "10.0.0.2", master)
        merged = await tables.merge("10.0.0.1:10911", is_lost=False, next_offset=lambda _topic, _queue_id: 5)
        assert merged.failure == ""
    assert master.offsets.query_offsets("g", "t") == {0: 3, 1: 6}


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_was_decided_here_an_older_slave_of_rocketmqs_does_not_undo(
    is_lost: bool, virtual_clock: VirtualClock
) -> None:
    """A reset, and a group's removal, that another peer had told of were gone again: it mattered who came last."""
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    for group in ("g", "removed"):
        master.offsets.commit_offset(group, "t", 0, offset=7)
    master.offsets.commit_offset("g", "t", 0, offset=3)
    await master.offsets.remove_offset_in_turns("removed")
    peer = told_by_a_peer(b'{"offsetTable":{"t@g":{0:7},"t@removed":{0:7},"t@other":{0:7}}}')
    async with answering(net, ENDS_AT_0, peer):
        tables = synchronize_with(net, "10.0.0.2", master)
        next_offset = None if is_lost else (lambda _topic, _queue_id: 9)
        merged = await tables.merge("10.0.0.1:10911", is_lost=is_lost, next_offset=next_offset, takes_unknown=True)
        assert merged.failure == ""
    assert [master.offsets.query_offset(group, "t", 0) for group in ("g", "removed", "other")] == [3, None, 7]


async def told_by(
    net: SimNet, tables: SlaveSynchronize, offsets: object, heard: HeardLogs, *, end: int, changed: object = None
) -> None:
    """By a broker whose log goes to ``end``; of RocketMQ's, which has no stamps, if nothing was ``changed``."""
    body = java_json.dumps({"offsetTable": offsets} | ({CHANGED_OFFSETS: changed} if changed else {})).encode()
    async with answering(net, {"commitLogMaxOffset": str(end)}, told_by_a_peer(body)):
        merged = await tables.merge("10.0.0.1:10911", is_lost=True, next_offset=None, heard=heard)
        assert merged.failure == ""


@pytest.mark.parametrize(("ends", "heard_to", "told_to"), [({("t", 0): 9}, 0, 200), (None, 200, 0)])
async def test_who_has_more_than_this_log_has_not_followed_it(
    ends: dict[QueueKey, int] | None, heard_to: int, told_to: int, virtual_clock: VirtualClock
) -> None:
    """Its log goes beyond where this one began to serve, which is later than what others have told."""
    net, heard = SimNet(), HeardLogs(100)
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    tables = synchronize_with(net, "10.0.0.2", master)
    async with answering(net, {"commitLogMaxOffset": "200"}, told_by_a_peer(b'{"offsetTable":{"t@g":{0:5}}}')):
        merged = await tables.merge(
            "10.0.0.1:10911", is_lost=False, next_offset=None, heard=heard, ends=ends, follows_from=150
        )
    assert (merged.failure, heard.heard_to, heard.told_to) == ("", heard_to, told_to)


@pytest.mark.parametrize("is_rocketmqs_first", [True, False])
async def test_a_slave_of_rocketmqs_whose_log_goes_farther_says_where_groups_are_by_now(
    is_rocketmqs_first: bool, virtual_clock: VirtualClock
) -> None:
    """An rmqha slave that had been away for days told of a reset of long ago: days of messages came again."""
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    tables, heard = synchronize_with(net, "10.0.0.2", master), HeardLogs()
    old = {"t@g": {0: 5}, "t@other": {0: 3}}, {"t@g@0": 1000, "t@other@0": 1000, "@removed": 1000}
    for is_rocketmqs in (is_rocketmqs_first, not is_rocketmqs_first):
        if is_rocketmqs:
            await told_by(net, tables, {"t@g": {0: 90}, "t@removed": {0: 80}}, heard, end=200)
        else:
            await told_by(net, tables, old[0], heard, end=100, changed=old[1])
    assert [master.offsets.query_offset(group, "t", 0) for group in ("g", "removed", "other")] == [90, 80, 3]


@pytest.mark.parametrize("is_rocketmqs_first", [True, False])
async def test_what_a_slave_that_was_there_longer_than_rocketmqs_tells_of_resets_counts(
    is_rocketmqs_first: bool, virtual_clock: VirtualClock
) -> None:
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    tables, heard = synchronize_with(net, "10.0.0.2", master), HeardLogs()
    for is_rocketmqs in (is_rocketmqs_first, not is_rocketmqs_first):
        if is_rocketmqs:
            await told_by(net, tables, {"t@g": {0: 90}, "t@removed": {0: 80}}, heard, end=200)
        else:
            await told_by(net, tables, {"t@g": {0: 5}}, heard, end=300, changed={"t@g@0": 1000, "@removed": 1000})
    assert [master.offsets.query_offset(group, "t", 0) for group in ("g", "removed")] == [5, None]


def told_of(
    topics: dict[str, object], groups: dict[str, object], *, at: int, stamps: dict[str, int] | None
) -> dict[RequestCode, RemotingCommand]:
    """Tables whose last change was ``at``, without stamps as RocketMQ's."""
    version = {"dataVersion": {"timestamp": at, "counter": 3}}

    def answer(table: dict[str, object], member: str) -> RemotingCommand:
        return RemotingCommand(0, body=java_json.dumps(table | ({} if stamps is None else {member: stamps})).encode())

    return KEPT | {
        RequestCode.GET_ALL_TOPIC_CONFIG: answer(version | {"topicConfigTable": topics}, "changedTopics"),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer(
            version | {"subscriptionGroupTable": groups}, "changedGroups"
        ),
        RequestCode.GET_ALL_CONSUMER_OFFSET: answer({"offsetTable": {}}, CHANGED_OFFSETS),
    }


@pytest.mark.parametrize("is_rocketmqs_first", [True, False])
@pytest.mark.parametrize(("changed_at", "end", "perm"), [(1000, 100, 4), (9000, 100, 6), (9000, 300, 6)])
async def test_a_slave_of_rocketmqs_whose_log_goes_farther_says_what_topics_and_groups_are_by_now(
    changed_at: int, end: int, perm: int, is_rocketmqs_first: bool, virtual_clock: VirtualClock
) -> None:
    """An rmqha slave that had been away for days opened a topic again that an operator had closed since.

    That slave has a stamp, of ``changed_at``, and its log goes to ``end``. The other one's goes to 200, and what it has
    was changed at 5000 the last time.
    """
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    tables, heard = synchronize_with(net, "10.0.0.2", master), HeardLogs()
    stamped = dict.fromkeys(("t", "mine", "g"), changed_at)
    for is_rocketmqs in (is_rocketmqs_first, not is_rocketmqs_first):
        if is_rocketmqs:
            others = told_of({"t": {"perm": 4}}, {"g": {"consumeEnable": False}}, at=5000, stamps=None)
        else:
            others = told_of({"t": {"perm": 6}, "mine": {}}, {"g": {}}, at=changed_at, stamps=stamped)
        async with answering(net, {"commitLogMaxOffset": str(200 if is_rocketmqs else end)}, others):
            merged = await tables.merge("10.0.0.1:10911", is_lost=not heard.end, next_offset=None, heard=heard)
            assert merged.failure == ""
    topic, group = master.topics.select("t"), master.groups.select("g")
    assert topic is not None
    assert group is not None
    assert (topic.perm, group.consume_enable) == (perm, perm == 6)
    assert master.topics.select("mine") is not None


@pytest.mark.parametrize(
    ("fails", "process", "was_away"),
    [(False, "1", False), (True, "1", False), (True, "2", True), (False, "", False), (True, "", True)],
)
async def test_a_group_that_is_set_back_on_a_master_of_rocketmqs_is_set_back_here(
    fails: bool, process: str, was_away: bool, virtual_clock: VirtualClock
) -> None:
    """It stamps nothing, and the slave kept the larger place: once promoted, it passed over what was between.

    So it did where it missed one round. A master that was away, or may have been,
    comes back with an older table: what clients told the slave meanwhile stays.
    """
    net = SimNet()
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    others = KEPT | {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{"t@g":{0:100,1:100}}}'),
        RequestCode.GET_BROKER_CONFIG: RemotingCommand(
            0, body=b"brokerIP1=10.0.0.1\nlistenPort=10911\nhaListenPort=10912\nbrokerId=0\nbrokerRole=ASYNC_MASTER\n"
        ),
    }
    if not process:
        del others[RequestCode.GET_BROKER_CONFIG]
    table = ENDS_AT_0 | {"bootTimestamp": "1"}
    async with answering(net, table, others):
        tables = synchronize_with(net, "10.0.0.2", slave)
        await tables.synchronize(SLAVE["masterAddress"])
        slave.offsets.commit_offset("g", "t", 1, offset=120)
        table["bootTimestamp"] = process
        if fails:
            others[RequestCode.GET_ALL_CONSUMER_OFFSET] = RemotingCommand(1, remark="not now")
            await tables.synchronize(SLAVE["masterAddress"])
            assert tables.failure != ""
        others[RequestCode.GET_ALL_CONSUMER_OFFSET] = RemotingCommand(0, body=b'{"offsetTable":{"t@g":{0:20,1:100}}}')
        for _ in range(2):
            await tables.synchronize(SLAVE["masterAddress"])
            assert slave.offsets.query_offsets("g", "t") == {0: 100 if was_away else 20, 1: 120}


@pytest.mark.parametrize("are_awaited", [True, False])
async def test_what_was_decided_since_tables_were_lost_no_word_of_before_undoes(
    are_awaited: bool, virtual_clock: VirtualClock
) -> None:
    """A slave of RocketMQ's that came later undid it, as its log was the longest of all that had told."""
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    master.offsets.made_since.are_awaited = lambda: are_awaited
    for group in ("reset", "removed", "again"):
        master.offsets.commit_offset(group, "t", 0, offset=60)
    master.offsets.commit_offset("reset", "t", 0, offset=20)
    for group in ("removed", "again"):
        await master.offsets.remove_offset_in_turns(group)
    master.offsets.commit_offset("again", "t", 0, offset=3)
    told = {f"t@{group}": {0: 90} for group in ("reset", "removed", "again", "other")}
    await told_by(net, synchronize_with(net, "10.0.0.2", master), told, HeardLogs(), end=100)
    found = [master.offsets.query_offset(group, "t", 0) for group in ("reset", "removed", "again", "other")]
    assert found == ([20, None, 3, 90] if are_awaited else [90] * 4)


async def test_of_a_queue_that_holds_nothing_in_either_log_no_place_counts(virtual_clock: VirtualClock) -> None:
    """The group would pass over the first messages that are sent there."""
    net = SimNet()
    master = Machine(net, "10.0.0.2").controller(brokerRole="ASYNC_MASTER")
    async with answering(net, ENDS_AT_0, told_by_a_peer(b'{"offsetTable":{"t@g":{0:5,1:7}}}')):
        tables = synchronize_with(net, "10.0.0.2", master)
        assert (await tables.merge("10.0.0.1:10911", is_lost=True, next_offset=None, ends={("t", 0): 4})).failure == ""
    assert master.offsets.query_offsets("g", "t") == {0: 4, 1: 0}
