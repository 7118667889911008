"""MasterLink: what a slave takes over of its master's tables."""

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker import master_link
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.group import ReplicationGroup
from rmqha.broker.master_link import MasterLink
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.tables.consumer_offset_manager import OffsetTable, decode_offsets
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC
from rmqha.codec import java_json
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.replication.master_session import LogRange
from tests.broker.machines import Machine, ask
from tests.settings import remoting_limits
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_large_table_is_read_in_a_thread(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read it takes seconds, during which a slave would acknowledge nothing. Real ones: a thread knows no others."""
    read_by: set[bool] = set()
    json_of = master_link.json_of

    def note_thread() -> None:
        read_by.add(threading.current_thread() is threading.main_thread())

    def noticed_json_of(answer: RemotingCommand) -> dict[str, Any]:
        if b"offsetTable" in answer.body:
            note_thread()
        return json_of(answer)

    def noticed_decode_offsets(value: dict[str, Any]) -> OffsetTable:
        note_thread()
        return decode_offsets(value)

    monkeypatch.setattr(master_link, "json_of", noticed_json_of)
    monkeypatch.setattr("rmqha.broker.master_link.decode_offsets", noticed_decode_offsets)
    net = SimNet()
    group = {"masterAddress": "10.0.0.1:10911", "haMasterAddress": "10.0.0.1:10912"}
    machine = Machine(net, "10.0.0.1")
    other = Machine(net, "10.0.0.2", group | {"brokerRole": "SLAVE", "brokerId": "1"})
    async with machine.broker() as master, other.broker() as slave:
        for number in range(5000 if is_large else 5):
            master.offsets.commit_offset(f"group{number}", "t", 0, offset=number)
        merged, merge = trio.Event(), slave.offsets.merge_from_master

        async def merge_from_master(table: OffsetTable, *, is_whole: bool) -> None:
            await merge(table, is_whole=is_whole)
            merged.set()

        monkeypatch.setattr(slave.offsets, "merge_from_master", merge_from_master)
        await merged.wait()
        assert slave.offsets.query_offset("group4", "t", 0) == 4
    assert read_by == {not is_large}


def link_of(net: SimNet, host: str, **settings: str) -> MasterLink:
    """As a broker on ``host`` has one; that broker is not started."""
    return link_with(net, host, Machine(net, host).controller(**settings))


def link_with(net: SimNet, host: str, broker: BrokerController) -> MasterLink:
    group = ReplicationGroup(broker.config, slave_addresses=lambda: (), name_slave=lambda _host, _port, _name: None)
    return MasterLink(net.host(host).mount(), broker.config, broker.metadata, group=group)


KEPT = {
    RequestCode.GET_ALL_DELAY_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{3:17}}'),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: RemotingCommand(
        0,
        body=b'{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3}}}',
    ),
}
ENDS_AT_0 = {"commitLogMaxOffset": "0"}
SLAVE = {
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "masterAddress": "10.0.0.1:10911",
    "haMasterAddress": "10.0.0.1:10912",
}


async def test_a_broker_is_not_asked_what_another_one_holds(autojump_clock: MockClock) -> None:
    """Neither is masterAddress for a peer that is not there, nor a neighbour whose HA port is another one."""
    net = SimNet()
    async with Machine(net, "10.0.0.1").broker() as master, Machine(net, "10.0.0.3").broker(haListenPort="20000"):
        link = link_of(net, "10.0.0.2", **SLAVE)
        assert await link.probe(MasterAddress("10.0.0.4", 10912)) is None
        assert await link.probe(MasterAddress("10.0.0.3", 10912)) is None
        found = await link.probe(MasterAddress("10.0.0.1", 10912))
        assert found is not None
        assert (found.max_offset, found.checks_reports) == (master.store.max_offset, True)


@asynccontextmanager
async def answering(
    net: SimNet,
    table: dict[str, str],
    others: dict[RequestCode, RemotingCommand] | None = None,
    *,
    on_asked: Callable[[RequestCode], None] = lambda _code: None,
) -> AsyncIterator[None]:
    """A broker at 10.0.0.1 that answers 28 with the ``table`` at that moment, and these ``others``."""
    dispatcher = RequestDispatcher()

    def tell_table(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, body=json.dumps({"table": table}).encode())

    def tell(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
        code = RequestCode(request.code)
        on_asked(code)
        return (others or {})[code]

    dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, tell_table)
    for code in others or {}:
        dispatcher.register(code, tell)
    async with trio.open_nursery() as nursery:
        listener = await net.host("10.0.0.1").mount().listen("10.0.0.1", 10911)
        nursery.start_soon(RemotingServer(dispatcher, limits=remoting_limits()).serve, listener)
        yield
        nursery.cancel_scope.cancel()


async def test_a_broker_that_is_starting_is_told_from_one_that_says_nothing(autojump_clock: MockClock) -> None:
    net = SimNet()
    starting = {STATUS_KEY: json.dumps({"starting": {"what": "recovering"}})}
    async with answering(net, starting):
        with pytest.raises(BrokerStartingError, match="recovering"):
            await link_of(net, "10.0.0.2", **SLAVE).probe(MasterAddress("10.0.0.1", 10912))


async def test_rocketmq_is_not_taken_for_one_that_checks_reports(autojump_clock: MockClock) -> None:
    """A slave that is ahead would show up there, and be counted."""
    net = SimNet()
    async with answering(net, {"commitLogMinOffset": "-1", "commitLogMaxOffset": "500"}):
        found = await link_of(net, "10.0.0.2", **SLAVE).probe(MasterAddress("10.0.0.1", 10912))
    assert found == LogRange(-1, 500, checks_reports=False)


async def test_an_error_in_place_of_a_table_is_said_and_the_other_table_is_taken(autojump_clock: MockClock) -> None:
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
            link = link_with(net, "10.0.0.2", slave)
            nursery.start_soon(link.run, SLAVE["masterAddress"])
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
    told = [line["reason"] for line in logs if line["event"] == "master_link.not_synchronized"]
    assert told == ["request 21 (GET_ALL_TOPIC_CONFIG) is answered with error 1: No topic config in this broker"]
    assert slave.topics.select("kept") is not None
    assert slave.offsets.query_offset("group", "t", 0) == 7


async def test_what_a_master_of_rocketmq_s_says_is_kept_and_handed_on(autojump_clock: MockClock) -> None:
    """How far delayed messages are, and the settings of groups; who is told that there are none drops its own."""
    net = SimNet()
    machine = Machine(net, "10.0.0.2", SLAVE)
    others = {
        RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'),
        RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=b'{"offsetTable":{}}'),
    }
    delays, groups = RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    async with answering(net, ENDS_AT_0, others | KEPT), machine.broker(), machine.client() as client:
        assert (await ask(client, RemotingCommand(delays))).code == ResponseCode.SYSTEM_ERROR
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


async def test_a_slave_counts_no_delivery_that_its_log_does_not_have(autojump_clock: MockClock) -> None:
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


ROCKETMQ = {"commitLogMinOffset": "0", "commitLogMaxOffset": "500"}


@pytest.mark.parametrize(
    ("table", "answer"),
    [
        (ROCKETMQ, RemotingCommand(0, body=b"brokerId=7\n" + b"a\\\n" * 30_000)),
        (ROCKETMQ, RemotingCommand(0, body=b"brokerId=7\n", remark="x" * 200_000)),
        (ROCKETMQ | {STATUS_KEY: " " * 1_100_000 + "{}"}, RemotingCommand(0)),
        (ROCKETMQ | {STATUS_KEY: "[]"}, RemotingCommand(0)),
    ],
    ids=["configuration", "header", "status", "status that is none"],
)
async def test_an_answer_too_large_for_what_was_asked_is_none(
    table: dict[str, str], answer: RemotingCommand, mock_clock: MockClock
) -> None:
    """To read it would hold up replication, for minutes, if its sender means harm."""
    net = SimNet()
    mock_clock.rate = 50  # a thread works in real time
    async with answering(net, table, {RequestCode.GET_BROKER_CONFIG: answer}):
        assert await link_of(net, "10.0.0.2", **SLAVE).probe(MasterAddress("10.0.0.1", 10912)) is None


async def test_rocketmq_says_who_it_is(autojump_clock: MockClock) -> None:
    net, answer = SimNet(), RemotingCommand(0, body=b"brokerId=7\nbrokerName=x\n" + b"#" * 60_000)
    async with answering(net, ROCKETMQ, {RequestCode.GET_BROKER_CONFIG: answer}):
        found = await link_of(net, "10.0.0.2", **SLAVE).probe(MasterAddress("10.0.0.1", 10912))
    assert found is not None
    assert found.member is not None
    assert (found.member.broker_id, found.member.broker_name) == (7, "x")


async def test_a_masters_log_is_asked_for_after_what_it_delivered(autojump_clock: MockClock) -> None:
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


async def test_what_a_former_master_said_of_half_messages_does_not_count(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its log, which it spoke of, may be cut: other half messages lie there in the next master's."""
    is_settled = False
    monkeypatch.setattr(DelayOffsets, "is_settled", lambda _self, _log_end: is_settled)
    net = SimNet()
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    link = link_with(net, "10.0.0.2", slave)
    topics = {RequestCode.GET_ALL_TOPIC_CONFIG: RemotingCommand(0, body=b'{"topicConfigTable":{}}'), **KEPT}
    for told in (7, 3):
        offsets = json.dumps({"offsetTable": {f"{HALF_TOPIC}@{CONSUMER_GROUP}": {"0": told}}}).encode()
        others = topics | {RequestCode.GET_ALL_CONSUMER_OFFSET: RemotingCommand(0, body=offsets)}
        async with answering(net, {"commitLogMaxOffset": "1000"}, others):
            with trio.move_on_after(20):
                await link.run(SLAVE["masterAddress"])
        assert slave.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == (3 if is_settled else None)
        is_settled = True
