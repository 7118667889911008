"""A whole name server: what brokers, clients and mqadmin are answered (spec: remoting §2.3, §5.6 I3 and I4)."""

import json
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import decode_route
from rmqha.namesrv import route_processor
from rmqha.remoting.answers_in_turns import ASKED_MAX
from rmqha.remoting.client import RemotingClient
from rmqha.store.config_files import encode_in_turns
from tests.namesrv.machines import NameServerMachine, ask, register
from tests.sim.sim_net import SimNet


@pytest.fixture
def machine() -> NameServerMachine:
    return NameServerMachine(SimNet())


@pytest.fixture
async def client(machine: NameServerMachine, autojump_clock: MockClock) -> AsyncIterator[RemotingClient]:
    async with machine.running(), machine.client() as connected:
        yield connected


@asynccontextmanager
async def registered(machine: NameServerMachine, *topics: str, **who: Any) -> AsyncIterator[RemotingClient]:
    """A broker that is there for the length of the block."""
    async with machine.client() as broker:
        await register(broker, *topics, **who)
        yield broker


async def route(client: RemotingClient, topic: str, *, version: int = 409) -> bytes:
    return (await ask(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, version=version)).body


async def is_unknown(client: RemotingClient, topic: str) -> bool:
    answer = await client.invoke(
        RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}), timeout_s=60
    )
    return answer.code == ResponseCode.TOPIC_NOT_EXIST


async def topics_of(client: RemotingClient, code: RequestCode, **fields: Any) -> list[str]:
    return sorted(json.loads((await ask(client, code, **fields)).body)["topicList"])


BROKER = b'"brokerName":"a","cluster":"c"'
QUEUES = b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]'


@pytest.mark.parametrize(
    ("version", "broker"),
    [
        (1, b'{"brokerAddrs":{0:"10.0.0.1:911"},' + BROKER + b"}"),
        (317, b'{"brokerAddrs":{0:"10.0.0.1:911"},' + BROKER + b"}"),
        (409, b'{"brokerAddrs":{"0":"10.0.0.1:911"},' + BROKER + b"}"),
        (479, b'{"brokerAddrs":{"0":"10.0.0.1:911"},' + BROKER + b',"enableActingMaster":false}'),
    ],
)
async def test_a_route_is_written_as_each_client_reads_it(
    machine: NameServerMachine, client: RemotingClient, version: int, broker: bytes
) -> None:
    async with registered(machine, "t", "u"):
        expected = b'{"brokerDatas":[' + broker + b'],"filterServerTable":{},' + QUEUES + b"}"
        assert await route(client, "t", version=version) == expected
        info = (await ask(client, RequestCode.GET_BROKER_CLUSTER_INFO, version=version)).body
        assert info == b'{"brokerAddrTable":{"a":' + broker + b'},"clusterAddrTable":{"c":["a"]}}'


async def test_a_broker_whose_connection_ends_is_forgotten_at_once(
    machine: NameServerMachine, client: RemotingClient
) -> None:
    async with registered(machine, "t"):
        assert not await is_unknown(client, "t")
    with trio.fail_after(1):
        while not await is_unknown(client, "t"):
            pass
    assert await topics_of(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == []


async def test_a_broker_that_is_silent_is_forgotten_after_two_minutes(
    machine: NameServerMachine, autojump_clock: MockClock
) -> None:
    machine.settings["serverChannelMaxIdleTimeSeconds"] = "3600"
    async with machine.running(), machine.client() as client, registered(machine, "t") as broker:
        await trio.sleep(115)
        assert not await is_unknown(client, "t")
        await trio.sleep(20)
        assert await is_unknown(client, "t")
        await trio.sleep(1)
        assert broker.closed


async def test_trap_47_a_client_that_only_asks_for_routes_stays_connected(
    machine: NameServerMachine, autojump_clock: MockClock
) -> None:
    """Clients send a name server no heartbeats: they ask for their routes every 30 s."""
    async with machine.running(), machine.client() as client:
        for _ in range(12):
            await trio.sleep(30)
            assert await is_unknown(client, "t")


async def test_a_slave_is_told_where_its_master_is(machine: NameServerMachine, client: RemotingClient) -> None:
    async with registered(machine, "t"):
        answer = await register(client, broker_id=1, address="10.0.0.2:911")
        assert answer.ext_fields == {"haServerAddr": "10.0.0.1:1911", "masterAddr": "10.0.0.1:911"}
        assert b'{"0":"10.0.0.1:911","1":"10.0.0.2:911"}' in await route(client, "t")
        who: dict[str, Any] = {"brokerName": "a", "clusterName": "c", "brokerId": "1", "brokerAddr": "10.0.0.2:911"}
        await ask(client, RequestCode.UNREGISTER_BROKER, **who)
        assert b'{"0":"10.0.0.1:911"}' in await route(client, "t")


async def test_topics_of_several_brokers_are_one_route(machine: NameServerMachine, client: RemotingClient) -> None:
    async with registered(machine, "t", "u"), registered(machine, "t", name="b", address="10.0.0.2:1"):
        route_data = json.loads(await route(client, "t"))
        assert [broker["brokerName"] for broker in route_data["brokerDatas"]] == ["a", "b"]
        assert [queues["brokerName"] for queues in route_data["queueDatas"]] == ["a", "b"]
        assert await topics_of(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["t", "u"]
        assert await topics_of(client, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c") == ["t", "u"]
        assert await topics_of(client, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="d") == []
        assert await topics_of(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == ["a", "b", "c"]
        await ask(client, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t", clusterName="c")
        await ask(client, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="nothing")
        assert await is_unknown(client, "t")


async def test_topics_of_units(machine: NameServerMachine, client: RemotingClient) -> None:
    async with (
        registered(machine, "plain"),
        registered(machine, "unit", name="b", address="h:2", topicSysFlag=1),
        registered(machine, "sub", name="d", address="h:3", topicSysFlag=2),
        registered(machine, "both", name="e", address="h:4", topicSysFlag=3),
    ):
        assert await topics_of(client, RequestCode.GET_UNIT_TOPIC_LIST) == ["both", "unit"]
        assert await topics_of(client, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["both", "sub"]
        assert await topics_of(client, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["sub"]


async def test_producers_are_led_away_from_a_broker(machine: NameServerMachine, client: RemotingClient) -> None:
    async with registered(machine, "t", "u"):
        answer = await ask(client, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
        assert answer.ext_fields == {"wipeTopicCount": "2"}
        assert b'"perm":4' in await route(client, "t")
        answer = await ask(client, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")
        assert answer.ext_fields == {"addTopicCount": "2"}
        assert b'"perm":6' in await route(client, "t")


async def test_a_broker_asks_whether_it_has_to_register_again(
    machine: NameServerMachine, client: RemotingClient
) -> None:
    who: dict[str, Any] = {"brokerName": "a", "clusterName": "c", "brokerId": "0", "brokerAddr": "10.0.0.1:911"}
    query = partial(ask, client, RequestCode.QUERY_DATA_VERSION, **who)
    assert (await query(body=b'{"counter":1,"timestamp":1}')).ext_fields == {"changed": "true"}
    async with registered(machine, "t"):
        same = await query(body=b'{"counter":1,"timestamp":1}')
        assert (same.ext_fields, json.loads(same.body)) == ({"changed": "false"}, {"counter": 1, "timestamp": 1})
        assert (await query(body=b'{"counter":2,"timestamp":1}')).ext_fields == {"changed": "true"}
        await ask(client, RequestCode.QUERY_DATA_VERSION, **who, body=b"[", is_refused=True)


async def test_what_operators_keep_is_there_after_a_restart(
    machine: NameServerMachine, autojump_clock: MockClock
) -> None:
    machine.settings["orderMessageEnable"] = "true"
    space: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG"}
    async with machine.running(), machine.client() as client:
        for key in ("t", "u"):
            await ask(client, RequestCode.PUT_KV_CONFIG, **space, key=key, value="a:4")
        await ask(client, RequestCode.DELETE_KV_CONFIG, **space, key="u")
    async with machine.running(), machine.client() as client:
        assert (await ask(client, RequestCode.GET_KV_CONFIG, **space, key="t")).ext_fields == {"value": "a:4"}
        answer = await ask(client, RequestCode.GET_KV_CONFIG, **space, key="u", is_refused=True)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        answer = await ask(client, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="other", is_refused=True)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        listed = await ask(client, RequestCode.GET_KVLIST_BY_NAMESPACE, **space)
        assert json.loads(listed.body) == {"table": {"t": "a:4"}}
        answer = await register(client, "t")
        assert json.loads(answer.body) == {"table": {"t": "a:4"}}
        assert b'"orderTopicConf":"a:4"' in await route(client, "t")


@pytest.mark.parametrize("code", [RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG])
async def test_what_cannot_be_saved_for_a_while_is_said_in_time_and_saved_later(
    code: RequestCode, autojump_clock: MockClock, machine: NameServerMachine, client: RemotingClient
) -> None:
    """Behind a disk that hung, and all who waited for it before, no operator was ever answered."""
    entry: dict[str, Any] = {"namespace": "n", "key": "k", "value": "v"}
    await ask(client, RequestCode.PUT_KV_CONFIG, **entry)
    begun_at, answers = trio.current_time(), list[tuple[str, float]]()
    machine.disk.faults.hung_until = begun_at + 60

    async def change(number: int) -> None:
        async with machine.client() as operator:
            answer = await ask(operator, code, **entry | {"value": f"{number}"}, is_refused=True)
            answers.append((answer.remark or "", trio.current_time() - begun_at))

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(change, number)
    assert all("not saved yet" in remark and after_s < 5 for remark, after_s in answers), answers
    await trio.sleep(60)
    assert (await ask(client, RequestCode.PUT_KV_CONFIG, **entry)).code == ResponseCode.SUCCESS


async def test_the_configuration_is_shown_and_not_changed(client: RemotingClient) -> None:
    shown = (await ask(client, RequestCode.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    assert {"listenPort=9876", "orderMessageEnable=false"} <= set(shown)
    answer = await ask(client, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n", is_refused=True)
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_what_it_does_not_know_is_answered(client: RemotingClient) -> None:
    answer = await client.invoke(RemotingCommand(RequestCode.SEND_MESSAGE), timeout_s=60)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


GOOD: Final[dict[str, Any]] = {
    "brokerName": "a",
    "clusterName": "c",
    "brokerId": "0",
    "brokerAddr": "h:1",
    "haServerAddr": "h:2",
}


@pytest.mark.parametrize(
    "change",
    [
        {"brokerName": ""},
        {"brokerName": "x" * 300},
        {"clusterName": ""},
        {"brokerAddr": ""},
        {"brokerAddr": "no address"},
        {"brokerAddr": 'a",1:"b:1'},
        {"haServerAddr": "a,b:1"},
        {"brokerId": "x"},
        {"bodyCrc32": "7"},
        {"compressed": "true"},
    ],
)
async def test_a_registration_that_is_none_is_refused(client: RemotingClient, change: dict[str, str]) -> None:
    answer = await ask(client, RequestCode.REGISTER_BROKER, body=b"{}", is_refused=True, **GOOD | change)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert await topics_of(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == []


async def test_a_broker_with_a_topic_that_cannot_be_kept_is_there_with_its_others(
    machine: NameServerMachine, client: RemotingClient
) -> None:
    """One heartbeat of a group with a long name took a RocketMQ broker out of all routes, for good."""
    with capture_logs() as lines:
        for _ in range(3):
            await register(client, "orders", "%RETRY%" + "g" * 250)
    assert b'"brokerName":"a"' in await route(client, "orders")
    told = [line for line in lines if line["event"] == "route_info.topics_left_out"]
    assert [(line["broker_name"], line["count"]) for line in told] == [("a", 1)], "once"


async def test_a_compressed_registration_whose_sum_is_right_is_taken(client: RemotingClient) -> None:
    def block(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    body = zlib.compress(block(b"{}") + struct.pack(">i", 1) + block(b"t 3 2 6 SINGLE_TAG") + block(b"[]"))
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    await ask(client, RequestCode.REGISTER_BROKER, body=body, compressed="true", bodyCrc32=crc, **GOOD)
    assert b'"readQueueNums":3,"topicSysFlag":0,"writeQueueNums":2' in await route(client, "t")


async def test_thousands_of_topics_leave_everybody_else_their_turn(
    machine: NameServerMachine, client: RemotingClient
) -> None:
    """While they are read, and while they are listed, other clients are answered."""
    topics = [f"topic-{number}" for number in range(9000)]
    async with machine.client() as broker, trio.open_nursery() as nursery:
        done = trio.Event()

        async def register_all() -> None:
            await register(broker, *topics)
            done.set()

        nursery.start_soon(register_all)
        answered = 0
        while not done.is_set():
            assert await is_unknown(client, topics[-1]) or done.is_set() or answered
            answered += 1
        assert answered > 3
        names = await topics_of(client, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert names == sorted(topics)


async def test_a_route_of_a_thousand_brokers_leaves_everybody_else_their_turn(
    machine: NameServerMachine, client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 25,000, which five addresses may register, took a fifth of a second in one step, as often as asked for."""
    for broker in range(1024):
        name, broker_id = f"b{broker // 64}", broker % 64
        await register(client, "t", name=name, broker_id=broker_id, address=f"10.1.{broker // 250}.{broker % 250}:1")
    answered, encode, may_go_on = list[str](), encode_in_turns, trio.Event()

    async def encode_slowly(value: dict[str, Any]) -> bytes:
        await may_go_on.wait()
        return await encode(value)

    async def ask_for(topic: str, clients: RemotingClient) -> None:
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}, version=409)
        answer = await clients.invoke(request, timeout_s=60)
        if not answer.code:
            assert sum(len(broker.broker_addrs) for broker in decode_route(answer.body).broker_datas) == 1024
        answered.append(topic)

    monkeypatch.setattr(route_processor, "encode_in_turns", encode_slowly)
    async with machine.client() as other, trio.open_nursery() as nursery:
        nursery.start_soon(ask_for, "t", client)
        await ask_for("unknown", other)
        await wait_all_tasks_blocked()
        assert answered == ["unknown"]
        may_go_on.set()
    assert answered == ["unknown", "t"]


@pytest.mark.parametrize("version", [317, 409, 479])
@pytest.mark.parametrize("standard", ["true", "false"])
async def test_a_long_route_is_written_as_a_short_one(
    machine: NameServerMachine, client: RemotingClient, version: int, standard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = partial(ask, client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t", version=version)
    async with registered(machine, "t"):
        short = (await request(acceptStandardJsonOnly=standard)).body
        monkeypatch.setattr(route_processor, "_ADDRESSES_AT_ONCE", 0)
        assert (await request(acceptStandardJsonOnly=standard)).body == short
    assert (b'{"0":' in short) == (version >= 401 or standard == "true")


async def test_a_client_that_asks_for_more_lists_than_it_waits_for_is_put_off(
    machine: NameServerMachine, client: RemotingClient
) -> None:
    async with registered(machine, *(f"topic-{number}" for number in range(3000))):
        answers = list[int]()

        async def list_topics() -> None:
            request = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            answers.append((await client.invoke(request, timeout_s=60)).code)

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(list_topics)
        assert answers.count(ResponseCode.SUCCESS) >= ASKED_MAX
        assert set(answers) == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}


async def test_a_body_that_is_a_list_is_made_as_any_other() -> None:
    value = {"topicList": ["a", 'b"', [1, {}]], "empty": []}
    assert "".join(java_json.dump_parts(value)) == java_json.dumps(value)
