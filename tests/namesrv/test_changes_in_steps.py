"""What takes long is done in steps, between which topics and brokers come and go."""

import json
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.namesrv_headers import RegisterBrokerRequestHeader
from rmqha.codec.register_broker import DataVersion
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import QueueData
from rmqha.namesrv import route_processor
from rmqha.namesrv.broker_registration_processor import BrokerRegistrationProcessor
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.namesrv.routes import Registration
from tests.namesrv.machines import NameServerMachine, ask, register
from tests.sim.sim_net import SimNet

MASTER = Registration("c", "a", 0, "10.0.0.1:10911", "10.0.0.1:10912", DataVersion(1, 1))


class Wire:
    peer = "10.0.0.1:5"

    def close(self, _reason: str) -> None:
        pass


@pytest.mark.parametrize("writable", [False, True])
async def test_topics_that_go_meanwhile_are_passed_over(*, writable: bool) -> None:
    names = RouteInfoManager()
    topics = {f"t{number}": QueueData("a", 4, 4, 4 if writable else 6) for number in range(1200)}
    names.register_broker(MASTER, topics, connection=Wire(), now=0.0)
    steps = names.change_write_perm("a", writable=writable)
    counts = [next(steps)]
    names.delete_topic("t1199", cluster=None)
    names.delete_topic("t0", cluster=None)
    counts += steps
    found = names.find("a")
    assert found is not None
    assert {queues.perm for _, queues in found.topics()} == {6 if writable else 4}
    assert counts == [500, 1000, 1199]
    assert len(list(found.topics())) == 1198, "what has gone does not come back"


class Broker:
    """A Connection, as far as a registration goes."""

    peer = "10.0.0.1:5"
    takes_answers = True

    def __init__(self, nursery: trio.Nursery) -> None:
        self.start_soon = nursery.start_soon
        self.answer: RemotingCommand | None = None

    async def wait_taken(self) -> None:
        pass

    def fenced(self, _request: RemotingCommand) -> AbstractContextManager[None]:
        return nullcontext()

    def send_reply(self, _request: RemotingCommand, response: RemotingCommand) -> None:
        self.answer = response

    def close(self, _reason: str) -> None:
        pass


async def test_everybody_has_turns_while_a_registration_is_read(nursery: trio.Nursery) -> None:
    """One of 100,000 topics takes seconds: no client, and no other broker, would be answered meanwhile."""
    routes, broker, turns = RouteInfoManager(), Broker(nursery), 0
    processor = BrokerRegistrationProcessor(routes, ordered_topics=dict)
    queues = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
    wrapper = {
        "dataVersion": {"counter": 1, "timestamp": 1},
        "topicConfigTable": {f"topic{number}": queues for number in range(5000)},
    }
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    fields = encode_header(RegisterBrokerRequestHeader("a", "10.0.0.1:911", "c", "10.0.0.1:912", 0))
    request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=fields, body=body, version=409)
    processor.register_broker(broker, request)  # type: ignore[arg-type]
    while broker.answer is None:
        turns += 1
        await trio.lowlevel.checkpoint()
    assert broker.answer.code == ResponseCode.SUCCESS
    assert len(list(routes.find("a").topics())) == 5000  # type: ignore[union-attr]
    assert 5000 / 250 <= turns < 2500, "and it has more than one step at a time"


async def test_a_long_route_is_that_of_the_moment_when_its_turn_comes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what operators keep of its order; of a topic that has gone by then there is nobody to send to."""
    monkeypatch.setattr(route_processor, "_ADDRESSES_AT_ONCE", 0)
    machine = NameServerMachine(SimNet(), settings={"orderMessageEnable": "true"})
    entry: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:4"}
    async with machine.running(), machine.client() as client, machine.client() as broker:
        await register(broker, "t", "u")
        await ask(client, RequestCode.PUT_KV_CONFIG, **entry)
        route = partial(ask, client, RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert b'"orderTopicConf":"a:4"' in (await route(topic="t")).body
        assert b"orderTopicConf" not in (await route(topic="u")).body
