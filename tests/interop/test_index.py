"""Messages by key: each broker goes on with the other's index, and RocketMQ's tools find them in ours."""

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UNIQUE_KEY_QUERY, QueryMessageRequestHeader, encode_header
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.transport import TcpNetwork
from tests.broker.machines import send_request
from tests.e2e.commitlog import read_records
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.feature_table import BROKER, mqadmin_of
from tests.interop.mqadmin import mqadmin
from tests.interop.test_live_pairs import KINDS
from tests.interop.test_tables import ask

pytestmark = pytest.mark.timeout(600)

CONF = {
    "brokerRole": "ASYNC_MASTER",
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 50,
    "maxIndexNum": 1_000,
}
"""Files of RocketMQ's have the millisecond for a name, and two in one are one: none is full in so little time."""
_KEY = "7F000001527A4E0E2F2A6472919C{:04X}"


def query(topic: str, key: str, *, unique: bool = False) -> RemotingCommand:
    fields = encode_header(QueryMessageRequestHeader(topic, key, 64, 0, (1 << 63) - 1))
    fields[UNIQUE_KEY_QUERY] = str(unique).lower()
    return RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=fields)


async def offsets_of(client: RemotingClient, topic: str, key: str) -> set[int]:
    """Where the messages with this key lie, of those that the broker finds; RocketMQ finds others of the same hash."""
    answer = await client.invoke(query(topic, key), timeout_s=60)
    found, at = set(), 0
    while at < len(answer.body):
        message = decode_message(answer.body, at)
        at += message.store_size
        if key in {message.properties.get("UNIQ_KEY"), *message.properties.get("KEYS", "").split(" ")}:
            found.add(message.physical_offset)
    return found


async def send_some(broker: Broker, count: int) -> None:
    """Messages with keys, each in a way that producers have."""
    load = LoadProducer(broker.ports.listen, Sends("orders", body=body_of_size(100, 900), keys=True), window=4)
    await load.send(count)
    for number in range(count // 10):
        properties = f"UNIQ_KEY\x01{_KEY.format(number)}\x02KEYS\x01ключ b{number}  all"
        answer = await ask(broker, send_request(b"x", topic="orders", properties=properties))
        assert answer.code == ResponseCode.SUCCESS


def keys_in(commitlog: Path) -> dict[str, set[int]]:
    """Of each key the places of the newest messages that have it, in the log."""
    found = defaultdict(list)
    for record in read_records(commitlog):
        for key in {record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")} - {""}:
            found[key].append(record.physical_offset)
    return {key: set(offsets[-64:]) for key, offsets in found.items()}


async def wait_indexed(broker: Broker) -> None:
    """Until the newest message is found; RocketMQ may find it twice, and another message once less."""
    keys = keys_in(broker.store / "commitlog")
    newest = max(max(offsets) for offsets in keys.values())
    key = next(key for key, offsets in keys.items() if newest in offsets)
    async with open_remoting_client(TcpNetwork(), broker.address) as client:
        with trio.fail_after(120):
            while newest not in await offsets_of(client, "orders", key):  # noqa: ASYNC110 - another process
                await trio.sleep(0.1)


async def missed(broker: Broker) -> list[str]:
    """The keys of which not all messages are found. None may be found by a key that it has not."""
    found_less = []
    async with open_remoting_client(TcpNetwork(), broker.address) as client:
        for key, offsets in keys_in(broker.store / "commitlog").items():
            found = await offsets_of(client, "orders", key)
            if len(offsets) < 64:
                assert found <= offsets
            if not (offsets <= found or (len(offsets) == 64 and len(found) > 50)):
                found_less.append(key)
    return found_less


@pytest.mark.tries(BROKER, "go on with the other's index")
@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("writer", "reader"), [("rmqha", "java"), ("java", "rmqha")])
async def test_an_index_is_gone_on_with_by_the_other_broker(
    tmp_path: Path, writer: str, reader: str, ending: str
) -> None:
    """After kill -9 RocketMQ deletes its last file, so of ours, too; what it does not find then we build again."""
    first = KINDS[writer](tmp_path / "first", CONF)
    second = KINDS[reader](tmp_path / "second", CONF)
    with reaping(first, second):
        await first.start()
        await send_some(first, 500)
        await wait_indexed(first)
        assert await missed(first) == []
        await (first.stop() if ending == "stopped" else first.kill())
        shutil.copytree(first.store, second.store)
        files = sorted(path.name for path in (second.store / "index").iterdir())
        assert len(files) > 1
        await second.start()
        await send_some(second, 100)
        await wait_indexed(second)
        lacking = await missed(second)
        if ending == "stopped" or reader == "rmqha":
            assert lacking == []
            assert set(files) <= {path.name for path in (second.store / "index").iterdir()}


@pytest.mark.tries(mqadmin_of("4.9.7"), "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgById")
async def test_mqadmin_finds_messages_by_key_unique_key_and_id(tmp_path: Path) -> None:
    broker = RmqhaBroker(tmp_path / "broker", CONF)
    with reaping(broker):
        await broker.start()
        for number in range(3):
            properties = f"UNIQ_KEY\x01{_KEY.format(number)}\x02KEYS\x01all k{number}"
            answer = await ask(broker, send_request(b"body", topic="orders", properties=properties))
            assert answer.code == ResponseCode.SUCCESS
        await wait_indexed(broker)
        at = ("-n", broker.address)
        by_key = await mqadmin(tmp_path, "queryMsgByKey", "-t", "orders", "-k", "all", *at)
        assert [number for number in range(3) if _KEY.format(number) in by_key] == [0, 1, 2], by_key
        one = await mqadmin(tmp_path, "queryMsgByKey", "-t", "orders", "-k", "k1", *at)
        assert [number for number in range(3) if _KEY.format(number) in one] == [1], one
        key = _KEY.format(2)
        unique = await mqadmin(tmp_path, "queryMsgByUniqueKey", "-t", "orders", "-i", key, *at)
        assert (key in unique, "k2" in unique) == (True, True), unique
        msg_id = decode_send_response(answer).msg_id
        by_id = await mqadmin(tmp_path, "queryMsgById", "-i", msg_id, *at)
        assert (msg_id in by_id, "k2" in by_id) == (True, True), by_id
