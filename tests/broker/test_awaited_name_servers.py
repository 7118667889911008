"""Answers that make a topic wait until name servers know it, and not long for those that do not answer."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio

from rmqha.broker.awaited_name_servers import LIMIT_S, AwaitedNameServers
from rmqha.broker.identity import Identity
from rmqha.broker.name_servers import NameServers
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.namesrv_headers import RegisterBrokerResponseHeader
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import load_config
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from tests.broker.group_members import member_of
from tests.broker.machines import Machine, ask, send_request
from tests.broker.processors.test_send_back_processor import ALONE, consumed, send_back
from tests.broker.test_name_servers import ADDRESS, NAMESRV, eventually, known_at
from tests.namesrv.machines import NameServerMachine
from tests.settings import remoting_limits, topic_rules
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

MASTER = "10.0.0.1"
AT_ONCE_S = 0.1
"""Longer than a few round trips and a save on simulated machines."""


@pytest.fixture
def net() -> SimNet:
    return SimNet()


def slow_down(net: SimNet, delay_s: float, address: str = ADDRESS) -> None:
    """What this name server answers takes so long."""
    net.delays[address, MASTER] = delay_s


@asynccontextmanager
async def registered(net: SimNet, *more: str) -> AsyncIterator[tuple[Machine, NamesrvController]]:
    """A running master that a name server knows; it is to register at ``more``, too."""
    names = NameServerMachine(net)
    keys = ALONE | {"namesrvAddr": ";".join((names.where, *more))}
    machine = Machine(net, MASTER, keys)
    async with names.running() as running, machine.broker():
        await eventually(lambda: "TBW102" in known_at(running))
        await trio.sleep(1)
        yield machine, running


async def took(machine: Machine, request: RemotingCommand) -> float:
    """Seconds until it was answered, with success."""
    async with machine.client() as client:
        begun_at = trio.current_time()
        answer = await ask(client, request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return trio.current_time() - begun_at


def update_topic(topic: str, queues: int = 2) -> RemotingCommand:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    more = {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields | more)


def queues_at(names: NamesrvController, topic: str) -> int:
    (group,) = names.routes.groups()
    queues = group.queues_of(topic)
    return 0 if queues is None else queues.write_queue_nums


async def test_the_first_send_to_a_topic_is_answered_when_name_servers_know_it(
    net: SimNet, virtual_clock: VirtualClock
) -> None:
    """Who was answered asked for it in vain for half a second: an orderly consumer had its first message after 40 s."""
    async with registered(net) as (machine, names):
        for number in range(20):
            assert await took(machine, send_request(b"x", topic=f"t{number}")) < AT_ONCE_S
            assert f"t{number}" in known_at(names)
        slow_down(net, 0.1)
        assert 0.1 < await took(machine, send_request(b"x", topic="another")) < LIMIT_S
        assert await took(machine, send_request(b"x", topic="another")) < AT_ONCE_S


async def test_a_new_group_s_members_are_answered_and_told_when_its_retry_topic_is_known(
    net: SimNet, virtual_clock: VirtualClock
) -> None:
    """They asked for it in vain, and again after 20 s: the first retries of any new group came after 40 s."""
    async with registered(net) as (machine, names), member_of(machine, "a") as a, member_of(machine, "b") as b:
        await a.heartbeat("g")
        assert "%RETRY%g" in known_at(names)
        await trio.sleep(1)
        assert a.told == ["g"]
        slow_down(net, 0.3)
        async with trio.open_nursery() as nursery:
            begun_at = trio.current_time()
            nursery.start_soon(a.heartbeat, "g", "h")
            nursery.start_soon(b.heartbeat, "h")
            await trio.sleep(0.25)
            assert "h" not in a.told + b.told
        assert trio.current_time() - begun_at > 0.3
        await trio.sleep(AT_ONCE_S)
        assert (a.told.count("h"), b.told.count("h")) == (1, 1)
        begun_at = trio.current_time()
        await a.heartbeat("g", "h")
        assert trio.current_time() - begun_at < AT_ONCE_S, "nothing is new"


async def test_what_is_sent_back_makes_a_topic_that_name_servers_know(net: SimNet, virtual_clock: VirtualClock) -> None:
    async with registered(net) as (machine, names), machine.client() as client:
        message = await consumed(client)
        assert (await ask(client, send_back(message.physical_offset, group="pulls"))).code == ResponseCode.SUCCESS
        assert "%RETRY%pulls" in known_at(names)


async def test_operators_are_answered_when_name_servers_know_it(net: SimNet, virtual_clock: VirtualClock) -> None:
    async with registered(net) as (machine, names), member_of(machine, "a") as a:
        await a.heartbeat("g")
        for queues in (2, 5):
            assert await took(machine, update_topic("made", queues)) < AT_ONCE_S
            assert queues_at(names, "made") == queues
        body = json.dumps({"groupName": "g", "retryQueueNums": 3}).encode()
        await took(machine, RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        assert queues_at(names, "%RETRY%g") == 3
        slow_down(net, 0.1)
        delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "made"})
        assert 0.1 < await took(machine, delete) < LIMIT_S


@pytest.mark.parametrize("is_cut", [True, False], ids=["black hole", "slow"])
async def test_a_name_server_that_does_not_answer_is_waited_for_once(
    net: SimNet, virtual_clock: VirtualClock, is_cut: bool
) -> None:
    """And again when it is well."""
    async with registered(net) as (machine, names):
        if is_cut:
            net.cut(ADDRESS, MASTER)
        else:
            slow_down(net, 1)
        assert LIMIT_S <= await took(machine, send_request(b"x", topic="first")) < LIMIT_S + AT_ONCE_S
        for number in range(40):
            assert await took(machine, send_request(b"x", topic=f"t{number}")) < AT_ONCE_S
            await trio.sleep(1)
        async with member_of(machine, "a") as a:
            begun_at = trio.current_time()
            await a.heartbeat("g")
            assert trio.current_time() - begun_at < AT_ONCE_S
        net.heal()
        await trio.sleep(60)
        slow_down(net, 0.2)
        assert 0.2 < await took(machine, send_request(b"x", topic="last")) < LIMIT_S
        assert "last" in known_at(names)


async def test_a_name_server_that_takes_brokers_and_tells_of_none_keeps_nobody_waiting(
    net: SimNet, virtual_clock: VirtualClock
) -> None:
    """Asked who else is there, it did not answer for six seconds, in which it was told of no topic."""
    known = set[str]()

    def register(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
        known.update(java_json.loads(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"])
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=encode_header(RegisterBrokerResponseHeader("", "")))

    dispatcher = RequestDispatcher()
    dispatcher.register(RequestCode.REGISTER_BROKER, register)
    dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _connection, _request: None)
    listener = await net.host(ADDRESS).mount().listen(ADDRESS, 9876)
    machine = Machine(net, MASTER, ALONE | {"namesrvAddr": NAMESRV})
    async with trio.open_nursery() as nursery, machine.broker():
        nursery.start_soon(RemotingServer(dispatcher, limits=remoting_limits()).serve, listener)
        await eventually(lambda: "TBW102" in known)
        for number in range(40):
            await trio.sleep(3)
            assert await took(machine, send_request(b"x", topic=f"t{number}")) < LIMIT_S
            assert f"t{number}" in known
        nursery.cancel_scope.cancel()


async def test_one_of_two_that_is_not_there_keeps_nobody_waiting(net: SimNet, virtual_clock: VirtualClock) -> None:
    async with registered(net, "10.7.7.8:9876") as (machine, names):
        await trio.sleep(60)
        for number in range(20):
            assert await took(machine, send_request(b"x", topic=f"t{number}")) < AT_ONCE_S
            assert f"t{number}" in known_at(names)


async def test_a_name_server_that_ends_keeps_nobody_waiting(net: SimNet, virtual_clock: VirtualClock) -> None:
    names = NameServerMachine(net)
    machine = Machine(net, MASTER, {"namesrvAddr": names.where})
    async with machine.broker() as broker:
        async with names.running() as running:
            await eventually(lambda: "TBW102" in known_at(running))
        assert await took(machine, send_request(b"x", topic="t")) < AT_ONCE_S
        assert broker.topics.untold.numbers == {}


async def test_brokers_that_are_name_servers_for_each_other_keep_nobody_waiting(
    net: SimNet, virtual_clock: VirtualClock
) -> None:
    """The other one is not there."""
    machine = Machine(net, MASTER, ALONE | {"namesrvAddr": f"{MASTER}:10911;10.0.0.2:10911"})
    async with machine.broker(), machine.client() as client:
        assert await took(machine, send_request(b"x", topic="first")) < LIMIT_S + AT_ONCE_S
        for number in range(20):
            assert await took(machine, send_request(b"x", topic=f"t{number}")) < AT_ONCE_S
            route = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": f"t{number}"})
            assert (await ask(client, route)).code == ResponseCode.SUCCESS
            await trio.sleep(1)


async def test_a_member_of_a_new_group_is_answered_though_topics_cannot_be_saved(
    net: SimNet, virtual_clock: VirtualClock
) -> None:
    async with registered(net) as (machine, names), member_of(machine, "a") as a:
        machine.disk.faults.hung_until = trio.current_time() + 20
        begun_at = trio.current_time()
        await a.heartbeat("g")
        assert trio.current_time() - begun_at < 1.5
        await trio.sleep(AT_ONCE_S)
        assert a.told == ["g"]
        assert "%RETRY%g" not in known_at(names)
        await eventually(lambda: "%RETRY%g" in known_at(names))


async def test_members_that_leave_while_they_wait_harm_nobody(net: SimNet, virtual_clock: VirtualClock) -> None:
    async with registered(net) as (machine, names):
        slow_down(net, 0.3)
        async with member_of(machine, "a") as a, trio.open_nursery() as nursery:
            nursery.start_soon(a.heartbeat, "g")
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        await trio.sleep(5)
        assert "%RETRY%g" in known_at(names)
        async with member_of(machine, "b") as b:
            await b.heartbeat("g")
            await trio.sleep(1)
            assert b.told == ["g"]


# ---- how much is told


@dataclass
class Recorder:
    """A name server that counts, and takes no version of topics twice, as RocketMQ's."""

    net: SimNet
    bodies: list[int] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    wholes: int = 0
    _version: dict[str, int] | None = None

    def _register(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.bodies.append(len(request.body))
        if request.ext_fields["brokerId"] == "0":
            wrapper = java_json.loads(request.body)["topicConfigSerializeWrapper"]
            self.wholes += "TBW102" in wrapper["topicConfigTable"]
            if wrapper["dataVersion"] != self._version:
                self.topics.update(wrapper["topicConfigTable"])
            self._version = wrapper["dataVersion"]
        found = RegisterBrokerResponseHeader("", "")
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=encode_header(found))

    async def run(self) -> None:
        dispatcher = RequestDispatcher()
        dispatcher.register(RequestCode.REGISTER_BROKER, self._register)
        listener = await self.net.host(ADDRESS).mount().listen(ADDRESS, 9876)
        await RemotingServer(dispatcher, limits=remoting_limits()).serve(listener)


@asynccontextmanager
async def recorded(net: SimNet, broker_id: list[int]) -> AsyncIterator[tuple[Recorder, TopicConfigManager]]:
    """What a broker tells a name server of its topics."""
    topics = TopicConfigManager(topic_rules(), now_ms=lambda: 0)
    ours = NameServers(
        load_config(None, {"namesrvAddr": NAMESRV, "brokerName": "g", "listenPort": "10911", "allowInsecure": "true"}),
        topics,
        network=net.host(MASTER).mount(),
        identity=lambda: Identity("g", broker_id[0], f"{MASTER}:10911", f"{MASTER}:10912"),
    )
    recorder = Recorder(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.run)
        nursery.start_soon(ours.run)
        await trio.sleep(1)
        yield recorder, topics
        nursery.cancel_scope.cancel()


def make(topics: TopicConfigManager, *names: str) -> None:
    for name in names:
        topics.update_topic_config(TopicConfig(name, 1, 1))


async def test_of_many_topics_those_are_told_that_are_new(net: SimNet, virtual_clock: VirtualClock) -> None:
    """And all every ``registerNameServerPeriod``, as others than were told before, as it may have forgotten some."""
    async with recorded(net, [0]) as (recorder, topics):
        make(topics, *(f"old{number}" for number in range(2000)))
        topics.saved.advance(topics.made)
        await trio.sleep(1)
        assert {f"old{number}" for number in range(2000)} <= recorder.topics
        recorder.bodies.clear()
        recorder.wholes = 0
        for number in range(20):
            make(topics, f"new{number}")
            topics.saved.advance(topics.made)
            await trio.sleep(1)
            assert f"new{number}" in recorder.topics
        assert (len(recorder.bodies), recorder.wholes) == (20, 0)
        assert max(recorder.bodies) < 1000
        recorder.topics.clear()
        await trio.sleep(31)
        assert recorder.wholes == 1
        assert len(recorder.topics) > 2020


async def test_topics_that_are_made_together_are_told_together(net: SimNet, virtual_clock: VirtualClock) -> None:
    """Each registration is followed by a pause, in which topics gather."""
    async with recorded(net, [0]) as (recorder, topics):
        net.delays[ADDRESS, MASTER] = 0.02
        recorder.bodies.clear()
        for number in range(1000):
            make(topics, f"t{number}")
            topics.saved.advance(topics.made)
            await trio.sleep(0.001)
        await trio.sleep(1)
        assert {f"t{number}" for number in range(1000)} <= recorder.topics
        assert len(recorder.bodies) < 20
        assert topics.untold.numbers == {}


async def test_a_slave_waits_for_no_name_server(net: SimNet, virtual_clock: VirtualClock) -> None:
    """They take no topics from it. Once it is master they have all that it has."""
    broker_id = [1]
    async with recorded(net, broker_id) as (recorder, topics):
        recorder.bodies.clear()
        make(topics, "t")
        topics.saved.advance(topics.made)
        assert topics.untold.told.value == topics.made
        await trio.sleep(1)
        assert recorder.bodies == []
        broker_id[0] = 0
        await trio.sleep(1)
        assert "t" in recorder.topics
        make(topics, "u")
        topics.saved.advance(topics.made)
        assert topics.untold.told.value < topics.made
        await trio.sleep(1)
        assert topics.untold.told.value == topics.made


async def test_a_broker_that_ends_waits_for_no_name_server(net: SimNet, virtual_clock: VirtualClock) -> None:
    async with recorded(net, [0]) as (_, topics):
        net.cut(ADDRESS, MASTER)
        make(topics, "t")
        topics.saved.advance(topics.made)
        assert "t" in topics.untold.numbers
    assert topics.untold.numbers == {}
    make(topics, "u")
    topics.saved.advance(topics.made)
    assert topics.untold.numbers == {}


def test_all_that_are_waited_for_have_to_know_it() -> None:
    topics, now = TopicConfigManager(topic_rules(), now_ms=lambda: 0), [0.0]
    awaited = AwaitedNameServers(topics, tells_topics=lambda: True, on_news=lambda: None, clock=lambda: now[0])
    told = topics.untold.told
    with awaited.holding(["a", "b", "c"]):
        make(topics, "t", "u")
        topics.saved.advance(2)
        awaited.knows("a", 2, took_s=0.1)
        awaited.knows("b", 1, took_s=0.1)
        assert told.value == 0
        awaited.knows("c", 2, took_s=0.1)
        assert (told.value, list(topics.untold.numbers)) == (1, ["u"])
        awaited.knows("b", 2, took_s=0.1)
        assert (told.value, topics.untold.numbers) == (2, {})
        make(topics, "v", "w")
        topics.saved.advance(3)
        now[0] = 0.4
        topics.saved.advance(4)
        awaited.knows("a", 4, took_s=0.1)
        awaited.knows("b", 3, took_s=0.1)
        told.deadlines.expire(LIMIT_S)
        assert told.value == 3, "c is not waited for any more, and b has some time left"
        told.deadlines.expire(0.4 + LIMIT_S)
        assert told.value == 4
        awaited.knows("b", 4, took_s=2 * LIMIT_S)
        awaited.knows("c", 4, took_s=0.1)
        make(topics, "x")
        topics.saved.advance(5)
        awaited.knows("a", 5, took_s=0.1)
        assert told.value == 4, "c answers again"
        awaited.lost("c")
        assert told.value == 5, "b is slow"
