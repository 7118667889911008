"""MasterLink: what a broker learns of another, of its log and of itself."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.group import ReplicationGroup
from rmqha.broker.master_link import MasterLink
from rmqha.codec.codes import STATUS_KEY, RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.replication.master_session import LogRange
from tests.broker.machines import Machine
from tests.settings import remoting_limits
from tests.sim.sim_net import SimNet


def link_of(net: SimNet, host: str, **settings: str) -> MasterLink:
    """As a broker on ``host`` has one; that broker is not started."""
    return link_with(net, host, Machine(net, host).controller(**settings).config)


def link_with(
    net: SimNet, host: str, config: BrokerConfig, *, ha_master: Callable[[], tuple[str, int] | None] = lambda: None
) -> MasterLink:
    group = ReplicationGroup(config, slave_addresses=lambda: (), name_slave=lambda _host, _port, _name: None)
    return MasterLink(net.host(host).mount(), config, group, ha_master=ha_master)


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
