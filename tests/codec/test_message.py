"""The record: spec: commitlog §17's vector, and what is prepared decodes as itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.host import decode_host, encode_host, parse_host
from rmqha.codec.limits import body_problem, properties_problem, size_problem, topic_problem
from rmqha.codec.message_id import decode_message_id, encode_message_id
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import encode_blank, is_legal_topic, record_size
from rmqha.codec.record.message import decode_message
from rmqha.errors import CorruptLogError, LocalProtocolError, RemoteProtocolError

VECTOR = bytes.fromhex(
    "00000083 daa320a7 0d4a1185 00000003 00000000 0000000000000007"
    "0000000000000400 00000000 0000018bcfe56800 7f000001 000004d2"
    "0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000 0000000b"
    "68656c6c6f20776f726c64 09 546f70696354657374 0014"
    "54414753 01 54616741 02 4b455953 01 6b31206b32"
)
HOST = encode_host("127.0.0.1", 10911)


def test_the_vector_is_encoded() -> None:
    prepared = prepare(
        "TopicTest",
        b"hello world",
        queue_id=3,
        born_timestamp_ms=1700000000000,
        born_host_raw=encode_host("127.0.0.1", 1234),
        store_host_raw=HOST,
        properties_raw=b"TAGS\x01TagA\x02KEYS\x01k1 k2",
    )
    assert prepared.size == 131
    packed = prepared.pack(queue_offset=7, physical_offset=1024, store_timestamp_ms=1700000000123)
    assert packed == VECTOR


def test_the_vector_is_decoded() -> None:
    message = decode_message(b"??" + VECTOR + b"more", 2, phy_offset=1024)
    assert (message.topic, message.body, message.queue_id, message.queue_offset) == ("TopicTest", b"hello world", 3, 7)
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1 k2"}
    assert (message.born_host, message.store_host) == ("127.0.0.1:1234", "127.0.0.1:10911")
    assert message.offset_msg_id == message.msg_id == "7F00000100002A9F0000000000000400"
    assert (message.tags_code, message.body_crc) == (2598919, 0x0D4A1185)
    assert message.encode() == VECTOR


TOPICS = st.text("%|abcXYZ019_-", max_size=127)
HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
FIELDS = st.fixed_dictionaries(
    {
        "queue_id": INT,
        "flag": INT,
        "sys_flag": INT,
        "born_timestamp_ms": LONG,
        "born_host_raw": HOSTS,
        "store_host_raw": HOSTS,
        "reconsume_times": INT,
        "prepared_transaction_offset": LONG,
        "properties_raw": st.binary(max_size=200).map(lambda raw: raw.replace(b"\0", b"\1")),
    }
)


@given(topic=TOPICS, body=st.binary(max_size=300), fields=FIELDS, queue_offset=LONG, physical_offset=LONG, ms=LONG)
def test_what_is_prepared_decodes_as_itself(
    topic: str, body: bytes, fields: dict[str, Any], queue_offset: int, physical_offset: int, ms: int
) -> None:
    prepared = prepare(topic, body, **fields)
    packed = prepared.pack(queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp_ms=ms)
    message = decode_message(packed, phy_offset=physical_offset)
    v6 = (len(fields["born_host_raw"]) == 20) * 0x10 | (len(fields["store_host_raw"]) == 20) * 0x20
    wanted = fields | {"sys_flag": fields["sys_flag"] & ~0x30 | v6, "topic": topic, "body": body}
    assert {name: getattr(message, name) for name in wanted} == wanted
    assert (message.queue_offset, message.store_timestamp_ms, message.store_size) == (queue_offset, ms, len(packed))
    assert message.encode() == packed
    size = record_size(len(body), len(topic), properties_size=len(fields["properties_raw"]), sys_flag=v6)
    assert len(packed) == prepared.size == size


@pytest.mark.parametrize("end", range(131))
def test_a_part_of_a_record_is_none(end: int) -> None:
    with pytest.raises(CorruptLogError):
        decode_message(VECTOR[:end])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (bytes(200), "no record, but zero"),
        (encode_blank(200) + bytes(192), "no record, but blank"),
        (VECTOR[:90] + b"?" + VECTOR[91:], "BODYCRC 0x0D4A1185, but"),
        (b"\x7f\xff\xff\xff" + VECTOR[4:], "131 of the 2147483647 bytes"),
        (b"\xff\xff\xff\xff" + VECTOR[4:], "TOTALSIZE -1"),
    ],
)
def test_no_record_is_named(record: bytes, reason: str) -> None:
    with pytest.raises(CorruptLogError, match=reason):
        decode_message(record)


def test_another_physical_offset_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="claims PHYSICALOFFSET 1024") as caught:
        decode_message(VECTOR, phy_offset=7)
    assert caught.value.offset == 7


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": "a" * 128}, "at most 127"),
        ({"topic": "a/b"}, "only %"),
        ({"topic": "标签"}, "only %"),
        ({"properties_raw": bytes(32768)}, "32768 bytes, at most 32767"),
        ({"properties_raw": b"KEYS\x01a\0"}, "NUL"),
        ({"born_host_raw": bytes(7)}, "of 7 and 8 bytes"),
        ({"store_host_raw": bytes(16)}, "of 8 and 16 bytes"),
    ],
)
def test_what_the_layout_cannot_carry_is_refused(change: dict[str, Any], reason: str) -> None:
    hosts = {"born_host_raw": HOST, "store_host_raw": HOST}
    fields: dict[str, Any] = {"topic": "T", "body": b"", "queue_id": 0, "born_timestamp_ms": 0} | hosts | change
    with pytest.raises(LocalProtocolError, match=reason):
        prepare(**fields)


def test_the_largest_fields_fit() -> None:
    prepared = prepare(
        "a" * 127,
        b"",
        queue_id=0,
        born_timestamp_ms=0,
        born_host_raw=HOST,
        store_host_raw=HOST,
        properties_raw=b"x" * 32767,
    )
    message = decode_message(prepared.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=0))
    assert (message.topic, message.properties_raw, message.body_crc) == ("a" * 127, b"x" * 32767, 0)


@pytest.mark.parametrize(
    ("ip", "port", "raw", "text"),
    [
        ("127.0.0.1", 10911, "7f00000100002a9f", "127.0.0.1:10911"),
        ("::1", 1, "00000000000000000000000000000001 00000001", "[0:0:0:0:0:0:0:1]:1"),
        ("2001:db8:45::1", 45911, "20010db8004500000000000000000001 0000b357", "[2001:db8:45:0:0:0:0:1]:45911"),
        ("fe80::2%eth0", 2, "fe800000000000000000000000000002 00000002", "[fe80:0:0:0:0:0:0:2]:2"),
        ("::ffff:10.0.0.1", 3, "0a00000100000003", "10.0.0.1:3"),
    ],
)
def test_hosts(ip: str, port: int, raw: str, text: str) -> None:
    assert encode_host(ip, port) == bytes.fromhex(raw)
    assert decode_host(bytes.fromhex(raw)) == text
    assert parse_host(text) == bytes.fromhex(raw)


@pytest.mark.parametrize("text", ["", "10911", "localhost:1", "1.2.3.4:x", "1.2.3.4:", "1.2.3.4:-1"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"no IP address|not of the form"):
        parse_host(text)


@given(host=HOSTS, offset=st.integers(0, (1 << 63) - 1))
def test_message_ids_name_a_place(host: bytes, offset: int) -> None:
    text = encode_message_id(host, offset)
    assert len(text) in (32, 56)
    assert text == text.upper()
    assert decode_message_id(text) == (decode_host(host), offset)
    assert decode_message_id(text.lower()) == (decode_host(host), offset)


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, "7F " * 10 + "7F", "0" * 57])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="message id"):
        decode_message_id(text)


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (topic_problem("%RETRY%a-b_c|d"), ""),
        (topic_problem("a" * 127), ""),
        (topic_problem("a" * 128), "the topic is longer than 127 characters"),
        (topic_problem(""), "the topic is empty"),
        (topic_problem("a b"), "the topic 'a b' may only hold"),
        (topic_problem("a\n"), "the topic 'a\\n' may only hold"),
        (properties_problem(32767), ""),
        (properties_problem(32768), "properties of 32768 bytes"),
        (size_problem(191, file_size=199), ""),
        (size_problem(191, file_size=198), "191 bytes and 8 more do not fit"),
        (body_problem(100, message_size_max=100), ""),
        (body_problem(101, message_size_max=100), "body of 101 bytes, maxMessageSize is 100"),
    ],
)
def test_limits(problem: str, wanted: str) -> None:
    assert problem.startswith(wanted)
    assert bool(problem) == bool(wanted)


def test_topic_characters() -> None:
    legal = {chr(code) for code in range(256) if is_legal_topic(bytes([code]))}
    assert legal == set("%|_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
