"""Values that peers make up: numbers without end, nests without end, names that are none. Refused, and in words."""

from collections.abc import Callable
from typing import Any

import pytest

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.offset_table import decode_offsets
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.hashing import tags_code
from rmqha.codec.heartbeat import (
    HEARTBEAT_SIZE_MAX,
    SUBSCRIPTIONS_MAX,
    TAGS_MAX,
    TAGS_SIZE_MAX,
    build_subscription_data,
    decode_checked_subscription,
    decode_heartbeat,
)
from rmqha.codec.host import parse_host
from rmqha.codec.lock_batch import decode_lock_batch
from rmqha.codec.properties import find_property
from rmqha.codec.record.dispatch import queue_tags_code, read_dispatch
from rmqha.codec.record.encoder import prepare
from rmqha.codec.remoting import RemotingCommand, decode_frames, encode_prefix
from rmqha.codec.route import QUEUE_NUMS_MAX, decode_route
from rmqha.errors import RemoteProtocolError, RmqhaError
from tests.settings import topic_rules

DIGITS = "9" * 5000
DEPTHS = [*range(100, 900, 100), *range(900, 1000), 5000]
HOST = parse_host("127.0.0.1:10911")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def json_frame(header: str) -> bytes:
    return encode_prefix(len(header), 0, serialize=0) + header.encode()


def fields_of_frame(header: str) -> list[dict[str, str]]:
    return [command.ext_fields for command in decode_frames(json_frame(header))[0]]


def heartbeat(text: str) -> object:
    return decode_heartbeat(text.encode())


def route(text: str) -> object:
    return decode_route(text.encode())


def checked_subscription(text: str) -> object:
    return decode_checked_subscription(text.encode())


def lock_batch(text: str) -> object:
    return decode_lock_batch(text.encode())


def groups(table: Any) -> object:
    return SubscriptionGroupTable.from_json(table)


def topics(table: Any) -> None:
    TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1).replace_from_json(table)


def decode_subscription_json(text: str) -> None:
    decode_heartbeat(
        f'{{"clientID":"c","consumerDataSet":[{{"groupName":"g","subscriptionDataSet":[{text}]}}]}}'.encode()
    )


READERS: list[tuple[Callable[[str], object], str]] = [
    (fields_of_frame, '{"code":1,"opaque":1,"flag":0,"version":1,"remark":%s}'),
    (fields_of_frame, '{"code":%s,"opaque":1,"flag":0,"version":1}'),
    (fields_of_frame, '{"code":1,"opaque":1,"flag":0,"version":%s,"language":%s}'),
    (fields_of_frame, '{"code":1,"opaque":1,"flag":0,"version":1,"extFields":{"a":%s}}'),
    (fields_of_frame, '{"code":1,"opaque":1,"flag":0,"version":1,"extFields":%s}'),
    (heartbeat, '{"clientID":%s}'),
    (heartbeat, '{"clientID":"c","producerDataSet":[{"groupName":%s}]}'),
    (heartbeat, '{"clientID":"c","consumerDataSet":[{"groupName":%s}]}'),
    (heartbeat, '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":%s}]}]}'),
    (
        heartbeat,
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","codeSet":[%s]}]}]}',
    ),
    (checked_subscription, '{"clientId":"c","group":"g","subscriptionData":{"topic":"t","expressionType":%s}}'),
    (checked_subscription, '{"clientId":"c","group":"g","subscriptionData":%s}'),
    (lock_batch, '{"clientId":%s,"consumerGroup":%s,"mqSet":%s}'),
    (lock_batch, '{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":%s,"queueId":1,"topic":"t"}]}'),
    (lock_batch, '{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":%s,"topic":"t"}]}'),
    (lambda text: groups(java_json.loads(text)), '{"dataVersion":%s,"subscriptionGroupTable":{"g":{}}}'),
    (lambda text: groups(java_json.loads(text)), '{"subscriptionGroupTable":{"g":{"retryMaxTimes":%s,"brokerId":%s}}}'),
    (lambda text: groups(java_json.loads(text)), '{"subscriptionGroupTable":{%s:{}}}'),
    (route, '{"brokerDatas":[],"queueDatas":[{"brokerName":"a","readQueueNums":%s,"writeQueueNums":1}]}'),
    (route, '{"brokerDatas":[{"brokerName":%s,"brokerAddrs":{"0":%s}}],"queueDatas":[]}'),
    (route, '{"brokerDatas":[{"brokerName":"b","brokerAddrs":{%s:"a"}}],"queueDatas":[]}'),
    (decode_subscription_json, '{"topic":"t","subString":"a","subVersion":%s}'),
    (java_json.loads, '[1,{"$ref":"$[%s]"},%s]'),
    (java_json.loads, '[{"\\ud83d\\ude80":%s},{%s:1}]'),
    (lambda text: topics(java_json.loads(text)), '{"topicConfigTable":{"t":{"perm":%s,"readQueueNums":%s}}}'),
    (lambda text: topics(java_json.loads(text)), '{"topicConfigTable":{%s:{}}}'),
    (lambda text: ConsumerOffsetManager().replace_from_json(java_json.loads(text)), '{"offsetTable":{"t@g":{%s:%s}}}'),
    (lambda text: ConsumerOffsetManager().replace_from_json(java_json.loads(text)), '{"offsetTable":{%s:{0:1}}}'),
]  # fmt: skip


@pytest.mark.parametrize(("read", "template"), READERS)
def test_no_number_and_no_nest_raises_anything_but_a_refusal(read: Callable[[str], object], template: str) -> None:
    values = [*map(nested, DEPTHS), DIGITS, f"-{DIGITS}", "1e308", "1e999", "NaN", "{}", "null", "true", '"\\u0000"']
    for value in [*values, f'"{DIGITS}"', '{"a":{"a":1}}', "123456789012", "٣", '"٣"', "1.5"]:
        try:
            read(template.replace("%s", value))
        except RmqhaError:
            continue


def test_a_table_whose_names_are_numbers_is_refused() -> None:
    """They would be sorted among texts when the table is saved."""
    with pytest.raises(RemoteProtocolError, match="no topic's name"):
        topics({"topicConfigTable": {0: {}}})
    with pytest.raises(RemoteProtocolError, match="no topic@group"):
        decode_offsets({"offsetTable": {0: {0: 1}}})


def test_a_record_full_of_empty_tags_is_dispatched() -> None:
    """They come in a batch, whose properties are stored as they are; a RecursionError ended dispatch for good."""
    properties = b"TAGS\x01a\x02" + b"TAGS\x01\x02" * 5000
    prepared = prepare(
        "T", b"x", queue_id=0, born_timestamp_ms=1, born_host_raw=HOST, store_host_raw=HOST, properties_raw=properties
    )
    record = prepared.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=1)
    requests, end = read_dispatch(record, 0, len(record), phy_offset_base=0)
    assert (len(requests), end) == (1, len(record))
    assert requests[0].tags_code == ord("a")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"TAGS\x01a", b"a"),
        (b"TAGS\x01", None),
        (b"TAGS\x01\x02TAGS\x01", None),
        (b"TAGS\x01a\x02TAGS\x01\x02TAGS\x01", b"a"),
        (b"x\x02TAGS\x01a\x02TAGS\x01b\x02TAGS\x01\x02K\x01v", b"b"),
        (b"TAGS\x01a\x02TAGS\x01b", b"b"),
        (b"MYTAGS\x01a", None),
    ],
)
def test_the_last_pair_with_a_value_counts(raw: bytes, value: bytes | None) -> None:
    assert find_property(raw, b"TAGS") == value
    assert queue_tags_code("T", raw, store_timestamp_ms=0) == tags_code((value or b"").decode())


def test_references_stand_for_so_much_and_no_more() -> None:
    shared = "[" + ",".join("1" * 1000) + "]"
    few, many = (f"[{shared}" + ',{"$ref":"$[0]"}' * count + "]" for count in (16, 17))
    assert java_json.loads(few)[16] == [1] * 1000
    with pytest.raises(RemoteProtocolError, match="stand for more than"):
        java_json.loads(many)


@pytest.mark.parametrize(
    ("consumer", "most"),
    [
        ('{"groupName":"g"}', SUBSCRIPTIONS_MAX),
        ('{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}', SUBSCRIPTIONS_MAX // 2),
        (f'{{"groupName":"g","subscriptionData":[{{"topic":"t","subString":"a{"||a" * 32}"}}]}}', TAGS_MAX // 32),
        (f'{{"groupName":"g","subscriptionDataSet":[{{"topic":"t","codeSet":[1{",2" * 31}]}}]}}', TAGS_MAX // 32),
    ],
)
def test_a_heartbeat_names_only_so_much(consumer: str, most: int) -> None:
    """17,000 subscriptions of 15 bytes held the event loop for 0.13 s, 47,000 tags for 0.2 s."""
    assert len(decode_heartbeat(_heartbeat_of([consumer] * most)).consumer_data_set) == most
    with pytest.raises(RemoteProtocolError, match=r"at most 2048 and 16384 are taken"):
        decode_heartbeat(_heartbeat_of([consumer] * (most + 1)))


def _heartbeat_of(consumers: list[str]) -> bytes:
    return f'{{"clientID":"c","consumerDataSet":[{",".join(consumers)}]}}'.encode()


def test_what_is_too_large_is_not_even_read() -> None:
    with pytest.raises(RemoteProtocolError, match="at most 262144 are taken"):
        decode_heartbeat(b"{" + b" " * HEARTBEAT_SIZE_MAX)
    with pytest.raises(RemoteProtocolError, match="tag expression"):
        build_subscription_data("t", "a" * (TAGS_SIZE_MAX + 1))
    assert build_subscription_data("t", "a" * TAGS_SIZE_MAX).tags_set
    body = '{"brokerDatas":[],"queueDatas":[{"brokerName":"a","readQueueNums":%d,"writeQueueNums":1,"perm":1}]}'
    assert decode_route((body % QUEUE_NUMS_MAX).encode()).queue_datas[0].read_queue_nums == QUEUE_NUMS_MAX
    with pytest.raises(RemoteProtocolError, match="7e\\+04 queues"):
        decode_route((body % (QUEUE_NUMS_MAX + 1)).encode())


def test_the_queues_of_all_brokers_of_a_route_together_are_bounded() -> None:
    entry = '{"brokerName":"%s","readQueueNums":%d,"writeQueueNums":%d,"perm":6}'
    entries = [entry % ("a", QUEUE_NUMS_MAX, 1), entry % ("b", 1, QUEUE_NUMS_MAX), entry % ("c", -9, -9)]
    body = '{"brokerDatas":[],"queueDatas":[%s]}'
    assert len(decode_route((body % ",".join(entries)).encode()).queue_datas) == 3
    with pytest.raises(RemoteProtocolError, match="a route with 131073 queues: at most 131072"):
        decode_route((body % ",".join([*entries, entry % ("d", 1, 1)])).encode())


def test_long_tags_are_not_remembered() -> None:
    """4096 of 32 KB, the longest, would take hundreds of megabytes."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    tracemalloc.start()
    try:
        for number in range(50):
            tag = f"{number}" + "t" * 3000
            assert queue_tags_code("T", b"TAGS\1" + tag.encode(), store_timestamp_ms=0) == tags_code(tag)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 60_000


def test_a_remark_may_be_a_number() -> None:
    (command,), _ = decode_frames(json_frame('{"code":1,"opaque":1,"flag":0,"version":1,"remark":5}'))
    assert (command.remark, RemotingCommand(1).remark) == ("5", None)
