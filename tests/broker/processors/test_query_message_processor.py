"""QueryMessageProcessor: messages by key, on masters, on slaves, and for many clients at once."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UNIQUE_KEY_QUERY, QueryMessageRequestHeader, QueueRequestHeader, encode_header
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_pair import Pair
from tests.sim.sim_net import SimNet
from tests.store.indexing import indexed, offsets_of

KEY = "7F000001527A4E0E2F2A6472919C0001"


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", {"brokerIP1": "10.0.0.1"})


def query_request(
    key: str, *, topic: str = "t", max_num: int = 64, times: tuple[int, int] = (0, 1 << 62), unique: str = "false"
) -> RemotingCommand:
    fields = encode_header(QueryMessageRequestHeader(topic, key, max_num, *times))
    return RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=fields | {UNIQUE_KEY_QUERY: unique})


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    found, at = [], 0
    while at < len(answer.body):
        message = decode_message(answer.body, at)
        found.append(message.body)
        at += message.store_size
    return found


async def test_a_query_is_answered_with_the_messages_of_the_key(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        for number in range(70):
            properties = f"UNIQ_KEY\x01{KEY}\x02KEYS\x01a k{number % 2}"
            await ask(client, send_request(b"%d" % number, properties=properties))
        await indexed(broker.store)
        answer = await ask(client, query_request("k1"))
        assert (answer.code, bodies_of(answer)) == (ResponseCode.SUCCESS, [b"%d" % odd for odd in range(1, 70, 2)])
        last = broker.store.index.files[-1].header
        assert answer.ext_fields == {
            "indexLastUpdateTimestamp": str(last.end_timestamp_ms),
            "indexLastUpdatePhyoffset": str(last.end_phy_offset),
        }
        assert len(bodies_of(await ask(client, query_request("a", max_num=100)))) == 64
        unique = await ask(client, query_request(KEY, max_num=1, unique="true"))
        assert bodies_of(unique) == [b"%d" % number for number in range(38, 70)]


async def test_what_is_not_found_is_said_so(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"1", properties="KEYS\x01a"))
        await indexed(broker.store)
        for request in (query_request("b"), query_request("a", topic="other"), query_request("a", times=(0, 1))):
            answer = await ask(client, request)
            assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
            assert int(answer.ext_fields["indexLastUpdateTimestamp"]) > 0
        refused = RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields={"topic": "t"})
        assert (await ask(client, refused)).code == ResponseCode.SYSTEM_ERROR


async def test_without_an_index_the_answer_says_why(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(messageIndexEnable="false"), machine.client() as client:
        await ask(client, send_request(b"1", properties="KEYS\x01a"))
        answer = await ask(client, query_request("a"))
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert "messageIndexEnable" in (answer.remark or "")


async def test_many_clients_ask_at_once(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as first, machine.client() as second:
        await ask(first, send_request(b"1", properties="KEYS\x01a"))
        await indexed(broker.store)
        answers = []

        async def one(client: object) -> None:
            answers.append(bodies_of(await ask(client, query_request("a"))))  # type: ignore[arg-type]

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one, first)
                nursery.start_soon(one, second)
        assert answers == [[b"1"]] * 100


async def test_the_oldest_message_of_a_queue_has_a_store_time(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"1", queue_id=0))
        await indexed(broker.store)
        times = []
        for topic, queue_id in (("t", 0), ("t", 1), ("none", 0)):
            fields = encode_header(QueueRequestHeader(topic, queue_id))
            asked = RemotingCommand(RequestCode.GET_EARLIEST_MSG_STORETIME, ext_fields=fields)
            times.append(int((await ask(client, asked)).ext_fields["timestamp"]))
        assert times == [broker.store.earliest_message_time_ms(), -1, -1]


async def test_a_slave_finds_messages_by_key_too(autojump_clock: MockClock) -> None:
    pair = Pair()
    async with pair.running() as (master, slave), pair.master.client() as to_master, pair.slave.client() as to_slave:
        for number in range(5):
            await ask(to_master, send_request(b"%d" % number, properties=f"UNIQ_KEY\x01{KEY}"))
        for store in (master.store, slave.store):
            await indexed(store)
        await trio.sleep(1)
        answers = [bodies_of(await ask(client, query_request(KEY))) for client in (to_master, to_slave)]
        assert answers == [[b"0", b"1", b"2", b"3", b"4"]] * 2


async def test_each_broker_of_a_dledger_group_finds_messages_by_key(autojump_clock: MockClock) -> None:
    async with group_of() as group:
        await group.send(*[b"%d" % number for number in range(20)])
        await group.wait_same()
        for node in group.nodes.values():
            store = node.running.store
            await indexed(store)
            records = [message for queue_id in range(4) for message in await _uniq_keys(store, queue_id)]
            assert len(records) == 20
            for offset, topic, key in records:
                assert await offsets_of(store, key, topic=topic) == [offset]


async def _uniq_keys(store: DefaultMessageStore, queue_id: int) -> list[tuple[int, str, str]]:
    """Place, topic and unique key of each message."""
    views = store.get_message("t", queue_id, 0).views
    messages = [(store.physical_offset_of(view), decode_message(view)) for view in views]
    return [(offset, message.topic, message.properties["UNIQ_KEY"]) for offset, message in messages]
