"""More targets: what a broker makes of requests, a slave of its master's tables, a consumer of what brokers send."""

import zlib
from collections import deque
from contextlib import suppress

from rmqha.broker.puts.sent_records import SendRules, SentBatch, records_of
from rmqha.broker.puts.stored_properties import StoredProperties
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.client.message import read_message
from rmqha.codec import java_json
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.dledger_wire import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesResponse,
    LeadershipTransferRequest,
    MetadataResponse,
    decode,
    encode,
)
from rmqha.codec.heartbeat import SUBSCRIBE_ALL, build_subscription_data
from rmqha.codec.properties import decode_utf8
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.message import decode_message
from rmqha.codec.register_broker import RegisteredTopics
from rmqha.codec.remoting import decode_frames
from rmqha.codec.route import TopicRouteData, encode_route
from rmqha.codec.send_headers import SendMessageRequestHeader
from rmqha.dledger.push_entry import PushEntryResponse, PushType
from rmqha.dledger.push_wire import decode_push, encode_push
from rmqha.dledger.vote import VoteRequest, VoteResponse
from rmqha.errors import LocalProtocolError, RemoteProtocolError, StoreError
from tests.fuzz.targets import GOLDEN, HOST, INFLATED_SIZE_MAX, TARGETS, Target, recorded_bodies, records
from tests.settings import topic_rules

SEND = b"TAGS\x01a\x02WAIT\x01true\n" + encode_batch([BatchEntry(0, b"a", b"TAGS\x01\x02" * 9)] * 3)
COMPRESSED = zlib.compress(b"\0\0\0\2{}\0\0\0\1\0\0\0\x12t 4 4 6 SINGLE_TAG\0\0\0\2[]")
"""A registration of one topic."""


def run_tables(data: bytes) -> None:
    """Tables that a slave takes over from its master: what was taken can be saved."""
    topics, offsets = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1), ConsumerOffsetManager()
    with suppress(RemoteProtocolError):
        value = java_json.loads(data)
        if isinstance(value, dict):
            with suppress(RemoteProtocolError):
                topics.replace_from_json(value)
            java_json.loads(java_json.dumps(topics.to_json()))
            offsets.replace_from_json(value)
            java_json.loads(java_json.dumps(offsets.to_json()))


def run_subscription(data: bytes) -> None:
    text = decode_utf8(data)
    with suppress(RemoteProtocolError):
        known = build_subscription_data("t", text)
        assert (known.sub_string == SUBSCRIBE_ALL) == (known.code_set is None)


def run_sends(data: bytes) -> None:
    """What of a send, single or batch, is stored is a record that enters its queue and reads back the same."""
    properties, _, body = data.partition(b"\n")
    for batch in (False, True):
        header = SendMessageRequestHeader("g", "T", "TBW102", 4, 0, 0, 1, 0, b"", 0, False, None, batch, None)
        with suppress(RemoteProtocolError, LocalProtocolError):
            stored, _, _ = StoredProperties("c").make(decode_utf8(properties).encode(), batch=batch)
            rules = SendRules("c", HOST, 1 << 16)
            put = records_of(header, body, rules=rules, born_host=HOST, queue_id=0, properties=stored)
            if isinstance(put, SentBatch):
                deque(put.prepare())
            for record in (put,) if isinstance(put, PreparedRecord) else put:
                packed = record.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=1)
                requests, end = read_dispatch(packed, 0, len(packed), phy_offset_base=0)
                assert (len(requests), end) == (1, len(packed))
                message = read_message(decode_message(packed), "broker", body_size_max=INFLATED_SIZE_MAX)
                assert message.body == bytes(record.body)


def run_pulled(data: bytes) -> None:
    """Whatever a broker sends as a message is one for the consumer, or a StoreError."""
    with suppress(StoreError):
        read_message(decode_message(data), "broker", body_size_max=INFLATED_SIZE_MAX)


def run_dledger(data: bytes) -> None:
    """A message of DLedger's says the same after it was written again."""
    kinds = (MetadataResponse, AppendEntryRequest, AppendEntryResponse, GetEntriesResponse, VoteRequest, VoteResponse)
    for kind in (*kinds, LeadershipTransferRequest, PushEntryResponse):
        with suppress(RemoteProtocolError):
            base, message = decode(kind, data)
            assert decode(kind, encode(message, base))[1] == message
    with suppress(RemoteProtocolError):
        base, push = decode_push(data)
        if push.type is PushType.APPEND and push.leader_id == base.local_id and base.group and base.remote_id:
            assert decode_push(encode_push(push, group=base.group, remote_id=base.remote_id))[1] == push


def run_registration(data: bytes) -> None:
    """A broker's topics, in all three forms; what is read can be told to clients, however they split it."""
    for version, compressed in ((409, False), (30, False), (409, True)):
        topics = RegisteredTopics(data, "broker", version=version, compressed=compressed)
        with suppress(RemoteProtocolError):
            for topic, queues in filter(None, topics):
                assert topic.encode()
                encode_route(TopicRouteData((), (queues,)), version=0)


def dledger_bodies() -> list[bytes]:
    frames = (GOLDEN / "dledger" / "wire.txt").read_text().split()[2::3]
    return [decode_frames(bytes.fromhex(frame))[0][0].body for frame in frames]


ALL_TARGETS = TARGETS | {
    "dledger": Target(run_dledger, dledger_bodies),
    "tables": Target(run_tables, lambda: [*recorded_bodies(), b'{"topicConfigTable":{"T":{"perm":6}}}']),
    "registration": Target(run_registration, lambda: [*recorded_bodies(), COMPRESSED]),
    "subscription": Target(run_subscription, lambda: [b"TagA || TagB", b"*"]),
    "sends": Target(run_sends, lambda: [SEND]),
    "pulled-message": Target(run_pulled, lambda: [records(1)]),
}
