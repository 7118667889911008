"""Every decoder that takes a peer's bytes, with the inputs that cost it most: found by reading, and by a small search.

An input is made of a text before, a text that is repeated, and a text after: that is what everything that is slow in
more than proportion to its size needs. The search puts the pieces of a decoder's own language together at random.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from rmqha.broker.acl.needed_permissions import needs_of
from rmqha.broker.acl.plain_access_resource import PlainAccessResource
from rmqha.broker.acl.remote_address_strategy import RemoteAddressStrategy
from rmqha.broker.puts.sent_records import SendRules, SentBatch, records_of
from rmqha.broker.puts.stored_properties import StoredProperties
from rmqha.broker.tables.offset_table import decode_offsets
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.client.message import read_message
from rmqha.codec import java_json
from rmqha.codec.acl import is_signed
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_usual import decode_append, write_entry
from rmqha.codec.dledger_wire import GetEntriesResponse, MetadataResponse, decode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.headers import PullMessageRequestHeader, decode_header
from rmqha.codec.heartbeat import (
    HEARTBEAT_SIZE_MAX,
    TAGS_SIZE_MAX,
    build_subscription_data,
    decode_checked_subscription,
    decode_heartbeat,
)
from rmqha.codec.host import parse_host
from rmqha.codec.lock_batch import LOCK_BATCH_SIZE_MAX, decode_lock_batch
from rmqha.codec.properties import find_property, parse_properties
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import PROPERTIES_SIZE_MAX
from rmqha.codec.record.message import decode_message
from rmqha.codec.record.scan import scan_records
from rmqha.codec.remoting import (
    HEADER_SIZE_MAX,
    RemotingCommand,
    decode_frames,
    encode_binary_frame,
    encode_ext_fields,
    encode_prefix,
)
from rmqha.codec.route import decode_route
from rmqha.codec.send_answers import decode_send_response
from rmqha.codec.send_headers import SendMessageRequestDecoder, SendMessageRequestHeader
from rmqha.codec.transfer import ReportDecoder
from rmqha.config.java_properties import parse_properties as parse_configuration
from rmqha.dledger.push_wire import decode_push
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.turns import REQUESTS_A_TURN
from tests.settings import topic_rules

RECEIVED = 256 * 1024
"""Bytes that a connection reads at once."""
BATCH = 4 * 1024 * 1024
TABLE = 512 * 1024
HOST = parse_host("127.0.0.1:10911")
RULES = SendRules("cluster", HOST, BATCH)

JSON_PIECES = [
    *('"', "{", "}", "[", "]", ":", ",", " ", "1", "9", "-", "\\", "\\u0001", "\\u0002", "\\ud83d", "a", '"a":', '""'),
    *('{"a":', "[1,", '"a":1,', "1:1,", '{"$ref":"$"}', '"$ref":', "$[0]", ".a", "é", "true", "1e9", '{"a":1}:'),
]
PROPERTY_PIECES = [
    "\1",
    "\2",
    "a",
    "a\1b",
    "\2a\1b",
    "WAIT\1true",
    "\2WAIT\1true",
    "TAGS\1",
    "\2TAGS\1",
    "é",
    "DELAY\1",
]
TAG_PIECES = ["|", "||", " ", "a", "a||", "*", "\t", "é", "\U0001f680"]
SEND_JSON = (
    '{"a":"g","b":"T","c":"TBW102","d":"4","e":"0","f":"0","g":"1700000000000","h":"0","i":"',
    '","j":"0","k":"false","m":"false"}',
)


@dataclass(frozen=True)
class Decoder:
    """``run`` takes up to ``size_max`` bytes; ``worst`` are (before, repeated, after); ``wrap`` puts them in place.

    ``in_a_turn``: a request of a client, which may hold the event loop for so long and no longer.
    """

    run: Callable[[bytes], object]
    size_max: int
    worst: list[tuple[str, str, str]]
    pieces: list[str]
    wrap: Callable[[bytes], bytes] = bytes
    in_a_turn: bool = True

    def inputs(self, size: int) -> Iterator[tuple[str, bytes]]:
        """Inputs of about ``size`` bytes, each with its name."""
        for before, repeated, after in [*self.worst, *self._found()]:
            room = size - len((before + after).encode())
            text = before.encode() + repeated.encode() * (room // len(repeated.encode())) + after.encode()
            yield f"{before!r} + n * {repeated!r} + {after!r}", self.wrap(text)

    def _found(self) -> Iterator[tuple[str, str, str]]:
        random = Random(1)
        for _ in range(12 if self.pieces else 0):
            yield tuple(
                "".join(random.choices(self.pieces, k=k)) for k in (random.randrange(4), random.randrange(1, 4), 1)
            )  # type: ignore[misc]


def frame_of_json(header: bytes) -> bytes:
    return encode_prefix(len(header), 0, serialize=0) + header


def json_fields(value: bytes) -> bytes:
    """A frame whose extFields are ``value``."""
    start = b'{"code":310,"extFields":'
    end = b',"flag":0,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":409}'
    return frame_of_json(start + value + end)


def binary_fields(raw: bytes) -> bytes:
    return encode_binary_frame(310, 1, 0, raw, b"")


def read_frames(data: bytes) -> None:
    decoder = FrameDecoder(header_size_max=HEADER_SIZE_MAX)
    send = SendMessageRequestDecoder()
    for command in decoder.receive_data(data)[:REQUESTS_A_TURN]:
        for read in (send.decode, send.decode, decode_send_response, read_pull):
            with suppress(RemoteProtocolError):
                read(command)


def read_pull(command: RemotingCommand) -> object:
    return decode_header(PullMessageRequestHeader, command)


def read_signed(data: bytes) -> None:
    """As a broker with accounts looks at a request before anything else does."""
    account = PlainAccessResource("someone", "12345678", RemoteAddressStrategy(None), perms={"t": 8, "%RETRY%g": 8})
    (command,), _ = decode_frames(data)
    is_signed(command.ext_fields, command.body, secret_key=account.secret_key)
    account.why_not(command.code, needs_of(command))


def signed(code: int) -> Callable[[bytes], bytes]:
    """Puts a body into a request of this code."""
    fields = {"AccessKey": "someone", "SecurityToken": "t", "_UNIQUE_KEY_QUERY": "true", "Signature": "s"}
    return lambda body: encode_binary_frame(code, 1, 0, encode_ext_fields(fields), body)


def read_send(data: bytes) -> None:
    """As a producer sends them: the second time what repeats is known."""
    decoder = SendMessageRequestDecoder()
    for _ in range(3):
        (command,), _ = decode_frames(data)
        decoder.decode(command)


def send_binary(properties: bytes) -> bytes:
    names = {"a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}
    return binary_fields(encode_ext_fields(names | {"i": str(properties, "utf-8"), "j": "0", "k": "false"}))


def header(*, batch: bool) -> SendMessageRequestHeader:
    return SendMessageRequestHeader("g", "T", "TBW102", 4, 0, 0, 1700000000000, 0, b"", 0, False, None, batch, None)


def read_batch(body: bytes) -> None:
    put = records_of(header(batch=True), body, rules=RULES, born_host=HOST, queue_id=0, properties=b"K\1" + b"v" * 100)
    if isinstance(put, SentBatch):
        deque(put.prepare())


def entry(body: bytes, properties: bytes) -> str:
    return str(encode_batch([BatchEntry(0, body, properties)]), "latin-1")


def read_properties(raw: bytes) -> None:
    StoredProperties("cluster").make_slowly(raw, batch=True)
    StoredProperties("cluster").make(raw, batch=False)
    parse_properties(raw)


def record(properties: bytes) -> bytes:
    """A record, as it is dispatched and as a consumer gets it."""
    prepared = prepare(
        "T", b"x", queue_id=0, born_timestamp_ms=1, born_host_raw=HOST, store_host_raw=HOST, properties_raw=properties
    )
    return prepared.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=1)


def read_record(data: bytes) -> None:
    scan_records(data, 0, len(data), phy_offset_base=0)
    read_dispatch(data, 0, len(data), phy_offset_base=0)
    read_message(decode_message(data), "broker", body_size_max=1 << 20)


def read_topics(data: bytes) -> None:
    TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1).replace_from_json(java_json.loads(data))


def heartbeat(subscriptions: str, after: str = "") -> str:
    return '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[' + subscriptions + after


LOCKS = '{"clientId":"c","consumerGroup":"g","mqSet":['

ENTRY = str(write_entry(DLedgerEntry(b"", 7, 1, 0, size=48)), "ascii")


def read_answers(body: bytes) -> None:
    for kind in (GetEntriesResponse, MetadataResponse):
        with suppress(RemoteProtocolError):
            decode(kind, body)


DLEDGER = [
    ('{"entries":[', ENTRY + ",", ENTRY + "]}"),
    ('{"batchEntry":[', ENTRY + ",", ENTRY + "]}"),
    ('{"batch":true,"batchEntry":[', ENTRY + ",", ENTRY + '],"code":200'),
    ('{"body":[', "1,", "1]}"),
    ('{"entry":{"body":[', "-1,", "1]}}"),
    ('{"body":"', "QUJD", '"}'),
    ('{"body":"', "=", '"}'),
    ('{"body":"', "\\u0001", '"}'),
    ('{"peers":{', '"a":"b",', '"b":"c"}}'),
    ('{"group":"', "\\ud83d\\ude80", '"}'),
    ("", "[", ""),
    ("", '{"a":', ""),
    ("{", '"":1,', '"":2}'),
    ("", "9", ""),
    ("[", "9" * 4000 + ",", "1]"),
]
_SUBSCRIPTION = '{"topic":"t"},'
_MANY = '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[' + 100 * _SUBSCRIPTION + "{}"
DECODERS = {
    "frames": Decoder(
        read_frames,
        RECEIVED,
        [
            ("", str(frame_of_json(b"{}"), "latin-1"), ""),
            ("", str(binary_fields(b""), "latin-1"), ""),
            ("", str(json_fields(b'{"a":"b"}'), "latin-1"), ""),
        ],
        [],
    ),
    "json header": Decoder(
        read_frames,
        HEADER_SIZE_MAX - 1024,
        [
            ("{", '"a":"",', '"a":""}'),
            ('{"i":"', "\\u0001", '"}'),
            (SEND_JSON[0], "\\u0001\\u0002", "x" + SEND_JSON[1]),
            ('{"a":"', "\\ud83d\\ude80", '"}'),
            ("", "[", ""),
            ("", '{"a":', ""),
            ("", "9", ""),
        ],
        JSON_PIECES,
        json_fields,
    ),
    "binary header": Decoder(
        read_frames,
        HEADER_SIZE_MAX - 1024,
        [("", "\0\1g\0\0\0\x0d", ""), ("", "\0\1a\0\0\0\1b", ""), ("", "\0\0\0\0\0\0", ""), ("", "\0\1h", "")],
        ["\0", "\1", "\x0d", "g", "a", "\0\1", "\0\0\0\1", "\0\1g\0\0\0\x0d", "\0\1h\0\0\0\1", "\0\1i"],
        binary_fields,
    ),
    "send in JSON": Decoder(
        read_send,
        HEADER_SIZE_MAX - 1024,
        [("", "\\u0001\\u0002", ""), ("", "a\\u0001b\\u0002", ""), ("", "\\n", ""), ("", "a", ""), ("", "é", "")],
        ["\\u0001", "\\u0002", "a", "\\n", " ", "é", "\\u0003"],
        lambda text: json_fields(SEND_JSON[0].encode() + text + SEND_JSON[1].encode()),
    ),
    "send in binary": Decoder(
        read_send, HEADER_SIZE_MAX - 1024, [("", "\0\1g\0\0\0\x0d", ""), ("", "\xff", "")], PROPERTY_PIECES, send_binary
    ),
    "properties": Decoder(
        read_properties,
        HEADER_SIZE_MAX,
        [
            ("", "a\1b\2", ""),
            ("", "a\1b\2", "x"),
            ("a\1b", "\2a\1b", "\2WAIT\1true\2WAIT\1true"),
            ("a\1b", "\2a\1b", "\2WAIT\1true\2"),
            ("a\1b\2WAIT\1true", "\2a\1b", "\2x"),
            ("", "\1", ""),
            ("a", "\1", "\2"),
        ],
        PROPERTY_PIECES,
    ),
    "configuration of a broker": Decoder(
        parse_configuration,
        1 << 19,
        [
            ("", "a=1\n", ""),
            ("", "a\\\n", ""),
            ("", "\\\n", ""),
            ("", "\\", ""),
            ("", "\\\\\n", ""),
            ("#", " \\\n", ""),
        ],
        ["\\", "\n", "a", "=", " ", "#", "\\u"],
        in_a_turn=False,
    ),
    "tags of a record": Decoder(
        read_record,
        PROPERTIES_SIZE_MAX,
        [("", "TAGS\1\2", ""), ("", "\2TAGS\1", ""), ("TAGS\1", "a", ""), ("TAGS\1", "\1", ""), ("", "\2", "")],
        [piece for piece in PROPERTY_PIECES if piece != "é"],
        record,
    ),
    "a property": Decoder(
        lambda raw: find_property(raw, b"TAGS"), PROPERTIES_SIZE_MAX, [("", "TAGS\1\2", ""), ("", "\2TAGS\1", "")], []
    ),
    "a tag expression": Decoder(
        lambda text: build_subscription_data("t", str(text, "utf-8", "replace")),
        TAGS_SIZE_MAX,
        [("", "a||", ""), ("", "a", ""), ("", " ", ""), ("", "|", "")],
        TAG_PIECES,
    ),
    "queues to lock": Decoder(
        decode_lock_batch,
        LOCK_BATCH_SIZE_MAX,
        [
            (LOCKS, '{"topic":"","brokerName":"","queueId":1},', '{"topic":"","brokerName":"","queueId":1}]}'),
            (LOCKS, "{},", "{}]}"),
            ('{"clientId":"c","consumerGroup":"g","x":[1', ',{"$ref":"$.x"}', "]}"),
        ],
        JSON_PIECES,
    ),
    "a subscription that is checked": Decoder(
        decode_checked_subscription,
        HEARTBEAT_SIZE_MAX,
        [('{"subscriptionData":{"topic":"t","subString":"a","codeSet":[', "1,", "1]}}")],
        JSON_PIECES,
    ),
    "heartbeat": Decoder(
        decode_heartbeat,
        HEARTBEAT_SIZE_MAX,
        [
            ('{"clientID":"c","producerDataSet":[', '{"groupName":"g"},', '{"groupName":"g"}]}'),
            ('{"clientID":"c","consumerDataSet":[', '{"groupName":"g"},', '{"groupName":"g"}]}'),
            (heartbeat(""), _SUBSCRIPTION, '{"topic":"t"}]}]}'),
            (heartbeat(""), '{"topic":"t","subString":"a||b||c"},', '{"topic":"t"}]}]}'),
            (heartbeat('{"topic":"t","codeSet":['), "1,", "1]}]}]}"),
            (_MANY + "]}", ',{"$ref":"$.consumerDataSet[0]"}', "]}"),
            (_MANY, ',{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}', "]}]}"),
            ('{"clientID":"c","x":[1', ',{"$ref":"$[99999999]"}', "]}"),
            ('{"clientID":"c","x":[1', ',{"$ref":"$.x"}', "]}"),
            ('{"clientID":"c","x":{"$ref":"$', ".x", '"}}'),
            ('{"clientID":"c","x":"', "\\ud83d\\ude80", '"}'),
        ],
        JSON_PIECES,
    ),
    "batch": Decoder(
        read_batch,
        BATCH,
        [("", entry(b"", b""), ""), ("", entry(b"x", b""), ""), ("", entry(b"", b"a\1b\2"), ""), ("", "\0", "")],
        [],
    ),
    "DLedger's push": Decoder(decode_push, BATCH, DLEDGER, JSON_PIECES),
    "DLedger's append": Decoder(decode_append, BATCH, DLEDGER, JSON_PIECES),
    "answers of DLedger's": Decoder(read_answers, BATCH, DLEDGER, JSON_PIECES),
    "Java's JSON": Decoder(
        java_json.loads,
        TABLE,
        [
            ("{", "1:1,", "2:2}"),
            ("[", "1,", "a]"),
            ("", "[", ""),
            ("{", '{"a":1}:1,', "1:1}"),
            ("", "{", ""),
            ("", "1", ""),
        ],
        JSON_PIECES,
        in_a_turn=False,
    ),
    "topics": Decoder(
        read_topics, TABLE, [('{"topicConfigTable":{', '"a":{},', '"b":{}}}')], JSON_PIECES, in_a_turn=False
    ),
    "consumer offsets": Decoder(
        lambda data: decode_offsets(java_json.loads(data)),
        TABLE,
        [('{"offsetTable":{"t@g":{', "1:1,", "2:2}}}"), ('{"offsetTable":{', '"t@g":{0:1},', '"t@g":{1:1}}}')],
        JSON_PIECES,
        in_a_turn=False,
    ),
    "route": Decoder(
        decode_route,
        TABLE,
        [('{"queueDatas":[],"brokerDatas":[', '{"brokerName":"b","brokerAddrs":{"0":"a:1"}},', "{}]}")],
        JSON_PIECES,
        in_a_turn=False,
    ),
    "signed headers": Decoder(
        read_signed,
        HEADER_SIZE_MAX - 1024,
        [
            ('{"AccessKey":"a","SecurityToken":"b","_UNIQUE_KEY_QUERY":"c","Signature":"', "=", '"}'),
            ('{"', "\\u0001", '":"a"}'),
            ('{"b":"', "%RETRY%", '"}'),
            ("{", '"a":"",', '"a":""}'),
        ],
        JSON_PIECES,
        json_fields,
    ),
    "signed bodies": Decoder(read_signed, BATCH, [("", "\0", "")], [], signed(310)),
    "signed heartbeats": Decoder(
        read_signed, HEARTBEAT_SIZE_MAX, [(heartbeat(""), _SUBSCRIPTION, "{}]}]}")], JSON_PIECES, signed(34)
    ),
    "reports": Decoder(ReportDecoder().receive_data, RECEIVED, [("", "\0", ""), ("", "\1\1\1\1\1\1\1\1", "")], []),
}
