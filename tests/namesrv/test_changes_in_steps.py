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
from rmqha.namesrv import route_info_manager, route_processor
from rmqha.namesrv.broker_registration_processor import BrokerRegistrationProcessor
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.namesrv.routes import Registration, pickup_topic_route_data
from tests.namesrv.machines import NameServerMachine, ask, register
from tests.reachable import count_entries
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


def register_many(names: RouteInfoManager, wire: Wire, *, count: int = 3000, now: float = 0.0) -> None:
    for number in range(count):
        registration = Registration("c", f"b{number // 50}", number % 50, f"10.0.0.2:{number}")
        names.register_broker(registration, {"t": QueueData("a", 4, 4, 6)}, connection=wire, now=now)


def count_of(names: RouteInfoManager) -> int:
    """Brokers that are kept, whether they are found or not."""
    return len(names._by_address)


async def test_of_many_brokers_whose_connection_ended_none_is_found_and_not_all_is_forgotten_at_once() -> None:
    """Of a proxy's thirteen thousand that would take a tenth of a second."""
    names, wire, other = RouteInfoManager(), Wire(), Wire()
    register_many(names, wire)
    names.register_broker(Registration("c", "b7", 50, "10.0.0.3:1"), {}, connection=other, now=0.0)
    names.connection_closed(wire)
    assert [group.broker_name for group in names.groups()] == ["b7"]
    assert names.find("b8") is None
    route = pickup_topic_route_data(names, "t")
    assert route is not None
    assert [broker.broker_addrs for broker in route.broker_datas] == [{50: "10.0.0.3:1"}]
    assert names.query_data_version(Registration("c", "b7", 0, "10.0.0.2:350"), now=0.0) is None
    before = count_of(names)
    assert before > 2000
    for _ in names.scan_not_active_broker(now=0.0):
        assert before - count_of(names) <= 250
        before = count_of(names)
    names.connection_closed(other)
    assert count_entries(names) == count_entries(RouteInfoManager())
    assert names._room.size == 0


async def test_brokers_that_come_back_meanwhile_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """To their names or to others, at the addresses that they had; what their former selves took is given back once."""
    monkeypatch.setattr(route_info_manager, "_FORGOTTEN_AT_ONCE", 1)
    names, wire, later = RouteInfoManager(), Wire(), Wire()
    register_many(names, wire)
    names.connection_closed(wire)
    for number in range(0, 3000, 2):
        registration = Registration("c", f"{'bc'[number % 4 // 2]}{number // 50}", number % 50, f"10.0.0.2:{number}")
        found = names.query_data_version(registration, now=0.0)
        assert found is None
        names.register_broker(registration, {}, connection=later, now=0.0)
    assert [*names.scan_not_active_broker(now=0.0)]
    addresses = {address for group in names.groups() for address in group.data.broker_addrs.values()}
    assert addresses == {f"10.0.0.2:{number}" for number in range(0, 3000, 2)}
    assert count_of(names) == 1500
    names.connection_closed(later)
    assert [*names.scan_not_active_broker(now=0.0)]
    assert count_entries(names) == count_entries(RouteInfoManager())
    assert names._room.size == 0


async def test_registrations_make_room_of_brokers_that_have_gone() -> None:
    names, wire, other = RouteInfoManager(), Wire(), Wire()
    register_many(names, wire)
    names.connection_closed(wire)
    for number in range(15):
        names.register_broker(Registration("c", "d", number, f"10.0.0.4:{number}"), {}, connection=other, now=0.0)
    assert count_of(names) == 15


async def test_silent_brokers_are_forgotten_in_steps_between_which_others_are_heard_or_leave() -> None:
    names, wire, other = RouteInfoManager(), Wire(), Wire()
    register_many(names, wire)
    names.register_broker(Registration("c", "d", 0, "10.0.0.3:1"), {}, connection=other, now=0.0)
    before, steps = count_of(names), names.scan_not_active_broker(now=121.0)
    next(steps)
    assert 0 < before - count_of(names) <= 250
    names.connection_closed(other)
    last = Registration("c", "b59", 49, "10.0.0.2:2999")
    assert names.query_data_version(last, now=121.0) is not None
    for _ in steps:
        pass
    assert {address for group in names.groups() for address in group.data.broker_addrs.values()} == {"10.0.0.2:2999"}


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
